"""A Ray cluster: workers on other machines, or on this one where no address is given.

The process that was started owns the run. Casting a task's votes is idempotent, so that a task may be sent several
times: by Ray's own retries when a worker or a node is lost, again by :class:`RayVoters` when a worker does not answer,
and to another node when the model answers differently on one. The first result counts.
"""

from __future__ import annotations

import os
import queue
import secrets
import socket
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch

from smoothcert.engine.backends.workers import (
    BACKENDS,
    Cast,
    RemoteWorker,
    WorkerSpec,
    sendable,
    unsendable,
)
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes
from smoothcert.engine.schedule import Task
from smoothcert.errors import DependentVotesError, InvalidValueError, ModelError
from smoothcert.extras import require
from smoothcert.models.base import BaseClassifier, Opened
from smoothcert.models.numerics import Numerics
from smoothcert.models.outputs import Outputs
from smoothcert.threads import in_a_worker

_MOST_RETRIES = 20  # of a task whose worker or node was lost
_SECONDS_TO_ANSWER = 10.0
_MOST_KEPT = 8  # models that a worker process keeps open
PATIENCE = 60.0
"""Seconds, or ten times what the slowest took, after which a task is sent again. Every attempt gets one more."""
_PATIENCE_TO_GROW = 10  # times that: a cluster which starts nodes as they are needed takes minutes


class _Cluster:
    """The connection, and how many models use it: one that was started here ends with the last of them."""

    lock = threading.RLock()  # a model that is collected leaves, in whichever thread
    started = False
    users = 0

    @classmethod
    def join(cls, ray: Any, execution: Execution) -> None:
        with cls.lock:
            if not ray.is_initialized():
                connect(ray, execution)
                cls.started = True
            cls.users += 1

    @classmethod
    def leave(cls, ray: Any) -> None:
        with cls.lock:
            cls.users -= 1
            if cls.started and not cls.users:
                cls.started = False
                ray.shutdown()


@dataclass(eq=False)
class _Errand:
    """A task until its result is there: the attempts under way, and when the next is due."""

    task: Task
    promised: Future[list[Cast]] = field(default_factory=Future)
    attempts: set[Any] = field(default_factory=set)
    sent: int = 0
    due: float = 0.0


@dataclass(frozen=True)
class _Unlike:
    """What a node returns on which the model answers differently."""

    node: str
    error: ModelError


