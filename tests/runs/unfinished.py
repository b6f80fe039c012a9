"""Runs as a kill leaves them: records that were there are gone, as if they had never been written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from pathlib import Path

from smoothcert.runs import journal
from smoothcert.sigma_search.log import FILE_NAME as SEARCH_LOG


def forget(run: Path, indices: Collection[int]) -> None:
    """Take the records of these inputs, and what a search found for them, out of a run."""
    with sqlite3.connect(run / journal.FILE_NAME) as connection:
        connection.executemany('DELETE FROM records WHERE "index" = ?', [(index,) for index in indices])
    connection.close()
    log = run / SEARCH_LOG
    if log.exists():
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(line for line in lines if json.loads(line)["index"] not in indices))


def forget_what_was_asked_for(run: Path) -> None:
    """Make the statement one of an earlier version, which didn't say how many inputs were asked for."""
    fields = json.loads((run / "run.json").read_text())
    del fields["data"]["planned"]
    (run / "run.json").write_text(json.dumps(fields))
