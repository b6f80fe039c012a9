"""“Voting may stop at any moment, for any reason, and the bounds still hold with probability 1−α.”

The worst reason is the most flattering one: stop as soon as the bounds are wrong. So what is counted, exactly where
the horizon allows and by simulation beyond, is the probability that they are wrong at *any* moment.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from smoothcert.bounds.anytime import look, mixture_lower, mixture_upper
from smoothcert.bounds.base import BOUNDS, ClassBounds
from smoothcert.bounds.fixed import clopper_pearson_lower, clopper_pearson_upper
from smoothcert.tally import Tally
from tests.guarantees.exact import Rule, TooOftenError, assert_rate_within, hard_tally

LowerBound = Callable[[int, int, float], float]
HORIZON = 250
PATHS = 4000
LOOKS = [look(k) for k in range(12)]  # 100 to 2371 votes


def mirrored(upper: LowerBound) -> LowerBound:
    """U bounds p from above exactly if 1 − U bounds 1 − p, the success rate of the other votes, from below."""
    return lambda successes, n, alpha: 1 - upper(n - successes, n, alpha)


BOUNDS_OF_ONE = {
    "mixture": mixture_lower,
    "mixture, mirrored": mirrored(mixture_upper),
    "Clopper–Pearson": clopper_pearson_lower,
    "Clopper–Pearson, mirrored": mirrored(clopper_pearson_upper),
}


@cache
def wrong_from(name: str, n: int, alpha: float, p: float) -> int:
    """The smallest count of n at which the bound is above p; n + 1 if there is none. Bounds grow with the count."""
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if BOUNDS_OF_ONE[name](middle, n, alpha) > p else (middle + 1, high)
    return low


def exact_rate_ever_wrong(name: str, alpha: float, p: float, horizon: int = HORIZON) -> float:
    """P[L_n > p at some n ≤ horizon], by passing on the probability of each count vote by vote."""
    alive, wrong = np.array([1.0]), 0.0
    for n in range(1, horizon + 1):
        after = np.zeros(n + 1)
        after[:-1] = alive * (1 - p)
        after[1:] += alive * p
        first = wrong_from(name, n, alpha, p)
        wrong += after[first:].sum()
        after[first:] = 0.0
        alive = after
    return float(wrong)


def hard_probabilities(name: str, alpha: float) -> Iterator[float]:
    """Round ones, and some just below values of the bound, where its miss rate jumps up."""
    yield from (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
    for successes, n in ((1, 1), (3, 3), (10, 10), (60, 60), (50, 60), (180, 200), (100, 240)):
        yield BOUNDS_OF_ONE[name](successes, n, alpha) * (1 - 1e-9)


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.001])
@pytest.mark.parametrize("name", ["mixture", "mixture, mirrored"])
def test_the_mixture_is_ever_wrong_with_probability_alpha_at_most(name, alpha):
    rates = [exact_rate_ever_wrong(name, alpha, p) for p in hard_probabilities(name, alpha)]
    assert max(rates) <= alpha
    assert max(rates) > alpha / 5  # not because it says nothing


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.001])
@pytest.mark.parametrize("name", ["Clopper–Pearson", "Clopper–Pearson, mirrored"])
def test_a_fixed_n_bound_that_is_watched_is_noticed(name, alpha):
    rates = [exact_rate_ever_wrong(name, alpha, p) for p in (0.1, 0.5, 0.9)]
    assert min(rates) > min(2 * alpha, 0.5)
    if alpha == 0.05:
        assert rates[1] == pytest.approx(0.26, abs=0.005)  # as docs/guarantees.md has it


def test_the_mixture_is_a_bet_that_gains_nothing_on_average():
    # Vote by vote the mixture bets (A + ½)/(n + 1) on the class. The product of these is B(A+½, n−A+½)/π whatever
    # the order of the votes, and a bet that adds up to 1 over both outcomes gains nothing, whatever p is.
    for n in range(1, 12):
        for successes in range(n + 1):
            bets = Fraction(1)
            for k in range(successes):
                bets *= (k + Fraction(1, 2)) / (k + 1)
            for k in range(n - successes):
                bets *= (k + Fraction(1, 2)) / (successes + k + 1)
            alpha = 0.1
            for p in (mixture_lower(successes, n, alpha), mixture_upper(successes, n, alpha)):
                if 0 < p < 1:
                    ratio = float(bets) / (p**successes * (1 - p) ** (n - successes))
                    assert ratio == pytest.approx(1 / alpha, rel=1e-9)


def exact_rate_wrong_at_a_look(rule: Rule, alpha: float, p: float) -> float:
    """P[L > p or U < 1 − p at a look], two classes: the counts between looks are binomial."""
    alive, wrong, before = np.array([1.0]), 0.0, 0
    for n in LOOKS:
        alive = np.convolve(alive, stats.binom.pmf(np.arange(n - before + 1), n - before, p))
        bad = np.zeros(n + 1, bool)
        for k in np.flatnonzero(alive > 1e-12).tolist():
            bounds = rule(hard_tally((k, n - k)), 0, alpha)
            bad[k] = bounds.lower > p or bounds.upper < 1 - p
        wrong += alive[bad].sum()
        alive[bad] = 0.0
        before = n
    return float(wrong)


@pytest.mark.parametrize("name", ["looks", "looks-top-two", "looks-two-class"])
@pytest.mark.parametrize("p", [0.02, 0.5, 0.9, 0.99])
def test_looks_are_ever_wrong_with_probability_alpha_at_most(name, p):
    # The share of these twelve looks is F(12) = 144/720 = .2, so of α = .2 they may use up .04.
    assert exact_rate_wrong_at_a_look(BOUNDS[name], 0.2, p) <= 0.2 * 144 / 720
    assert exact_rate_wrong_at_a_look(BOUNDS["clopper-pearson"], 0.04, p) > 0.08


def trinomial_rate_ever_wrong(
    rule: Rule, alpha: float, rates: Sequence[tuple[float, float, float]]
) -> list[float]:
    """P[the bounds are wrong at some n ≤ 70] exactly, for class 0 of three, at each of several probabilities."""
    alive = [np.ones((1, 1)) for _ in rates]
    wrong = [0.0 for _ in rates]
    for n in range(1, 71):
        lower, upper = np.zeros((n + 1, n + 1)), np.ones((n + 1, n + 1))
        for a in range(n + 1):
            # The rivals' order makes no difference: each pair is computed once.
            for b in range((n - a) // 2 + 1):
                bounds = rule(hard_tally((a, b, n - a - b)), 0, alpha)
                for rival in (b, n - a - b):
                    lower[a, rival], upper[a, rival] = bounds.lower, bounds.upper
        for j, (p, q, r) in enumerate(rates):
            after = np.zeros((n + 1, n + 1))
            after[1:, :-1] += alive[j] * p
            after[:-1, 1:] += alive[j] * q
            after[:-1, :-1] += alive[j] * r
            bad = (lower > p) | (upper < max(q, r))
            wrong[j] += float(after[bad].sum())
            after[bad] = 0.0
            alive[j] = after
    return wrong


TIES = [(0.4, 0.3, 0.3), (0.34, 0.33, 0.33), (0.02, 0.49, 0.49), (0.9, 0.05, 0.05), (0.5, 0.5, 0.0)]


@pytest.mark.parametrize("name", ["mixture", "mixture-top-two", "mixture-two-class"])
def test_with_rivals_that_tie_the_bounds_hold_together_at_all_times(name):
    rates = trinomial_rate_ever_wrong(BOUNDS[name], 0.2, TIES)
    assert max(rates) <= 0.2
    assert max(rates) > 0.02


def test_the_exact_check_notices_two_class_watched_and_a_rival_chosen_by_hand():
    def smallest_rival(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
        return ClassBounds(0.0, mixture_upper(min(tally.counts[1:]), tally.n, alpha / 2))

    assert max(trinomial_rate_ever_wrong(BOUNDS["two-class"], 0.2, TIES)) > 0.3
    assert max(trinomial_rate_ever_wrong(smallest_rival, 0.2, TIES)) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("p", TIES[:4])
def test_looks_at_rivals_that_tie(p):
    alpha, rng = 0.5, np.random.default_rng(9)
    steps = [n - before for before, n in zip([0, *LOOKS], LOOKS)]
    counts = np.cumsum([rng.multinomial(step, p, size=PATHS) for step in steps], axis=0)

    def ever_wrong(rule: Rule) -> int:
        wrong = np.zeros(PATHS, bool)
        for at_look in counts:
            states, where = np.unique(at_look, axis=0, return_inverse=True)
            found = [rule(hard_tally(state), 0, alpha) for state in states.tolist()]
            bad = np.array([bounds.lower > p[0] or bounds.upper < max(p[1:]) for bounds in found])
            wrong |= bad[where.ravel()]
        return int(wrong.sum())

    assert_rate_within(ever_wrong(BOUNDS["looks-top-two"]), PATHS, alpha * 144 / 720)
    assert_rate_within(ever_wrong(BOUNDS["looks-two-class"]), PATHS, alpha * 144 / 720)
    with pytest.raises(TooOftenError):
        assert_rate_within(
            ever_wrong(lambda t, c, a: BOUNDS["two-class"](t, c, a * 144 / 720)), PATHS, alpha * 144 / 720
        )
