"""Files of JSON beside a run: one object, or a line for each step of a run; with checksums, or replaced whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from smoothcert.checksums import is_sealed, sealed, unsealed
from smoothcert.files import append_line, parse_json, read_lines, write_atomically
from smoothcert.runs.records import UNREADABLE

T = TypeVar("T")


def write_sealed(path: Path, fields: Mapping[str, Any]) -> None:
    """Replace the file by one object with its checksum, in one step: it is there whole or not at all."""
    text = json.dumps(sealed(fields), indent=2, ensure_ascii=False)
    write_atomically(path, (text + "\n").encode())


def append_sealed(path: Path, fields: Mapping[str, Any]) -> None:
    """Add a line with its checksum and wait until it is on disk."""
    append_line(path, json.dumps(sealed(fields)))


def read_sealed(path: Path, always: bool = False) -> Iterator[dict[str, Any]]:
    """The lines that are what was written; one that a kill cut off, or that is damaged, is left out.

    Earlier versions wrote some files without checksums, whose lines are taken as they are unless ``always``.
    """
    for line in read_lines(path):
        try:
            fields = parse_json(line)
            stated = unsealed(fields)
        except ValueError:
            continue
        if is_sealed(fields) or not always:
            yield stated


def read_parsed(path: Path, parse: Callable[[dict[str, Any]], T], always: bool = False) -> Iterator[T]:
    """What the lines of :func:`read_sealed` say; one that ``parse`` can't understand is left out as well."""
    for fields in read_sealed(path, always):
        try:
            found = parse(fields)
        except UNREADABLE:
            continue
        yield found


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file by a line for each row, in one step."""
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
