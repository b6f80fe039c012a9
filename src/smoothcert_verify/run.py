"""A whole run: every record, the files beside it, what it doesn't hold, and the memory its answers came out of."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

from smoothcert_verify import reading
from smoothcert_verify.levels import LevelJudge
from smoothcert_verify.noise import Noise
from smoothcert_verify.records import Judge, Log
from smoothcert_verify.report import Report, believed, verified
from smoothcert_verify.statement import MANIFEST, MOST_TIMES_N, Plan, Statement, read_statement
from smoothcert_verify.votes import WHOLE, StatedRecord, read_found, read_levels, read_pilots

_MOST_NOTED = 99
_SAME_SIGMA = Fraction(1, 10**9)
_SHOWN = 10


@dataclass(frozen=True)
class Checked:
    """What verification found, and what it read: the records only where they were asked for."""

    report: Report
    statement: Statement
    records: list[StatedRecord]
    intact: bool = True
    """Whether the statement has the checksum that it was written with."""


def verify_run(
    directory: Path,
    digest: str | None = None,
    begin: Callable[[int], None] | None = None,
    step: Callable[[], None] | None = None,
    keep_records: bool = False,
    memory: Path | None = None,
) -> Checked:
    """Recompute a run from its votes and its plan, opening nothing but its own files.

    ``digest`` is the SHA-256 of the results that the run should have; ``begin`` and ``step`` report progress;
    ``memory`` is the region memory that the answers came out of. RunError where the run can't be read.
    """
    statement = read_statement(directory)
    report = Report(str(directory), unknown=None if statement.plan is None else statement.plan.unknown)
    intact = reading.is_intact(statement.fields)
    if not intact:
        report.problem(
            None,
            f"{directory / MANIFEST} was edited or is damaged: its checksum doesn't match; get the run again",
        )
    plan = statement.plan
    allocation = _read_allocation(directory) if plan is not None and "total" in plan.rules else None
    judge = Log.of(statement) if plan is None else _judge(directory, plan, allocation, report)
    if isinstance(judge, Judge):
        judge.by_values = statement.data.get("streams") == "values"
    # Before the journal is opened: a run under way notes more than it held then.
    checks = _Checksums(statement.fields, _noted_records(directory))
    records: list[StatedRecord] = []
    seen: set[int] = set()
    sums = hashlib.sha256()
    readable = True
    with reading.opened_journal(directory) as journal:
        checks.totals = journal.totals if intact else None  # a record's checksum covers the statement
        if begin is not None:
            begin(journal.count)
        for row in journal.rows:
            report.records += 1
            checks.check(row, report)
            record = _checked(row, judge, statement, report, seen)
            if record is None:
                readable = False
            else:
                if keep_records or allocation is not None:
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
    if plan is not None and allocation is not None:
        _check_total(directory, plan, allocation, records, report)
    extent = judge.extent if isinstance(judge, Log) else None
    report.verified = list(verified(statement, report, extent))
    report.verified += judge.in_words() if isinstance(judge, Judge) else ()
    report.believed = list(believed(statement, report))
    if memory is not None:
        _check_memory(memory, plan, report)
    return Checked(report, statement, records, intact)


def _judge(directory: Path, plan: Plan, allocation: dict[str, Any] | None, report: Report) -> Judge:
    for contradiction in plan.contradictions():
        report.problem(None, contradiction)
    found = read_found(directory) if plan.search is not None else {}
    if plan.levels is None:
        judge = Judge(directory, plan, found, None if allocation is None else allocation["votes"])
    else:
        judge = LevelJudge(directory, plan, found, lines=read_levels(directory))
    try:
        if plan.unknown is None:
            noise = judge.plan_noise
            if noise.diagonal:
                _check_stated_scales(plan, noise, report)
            judge.stated_distance = _stated_distance(plan, noise, report)
    except reading.UnreadableError as error:
        report.problem(None, str(error))
    return judge


def _check_stated_scales(plan: Plan, noise: Noise, report: Report) -> None:
    for name, exact in (("least_sigma", noise.least), ("dimension", len(noise.scales))):
        if plan.fields.get(name) != exact:
            report.problem(None, f"the plan's {name} is {plan.fields.get(name)}, sigmas.npy has {exact}")
    mean = Fraction(noise.mean.low)
    if abs(Fraction(plan.sigma) - mean) > _SAME_SIGMA * mean:
        report.problem(None, f"the plan's sigma is {plan.sigma}, the mean of sigmas.npy {float(mean)!r}")


def _stated_distance(plan: Plan, noise: Noise, report: Report) -> Fraction:
    """The sampler's distance from the noise as the plan states it, if that is at least what it is."""
    grid = plan.grid()
    if grid is None:
        return Fraction(0)
    stated = plan.fields.get("sampler_error")
    if type(stated) is not float or not 0 <= stated <= 1:
        raise reading.UnreadableError(f"the plan's sampler_error is {stated!r}, which is not a probability")
    if noise.diagonal and len(noise.scales) != grid.dimension:
        return Fraction(0)  # reported by the scales
    exact = grid.distance(noise)
    if Fraction(stated) < exact:
        report.problem(None, f"the plan's sampler_error is {stated!r}, it may be {float(exact)!r}")
    if Fraction(stated) > exact * 2:
        report.notes.append(
            f"the plan's sampler_error, {stated:g}, is over twice the needed {float(exact):g}"
        )
    return Fraction(stated)


