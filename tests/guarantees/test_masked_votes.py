"""Votes under masks are what the theorem asks for: masks of probability β exactly, each alone, in their own streams."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import norm

from smoothcert import ABSTAIN, Execution, Hybrid, Masks, SmoothedClassifier
from smoothcert.bounds.base import ClassBounds
from smoothcert.perturb.columns import Columns
from smoothcert.perturb.hybrid import MaskTheorem, mask_probability
from smoothcert.regions.changes import ChangeRegion, TableScales
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.tally import Tally

COLUMNS = Columns(("a", "number", "b", "c"), {"a": ("x", "y"), "b": ("x", "y", "z"), "c": ("x", "y")})
PLACES, NUMBER = [0, 2, 3], 1
ROW = np.array([1.0, 3.0, 2.0, 0.0])
BETA = mask_probability(0.7)
HYBRID = Hybrid(COLUMNS, (2.0,), BETA)


def pattern(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Which categories are masked, as three bits, and whether the number is above 4: half a σ above ``ROW``.

    16 where something else than a value of ``ROW`` or a mask is shown.
    """
    masked = np.isnan(rows[:, PLACES])
    known = (masked | (rows[:, PLACES] == ROW[PLACES])).all(1)
    return np.where(known, masked @ np.array([1, 2, 4]) * 2 + (rows[:, NUMBER] > 4), 16).astype(np.int64)


def smoothed(
    model: Callable[..., Any], noise: Hybrid | Masks, classes: int, **options: Any
) -> SmoothedClassifier:
    return SmoothedClassifier(model, noise=noise, outputs="labels", classes=classes, seed=1, **options)


def test_masks_are_independent_of_each_other_and_of_the_number():
    """All 16 outcomes of three masks and a threshold, as often as the product of their probabilities."""
    n = 200_000
    answer = smoothed(pattern, HYBRID, 17, n=n).certify_one(ROW)
    above = norm.sf(0.5)
    expected = [
        math.prod(BETA if one else 1 - BETA for one in masked) * (above if high else 1 - above)
        for masked in itertools.product([0, 1], repeat=3)
        for high in (0, 1)
    ]
    by_bits = [
        sum(bit << k for k, bit in enumerate(masked)) for masked in itertools.product([0, 1], repeat=3)
    ]
    *known, other = answer.evidence.estimation.counts
    assert other == 0
    counts = np.array(known).reshape(8, 2)[by_bits].ravel()
    assert stats.chisquare(counts, n * np.array(expected)).pvalue > 1e-6


def test_a_mask_has_probability_beta_to_the_last_bit():
    """β is a multiple of 2⁻³², and so many of the sampler's 2⁵⁸ uniform numbers give a mask."""
    for asked in (0.7, 0.85, 0.9999, 1e-9, 1 / 3):
        beta = mask_probability(asked)
        assert abs(Fraction(beta) - Fraction(asked)) <= Fraction(1, 1 << 33)
        masks = Masks(asked, 9.0)
        assert masks.cells(CertifyPlan(masks).grid, 3).sampler.thresholds.tolist() == [
            0,
            Fraction(beta) * (1 << 58),
        ]


def tallies(
    noise: Hybrid | Masks, model: Any, rows: NDArray[Any], execution: Execution, classes: int
) -> list[Tally]:
    answers = smoothed(model, noise, classes, n=700, n0=50, execution=execution, thread_safe=True).certify(
        rows, index=5
    )
    return [tally for one in answers for tally in (one.evidence.selection, one.evidence.estimation)]


def large(rows: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray((np.where(rows == 9, 0, rows) > 1).sum(1) > 0, dtype=np.int64)


@pytest.mark.parametrize(
    ("noise", "model", "rows", "classes"),
    [
        (HYBRID, pattern, np.tile(ROW, (4, 1)), 17),
        (Masks(0.8, 9.0), large, np.arange(24).reshape(4, 6) % 4, 2),
    ],
    ids=["hybrid", "masks"],
)
def test_votes_do_not_depend_on_batch_workers_or_order(noise, model, rows, classes):
    found = tallies(noise, model, rows, Execution(workers=1), classes)
    for execution in (
        Execution(workers=1, batch=1),
        Execution(workers=3, batch=64),
        Execution(workers=2, batch=5000),
    ):
        assert tallies(noise, model, rows, execution, classes) == found
    alone = smoothed(model, noise, classes, n=700, n0=50)
    backwards = [alone.certify_one(rows[place], index=5 + place).evidence for place in (3, 2, 1, 0)]
    assert [one.estimation for one in backwards] == found[-1::-2]
    # Equal rows in streams of their own, and votes that choose beside votes that certify, share no masks.
    if noise is HYBRID:
        assert len({tally.counts for tally in found}) == len(found)


def worst(rows: NDArray[Any]) -> NDArray[np.int64]:
    """The theorem's worst case from zeros: class 0 where a 0 is shown among two values, 1 where a 1 is.

    Where both are masked, the third value's mask says 0.
    """
    first, third = rows[:, :2], rows[:, 2]
    return np.where((first == 1).any(1), 1, np.where((first == 0).any(1), 0, third != 9)).astype(np.int64)


def test_certificates_of_votes_that_were_cast_are_wrong_no_more_often_than_alpha():
    """Two changes lead from 86.9 % of class 0 to 49.3 %: a certificate for two is false, and one for one is true."""
    beta, alpha, inputs = mask_probability(0.79), 0.1, 400
    weights = [
        (masked, beta ** sum(masked) * (1 - beta) ** (3 - sum(masked)))
        for masked in itertools.product([0, 1], repeat=3)
    ]

    def share(row: list[int]) -> float:
        return sum(weight * (worst(np.where(masked, 9, [row]))[0] == 0) for masked, weight in weights)

    assert [round(share(row), 3) for row in ([0, 0, 0], [1, 0, 0], [1, 1, 0])] == [0.869, 0.659, 0.493]
    voting = smoothed(worst, Masks(beta, 9.0), 2, n=400, n0=20, alpha=alpha)
    answers = voting.certify(np.zeros((inputs, 3), dtype=np.int64), index=0)
    assert {one.predicted for one in answers} <= {0, ABSTAIN}
    claimed = np.array([one.radius for one in answers]) - 1
    assert 0 < (claimed >= 2).sum() <= stats.binom.ppf(1 - 1e-6, inputs, alpha)
    assert (claimed >= 1).mean() > 0.95


def test_the_rival_is_above_the_certified_class_beyond_the_last_change():
    """Of three classes: the table ends exactly where the worst rival draws level, from both bounds."""
    scales = TableScales(("n", "a", "b", "c"), (1, 2, 3), (1.0,))
    for beta, first, second in ((0.9, 0.8, 0.05), (0.85, 0.9, 0.02), (0.95, 0.7, 0.2)):
        theorem = MaskTheorem(beta, 3, scales)
        table = theorem.table(ClassBounds(first, second))
        for changes in range(1, 4):
            v = beta**changes
            lead = first - (1 - v) - (second + (1 - v))  # by the union of what is lost and what is won
            assert (len(table) > changes) == (lead > 0)
        region = theorem.region(np.zeros(4), ClassBounds(first, second))
        assert isinstance(region, ChangeRegion)
        assert region.most_changes == len(table) - 1
