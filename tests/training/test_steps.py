"""Parts of a step: optimisers against their formulas, precision, layout, and losses that are read together."""

import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import OBJECTIVES, Objective
from smoothcert.training import steps as training_steps
from smoothcert.training.loop import TrainingDivergedError, train
from smoothcert.training.plan import TrainPlan
from smoothcert.training.steps import (
    READ_EVERY,
    Losses,
    WithPrecision,
    make_optimizer,
    restore_layout,
    settle_layout,
)
from tests.training.toys import Diverging, InDouble, Recorder, flat, halves, new_model, numbers, plan

LR, DECAY = 0.05, 0.01


def after_steps(steps=2, **changes):
    """A weight of 2 after steps along the gradients 1, 0.5, …"""
    weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    plan = TrainPlan(0.25, **({"lr": LR, "weight_decay": DECAY} | changes))
    optimizer = make_optimizer([weight], plan)
    for step in range(steps):
        weight.grad = torch.tensor([0.5**step], dtype=torch.float64)
        optimizer.step()
    return weight.item()


def by_momentum(nesterov, apart):
    weight, velocity = 2.0, 0.0
    for gradient in (1.0, 0.5):
        if apart:
            weight *= 1 - LR * DECAY
        else:
            gradient += DECAY * weight
        velocity = 0.9 * velocity + gradient
        weight -= LR * (gradient + 0.9 * velocity if nesterov else velocity)
    return weight


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_sgd(nesterov, apart):
    found = after_steps(nesterov=nesterov, decoupled_decay=apart)
    assert found == pytest.approx(by_momentum(nesterov, apart), rel=1e-14)


@pytest.mark.parametrize("apart", [True, False])
def test_adam(apart):
    weight, first, second = 2.0, 0.0, 0.0
    for step, gradient in enumerate((1.0, 0.5), start=1):
        if apart:
            weight *= 1 - LR * DECAY
        else:
            gradient += DECAY * weight
        first, second = 0.8 * first + 0.2 * gradient, 0.999 * second + 0.001 * gradient**2
        weight -= LR * (first / (1 - 0.8**step)) / ((second / (1 - 0.999**step)) ** 0.5 + 1e-8)
    found = after_steps(optimizer="adam", momentum=0.8, decoupled_decay=apart)
    assert found == pytest.approx(weight, rel=1e-12)
    if apart:  # is AdamW
        weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
        reference = torch.optim.AdamW([weight], LR, (0.9, 0.999), weight_decay=DECAY)
        for gradient in (1.0, 0.5):
            weight.grad = torch.tensor([gradient], dtype=torch.float64)
            reference.step()
        assert after_steps(optimizer="adam", decoupled_decay=True) == weight.item()


@pytest.mark.parametrize("apart", [True, False])
def test_adadelta(apart):
    weight, squares, moves = 2.0, 0.0, 0.0
    for gradient in (1.0, 0.5):
        if apart:
            weight *= 1 - LR * DECAY
        else:
            gradient += DECAY * weight
        squares = 0.9 * squares + 0.1 * gradient**2
        move = gradient * ((moves + 1e-6) / (squares + 1e-6)) ** 0.5
        moves = 0.9 * moves + 0.1 * move**2
        weight -= LR * move
    found = after_steps(optimizer="adadelta", decoupled_decay=apart)
    assert found == pytest.approx(weight, rel=1e-12)


def test_a_weight_without_a_gradient_stays():
    unused = nn.Parameter(torch.tensor([2.0]))
    optimizer = make_optimizer([unused], TrainPlan(0.25, decoupled_decay=True, weight_decay=0.5))
    optimizer.step()
    assert unused.item() == 2.0


@pytest.mark.parametrize(
    "changes",
    [{}, {"nesterov": False}, {"optimizer": "adam"}, {"optimizer": "adadelta"}, {"decoupled_decay": True}],
)
def test_the_loop_uses_what_the_plan_says(changes):
    """One full batch without noise is one step of that optimiser."""
    plan = TrainPlan(0.0, epochs=1, batch_size=12, lr=LR, weight_decay=DECAY, **changes)
    dataset, model, reference = halves(12), InDouble(new_model()), new_model().double()
    train(model, dataset, plan)
    x, y = torch.from_numpy(dataset.inputs(slice(None))).double(), torch.from_numpy(dataset.labels)
    nn.functional.cross_entropy(reference(x), y).backward()
    make_optimizer(reference.parameters(), plan).step()
    for found, expected in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


CPU = torch.device("cpu")


