"""Anytime-valid bounds of hard votes: sampling may stop at any moment and for any reason, and they still hold.

Each is a pure function of the tally since the stream's first vote. Proofs: docs/guarantees.md, "Anytime-valid bounds".

* ``mixture``: for the true p, the ratio of a mixture of likelihoods (Krichevsky & Trofimov's, the weights of q being
  Beta(½, ½)) to the likelihood of p is a martingale that starts at 1; it ever reaches 1/α with probability at most α
  (Ville 1939; Robbins 1970). Every p at which it has reached 1/α is refuted.
* ``looks``: Clopper–Pearson at numbers of votes fixed in advance, each with its share of α.
"""

from __future__ import annotations

import math
import sys
from functools import cache, partial

from smoothcert.bounds.base import ClassBounds, Compute, complement_up, one_sided, register
from smoothcert.bounds.fixed import RIVAL_PART, check_binomial, clopper_pearson, top_two, two_class
from smoothcert.rounding import down, up
from smoothcert.tally import Tally

_HURDLE_ERROR = 2e-12  # absolute; sums of terms up to 745, each good to an ulp or two (1e-13)
_SURPLUS_ERROR = 4e-15  # relative to the larger of two terms that cancel: 36 roundings, where 8 take place
_SERIES_FROM = 32  # from here on three terms of Stirling's series are good to 2e-14
_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_MOST_STEPS = 100
_EVIDENCE_ERROR = 1e-6  # relative; logarithms up to 1e9, each good to an ulp or two
_MIXED_VARIANCE = 0.01  # of λ: sharpest where a few hundred votes decide
_MOST_EXPONENT, _SMALLEST = 700.0, 1e-300
_INVERSE_TAIL_ERROR = 1e-6  # relative, of the tail at scipy's inverse beta; 3e-7 was seen at a billion votes


def mixture_lower(successes: int, n: int, alpha: float) -> float:
    """L with P[L_n ≤ p at every n ≥ 1] ≥ 1−α for the running count of successes: rounded down."""
    successes, n, alpha = check_binomial(successes, n, alpha)
    return _lower(successes, n, -math.log(alpha))


def mixture_upper(successes: int, n: int, alpha: float) -> float:
    """U with P[U_n ≥ p at every n ≥ 1] ≥ 1−α for the running count of successes: rounded up."""
    successes, n, alpha = check_binomial(successes, n, alpha)
    return _upper(successes, n, -math.log(alpha))


def anytime_top_two_p_value(first: int, second: int, classes: int) -> float:
    """Of the class ahead against the second, at any number of votes: rounded up.

    Let b have the largest probability. Of the votes for c or b, c has at most half in expectation, so the mixture of
    likelihood ratios ∫ (2q)^a (2(1−q))^b dq over q in (½, 1), weighted by 2, is a supermartingale from 1 on, for each
    of the (classes − 1) others; it ever reaches (classes − 1)/α with probability at most α/(classes − 1) (Ville).
    """
    if first <= second:
        return 1.0
    from scipy.special import betainc, betaln

    a, b = int(first) + 1, int(second) + 1
    log = (a + b - 1) * math.log(2) + float(betaln(a, b)) + math.log(float(betainc(b, a, 0.5)))
    return (
        min(1.0, up((classes - 1) * math.exp(-log), _EVIDENCE_ERROR)) if log < _MOST_EXPONENT else _SMALLEST
    )


def anytime_mean_p_value(ahead: float, n: int, classes: int) -> float:
    """The same of mean probabilities: ``ahead`` is the sum of n differences in [−1, 1] between the two that lead.

    exp(λS − nλ²/2) is a supermartingale for λ ≥ 0 where differences have a mean of at most 0 (Hoeffding); λ is mixed
    over the positive half of a normal distribution.
    """
    if ahead <= 0:
        return 1.0
    from scipy.special import ndtr

    variance = 1 / (1 / _MIXED_VARIANCE + n)
    log = 0.5 * math.log(variance / _MIXED_VARIANCE) + ahead * ahead * variance / 2
    log += math.log(2 * float(ndtr(ahead * math.sqrt(variance))))
    return (
        min(1.0, up((classes - 1) * math.exp(-log), _EVIDENCE_ERROR)) if log < _MOST_EXPONENT else _SMALLEST
    )


