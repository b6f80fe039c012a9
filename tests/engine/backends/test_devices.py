"""Several devices: the votes of one, cast by replicas that answer alike. Two are played by the CPU."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.engine.backends import threads
from smoothcert.engine.engine import Engine
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import NoisyModel, Passes
from smoothcert.engine.schedule import Draw, Procedure
from smoothcert.errors import DependentVotesError, InvalidValueError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.base import Prepared
from smoothcert.models.numerics import Numerics
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.perturb.grid import Grid
from smoothcert.tally import Phase, Tally

SHAPE = (12,)
GRID = Grid.of(None)
PHILOX = Numerics(generator="philox", chunk=16)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 4))


def draws() -> Procedure[tuple[Tally, ...]]:
    first = yield Draw(Phase.SELECTION, 30)
    second = yield Draw(Phase.ESTIMATION, 700)
    return first, second


def cast(execution: Execution, model: object = None, numerics: Numerics = PHILOX) -> dict[int, object]:
    prepared = adapt(model or network(), "hard").prepare(numerics, SHAPE, execution.main_device)
    rows = np.random.default_rng(0).random((5, *SHAPE))
    with Engine(execution) as engine:
        noisy = NoisyModel(engine, prepared, "hard", 7, GRID)
        jobs = (noisy.job(i, row, Gaussian(0.5), draws()) for i, row in enumerate(rows))
        return {done.job.index: done.answer for done in noisy.run(jobs)}


@pytest.mark.parametrize("batch", [None, 1, 200])
def test_the_votes_are_those_of_one_device(batch):
    before = threading.active_count()
    expected = cast(Execution(workers=1))
    assert cast(Execution("cpu,cpu", batch=batch)) == expected
    assert cast(Execution("cpu,cpu,cpu", workers=3, batch=batch)) == expected
    assert threading.active_count() == before


def test_every_device_works_and_reads_once_a_task(monkeypatch):
    launched: dict[Passes, list[int]] = {}
    launch = Passes.launch
    both = threading.Barrier(2)  # the first task of each device waits for that of the other

    def counting(self: Passes, task: object) -> object:
        threads_of_one = launched.setdefault(self, [])
        threads_of_one.append(threading.get_ident())
        if len(threads_of_one) == 1:
            both.wait(60)
        return launch(self, task)  # type: ignore[arg-type]

    monkeypatch.setattr(Passes, "launch", counting)
    cast(Execution("cpu,cpu", batch=16))
    assert len(launched) == 2
    for passes, idents in launched.items():
        assert passes.transfers.reads == len(idents)
        assert len(set(idents)) == 1  # one thread launches what a device does


def test_a_replica_that_differs_in_one_bit_is_refused(monkeypatch):
    reopened = Prepared.reopened

    def another(self: Prepared, device: str) -> Prepared:
        assert isinstance(self.base, TorchClassifier)
        with torch.no_grad():
            weight = next(self.base.module.parameters())
            weight.mul_(1 + 2**-23)
        return reopened(self, device)

    monkeypatch.setattr(Prepared, "reopened", another)
    with pytest.raises(DependentVotesError, match="Sequential"):
        cast(Execution("cpu,cpu"))


def test_a_model_that_several_must_not_evaluate_has_one_device():
    inside = [0, 0]

    def model(batch: np.ndarray) -> np.ndarray:
        inside[0] += 1
        inside[1] = max(inside)
        time.sleep(0.001)
        inside[0] -= 1
        return batch[:, :2]

    longer = replace(PHILOX, chunk=128)
    assert cast(Execution("cpu,cpu"), model, longer) == cast(Execution(workers=1), model, longer)
    assert inside == [0, 1]


def test_leaving_early_ends_every_thread():
    before = threading.active_count()
    prepared = adapt(network(), "hard").prepare(PHILOX, SHAPE)
    with Engine(Execution("cpu,cpu", batch=16)) as engine:
        noisy = NoisyModel(engine, prepared, "hard", 7, GRID)
        jobs = (noisy.job(i, np.full(SHAPE, 0.1), Gaussian(0.5), draws()) for i in range(1000))
        answers = noisy.run(jobs)
        next(answers)
        answers.close()
    assert threading.active_count() == before


def test_an_error_on_a_device_ends_the_work_with_the_input():
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(x.sum(1, keepdim=True) > 9, torch.nan, x)

    with pytest.raises(ModelError, match=r"\b[0-4]\b.*NaN"):
        cast(Execution("cpu,cpu"), Fails())


def test_what_cannot_be_is_refused():
    with pytest.raises(InvalidValueError, match=r"\b2\b.*workers=5.*--workers"):
        cast(Execution("cpu,cpu", workers=5))
    with pytest.raises(InvalidValueError, match=r"sfc64.*--generator philox"):
        cast(Execution("cpu,cpu"), numerics=Numerics())
    with pytest.raises(InvalidValueError, match=r"'cpu,cpu'.*--backend"):
        cast(Execution("cpu,cpu", backend="processes"))


def test_who_is_fed_by_threads_of_its_own():
    for device, asked, generator, fed in [
        ("cpu", "cpu", "sfc64", False),
        ("cpu", "cpu", "philox", False),  # by worker threads, one a core
        ("cpu", "cpu,cpu", "philox", True),
        ("cuda:0", "cuda:0", "philox", True),
        ("cuda:0", "cuda:0", "sfc64", False),  # noise is drawn here: nothing is gained
        ("cuda:0", "cuda:0,cuda:1", "sfc64", True),  # refused there
        ("cpu", "cuda:0,cuda:1", "sfc64", False),  # a function
        ("mps", "mps", "sfc64", False),
    ]:
        prepared = adapt(network(), "hard").prepare(replace(PHILOX, generator=generator), SHAPE)
        passes = Passes(prepared, "hard", Execution(workers=1))
        passes.prepared = replace(prepared, device=device)
        assert threads._feeds_devices(passes, Execution(asked)) is fed


def test_one_device_that_is_fed_casts_the_same_votes(monkeypatch):
    expected = cast(Execution(workers=1))
    monkeypatch.setattr(threads, "_feeds_devices", lambda passes, execution: True)
    assert cast(Execution()) == expected


@pytest.mark.campaign
def test_processes_draw_by_the_plans_generator():
    assert cast(Execution(workers=2, backend="processes")) == cast(Execution(workers=1))
