"""Metrics for TensorBoard (an extra)."""

from __future__ import annotations

from pathlib import Path

from smoothcert.extras import require
from smoothcert.runs.epochs import EpochMetrics


class TensorBoard:
    """Writes each epoch's metrics as TensorBoard events."""

    def __init__(self, directory: Path) -> None:
        require("tensorboard", "writing TensorBoard events")
        from torch.utils.tensorboard import SummaryWriter

        # Made when there is something to write: a refused run gets no file.
        self._make_writer = lambda: SummaryWriter(str(directory))
        self._writer: SummaryWriter | None = None

    def __call__(self, metrics: EpochMetrics) -> None:
        """Write one epoch; it is on disk when this returns."""
        self._writer = self._writer or self._make_writer()  # type: ignore[no-untyped-call]
        for name in ("loss", "accuracy", "learning_rate", "seconds", "acr"):
            if (value := getattr(metrics, name)) is not None:
                self._writer.add_scalar(name, value, metrics.epoch)
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
