"""Losses are read together, in their order, and mean the same whenever they were read."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import Objective
from smoothcert.training import TrainingDivergedError, train
from smoothcert.training import loop as training_loop
from smoothcert.training.losses import READ_EVERY, Losses
from tests.training.toys import Diverging, flat, halves, new_model, plan


def never(step, value):
    raise AssertionError((step, value))


class Scalars(TorchDispatchMode):
    """Counts what `.item()`, `float()` and `bool()` of a tensor come down to."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen[str(function)] += 1
        return function(*args, **(kwargs or {}))


@pytest.fixture
def ahead(monkeypatch):
    """Training as on an accelerator; what it made of the losses is kept."""
    made = []

    def on(device, refuse):
        made.append(Losses(READ_EVERY, refuse))
        return made[-1]

    monkeypatch.setattr(training_loop.Losses, "on", on)
    return made


def test_the_first_is_read_at_once_and_then_a_few_together():
    losses, reads = Losses(4, never), []
    for step in range(1, 12):
        losses.add(step, torch.tensor(float(step)), 2)
        reads.append(losses.reads)
    assert reads == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert losses.latest == 9.0
    assert losses.sums().tolist() == [2.0 * sum(range(1, 12)), 22.0]
    assert losses.reads == 4


def test_on_the_cpu_every_loss_is_known_when_it_is_added():
    losses = Losses.on(torch.device("cpu"), never)
    losses.add(1, torch.tensor(1.0), 1)
    losses.add(1, torch.tensor(3.0), 3)
    assert (losses.reads, losses.latest) == (2, 2.5)


def test_the_sums_do_not_depend_on_when_they_were_read():
    values = torch.rand(50, generator=torch.Generator().manual_seed(0)) * 3
    found = []
    for every in (1, 3, 100):
        losses = Losses(every, never)
        for number, value in enumerate(values):
            losses.add(number // 3 + 1, value, number % 3 + 1)
        found.append(losses.sums().tolist())
    assert found[0] == found[1] == found[2]


def test_what_is_not_finite_is_refused_with_its_own_step():
    refused = []

    def refuse(step, value):
        refused.append((step, value))
        raise ArithmeticError

    losses = Losses(10, refuse)
    for step, value in enumerate((1.0, 2.0, math.inf, math.nan), start=1):
        losses.add(step, torch.tensor(value), 1)
    with pytest.raises(ArithmeticError):
        losses.sums()
    assert refused == [(3, math.inf)]


def test_an_epoch_reads_a_handful_of_numbers_and_ends_with_the_same_bits(monkeypatch, ahead):
    asked = plan(epochs=2, batch_size=2)  # 25 steps an epoch
    late = new_model()
    with Scalars() as scalars:
        history = train(late, halves(50), asked)
    assert [losses.reads for losses in ahead] == [3, 3]
    assert scalars.seen["aten.nll_loss_forward.default"] >= 50
    assert scalars.seen["aten._local_scalar_dense.default"] < 50, "something reads a number in every step"
    monkeypatch.undo()
    at_once = new_model()
    again = train(at_once, halves(50), asked)
    assert torch.equal(flat(late), flat(at_once))
    assert [one.loss for one in history] == [one.loss for one in again]
    assert [one.accuracy for one in history] == [one.accuracy for one in again]


def test_a_diverged_run_ends_within_a_few_steps_and_names_the_first_bad_one(ahead):
    objective = Diverging(calls=5)
    with pytest.raises(TrainingDivergedError, match=r"'Diverging'.*\bnan\b.*\b1\b.*\b5\b.*\b25\b.*0\.05"):
        train(new_model(), halves(50), plan(objective=objective, batch_size=2))
    assert 5 <= len(objective.made) <= 5 + READ_EVERY


def test_an_error_that_follows_from_an_unread_loss_is_told_as_divergence(ahead):
    class Strict(Objective):
        """Fails on what a bad step left behind."""

        calls = 0

        def loss(self, model, x, y, noise, generator):
            Strict.calls += 1
            if Strict.calls == 4:
                raise InvalidValueError("weights must be finite")
            return model(x).sum() * (float("nan") if Strict.calls == 3 else 0.0)

    with pytest.raises(TrainingDivergedError, match=r"'Strict'.*\bnan\b.*\b3\b.*\b25\b"):
        train(new_model(), halves(50), plan(objective=Strict(), batch_size=2))