def _checked(
    row: dict[str, Any], judge: Judge | Log, statement: Statement, report: Report, seen: set[int]
) -> StatedRecord | None:
    try:
        record = StatedRecord.parse(row)
    except reading.UnreadableError as error:
        report.problem(_index_of(row), f"has {error}")
        return None
    problems = []
    if record.index in seen:
        problems.append("is in the journal twice")
    seen.add(record.index)
    positions = statement.positions
    if record.index < 0 or (positions is not None and record.index not in positions):
        problems.append("is none of the inputs that the data and --every allow")
    elif (asked := statement.asked) is not None and record.index not in asked:
        problems.append(f"is none of the {len(asked)} inputs that were asked for (--max, --shard)")
    problems += judge.problems(record)
    if isinstance(judge, Judge):
        report.recomputed += judge.recomputes(record, sound=not problems)
    elif record.votes:
        problems.append("keeps votes, though a log has none: they weren't recomputed")
    for problem in problems:
        report.problem(record.index, problem)
    return record


def _check_completeness(statement: Statement, seen: set[int], report: Report) -> None:
    """Say which inputs are missing: a run under way has gaps, and so has one whose records were removed."""
    if statement.plan is not None and statement.positions is None:
        report.problem(None, "run.json doesn't state how many inputs the data have, and which were asked for")
    if statement.problem_of_planned is not None:
        report.problem(None, statement.problem_of_planned)
    asked, allowed = statement.asked, statement.positions
    if allowed is None:
        return
    wanted = allowed if asked is None else asked
    report.expected = len(wanted)
    if statement.limits:
        report.notes.append(
            f"{len(wanted)} of the {len(allowed)} inputs that its data allow were asked for "
            f"({', '.join(statement.limits)})"
        )
    if report.records >= report.expected:
        return
    report.notes.append(
        f"unfinished: {report.records} of the {report.expected} inputs that were asked for"
        if asked is not None
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


def _check_total(
    directory: Path, plan: Plan, fields: dict[str, Any], records: list[StatedRecord], report: Report
) -> None:
    pilots = read_pilots(directory)
    votes: dict[int, int] = fields["votes"]
    spent = 0
    for index, pilot in pilots.items():
        for cast, phase in zip(pilot, ("selection", "pilot")):
            if cast is None or index not in votes:
                continue
            spent += cast.n
            if (cast.seed, cast.index, cast.phase, cast.start) != (plan.seed, index, phase, 0):
                report.problem(
                    index,
                    f"pilots.jsonl has {cast.phase} votes of another stream in the place of {phase} votes",
                )
    if spent != fields["spent_before"]:
        report.problem(
            None, f"allocation.json states {fields['spent_before']} votes before, pilots.jsonl {spent}"
        )
    stated = next((rule for rule in plan.fields.get("stop", []) if rule.startswith("total:")), "")
    if not _same_total(stated, fields["total"]):
        report.problem(None, f"allocation.json spreads {fields['total']} votes, the plan states {stated}")
    if spent + sum(votes.values()) > fields["total"]:
        report.problem(None, f"allocation.json spends {spent + sum(votes.values())} of {fields['total']}")
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


def _read_allocation(directory: Path) -> dict[str, Any]:
    path = directory / "allocation.json"
    try:
        fields = reading.parse_json(reading.read_file(path))
        votes = {int(index): n for index, n in fields["votes"].items()}
        numbers = [fields["total"], fields["spent_before"], *votes.values()]
        if not reading.is_intact(fields):
            raise ValueError("its checksum doesn't match")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise reading.RunError(f"{path} can't be read ({error}); get the run again") from None
    if any(type(number) is not int for number in numbers):
        raise reading.RunError(f"{path} must hold whole numbers; get the run again")
    return {**fields, "votes": votes}


class _Checksums:
    """Compares records with what was written: a damaged one may agree with its votes, a lost one leaves no trace.

    ``totals`` are the journal's, if it has any; ``noted`` is how many records the writer noted outside it.
    """

    totals: tuple[int, int, str] | None = None

    def __init__(self, statement: dict[str, Any], noted: int) -> None:
        flat = {"kind": statement["kind"]}
        for part in ("plan", "model", "data"):
            flat |= {f"{part}.{name}".rstrip("."): value for name, value in statement[part].items()}
        self._statement, self._noted = reading.checksum(flat), noted
        self._count = self._sum = 0
        self._broken = False

    def check(self, row: dict[str, Any], report: Report) -> None:
        self._count += 1
        if self.totals is None:
            return
        stated = row.get("checksum")
        if stated is None or stated != self._of(row):
            self._broken = True
            report.problem(_index_of(row), "is damaged: its checksum doesn't fit record and statement")
        else:
            self._sum ^= int(stated, 16)

    def check_all(self, report: Report) -> None:
        """After the last row: whether they are all that were written."""
        written = max(self._noted, 0 if self.totals is None else self.totals[0])
        if self._count < written:
            report.problem(None, f"{written - self._count} records that were written are missing")
        elif self.totals is not None and not self._broken:
            statement = self._statement if self._count else self.totals[2]
            if self.totals != (self._count, self._sum, statement):
                report.problem(None, "the records don't agree with the sum of their checksums")

    def _of(self, row: dict[str, Any]) -> str | None:
        """The checksum that a row must have under the statement's; None where its values are of other kinds."""
        try:
            numbers = struct.pack("<4q", *(row[name] for name in WHOLE))
            numbers += struct.pack("<3d", *(row[name] for name in ("radius", "sigma", "seconds")))
        except (struct.error, KeyError, TypeError):
            return None
        texts = [
            str(row.get(name)) for name in ("selection", "estimation", "base", "volume_radius", "stopped")
        ]
        content = self._statement.encode() + numbers + "\n".join(texts).encode(errors="replace")
        return hashlib.blake2b(content, digest_size=16).hexdigest()


def _noted_records(directory: Path) -> int:
    """How many records the writer noted outside the journal; 0 where it noted nothing readable."""
    try:
        count, digest = reading.read_file(directory / ".lock", _MOST_NOTED).split()
        noted = int(count)
    except (FileNotFoundError, ValueError):
        return 0
    return noted if digest.decode(errors="replace") == reading.checksum(noted) else 0


def _index_of(row: dict[str, Any]) -> int | None:
    """The input that a row which may not be readable is of."""
    index = row.get("index")
    return index if type(index) is int else None


_ONE_ROW = "only_row INTEGER PRIMARY KEY CHECK (only_row = 1)"
_MEMORY_TABLES = {
    "statement": {f"CREATE TABLE statement ({_ONE_ROW}, text TEXT NOT NULL)"},
    "records": {
        "CREATE TABLE records (id INTEGER PRIMARY KEY CHECK (id > 0), payload BLOB NOT NULL, hash BLOB NOT NULL)"
    },
    "head": {f"CREATE TABLE head ({_ONE_ROW}, count INTEGER NOT NULL, hash BLOB NOT NULL)"},
}


def _check_memory(path: Path, plan: Plan | None, report: Report) -> None:
    """Follow a memory's chain, in which each record's hash covers the one before it, to the head that the plan states.

    That shows that no record was lost, changed or moved; not that the regions in it are ones that votes support.
    """
    if plan is None or not plan.stateful:
        raise reading.RunError(
            f"--memory is for answers of a region memory, {report.run} has none: leave it out"
        )
    stated = plan.fields.get("memory")
    head = stated.get("head") if isinstance(stated, dict) else None
    passes, known = False, ""
    try:
        with reading.opened_database(path, _MEMORY_TABLES) as connection:
            for known in _heads(connection):
                passes = passes or known == head
            ((last, digest),) = connection.execute("SELECT count, hash FROM head").fetchall()
            if not isinstance(digest, bytes) or known != f"{last}:{digest.hex()}":
                raise ValueError(f"its last record is {known}, which isn't the one it states")
    except (ValueError, TypeError, OverflowError) as error:
        report.problem(None, f"the memory {path.name} isn't whole: {error}")
        return
    if not passes:
        report.problem(None, f"the memory {path.name} was never at the head that the plan states, {head}")
    count = known.partition(":")[0]
    report.verified.append(f"the memory {path.name}: a chain of {count} records without a gap or a change")


def _heads(connection: sqlite3.Connection) -> Iterator[str]:
    """The head of the empty memory and after each record; ValueError where the chain is broken."""
    ((text,),) = connection.execute("SELECT text FROM statement").fetchall()
    fields = reading.parse_json(text)
    if not isinstance(fields, dict):
        raise ValueError("its statement is not a JSON object")
    fields.pop("answers", None)
    identity = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    link = hashlib.sha256(b"smoothcert region memory\n" + identity.encode()).digest()
    yield f"0:{link.hex()}"
    rows = connection.execute("SELECT id, payload, hash FROM records ORDER BY id")
    for number, (id_, payload, digest) in enumerate(rows, 1):
        if id_ != number:
            raise ValueError(f"record {number} is missing")
        if not isinstance(payload, bytes):  # of a number, bytes() would make as many
            raise ValueError(f"record {number} is {type(payload).__name__}")
        link = hashlib.sha256(link + number.to_bytes(8, "big") + payload).digest()
        if digest != link:
            raise ValueError(f"record {number} was changed, moved, or follows a changed one")
        yield f"{number}:{link.hex()}"
