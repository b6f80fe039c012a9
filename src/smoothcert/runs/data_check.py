"""The inputs a run was certified on: opened where the user says, or by a registered name, and checked.

A run of unknown origin may name any path of the reader's disk, and any module. Nothing that it names is opened.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from smoothcert import datasets
from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.errors import DataError
from smoothcert.plain_text import shown_name
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import Run


def check_inputs_of(run: Run, dataset: Dataset) -> None:
    """Refuse a data set with other contents than the run states."""
    there, here = str(run.manifest.data.sha256), dataset.fingerprint()
    if there != here:
        raise DataError(
            f"{dataset.name} does not hold the inputs that {run.path} was certified on: its sha256 is "
            f"{here[:12]}…, the run's is {there[:12]}… ({run.manifest.data.name}, "
            f"{run.manifest.data.inputs} inputs); give that data set, split and folder with --dataset, --split "
            "and --data-dir"
        )


def inputs_fitted_on(dataset: Dataset, indices: range) -> dict[str, Any]:
    """What a fit states of its data."""
    return {
        "name": dataset.name,
        "sha256": dataset.fingerprint(),
        "inputs": len(dataset),
        "skip": indices.step,
        "used": len(indices),
        "dimension": math.prod(dataset.input_shape),
    }


def registered_dataset(manifest: Manifest) -> str | None:
    """The data set that the run states, if it is a registered name and no path; the user says where its files are."""
    stated = manifest.origin.dataset or manifest.data.name
    return stated if stated in DATASETS else None


def suggested_options(**places: str | None) -> str:
    """What a run says of where things were, as options for readers who trust it."""
    given = {name: value for name, value in places.items() if value is not None}
    return shlex.join(
        word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", shown_name(value))
    )


def open_inputs_of(
    run: Run, dataset: str | None = None, split: str | None = None, data_dir: Path | None = None
) -> Dataset:
    """The data set the user names, else the registered one that the run states; the caller checks its contents."""
    origin = run.manifest.origin
    spec = dataset or registered_dataset(run.manifest)
    if spec is None:
        named = suggested_options(dataset=origin.dataset or run.manifest.data.name or "DATASET")
        raise DataError(
            f"{run.path} names a data set by its path, and nothing that a run names is opened unasked. If that is the "
            f"one you mean, add: {named}"
        )
    try:
        return datasets.load(spec, split or origin.split or "test", data_dir)
    except DataError as error:
        if data_dir is not None or origin.data_dir is None:
            raise
        hint = suggested_options(data_dir=origin.data_dir)
        raise DataError(
            f"{error}. {run.path} was made with {hint}, which isn't opened unless you say so"
        ) from None
