"""Training on disk between two epochs: one file, replaced in one step."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path

import torch

from smoothcert.architectures.weights import load_tensors
from smoothcert.checksums import check_zip, sealed_zip
from smoothcert.errors import RunError
from smoothcert.files import read_file, write_atomically
from smoothcert.training.loop import EpochMetrics, State

FILE_NAME = "checkpoint.pt"
_MOST_BYTES = 2**36


def save_state(directory: Path, state: State) -> None:
    """Replace the checkpoint; a kill or a full disk at any moment leaves the one before."""
    buffer = io.BytesIO()
    torch.save({"history": [asdict(metrics) for metrics in state.history], **state.tensors}, buffer)
    write_atomically(directory / FILE_NAME, sealed_zip(buffer.getvalue()))


def load_state(directory: Path) -> State | None:
    """What was saved last, or None; refused if a bit of it isn't what was saved. No code in the file is run."""
    path = directory / FILE_NAME
    if not path.exists():
        return None
    try:
        check_zip(read_file(path, _MOST_BYTES, links=False))
        tensors = load_tensors(path)
        history = tuple(EpochMetrics(**metrics) for metrics in tensors.pop("history"))
    # A damaged file can raise anything at all.
    except Exception as error:
        raise RunError(
            f"{path} can't be read ({type(error).__name__}): it was damaged or made by another version. Restore it, "
            "or delete it to train from the beginning"
        ) from error
    return State(history, tensors)
