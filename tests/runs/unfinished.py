"""Runs as a kill leaves them: records that were there are gone, as if they had never been written."""

import json
from collections.abc import Collection
from pathlib import Path

from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import open_run
from tests.runs.sealing import without_checksums


def forget(run: Path, indices: Collection[int]) -> None:
    """Take the records of these inputs, and what a search found for them, out of a run."""
    with open_run(run, Manifest.load(run)) as journal:
        journal.drop(indices)
    log = RunFiles(run).searches
    if log.exists():
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(line for line in lines if json.loads(line)["index"] not in indices))


def forget_what_was_asked_for(run: Path) -> None:
    """Make the statement one of an earlier version, which didn't say how many inputs were asked for."""
    fields = json.loads((without_checksums(run) / "run.json").read_text())
    del fields["data"]["planned"]
    (run / "run.json").write_text(json.dumps(fields))
