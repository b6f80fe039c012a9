"""A fit between two sub-epochs: one file, replaced in one step."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from smoothcert.architectures.weights import load_tensors
from smoothcert.checksums import check_zip, sealed_zip
from smoothcert.errors import RunError
from smoothcert.files import read_file, write_atomically

FILE_NAME = "checkpoint.pt"
_MOST_BYTES = 2**36


@dataclass(frozen=True)
class SubEpoch:
    """Metrics of one sub-epoch; number 0 is the start."""

    sub_epoch: int
    accuracy: float
    """On the validation inputs, by votes."""
    certified: float
    area: float | None
    objective: float | None
    """Mean of O_CA while fitting, by the surrogate that was climbed; None at the start."""
    counted: float | None
    """Share of the fitted inputs that contributed."""
    right: float | None
    sigma: float
    """Geometric mean."""
    least: float
    greatest: float


@dataclass(frozen=True)
class State:
    """Where a fit stands: its history and the tensors of its route."""

    history: tuple[SubEpoch, ...] = ()
    tensors: dict[str, Any] = field(default_factory=dict)


def save_state(directory: Path, state: State) -> None:
    """Replace the checkpoint; a kill at any moment leaves the one before."""
    buffer = io.BytesIO()
    torch.save({"history": [asdict(one) for one in state.history], "tensors": state.tensors}, buffer)
    write_atomically(directory / FILE_NAME, sealed_zip(buffer.getvalue()))


def load_state(directory: Path) -> State:
    """What was saved last, or the beginning; refused if a bit isn't what was saved. No code in the file is run."""
    path = directory / FILE_NAME
    if not path.exists():
        return State()
    try:
        check_zip(read_file(path, _MOST_BYTES, links=False))
        saved = load_tensors(path)
        return State(tuple(SubEpoch(**one) for one in saved["history"]), saved["tensors"])
    # A damaged file can raise anything at all.
    except Exception as error:
        raise RunError(
            f"{path} can't be read ({type(error).__name__}): it was damaged or made by another version. Restore it, "
            "or delete it to fit from the beginning"
        ) from error
