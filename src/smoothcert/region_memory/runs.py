"""A certified run passed through a memory: the same certificates, cut so that no two answers contradict each other."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.databases import public_address
from smoothcert.datasets.base import Dataset
from smoothcert.errors import RunError
from smoothcert.noise import DIAGONAL_NOISES, save_sigmas
from smoothcert.region_memory.memory import RegionMemory, Source
from smoothcert.region_memory.records import BALLS
from smoothcert.region_memory.statement import Statement
from smoothcert.regions import CertifiedRegion, CrossPolytope, Ellipsoid
from smoothcert.runs import Record, Run, create_run, read_run
from smoothcert.runs.data_check import check_inputs_of
from smoothcert.runs.manifest import current_versions
from smoothcert.runs.records import results_digest
from smoothcert.sigma_search.log import read_found
from smoothcert.sigma_search.problem import with_sigma
from smoothcert.smoothing import CertifyPlan, decide
from smoothcert.tally import ABSTAIN

_SAME = 1e-9  # another version of scipy may round a radius differently in its last bits


@dataclass(frozen=True)
class _Kept:
    """A certificate as a run keeps it."""

    predicted: int
    region: CertifiedRegion | None
    sigma: float
    shift: float = 0.0


def remember(run: Run, dataset: Dataset, address: str | Path, out: Path) -> tuple[Run, Counter[Source]]:
    """Ask the memory at ``address`` about the run's inputs, in their order, and write its answers to the run ``out``.

    An input inside a stored region gets that region's class; any other offers its certificate, which is cut and stored.
    The new run is *stateful*: its answers hold for questions asked of this memory from now on, and another order could
    have given others. Its manifest says so, and which memory it was. Also returns how each answer came about.
    """
    _check(run, dataset)
    offers = _Offers(run, dataset)
    sources: Counter[Source] = Counter()
    records: list[Record] = []
    with RegionMemory.open(address, _statement(run, dataset)) as memory:
        for record in run.records:
            answer = memory.answer(dataset.input(record.index), partial(_given, offers.of(record)))
            sources[answer.source] += 1
            stretched = record.volume_radius is not None or isinstance(
                answer.region, Ellipsoid | CrossPolytope
            )
            volume = answer.volume_radius if stretched else None
            records.append(
                replace(record, predicted=answer.predicted, radius=answer.radius, volume_radius=volume)
            )
        head = str(memory.head)
    source = {"head": head, "results_sha256": results_digest(run.records)}
    manifest = replace(
        run.manifest,
        plan=run.manifest.plan | {"stateful": True, "memory": source},
        versions=current_versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        origin=run.manifest.origin
        | {"memory": public_address(str(address)), "remembered_from": str(run.path)},
    )
    create_run(out, manifest, records)
    if run.manifest.plan["noise"] in DIAGONAL_NOISES:
        save_sigmas(out, offers.plan.noise)
    return read_run(out), sources


def _given(offered: _Kept, _x: NDArray[Any]) -> _Kept:
    return offered


class _Offers:
    """The run's certificates: balls from their radii, other regions from their votes and their noise."""

    def __init__(self, run: Run, dataset: Dataset) -> None:
        self.run, self.dataset = run, dataset
        self.found = read_found(run.path)

    @cached_property
    def plan(self) -> CertifyPlan:
        """The run's plan, read from disk where it is needed."""
        return CertifyPlan.from_json(self.run.manifest.plan, self.run.path)

    def of(self, record: Record) -> _Kept:
        """The certificate of one input."""
        if record.abstained or record.radius <= 0:
            return _Kept(ABSTAIN, None, record.sigma)
        x = self.dataset.input(record.index).astype(np.float64)
        found = self.found.get(record.index)
        if self.run.manifest.plan["noise"] in DIAGONAL_NOISES:
            region: CertifiedRegion = self._from_votes(x, record, self.plan)
        elif found is not None and found.noise is not None:
            region = self._from_votes(x, record, replace(self.plan, noise=found.noise))
        else:
            region = BALLS[self.run.manifest.plan["norm"]](self._point(x, record), record.radius)
        order = 1 if region.norm == "l1" else 2
        shift = float(np.linalg.norm((x - region.center).ravel(), order))
        return _Kept(record.predicted, region, record.sigma, shift)

    def _point(self, x: NDArray[np.float64], record: Record) -> NDArray[np.float64]:
        """The point that a record's votes are about."""
        if "stream" not in self.run.manifest.plan:
            return x
        return replace(self.plan, noise=with_sigma(self.plan.noise, record.sigma)).point(x)

    def _from_votes(self, x: NDArray[np.float64], record: Record, plan: CertifyPlan) -> CertifiedRegion:
        if record.selection is None or record.estimation is None:
            raise RunError(
                f"{self.run.path} keeps no votes of input {record.index}, which its region is computed from"
            )
        again = decide(x, plan, record.selection, record.estimation)
        same = math.isclose(again.radius, record.radius, rel_tol=_SAME)
        if again.region is None or again.predicted != record.predicted or not same:
            raise RunError(
                f"{self.run.path}: the result of input {record.index} (class {record.predicted}, radius "
                f"{record.radius:g}) doesn't follow from its votes and the plan; restore the run or certify again"
            )
        return again.region


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
