"""Shared fixtures; material outside the repository is found through environment variables or not at all."""

import fcntl
import gc
import os
import random
import shutil
import signal
from collections.abc import Callable, Generator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from smoothcert.datasets import load
from smoothcert.training.plan import TrainPlan
from smoothcert.training.recipe import Recipe
from smoothcert.training.runs import train_into

# Tests run side by side, one process per core: more threads in each would only wait for one another.
torch.set_num_threads(1)

# Whatever is started in the background of a script ignores Ctrl-C, and hands that on to what the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine is no failure, and a failure must be repeatable.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")
SEED = int(os.environ.get("SMOOTHCERT_TEST_SEED", "0"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: looking for garbage among them took a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come first: at the end there are only short ones to share out among processes.

    Where SMOOTHCERT_TEST_SHUFFLE is set, files come in another order, and so do the tests of each, by the test seed.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if os.environ.get("SMOOTHCERT_TEST_SHUFFLE"):
        order = random.Random(SEED)
        place = {path: order.random() for path in sorted({item.path for item in items})}
        items.sort(key=lambda item: (place[item.path], order.random()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where SMOOTHCERT_NO_SKIPS is set, as in CI, only tests that need hardware may be skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("SMOOTHCERT_NO_SKIPS"):
        return
    skipped = [report.longrepr for report in reporter.stats.get("skipped", []) if report.longrepr]
    unexpected = [one for one in skipped if "hardware:" not in str(one)]
    if unexpected:
        reporter.write_line(f"\n{len(unexpected)} tests were skipped, and SMOOTHCERT_NO_SKIPS is set:")
        for one in unexpected:
            reporter.write_line(str(one))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every test finds the same random numbers, whatever ran before it in its process."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - the old global generator is the one that tests can meet
    torch.manual_seed(SEED)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data and published logs, where SMOOTHCERT_SHARED names one."""
    named = os.environ.get("SMOOTHCERT_SHARED")
    if not named:
        pytest.skip("SMOOTHCERT_SHARED is not set: real data and published logs are not at hand")
    return Path(named)


BuildOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def build_once(tmp_path_factory) -> BuildOnce:
    """Builds a directory by the first worker that needs it; all others wait for it and share it, unchanged.

    ``build_once(name, build)`` calls ``build(path)`` with a path that does not exist yet, and returns the path.
    """
    base = tmp_path_factory.getbasetemp()
    base = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "built-once"

    def built(name: str, build: Callable[[Path], object]) -> Path:
        base.mkdir(exist_ok=True)
        path, done = base / name, base / f"{name}.done"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(path, ignore_errors=True)
                build(path)
                done.write_text(build.__module__)
        assert done.read_text() == build.__module__, f"{name} is built by another module too"
        return path

    return built


@pytest.fixture(scope="session")
def digits_model(build_once) -> Path:
    """A small network trained on digits under noise for a second or two, as `smoothcert train` writes it."""
    pytest.importorskip("sklearn")
    plan = TrainPlan(sigma=0.25, epochs=12, batch_size=64, lr=0.1, schedule="cosine")
    recipe = Recipe("digits", plan, "small-cnn")
    return build_once("digits-model", lambda out: train_into(out, recipe, load("digits", "train")))
