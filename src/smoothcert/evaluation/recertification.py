"""Recertification: another α or bound for the votes that a run has stored.

Each certificate of the new run holds with probability 1−α if α and bound were chosen for the whole run *without*
looking at its votes. It has the bits that certifying so would give where the number of votes doesn't depend on α and
bound (:func:`as_if_certified`). With σ levels it does: a chooser votes until it reaches far enough at its α, and
other levels are voted on where it doesn't. The new certificates hold all the same, because those votes have bounds that
hold whenever voting stops; they may be smaller than certifying so would give, which might have looked at more levels.
Choosing them per input, or taking the better of several runs, voids the promise:
nothing here can tell, so the new run says what it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.bounds.base import BOUNDS
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.experimental.levels.procedures import decide_levels, home_plan, levels_of
from smoothcert.perturb.diagonal import DiagonalNoise
from smoothcert.registry import unknown_name
from smoothcert.rounding import SAME, same_radius
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, create_run, read_run
from smoothcert.runs.side_files import LevelEvidence, missing_line, read_evidence
from smoothcert.runs.statement import BY_VALUES, PlanStatement, sigmas_files
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import decide
from smoothcert.smoothing.stopping.base import budget_among, parse_stops, stop_rules
from smoothcert.tally import Phase, Tally

CHANGEABLE = ("alpha", "bound")
"""What votes don't depend on."""

_VOTES_DEPEND_ON = (
    "sigma",
    "noise",
    "n",
    "n0",
    "seed",
    "dtype",
    "route",
    "chunk",
    "block",
    "generator",
    "device",
)


def recertify(run: Run, out: Path, on_record: Callable[[], None] = lambda: None, **changes: Any) -> Run:
    """Write the run that ``changes`` (``alpha``, ``bound``) make of a run's votes to the new directory ``out``.

    Without changes the new run has the results digest of the old one. A run under way is taken as far as it is, and
    the new run states, as the old one, how many inputs were asked for. ``on_record`` is called after each input.
    """
    manifest, records = recertified(run, on_record, **changes)
    # Of chooser and levels, of pilots, and what these allocated.
    votes = {name: content for name, content in RunFiles(run.path).kept() if name != RunFiles.sigmas.name}
    create_run(out, manifest, records, sigmas_files(_plan_of(run).noise) | votes)
    return read_run(out)


def recertified(
    run: Run, on_record: Callable[[], None] = lambda: None, **changes: Any
) -> tuple[Manifest, list[Record]]:
    """The new run's manifest and records; refused where votes are missing or would have to be cast again."""
    _check_has_votes(run)
    if search := run.manifest.plan.sigma_search:
        raise RunError(
            f"{run.path} was certified at a σ that {search} found for each input, and only runs at one noise are "
            f"recertified; certify the model again"
        )
    _check_changes(run, changes)
    old = _plan_of(run)
    _check_bound(run, old, changes.get("bound"))
    new = replace(old, **{key: changes[key] for key in CHANGEABLE if changes.get(key) is not None})
    if new.confidence_bound.votes == "soft" and old.confidence_bound.votes == "hard":
        raise RunError(
            f"{run.path} kept hard votes ({old.bound} bound); the {new.bound} bound needs soft ones, so they would "
            f"have to be cast again: certify the model with --bound {new.bound}"
        )
    evidence = read_evidence(run.path) if new.sigma_levels is not None else {}
    records = []
    for record in run.records:
        votes = evidence.get(record.index)
        _check_follows(run, record, old, votes)
        records.append(_decided(record, new, votes))
        on_record()
    stated = run.manifest.plan.but(bound=new.bound, votes=new.confidence_bound.votes, alpha=new.alpha)
    if new.sigma_levels is not None and new.sigma_levels.constant is None:
        chooser: Mapping[str, Any] = stated.known(PlanStatement.chooser)
        stated = stated.but(chooser={**chooser, "alpha": new.sigma_levels.chooser_alpha(new.alpha)})
    source = {"results_sha256": run.records.digest, "bound": old.bound, "alpha": old.alpha}
    if earlier := run.manifest.plan.recertified_from:
        source["recertified_from"] = earlier
    manifest = replace(
        run.manifest,
        plan=stated.but(recertified_from=source),
        origin=run.manifest.origin.but(recertified_from=str(run.path)),
    )
    return manifest.made_now(), records


def as_if_certified(run: Run, bound: str) -> bool:
    """Whether ``certify`` with this bound, at any α, would have cast the run's votes.

    It would where there are always n, or none where the selection votes alone decide (``--stop wrong``) and are of the
    same kind. Every other rule ends the voting, or chooses n, by what α and the bound make of votes; so do choosers.
    """
    if "constant" not in (run.manifest.plan.chooser or {"constant": None}):
        return False
    stops, votes = parse_stops(run.manifest.plan.stops), BOUNDS[bound].votes
    return not stops or (
        not budget_among(stops).pilot_votes
        and all(rule.sees == "selection" for rule in stop_rules(stops))
        and run.manifest.plan.votes in (votes, None)
    )


def _check_has_votes(run: Run) -> None:
    if run.manifest.kind == "import" or any(r.selection is None or r.estimation is None for r in run.records):
        raise RunError(
            f"{run.path} was imported from a log, which holds radii but no votes: there is nothing to recertify from; "
            "certify the model yourself"
        )
    if run.manifest.kind != "certify":
        raise RunError(f"{run.path} is of kind {run.manifest.kind!r}; recertify a run of smoothcert certify")
    run.check_begun()


