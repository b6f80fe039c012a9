"""Checkpoints, from which training or a fit goes on: replaced in one step, refused if a bit of one has changed."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from smoothcert.architectures.checkpoints import load_tensors
from smoothcert.checksums import check_zip, sealed_zip
from smoothcert.errors import RunError
from smoothcert.files import read_file, write_atomically
from smoothcert.runs.layout import RunFiles

_MOST_BYTES = 2**36
_T = TypeVar("_T")


def save_checkpoint(directory: Path, content: Mapping[str, Any]) -> None:
    """Replace the checkpoint; a kill or a full disk at any moment leaves the one before."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(RunFiles(directory).checkpoint, sealed_zip(buffer.getvalue()))


def load_checkpoint(directory: Path, parse: Callable[[dict[str, Any]], _T], begin: str) -> _T | None:
    """What was saved last, parsed, or None; ``begin`` says what deleting it does. No code in the file is run."""
    path = RunFiles(directory).checkpoint
    if not path.exists():
        return None
    try:
        check_zip(read_file(path, _MOST_BYTES, links=False))
        return parse(load_tensors(path))
    # A damaged file can raise anything at all.
    except Exception as error:
        raise RunError(
            f"{path} can't be read ({type(error).__name__}): it was damaged or made by another version. Restore it, "
            f"or delete it to {begin} from the beginning"
        ) from error
