"""Every registered bound holds with probability 1 − α, by counting all tallies there are, and refuses bad ones."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from smoothcert.bounds.base import BOUNDS, Bound, ClassBounds
from smoothcert.bounds.fixed import least_votes, unanimous
from smoothcert.errors import InvalidValueError
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

STREAM = Stream(0, 0, Phase.ESTIMATION)
ALPHA = 0.1
SHARES = [(0.5, 0.5), (0.9, 0.1), (0.97, 0.03), (0.5, 0.3, 0.2), (0.4, 0.3, 0.3), (0.2, 0.4, 0.4)]
ROUNDING = 1e-9


def tally(counts: tuple[int, ...], votes: str) -> Tally:
    """Votes with full confidence: soft ones are then as extreme as they can be."""
    soft = tuple(count * SOFT_UNIT for count in counts) if votes == "soft" else None
    return Tally(STREAM, 0, sum(counts), counts, soft, soft)


def few(bound: Bound) -> int:
    """A small permitted number of votes."""
    return 24 if bound.next_look is None else bound.next_look(0)


def all_counts(n: int, classes: int) -> Iterator[tuple[int, ...]]:
    for bars in itertools.combinations(range(n + classes - 1), classes - 1):
        edges = (-1, *bars, n + classes - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(edges))


@cache
def bounds_of(name: str, classes: int) -> list[tuple[tuple[int, ...], ClassBounds]]:
    bound = BOUNDS[name]
    return [
        (counts, bound(tally(counts, bound.votes), 0, ALPHA)) for counts in all_counts(few(bound), classes)
    ]


def exactly_ever_wrong(name: str, p: float, moments: list[int]) -> float:
    """P[the bounds of two classes are wrong at one of these numbers of votes], passed on vote by vote."""
    bound, alive, wrong, n = BOUNDS[name], np.array([1.0]), 0.0, 0
    for moment in moments:
        while n < moment:
            alive = np.concatenate([alive * (1 - p), [0.0]]) + np.concatenate([[0.0], alive * p])
            n += 1
        for k in np.flatnonzero(alive):
            found = bound(tally((int(k), n - int(k)), bound.votes), 0, ALPHA)
            if found.lower > p or found.upper < 1 - p:
                wrong, alive[k] = wrong + alive[k], 0.0
    return wrong


@pytest.mark.parametrize("name", BOUNDS.names())
class TestEveryBound:
    def test_says_what_it_is(self, name):
        bound = BOUNDS[name]
        assert bound.name == name
        assert bound.votes in ("hard", "soft")
        assert bound.source
        assert bound.next_look is None or bound.anytime, "a bound with looks is for stopping at them"

    def test_bounds_hold_together_with_probability_one_minus_alpha(self, name):
        """Summed over every tally of so many votes: no simulation."""
        n = few(BOUNDS[name])
        for p in SHARES:
            misses = [
                counts
                for counts, found in bounds_of(name, len(p))
                if found.lower > p[0] or found.upper < max(p[1:])
            ]
            rate = float(stats.multinomial.pmf(misses, n, p).sum()) if misses else 0.0
            assert rate <= ALPHA * (1 + ROUNDING), p

    def test_an_anytime_bound_is_right_at_every_look_at_once(self, name):
        bound = BOUNDS[name]
        if not bound.anytime:
            return
        looks = list(range(1, 61)) if bound.next_look is None else [bound.next_look(0)]
        while len(looks) < 6:
            assert bound.next_look is not None
            looks.append(bound.next_look(looks[-1]))
        for p in (0.05, 0.5, 0.9):
            assert exactly_ever_wrong(name, p, looks) <= ALPHA * (1 + ROUNDING), p

    def test_an_anytime_bound_takes_no_votes_without_their_beginning(self, name):
        bound = BOUNDS[name]
        later = replace(unanimous(few(bound), 2, "soft"), start=5, stop=few(bound) + 5)
        if bound.anytime:
            with pytest.raises(InvalidValueError, match=rf"\b{name}\b.*\b5\b.*\b{few(bound) + 5}\b"):
                bound(later, 0, ALPHA)
        else:
            assert bound(later, 0, ALPHA) == bound(unanimous(few(bound), 2, "soft"), 0, ALPHA)

    def test_more_votes_for_the_class_and_a_larger_alpha_say_more(self, name):
        bound, n = BOUNDS[name], few(BOUNDS[name])

        def found(k: int, alpha: float) -> ClassBounds:
            return bound(tally((k, n - k), bound.votes), 0, alpha)

        for alpha in (0.001, 0.1):
            for k in range(n):
                assert found(k + 1, alpha).lower >= found(k, alpha).lower
                assert found(k + 1, alpha).upper <= found(k, alpha).upper
        for k in range(n + 1):
            assert found(k, 0.1).lower >= found(k, 0.001).lower
            assert found(k, 0.1).upper <= found(k, 0.001).upper

    def test_no_bound_is_beyond_what_the_votes_were(self, name):
        n = few(BOUNDS[name])
        for counts, found in bounds_of(name, 3):
            assert 0 <= found.lower <= counts[0] / n
            assert max(counts[1:]) / n <= found.upper <= 1
            assert found.upper <= 1 - found.lower + ROUNDING

    def test_the_order_of_the_rivals_doesnt_matter(self, name):
        known = dict(bounds_of(name, 3))
        assert all(found == known[(a, c, b)] for (a, b, c), found in known.items())

    def test_few_votes_are_enough_where_all_agree(self, name):
        bound = BOUNDS[name]
        least = least_votes(bound, 0.001)
        assert bound(unanimous(least, 2, bound.votes), 0, 0.001).separated
        assert least < 1000

    def test_alpha_outside_the_open_interval_is_refused(self, name):
        for alpha in (0.0, 1.0, -0.1, 1.5, math.nan):
            with pytest.raises(InvalidValueError, match=f"alpha.*{alpha}"):
                BOUNDS[name](unanimous(10, 2, "soft"), 0, alpha)

    def test_bad_tallies_are_refused(self, name):
        with pytest.raises(InvalidValueError, match=r"\b2\b.*\b0\.\.1\b"):
            BOUNDS[name](unanimous(10, 2, "soft"), 2, 0.1)
        with pytest.raises(InvalidValueError):
            BOUNDS[name](Tally(STREAM, 0, 0, (0, 0)), 0, 0.1)
        if BOUNDS[name].votes == "soft":
            with pytest.raises(InvalidValueError, match=r"soft.*hard"):
                BOUNDS[name](unanimous(10, 2, "hard"), 0, 0.1)

    def test_every_tally_has_bounds_at_every_alpha(self, name):
        bound = BOUNDS[name]
        for n in (1, 2, 10, 10**9) if bound.next_look is None else (bound.next_look(0), 10**9):
            for counts in ((n, 0), (0, n), (n - n // 2, n // 2), (n // 2, 0, n - n // 2), (n,)):
                for alpha in (5e-324, 1e-300, 0.001, 0.999):
                    found = bound(tally(counts, bound.votes), 0, alpha)
                    assert 0 <= found.lower <= 1
                    assert 0 <= found.upper <= 1
                    if bound.anytime or alpha < 0.5:
                        assert found.lower <= counts[0] / n
                        assert max(counts[1:], default=0) / n <= found.upper
