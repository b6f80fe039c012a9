"""Writing files so that a kill or a full disk leaves the old one or the new one, never half of either."""

from __future__ import annotations

import os
from pathlib import Path

from smoothcert.errors import OutputError


def write_atomically(path: Path, content: bytes) -> None:
    """Replace ``path`` by a complete file, durable before it is visible."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"{path} can't be written: {error.strerror}") from None


def append_line(path: Path, line: str) -> None:
    """Add a line and wait until it is on disk; a line that a kill cut off before it stays a line of its own."""
    try:
        with path.open("ab") as file:
            if file.tell() and not _ends_a_line(path):
                line = "\n" + line
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror}") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a file that :func:`append_line` writes, none if there is no file.

    A line that a kill cut off, or damaged bytes, come as they are: whoever parses a line must expect to skip it.
    """
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