@BACKENDS.register("ray")
class RayVoters:
    """Tasks of a cluster, as many at once as there are workers; closed, what they still work on is dropped."""

    far: ClassVar[bool] = True

    def __init__(self, passes: Passes, execution: Execution) -> None:
        self._ray, self._name = require("ray", "--backend ray"), passes.prepared.name
        self._errands: set[_Errand] = set()
        self._excluded: set[str] = set()  # nodes
        self._slowest = 0.0
        self._silent_since, self._warned = time.monotonic(), False
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._closed = False
        _Cluster.join(self._ray, execution)
        try:
            self.count = execution.workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
            self._prepared, self._stated = passes.prepared, WorkerSpec.of(passes, execution.main_device)
            try:
                self._spec = self._ray.put(self._stated)
            except Exception as error:  # whatever a model holds may refuse, in its own way
                raise unsendable(self._name, "machines", error) from None
            self._gpus = execution.gpus_per_worker
            self._cast = self._ray.remote(
                num_cpus=1, num_gpus=self._gpus, max_retries=_MOST_RETRIES, max_calls=0
            )(_cast)
            self._key = secrets.token_hex(8)
        except BaseException:
            _Cluster.leave(self._ray)
            raise
        self._thread = threading.Thread(target=self._serve, name="smoothcert-ray", daemon=True)
        self._thread.start()

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        """The results of the task's blocks."""
        errand = _Errand(task)
        errand.promised.set_running_or_notify_cancel()  # what was sent can't be called back
        self._events.put(partial(self._send, errand))
        return errand.promised

    def current(self) -> bool:
        """Whether the function here is the one that was sent."""
        return self._stated.current(self._prepared)

    def close(self) -> None:
        """Drop what is under way; a cluster that was started here ends with the last model that uses it."""
        self._events.put(self._end)
        self._thread.join()
        _Cluster.leave(self._ray)

    def _serve(self) -> None:
        """In a thread of its own, which alone talks to Ray: what Ray calls back must not wait for Ray."""
        try:
            while not self._closed:
                with suppress(queue.Empty):
                    self._events.get(timeout=min(1.0, PATIENCE / 4))()
                self._send_overdue()
        except Exception as error:  # Ray's own: nobody waits for ever
            for errand in list(self._errands):
                self._settle(errand, ModelError(f"the Ray cluster was lost: {_first_line(error)}"))
            raise

    def _send_overdue(self) -> None:
        now = time.monotonic()
        for errand in [errand for errand in self._errands if errand.due <= now]:
            self._send(errand)
        silent = now - self._silent_since
        if not self._errands or silent <= PATIENCE:
            return
        if silent > _PATIENCE_TO_GROW * PATIENCE and not self._nodes():
            for errand in list(self._errands):
                self._settle(errand, _no_place(self._gpus))
        elif not self._warned:
            self._warned = True
            self._warn(
                f"no Ray worker has finished a task for {PATIENCE:.0f} s: {len(self._nodes())} nodes have a CPU and "
                f"{self._gpus:g} GPUs for a worker; `ray status` shows what the cluster waits for"
            )

    def _end(self) -> None:
        self._closed = True
        for errand in list(self._errands):
            self._settle(errand, CancelledError())

    def _send(self, errand: _Errand) -> None:
        elsewhere = {"ray.io/node-id": f"!in({','.join(sorted(self._excluded))})"}
        cast = self._cast.options(label_selector=elsewhere) if self._excluded else self._cast
        try:
            reference = cast.remote(self._key, self._spec, errand.task)
        except Exception as error:  # Ray's own
            return self._settle(errand, self._given_up(error))
        if not self._errands:
            self._silent_since = time.monotonic()
        errand.sent += 1
        errand.due = time.monotonic() + max(PATIENCE, 10 * self._slowest) * errand.sent
        errand.attempts.add(reference)
        self._errands.add(errand)
        reference.future().add_done_callback(
            lambda done: self._events.put(partial(self._receive, errand, reference, done))
        )
        return None

    def _settle(self, errand: _Errand, result: list[Cast] | BaseException) -> None:
        """The first result of an errand; its other attempts are dropped."""
        self._errands.discard(errand)
        if isinstance(result, BaseException):
            errand.promised.set_exception(result)
        else:
            errand.promised.set_result(result)
        for reference in errand.attempts:
            self._ray.cancel(reference, force=True)

    def _receive(
        self, errand: _Errand, reference: Any, done: Future[list[Cast] | ModelError | _Unlike]
    ) -> None:
        if errand.promised.done():
            return
        errand.attempts.discard(reference)
        if (lost := done.exception()) is not None:
            if not errand.attempts:
                self._settle(errand, self._given_up(lost))
        elif isinstance(result := done.result(), _Unlike):
            self._exclude(errand, result)
        else:
            if not isinstance(result, ModelError):
                self._silent_since = time.monotonic()
                self._slowest = max(self._slowest, sum(seconds for _, seconds in result))
            self._settle(errand, result)

    def _given_up(self, lost: BaseException) -> ModelError:
        return ModelError(
            f"a task for {self._name} was sent to {_MOST_RETRIES + 1} workers and none of them finished it, "
            f"the last because: {_first_line(lost)}. Is there enough memory?"
        )

    def _exclude(self, errand: _Errand, result: _Unlike) -> None:
        """Leave out a node on which the model answers differently; without another one the run ends."""
        if result.node not in self._excluded:
            self._excluded.add(result.node)
            if self._nodes():
                self._warn(f"Ray node {result.node} casts no votes in this run: {result.error}")
        if self._nodes():
            self._send(errand)
        elif not errand.attempts:
            self._settle(errand, result.error)

    def _nodes(self) -> set[str]:
        """Those that could have a worker of this run, were they idle."""
        return _places(self._ray, self._gpus) - self._excluded

    def _warn(self, told: str) -> None:
        warnings.warn(told, RuntimeWarning, stacklevel=3)


