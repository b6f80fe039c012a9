"""A Ray cluster: workers on other machines, or on this one where no address is given.

The process that was started owns the run; actors hold the model, opened once by each. Leases go to whichever actor has
the fewest, those of an actor that is lost are sent again, and Ray puts another actor in its place.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.extras import require
from smoothcert.sampling.backends.base import BACKENDS, Cast, Voters
from smoothcert.sampling.backends.leases import LeasedVoters, RemoteWorker, WorkerSpec
from smoothcert.sampling.backends.sending import unsendable
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.lanes import Task
from smoothcert.sampling.passes import Passes

# Of actors one after another with nothing done between them, or so many for each: a node takes all of its own along.
_MOST_LOSSES, _LOSSES_EACH = 20, 3
_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_TO_ANSWER = 10.0
_SECONDS_TO_BEGIN = 600.0  # for a cluster that has to start machines first


@BACKENDS.register("ray")
@contextmanager
def ray_cluster(passes: Passes, execution: Execution) -> Iterator[Voters]:
    """Actors of a cluster; on leaving they end, and a cluster that was started for this ends too."""
    ray = require("ray", "--backend ray")
    started = not ray.is_initialized()
    if started:
        connect(ray, execution)
    try:
        count = execution.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        spec = WorkerSpec.of(passes, execution.main_device)
        with closing(_Actors(ray, spec, count, execution.gpus_per_worker, passes.prepared.name)) as voters:
            yield voters
    finally:
        if started:
            ray.shutdown()


def connect(ray: Any, execution: Execution) -> None:
    """Find the cluster that was named, or start one on this machine."""
    quiet = {"log_to_driver": False, "configure_logging": False}
    if execution.address is None:
        ray.init(address="local", num_cpus=execution.workers, include_dashboard=False, **quiet)
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
    """Find out in seconds whether anything listens: Ray takes minutes, and may end the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), _SECONDS_TO_ANSWER).close()


class _Actors(LeasedVoters):
    """The actors, with the number of leases that each has.

    One that was lost gets none until it answers again: while Ray restarts it, it refuses all it is sent, and so would
    always be the one with the fewest.
    """

    def __init__(self, ray: Any, spec: WorkerSpec, count: int, gpus: float, name: str) -> None:
        self.count = count
        self._ray, self._name = ray, name
        self._lock = threading.Condition()
        self._losses = 0
        self._away: set[int] = set()
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
            self._lock.notify_all()
        for one in self._actors:
            self._ray.kill(one)

    def _send(self, lease: Task, promised: Future[list[Cast]]) -> None:
        with self._lock:
            present = self._lock.wait_for(
                lambda: self._closed or len(self._away) < self.count, _SECONDS_TO_BEGIN
            )
            if self._closed:
                promised.cancel()
                return
            if not present:
                promised.set_exception(
                    ModelError(
                        f"all workers for {self._name} have been away for {_SECONDS_TO_BEGIN:g} seconds: look after "
                        "the cluster and give the command again, it goes on where it stopped"
                    )
                )
                return
            place = min(set(range(self.count)) - self._away, key=self._held.__getitem__)
            self._held[place] += 1
        reference = self._actors[place].cast.remote(lease)
        reference.future().add_done_callback(partial(self._receive, place, lease, promised))

    def _receive(
        self, place: int, lease: Task, promised: Future[list[Cast]], done: Future[list[Cast] | ModelError]
    ) -> None:
        with self._lock:
            self._held[place] -= 1
            lost = done.exception()
            if lost is None:
                self._losses = 0
            elif place not in self._away and not self._closed:
                self._losses += 1
                self._away.add(place)
                threading.Thread(target=self._welcome_back, args=(place,), daemon=True).start()
            hopeless = self._losses > max(_MOST_LOSSES, _LOSSES_EACH * self.count)
        if self._closed:
            promised.cancel()
        elif lost is None:
            result = done.result()
            if isinstance(result, ModelError):
                promised.set_exception(result)
            else:
                promised.set_result(result)
        elif isinstance(lost, self._ray.exceptions.RayError) and not hopeless:
            # Not in Ray's own thread: sending may wait until there is an actor again.
            threading.Thread(target=self._send, args=(lease, promised), daemon=True).start()
        else:
            promised.set_exception(
                ModelError(
                    f"workers for {self._name} were lost {self._losses} times in a row, the last time because: "
                    f"{_first_line(lost)}. Is there enough memory?"
                )
            )

    def _welcome_back(self, place: int) -> None:
        """Ask an actor that was lost until it answers; then it gets leases again."""
        while not self._closed:
            try:
                self._ray.get(self._actors[place].begin.remote())
                break
            except self._ray.exceptions.RayError:  # being restarted, or waiting for a node
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            except Exception:  # the cluster is gone, and with it all that waits
                return
        with self._lock:
            self._away.discard(place)
            self._lock.notify_all()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
