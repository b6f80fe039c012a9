"""Transfers: the only way from a device back to the host, so that whatever waits for a device is counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class Arrival:
    """Numbers on their way to the host."""

    host: torch.Tensor
    event: torch.cuda.Event | None = None

    def wait(self) -> NDArray[np.int64]:
        """The numbers, once they are there: the one place that waits for the device."""
        if self.event is not None:
            self.event.synchronize()
        found: NDArray[np.int64] = self.host.numpy()
        return found


class Transfers:
    """Reads from a device, and how many there were."""

    def __init__(self) -> None:
        self.reads = 0

    def fetch(self, numbers: torch.Tensor) -> Arrival:
        """Begin to read; on CUDA into pinned memory, without waiting yet."""
        self.reads += 1
        if numbers.device.type != "cuda":
            return Arrival(numbers.cpu())
        host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        host.copy_(numbers, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(numbers.device))
        return Arrival(host, event)


def sent(array: NDArray[np.generic], device: str) -> torch.Tensor:
    """An array on its way to the device; on CUDA from pinned memory, without waiting."""
    host = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)
