"""Every registered objective keeps the same promises."""

import dataclasses
from pathlib import Path

import pytest
import torch

import smoothcert.objectives
from smoothcert.architectures import ModelSpec, initialise
from smoothcert.errors import InvalidValueError
from smoothcert.objectives import OBJECTIVES, BatchNoise, Objective, objective_name

HELPERS = {"__init__", "base", "plugins", "losses"}


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
