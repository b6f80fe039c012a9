"""Answers of Python as a run directory: what tables, plots, reports and `verify` open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError
from smoothcert.models.base import BaseClassifier
from smoothcert.runs.manifest import Manifest, route_versions
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, create_run, read_run
from smoothcert.runs.statement import BY_VALUES, sigmas_files
from smoothcert.smoothing.inputs import content_index, label_numbers
from smoothcert.smoothing.plan import CertifyPlan


@dataclass(frozen=True, eq=False)
class Source:
    """What answers rest on beside their votes: the settled plan, the model, and the inputs."""

    plan: CertifyPlan
    base: BaseClassifier
    inputs: NDArray[Any]
    device: str
    order: tuple[int, ...] | None
    held: NDArray[np.bool_] | None
    by_values: bool
    """Whether the number of a random stream follows from the input's values, and is not its row."""


def labelled_inputs(
    inputs: NDArray[Any], labels: ArrayLike, names: tuple[Any, ...] | None, classes: int | None, name: str
) -> Dataset:
    """A data set of arrays; labels are numbers, or as the model calls its classes."""
    numbers = np.array(label_numbers(labels, names, len(inputs), classes), dtype=np.int64)
    count = max(int(numbers.max()) + 1, 2) if classes is None else classes
    called = tuple(str(each) for each in (range(count) if names is None else names))
    return Dataset(name, inputs, numbers, called)


def save_records(source: Source, records: list[Record], dataset: Dataset, out: Path) -> Run:
    """A complete run of these records in a directory that holds none yet."""
    plan, held = source.plan, source.held
    if plan.search is not None or plan.sigma_levels is not None or plan.budget.spreads:
        raise InvalidValueError(
            "answers of a sigma search, of sigma levels or of a shared budget rest on more than their votes: "
            "certify_dataset keeps that as well"
        )
    for record, x in zip(records, source.inputs):
        if (
            source.by_values
            and record.estimation is not None
            and record.estimation.stream.index != content_index(x)
        ):
            raise InvalidValueError(
                f"input {record.index} has changed since: give certify a copy, or save before"
            )
    places = [] if held is None else np.flatnonzero(held).tolist()
    name = source.base.name
    manifest = Manifest.of(
        kind="certify",
        plan=plan.as_json() | {"device": source.device},
        model={
            "name": name if held is None else f"{name} ({len(places)} of {held.size} coordinates held)",
            "sha256": source.base.fingerprint(dataset.input_shape),
            **({"held": places} if places else {}),
            **({"declared": dict(source.base.declared)} if source.base.declared else {}),
            **({} if source.order is None else {"order": list(source.order)}),
        },
        data={
            "name": dataset.name,
            "sha256": dataset.fingerprint(),
            "inputs": len(dataset),
            "skip": 1,
            "planned": len(dataset),
            "levels": dataset.levels,
            **({"streams": BY_VALUES} if source.by_values else {}),
        },
    ).made_now(**route_versions(plan.numerics.route))
    create_run(out, manifest, records, sigmas_files(plan.noise))
    return read_run(out)