class Spy(nn.Module):
    """Notes the type that its layer computes in."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 3)
        self.types = []

    def forward(self, x):
        logits = self.layer(x.flatten(1))
        self.types.append(logits.dtype)
        return logits


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_passes_run_in_the_type_and_logits_come_back_in_float32(precision):
    spy = Spy()
    x = torch.rand(4, 1, 8, 8, requires_grad=True)
    logits = WithPrecision(spy, precision, CPU)(x)
    assert spy.types == [getattr(torch, precision)]
    assert logits.dtype == torch.float32
    logits.square().sum().backward()
    for leaf in (x, *spy.parameters()):
        assert leaf.grad.dtype == torch.float32
        assert leaf.grad.abs().sum() > 0


def test_float32_is_the_network_itself_and_float16_on_a_processor_is_refused():
    model, x = new_model(), torch.rand(4, 1, 8, 8)
    assert torch.equal(WithPrecision(model, "float32", CPU)(x), model(x))
    with pytest.raises(InvalidValueError, match=r"float16.*\bcpu\b.*bfloat16.*float32"):
        train(new_model(), halves(), plan(precision="float16"))


@pytest.mark.parametrize("name", OBJECTIVES.names())
def test_every_objective_trains_in_bfloat16(name):
    models = []
    for precision in ("float32", "bfloat16"):
        model = new_model()
        (metrics,) = train(
            model, halves(16), plan(objective=OBJECTIVES[name](), epochs=1, precision=precision)
        )
        assert metrics.loss > 0
        assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
        models.append(flat(model))
    full, half = models
    assert not torch.equal(full, half)
    assert (full - half).norm() < 0.02 * full.norm()


class Viewing(nn.Module):
    """As many networks are written: its features are viewed as rows, which needs the usual layout."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, x):
        features = self.features(x)
        return self.head(features.view(len(x), -1))


class Deep(nn.Module):
    """Has weights of five dimensions, for which there is no such layout."""

    def __init__(self):
        super().__init__()
        self.flat, self.deep = nn.Conv2d(1, 2, 3), nn.Conv3d(1, 2, 3)

    def forward(self, x):
        return (
            self.flat(x).flatten(1)[:, :3]
            + self.deep(x.unsqueeze(1).expand(-1, -1, 3, -1, -1)).flatten(1)[:, :3]
        )


def is_channels_last(model):
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Conv2d)]
    return all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


def test_convolutions_are_laid_out_channels_last_and_back():
    model = new_model(shape=(3, 8, 8), architecture="cifar_resnet20").eval()
    x = torch.rand(5, 3, 8, 8)
    before = model(x)
    assert settle_layout(model, x[:1]) == torch.channels_last
    assert is_channels_last(model)
    torch.testing.assert_close(model(x.contiguous(memory_format=torch.channels_last)), before)
    restore_layout(model)
    assert all(parameter.is_contiguous() for parameter in model.parameters())
    assert torch.equal(model(x), before)


def test_others_stay_as_they_are():
    for model, sample in [
        (Viewing(), torch.rand(1, 1, 8, 8)),
        (Deep(), torch.rand(1, 1, 8, 8)),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), torch.rand(1, 1, 8, 8)),
        (nn.Linear(3, 2), torch.rand(1, 3)),
    ]:
        assert settle_layout(model, sample) == torch.contiguous_format
        assert all(parameter.is_contiguous() for parameter in model.parameters())
        model(sample)


def test_the_loop_shows_the_network_images_in_its_layout():
    seen = []
    model = new_model(shape=(3, 8, 8), architecture="cifar_resnet20")
    model[1].register_forward_pre_hook(
        lambda module, inputs: seen.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    train(model, halves(20, channels=3), plan(epochs=1))
    assert len(seen) > 3
    assert all(seen[1:])  # the first is the check that the model takes the data at all
    assert all(parameter.is_contiguous() for parameter in model.parameters())


def test_a_network_that_views_its_features_can_be_trained():
    history = train(Viewing(), halves(20), plan(epochs=1))
    assert history[-1].loss > 0
    train(nn.Linear(1, 3), numbers(10), plan(epochs=1, objective=Recorder()))


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

    monkeypatch.setattr(training_steps.Losses, "on", on)
    return made


def test_losses_are_read_together_and_the_sums_do_not_depend_on_when():
    losses, reads = Losses(4, never), []
    for step in range(1, 12):
        losses.add(step, torch.tensor(float(step)), 2)
        reads.append(losses.reads)
    assert reads == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert losses.latest == 9.0
    assert losses.sums().tolist() == [2.0 * sum(range(1, 12)), 22.0]
    assert losses.reads == 4
    losses = Losses.on(torch.device("cpu"), never)
    losses.add(1, torch.tensor(1.0), 1)
    losses.add(1, torch.tensor(3.0), 3)
    assert (losses.reads, losses.latest) == (2, 2.5)
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
