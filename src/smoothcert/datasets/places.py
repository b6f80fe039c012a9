"""Where the files of a named data set may lie."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from smoothcert.datasets.published import PUBLICATIONS
from smoothcert.errors import DataError
from smoothcert.hints import command

DATA_VARIABLE = "SMOOTHCERT_DATA"


def candidate_places(
    root: Path | None, subfolders: Sequence[str], system_places: Sequence[Path] = ()
) -> list[Path]:
    """The folders to look in, in order: ``subfolders`` of the root, the root itself, the system's.

    The root is ``root`` or, without one, what ``SMOOTHCERT_DATA`` names. An explicit root is the only place
    looked at: finding other data elsewhere would certify something the user didn't ask for.
    """
    named = root if root is not None else os.environ.get(DATA_VARIABLE)
    if not named:
        return list(system_places)
    base = Path(named).expanduser()
    inside = [*(base / subfolder for subfolder in subfolders), base]
    return inside if root is not None else [*inside, *system_places]


def missing_files(name: str, wanted: str, places: Sequence[Path]) -> DataError:
    """The error for a data set that is in none of the places."""
    looked = "; ".join(str(place) for place in places) or f"nowhere, as {DATA_VARIABLE} is not set"
    fetch = (
        f"; or fetch them: {command('data', 'fetch', name, data_dir='data')}" if name in PUBLICATIONS else ""
    )
    return DataError(
        f"{name}: found no {wanted}. Looked in: {looked}. Name the folder that holds the files with --data-dir or the "
        f"environment variable {DATA_VARIABLE}{fetch}"
    )
