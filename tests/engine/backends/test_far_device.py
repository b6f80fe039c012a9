"""A driver without the workers' device: a worker evaluates what the driver asks, and the votes are those of threads."""

import os
import pickle
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from smoothcert import Numerics, SmoothedClassifier
from smoothcert.engine.backends.ray import OnWorkers, connect
from smoothcert.engine.execution import Execution
from smoothcert.errors import DependentVotesError, InvalidValueError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.base import BaseClassifier, Opened
from smoothcert.models.outputs import Outputs
from tests.engine.backends.test_backends import SHAPE, Net
from tests.engine.backends.test_ray import cluster, driver  # noqa: F401  (fixtures)

FAR = "cuda:77"
"""A device that no driver of these tests has; to a worker it is the CPU."""


class FarNet(BaseClassifier):
    """A network on a device that only Ray's workers reach."""

    def __init__(self) -> None:
        self.base = adapt(Net(), "hard")
        self.name, self.kind = "far", self.base.kind

    def identity(self) -> bytes:
        return self.base.identity()

    def answers(self, input_shape: tuple[int, ...]) -> bytes:
        return self.base.answers(input_shape)

    def open_route(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Opened:
        assert device == FAR
        assert in_worker(), "the driver hasn't this device"
        return self.base.open_route(numerics, input_shape, "cpu")

    def reference(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Outputs | None:
        assert device == FAR
        assert in_worker(), "the driver hasn't this device"
        return self.base.reference(numerics, input_shape, "cpu")


def in_worker() -> bool:
    import ray

    return ray.get_runtime_context().worker.mode == ray.WORKER_MODE


class PlayedRay:
    """Ray's calls, made in this process: what is sent is pickled, as between machines."""

    WORKER_MODE = 1

    def __init__(self) -> None:
        self.worker, self.asked, self.cancelled = SimpleNamespace(mode=0), 0, 0
        self.silent, self.gpus = 0, 1.0  # waits in vain; those of the only node
        self.util = SimpleNamespace(
            scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
        )

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(worker=self.worker, get_node_id=lambda: "node")

    def put(self, value: Any) -> Any:
        return pickle.loads(pickle.dumps(value))

    def remote(self, function: Any) -> Any:
        def run(*given: Any) -> Any:
            self.asked += 1
            self.worker.mode = self.WORKER_MODE
            try:
                return self.put(function(*given))
            finally:
                self.worker.mode = 0

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=run))

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        if self.silent:
            self.silent -= 1
            time.sleep(timeout)
            return [], references
        return references[-1:], references[:-1]

    def cancel(self, _: Any, force: bool) -> None:
        self.cancelled += force

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "node", "Alive": True, "Resources": {"CPU": 8.0, "GPU": self.gpus}}]

    def get(self, reference: Any) -> Any:
        return reference


@pytest.fixture
def played(monkeypatch) -> PlayedRay:
    ray = PlayedRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def far(execution: Execution, **options: Any) -> SmoothedClassifier:
    return SmoothedClassifier(FarNet(), sigma=0.5, n=2000, seed=3, execution=execution, **options)


def test_what_the_driver_asks_is_computed_by_a_worker(played):
    execution = Execution(FAR, 1, backend="ray")
    assert execution.driver_lacks_device
    expected = adapt(Net(), "hard").prepare(Numerics(), SHAPE)
    prepared = far(execution).prepared(SHAPE)
    assert isinstance(prepared.base, OnWorkers)
    assert (prepared.numerics, prepared.classes, prepared.device) == (expected.numerics, 4, "cpu")
    rows = torch.rand(expected.numerics.layout().chunk, *SHAPE)
    before = played.asked
    assert torch.equal(prepared.outputs(rows.clone()), expected.outputs(rows.clone()))
    assert played.asked == before + 1
    assert isinstance(pickle.loads(pickle.dumps(prepared)).base, FarNet), "a worker opens the model itself"


def test_a_worker_says_what_it_cannot_evaluate(played, monkeypatch):
    def refuse(*_: object) -> Opened:
        raise DependentVotesError("far: it remembers")

    monkeypatch.setattr(FarNet, "open_route", refuse)
    with pytest.raises(DependentVotesError, match="remembers"):
        far(Execution(FAR, 1, backend="ray")).prepared(SHAPE)
    assert played.asked == 1


@pytest.mark.parametrize("gpus", [1.0, 0.0])
def test_a_worker_that_hangs_is_not_waited_for_nor_one_that_no_node_has_place_for(played, monkeypatch, gpus):
    monkeypatch.setattr("smoothcert.engine.backends.ray.PATIENCE", 0.01)
    played.silent, played.gpus = 30, gpus
    there = far(Execution(FAR, 1, backend="ray", gpus_per_worker=1.0))
    placed = nullcontext() if gpus else pytest.raises(ModelError, match=r"\b1 GPUs.*--gpus-per-worker")
    with pytest.warns(RuntimeWarning, match=r"\b1 GPUs"), placed:
        assert there.prepared(SHAPE).classes == 4
    assert (played.cancelled == 30) == bool(gpus)


@pytest.mark.parametrize("asked", [None, "1"])
def test_a_cluster_that_is_started_here_reports_nothing_unless_asked(played, monkeypatch, asked):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", asked or "")
    if asked is None:
        monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    seen = []
    played.init = lambda **_: seen.append(os.environ["RAY_USAGE_STATS_ENABLED"])
    connect(played, Execution(backend="ray"))
    assert seen == [asked or "0"]


def test_devices_that_torch_does_not_know_are_rejected_for_workers(played):
    assert played.asked == 0
    Execution(FAR, backend="ray").check_devices()
    with pytest.raises(InvalidValueError, match=r"'quantum'.*--device"):
        Execution("quantum", backend="ray").check_devices()
    with pytest.raises(InvalidValueError, match=rf"'{FAR}'.*--device"):
        Execution(FAR).check_devices()


@pytest.mark.system
@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("generator", ["sfc64", "philox"])
def test_a_driver_without_the_device_gets_the_votes_of_threads(generator):
    x = np.random.default_rng(0).random((4, *SHAPE))
    numerics = Numerics(generator=generator)
    here = SmoothedClassifier(
        Net(), sigma=0.5, n=2000, seed=3, execution=Execution(workers=1), numerics=numerics
    )
    with far(Execution(FAR, 2, backend="ray"), numerics=numerics) as there:
        assert [one.evidence.votes for one in there.certify(x)] == [
            one.evidence.votes for one in here.certify(x)
        ]
