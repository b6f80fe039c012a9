"""Choosers without training, and how they are written."""

from __future__ import annotations

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.sigma_levels import ConstantChooser, StatisticChooser, chooser_named, median_level
from tests.guarantees.coverage import hard_tally


def test_statistics_of_rows() -> None:
    rows = np.array([[[0.0, 2.0]], [[3.0, 3.0]], [[-1.0, -1.0]]])
    assert StatisticChooser("mean", (0.0, 2.0))(rows).tolist() == [1, 2, 0]
    assert StatisticChooser("spread", (0.5,))(rows).tolist() == [1, 0, 0]
    assert StatisticChooser("energy", (1.5, 5.0))(rows).tolist() == [1, 2, 0]
    assert StatisticChooser("mean", (0.0, 2.0)).levels == 3


def test_how_choosers_are_written() -> None:
    assert chooser_named("constant:2") == ConstantChooser(2)
    assert chooser_named("spread:0.3,0.4") == StatisticChooser("spread", (0.3, 0.4))
    assert StatisticChooser("spread", (0.3, 0.4)).text == "spread:0.3,0.4"
    assert chooser_named("runs/chooser") is None
    assert chooser_named("module:function") is None
    for wrong in ("constant:x", "spread:0.4,0.3", "mean:", "mean:a"):
        with pytest.raises(InvalidValueError):
            chooser_named(wrong)


@pytest.mark.parametrize(
    ("counts", "level"), [((5, 0, 0), 0), ((2, 3, 0), 1), ((5, 5, 0), 0), ((4, 5, 1), 1), ((0, 0, 1), 2)]
)
def test_the_median_is_the_first_level_with_half_of_the_votes(counts: tuple[int, ...], level: int) -> None:
    assert median_level(hard_tally(counts)) == level
