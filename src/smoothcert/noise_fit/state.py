"""A fit between two sub-epochs, in memory and on disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from smoothcert.runs.checkpoints import load_checkpoint, save_checkpoint


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
    """Replace the checkpoint."""
    save_checkpoint(directory, {"history": [asdict(one) for one in state.history], "tensors": state.tensors})


def load_state(directory: Path) -> State:
    """What was saved last, or the beginning."""
    return load_checkpoint(directory, _state, "fit") or State()


def _state(saved: dict[str, Any]) -> State:
    return State(tuple(SubEpoch(**one) for one in saved["history"]), saved["tensors"])