def _check_changes(run: Run, changes: dict[str, Any]) -> None:
    plan = run.manifest.plan
    for name, value in changes.items():
        if name in CHANGEABLE or value is None:
            continue
        if name not in _VOTES_DEPEND_ON:
            raise unknown_name("field of the plan", name, [*CHANGEABLE, *_VOTES_DEPEND_ON])
        if value != plan.value(name):
            raise InvalidValueError(
                f"{name} can't change from {plan.value(name)} to {value}: the votes of {run.path} were cast with "
                f"{name} {plan.value(name)} and would have to be cast again; certify the model with it"
            )


def _plan_of(run: Run) -> CertifyPlan:
    try:
        return CertifyPlan.from_statement(run.manifest.plan, run.path)
    except RunError as error:
        raise RunError(f"{run.path}: {error}; certify into a new directory") from None


def _check_follows(run: Run, record: Record, plan: CertifyPlan, evidence: LevelEvidence | None) -> None:
    """Refuse a record that isn't what its votes and the run's plan give: it was altered, or misread."""
    own, sigma = plan, plan.noise.sigma
    if plan.sigma_levels is not None:
        own, sigma = _home_of(run, record, plan, evidence)
    selection, estimation = _votes_of(record)
    number = selection.stream.index if run.manifest.data.streams == BY_VALUES else record.index
    # None only where the record says why it has none.
    unvoted = record.stopped is not None and record.abstained
    possible = plan.allows_votes(estimation.n) and (estimation.n > 0 or unvoted)
    streams = (
        (selection, own.votes_of(number, Phase.SELECTION), selection.n == plan.n0),
        (estimation, own.votes_of(number, Phase.ESTIMATION), possible),
    )
    if not all(t.stream == stream and t.start == 0 and complete for t, stream, complete in streams):
        raise _not_following(run, record, ", which asks for others")
    try:
        again = _decided(record, plan, evidence)
    except InvalidValueError as error:
        raise _not_following(run, record, f": {error}") from None
    a, b = again.volume_radius, record.volume_radius
    same_volume = a == b if a is None or b is None else same_radius(a, b, 1.0)
    doubtful = max(again.radius, record.radius) <= SAME * sigma
    same_class = again.predicted == record.predicted or doubtful
    same_size = same_radius(again.radius, record.radius, sigma) and same_radius(record.sigma, sigma)
    if not (same_size and same_volume and same_class):
        raise _not_following(run, record, f" (class {again.predicted}, radius {again.radius:g})")


def _home_of(
    run: Run, record: Record, plan: CertifyPlan, evidence: LevelEvidence | None
) -> tuple[CertifyPlan, float]:
    """The plan and σ of an input's own level; refused where its line is missing or isn't the record's."""
    if evidence is None:
        raise missing_line(run.path, record.index)
    sigmas, first = levels_of(plan).sigmas, evidence.votes[0] if evidence.votes else None
    seen = first and (first.selection, first.estimation, first.stopped)
    if evidence.home >= len(sigmas) or seen != (record.selection, record.estimation, record.stopped):
        raise _not_following(run, record, f": {RunFiles.levels.name} has others")
    return home_plan(plan, evidence.home), sigmas[evidence.home]


def _not_following(run: Run, record: Record, plan: str) -> RunError:
    return RunError(
        f"{run.path}: the result of input {record.index} (class {record.predicted}, radius {record.radius:g}) "
        f"doesn't follow from its votes and the plan{plan}; the run was altered or is damaged: restore it or certify "
        "again"
    )


def _check_bound(run: Run, old: CertifyPlan, bound: str | None) -> None:
    """Refuse a fixed-n bound for votes that were counted while they came."""
    if bound is not None and old.sequential and not BOUNDS[bound].anytime:
        anytime = [BOUNDS[name] for name in BOUNDS if BOUNDS[name].anytime]
        fitting = [each.name for each in anytime if each.next_look is None and not each.superseded]
        raise RunError(
            f"{run.path} stopped by looking at its votes ({' '.join(each.text for each in old.stops)}), and the "
            f"{bound} bound holds for a number of votes fixed in advance: choose {' or '.join(fitting)}, or certify "
            "anew"
        )


def _decided(record: Record, plan: CertifyPlan, evidence: LevelEvidence | None) -> Record:
    selection, estimation = _votes_of(record)
    if plan.confidence_bound.votes == "hard":  # soft votes as hard ones: each counts for its top class
        selection, estimation = (replace(tally, sums=None, squares=None) for tally in (selection, estimation))
    # The input itself only places the region, which a record doesn't keep.
    nowhere = np.zeros(plan.noise.sigmas.shape if isinstance(plan.noise, DiagonalNoise) else 1)
    if evidence is not None:
        answer = decide_levels(nowhere, plan, evidence)
    else:
        answer = decide(nowhere, plan, selection, estimation)
    decided = replace(record, predicted=answer.predicted, radius=answer.radius, selection=selection)
    return replace(decided, volume_radius=answer.evidence.volume_radius, estimation=estimation)


def _votes_of(record: Record) -> tuple[Tally, Tally]:
    assert record.selection is not None
    assert record.estimation is not None  # runs without votes were refused
    return record.selection, record.estimation
