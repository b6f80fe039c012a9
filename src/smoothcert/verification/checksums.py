"""Checksums of a run, computed anew: they detect damage, not deceit: anyone can compute them."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

from smoothcert.verification.report import Report


@dataclass(frozen=True)
class Totals:
    """What a journal says of its records as a whole, and of the statement they were made with."""

    records: int
    checksums: int
    statement: str


class Checksums:
    """Compares records with what was written: a damaged one may agree with its votes, a lost one leaves no trace."""

    def __init__(self, statement: dict[str, Any], noted: int) -> None:
        """``noted``: how many records there were, as the writer noted outside the journal."""
        self._noted, self._seal = noted, statement_checksum(statement)
        self._totals: Totals | None = None
        self._count = self._sum = 0
        self._broken = False

    def begin(self, totals: Totals | None) -> None:
        """What the journal says of all its records."""
        self._totals = totals

    def check(self, row: dict[str, Any], report: Report) -> None:
        """Take in one row of the journal."""
        self._count += 1
        if self._totals is None:
            return
        stated = row.get("checksum")
        if stated is None or stated != record_checksum(row, self._seal):
            self._broken = True
            number = row.get("index") if type(row.get("index")) is int else None
            report.problem(number, "is damaged: its checksum doesn't fit the record and the statement")
        else:
            self._sum ^= int(stated, 16)

    def check_all(self, report: Report) -> None:
        """After the last row: whether they are all that were written."""
        written = max(self._noted, 0 if self._totals is None else self._totals.records)
        if self._count < written:
            report.problem(None, f"{written - self._count} records that were written are missing")
        elif self._totals is not None and not self._broken:
            whole = (self._count, self._sum) == (self._totals.records, self._totals.checksums)
            if not whole or (self._count and self._totals.statement != self._seal):
                report.problem(None, "the records don't agree with the sum of their checksums")


def record_checksum(row: dict[str, Any], statement: str) -> str | None:
    """The checksum that a row must have under a statement's; None where its values are of other kinds."""
    names = ("index", "label", "predicted", "abstained")
    try:
        numbers = [struct.pack("<q", row[name]) for name in names]
        numbers += [struct.pack("<d", row[name]) for name in ("radius", "sigma", "seconds")]
    except (struct.error, KeyError, TypeError):
        return None
    texts = [str(row.get(name)) for name in ("selection", "estimation", "base", "volume_radius", "stopped")]
    content = statement.encode() + b"".join(numbers) + "\n".join(texts).encode(errors="replace")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def statement_checksum(fields: dict[str, Any]) -> str:
    """Of the parts of ``run.json`` that fix the results."""
    flat = {"kind": fields["kind"]}
    for part in ("plan", "model", "data"):
        flat |= {f"{part}.{name}".rstrip("."): value for name, value in fields[part].items()}
    return checksum(flat)


def checksum(value: object) -> str:
    """Of plain values."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def is_intact(fields: dict[str, Any]) -> bool:
    """Whether an object has the checksum that it states; earlier versions stated none."""
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    return "checksum" not in fields or fields["checksum"] == checksum(rest)
