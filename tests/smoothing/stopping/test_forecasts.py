"""Forecasts: expected radii against the exact beta-binomial, pilots, checkpoints, and allocation of a total."""

import itertools
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import betabinom

from smoothcert.bounds.base import BOUNDS
from smoothcert.bounds.fixed import clopper_pearson_lower
from smoothcert.smoothing.stopping.forecasts import RadiusForecast, Share, allocate, checkpoints, sizes
from smoothcert.smoothing.stopping.rules import Pilot
from smoothcert.tally import Phase, Stream, Tally

ALPHA = 0.001


def radius_of(tally: Tally) -> float:
    lower = clopper_pearson_lower(tally.counts[0], tally.n, ALPHA)
    return float(ndtri(lower)) if lower > 0.5 else 0.0


def pilot(*counts: int) -> Tally:
    return Tally(Stream(0, 0, Phase.PILOT), 0, sum(counts), counts)


@pytest.mark.parametrize("k", [0, 500, 600, 900, 990, 1000])
@pytest.mark.parametrize("n", [100, 2000])
def test_the_mean_is_that_of_the_beta_binomial(k, n):
    exact = sum(
        betabinom.pmf(j, n, k + 0.5, 1000 - k + 0.5)
        * radius_of(Tally(Stream(0, 0, Phase.ESTIMATION), 0, n, (j, n - j)))
        for j in range(n + 1)
    )
    assert RadiusForecast(radius_of).expected(pilot(k, 1000 - k), 0, n) == pytest.approx(
        exact, rel=0.02, abs=0.005
    )  # 32 strata see little of a tail


def test_the_class_is_found_wherever_it_stands_and_all_votes_count_once():
    forecast = RadiusForecast(radius_of)
    assert forecast.expected(pilot(10, 90, 0), 1, 500) == forecast.expected(pilot(90, 10), 0, 500)
    seen: list[Tally] = []

    def record(tally: Tally) -> float:
        seen.append(tally)
        return 0.0

    forecast = RadiusForecast(record)
    for counts in ((5, 3, 2, 0), (10, 0), (0, 10), (3, 1, 1, 1, 1, 1, 1, 1)):
        forecast.expected(pilot(*counts), 0, 77)
    assert all(tally.n == 77 for tally in seen)
    assert all(max(tally.counts[2:], default=0) <= tally.counts[1] for tally in seen)


def test_a_pilot_spends_where_votes_pay():
    rule, forecast = Pilot(0.01), RadiusForecast(radius_of)
    chosen = {k: rule.choose(forecast, pilot(k, 1000 - k), 0, 100_000, 128) for k in (100, 900, 1000)}
    assert chosen[100] == 128, "nothing to be certified: the fewest votes there are"
    assert chosen[100] < chosen[900] < chosen[1000] <= 100_000
    loose = Pilot(0.05).choose(forecast, pilot(900, 100), 0, 100_000, 128)
    assert loose < chosen[900]
    for n in (1, 50, 128, 129):
        assert 1 <= rule.choose(forecast, pilot(9, 1), 0, n, 128) <= n


def test_the_loss_is_what_was_said():
    rule, forecast = Pilot(0.01), RadiusForecast(radius_of)
    for k in (700, 900, 990):
        n = rule.choose(forecast, pilot(k, 1000 - k), 0, 100_000, 128)
        full = forecast.expected(pilot(k, 1000 - k), 0, 100_000)
        short = full - forecast.expected(pilot(k, 1000 - k), 0, n)
        assert short <= 0.01 * 0.7 * np.sqrt(full * forecast.ceiling(100_000)) + 1e-12
        fewer = forecast.expected(pilot(k, 1000 - k), 0, int(n / 1.2))
        assert full - fewer > 0.01 * 0.7 * np.sqrt(full * forecast.ceiling(100_000))


def test_checkpoints_are_whole_blocks_up_to_the_budget():
    for n, block in itertools.product((1, 63, 64, 65, 1000, 100_000), (1, 64, 100, 128, 256)):
        checked = list(checkpoints(BOUNDS["mixture"], n, block))
        assert checked[-1] == n
        assert all(votes % block == 0 for votes in checked[:-1])
        assert all(a < b for a, b in pairwise(checked))
        assert len(checked) < 60
    # A scheduled bound has its own.
    scheduled = list(checkpoints(BOUNDS["looks"], 1000, 128))
    assert scheduled == [100, 133, 178, 237, 316, 422, 562, 750, 1000]
    assert sizes(100, 1000, 64, growth=1.5) == [128, 192, 320, 512, 768, 1000]
    assert sizes(100, 50, 64) == [50]


def gained(shares: list[Share], votes: dict[int, int]) -> float:
    return sum(dict(zip(s.sizes, s.radii, strict=True)).get(votes[s.index], 0.0) for s in shares)


def best(shares: list[Share], total: int) -> float:
    """By trying every combination."""
    choices = [[(0, 0.0), *zip(s.sizes, s.radii, strict=True)] for s in shares]
    sums = ((sum(n for n, _ in c), sum(r for _, r in c)) for c in itertools.product(*choices))
    return max(radius for n, radius in sums if n <= total)


@pytest.mark.parametrize("seed", range(5))
def test_no_combination_is_much_better(seed):
    rng = np.random.default_rng(seed)
    shares = [Share(i, (1, 2, 4, 8), tuple(np.sort(rng.random(4)).tolist())) for i in range(4)]
    largest_step = max(s.radii[-1] for s in shares)
    for total in (0, 1, 5, 12, 32):
        votes = allocate(shares, total)
        assert sum(votes.values()) <= total
        assert best(shares, total) - largest_step <= gained(shares, votes) <= best(shares, total) + 1e-12
    assert gained(shares, allocate(shares, 32)) == pytest.approx(best(shares, 32))


def test_where_votes_cost_the_same_it_is_optimal():
    shares = [Share(0, (10, 20), (1.0, 1.5)), Share(1, (10, 20), (0.8, 1.6)), Share(2, (10, 20), (0.1, 0.2))]
    assert allocate(shares, 40) == {0: 20, 1: 20, 2: 0}
    assert allocate(shares, 30) == {0: 10, 1: 20, 2: 0}
    late = Share(0, (10, 20, 30), (0.0, 0.0, 3.0))
    early = Share(1, (10, 20, 30), (0.5, 0.6, 0.7))
    assert allocate([late, early], 30) == {0: 30, 1: 0}
    assert allocate([Share(7, (10, 20), (0.0, 0.0))], 100) == {7: 0}
    assert allocate([], 100) == {}
