"""Checkpoints, from which training or a fit goes on: replaced in one step, refused if a bit of one has changed."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from smoothcert.architectures.checkpoints import load_tensors
from smoothcert.errors import RunError
from smoothcert.files import new_checksum, read_file, write_atomically
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


_ZIP_END, _ZIP_END_SIZE = b"PK\x05\x06", 22
_ZIP_COMMENT = b"smoothcert blake2b "


def sealed_zip(content: bytes) -> bytes:
    """A zip file, which must have no comment, with its checksum as the comment: any reader of zips takes it."""
    comment = _ZIP_COMMENT + new_checksum(content).hexdigest().encode()
    return content[:-2] + len(comment).to_bytes(2, "little") + comment


def check_zip(content: bytes) -> None:
    """ValueError where a zip file isn't what :func:`sealed_zip` made. Earlier versions' have no comment at all."""
    size = len(_ZIP_COMMENT) + 2 * new_checksum(b"").digest_size
    plain = content[: -size - 2] + b"\0\0"
    if content[-size:].startswith(_ZIP_COMMENT):
        intact = sealed_zip(plain) == content
    else:
        intact = content[-_ZIP_END_SIZE:].startswith(_ZIP_END) and content.endswith(b"\0\0")
    if not intact:
        raise ValueError("its checksum doesn't match")
