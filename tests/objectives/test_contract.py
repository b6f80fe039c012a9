"""Every registered objective keeps the same promises: as a dataclass, in its gradients and passes, and as a loss."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import smoothcert.objectives
from smoothcert import SmoothingLoss, attacks
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.errors import InvalidValueError
from smoothcert.objectives import OBJECTIVES, BatchNoise, Objective, StepCost, objective_name
from smoothcert.objectives.consistency import Consistency
from smoothcert.objectives.gaussian import GaussianAugmentation
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.objectives.stability import Stability
from smoothcert.perturb.uniform import Uniform
from tests.objectives import by_hand

HELPERS = {"__init__", "base", "ramps"}


def batch(size=6):
    generator = torch.Generator().manual_seed(3)
    return torch.rand(size, 1, 8, 8, generator=generator), torch.arange(size) % 4


def model():
    return initialise(ModelSpec("small-cnn", (1, 8, 8), ("a", "b", "c", "d")), seed=1)


def stream(seed=5):
    return torch.Generator().manual_seed(seed)


def test_every_method_file_registers_an_objective():
    files = {path.stem for path in Path(smoothcert.objectives.__file__).parent.glob("*.py")} - HELPERS
    registered = {OBJECTIVES[name].__module__ for name in OBJECTIVES}  # plugins' too
    package = f"{smoothcert.objectives.__name__}."
    assert {name.removeprefix(package) for name in registered if name.startswith(package)} == files


@pytest.mark.parametrize("name", OBJECTIVES.names())
class TestEveryObjective:
    def test_is_a_frozen_dataclass_with_defaults(self, name):
        objective = OBJECTIVES[name]()
        assert isinstance(objective, Objective)
        assert OBJECTIVES[name].__dataclass_params__.frozen
        assert objective == dataclasses.replace(objective)
        assert objective_name(objective) == name

    @pytest.mark.parametrize("sigma", [0.0, 0.5, torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])])
    def test_loss_is_a_finite_scalar_with_gradients(self, name, sigma):
        network = model()
        loss = OBJECTIVES[name]().loss(network, *batch(), BatchNoise(sigma), stream())
        loss.backward()
        assert loss.shape == ()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())

    def test_randomness_comes_from_the_generator_alone(self, name):
        before = torch.get_rng_state()
        first, same, other = (
            OBJECTIVES[name]().loss(model(), *batch(), BatchNoise(0.5), stream(seed)).item()
            for seed in (5, 5, 6)
        )
        assert first == same != other
        assert torch.equal(torch.get_rng_state(), before)

    def test_inputs_are_left_as_they_were(self, name):
        x, y = batch()
        OBJECTIVES[name]().loss(model(), x, y, BatchNoise(0.5), stream())
        assert torch.equal(x, batch()[0])

    @pytest.mark.parametrize(
        "sigma", [-0.5, float("nan"), torch.ones(5), torch.ones(6, 1), torch.tensor(0.5)]
    )
    def test_bad_sigma_is_refused(self, name, sigma):
        with pytest.raises(InvalidValueError, match="sigma"):
            OBJECTIVES[name]().loss(model(), *batch(), BatchNoise(sigma), stream())


def test_unregistered_objective_goes_by_its_class_name():
    @dataclasses.dataclass(frozen=True)
    class Mine(Objective):
        def loss(self, model, x, y, noise, generator):
            return model(x).sum()

    assert objective_name(Mine()) == "Mine"


SMALL = [
    Stability(),
    Consistency(),
    Macer(copies=3, beta=2.0),
    Macer(lam=0.0),
    SmoothAdv(steps=3),
    SmoothAdv(attack="ddn", steps=3),
    SmoothAdv(attack="gradient-free", steps=3),
    SmoothMix(steps=2, alpha=0.3),
    SmoothMix(steps=2, alpha=0.3, one_step=True),
]


def loss_of(objective, model, x, y, sigma=0.3):
    return objective.loss(model, x, y, BatchNoise(sigma), by_hand.stream())


@pytest.mark.parametrize("objective", SMALL, ids=str)
def test_backward_is_the_slope_with_adversaries_held_fixed(objective, monkeypatch):
    x, y = by_hand.inputs()
    model = by_hand.two_layers()
    for name in ("pgd", "ddn", "pgd_path"):
        found = []
        attack = getattr(attacks, name)

        def once(*args, attack=attack, found=found, **knobs):
            found.append(found[0] if found else attack(*args, **knobs))
            return found[0]

        monkeypatch.setattr(attacks, name, once)
    by_hand.assert_gradient_is_the_slope(model, lambda: loss_of(objective, model, x, y))


@pytest.mark.parametrize("objective", SMALL, ids=str)
def test_one_sigma_for_each_input_or_for_all(objective):
    x, y = by_hand.inputs()
    model = by_hand.two_layers()
    alike = torch.full((len(x),), 0.25, dtype=torch.float64)
    assert loss_of(objective, model, x, y, 0.25) == loss_of(objective, model, x, y, alike)
    assert loss_of(objective, model, x, y, 0.25) != loss_of(objective, model, x, y, 2 * alike)


PASSES = [
    (GaussianAugmentation(), 0, 0, 1, 1),
    # objective, forward and backward passes of the attack, forward passes of the loss, rows for each input
    (Stability(), 0, 0, 2, 1),
    (Consistency(copies=3), 0, 0, 1, 3),
    (Macer(copies=5), 0, 0, 1, 5),
    (SmoothAdv(steps=4, copies=3), 4, 4, 1, 3),
    (SmoothAdv(attack="ddn", steps=4, copies=3), 4, 4, 1, 3),
    (SmoothAdv(attack="gradient-free", steps=4, copies=3), 4, 0, 1, 3),
    (SmoothAdv(steps=4, copies=3, epsilon=0.0), 0, 0, 1, 3),
    (SmoothAdv(attack="ddn", steps=4, copies=3, epsilon=0.0), 0, 0, 1, 3),
    (SmoothMix(steps=4, copies=3), 4, 4, 2, 3),
    (SmoothMix(steps=4, copies=3, one_step=True), 4, 4, 2, 3),
]


@pytest.mark.parametrize(("objective", "attack", "attack_back", "training", "rows"), PASSES, ids=str)
def test_a_step_costs_the_passes_it_declares(objective, attack, attack_back, training, rows):
    assert objective.passes() == StepCost(rows, attack, attack_back, training)
    x, y = by_hand.inputs()
    model = by_hand.two_layers()
    passes = by_hand.Passes(model)
    loss = loss_of(objective, model, x, y)
    size = rows * len(x)
    assert passes.forward == [(size, False)] * attack + [(size, True)] * training
    assert passes.backward == [(size, False)] * attack_back
    # The attack leaves nothing on the weights.
    assert all(parameter.grad is None for parameter in model.parameters())
    loss.backward()
    assert passes.backward[attack_back:] == [(size, True)] * training


@pytest.mark.parametrize("objective", SMALL, ids=str)
def test_batch_norm_and_dropout(objective):
    torch.manual_seed(0)
    x, y = by_hand.inputs()
    model = by_hand.noisy_network()
    model[1].eval()
    trained = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loss_of(objective, model, x, y).backward()
    assert [module.training for module in model.modules()] == trained
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_attacks_leave_batch_statistics_to_the_training_passes():
    x, y = by_hand.inputs()
    model = by_hand.noisy_network()
    loss_of(SmoothAdv(steps=3), model, x, y)
    assert model[1].num_batches_tracked == 1
    loss_of(SmoothMix(steps=3), model, x, y)
    assert model[1].num_batches_tracked == 3


@pytest.mark.parametrize("name", OBJECTIVES.names())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_saturated_logits_give_finite_losses_and_gradients(name, dtype, sigma):
    # The inputs have no gradient either: the sign is flat.
    x, y = by_hand.inputs(12)
    model = by_hand.Saturated().to(dtype)
    loss = loss_of(OBJECTIVES[name](), model, x.to(dtype), y, sigma)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(model.weight.grad)


@pytest.mark.parametrize("objective", SMALL, ids=str)
def test_confident_networks_give_finite_losses_and_gradients(objective):
    x, y = by_hand.inputs()
    model = by_hand.LinearSoftmax(scale=1e4).torch().float()
    loss = loss_of(objective, model, x.float(), y)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    assert np.isfinite(loss.item())


X = torch.rand((12, 1, 4, 4), generator=torch.Generator().manual_seed(1))
Y = torch.arange(12) % 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize("method", OBJECTIVES.names())
def test_every_method_is_a_loss_that_trains(method):
    model = network()
    criterion = SmoothingLoss(method, sigma=0.25, seed=3)
    expected = OBJECTIVES[method]().loss(network(), X, Y, BatchNoise(0.25), torch.Generator().manual_seed(3))
    loss = criterion(model, X, Y)
    assert loss.item() == expected.item()
    loss.backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())
    assert criterion(model, X, Y).item() != loss.item(), "each call draws fresh noise"


def test_knobs_noise_and_seeds():
    twice = SmoothingLoss("consistency", sigma=0.5, noise="uniform", seed=0, copies=4, lam=1)
    assert repr(twice) == "SmoothingLoss('consistency', sigma=0.5, noise='uniform')"
    assert twice.objective == OBJECTIVES["consistency"](copies=4, lam=1.0)  # type: ignore[call-arg]
    assert twice.noise.kind is Uniform
    assert SmoothingLoss(twice.objective, sigma=0.5, seed=0).objective is twice.objective
    torch.manual_seed(7)
    first = SmoothingLoss(sigma=0.5)(network(), X, Y).item()
    torch.manual_seed(7)
    assert SmoothingLoss(sigma=0.5)(network(), X, Y).item() == first
    assert SmoothingLoss(sigma=0.5)(network(), X, Y).item() != first


def test_mistakes_are_named():
    with pytest.raises(InvalidValueError, match="smoothmix"):
        SmoothingLoss("smoothmx", sigma=0.5)
    with pytest.raises(InvalidValueError, match=r"consistency.*'lamb'.*'lam'"):
        SmoothingLoss("consistency", sigma=0.5, lamb=1.0)
    with pytest.raises(InvalidValueError, match=r"sigma.*\b0\.0"):
        SmoothingLoss(sigma=0.0)
    with pytest.raises(InvalidValueError, match="copies"):
        SmoothingLoss(OBJECTIVES["gaussian"](), sigma=0.5, copies=3)
    with pytest.raises(InvalidValueError, match=r"seed.*-1"):
        SmoothingLoss(sigma=0.5, seed=-1)


def test_a_ramp_of_a_loss_is_the_method_with_that_value():
    ramped = SmoothingLoss("consistency", sigma=0.5, seed=0, lam=4.0, ramps=("lam:4", "sigma=0.1:2@1"))
    seen = []
    for epoch in range(5):
        ramped.set_epoch(epoch)
        seen.append((ramped.objective.lam, ramped.noise.sigma))  # type: ignore[attr-defined]
        plain = SmoothingLoss("consistency", sigma=seen[-1][1], seed=0, lam=seen[-1][0])
        plain.generator.set_state(ramped.generator.get_state())
        assert ramped(network(), X, Y).item() == plain(network(), X, Y).item()
    expected = [(1.0, 0.1), (2.0, 0.3), (3.0, 0.5), (4.0, 0.5), (4.0, 0.5)]
    assert seen == [(lam, pytest.approx(sigma)) for lam, sigma in expected]
    assert SmoothingLoss("consistency", sigma=0.5, lam=4.0, ramps="lam:4").objective.lam == 1.0  # type: ignore[attr-defined]
    for ramp, named in [("lamb:3", "lam"), ("lam:x", "lam:x"), ("copies:3", "copies")]:
        with pytest.raises(InvalidValueError, match=named):
            SmoothingLoss("consistency", sigma=0.5, ramps=ramp)
