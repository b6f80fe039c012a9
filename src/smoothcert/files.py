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
