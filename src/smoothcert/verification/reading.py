"""A run's records and side files, read as they are: no default hides what is missing, nothing is written."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from smoothcert.errors import RunError
from smoothcert.verification.checksums import Totals, checksum, is_intact
from smoothcert.verification.noise import NORMS, Noise
from smoothcert.verification.votes import UnreadableError, Votes, integer, number, optional_votes, parse_votes

T = TypeVar("T")

JOURNAL = "journal.sqlite"
_HAS_RECORDS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'records'"


@dataclass(frozen=True)
class StatedRecord:
    """One input's result as the journal has it."""

    index: int
    label: int
    predicted: int
    abstained: int
    radius: float
    sigma: float
    selection: Votes | None
    estimation: Votes | None
    base: int | None
    volume_radius: float | None
    stopped: str | None

    @property
    def votes(self) -> int:
        """How many it keeps."""
        return sum(votes.n for votes in (self.selection, self.estimation) if votes is not None)

    def digested(self) -> bytes:
        """What the digest of a run's results takes in."""
        fields: list[Any] = [
            self.index,
            self.label,
            self.predicted,
            self.radius.hex(),
            self.sigma.hex(),
            self.selection and self.selection.stated(),
            self.estimation and self.estimation.stated(),
            self.base,
        ]
        if self.volume_radius is not None or self.stopped is not None:
            fields += [self.volume_radius and self.volume_radius.hex(), self.stopped]
        return json.dumps(fields).encode()


def read_rows(directory: Path, begin: Callable[[Totals | None], None]) -> Iterator[dict[str, Any]]:
    """The journal's rows in the order of their indices; RunError where the file is damaged.

    ``begin`` is called first, with the totals of the same moment.
    """
    with _journal(directory) as connection:
        if not _has_records(connection):
            return
        connection.execute("BEGIN")
        begin(_totals(connection))
        cursor = connection.execute('SELECT * FROM records ORDER BY "index"')
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row))


def _totals(connection: sqlite3.Connection) -> Totals | None:
    """What the journal says of its records; None where it says nothing, as those of earlier versions."""
    present = [name for _, name, *_ in connection.execute("PRAGMA table_info(records)")]
    if "checksum" not in present:
        return None
    try:
        found = connection.execute("SELECT records, checksums, statement FROM totals").fetchall()
        ((records, checksums, statement),) = found
        return Totals(int(records), int(checksums or "0", 16), str(statement))
    except (ValueError, TypeError, sqlite3.OperationalError) as error:
        raise sqlite3.DatabaseError(f"no totals of its records: {error}") from None


def read_noted_records(directory: Path) -> int:
    """How many records the writer noted outside the journal; 0 where it noted nothing readable."""
    try:
        path = directory / ".lock"
        text = path.read_bytes() if path.is_file() and path.stat().st_size < 100 else b""
        count, digest = text.split()
        noted = int(count)
    except (OSError, ValueError):
        return 0
    return noted if digest.decode(errors="replace") == checksum(noted) else 0


def count_rows(directory: Path) -> int:
    """How many records there are to verify."""
    with _journal(directory) as connection:
        if not _has_records(connection):
            return 0
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        (rows,) = connection.execute("SELECT count(*) FROM records").fetchone()
        return int(rows)


def _has_records(connection: sqlite3.Connection) -> bool:
    # A view could be made to compute forever.
    return connection.execute(_HAS_RECORDS).fetchone() is not None


@contextmanager
def _journal(directory: Path) -> Iterator[sqlite3.Connection]:
    path = directory / JOURNAL
    if not path.is_file():
        raise RunError(f"{directory} has no {JOURNAL}: there is nothing to verify")
    # Without a write-ahead file there is no writer, and no lock is needed.
    under_way = any(path.with_name(f"{JOURNAL}-{kind}").exists() for kind in ("wal", "journal"))
    mode = "mode=ro" if under_way else "mode=ro&immutable=1"
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=10.0)
        ) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise RunError(f"{path}: another process is writing it; wait for it to end") from None
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            remedy = "a run under way needs a directory that can be written to; copy it to one"
            raise RunError(f"{path} can't be opened ({error}): {remedy}") from None
        raise RunError(f"{path} is damaged ({error}); get the run again") from None


