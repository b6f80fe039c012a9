"""A certified run passed through a memory: the same certificates, cut so that no two answers contradict each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.databases import public_address
from smoothcert.datasets.base import Dataset
from smoothcert.errors import RunError
from smoothcert.files import checksum
from smoothcert.perturb.base import real_noise
from smoothcert.perturb.diagonal import DIAGONAL_NOISES
from smoothcert.regions.bodies import BALLS, CertifiedRegion, CrossPolytope, Ellipsoid
from smoothcert.rounding import same_radius
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, check_inputs_of, read_run, reserve_run
from smoothcert.runs.side_files import append_sealed, read_sealed, read_searches
from smoothcert.runs.statement import ModelStatement, PlanStatement, sigmas_files
from smoothcert.smoothing.memory import MemoryAnswer, RegionMemory, Source
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import decide
from smoothcert.smoothing.search.base import with_sigma
from smoothcert.smoothing.stores.base import Head, MemoryStatement, answers_text, numbering, store_for
from smoothcert.tally import ABSTAIN


def remember(
    run: Run, dataset: Dataset, address: str | Path, out: Path, on_answer: Callable[[], None] | None = None
) -> tuple[Run, Counter[Source]]:
    """Ask the memory at ``address`` about the run's inputs, in their order, and write its answers to the run ``out``.

    An input inside a stored region gets that region's class. Its certificate is cut and stored, unless that region is
    of another class or leaves as much volume around it. The new run is *stateful*: its answers hold for questions asked
    of this memory from now on, and another order could have given others. Its manifest says so, and which memory it
    was. Also returns how each answer came about.

    Answers are noted in ``answers.jsonl`` as they come. Killed at any moment, the same call goes on, to the same bits
    and the same account, unless others have asked the memory meanwhile. ``on_answer`` is called after each of the run's
    inputs, those answered before included.
    """
    store_for(address)  # what it needs is installed, before anything is written
    on_answer = on_answer or (lambda: None)
    _check(run, dataset)
    offers = _Offers(run, dataset)
    digest = run.records.digest
    with reserve_run(out) as write:
        log = AnswerLog(out, digest, public_address(str(address)), run.records.index.tolist())
        with RegionMemory.open(address, _statement(run, dataset)) as memory:
            log.begin(memory.head)
            recovering = log.resumed
            for _ in log.answers:
                on_answer()
            for record in run.records[len(log.answers) :]:
                x, offered = dataset.input(record.index), offers.of(record)
                answer = _answered_before(memory, run, offers, record, log.stored) if recovering else None
                if answer is None:
                    recovering = False
                    answer = memory.offer(x, offered)
                held = max(log.stored, answer.record or 0) if recovering else len(memory)
                log.append(_noted(record, answer, held))
                on_answer()
            log.end(memory.head)
        records = [log.answers[record.index].of(record) for record in run.records]
        manifest = _manifest(run, address, {"head": log.head, "results_sha256": digest})
        write(manifest, records, sigmas_files(offers.plan.noise) if _stretched(run) else {})
    return read_run(out), Counter(answer.source for answer in log.answers.values())


@dataclass(frozen=True)
class Answered:
    """One answer, to the last bit."""

    index: int
    predicted: int
    radius: float
    volume_radius: float | None
    source: Source
    held: int
    """How many regions the memory held then."""

    def of(self, record: Record) -> Record:
        """The record of the input with this answer."""
        return replace(record, predicted=self.predicted, radius=self.radius, volume_radius=self.volume_radius)


class AnswerLog:
    """The answers to a run's inputs, in their order, from one memory.

    ``stored`` is how many regions the memory held after the last of them, ``head`` what names it at the end.
    """

    def __init__(self, directory: Path, results_sha256: str, memory: str, order: list[int]) -> None:
        self._path = RunFiles(directory).answers
        self._about = {"results_sha256": results_sha256, "memory": memory}
        self.answers: dict[int, Answered] = {}
        self.stored = 0
        self.head = ""
        lines = list(read_sealed(self._path, always=True))
        self.resumed = bool(lines)
        if not lines:
            if RunFiles(directory).statement.exists():
                raise RunError(f"{directory} holds a run already; choose another --out")
            return
        first, *rest = lines
        if {name: first.get(name) for name in self._about} != self._about or "stored" not in first:
            raise RunError(
                f"{self._path} is damaged, or holds answers about another run or of another memory; choose another "
                "--out"
            )
        self.stored = first["stored"]
        for line in rest:
            if "head" in line:
                self.head = line["head"]
            else:
                self._take(Answered(**line))
        if list(self.answers) != order[: len(self.answers)] or (self.head and len(self.answers) < len(order)):
            raise RunError(
                f"{self._path} is damaged: answers are missing between others, and a memory that has grown would "
                "give others; restore it, or choose another --out"
            )

    def begin(self, head: Head) -> None:
        """Called before the memory is asked."""
        if not self.resumed:
            self.stored = head.count
            append_sealed(self._path, self._about | {"stored": head.count})

    def append(self, answer: Answered) -> None:
        """Note an answer and wait until it is on disk."""
        append_sealed(self._path, asdict(answer))
        self._take(answer)

    def end(self, head: Head) -> None:
        """Every input is answered."""
        if not self.head:
            self.head = str(head)
            append_sealed(self._path, {"head": self.head})

    def _take(self, answer: Answered) -> None:
        self.answers[answer.index], self.stored = answer, answer.held


def _answered_before(
    memory: RegionMemory, run: Run, offers: _Offers, record: Record, stored: int
) -> MemoryAnswer | None:
    """The answer that was given when the memory held ``stored`` regions, and that a kill kept from being noted.

    None if the input wasn't asked about. What the memory has learnt since must not answer in its place.
    """
    if len(memory) <= stored:
        return None
    x = offers.dataset.input(record.index)
    answer = memory.stored_for(stored + 1, x, offers.of(record)) or memory.look_up(x, among=stored)
    if answer is not None:
        return answer
    # Asked in their order, an input before the next one that left a region was asked about, and left none.
    later = (one for one in run.records if one.index > record.index)
    if any(memory.stored_for(stored + 1, offers.dataset.input(o.index), offers.of(o)) for o in later):
        return MemoryAnswer(ABSTAIN, None, "abstained", None)
    return None


def _noted(record: Record, answer: MemoryAnswer, held: int) -> Answered:
    stretched = record.volume_radius is not None or isinstance(answer.region, Ellipsoid | CrossPolytope)
    volume = answer.volume_radius if stretched else None
    return Answered(record.index, answer.predicted, answer.radius, volume, answer.source, held)


def _stretched(run: Run) -> bool:
    return run.manifest.plan.noise in DIAGONAL_NOISES


def _manifest(run: Run, address: str | Path, source: dict[str, str]) -> Manifest:
    return replace(
        run.manifest,
        plan=run.manifest.plan.but(stateful=True, memory=source),
        origin=run.manifest.origin.but(memory=public_address(str(address)), remembered_from=str(run.path)),
    ).made_now()


@dataclass(frozen=True)
class _Kept:
    """A certificate as a run keeps it."""

    predicted: int
    region: CertifiedRegion | None
    sigma: float
    shift: float = 0.0


class _Offers:
    """The run's certificates: balls from their radii, other regions from their votes and their noise."""

    def __init__(self, run: Run, dataset: Dataset) -> None:
        self.run, self.dataset = run, dataset
        self.found = read_searches(run.path)

    @cached_property
    def plan(self) -> CertifyPlan:
        """The run's plan, read from disk where it is needed."""
        return CertifyPlan.from_statement(self.run.manifest.plan, self.run.path)

    def of(self, record: Record) -> _Kept:
        if record.abstained or record.radius <= 0:
            return _Kept(ABSTAIN, None, record.sigma)
        x = self.dataset.input(record.index).astype(np.float64)
        found = self.found.get(record.index)
        if self.run.manifest.plan.sigma_search and found is None:
            raise RunError(
                f"{self.run.path} keeps no intact line of the search for the σ of input {record.index}; certify again "
                "with the same command: it fills in what is missing"
            )
        if _stretched(self.run):
            region: CertifiedRegion = self._from_votes(x, record, self.plan)
        elif found is not None and found.noise is not None:
            region = self._from_votes(x, record, replace(self.plan, noise=found.noise, search=None))
        else:
            region = BALLS[self.run.norm](self._point(x, record), record.radius)
        shift = float(np.linalg.norm((x - region.center).ravel(), region.order))
        return _Kept(record.predicted, region, record.sigma, shift)

    def _point(self, x: NDArray[np.float64], record: Record) -> NDArray[np.float64]:
        if self.run.manifest.plan.stream is None:
            return x
        noise = with_sigma(real_noise(self.plan.noise, "a region memory"), record.sigma)
        return replace(self.plan, noise=noise).point(x)

    def _from_votes(self, x: NDArray[np.float64], record: Record, plan: CertifyPlan) -> CertifiedRegion:
        if record.selection is None or record.estimation is None:
            raise RunError(f"{self.run.path} keeps no votes of input {record.index}, which give its region")
        again = decide(x, plan, record.selection, record.estimation)
        same = again.predicted == record.predicted and same_radius(again.radius, record.radius)
        if again.region is None or not same:
            raise RunError(
                f"{self.run.path}: the result of input {record.index} (class {record.predicted}, radius "
                f"{record.radius:g}) doesn't follow from its votes and the plan; restore the run or certify again"
            )
        return again.region


