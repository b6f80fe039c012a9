"""Rows: the tables of a journal, and records as rows and back."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from smoothcert.runs.records import FARTHEST, MOST_CLASSES, MOST_INPUTS, Record, check_votes
from smoothcert.tally import Tally

Row = tuple[Any, ...]
"""One record: the values of ``COLUMNS``, the checksum last."""

LATER = {"base": "INTEGER", "volume_radius": "REAL", "stopped": "TEXT", "checksum": "TEXT"}
"""Columns that journals of earlier versions lack, with their types."""

COLUMNS = (
    "index",
    "label",
    "predicted",
    "abstained",
    "radius",
    "sigma",
    "seconds",
    "selection",
    "estimation",
    *LATER,
)

_EARLIEST = """CREATE TABLE records (
    "index" INTEGER PRIMARY KEY, label INTEGER NOT NULL, predicted INTEGER NOT NULL, abstained INTEGER NOT NULL,
    radius REAL NOT NULL, sigma REAL NOT NULL, seconds REAL NOT NULL, selection TEXT, estimation TEXT)"""
_WITH_BASE = f"{_EARLIEST[:-1]},\n    base INTEGER)"
CREATE_RECORDS = f"{_WITH_BASE[:-1]}, volume_radius REAL, stopped TEXT, checksum TEXT)"
CREATE_TOTALS = (
    "CREATE TABLE totals (records INTEGER NOT NULL, checksums TEXT NOT NULL, statement TEXT NOT NULL)"
)


def _extended(text: str, columns: dict[str, str]) -> list[str]:
    """The table's text, and what ALTER TABLE makes of it column by column."""
    texts = [text]
    for name, kind in columns.items():
        texts.append(f"{texts[-1][:-1]}, {name} {kind})")
    return texts


TABLES: dict[str, Collection[str]] = {
    "records": frozenset(
        _extended(_EARLIEST, LATER)
        + _extended(_WITH_BASE, {name: kind for name, kind in LATER.items() if name != "base"})
    ),
    "totals": [CREATE_TOTALS],
}
"""Every text a table can have been made with: by this version, an earlier one, or one brought up to date."""

_NAMES = [f'"{name}"' for name in COLUMNS]
INSERT = f"INSERT INTO records ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(COLUMNS))})"

# SQLite keeps any value in any column. Figures are computed from these, so they are checked before use.
_SENSELESS = f"""
SELECT "index" FROM records WHERE NOT (
    "index" BETWEEN 0 AND {MOST_INPUTS}
    AND typeof(label) = 'integer' AND label BETWEEN 0 AND {MOST_CLASSES}
    AND typeof(predicted) = 'integer' AND predicted BETWEEN -1 AND {MOST_CLASSES}
    AND typeof(radius) = 'real' AND radius BETWEEN 0 AND {FARTHEST!r}
    AND typeof(sigma) = 'real' AND sigma BETWEEN 0 AND {FARTHEST!r}
    AND typeof(seconds) = 'real' AND seconds BETWEEN 0 AND 1e15
    AND typeof(selection) IN ('null', 'text') AND typeof(estimation) IN ('null', 'text')
    {{later}}) LIMIT 1
"""
_SENSELESS_LATER = {
    "base": f"AND (base IS NULL OR typeof(base) = 'integer' AND base BETWEEN 0 AND {MOST_CLASSES})",
    "volume_radius": f"AND (volume_radius IS NULL OR typeof(volume_radius) = 'real' "
    f"AND volume_radius BETWEEN 0 AND {FARTHEST!r})",
    "stopped": "AND (stopped IS NULL OR typeof(stopped) = 'text' AND length(stopped) <= 1000)",
}


def select_rows(missing: Collection[str], order: str = "ASC") -> str:
    """The query for all rows by index, NULL in the columns that the table lacks."""
    columns = ["NULL" if name in missing else quoted for name, quoted in zip(COLUMNS, _NAMES)]
    return f'SELECT {", ".join(columns)} FROM records ORDER BY "index" {order}'


def select_senseless(missing: Collection[str]) -> str:
    """The query for an input whose class, radius, σ or time can't be one."""
    later = " ".join(check for name, check in _SENSELESS_LATER.items() if name not in missing)
    return _SENSELESS.format(later=later)


def row_of(record: Record) -> Row:
    """All columns but the checksum, as SQLite gives them back: a negative zero loses its sign."""
    tallies = [None if t is None else json.dumps(t.as_json()) for t in (record.selection, record.estimation)]
    return (
        record.index,
        record.label,
        record.predicted,
        int(record.abstained),
        record.radius + 0.0,
        record.sigma + 0.0,
        record.seconds + 0.0,
        *tallies,
        record.base,
        None if record.volume_radius is None else record.volume_radius + 0.0,
        record.stopped,
    )


def record_of(row: Row) -> Record:
    """The record of a row; an error of any kind where the row isn't one."""
    index, label, predicted, _, radius, sigma, seconds, selection, estimation, *later, _ = row
    tallies = _tally(selection), _tally(estimation)
    record = Record(index, label, predicted, radius, sigma, seconds, *tallies, *later)
    check_votes(record)
    return record


def _tally(text: str | None) -> Tally | None:
    # Plain, because a million of them are read: what it lets through, a tally's own check doesn't.
    return None if text is None else Tally.from_json(json.loads(text))
