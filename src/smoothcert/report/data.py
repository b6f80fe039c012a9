"""The data set behind a group of runs: one the user names, or a registered one, checked before it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from smoothcert import datasets
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, SmoothcertError
from smoothcert.report.groups import Group
from smoothcert.runs import Run
from smoothcert.runs.data_check import registered_dataset, suggested_options


@dataclass(frozen=True)
class DataPlace:
    """Where the data is now; what is None is taken from the runs."""

    dataset: str | None = None
    split: str | None = None
    data_dir: Path | None = None

    @property
    def named(self) -> bool:
        """Whether anything was said."""
        return any(part is not None for part in (self.dataset, self.split, self.data_dir))


@dataclass(frozen=True, eq=False)
class FoundData:
    """A group's data set, or why there is none; ``note`` goes on the page either way."""

    dataset: Dataset | None
    note: str


def find_data(groups: Sequence[Group], place: DataPlace) -> list[FoundData]:
    """Each group's data set. Where a place was named but no group's inputs are there, that is an error."""
    # Each data set is read once, however many groups ask for it, and its hash computed where a run states one.
    load, fingerprint = cache(_load), cache(Dataset.fingerprint)
    found = []
    first_error: SmoothcertError | None = None
    for group in groups:
        try:
            found.append(_find(group.runs[0], place, load, fingerprint))
        except SmoothcertError as error:
            first_error = first_error or error
            found.append(FoundData(None, f"Pictures are missing: {error}"))
    if place.named and first_error is not None and all(one.dataset is None for one in found):
        raise first_error
    return found


def _load(spec: str, split: str, root: Path | None) -> Dataset | SmoothcertError:
    """A data set, or why there is none."""
    try:
        return datasets.load(spec, split, root)
    except SmoothcertError as error:
        return error


def _find(
    run: Run,
    place: DataPlace,
    load: Callable[[str, str, Path | None], Dataset | SmoothcertError],
    fingerprint: Callable[[Dataset], str],
) -> FoundData:
    origin, data = run.manifest.origin, run.manifest.data
    stated = data.sha256
    spec = place.dataset or (None if stated is None else registered_dataset(run.manifest))
    if spec is None:
        named = None if run.manifest.kind == "import" else origin.dataset or data.name
        raise DataError(
            f"{run.name} doesn't say where its data set is; name it with --dataset (and --data-dir, --split)"
            if named is None
            else f"{run.name} names a data set by its path or without its hash, which is not opened unasked; if you "
            f"want its inputs on the page, add {suggested_options(dataset=named)}"
        )
    dataset = load(spec, place.split or origin.split or "test", place.data_dir)
    if isinstance(dataset, SmoothcertError):
        raise dataset
    if stated is None:
        _check_labels(run, dataset)
        return FoundData(
            dataset,
            f"Inputs come from {dataset.name}. The run states no hash of its data: that they are the certified ones "
            "was checked by their labels only.",
        )
    here = fingerprint(dataset)
    if here != stated:
        raise DataError(
            f"{dataset.name} does not hold the inputs that {run.name} was certified on: its sha256 is {here[:12]}…, "
            f"the run's is {stated[:12]}…; give that data set with --dataset, --split and --data-dir"
        )
    return FoundData(
        dataset,
        f"Inputs come from {dataset.name}, whose sha256 {here[:12]}… is the one the run was made with.",
    )


def _check_labels(run: Run, dataset: Dataset) -> None:
    index, label = run.records.index, run.records.label
    if len(index) and index[-1] >= len(dataset):
        raise DataError(
            f"{dataset.name} has {len(dataset)} inputs, but {run.name} has an input {index[-1]}; name the data set it "
            "was made with"
        )
    for place in np.flatnonzero(dataset.labels[index] != label)[:1]:
        raise DataError(
            f"{dataset.name} gives input {index[place]} the label {dataset.labels[index[place]]}, {run.name} gives it "
            f"{label[place]}; name the data set it was made with"
        )
