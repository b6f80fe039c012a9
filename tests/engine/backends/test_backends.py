"""Every backend casts the same votes, and says what went wrong."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import psutil
import pytest
import torch
from torch import nn

from smoothcert.engine.backends.workers import BACKENDS, arriving
from smoothcert.engine.engine import Engine
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import NoisyModel
from smoothcert.engine.schedule import Block, BlockBits, Draw, Procedure
from smoothcert.errors import DependentVotesError, MissingExtraError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.base import Noise
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.perturb.grid import Grid, NoisyCopies, on_grid
from smoothcert.registry import InvalidValueError
from smoothcert.tally import Phase, Stream, Tally

SHAPE = (12,)
GRID = Grid.of(None)
REMOTE = [name for name in BACKENDS if name not in ("threads", "ray")]


class Net(nn.Module):
    """Defined where other processes can import it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def total(batch: np.ndarray) -> np.ndarray:
    return np.stack([batch.sum(1), -batch.sum(1)], axis=1)


def fails_on_large(batch: np.ndarray) -> np.ndarray:
    if batch.max() > 50:
        raise RuntimeError("too-large")
    return total(batch)


def differs_elsewhere(batch: np.ndarray) -> np.ndarray:
    """As another version of a package would, in a last bit."""
    there = multiprocessing.parent_process() is not None
    return np.nextafter(total(batch), np.inf) if there else total(batch)


def dies_on_large(batch: np.ndarray) -> np.ndarray:
    if batch.max() > 50 and multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return total(batch)


def draws() -> Procedure[tuple[Tally, ...]]:
    first = yield Draw(Phase.ESTIMATION, 30)
    many_blocks = yield Draw(Phase.ESTIMATION, 700)
    amid_a_block = yield Draw(Phase.ESTIMATION, 1)
    return first, many_blocks, amid_a_block


def cast(
    model: object,
    execution: Execution,
    noise: Noise | None = None,
    votes: str = "hard",
    inputs: int = 5,
    offset: float = 0.0,
    after: Callable[[int], None] = lambda count: None,
) -> dict[int, tuple[Tally, ...]]:
    """The votes on each input; ``after`` is told how many inputs are done, each time that one is."""
    prepared = adapt(model, votes).prepare(Numerics(), SHAPE)  # type: ignore[arg-type]
    rows = np.random.default_rng(0).random((inputs, *SHAPE)) + offset
    answers = {}
    with Engine(execution) as engine:
        noisy = NoisyModel(engine, prepared, votes, 7, GRID)  # type: ignore[arg-type]
        jobs = (noisy.job(i, row, noise or Gaussian(0.5), draws()) for i, row in enumerate(rows))
        for done in noisy.run(jobs):
            answers[done.job.index] = done.answer
            after(len(answers))
    return answers


def test_what_a_lease_says_survives_being_sent():
    noise = on_grid(DiagonalGaussian(np.linspace(0.1, 1.0, 12)), GRID, (12,))
    copies = NoisyCopies(noise, torch.arange(12.0))
    blocks = [Block(copies, Stream(7, 1, Phase.ESTIMATION), number, 0, 64) for number in range(2)]
    sent = pickle.dumps([[blocks[0], None], [blocks[1], None]])
    ((first, nothing), (second, _)) = pickle.loads(sent)
    assert nothing is None
    assert first.copies is second.copies, "an input is sent once"
    assert len(sent) < 5000, "and without its tables"
    for block, arrived in zip(blocks, (first, second)):
        expected, found = torch.zeros(64, 12), torch.zeros(64, 12)
        block.fill(expected, BlockBits())
        arrived.fill(found, BlockBits())
        assert torch.equal(expected, found)


@pytest.mark.system
@pytest.mark.parametrize("backend", REMOTE)
def test_the_votes_are_those_of_threads(backend):
    expected = cast(Net(), Execution(workers=1))
    assert cast(Net(), Execution(workers=2, backend=backend)) == expected


@pytest.mark.system
@pytest.mark.parametrize("backend", REMOTE)
def test_soft_votes_functions_lambdas_and_noise_with_a_scale_for_each_coordinate(backend):
    one = Execution(workers=1, backend=backend)  # several are another test's
    noise = DiagonalGaussian(np.linspace(0.1, 1.0, 12))
    assert cast(Net(), one, noise, "soft") == cast(Net(), Execution(workers=2), noise, "soft")
    assert cast(total, one) == cast(total, Execution(workers=1))
    assert cast(lambda batch: total(batch), one) == cast(total, Execution(workers=1))


