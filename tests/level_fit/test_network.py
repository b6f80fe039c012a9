"""Choosers learn where to leave the best level, and stay with it where there is nothing to learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from smoothcert.architectures import ModelSpec, initialise
from smoothcert.errors import ModelError
from smoothcert.level_fit import LevelFitPlan
from smoothcert.level_fit.network import _take_over, chooser_spec, chosen_inputs, fitted_chooser
from smoothcert.level_fit.report import reported
from smoothcert.level_fit.votes import counted_votes
from smoothcert.noise import NOISES
from smoothcert.sampling import Execution
from smoothcert.sampling.models import TorchClassifier
from tests.level_fit.toys import pictures

PLAN = LevelFitPlan(sigmas=(0.25, 1.0), inputs=160, validation=60, epochs=12, copies=4, batch=20, votes=128)


def worth(radii: np.ndarray, plan: LevelFitPlan = PLAN):
    """What a chooser that was fitted on radii of the first 100 pictures is worth on others."""
    data, fitted, kept = pictures(160), np.arange(100), np.arange(100, 160)
    chooser = fitted_chooser(chooser_spec(data, plan), data, fitted, radii[fitted], plan)
    noise = NOISES[plan.noise](plan.noise_sigma)
    counts = counted_votes(TorchClassifier(chooser), data, kept, noise, plan.votes, 1, Execution())
    return reported(counts, radii[kept], noise)


def test_it_goes_where_the_radius_is() -> None:
    bright = pictures(160).labels == 1
    report = worth(np.where(np.stack([bright, ~bright], 1), 0.8, 0.1))
    assert report.fixed == pytest.approx((0.45, 0.45))
    assert report.chooser > 0.7
    assert report.shares == pytest.approx((0.5, 0.5), abs=0.1)


def test_it_stays_where_nothing_can_be_learnt() -> None:
    radii = np.random.default_rng(0).random((160, 2)) + np.array([0.0, 0.3])
    report = worth(radii)
    assert report.best == 1
    assert report.shares[1] > 0.95
    assert report.chooser == pytest.approx(report.fixed[1], abs=0.02)


def test_the_same_seed_gives_the_same_weights_and_another_doesnt() -> None:
    data, places = pictures(40), np.arange(40)
    radii = np.random.default_rng(1).random((40, 2))

    def weights(seed: int) -> torch.Tensor:
        plan = LevelFitPlan(sigmas=(0.25, 1.0), epochs=2, copies=2, seed=seed)
        made = fitted_chooser(chooser_spec(data, plan), data, places, radii, plan)
        return torch.cat([each.flatten() for each in made.state_dict().values()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


def test_inputs_are_drawn_from_all_over_and_kept_apart() -> None:
    fitted, kept = chosen_inputs(range(0, 1000, 2), PLAN)
    assert len(kept) == 60
    assert len(fitted) == 100
    assert not {*fitted} & {*kept}
    assert all(place % 2 == 0 for place in (*fitted, *kept))
    assert fitted.max() > 800
    few, _ = chosen_inputs(range(100), PLAN)
    assert len(few) == 40


def test_the_default_network_suits_the_pictures() -> None:
    spec = chooser_spec(pictures(2), PLAN)
    assert spec.architecture == "small-cnn"
    assert spec.classes == ("0.25", "1")


def test_a_loss_that_runs_away_is_told() -> None:
    data, plan = pictures(40), LevelFitPlan(sigmas=(0.25, 1.0), epochs=2, copies=1, lr=1e30)
    with pytest.raises(ModelError, match=r"\bnan\b.*1e\+30"):
        fitted_chooser(chooser_spec(data, plan), data, np.arange(40), np.ones((40, 2)), plan)


def test_it_starts_from_all_but_the_last_layer_of_another_network() -> None:
    data = pictures(160)
    spec = ModelSpec("small-cnn", data.input_shape, ("dark", "bright"))
    trained = initialise(spec, 7)
    none = replace(PLAN, epochs=1, lr=1e-12)  # a step that moves nothing
    chooser = fitted_chooser(
        chooser_spec(data, none, spec), data, np.arange(100), np.ones((100, 2)), none, start=trained
    )
    same = {
        name: torch.allclose(value, chooser.state_dict()[name], atol=1e-6)
        for name, value in trained.state_dict().items()
        if name.endswith("weight")
    }
    *below, last = same.values()
    assert all(below)
    assert not last


def test_it_starts_from_a_network_for_the_same_inputs_only() -> None:
    data = pictures(160)
    other = ModelSpec("small-cnn", (3, 32, 32), ("dark", "bright"))
    with pytest.raises(ModelError, match=r"small-cnn.*\(1, 4, 4\).*small-cnn.*\(3, 32, 32\)"):
        chooser_spec(data, PLAN, other)
    with pytest.raises(ModelError, match=r"lenet.*small-cnn"):
        chooser_spec(data, replace(PLAN, network="lenet"), replace(other, input_shape=data.input_shape))


class ByConvolution(torch.nn.Module):
    """Its classes come from a convolution, after a linear layer that doesn't give them."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.scale, self.classes = torch.nn.Linear(1, 1), torch.nn.Conv2d(1, classes, 1)


def test_a_network_whose_classes_come_from_elsewhere_is_refused() -> None:
    with pytest.raises(ModelError, match="ByConvolution"):
        _take_over(ByConvolution(2), ByConvolution(10))