@register("mixture", "hard", "Krichevsky–Trofimov mixture, Ville's inequality: p_A at α, p_B ≤ 1 − p_A", True)
def mixture(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """Lower bound of p_A that holds at all n at once; all that isn't the chosen class counts as one rival."""
    return one_sided(_lower(tally.counts[chosen], tally.n, -math.log(alpha)))


def _shared(part: int, tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """Bounds of p_A and of its strongest rival, at α/part, that hold together at all n at once.

    The class of largest true p_b is fixed, so its own sequence is enough: at every n the largest rival count is at
    least b's, and the upper bound grows with the count.
    """
    # Logarithms, because a part of a subnormal α may be no number above 0.
    log_inverse = -math.log(alpha)
    lower = _lower(tally.counts[chosen], tally.n, log_inverse + math.log(part / (part - 1)))
    rival = max((count for c, count in enumerate(tally.counts) if c != chosen), default=0)
    upper = _upper(rival, tally.n, log_inverse + math.log(part))
    return ClassBounds(lower, min(upper, complement_up(lower)))


_SHARED = "Krichevsky–Trofimov mixtures of p_A at 31α/32 and of the largest rival at α/32"
_HALVED = "as mixture-top-two with α/2 each: the default until November 2026"
register("mixture-top-two", "hard", _SHARED, True)(partial(_shared, RIVAL_PART))
register("mixture-two-class", "hard", _HALVED, True, superseded=True)(partial(_shared, 2))


def _lower(successes: int, n: int, log_inverse: float) -> float:
    """p̂e^{−y}, rounded down."""
    if successes == 0:
        return 0.0
    y = _refuted_shrinkage(successes, n - successes, log_inverse)
    lower = successes / n * math.exp(-y)
    if lower < 0.5:
        return max(0.0, down(lower))
    # Near one the distance to one is what matters (Φ⁻¹ is steep there), so that is what gets computed.
    return down(1.0 - up((n - successes - successes * math.expm1(-y)) / n), 0.0)


def _upper(successes: int, n: int, log_inverse: float) -> float:
    """One minus the lower bound of the other votes, rounded up."""
    if successes == n:
        return 1.0
    failures = n - successes
    y = _refuted_shrinkage(failures, successes, log_inverse)
    return min(1.0, up((successes - failures * math.expm1(-y)) / n))


def _refuted_shrinkage(a: int, b: int, log_inverse: float) -> float:
    """The smallest y ≥ 0, rounded up, at which p = p̂e^{−y} is refuted by a ≥ 1 votes for and b against.

    With n = a + b and t = a(1 − e^{−y}), the martingale's logarithm is ay − b·ln(1 + t/b) minus what the mixture
    loses to p̂. It is convex and increasing in y, so Newton's steps come down to the root from above.
    """
    hurdle = log_inverse + _loss(a, b) + _HURDLE_ERROR
    if b == 0:
        return up(hurdle / a)
    n = a + b
    y = math.sqrt(2 * hurdle * b / a / n)  # the root if the logarithm were a parabola
    for _ in range(_MOST_STEPS):
        t = -a * math.expm1(-y)
        surplus = a * y - b * math.log1p(t / b) - hurdle
        error = _SURPLUS_ERROR * a * y
        if error <= surplus <= 3 * error:
            return y
        y -= (surplus - 2 * error) * (b + t) / (n * t)
    return math.inf  # refutes nothing but p = 0; no count is known that gets here


def _loss(a: int, b: int) -> float:
    """ln(p̂ᵃ(1−p̂)ᵇ) − ln(B(a+½, b+½)/π): how far the mixture is behind the best p, to 1e-12 absolute.

    Some ½ ln n: the large terms of both logarithms are cancelled by hand.
    """
    n = a + b
    return 0.5 * math.log(math.pi / 2 * n) + _whole_rest(n) - _half_rest(a) - _half_rest(b)


def _whole_rest(k: int) -> float:
    """ln k! − (k ln k − k + ½ ln 2πk)."""
    if k < _SERIES_FROM:
        return math.lgamma(k + 1) - k * math.log(k) + k - 0.5 * math.log(k) - _HALF_LOG_TAU
    square = 1 / (k * k)
    return (1 / 12 - square * (1 / 360 - square / 1260)) / k


def _half_rest(k: int) -> float:
    """ln Γ(k + ½) − (k ln k − k + ½ ln 2π)."""
    if k == 0:
        return -0.5 * math.log(2)
    if k < _SERIES_FROM:
        return math.lgamma(k + 0.5) - k * math.log(k) + k - _HALF_LOG_TAU
    square = 1 / (k * k)
    return -(1 / 24 - square * (7 / 2880 - square * (31 / 40320))) / k


@cache
def look(k: int) -> int:
    """The k-th look: 100·10^{k/8} to the nearest whole number, in whole-number arithmetic (k = 8: 1000)."""
    doubled = 2**8 * 10 ** (16 + k)  # the eighth power of 2·100·10^{k/8}
    return (math.isqrt(math.isqrt(math.isqrt(doubled))) + 1) // 2


def look_share(k: int) -> float:
    """The k-th look's share of α, rounded down: F(k+1) − F(k) with F(k) = k²/(k² + 24²).

    F rises from 0 to 1, so all shares add up to 1 and those before look k to F(k): half of α is for looks below
    100 000 votes (k = 24), the other half for those from there on, however far. The share is .02 to .03 from 750 to
    100 000 votes, where certificates are usually decided, .0017 at the first look, which can show little, and .014
    at a million. A factor of two in a share matters little: it is ln 2 beside ln(1/α) in the number of votes needed.
    """
    return down(576 * (2 * k + 1) / ((k * k + 576) * ((k + 1) ** 2 + 576)))


def next_look(n: int) -> int:
    """The first look after n votes."""
    return look(_looks_until(n))


def _looks_until(n: int) -> int:
    """How many looks there are at up to n votes."""
    k = max(0, math.floor(8 * math.log10(max(n, 1) / 100)) - 1)  # at most the answer, whatever log10 rounds
    while look(k) <= n:
        k += 1
    return k


def _at_look(fixed: Compute, tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """The fixed-n bounds at this look's share of α; called by the Bound, which refuses any other n."""
    share = down(alpha * look_share(_looks_until(tally.n) - 1), _INVERSE_TAIL_ERROR)
    if share < sys.float_info.min:  # subnormal, or 0
        return ClassBounds(0.0, 1.0)
    return fixed(tally, chosen, share)


for _name, _exact, _of in (
    ("looks", clopper_pearson, "Clopper–Pearson"),
    ("looks-top-two", top_two, "top-two"),
    ("looks-two-class", two_class, "two-class"),
):
    _source = f"{_of} at n = 100·10^{{k/8}}, α divided over the interim analyses"
    _old = _exact is two_class
    register(_name, "hard", _source, True, next_look=next_look, superseded=_old)(partial(_at_look, _exact))
