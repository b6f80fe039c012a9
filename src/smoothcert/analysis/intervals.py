"""How far a test set's figures can be trusted: intervals and paired tests over inputs of the same distribution.

All take inputs to be drawn independently of one another and of the model, and hold for one figure chosen in advance,
not for the best of several; ``among`` pays for looking at several. All are proved for every number of inputs: none
is an approximation for large ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from smoothcert.analysis import evidence
from smoothcert.analysis.facts import spreads_a_total
from smoothcert.bounds.fixed import clopper_pearson_lower, clopper_pearson_upper, top_two_p_value
from smoothcert.errors import InvalidValueError, RunError, check_count, check_not_negative, check_probability
from smoothcert.plain_text import norm_name, only_numbers
from smoothcert.rounding import down, up
from smoothcert.runs.run import Run

_DISAGREEMENT_SHARE = 0.1  # of the failures allowed to an interval: how often runs differ at all
_MOST_GENERATORS = 22  # four million patterns
_TIE = 1e-9  # sums in another order differ in their last bits; a tie must count against the difference
_STAKE_STEP = math.sqrt(2)
_HALVINGS = 45  # of the range: far finer than any radius is known
_LOG_ERROR = 1e-6  # more than the rounding error of a sum of logarithms; costs nothing that shows


@lru_cache(maxsize=200_000)  # many runs share their counts
def rate_interval(successes: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper–Pearson: with probability at least ``confidence`` over the inputs, the true rate lies inside."""
    _check_share(successes, total)
    tail = _tail(confidence)
    return clopper_pearson_lower(successes, total, tail), clopper_pearson_upper(successes, total, tail)


def population_lower_bound(certified: int, total: int, alpha: float, rho: float) -> float:
    """The share of inputs *from this distribution* that are truly right and robust at a radius, from below.

    Promise: let ``total`` inputs be drawn independently, each certified from its own votes at level ``alpha``, and
    ``certified`` of them be right with at least that radius. With probability at least 1−``rho`` over inputs and
    votes, the smoothed classifier is right throughout the ball for at least the returned share of the
    distribution. An input counts though it isn't robust with probability at most α, so the true share is at
    least the expected count minus α; Clopper–Pearson bounds the expected count at level ρ.
    """
    _check_share(certified, total)
    alpha, rho = check_probability("alpha", alpha), check_probability("rho", rho)
    return max(0.0, down(clopper_pearson_lower(certified, total, rho) - alpha, 0.0))


def mean_lower_bound(values: Sequence[float] | NDArray[np.float64], ceiling: float, rho: float) -> float:
    """L with P[L ≤ mean] ≥ 1−``rho`` for independent values that are known to lie in [0, ``ceiling``].

    A betting bound. With X = value/ceiling, suppose its mean were m. A player who stakes a share s of their wealth on
    each value owns Π(1 − s + s·X/m) at the end, which has expectation 1 (at most 1 for values of unequal distributions
    whose means average to m); so has the mean over several s, and it exceeds 1/ρ with probability at most ρ
    (Markov). L is the largest m that is refuted. Stakes depend on the number of values and ρ alone, and the order of
    the values plays no part. For a hundred values or more whose standard deviation is below a third of the range it is
    closer to the mean than Hoeffding's bound; for fewer, or values at both ends of the range, it can be up to a third
    further away.
    """
    rho, ceiling = check_probability("rho", rho), float(ceiling)
    x = _checked_values(values, 0.0, ceiling)
    distinct, times = np.unique(x / ceiling, return_counts=True)
    distinct = np.minimum(distinct, 1.0)
    stakes = _stakes(x.size, rho)[:, None]
    needed = -math.log(rho) + math.log(stakes.size) + _LOG_ERROR

    def refuted(m: float) -> bool:
        with np.errstate(divide="ignore"):  # a stake of everything on a value of 0 leaves nothing
            growth = np.log1p(stakes * (distinct / m - 1.0))
        return bool(logsumexp(growth @ times) >= needed)

    # Wealth falls as m grows, and at the sample mean it is at most 1: what is sought lies below.
    low, high = 0.0, min(1.0, float(distinct @ times) / x.size)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle <= 0.0:
            break
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return max(0.0, down(low * ceiling))