def parse_row(row: dict[str, Any]) -> StatedRecord:
    """A row as a record; UnreadableError says what can't be read."""
    stopped = row.get("stopped")
    if stopped is not None and not isinstance(stopped, str):
        raise UnreadableError(f"stopped = {stopped!r}, which is no text")
    return StatedRecord(
        index=integer(row, "index"),
        label=integer(row, "label"),
        predicted=integer(row, "predicted"),
        abstained=integer(row, "abstained"),
        radius=number(row, "radius"),
        sigma=number(row, "sigma"),
        selection=optional_votes(row.get("selection")),
        estimation=optional_votes(row.get("estimation")),
        base=None if row.get("base") is None else integer(row, "base"),
        volume_radius=None if row.get("volume_radius") is None else number(row, "volume_radius"),
        stopped=stopped,
    )


@dataclass(frozen=True)
class StatedSearch:
    """What a search's line says of one input: its σ, and the hash of its scales where it has one for each number."""

    sigma: float
    noise: str | None
    sigmas_sha256: str | None


def read_found(directory: Path) -> dict[int, StatedSearch]:
    """The lines of ``sigma_search.jsonl`` by index, the last of each."""
    return parsed_lines(
        directory / "sigma_search.jsonl",
        lambda fields: StatedSearch(
            number(fields, "sigma"), fields.get("noise"), fields.get("sigmas_sha256")
        ),
    )


def read_pilots(directory: Path) -> dict[int, tuple[Votes, Votes | None]]:
    """Selection and pilot votes by index, where a total was spread."""
    return parsed_lines(
        directory / "pilots.jsonl",
        lambda fields: (parse_votes(fields.get("selection")), optional_votes(fields.get("pilot"))),
    )


def read_allocation(directory: Path) -> dict[str, Any]:
    """``allocation.json``; RunError where it can't be read."""
    path = directory / "allocation.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        votes = {int(index): n for index, n in fields["votes"].items()}
        numbers = [fields["total"], fields["spent_before"], *votes.values()]
        if not is_intact(fields):
            raise ValueError("its checksum doesn't match")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} can't be read ({error}); get the run again") from None
    if any(type(number) is not int for number in numbers):
        raise RunError(f"{path} must hold whole numbers; get the run again")
    return {**fields, "votes": votes}


def read_scales(path: Path, kind: str, stated_sha256: object) -> Noise:
    """Noise with the scales in a .npy file; UnreadableError where it isn't the vector that is stated."""
    try:
        if not path.is_file():  # reading a pipe would block
            raise ValueError("no such file")
        values = np.load(path, allow_pickle=False)
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf" or not values.size:
            raise ValueError("no array of numbers")
        values = values.astype("<f8")
    except Exception as error:  # numpy parses a header as Python is, which can fail in many ways
        raise UnreadableError(f"{path.name} can't be read ({error})") from None
    digest = hashlib.sha256(repr(tuple(values.shape)).encode())
    digest.update(np.ascontiguousarray(values).tobytes())
    if digest.hexdigest() != stated_sha256:
        raise UnreadableError(
            f"{path.name} isn't the vector that is stated: its SHA-256 is {digest.hexdigest()[:12]}…"
        )
    scales = tuple(values.ravel().tolist())
    if not all(math.isfinite(scale) and scale > 0 for scale in scales):
        raise UnreadableError(f"{path.name} holds scales that aren't positive and finite")
    if kind not in NORMS or not kind.startswith("diagonal-"):
        raise UnreadableError(f"{path.name} is for {kind!r} noise, which has no scale for each dimension")
    return Noise(kind, scales)


def parsed_lines(path: Path, parse: Callable[[dict[str, Any]], T]) -> dict[int, T]:
    """What the lines of a file say by index, the last of each."""
    found = {}
    for fields in _json_lines(path):
        try:
            found[integer(fields, "index")] = parse(fields)
        except UnreadableError:
            continue  # cut off by a kill: the input was asked again
    return found


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file's lines, without what was cut off or damaged."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        if isinstance(fields, dict) and is_intact(fields):
            yield fields
