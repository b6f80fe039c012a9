"""CUDA graphs: a pass is recorded once and replayed as a whole, so that its kernels aren't launched one by one.

They help where launching takes longer than computing: small networks with few rows in a pass.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from smoothcert.errors import ModelError

Step = Callable[[], Tensor]
Recorder = Callable[[Step], tuple[Callable[[], None], Tensor]]
"""Records a step: what replays it, and the tensor that every replay overwrites."""

_WARM_UPS = 3  # libraries choose kernels and take memory in their first calls, which can't be recorded


def recorder_for(device: torch.device) -> Recorder:
    """The recorder of a device; ModelError for one that has none."""
    if device.type != "cuda":
        raise ModelError(f"CUDA graphs need a CUDA device, got {device}")
    return _record


def replayed(
    forward: Callable[[Tensor], Tensor], rows: Tensor, record: Recorder
) -> Callable[[Tensor], Tensor]:
    """A function that replays ``forward`` for batches like ``rows``, and calls it for any other.

    A model that reads numbers on the host can't be recorded: CUDA refuses to wait while it records.
    """
    room = rows.clone()
    replay, held = record(lambda: forward(room))

    def call(batch: Tensor) -> Tensor:
        if batch.shape != room.shape or batch.dtype != room.dtype:
            return forward(batch)
        room.copy_(batch)
        replay()
        return held.clone()  # the next replay overwrites it

    return call


def _record(step: Step) -> tuple[Callable[[], None], Tensor]:
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(_WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # Other threads may go on with their own devices meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        held = step()
    return graph.replay, held
