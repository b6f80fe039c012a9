"""A whole run: every record, the files beside it, and what it doesn't hold."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

from smoothcert.verification.beliefs import believed, verified
from smoothcert.verification.checksums import Checksums
from smoothcert.verification.journal import opened_journal
from smoothcert.verification.level_records import LevelJudge
from smoothcert.verification.levels import read_levels
from smoothcert.verification.logs import Log
from smoothcert.verification.noise import Noise
from smoothcert.verification.reading import (
    StatedRecord,
    parse_row,
    read_allocation,
    read_found,
    read_noted_records,
    read_pilots,
)
from smoothcert.verification.records import Judge
from smoothcert.verification.report import Report
from smoothcert.verification.statement import MOST_TIMES_N, Plan, Statement, read_statement
from smoothcert.verification.votes import UnreadableError

_SAME_SIGMA = Fraction(1, 10**9)
_SHOWN = 10


@dataclass(frozen=True)
class Checked:
    """What verification found, and what it read: the records only where they were asked for."""

    report: Report
    statement: Statement
    records: list[StatedRecord]


def verify_run(
    directory: Path,
    digest: str | None = None,
    begin: Callable[[int], None] | None = None,
    step: Callable[[], None] | None = None,
    keep_records: bool = False,
) -> Checked:
    """Recompute a run from its votes and its plan, opening nothing but its own files.

    ``digest`` is the SHA-256 of the results that the run should have; ``begin`` and ``step`` report progress. RunError
    where the run can't be read.
    """
    statement = read_statement(directory)
    report = Report(str(directory))
    judge = Log.of(statement) if statement.plan is None else _judge(directory, statement.plan, report)
    # Before the journal is opened: a run under way notes more than it held then.
    checks = Checksums(statement.fields, read_noted_records(directory))
    records: list[StatedRecord] = []
    seen: set[int] = set()
    sums = hashlib.sha256()
    readable = True
    with opened_journal(directory) as journal:
        total = journal.count()
        if begin is not None:
            begin(total)
        for row in journal.rows(checks.begin):
            report.records += 1
            checks.check(row, report)
            record = _checked(row, judge, statement, report, seen)
            if record is None:
                readable = False
            else:
                if keep_records or (isinstance(judge, Judge) and judge.allocation is not None):
                    records.append(record)
                sums.update(record.digested())
            if step is not None:
                step()
    checks.check_all(report)
    if not report.records:
        report.notes.append("no input has been certified yet")
    report.results_sha256 = sums.hexdigest() if readable else None
    if digest is not None and report.results_sha256 != digest:
        report.problem(None, f"the results have the SHA-256 {report.results_sha256}, expected was {digest}")
    _check_completeness(statement, seen, report)
    if isinstance(judge, Judge) and judge.allocation is not None:
        _check_total(directory, judge, records, report)
    report.verified = verified(statement, report)
    report.believed = believed(statement, report)
    return Checked(report, statement, records)


def _judge(directory: Path, plan: Plan, report: Report) -> Judge:
    for contradiction in plan.contradictions():
        report.problem(None, contradiction)
    allocation = read_allocation(directory)["votes"] if "total" in plan.rules else None
    found = read_found(directory) if plan.search is not None else {}
    if plan.levels is None:
        judge = Judge(directory, plan, found, allocation)
    else:
        judge = LevelJudge(directory, plan, found, lines=read_levels(directory))
    try:
        noise = judge.plan_noise
        if noise.diagonal:
            _check_stated_scales(plan, noise, report)
        judge.stated_distance = _stated_distance(plan, noise, report)
    except UnreadableError as error:
        report.problem(None, str(error))
    return judge


def _check_stated_scales(plan: Plan, noise: Noise, report: Report) -> None:
    for name, exact in (("least_sigma", noise.least), ("dimension", len(noise.scales))):
        if plan.fields.get(name) != exact:
            report.problem(None, f"the plan's {name} is {plan.fields.get(name)}, sigmas.npy has {exact}")
    mean = Fraction(noise.mean.low)
    if abs(Fraction(plan.sigma) - mean) > _SAME_SIGMA * mean:
        report.problem(
            None, f"the plan's sigma is {plan.sigma}, the geometric mean of sigmas.npy is {float(mean)!r}"
        )


def _stated_distance(plan: Plan, noise: Noise, report: Report) -> Fraction:
    """The sampler's distance from the noise as the plan states it, if that is at least what it is."""
    grid = plan.grid()
    if grid is None:
        return Fraction(0)
    stated = plan.fields.get("sampler_error")
    if type(stated) is not float or not 0 <= stated <= 1:
        raise UnreadableError(
            f"the plan's sampler_error is {stated!r}, which is no distance between distributions"
        )
    if noise.diagonal and len(noise.scales) != grid.dimension:
        return Fraction(0)  # reported by the scales
    exact = grid.distance(noise)
    if Fraction(stated) < exact:
        report.problem(
            None, f"the plan's sampler_error is {stated!r}, the sampler's distance may be {float(exact)!r}"
        )
    if Fraction(stated) > exact * 2:
        report.notes.append(
            f"the plan's sampler_error, {stated:g}, is more than twice what it must be ({float(exact):g})"
        )
    return Fraction(stated)


