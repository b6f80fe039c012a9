"""Shared fixtures; material outside the repository is found through environment variables or not at all."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from smoothcert.datasets import load
from smoothcert.training import Recipe, TrainPlan, train_into

# Tests run side by side, one process per core: more threads in each would only wait for one another.
torch.set_num_threads(1)

# Whatever is started in the background of a script ignores Ctrl-C, and hands that on to what the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine is no failure, and a failure must be repeatable.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")
SEED = int(os.environ.get("SMOOTHCERT_TEST_SEED", "0"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come first: at the end there are only short ones to share out among processes."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


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


@pytest.fixture(scope="session")
def digits_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network trained on digits under noise for a second or two, as `smoothcert train` writes it."""
    pytest.importorskip("sklearn")
    out = tmp_path_factory.mktemp("model") / "digits"
    plan = TrainPlan(sigma=0.25, epochs=12, batch_size=64, lr=0.1, schedule="cosine")
    train_into(out, Recipe("digits", plan, "small-cnn"), load("digits", "train"))
    return out
