"""A certified run passed through a memory: the same certificates, cut so that no two answers contradict each other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.errors import RunError
from smoothcert.region_memory.memory import RegionMemory, Source
from smoothcert.region_memory.records import BALLS, Ball
from smoothcert.region_memory.statement import Statement
from smoothcert.runs import Record, Run, create_run, read_run
from smoothcert.runs.data_check import check_inputs_of
from smoothcert.runs.manifest import current_versions
from smoothcert.runs.records import results_digest
from smoothcert.tally import ABSTAIN


@dataclass(frozen=True)
class _Kept:
    """A certificate as a run keeps it."""

    predicted: int
    region: Ball | None
    sigma: float


def remember(run: Run, dataset: Dataset, address: str | Path, out: Path) -> tuple[Run, Counter[Source]]:
    """Ask the memory at ``address`` about the run's inputs, in their order, and write its answers to the run ``out``.

    An input inside a stored region gets that region's class; any other offers its certificate, which is cut and stored.
    The new run is *stateful*: its answers hold for questions asked of this memory from now on, and another order could
    have given others. Its manifest says so, and which memory it was. Also returns how each answer came about.
    """
    _check(run, dataset)
    sources: Counter[Source] = Counter()
    records: list[Record] = []
    with RegionMemory.open(address, _statement(run, dataset)) as memory:
        for record in run.records:
            offered = _kept(run, record, dataset)
            answer = memory.answer(dataset.input(record.index), partial(_given, offered))
            sources[answer.source] += 1
            records.append(replace(record, predicted=answer.predicted, radius=answer.radius))
        head = str(memory.head)
    source = {"head": head, "results_sha256": results_digest(run.records)}
    manifest = replace(
        run.manifest,
        plan=run.manifest.plan | {"stateful": True, "memory": source},
        versions=current_versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        origin=run.manifest.origin | {"memory": str(address), "remembered_from": str(run.path)},
    )
    create_run(out, manifest, records)
    return read_run(out), sources


def _given(offered: _Kept, _x: NDArray[Any]) -> _Kept:
    return offered


def _kept(run: Run, record: Record, dataset: Dataset) -> _Kept:
    if record.abstained or record.radius <= 0:
        return _Kept(ABSTAIN, None, record.sigma)
    ball = BALLS[run.manifest.plan["norm"]]
    return _Kept(
        record.predicted, ball(dataset.input(record.index).astype(np.float64), record.radius), record.sigma
    )


def _statement(run: Run, dataset: Dataset) -> Statement:
    plan = run.manifest.plan
    return Statement(
        model_sha256=run.manifest.model["sha256"],
        input_shape=dataset.input_shape,
        noise=plan["noise"],
        norm=plan["norm"],
    )


def _check(run: Run, dataset: Dataset) -> None:
    if run.manifest.kind != "certify":
        raise RunError(
            f"{run.path} is of kind {run.manifest.kind!r} and names no model, so no memory can be bound to it; "
            "remember a run made by smoothcert certify"
        )
    if run.manifest.plan.get("stateful"):
        raise RunError(f"{run.path} comes out of a memory already: remember the run it was made from")
    if not run.records:
        raise RunError(f"{run.path}: no input has been certified yet; run the certification first")
    check_inputs_of(run, dataset)