@pytest.mark.system
@pytest.mark.parametrize("backend", REMOTE)
def test_an_error_of_the_model_names_the_input(backend):
    with pytest.raises(ModelError, match=r"\b[0-4]\b.*RuntimeError: too-large"):
        cast(fails_on_large, Execution(workers=1, backend=backend), offset=100.0)


@pytest.mark.system
def test_a_model_that_kills_its_processes_is_given_up():
    with pytest.raises(ModelError, match=r"dies_on_large.*\b4\b.*--workers 1"):
        cast(dies_on_large, Execution(workers=1, backend="processes"), inputs=1, offset=100.0)


@pytest.mark.system
def test_killed_processes_are_replaced_and_no_vote_is_lost_or_counted_twice():
    killed = []

    def kill_one(done: int) -> None:
        if done in (20, 120):
            killed.append(workers_of(psutil.Process(), "spawn_main")[0])
            killed[-1].kill()

    found = cast(Net(), Execution(workers=2, backend="processes"), inputs=200, after=kill_one)
    assert found == cast(Net(), Execution(workers=1), inputs=200)
    assert len(killed) == 2


@pytest.mark.system
def test_weights_lie_in_memory_that_processes_share():
    model = adapt(Net(), "hard")
    prepared = model.prepare(Numerics(), SHAPE)
    with Engine(Execution(workers=1, backend="processes")) as engine:
        noisy = NoisyModel(engine, prepared, "hard", 7, GRID)
        next(noisy.run([noisy.job(0, np.zeros(SHAPE), Gaussian(0.5), draws())]))
    assert all(parameter.is_shared() for parameter in model.module.parameters())


def test_what_cannot_be_sent_is_refused_before_any_vote():
    class Locked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 2)
            self.kept = threading.Lock()

        def __deepcopy__(self, memo: object) -> Locked:
            return Locked()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    with pytest.raises(ModelError, match=r"Locked.*--backend threads"):
        arriving(Locked(), "Locked")


@pytest.mark.system
def test_a_worker_that_answers_otherwise_is_refused_before_any_vote():
    with pytest.raises(DependentVotesError, match="differs_elsewhere"):
        cast(differs_elsewhere, Execution(workers=1, backend="processes"))


class Refusing:
    """What some foreign types do instead of raising a pickle's own errors."""

    def __reduce__(self) -> str:
        raise ValueError("pointers")


class Lost:
    """Leaves, and doesn't arrive."""

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return total(batch)

    def __setstate__(self, state: object) -> None:
        raise RuntimeError("version")

    def __getstate__(self) -> dict[str, object]:
        return {}


@pytest.mark.system
def test_a_model_that_does_not_arrive_is_told_and_not_tried_again(capfd):
    with pytest.raises(ModelError, match=r"Lost.*RuntimeError: version.*--backend threads"):
        cast(Lost(), Execution(workers=1, backend="processes"))
    assert "Traceback" not in capfd.readouterr().err


def test_sending_by_value_needs_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[processes\]"):
        arriving(lambda: 1, "a lambda")
    arriving(total, "total")


def test_what_cannot_be_is_refused_and_whatever_a_model_raises_is_told():
    with pytest.raises(InvalidValueError, match=r"'process'.*'processes'"):
        cast(Net(), Execution(backend="process"))
    with pytest.raises(ModelError, match=r"^It.*ValueError: pointers"):
        arriving(Refusing(), "It")


SCRIPT = """
import sys
import numpy as np
from torch import nn
import torch
from smoothcert import SmoothedClassifier
from smoothcert import Execution

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 3)
    def forward(self, x):
        return self.layer(x)

print("begun", flush=True)
classifier = SmoothedClassifier(Own(), sigma=0.5, n={n}, seed=1, execution=Execution(workers=2, backend="processes"))
print(classifier.certify(np.zeros(6)).predicted, flush=True)
"""


@pytest.mark.system
def test_a_script_without_a_guard_is_not_run_again_in_the_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(n=1000)))
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[0] == "begun"
    assert run.stdout.count("begun") == 1


@pytest.mark.system
def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(n=10**9)))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as run:
        parent = psutil.Process(run.pid)
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and len(workers := workers_of(parent, "spawn_main")) < 2:
            time.sleep(0.2)
        run.kill()
    gone, alive = psutil.wait_procs(workers, timeout=60)
    assert len(gone) == 2
    assert not alive


def workers_of(parent: psutil.Process, name: str) -> list[psutil.Process]:
    """Processes below this one with a name in their command; others on the machine may have theirs."""
    found = []
    for child in parent.children(recursive=True):
        with suppress(psutil.Error):  # gone meanwhile, or killed and not waited for yet
            if name in " ".join(child.cmdline()):
                found.append(child)
    return found