def _places(ray: Any, gpus: float) -> set[str]:
    """The nodes that have a CPU and the GPUs for a worker."""
    needed = {"CPU": 1.0, "GPU": gpus}
    return {
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and all(node["Resources"].get(name, 0.0) >= least for name, least in needed.items())
    }


def _no_place(gpus: float) -> ModelError:
    return ModelError(
        f"no node of the Ray cluster has a CPU and {gpus:g} GPUs for a worker: give --gpus-per-worker what a node has "
        "(`ray status`), or add one"
    )


_open: dict[str, RemoteWorker] = {}


def _cast(key: str, spec: WorkerSpec, task: Task) -> list[Cast] | ModelError | _Unlike:
    """In a worker process: the results of a task, by a model that is opened when it is first asked for."""
    if key not in _open:
        while len(_open) >= _MOST_KEPT:
            del _open[next(iter(_open))]
        _open[key] = RemoteWorker(spec)
    result = _open[key].cast(task)
    if isinstance(result, DependentVotesError):
        import ray

        return _Unlike(ray.get_runtime_context().get_node_id(), result)
    return result


@dataclass(frozen=True)
class _Question:
    """A function of a model that a worker opens: its route, or the model itself without one."""

    base: BaseClassifier
    numerics: Numerics
    input_shape: tuple[int, ...]
    device: str
    without_route: bool

    def open(self) -> Opened | None:
        """The function; None if there is none without a route. The generator is that of the worker's device."""
        if self.without_route:
            function = self.base.reference(self.numerics, self.input_shape, self.device)
            return None if function is None else Opened(self.numerics, function)
        opened = self.base.open_route(self.numerics, self.input_shape, self.device)
        return replace(opened, numerics=opened.numerics.drawn_on(opened.device))


