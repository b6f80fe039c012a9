"""Exact bounds, held against the library's from outside: those may be looser by their rounding, never tighter."""

import itertools
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.bounds.anytime import look, look_share
from smoothcert.bounds.base import BOUNDS as LIBRARY
from smoothcert.tally import Phase, Stream, Tally
from smoothcert_verify.bounds import BOUNDS, bounds_of, is_look
from smoothcert_verify.bounds import look_share as exact_share
from smoothcert_verify.reading import UnreadableError
from smoothcert_verify.votes import SOFT_UNIT, Votes

HARD = [name for name, kind in BOUNDS.items() if kind.votes == "hard"]


def both(
    name: str, counts: tuple[int, ...], alpha: float, soft: tuple[int, ...] | None = None, spread: int = 0
):
    n = sum(counts)
    squares = None if soft is None else tuple(-(-s * s // (n * SOFT_UNIT)) + spread for s in soft)
    exact = bounds_of(name, Votes(0, 0, "estimation", 0, counts, soft, squares), 0, Fraction(alpha))
    tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, n, counts, soft, squares)
    return exact, LIBRARY[name](tally, 0, alpha)


def check(name: str, *case: Any, **options: Any) -> None:
    """The library is on the safe side, by no more than its margins."""
    exact, library = both(name, *case, **options)
    assert Decimal(library.lower) <= exact.lower.low, (name, *case)
    assert Decimal(library.upper) >= exact.upper.high, (name, *case)
    # A look's level is a millionth below its share of α; that moves a bound by less than this.
    least = exact.lower.low * (1 - Decimal("1e-6")) - Decimal("1e-9")
    most = exact.upper.high * (1 + Decimal("1e-6")) + Decimal("1e-9")
    assert Decimal(library.lower) >= least, (name, *case)
    assert Decimal(library.upper) <= most, (name, *case)


def test_hard_bounds():
    thousands = [(1000, 0, 0), (999, 1, 0), (0, 1000, 0), (500, 500, 0), (400, 300, 300), (1, 998, 1)]
    many = [*thousands, (100_000, 0), (99_990, 10), (10**6, 0)]
    for name, counts, alpha in itertools.product(HARD, many, (0.001, 0.5, 0.999)):
        check(name, counts, alpha)


def test_hopeless_levels():
    many = [(1000, 0, 0), (900, 50, 50), (10**6, 0), (999_999, 1)]
    for name, counts in itertools.product(("mixture", "mixture-top-two", "mixture-two-class"), many):
        check(name, counts, 1e-300)


@settings(max_examples=60)
@given(st.sampled_from(HARD), st.lists(st.integers(0, 1000), min_size=2, max_size=5), st.floats(1e-12, 0.9))
def test_hard_bounds_of_any_counts(name, counts, alpha):
    if BOUNDS[name].looks:
        counts = [100 * count // (sum(counts) or 1) for count in counts]
        counts[0] += 100 - sum(counts)
    if sum(counts):
        check(name, tuple(counts), alpha)


def test_soft_bounds():
    shares = (0, 1, SOFT_UNIT // 2, SOFT_UNIT - 1, SOFT_UNIT)
    for name, share, alpha, n in itertools.product(
        ("hoeffding", "bernstein"), shares, (1e-300, 0.001, 0.999), (1, 2, 1000, 10**6)
    ):
        check(name, (n, 0), alpha, (share * n, (SOFT_UNIT - share) * n), spread=n)


def test_looks_are_the_librarys():
    known = [look(k) for k in range(60)]
    for k, n in enumerate(known):
        assert is_look(n)
        assert float(exact_share(n)) == pytest.approx(look_share(k), rel=1e-12)
        assert Fraction(look_share(k)) <= exact_share(n)
    assert not any(is_look(n) for n in (*range(100), 101, 132, 134, 999, 1001, 10**6 + 1))


def test_no_votes_say_nothing_and_other_looks_are_refused():
    nothing = bounds_of("looks", Votes(0, 0, "estimation", 0, (0, 0)), 0, Fraction(1, 1000))
    assert (nothing.lower.high, nothing.upper.low) == (0, 1)
    with pytest.raises(UnreadableError, match=r"\b101\b"):
        bounds_of("looks", Votes(0, 0, "estimation", 0, (101, 0)), 0, Fraction(1, 1000))
    with pytest.raises(UnreadableError, match="soft"):
        bounds_of("bernstein", Votes(0, 0, "estimation", 0, (101, 0)), 0, Fraction(1, 1000))
