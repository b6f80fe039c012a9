"""Execution: everything that may change speed but never an answer."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from smoothcert.errors import InvalidValueError, check_count, check_not_negative
from smoothcert.extras import require
from smoothcert.knobs import knob
from smoothcert.models.numerics import check_device
from smoothcert.registry import suggesting_fields

# Of noise, at most: enough to forget what a task costs, and short for any network
_NUMBERS_IN_A_TASK = 1 << 21
_NUMBERS_IN_A_TASK_ELSEWHERE = 1 << 25  # an accelerator is some thirty times as fast
_BYTES_A_VOTE, _BYTES_A_VOTE_ELSEWHERE = 4000, 100  # of an input that is sent: seconds of work for either
_ROUNDS_ELSEWHERE = 32  # at most: of small inputs many numbers are very many blocks, whose sums take room


@suggesting_fields
@dataclass(frozen=True)
class Execution:
    """Where and how wide to work."""

    device: str = knob("cpu", "where the model runs: cpu, cuda, cuda:0,cuda:2, mps")
    workers: int | None = knob(
        None, "how many evaluate the model (default: one per core; one on an accelerator)"
    )
    batch: int | None = knob(None, "votes handed to a worker at a time (default: by the size of the inputs)")
    backend: str = knob(
        "threads",
        "who works: threads; processes, where threads wait for each other (Python functions); ray: a cluster",
    )
    address: str | None = knob(
        None,
        "ray: where the cluster is (default: one on this machine, for this command)",
        option="ray_address",
    )
    gpus_per_worker: float = knob(0.0, "ray: GPUs that each worker has to itself")

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_count("workers", self.workers)
        if self.batch is not None:
            check_count("batch", self.batch)
        check_not_negative("gpus_per_worker", self.gpus_per_worker)
        if not self.elsewhere and (self.address is not None or self.gpus_per_worker):
            raise InvalidValueError(
                f"address and gpus_per_worker are for backend ray (--backend ray), got backend {self.backend!r}"
            )

    @property
    def elsewhere(self) -> bool:
        """Whether workers may be on other machines, which this one knows nothing of."""
        return self.backend == "ray"

    @property
    def device_kind(self) -> str:
        """What kind of device does the work: cpu, cuda, …; all devices are of one kind."""
        return self.device.partition(",")[0].partition(":")[0]

    def devices(self) -> tuple[str, ...]:
        """The devices that votes are cast on: those named, or all CUDA devices there are where none has a number.

        ``cpu,cpu`` plays two devices, for trying out what several of them do.
        """
        named = tuple(name.strip() for name in self.device.split(","))
        if len({name.partition(":")[0] for name in named}) > 1:
            raise InvalidValueError(
                f"devices must be of one kind, which round alike, got {self.device!r}: name some of them (--device "
                f"{named[0]})"
            )
        if self.device_kind != "cpu" and len(set(named)) < len(named):
            raise InvalidValueError(f"each device can be named once, got {self.device!r}")
        if named == ("cuda",):
            import torch

            return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count())) or named
        return named

    def check_devices(self) -> None:
        """Reject devices that torch doesn't know or, unless workers have their own, can't use."""
        if self.elsewhere:
            require("ray", "--backend ray")
        for device in self.devices():
            check_device(device, here=not self.elsewhere)

    @property
    def driver_lacks_device(self) -> bool:
        """Whether workers elsewhere have a device that this process can't use."""
        if not self.elsewhere:
            return False
        try:
            check_device(self.main_device)
        except InvalidValueError:
            return True
        return False

    @property
    def main_device(self) -> str:
        """Where what isn't votes is computed: searches, fits, attacks."""
        return self.devices()[0]

    def worker_count(self) -> int:
        """The number of worker threads."""
        if self.workers is not None:
            return self.workers
        return usable_cores() if self.device == "cpu" else 1

    def rounds_per_task(self, rows: int, size: int, *, far: bool = False) -> int:
        """How many rounds of ``rows`` votes on inputs of ``size`` numbers make one task.

        ``far``: inputs travel to the workers, and votes are to be worth their way.
        """
        if self.batch is not None:
            return max(1, self.batch // rows)
        if self.device_kind == "cpu":
            rounds, vote = _NUMBERS_IN_A_TASK // (rows * size), _BYTES_A_VOTE
        else:
            rounds, vote = _NUMBERS_IN_A_TASK_ELSEWHERE // (rows * size), _BYTES_A_VOTE_ELSEWHERE
            rounds = min(_ROUNDS_ELSEWHERE, rounds)
        return max(rounds, math.ceil(4 * size / (rows * vote)) if far else 1)


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