def mean_interval(
    values: Sequence[float] | NDArray[np.float64], low: float, high: float, confidence: float = 0.95
) -> tuple[float, float]:
    """The mean of independent values known to lie in [low, high]: inside with probability at least ``confidence``.

    :func:`mean_lower_bound` from both ends, half the failures each.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidValueError(f"values need a finite range with low < high, got [{low}, {high}]")
    low, high = float(low), float(high)
    x = _checked_values(values, low, high)
    width, tail = up(high - low), _tail(confidence)
    slack = 1e-14 * max(abs(low), abs(high))  # what is lost where the ends and the bounds cancel
    return (
        max(low, low + mean_lower_bound(np.maximum(x - low, 0.0), width, tail) - slack),
        min(high, high - mean_lower_bound(np.maximum(high - x, 0.0), width, tail) + slack),
    )


def acr_interval(run: Run, confidence: float = 0.95, ceiling: float | None = None) -> tuple[float, float]:
    """The average certified radius that this certification would have over the whole distribution of inputs.

    Promise: inside with probability at least ``confidence`` over inputs and votes. It is about what is *certified*;
    :func:`robust_radius_lower_bound` is about what is true. Radii lie in [0, ceiling], where the ceiling follows from
    the plan or, for logs that state none, is given. Half a unit of the last digit that a log prints is allowed for.
    """
    if spreads_a_total(run.manifest.plan):
        raise RunError.of(
            run.path,
            "spread one total of votes over its inputs, so that each one's radius depends on the others",
            ": no interval allows for that. Certify with --stop pilot:1% for one",
        )
    least, most, ceiling = _counted_radii(run, ceiling)
    return mean_interval(least, 0.0, ceiling, confidence)[0], mean_interval(most, 0.0, ceiling, confidence)[1]


def robust_radius_lower_bound(run: Run, rho: float, ceiling: float | None = None) -> float:
    """The mean radius up to which the smoothed classifier is truly right, over the distribution, from below.

    Promise: it holds with probability at least 1−``rho`` over inputs and votes. A certificate is false with
    probability at most α and then claims at most the ceiling, so α·ceiling is subtracted. Radii are around the inputs
    themselves: where those lie off the grid of the noise, less than is certified around their grid points.
    """
    ceiling = _counted_radii(run, ceiling)[2]
    counted = np.where(run.records.correct, evidence.radii_of_inputs(run), 0.0)
    return max(0.0, down(mean_lower_bound(counted, ceiling, rho) - up(_alpha(run) * ceiling)))


def statement(run: Run, radius: float, confidence: float = 0.99, among: int = 1) -> str:
    """What the run proves about *other* inputs from the same distribution at one radius, in a sentence.

    Promise: the sentence is false with probability at most 1−``confidence`` over inputs and votes, false certificates
    included (:func:`population_lower_bound`). Make ``among`` the number of radii or runs whose statements are read:
    then all of them hold together with that probability. Percentages are rounded down, of a log's radii half a unit of
    the last digit is subtracted, and of radii around grid points what inputs off the grid cost
    (:func:`~smoothcert.analysis.evidence.lost_to_rounding`). Refused unless the run is complete.
    """
    radius = check_not_negative("radius", radius)
    confidence = check_probability("confidence", confidence)
    check_count("among", among)
    _check_can_speak(run)
    rho = down((1.0 - confidence) / among)
    share = population_lower_bound(evidence.certain_count(run, radius), len(run.records), _alpha(run), rho)
    norm = norm_name(run.norm)
    frozen = " by the classifier frozen at their own σ" if run.manifest.subject == "frozen sigma" else ""
    together = f" (together with {among - 1} more such statements)" if among > 1 else ""
    return (
        f"at least {percent_down(share)} % of inputs from this distribution are classified correctly{frozen} "
        f"everywhere within {norm} radius {all_digits(radius)}{only_numbers(run.norm) or ','} with "
        f"probability {all_digits(confidence)}{together}"
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided McNemar test: the p-value of equal certified accuracies.

    Promise: if over the distribution both runs are equally likely to certify an input alone, the p-value is at most
    any level with at most that probability: given their number, inputs on which the runs differ are then fair coins.
    """
    return top_two_p_value(only_first, only_second)


