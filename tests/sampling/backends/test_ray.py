"""A Ray cluster of two nodes on this machine: the votes of one process, whatever is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.errors import DependentVotesError, InvalidValueError, MissingExtraError, ModelError
from smoothcert.runs import read_run
from smoothcert.sampling import Execution
from tests.sampling.backends.test_backends import Net, cast, fails_on_large

MODEL = """
import numpy as np


def digits(batch):
    parts = batch.reshape(len(batch), -1)[:, :60].reshape(len(batch), 10, 6)
    return parts.mean(2)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a CPU each; the tests' own modules can be imported there."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    root = str(Path(__file__).parents[3])
    before = os.environ.get("PYTHONPATH", "")
    os.environ |= {
        "PYTHONPATH": os.pathsep.join([root, before]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
    }
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    try:
        yield made
    finally:
        made.shutdown()
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def driver(cluster: Any) -> Iterator[Any]:
    import ray

    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        yield cluster
    finally:
        ray.shutdown()


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def remote_workers() -> list[psutil.Process]:
    """Of this process's own cluster: others on the machine may have theirs."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "RemoteWorker" in " ".join(one.cmdline()):
                found.append(one)
    return found


def while_casting(disturb: Callable[[], None], inputs: int) -> dict[int, Any]:
    """The votes, with something disturbing every now and then."""
    stop = threading.Event()

    def now_and_then() -> None:
        while not stop.wait(1.0):
            disturb()

    thread = threading.Thread(target=now_and_then)
    thread.start()
    try:
        return cast(Net(), Execution(workers=2, backend="ray"), inputs=inputs)
    finally:
        stop.set()
        thread.join()


def test_the_votes_are_those_of_threads(driver: Any) -> None:
    ray = Execution(workers=2, backend="ray")
    assert cast(Net(), ray) == cast(Net(), Execution(workers=1))
    assert cast(Net(), ray, votes="soft") == cast(Net(), Execution(workers=1), votes="soft")
    with pytest.raises(ModelError, match=r"input.*too large for me"):
        cast(fails_on_large, ray, offset=100.0)


def test_workers_that_are_killed_are_replaced(driver: Any) -> None:
    chance, killed = random.Random(0), []

    def kill_one() -> None:
        workers = remote_workers()
        if workers and len(killed) < 3:
            one = chance.choice(workers)
            one.kill()
            killed.append(one.pid)

    assert while_casting(kill_one, 2000) == cast(Net(), Execution(workers=1), inputs=2000)
    assert killed


def test_a_node_that_is_lost_takes_no_vote_with_it(driver: Any) -> None:
    lost = driver.add_node(num_cpus=1)
    gone = []

    def lose_it() -> None:
        if remote_workers() and not gone:
            driver.remove_node(lost, allow_graceful=False)
            gone.append(lost)

    found = while_casting(lose_it, 1500)
    if not gone:
        driver.remove_node(lost, allow_graceful=False)
    assert found == cast(Net(), Execution(workers=1), inputs=1500)


def test_a_driver_that_is_killed_goes_on_with_another_number_of_workers(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "model_of_digits.py").write_text(MODEL)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])}
    words = [sys.executable, "-m", "smoothcert", "certify", "model_of_digits:digits", "--dataset", "digits"]
    words += ["--outputs", "scores", "--sigma", "0.3", "--skip", "5", "--n", "30000", "--quiet"]
    here = ["--backend", "ray", "--address", cluster.address]
    subprocess.run([*words, "--out", "whole"], cwd=tmp_path, env=environment, check=True)
    with subprocess.Popen(
        [*words, *here, "--workers", "1", "--out", "run"], cwd=tmp_path, env=environment
    ) as first:
        deadline = time.monotonic() + 120
        while first.poll() is None and time.monotonic() < deadline and not _some_records(tmp_path / "run"):
            time.sleep(0.1)
        first.send_signal(signal.SIGKILL)
    assert len(read_run(tmp_path / "run").records) > 0
    subprocess.run(
        [*words, *here, "--workers", "2", "--out", "run"], cwd=tmp_path, env=environment, check=True
    )
    assert read_run(tmp_path / "run").records.digest == read_run(tmp_path / "whole").records.digest


def _some_records(path: Path) -> bool:
    try:
        return len(read_run(path).records) > 0
    except Exception:
        return False


def test_an_address_where_nothing_answers(cluster: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"no Ray cluster answers at '127.0.0.1:1'.*--address"):
        cast(Net(), Execution(backend="ray", address="127.0.0.1:1"))


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[ray\]"):
        cast(Net(), Execution(backend="ray"))


def test_an_address_belongs_to_ray() -> None:
    with pytest.raises(InvalidValueError, match="--backend ray"):
        Execution(address="here:1")


BORDER = 0.0


def beyond(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > BORDER).astype(np.int64)


@pytest.mark.usefixtures("driver")
def test_workers_with_another_setting_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They import the function's module anew, and have its default."""
    monkeypatch.setattr(sys.modules[__name__], "BORDER", 100.0)
    smoothed = SmoothedClassifier(
        beyond,
        sigma=30.0,
        n=2000,
        seed=0,
        outputs="labels",
        classes=2,
        execution=Execution(workers=2, backend="ray"),
    )
    with pytest.raises(DependentVotesError, match="on a worker"):
        smoothed.certify(np.array([[50.0, 0.0], [60.0, 0.0]]))
