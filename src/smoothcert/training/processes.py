"""One training process, or several that share each batch (started by torchrun)."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from smoothcert.errors import InvalidValueError, MissingExtraError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Processes:
    """A process by itself: every exchange with the others is nothing."""

    count = 1
    rank = 0

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files and speaks."""
        return self.rank == 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes."""

    def wait(self) -> None:
        """Return when every process has come this far."""


class TorchrunProcesses(Processes):
    """Processes that torchrun started on one or more machines, connected by Lightning Fabric.

    Gradients are summed once for a step, after all backward passes, rather than by hooks during them: an
    objective may run the model as often as it likes, leave parameters out, or run it on inputs alone.
    """

    def __init__(self, device: str) -> None:
        fabric = _connect(device)
        super().__init__(str(fabric.device))
        self.count, self.rank = fabric.world_size, fabric.global_rank
        self._fabric = fabric

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum, all of one type in one message."""
        for dtype in {tensor.dtype for tensor in tensors}:
            alike = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in alike])
            summed = self._fabric.all_reduce(flat, reduce_op="sum")
            assert isinstance(summed, Tensor)
            parts = torch.split(summed, [tensor.numel() for tensor in alike])
            for tensor, part in zip(alike, parts):
                tensor.copy_(part.reshape(tensor.shape))

    def wait(self) -> None:
        """Return when every process has come this far."""
        self._fabric.barrier()


def connect(device: str = "cpu") -> Processes:
    """The processes that torchrun started, this one among them; without torchrun, this one alone."""
    return TorchrunProcesses(device) if _started() > 1 else Processes(device)


def _started() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def _connect(device: str) -> Fabric:
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise MissingExtraError("lightning-fabric", "distributed", "training in several processes") from error
    kind, colon, _ = device.partition(":")
    if colon:
        raise InvalidValueError(
            f"device {device!r} names one card, but {_started()} processes need one each: give {kind!r}"
        )
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice about its own launcher
        fabric = Fabric(accelerator=kind, strategy="ddp", devices=local, num_nodes=_started() // local)
        fabric.launch()
    return fabric