def difference_interval(
    only_first: int, only_second: int, total: int, confidence: float = 0.95
) -> tuple[float, float]:
    """The difference of two paired proportions, second − first, from the inputs that one run alone certifies.

    Promise: with probability at least ``confidence`` the true difference lies inside, for any number of inputs. It is
    ψ(2π − 1), with ψ how often the runs differ and π how often the second is then the better. Given the number of
    differing inputs the count is binomial in π: both get a Clopper–Pearson interval, nine tenths of the failures
    go to π and one tenth to ψ, and every difference that some pair of values inside gives is inside. The sign is
    decided as by :func:`mcnemar` at nine tenths of the level.
    """
    confidence = check_probability("confidence", confidence)
    check_count("total", total)
    differing = only_first + only_second
    if min(only_first, only_second) < 0 or differing > total:
        raise InvalidValueError(f"counts must be 0 to {total} together, got {only_first} and {only_second}")
    failures = 1.0 - confidence
    tail = down(failures * _DISAGREEMENT_SHARE / 2)
    rarely = clopper_pearson_lower(differing, total, tail)
    often = clopper_pearson_upper(differing, total, tail)
    least, most = 0.0, 1.0
    if differing:
        tail = down(failures * (1.0 - _DISAGREEMENT_SHARE) / 2)
        least = clopper_pearson_lower(only_second, differing, tail)
        most = clopper_pearson_upper(only_second, differing, tail)
    low, high = 2.0 * least - 1.0, 2.0 * most - 1.0
    return (
        max(-1.0, down(low * (often if low < 0 else rarely))),
        min(1.0, up(high * (rarely if high < 0 else often))),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: rejecting what is at most a level is wrong *anywhere* with at most that probability.

    It holds whatever the dependence between the tests, and radii of one run depend on one another strongly.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def sign_flip_p_value(differences: Sequence[float] | NDArray[np.float64], generators: int = 16) -> float:
    """Paired sign-flip test of a mean difference, two-sided: the share of sign patterns at least as extreme.

    Promise: if for each input both runs are interchangeable (swapping their radii changes no probability), the p-value
    is at most any level with at most that probability. Up to ``generators`` inputs that differ, all patterns are
    enumerated; of more, the 2^``generators`` products of as many fixed patterns. Those are a group: flipping the data
    by one of them only reorders the patterns, so the rank of the data as they are is uniform but for ties, exactly and
    for every choice of generators; patterns that are drawn once and kept, which are no group, lack this. Flips rather
    than Wilcoxon's ranks, because the ACR is a mean and ranks test another thing: a run can win most inputs by a
    little and lose the ACR. For runs of equal ACR that are *not* interchangeable the test is right only for many
    inputs; the interval is proved without that assumption.
    """
    check_count("generators", generators)
    if generators > _MOST_GENERATORS:
        raise InvalidValueError(f"generators must be at most {_MOST_GENERATORS}, got {generators}")
    d = np.asarray(differences, dtype=np.float64)
    d = d[d != 0]
    if d.size == 0:
        return 1.0
    threshold = abs(float(d.sum())) - _TIE * float(np.abs(d).sum())
    sums = _flipped_sums(d, min(generators, d.size))
    return float((np.abs(sums) >= threshold).mean())


def _flipped_sums(d: NDArray[np.float64], generators: int) -> NDArray[np.float64]:
    """The sum of ``d`` under each of 2^``generators`` sign patterns that form a group; the first flips nothing.

    Bit g of an input's code says whether generator g flips it. Pattern c flips inputs whose code has an odd number of
    bits in common with c, so the sums of all patterns are the Walsh–Hadamard transform of ``d`` added up by code.
    """
    size = 1 << generators
    # The same whatever the differences are; 0, which no pattern flips, is left out.
    every = d.size <= generators
    codes = 1 << np.arange(d.size) if every else np.random.default_rng(0).integers(1, size, d.size)
    sums = np.bincount(codes, weights=d, minlength=size)
    for g in range(generators):
        pairs = sums.reshape(-1, 2, 1 << g)
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
    return np.asarray(sums, dtype=np.float64)


def percent_down(share: float | Fraction, digits: int = 1) -> str:
    """A share as a percentage, never rounded up (negative shares go further from zero).

    Of a float that is its exact value, which for 0.58 lies below 58 %; counts and stated decimals are fractions.
    """
    return _percent(*share.as_integer_ratio(), digits)


def percent_up(share: float | Fraction, digits: int = 1) -> str:
    """A share as a percentage, never rounded down."""
    numerator, denominator = share.as_integer_ratio()
    shown = _percent(-numerator, denominator, digits)
    if shown.startswith("-"):
        return shown.removeprefix("-")
    return f"-{shown}" if float(shown) else shown


def all_digits(value: float) -> str:
    """All digits there are: a rounded radius or probability would be another claim."""
    return repr(float(value)).removesuffix(".0")


def _percent(numerator: int, denominator: int, digits: int) -> str:
    scaled = numerator * 10 ** (digits + 2) // denominator  # whole numbers: a binary product could cross one
    whole, rest = divmod(abs(scaled), 10**digits)
    return f"{'-' if scaled < 0 else ''}{whole}" + (f".{rest:0{digits}d}" if digits else "")


def _stakes(size: int, rho: float) -> NDArray[np.float64]:
    """Shares of the wealth to stake: the best one is √(2 ln(1/ρ) / size) times mean/sd, which isn't known."""
    least = min(1.0, math.sqrt(-2.0 * math.log(rho) / size) / 8)
    steps = math.ceil(-math.log(least) / math.log(_STAKE_STEP))
    return np.array([min(1.0, least * _STAKE_STEP**k) for k in range(steps + 1)])


def _counted_radii(run: Run, ceiling: float | None) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """What each input adds to the mean radius, at least and at most, and the largest that it could."""
    _check_can_speak(run)
    if ceiling is None:
        several = run.manifest.plan.sigma_levels is None and len(np.unique(run.records.sigma)) > 1
        fault = "doesn't state its noise, bound, n and alpha, so the range of its radii is unknown"
        if run.manifest.subject == "frozen sigma" or several:
            fault = "certifies inputs with σ of their own, so no ceiling follows from its plan"
        elif (known := evidence.radius_ceiling(run)) is not None:
            ceiling = evidence.at_most(known)
        if ceiling is None:
            remedy = "; give ceiling=, the largest radius it could have certified"
            raise RunError.of(run.path, fault, remedy)
    correct = run.records.correct
    least = evidence.certain_radii(run)
    # What a log prints above the ceiling was rounded up; what is certainly above it contradicts the ceiling.
    most = np.maximum(least, np.minimum(evidence.possible_radii(run), ceiling))
    return np.where(correct, least, 0.0), np.where(correct, most, 0.0), ceiling


def _check_can_speak(run: Run) -> None:
    evidence.check_complete(run)
    evidence.check_unseen(run)
    if run.stateful:
        raise RunError.of(
            run.path,
            "comes out of a region memory, whose answers depend on one another and on their order",
            ": nothing follows from them for other inputs. Look at the run it was made from",
        )
    evidence.check_plan_allows(run)


def _alpha(run: Run) -> float:
    alpha = run.manifest.plan.alpha
    if alpha is None:
        raise RunError(
            f"{run.path} doesn't state alpha, so false certificates can't be allowed for; import the log again with "
            "the --alpha it was made with"
        )
    return float(alpha)


def _tail(confidence: float) -> float:
    return down((1.0 - check_probability("confidence", confidence)) / 2)


def _checked_values(
    values: Sequence[float] | NDArray[np.float64], low: float, high: float
) -> NDArray[np.float64]:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise InvalidValueError(f"a mean needs a list of at least one value, got shape {x.shape}")
    if not (math.isfinite(high) and high > low):
        raise InvalidValueError(f"the ceiling must be finite and above {low:g}, got {high}")
    outside = x[~((x >= low) & (x <= high))]
    if outside.size:
        raise InvalidValueError(
            f"value {outside[0]:g} lies outside the range [{low:g}, {high:g}] it was said to have; give the range "
            "that was certain in advance"
        )
    return x


def _check_share(part: int, total: int) -> None:
    check_count("total", total)
    if not 0 <= part <= total:
        raise InvalidValueError(f"a count must lie between 0 and {total}, got {part}")
