"""How many rows a pass on an accelerator has: measured there, as long as more of them bring more and memory lasts.

On the CPU the number follows from the size of the model's activations (``rows_within``) and is the same everywhere. An
accelerator's isn't: the plan states what was measured, and a run that is continued or replayed takes it from there.
"""

from __future__ import annotations

import time
from typing import Protocol

import torch
from torch import nn

from smoothcert.errors import ModelError
from smoothcert.sampling.models.copies import private_copy

MOST_ROWS = 1 << 13
"""More would gain nothing and make the votes of few inputs wait for full passes."""

_FIRST = 64
_GAIN = 1.05  # in rows a second that doubling must bring
_SHARE = 0.8  # of the free memory that a pass may take: the route, and noise, need some
_TIMED = 3  # passes


class Gauge(Protocol):
    """A device with a model on it."""

    def seconds(self, rows: int) -> float | None:
        """How long a pass takes; None where it doesn't fit."""

    def free(self) -> int | None:
        """Bytes that are left, None where the device doesn't tell."""


def measured(device: str) -> bool:
    """Whether rows on this device are measured."""
    return torch.device(device).type != "cpu"


def fastest_rows(gauge: Gauge) -> int:
    """A power of two: doubled until that brings less than 5 % or memory is short, halved where even it is too many."""
    rows, before = _FIRST, gauge.free()
    while (seconds := gauge.seconds(rows)) is None:
        if rows == 1:
            raise ModelError(
                "the device has no memory for a pass of a single row: free some, or use another (--device cpu)"
            )
        rows //= 2
    if rows < _FIRST:  # twice as many didn't fit
        return rows
    pace = rows / seconds
    while rows < MOST_ROWS:
        free = gauge.free()
        if before is not None and free is not None and 2 * (before - free) > _SHARE * before:
            break
        seconds = gauge.seconds(2 * rows)
        if seconds is None or 2 * rows / seconds < _GAIN * pace:
            break
        rows, pace = 2 * rows, 2 * rows / seconds
    return rows


class TorchGauge:
    """A module on the device where a row of its input is."""

    def __init__(self, module: nn.Module, row: torch.Tensor) -> None:
        self._module, self._row = private_copy(module, sharing_weights=True), row
        self._memory = row.device.type == "cuda"

    def seconds(self, rows: int) -> float | None:
        """The shortest of a few passes, after one that doesn't count: kernels are chosen in it."""
        try:
            batch = self._row.expand(rows, *self._row.shape[1:]).contiguous()
            return min([self._pass(batch) for _ in range(1 + _TIMED)][1:])
        except torch.OutOfMemoryError:
            if self._memory:
                torch.cuda.empty_cache()
            return None
        except Exception as error:  # foreign code
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ModelError(
                f"the model fails on {rows} equal rows ({reason}), by which the size of a pass is measured: fix it, "
                "or say how many rows a pass has (--chunk)"
            ) from error

    def free(self) -> int | None:
        """What the driver tells of CUDA devices; what torch keeps for the next pass counts as taken."""
        return torch.cuda.mem_get_info(self._row.device)[0] if self._memory else None

    def _pass(self, batch: torch.Tensor) -> float:
        began = time.perf_counter()
        self._module(batch.clone())  # it may write to its input
        if self._row.device.type != "cpu":
            torch.accelerator.synchronize(self._row.device)
        return time.perf_counter() - began
