"""Runs as earlier versions wrote them, or as somebody leaves them who edits one and takes the checksums out."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path


def without_checksums(run: Path) -> Path:
    """Take every checksum out of a run: of its statement, of its records, of the lines beside them."""
    for path in (run / "run.json", run / "allocation.json"):
        if path.exists():
            path.write_text(_without(path.read_text()) + "\n")
    for path in (run / "pilots.jsonl", run / "sigma_search.jsonl", run / "levels.jsonl"):
        if path.exists():
            path.write_text("".join(f"{_without(line)}\n" for line in path.read_text().splitlines()))
    (run / ".lock").unlink(missing_ok=True)
    if (run / "journal.sqlite").exists():
        with closing(sqlite3.connect(run / "journal.sqlite")) as connection, connection:
            connection.execute("DROP TABLE IF EXISTS totals")
            columns = {column[1] for column in connection.execute("PRAGMA table_info(records)")}
            if "checksum" in columns:
                connection.execute("ALTER TABLE records DROP COLUMN checksum")
                connection.commit()
                connection.execute("VACUUM")
    return run


def _without(text: str) -> str:
    fields = json.loads(text)
    fields.pop("checksum", None)
    return json.dumps(fields)
