"""Intervals hold the exact value and are narrow: held against mpmath where it is hard."""

from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert_verify.bounds import clopper_pearson_lower, mixture_lower, tail_at_least
from smoothcert_verify.intervals import PI, Interval, ln_factorial, quantile, upper_tail

FRACTIONS = st.fractions(min_value=-1000, max_value=1000, max_denominator=10**9)


def exact(value: Decimal) -> mpmath.mpf:
    return mpmath.mpf(str(value))


def holds(interval: Interval, value: mpmath.mpf, width: float = 1e-18) -> None:
    """The value is inside, and the interval narrow, relative to it."""
    assert exact(interval.low) <= value <= exact(interval.high), value
    assert exact(interval.high) - exact(interval.low) <= width * abs(value), value


@given(FRACTIONS, FRACTIONS)
def test_every_operation_holds_the_exact_result(a, b):
    x, y = Interval.of(a), Interval.of(b)
    results = [(x + y, a + b), (x - y, a - b), (x * y, a * b), (-x, -a)]
    if b > 0:
        results.append((x / y, a / b))
    for interval, value in results:
        assert Fraction(interval.low) <= value <= Fraction(interval.high)
        assert Fraction(interval.high - interval.low) <= Fraction(1, 10**20)


def test_functions_hold_the_exact_result():
    with mpmath.workdps(80):
        for value in ("1e-300", "0.5", "1", "3", "12345.678", "1e9"):
            x, wide = Interval.of(Decimal(value)), mpmath.mpf(value)
            if value != "1":
                holds(x.ln(), mpmath.log(wide))
            holds(x.sqrt(), mpmath.sqrt(wide))
            if wide < 1e5:
                holds(x.exp(), mpmath.exp(wide))
                holds((-x).exp(), mpmath.exp(-wide))


def test_a_divisor_that_may_be_zero_is_refused_and_no_votes_bound_nothing():
    with pytest.raises(ArithmeticError):
        Interval.of(1) / Interval(Decimal(0), Decimal(1))
    assert clopper_pearson_lower(0, 10, Fraction(1, 2)).high == 0
    assert mixture_lower(0, 10, Fraction(1, 2)).high == 0


def test_pi_and_factorials_on_both_sides_of_where_the_series_begins():
    with mpmath.workdps(90):
        holds(PI, +mpmath.pi, 1e-60)
        for n in (2, 17, 255, 256, 257, 1000, 10**6, 10**12):
            holds(ln_factorial(n), mpmath.loggamma(n + 1), 1e-50)


def test_the_normal_tail():
    with mpmath.workdps(90):
        for x in ("0", "1e-20", "0.1", "1", "5", "9.5"):
            holds(upper_tail(Decimal(x)), mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2)


def test_the_normal_quantile():
    near_the_ends = ("1e-40", "1e-15", "0.001", "0.9", "0.9999999999999999")
    with mpmath.workdps(90):
        for p in (*near_the_ends, "0.3", "0.4999999999999999", "0.50000000000000001"):
            found = quantile(Interval.of(Decimal(p)))
            assert mpmath.ncdf(exact(found.low)) <= mpmath.mpf(p) <= mpmath.ncdf(exact(found.high)), p
            assert found.high - found.low <= abs(found.low) * Decimal("1e-15"), p
    found = quantile(Interval.of(Fraction(1, 2)))
    assert found.low == found.high == 0


HARD = [
    (k, n, alpha)
    for n in (1, 2, 100, 10**5, 10**6)
    for k in sorted({1, n // 3, n // 2, n - 1, n} - {0})
    for alpha in (1e-300, 5e-4, 0.5, 0.999)
]


def test_the_clopper_pearson_bound_has_the_tail_alpha():
    for case in HARD:
        k, n, alpha = case
        found = clopper_pearson_lower(k, n, Fraction(alpha))
        assert found.high - found.low <= min(found.low, 1 - found.low) * Decimal("1e-15"), case
        # mpmath's incomplete beta takes minutes at a million votes; the tail itself is held against it below.
        if n <= 100:
            with mpmath.workdps(60):
                below, above = (tail_of(k, n, exact(end)) for end in (found.low, found.high))
                assert below <= mpmath.mpf(alpha) * (1 + mpmath.mpf(10) ** -50), case
                assert above >= mpmath.mpf(alpha) * (1 - mpmath.mpf(10) ** -50), case


def tail_of(k: int, n: int, p: mpmath.mpf) -> mpmath.mpf:
    return mpmath.fsum(mpmath.binomial(n, j) * p**j * (1 - p) ** (n - j) for j in range(k, n + 1))


def test_the_binomial_tail_on_both_sides_of_the_mean():
    thousands = ((600, 1000, "0.55"), (600, 1000, "0.65"), (990, 1000, "0.97"), (5, 1000, "0.001"))
    with mpmath.workdps(80):
        for k, n, p in (*thousands, (1, 10, "1e-200"), (10, 10, "0.9")):
            holds(tail_at_least(k, n, Decimal(p)), tail_of(k, n, mpmath.mpf(p)), 1e-22)


def test_the_binomial_tail_of_many_votes():
    """Held against the shorter side, term by term."""
    with mpmath.workdps(60):
        for k, n, p in ((99_950, 10**5, "0.999"), (100, 10**5, "0.0005"), (999_990, 10**6, "0.99995")):
            share = mpmath.mpf(p)
            few = range(k, n + 1) if n - k < k else range(k)
            terms = mpmath.fsum(mpmath.binomial(n, j) * share**j * (1 - share) ** (n - j) for j in few)
            holds(tail_at_least(k, n, Decimal(p)), terms if n - k < k else 1 - terms, 1e-22)


def test_the_mixture_is_refuted_at_its_bound():
    for case in HARD:
        k, n, alpha = case
        found = mixture_lower(k, n, Fraction(alpha))
        with mpmath.workdps(80):
            a, b = mpmath.mpf(k), mpmath.mpf(n - k)
            gammas = mpmath.loggamma(a + 0.5) + mpmath.loggamma(b + 0.5) - mpmath.loggamma(n + 1)
            wanted = gammas - mpmath.log(mpmath.pi) + mpmath.log(mpmath.mpf(alpha))
            below, above = (
                a * mpmath.log(p) + (b * mpmath.log(1 - p) if b else 0)
                for p in (exact(found.low), exact(found.high))
            )
            assert below <= wanted <= above, case
        assert found.high - found.low <= min(found.low, 1 - found.low) * Decimal("1e-15"), case
        assert found.high <= Decimal(k) / n, case