def _checked(
    row: dict[str, Any], judge: Judge | Log, statement: Statement, report: Report, seen: set[int]
) -> StatedRecord | None:
    number = row.get("index") if type(row.get("index")) is int else None
    try:
        record = parse_row(row)
    except UnreadableError as error:
        report.problem(number, f"has {error}")
        return None
    if record.index in seen:
        report.problem(record.index, "is in the journal twice")
    seen.add(record.index)
    positions = statement.positions
    if record.index < 0 or (positions is not None and record.index not in positions):
        report.problem(record.index, "is none of the inputs that the data and --skip allow")
    elif statement.problem_of_planned is None and statement.plan is not None:
        asked = statement.asked
        if asked is not None and record.index not in asked:
            report.problem(
                record.index, f"is none of the {len(asked)} inputs that were asked for (--max, --shard)"
            )
    if isinstance(judge, Log):
        problems = list(judge.problems(record))
        if record.votes:
            problems.append(
                "keeps votes, though the run is said to be imported from a log: they weren't recomputed"
            )
    else:
        problems = list(judge.problems(record))
        if not judge.plan.stateful or judge.follows_from_own_votes(record):
            report.recomputed += 1
    for problem in problems:
        report.problem(record.index, problem)
    return record


def _check_completeness(statement: Statement, seen: set[int], report: Report) -> None:
    """Say which inputs are missing: a run under way has gaps, and so has one whose records were removed."""
    if statement.plan is not None and statement.positions is None:
        report.problem(None, "run.json doesn't state how many inputs the data have, and which were asked for")
    if statement.problem_of_planned is not None:
        report.problem(None, statement.problem_of_planned)
    wanted, allowed = statement.asked if statement.says_which else statement.positions, statement.positions
    if wanted is None or allowed is None:
        return
    report.expected = len(wanted)
    options = ["--max"] if statement.limited else []
    if statement.shard is not None and statement.says_which:
        options.append(f"--shard {'/'.join(map(str, statement.shard))}")
    if options:
        report.notes.append(
            f"{len(wanted)} of the {len(allowed)} inputs that its data allow were asked for ({', '.join(options)})"
        )
    if report.records >= report.expected:
        return
    report.notes.append(
        f"unfinished: {report.records} of the {report.expected} inputs that were asked for"
        if statement.says_which
        else f"unfinished, or limited by --max: {report.records} of the {report.expected} inputs that its data allow"
    )
    before = wanted[: bisect_left(wanted, max(seen, default=0))]
    missing = len(before) - sum(1 for index in seen if index in before)
    if missing:
        # Not a list of all: the stated number of inputs may be anything.
        holes = list(islice((index for index in before if index not in seen), _SHOWN + 1))
        shown = ", ".join(map(str, holes[:_SHOWN])) + (", …" if len(holes) > _SHOWN else "")
        report.notes.append(
            f"{missing} inputs are missing between others ({shown}): a run under way has such gaps; in a finished "
            "one they mean that records were removed"
        )


def _check_total(directory: Path, judge: Judge, records: list[StatedRecord], report: Report) -> None:
    """Whether a spread total adds up, and was spread by votes that certify nothing."""
    fields, pilots = read_allocation(directory), read_pilots(directory)
    votes: dict[int, int] = fields["votes"]
    plan = judge.plan
    spent = 0
    for index, (selection, pilot) in pilots.items():
        if index not in votes:
            continue
        spent += selection.n + (0 if pilot is None else pilot.n)
        for cast, phase in ((selection, "selection"), (pilot, "pilot")):
            if cast is not None and (cast.seed, cast.index, cast.phase, cast.start) != (
                plan.seed,
                index,
                phase,
                0,
            ):
                report.problem(
                    index,
                    f"pilots.jsonl has {cast.phase} votes of another stream in the place of {phase} votes",
                )
    if spent != fields["spent_before"]:
        report.problem(
            None, f"allocation.json states {fields['spent_before']} votes before it, pilots.jsonl has {spent}"
        )
    stated = next((rule for rule in plan.fields.get("stop", []) if rule.startswith("total:")), "")
    if not _same_total(stated, fields["total"]):
        report.problem(None, f"allocation.json spreads {fields['total']} votes, the plan states {stated}")
    if spent + sum(votes.values()) > fields["total"]:
        report.problem(
            None, f"allocation.json hands out {spent + sum(votes.values())} votes of {fields['total']}"
        )
    for index, n in votes.items():
        if not 0 <= n <= MOST_TIMES_N * plan.n:
            report.problem(index, f"{n} votes in allocation.json, the plan allows {MOST_TIMES_N * plan.n}")
    for record in records:
        if record.index not in pilots or pilots[record.index][0] != record.selection:
            report.problem(record.index, "other selection votes than in pilots.jsonl, by which n was chosen")


def _same_total(rule: str, total: int) -> bool:
    try:
        return float(rule.removeprefix("total:").partition(",")[0]) == total
    except ValueError:
        return False
