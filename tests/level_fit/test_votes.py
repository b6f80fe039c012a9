"""What a level is worth at an input, estimated from votes that certify nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from smoothcert import SmoothedClassifier
from smoothcert.level_fit import LevelFitPlan, label_radii
from smoothcert.level_fit.votes import counted_votes, radii_by_level
from smoothcert.noise import NOISES
from smoothcert.sampling import Execution, adapt
from smoothcert.sampling.models import TorchClassifier
from smoothcert.tally import Phase
from tests.level_fit.toys import Half, pictures


def test_the_labels_radius_of_shares_and_nothing_where_it_loses() -> None:
    counts = np.array([[96, 4, 0], [4, 96, 0], [100, 0, 0], [50, 50, 0]])
    found = label_radii(counts, np.zeros(4, dtype=np.int64), NOISES["gaussian"](0.5))
    assert found[0] == pytest.approx(0.25 * (ndtri(96.5 / 101) - ndtri(4.5 / 101)))
    assert found[1] == 0
    assert found[0] < found[2] < np.inf
    assert found[3] == 0


def test_uniform_noise_has_its_own_radius() -> None:
    found = label_radii(np.array([[80, 20]]), np.zeros(1, dtype=np.int64), NOISES["uniform"](0.5))
    assert found[0] == pytest.approx(0.5 * 3**0.5 * (80.5 - 20.5) / 101)


def test_votes_are_a_pilots_and_nobody_elses() -> None:
    data, base = pictures(6), adapt(Half(), "hard")
    smoothed = SmoothedClassifier(base, sigma=1.0, seed=5)
    expected = dict(smoothed.cast_each(((i, data.input(i)) for i in range(6)), 64))
    assert {tally.stream.phase for tally in expected.values()} == {Phase.PILOT}
    noise = NOISES["gaussian"](1.0)
    counts = counted_votes(base, data, np.array([4, 1]), noise, 64, 5, Execution())
    assert [tuple(row) for row in counts] == [expected[4].counts, expected[1].counts]


def test_radii_at_every_level_of_one_model_and_of_two() -> None:
    data, plan = pictures(20), LevelFitPlan(sigmas=(1.0, 2.0), votes=4000)
    places = np.arange(20)
    right, wrong = adapt(Half(), "hard"), adapt(Half(-1.0), "hard")
    found = radii_by_level([right], data, places, plan, Execution())
    truth = np.abs(data.inputs(places)[:, 0, 0, 0])
    assert np.abs(found[:, 1] - truth).max() < 0.3  # a share of 4000 votes, times σ = 2
    assert np.abs(found[:, 0] - truth)[truth < 2.2].max() < 0.3
    assert (radii_by_level([wrong, right], data, places, plan, Execution())[:, 0] == 0).all()


def test_the_label_is_the_models_own_number_for_it() -> None:
    data, plan = pictures(6), LevelFitPlan(sigmas=(0.5, 1.0), votes=64)
    other = TorchClassifier(Half(-1.0), class_names=("bright", "dark"))
    assert (radii_by_level([other], data, np.arange(6), plan, Execution()) > 0).all()
