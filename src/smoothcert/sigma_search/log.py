"""What searches found, kept beside a run's journal: a line of JSON for each input."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

from smoothcert.errors import RunError
from smoothcert.sigma_search.base import Found

FILE_NAME = "sigma_search.jsonl"


def append_found(directory: Path, found: Found) -> None:
    """Add a line and wait until it is on disk: a record that counts has its line."""
    line = json.dumps(found.as_json()) + "\n"
    path = directory / FILE_NAME
    try:
        with path.open("ab") as file:
            if file.tell() and not _ends_a_line(path):
                line = "\n" + line  # a kill cut the line before
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"{path} can't be written: {error.strerror}") from None


def read_found(directory: Path) -> dict[int, Found]:
    """Every input's search by index; a line cut off by a kill belongs to an input that is searched again."""
    path = directory / FILE_NAME
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            one = Found(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[one.index] = one
    return found


def in_words(found: list[Found], start: float) -> str:
    """How many inputs moved, how many kept σ₀ and why."""
    reasons = Counter(one.reason for one in found)
    moved = [one.sigma for one in found if one.reason == "improved"]
    kept = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common() if reason != "improved")
    span = f" to σ = {min(moved):.3g} … {max(moved):.3g}" if moved else ""
    return f"σ search: {len(moved)} of {len(found)} inputs moved{span}; σ = {start:g} kept: {kept or 'none'}"


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
