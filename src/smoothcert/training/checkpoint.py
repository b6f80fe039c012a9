"""Training on disk between two epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoothcert.runs.checkpoints import load_checkpoint, save_checkpoint
from smoothcert.runs.epochs import EpochMetrics
from smoothcert.training.loop import State


def save_state(directory: Path, state: State) -> None:
    """Replace the checkpoint."""
    history = [metrics.as_json() for metrics in state.history]
    save_checkpoint(directory, {"history": history, **state.tensors})


def load_state(directory: Path) -> State | None:
    """What was saved last, or None."""
    return load_checkpoint(directory, _state, "train")


def _state(saved: dict[str, Any]) -> State:
    history = tuple(EpochMetrics(**metrics) for metrics in saved.pop("history"))
    return State(history, saved)
