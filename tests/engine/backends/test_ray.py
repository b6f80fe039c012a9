"""A Ray cluster of two nodes on this machine: the votes of one process, whatever is killed."""

import os
import random
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.engine.backends.ray import connect
from smoothcert.engine.execution import Execution
from smoothcert.errors import DependentVotesError, InvalidValueError, MissingExtraError, ModelError
from smoothcert.runs.run import read_run
from tests.engine.backends.test_backends import Net, cast, fails_on_large, total, workers_of
from tests.processes import Command, run_command

pytestmark = pytest.mark.filterwarnings("ignore")


@contextmanager
def environment_of_nodes() -> Iterator[None]:
    """Nodes and their workers find the tests' own modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A head without room for workers, and two nodes with a CPU each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with environment_of_nodes():
        # A node that doesn't answer is checked again after 0.3 s instead of 3 s; slow ones have as long as ever.
        checks = {"health_check_period_ms": 300, "health_check_initial_delay_ms": 1000}
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": checks}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                made.add_node(num_cpus=1)
        except BaseException:
            made.shutdown()
            raise
    yield made
    made.shutdown()


@pytest.fixture
def driver(cluster) -> Iterator[Any]:
    import ray

    with environment_of_nodes():
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        try:
            yield cluster
        finally:
            ray.shutdown()


@pytest.mark.system
@pytest.mark.usefixtures("driver")
def test_the_votes_are_those_of_threads():
    """Soft votes; those of the tests below are hard."""
    one = Execution(workers=1, backend="ray")
    assert cast(Net(), one, votes="soft") == cast(Net(), Execution(workers=1), votes="soft")
    with pytest.raises(ModelError, match=r"\b[0-4]\b.*RuntimeError: too-large"):
        cast(fails_on_large, one, offset=100.0)


@pytest.mark.system
@pytest.mark.usefixtures("driver")
def test_workers_that_are_killed_are_replaced():
    chance, killed = random.Random(0), []

    def kill_one(done: int) -> None:
        busy = workers_of(psutil.Process(), "ray::_cast")
        if len(killed) < 2 and done >= (20, 150)[len(killed)] and busy:
            killed.append(chance.choice(busy))
            killed[-1].kill()

    found = cast(Net(), Execution(workers=2, backend="ray"), inputs=300, after=kill_one)
    assert found == cast(Net(), Execution(workers=1), inputs=300)
    assert len(killed) == 2


@pytest.mark.system
def test_a_node_that_is_lost_takes_no_vote_with_it(driver):
    lost = []
    driver.add_node(num_cpus=1)  # there is a place for its worker

    def lose_one(done: int) -> None:
        busy = workers_of(psutil.Process(), "ray::_cast")
        if done >= 20 and busy and not lost:
            worker = busy[0]
            nodes = {node.all_processes["raylet"][0].process.pid: node for node in driver.worker_nodes}
            lost.append(nodes[worker.ppid()])
            driver.remove_node(lost[0], allow_graceful=False)

    found = cast(Net(), Execution(workers=2, backend="ray"), inputs=300, after=lose_one)
    assert found == cast(Net(), Execution(workers=1), inputs=300)
    assert len(lost) == 1


@pytest.mark.system
@pytest.mark.usefixtures("driver")
def test_a_worker_that_is_stopped_is_not_waited_for(monkeypatch):
    """It keeps its CPU, and neither answers nor dies: its tasks are sent to another."""
    monkeypatch.setattr("smoothcert.engine.backends.ray.PATIENCE", 5.0)
    stopped: list[psutil.Process] = []

    def stop_one(done: int) -> None:
        busy = workers_of(psutil.Process(), "ray::_cast")
        if done >= 20 and busy and not stopped:
            stopped.append(busy[0])
            busy[0].suspend()

    try:
        with warnings.catch_warnings(record=True):
            votes = cast(Net(), Execution(workers=2, backend="ray"), inputs=300, after=stop_one)
    finally:
        with suppress(psutil.NoSuchProcess):
            for worker in stopped:
                worker.kill()
    assert votes == cast(Net(), Execution(workers=1), inputs=300)
    assert len(stopped) == 1


@pytest.mark.system
@pytest.mark.usefixtures("driver")
def test_workers_that_no_node_has_place_for_are_an_error(monkeypatch):
    monkeypatch.setattr("smoothcert.engine.backends.ray.PATIENCE", 0.5)
    with pytest.raises(ModelError, match=r"\b7 GPUs.*--gpus-per-worker"):
        cast(Net(), Execution(workers=1, backend="ray", gpus_per_worker=7.0))


UNLIKE = "SMOOTHCERT_TEST_UNLIKE"


def unlike_on_one_node(batch: np.ndarray) -> np.ndarray:
    return total(batch) * (1.001 if os.environ.get(UNLIKE) else 1.0)


@pytest.mark.system
def test_a_node_that_answers_differently_casts_no_votes(driver):
    """The run goes on without it, and says so."""
    unlike = driver.add_node(num_cpus=1, env_vars={UNLIKE: "1"})
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            votes = cast(unlike_on_one_node, Execution(workers=3, backend="ray"), inputs=300)
    finally:
        driver.remove_node(unlike)
    assert votes == cast(unlike_on_one_node, Execution(workers=1), inputs=300)
    assert [unlike.node_id in str(each.message) for each in told].count(True) == 1


def digits(batch: np.ndarray) -> np.ndarray:
    return batch.reshape(len(batch), -1)[:, :60].reshape(len(batch), 10, 6).mean(2)


@pytest.mark.system
def test_a_driver_that_is_killed_goes_on_with_another_number_of_workers(cluster, tmp_path):
    words = [
        "certify",
        f"{__name__}:digits",
        "--dataset",
        "digits",
        "--model-returns",
        "scores",
        "--sigma",
        "0.3",
    ]
    words += ["--every", "10", "--n", "20000", "--quiet", "--out"]
    there = ["--backend", "ray", "--ray-address", cluster.address, "--workers"]
    run_command(*words, tmp_path / "whole", check=True)
    with environment_of_nodes():
        first = Command(*words, tmp_path / "run", *there, "1")
        deadline = time.monotonic() + 120
        while first.poll() is None and time.monotonic() < deadline and not _some_records(tmp_path / "run"):
            time.sleep(0.05)
        first.kill()
        first.wait()
        assert len(read_run(tmp_path / "run").records) > 0
        run_command(*words, tmp_path / "run", *there, "2", check=True)
    assert read_run(tmp_path / "run").records.digest == read_run(tmp_path / "whole").records.digest


def _some_records(path: Path) -> bool:
    try:
        return len(read_run(path).records) > 0
    except Exception:
        return False


@pytest.mark.system
def test_an_address_where_nothing_answers():
    pytest.importorskip("ray")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, and nobody listens
        address = "{}:{}".format(*silent.getsockname())
        with pytest.raises(InvalidValueError, match=rf"'{address}'.*--ray-address"):
            cast(Net(), Execution(backend="ray", address=address))


def test_a_rejected_token_is_told_from_an_address_where_nothing_answers():
    class Played:
        def init(self, **_: object) -> None:
            raise RuntimeError("AuthenticationError: InvalidAuthToken for head")

    with pytest.raises(InvalidValueError, match=r"(?s)'head'.*InvalidAuthToken.*RAY_AUTH_TOKEN"):
        connect(Played(), Execution(backend="ray", address="head"))


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[ray\]"):
        cast(Net(), Execution(backend="ray"))


def test_an_address_belongs_to_ray():
    with pytest.raises(InvalidValueError, match="--backend ray"):
        Execution(address="here:1")


BORDER = 0.0


def beyond(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > BORDER).astype(np.int64)


@pytest.mark.system
@pytest.mark.usefixtures("driver")
def test_workers_with_another_setting_are_refused(monkeypatch):
    """They import the function's module anew, and have its default."""
    monkeypatch.setattr(sys.modules[__name__], "BORDER", 100.0)
    smoothed = SmoothedClassifier(
        beyond,
        sigma=30.0,
        n=2000,
        seed=0,
        outputs="labels",
        classes=2,
        execution=Execution(workers=1, backend="ray"),
    )
    with pytest.raises(DependentVotesError, match="beyond"):
        smoothed.certify(np.array([[50.0, 0.0], [60.0, 0.0]]))