def _statement(run: Run, dataset: Dataset) -> MemoryStatement:
    # Which rows the run's model was asked about follows from the data, the noise and the seed.
    plan, names = run.manifest.plan, ("noise", "sigma", "sigmas_sha256", "seed", "dtype")
    rows_named = checksum([run.manifest.data.sha256, *map(plan.value, names)])
    return MemoryStatement(
        model_sha256=run.manifest.model.known(ModelStatement.sha256),
        input_shape=dataset.input_shape,
        noise=plan.known(PlanStatement.noise),
        norm=run.norm,
        preprocessing="none" + numbering(run.manifest.model.order),
        answers=answers_text(rows_named, run.manifest.model.answers),
    )


def _check(run: Run, dataset: Dataset) -> None:
    plan = run.manifest.plan
    reasons = {
        f"is of kind {run.manifest.kind!r} and names no model, so no memory can be bound to it; remember a run made by "
        "smoothcert certify": run.manifest.kind != "certify",
        "comes out of a memory already: remember the run it was made from": plan.stateful,
        "is about one classifier whose σ follows the input by levels: its certificates never contradict each other, "
        "and need no memory": plan.sigma_levels is not None,
        "certifies changes of the coordinates that aren't held, and a memory's regions are of whole inputs: remember a "
        "run made without --hold": run.manifest.model.held is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise RunError(f"{run.path} {reason}")
    run.check_begun()
    check_inputs_of(run, dataset)
