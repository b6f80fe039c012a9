"""A Ray cluster: workers on other machines, or on this one where no address is given.

The process that was started owns the run; actors hold the model, opened once by each. Leases go to whichever actor has
the fewest, those of an actor that is lost are sent again, and Ray puts another actor in its place.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.extras import require
from smoothcert.noise import Grid
from smoothcert.sampling.backends.base import BACKENDS, Cast, Voters
from smoothcert.sampling.backends.leases import Lease, LeasedVoters, RemoteWorker, WorkerSpec
from smoothcert.sampling.backends.sending import unsendable
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.passes import Passes

_MOST_LOSSES = 20  # of leases one after another with nothing done between them
_SECONDS_TO_ANSWER = 10.0
_SECONDS_TO_BEGIN = 600.0  # for a cluster that has to start machines first


@BACKENDS.register("ray")
@contextmanager
def ray_cluster(passes: Passes, execution: Execution, grid: Grid) -> Iterator[Voters]:
    """Actors of a cluster; on leaving they end, and a cluster that was started for this ends too."""
    ray = require("ray", "--backend ray")
    started = not ray.is_initialized()
    if started:
        connect(ray, execution)
    try:
        count = execution.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        spec = WorkerSpec.of(passes, execution.main_device, grid)
        voters = _Actors(ray, spec, count, execution.gpus_per_worker, passes.prepared.name)
        try:
            yield voters
        finally:
            voters.close()
    finally:
        if started:
            ray.shutdown()


def connect(ray: Any, execution: Execution) -> None:
    """Find the cluster that was named, or start one on this machine."""
    quiet = {"log_to_driver": False, "configure_logging": False}
    if execution.address is None:
        ray.init(num_cpus=execution.workers, include_dashboard=False, **quiet)
        return
    try:
        _check_answers(execution.address)
        ray.init(address=execution.address, **quiet)
    except Exception as error:  # Ray's own, and those of its sockets
        reason = _first_line(error)
        raise InvalidValueError(
            f"no Ray cluster answers at {execution.address!r} ({reason}). On its head node `ray start --head` says "
            "where it is; leave --address out to start one on this machine alone"
        ) from None


def _check_answers(address: str) -> None:
    """Find out in seconds whether anybody listens: Ray takes minutes, and may end the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), _SECONDS_TO_ANSWER).close()


class _Actors(LeasedVoters):
    """The actors, with the number of leases that each has."""

    def __init__(self, ray: Any, spec: WorkerSpec, count: int, gpus: float, name: str) -> None:
        self.count = count
        self._ray, self._name = ray, name
        self._lock = threading.Lock()
        self._losses = 0
        self._closed = False
        actor = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=-1)(RemoteWorker)
        try:
            self._spec = ray.put(spec)  # kept: an actor that is restarted asks for it again
        except Exception as error:  # whatever a model holds may refuse, in its own way
            raise unsendable(name, "machines", error) from None
        self._actors = [actor.remote(self._spec) for _ in range(count)]
        self._held = [0] * count
        self._begin()

    def _begin(self) -> None:
        """Wait for the first actor to be ready; the others join when they are."""
        waiting = [one.begin.remote() for one in self._actors]
        ready, _ = self._ray.wait(waiting, num_returns=1, timeout=_SECONDS_TO_BEGIN)
        if not ready:
            self.close()
            raise InvalidValueError(
                f"the cluster has had no room for a worker for {_SECONDS_TO_BEGIN:g} seconds: each needs a CPU, and as "
                "many GPUs as --gpus-per-worker says"
            )
        try:
            error = self._ray.get(ready[0])
        except self._ray.exceptions.RayError as failed:
            error = ModelError(f"a worker can't be started: {_first_line(failed)}")
        if error is not None:
            self.close()
            raise error

    def close(self) -> None:
        """End the actors; what they still work on is dropped."""
        with self._lock:
            self._closed = True
        for one in self._actors:
            self._ray.kill(one)

    def _send(self, lease: Lease, promised: Future[list[Cast]]) -> None:
        with self._lock:
            if self._closed:
                promised.cancel()
                return
            place = min(range(self.count), key=self._held.__getitem__)
            self._held[place] += 1
        reference = self._actors[place].cast.remote(lease)
        reference.future().add_done_callback(partial(self._receive, place, lease, promised))

    def _receive(
        self, place: int, lease: Lease, promised: Future[list[Cast]], done: Future[list[Cast] | ModelError]
    ) -> None:
        with self._lock:
            self._held[place] -= 1
            lost = done.exception()
            self._losses = 0 if lost is None else self._losses + 1
            hopeless = self._losses > _MOST_LOSSES
        if self._closed:
            promised.cancel()
        elif lost is None:
            result = done.result()
            if isinstance(result, ModelError):
                promised.set_exception(result)
            else:
                promised.set_result(result)
        elif isinstance(lost, self._ray.exceptions.RayError) and not hopeless:
            # Not in Ray's own thread: sending may wait for an actor that is being restarted.
            threading.Thread(target=self._send, args=(lease, promised), daemon=True).start()
        else:
            promised.set_exception(
                ModelError(
                    f"workers for {self._name} were lost {self._losses} times in a row, the last time because: "
                    f"{_first_line(lost)}. Is there enough memory?"
                )
            )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
