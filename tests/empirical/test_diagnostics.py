"""A linear model, for which every point of the line to the adversary is known in closed form."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from smoothcert.datasets.base import Dataset
from smoothcert.empirical.attacker import ConfidenceLine, confidence_lines
from smoothcert.empirical.results import LinePlan
from smoothcert.errors import InvalidValueError

SIGMA, MARGIN = 0.5, 1.5


def half_space() -> nn.Module:
    """Class 0 where the first coordinate is positive."""
    layer = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, 0], layer.weight[1, 0] = 1.0, -1.0
    return layer


def at(margin: float) -> Dataset:
    stored = np.zeros((3, 4), np.float32)
    stored[:, 0] = margin
    return Dataset("points", stored, np.zeros(3, np.int64), ("a", "b"))


def line(**changes) -> ConfidenceLine:
    plan = LinePlan(SIGMA, steps=4, step_size=1.0, points=21, votes=20_000, clip=False, **changes)
    return confidence_lines(half_space(), at(MARGIN), [1], plan)[0]


def test_votes_follow_the_normal_distribution_along_the_line():
    found = line()
    assert found.distance == pytest.approx(4.0, rel=1e-5)  # four unit steps straight at the boundary
    expected = norm.cdf((MARGIN - 4 * found.ratios) / SIGMA)
    assert found.shares[:, 0] == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(20_000))
    assert found.shares.sum(axis=1) == pytest.approx(np.ones(21))


def test_the_ratio_of_equal_confidence_is_where_the_line_crosses_the_boundary():
    assert line().equal_confidence_ratio == pytest.approx(MARGIN / 4, abs=0.01)
    assert line().rival == 1
    assert line().right


@pytest.mark.parametrize(
    ("label_shares", "ratio"),
    [([0.9, 0.7, 0.6], None), ([0.4, 0.3, 0.2], 0.0), ([1.0, 0.75, 0.25], 0.75), ([0.8, 0.5, 0.1], 0.5)],
)
def test_ratio_by_hand(label_shares, ratio):
    shares = np.array([[share, 1 - share] for share in label_shares])
    made = ConfidenceLine(0, 0, 1.0, np.array([0.0, 0.5, 1.0]), shares)
    assert made.equal_confidence_ratio == (None if ratio is None else pytest.approx(ratio))


def test_an_input_has_draws_of_its_own_whoever_its_neighbours_are():
    plan = LinePlan(SIGMA, steps=2, votes=50, points=9, clip=False)
    alone = confidence_lines(half_space(), at(MARGIN), [2], plan)
    among = confidence_lines(half_space(), at(MARGIN), [0, 1, 2], plan)
    assert np.array_equal(alone[0].shares, among[2].shares)
    assert not np.array_equal(among[0].shares, among[2].shares)


def test_bad_values():
    with pytest.raises(InvalidValueError, match=r"sigma.*\b0\.0"):
        LinePlan(0.0)
    with pytest.raises(InvalidValueError, match=r"points.*\b2\b.*\b1\b"):
        LinePlan(0.5, points=1)
    with pytest.raises(InvalidValueError):
        confidence_lines(half_space(), at(1.0), [], LinePlan(0.5))
