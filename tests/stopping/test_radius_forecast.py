"""RadiusForecast: expected radii against the exact sum over the beta-binomial, and what pilots make of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import betabinom

from smoothcert.bounds import clopper_pearson_lower
from smoothcert.stopping import Pilot, RadiusForecast
from smoothcert.tally import Phase, Stream, Tally

ALPHA = 0.001


def radius_of(tally: Tally) -> float:
    lower = clopper_pearson_lower(tally.counts[0], tally.n, ALPHA)
    return float(ndtri(lower)) if lower > 0.5 else 0.0


def pilot(*counts: int) -> Tally:
    return Tally(Stream(0, 0, Phase.PILOT), 0, sum(counts), counts)


@pytest.mark.parametrize("k", [0, 500, 600, 900, 990, 1000])
@pytest.mark.parametrize("n", [100, 2000])
def test_the_mean_is_that_of_the_beta_binomial(k: int, n: int) -> None:
    exact = sum(
        betabinom.pmf(j, n, k + 0.5, 1000 - k + 0.5)
        * radius_of(Tally(Stream(0, 0, Phase.ESTIMATION), 0, n, (j, n - j)))
        for j in range(n + 1)
    )
    assert RadiusForecast(radius_of).expected(pilot(k, 1000 - k), 0, n) == pytest.approx(
        exact, rel=0.02, abs=0.005
    )  # 32 strata see little of a tail


def test_the_class_is_found_wherever_it_stands() -> None:
    forecast = RadiusForecast(radius_of)
    assert forecast.expected(pilot(10, 90, 0), 1, 500) == forecast.expected(pilot(90, 10), 0, 500)


def test_all_votes_are_counted_once() -> None:
    seen: list[Tally] = []

    def record(tally: Tally) -> float:
        seen.append(tally)
        return 0.0

    forecast = RadiusForecast(record)
    for counts in ((5, 3, 2, 0), (10, 0), (0, 10), (3, 1, 1, 1, 1, 1, 1, 1)):
        forecast.expected(pilot(*counts), 0, 77)
    assert all(tally.n == 77 for tally in seen)
    assert all(max(tally.counts[2:], default=0) <= tally.counts[1] for tally in seen)


def test_a_pilot_spends_where_votes_pay() -> None:
    rule, forecast = Pilot(0.01), RadiusForecast(radius_of)
    chosen = {k: rule.choose(forecast, pilot(k, 1000 - k), 0, 100_000, 128) for k in (100, 900, 1000)}
    assert chosen[100] == 128, "nothing to be certified: the fewest votes there are"
    assert chosen[100] < chosen[900] < chosen[1000] <= 100_000
    loose = Pilot(0.05).choose(forecast, pilot(900, 100), 0, 100_000, 128)
    assert loose < chosen[900]


def test_the_loss_is_what_was_said() -> None:
    rule, forecast = Pilot(0.01), RadiusForecast(radius_of)
    for k in (700, 900, 990):
        n = rule.choose(forecast, pilot(k, 1000 - k), 0, 100_000, 128)
        full = forecast.expected(pilot(k, 1000 - k), 0, 100_000)
        short = full - forecast.expected(pilot(k, 1000 - k), 0, n)
        assert short <= 0.01 * 0.7 * np.sqrt(full * forecast.ceiling(100_000)) + 1e-12
        fewer = forecast.expected(pilot(k, 1000 - k), 0, int(n / 1.2))
        assert full - fewer > 0.01 * 0.7 * np.sqrt(full * forecast.ceiling(100_000))


@pytest.mark.parametrize("n", [1, 50, 128, 129])
def test_small_budgets_are_no_trouble(n: int) -> None:
    assert 1 <= Pilot(0.01).choose(RadiusForecast(radius_of), pilot(9, 1), 0, n, 128) <= n
