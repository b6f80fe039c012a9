"""One training process, or several that share each batch (started by torchrun); and the memory that they keep."""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Sequence

import torch
from torch import Tensor, distributed

from smoothcert.errors import InvalidValueError

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


class Processes:
    """A single process: every exchange is a no-op."""

    count = 1
    rank = 0

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes."""

    def wait(self) -> None:
        """A barrier: return when every process is here."""


class TorchrunProcesses(Processes):
    """Processes that torchrun started on one or more machines, connected by ``torch.distributed``.

    Gradients are summed once for a step, after all backward passes, rather than by hooks during them: an
    objective may run the model as often as it likes, leave parameters out, or run it on inputs alone.
    """

    def __init__(self, device: str) -> None:
        super().__init__(_own_device(device))
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        distributed.init_process_group(_BACKENDS[self.device.type])
        atexit.register(distributed.destroy_process_group)
        self.count, self.rank = distributed.get_world_size(), distributed.get_rank()

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum, all of one type in one message."""
        for dtype in {tensor.dtype: None for tensor in tensors}:  # in the same order in every process
            alike = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in alike])
            distributed.all_reduce(flat)
            parts = torch.split(flat, [tensor.numel() for tensor in alike])
            for tensor, part in zip(alike, parts):
                tensor.copy_(part.reshape(tensor.shape))

    def wait(self) -> None:
        """A barrier: return when every process is here."""
        distributed.barrier()


def connect(device: str = "cpu") -> Processes:
    """The processes that torchrun started, this one among them; without torchrun, this one alone."""
    return TorchrunProcesses(device) if _started() > 1 else Processes(device)


def _started() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def _own_device(device: str) -> str:
    """Where this process computes: the CPU, or the card of its number on this machine."""
    kind, colon, _ = device.partition(":")
    if colon:
        raise InvalidValueError(f"device {device!r} is one card for {_started()} processes: give {kind!r}")
    if kind not in _BACKENDS:
        raise InvalidValueError(
            f"device {device!r} can't be shared by {_started()} processes: give {' or '.join(_BACKENDS)}, or start one"
        )
    if kind == "cpu":
        return kind
    cards, local = torch.cuda.device_count(), int(os.environ["LOCAL_RANK"])
    if local >= cards:
        raise InvalidValueError(
            f"torchrun started {os.environ['LOCAL_WORLD_SIZE']} processes here for {cards} cards: start one for each"
        )
    return f"{kind}:{local}"


# glibc's names for what mallopt sets (malloc.h), and the largest value that its int can hold.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 2**31 - 1
_LARGEST = 2**30


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, up to 2 GiB of it, for its next step; False where that can't be said.

    glibc asks the system for every array above 32 MB and gives it back when it is freed, so that each of its pages is
    cleared and faulted in again at every step: a third of the time of a step with a thousand rows. Results
    don't depend on it. It holds until the process ends, which is why commands call it, and functions don't.
    """
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is None:  # another C library
        return False
    setting.argtypes, setting.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    # glibc before 2.35 refuses a threshold above its own 32 MB.
    return bool(setting(_M_MMAP_THRESHOLD, _LARGEST)) and bool(setting(_M_TRIM_THRESHOLD, _KEPT))