class OnWorkers(BaseClassifier):
    """A model whose device only workers have: what the driver asks of it is computed by one of them.

    The rows are the driver's, who checks the answers and states them for all workers. It is always the same node, for
    as long as that lives. Sent to a worker, it is the model itself.
    """

    def __init__(self, base: BaseClassifier, execution: Execution) -> None:
        self._ray, self._base, self._execution = require("ray", "--backend ray"), base, execution
        self.name, self.kind, self.thread_safe = base.name, base.kind, True  # each question has a worker
        self.input_shape, self.class_names, self.classes = base.input_shape, base.class_names, base.classes
        self.feature_names, self.declared, self.remedy = base.feature_names, base.declared, base.remedy
        self.differentiable = base.differentiable
        self._options: dict[str, Any] = {
            "num_cpus": 1,
            "num_gpus": execution.gpus_per_worker,
            "max_retries": _MOST_RETRIES,
        }
        _Cluster.join(self._ray, execution)
        weakref.finalize(self, _Cluster.leave, self._ray)

    def __reduce__(self) -> Any:
        return _same, (self._base,)

    def identity(self) -> bytes:
        """The model's."""
        return self._base.identity()

    def answers(self, input_shape: tuple[int, ...]) -> bytes:
        """The model's."""
        return self._base.answers(input_shape)

    def mixing_cause(self) -> str:
        """The model's."""
        return self._base.mixing_cause()

    def count_classes(self, outputs: torch.Tensor) -> int:
        """The model's."""
        return self._base.count_classes(outputs)

    def open_route(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Opened:  # noqa: ARG002
        """The route as a worker has settled it; its function asks a worker, and takes rows of this process."""
        opened = self._opened(numerics, input_shape, without_route=False)
        assert opened is not None
        return opened

    def reference(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Outputs | None:  # noqa: ARG002
        """The model itself on a worker, if it has a reference."""
        opened = self._opened(numerics, input_shape, without_route=True)
        return None if opened is None else opened.function

    def _opened(
        self, numerics: Numerics, input_shape: tuple[int, ...], *, without_route: bool
    ) -> Opened | None:
        device = self._execution.main_device
        try:
            question = self._ray.put(_Question(self._base, numerics, input_shape, device, without_route))
        except Exception as error:  # whatever a model holds may refuse, in its own way
            raise unsendable(self.name, "machines", error) from None
        key = secrets.token_hex(8)
        opened: Opened | None = self._asked(key, question, None)
        return opened and replace(opened, function=partial(self._asked, key, question), device="cpu")

    def _asked(self, key: str, question: Any, rows: torch.Tensor | None) -> Any:
        gpus, began = self._options["num_gpus"], time.monotonic()
        done, attempts = list[Any](), list[Any]()
        try:
            while not done:
                attempts.append(
                    self._ray.remote(_answer).options(**self._options).remote(key, question, rows)
                )
                done, attempts = self._ray.wait(attempts, timeout=PATIENCE)
                too_long = time.monotonic() - began > _PATIENCE_TO_GROW * PATIENCE
                if not done and len(attempts) == 1:
                    self._options.pop("scheduling_strategy", None)  # the node that was asked may hang
                    warnings.warn(
                        f"no Ray worker with {gpus:g} GPUs has evaluated {self.name} in {PATIENCE:.0f} s: `ray "
                        "status` shows what the cluster waits for",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                if not done and too_long and not _places(self._ray, gpus):
                    raise _no_place(gpus)
            node, answer = self._ray.get(done[0])
        except ModelError:
            raise
        except Exception as error:  # Ray's own
            raise ModelError(f"no worker has evaluated {self.name}: {_first_line(error)}") from None
        finally:
            for reference in attempts:
                self._ray.cancel(reference, force=True)
        if isinstance(answer, ModelError):
            raise answer
        same_node = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)
        self._options["scheduling_strategy"] = same_node
        return answer


def _same(base: BaseClassifier) -> BaseClassifier:
    return base


_evaluated: dict[str, Opened | None] = {}


def _answer(
    key: str, question: _Question, rows: torch.Tensor | None
) -> tuple[str, Opened | torch.Tensor | ModelError | None]:
    """In a worker process: its node, and a function of a model without what it computes by, or its answers to rows."""
    import ray

    def answered() -> Opened | torch.Tensor | None:
        if key not in _evaluated:
            while len(_evaluated) >= _MOST_KEPT:
                del _evaluated[next(iter(_evaluated))]
            _evaluated[key] = question.open()
        opened = _evaluated[key]
        if rows is None or opened is None:
            return opened and replace(opened, function=_same)  # type: ignore[arg-type]
        with torch.inference_mode():
            return question.base.probe(opened.function, rows).cpu()

    answer: Opened | torch.Tensor | ModelError | None
    try:
        answer = in_a_worker(answered)
    except Exception as error:
        answer = sendable(error)
    return ray.get_runtime_context().get_node_id(), answer


def connect(ray: Any, execution: Execution) -> None:
    """Find the cluster that was named, or start one on this machine."""
    quiet = {"log_to_driver": False, "configure_logging": False}
    if execution.address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports the clusters that it starts
        ray.init(address="local", num_cpus=execution.workers, include_dashboard=False, **quiet)
        return
    try:
        _check_answers(execution.address)
        ray.init(address=execution.address, **quiet)
    except Exception as error:  # Ray's own, and those of its sockets
        reason = _first_line(error)
        if "authenticat" in f"{type(error).__name__} {error}".lower():
            raise InvalidValueError(
                f"the Ray cluster at {execution.address!r} rejects this process ({reason}): give it the cluster's "
                "token (RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH)"
            ) from None
        raise InvalidValueError(
            f"no Ray cluster answers at {execution.address!r} ({reason}). On its head node `ray start --head` says "
            "where it is; leave --ray-address out to start one on this machine alone"
        ) from None


def _check_answers(address: str) -> None:
    """Find out in seconds whether anything listens: Ray takes minutes, and may end the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), _SECONDS_TO_ANSWER).close()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
