"""What is said of a chooser on inputs kept apart."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import ndtri

from smoothcert.level_fit import LevelReport
from smoothcert.level_fit.report import reported
from smoothcert.noise import NOISES

NOISE = NOISES["gaussian"](1.0)


def test_sure_votes_give_the_levels_own_radii_and_unsure_ones_less() -> None:
    radii = np.array([[0.1, 0.9], [0.4, 2.0]])
    sure = reported(np.array([[0, 1000], [1000, 0]]), radii, NOISE)
    assert sure.fixed == pytest.approx((0.25, 1.45))
    assert sure.ceiling == pytest.approx(1.45)
    assert sure.homes == sure.chooser == pytest.approx((0.9 + 0.4) / 2)
    assert sure.shares == (0.5, 0.5)
    assert sure.best == 1
    assert sure.gain == pytest.approx(0.65 - 1.45)
    unsure = reported(np.array([[300, 700], [300, 700]]), radii, NOISE)
    reach = ndtri(700.5 / 1001)
    assert unsure.chooser == pytest.approx((min(0.9, max(0.1, reach)) + min(2.0, max(0.4, reach))) / 2)
    assert unsure.homes == pytest.approx(1.45)


def test_it_comes_back_from_json() -> None:
    report = reported(np.array([[5, 95], [90, 10]]), np.array([[0.1, 0.9], [0.4, 0.2]]), NOISE)
    assert LevelReport.from_json(json.loads(json.dumps(report.as_json()))) == report
