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
from smoothcert.runs.statement import BY_VALUES, Choice, sigmas_files
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
    votes = [(record.index, record.estimation, x) for record, x in zip(records, source.inputs)]
    for index, estimation, x in votes:
        if source.by_values and estimation is not None and estimation.stream.index != content_index(x):
            raise InvalidValueError(f"input {index} has changed since: give certify a copy, or save before")
    sha256, place = source.base.fingerprint(dataset.input_shape), (source.device, source.order, held)
    manifest = certified_manifest(plan, source.base, sha256, dataset, *place, by_values=source.by_values)
    create_run(out, manifest, records, sigmas_files(plan.noise))
    return read_run(out)


def certified_manifest(
    plan: CertifyPlan,
    base: BaseClassifier,
    sha256: str,
    dataset: Dataset,
    device: str,
    order: tuple[int, ...] | None,
    held: NDArray[np.bool_] | None,
    choice: Choice | None = None,
    *,
    by_values: bool = False,
    answers: list[int] | None = None,
    origin: dict[str, Any] | None = None,
) -> Manifest:
    """The statement of a certification of these inputs, or of those chosen.

    The device is stated beside the plan, because another kind of device rounds differently: a run that
    promises the same bits stays on the kind it was started on. Which class is which follows from names, which no hash
    is of: ``order`` says so.
    """
    choice, places = choice or Choice(), [] if held is None else np.flatnonzero(held).tolist()
    beside = "" if held is None else f" ({len(places)} of {held.size} coordinates held)"
    model: dict[str, Any] = {"name": base.name + beside, "sha256": sha256, "answers": answers}
    model |= {"held": places or None, "declared": dict(base.declared) or None, "order": order and list(order)}
    data = {"name": dataset.name, "sha256": dataset.fingerprint(), "inputs": len(dataset)}
    data |= {"skip": choice.skip} | ({"first": choice.first} if choice.first else {})
    data["planned"] = len(choice.planned(len(dataset)))
    data |= {} if choice.shard is None else {"shard": str(choice.shard)}
    data |= {"levels": dataset.levels} | ({"streams": BY_VALUES} if by_values else {})
    stated = {name: value for name, value in model.items() if value is not None}
    manifest = Manifest.of("certify", plan.as_json() | {"device": device}, stated, data, origin=origin or {})
    return manifest.made_now(**route_versions(plan.numerics.route))
