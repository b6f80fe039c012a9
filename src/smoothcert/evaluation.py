"""Certifying a data set into a run: resumable, one record per input, the same bits however it was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, check_count
from smoothcert.runs import Manifest, Record, Run, open_run, read_run
from smoothcert.runs.manifest import current_versions
from smoothcert.sigma_search.log import append_found
from smoothcert.smoothing import Certification, SmoothedClassifier


@dataclass(frozen=True)
class Choice:
    """Which inputs of a data set: every ``skip``-th, and no more than ``most`` of those."""

    skip: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        check_count("skip", self.skip)
        if self.most is not None:
            check_count("max", self.most)

    def indices(self, size: int) -> range:
        """The chosen positions in a data set of ``size`` inputs."""
        return range(0, size, self.skip)[: self.most]


@dataclass(frozen=True)
class Progress:
    """What to tell whoever is watching; every callback may be left out."""

    begin: Callable[[int, int], None] | None = None
    """(votes to cast, inputs done before)"""
    votes: Callable[[int], None] | None = None
    """(votes just counted)"""
    record: Callable[[Record], None] | None = None


def certify_dataset(
    classifier: SmoothedClassifier,
    dataset: Dataset,
    out: Path,
    choice: Choice | None = None,
    progress: Progress | None = None,
    origin: dict[str, Any] | None = None,
) -> Run:
    """Certify the chosen inputs of a data set into the run ``out``, continuing what is there already.

    A record is on disk before its input counts as done. The run refuses another plan, model or data set; asking
    for more inputs of the same choice is welcome. ``origin``, where model and data were found, is kept for the
    record of a new run and takes no part in that. Where the plan searches for each input's σ, its record has that σ
    and ``sigma_search.jsonl`` says how it was found.
    """
    choice, progress = choice or Choice(), progress or Progress()
    manifest = _manifest(classifier, dataset, choice, origin or {})
    with open_run(out, manifest) as journal:
        done = journal.indices()
        indices = choice.indices(len(dataset))
        missing = [index for index in indices if index not in done]
        if progress.begin is not None:
            plan = classifier.plan
            per_input = plan.n0 + plan.n + (plan.search.evaluations if plan.search is not None else 0)
            progress.begin(per_input * len(missing), len(indices) - len(missing))
        inputs = ((index, dataset.input(index)) for index in missing)
        for answer in classifier.certify_each(inputs, progress.votes):
            base = classifier.base_class(dataset.input(answer.index))
            label = int(dataset.labels[answer.index])
            if answer.search is not None:
                append_found(out, answer.search)
            record = record_of(answer, label, answer.sigma, base)
            journal.append(record)
            if progress.record is not None:
                progress.record(record)
    return read_run(out)


def record_of(answer: Certification, label: int, sigma: float, base: int | None = None) -> Record:
    """The journal's view of a certification."""
    return Record(
        answer.index,
        label,
        answer.predicted,
        answer.radius,
        sigma,
        answer.seconds,
        answer.selection,
        answer.estimation,
        base,
    )


def _manifest(
    classifier: SmoothedClassifier, dataset: Dataset, choice: Choice, origin: dict[str, Any]
) -> Manifest:
    plan = classifier.prepare(dataset.input_shape)
    if classifier.classes < len(dataset.classes):
        raise DataError(
            f"{dataset.name} has {len(dataset.classes)} classes but {classifier.base.name} knows "
            f"{classifier.classes}: they don't belong together"
        )
    # The device is no part of the statistical statement, but another kind of device rounds differently: a run
    # that promises the same bits stays on the kind it was started on.
    device = classifier.execution.device.partition(":")[0]
    return Manifest(
        kind="certify",
        plan=plan.as_json() | {"device": device},
        model={"name": classifier.base.name, "sha256": classifier.base.fingerprint()},
        data={
            "name": dataset.name,
            "sha256": dataset.fingerprint(),
            "inputs": len(dataset),
            "skip": choice.skip,
        },
        versions=current_versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        origin=origin,
    )
