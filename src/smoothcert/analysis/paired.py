"""Tests and intervals for paired results: two classifiers, the same independent inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import clopper_pearson_lower, clopper_pearson_upper, top_two_p_value
from smoothcert.errors import InvalidValueError, check_count, check_probability
from smoothcert.rounding import down, up

_DISAGREEMENT_SHARE = 0.1  # of the failures allowed to an interval: how often runs differ at all
_MOST_GENERATORS = 22  # four million patterns
_TIE = 1e-9  # sums in another order differ in their last bits; a tie must count against the difference


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
        raise InvalidValueError(
            f"counts must not be negative nor exceed {total} together, got {only_first} and {only_second}"
        )
    failures = 1.0 - confidence
    tail = down(failures * _DISAGREEMENT_SHARE / 2)
    rarely, often = (
        clopper_pearson_lower(differing, total, tail),
        clopper_pearson_upper(differing, total, tail),
    )
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
