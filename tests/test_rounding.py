"""Directed rounding against 50-digit arithmetic."""

import mpmath
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.rounding import decimal_down, down, normal_quantile_down, normal_quantile_up, up


@given(st.floats(min_value=1e-12, max_value=1 - 1e-12))
def test_normal_quantiles_bracket_the_exact_value(p):
    with mpmath.workdps(50):

        def normal_cdf(q: float) -> mpmath.mpf:
            return mpmath.ncdf(mpmath.mpf(q))

        assert normal_cdf(normal_quantile_down(p)) <= mpmath.mpf(p) <= normal_cdf(normal_quantile_up(p))


@given(st.floats(min_value=-1e6, max_value=1e6))
def test_down_and_up_move_away(value):
    assert down(value) < value < up(value)


@given(st.floats(min_value=0, max_value=1e4), st.integers(min_value=1, max_value=9))
def test_decimals_are_cut_and_never_rounded_up(value, digits):
    text = decimal_down(value, digits)
    assert float(text) <= value
    assert value - float(text) < 10.0**-digits * (1 + 1e-6)


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_a_decimal_that_fits_is_kept(scaled, digits):
    text = f"{scaled // 10**digits}.{scaled % 10**digits:0{digits}d}"
    assert decimal_down(float(text), digits) == text


def test_known_decimals():
    for value, digits, text in [
        (0.9536, 3, "0.953"),
        (0.3, 1, "0.3"),
        (0.1 + 0.2, 1, "0.3"),
        (0.0003, 4, "0.0003"),
        (0.29999999, 1, "0.2"),
        (2.0, 0, "2"),
        (0.0, 4, "0.0000"),
    ]:
        assert decimal_down(value, digits) == text
