"""“The class holds if at most d categories change and the numbers move by less than ρ(d)”, by enumeration.

The problems are small enough for sums over all masks, all categories and closed forms of the numbers: probabilities
are exact, and so is every neighbour's class.
"""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import norm

from smoothcert.bounds.base import ClassBounds
from smoothcert.bounds.fixed import top_two
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.columns import Columns
from smoothcert.perturb.hybrid import Masks, MaskTheorem, mask_probability
from smoothcert.regions.changes import TableScales
from smoothcert.rounding import down, up
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import decide
from smoothcert.tally import ABSTAIN, Phase, Stream, Tally
from smoothcert_verify.bounds import bounds_of
from smoothcert_verify.masks import Masks as VerifiedMasks
from smoothcert_verify.votes import Votes
from tests.guarantees.exact import hard_tally

MASKED = -1
PROBLEMS = 220
ONE_NUMBER = TableScales(("number", *(f"category {i}" for i in range(9))), tuple(range(1, 10)), (1.0,))
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A base classifier of one number (σ = 1) and a few categories: for each masked row, classes between thresholds.

    ``pieces`` has, for each row of categories or masks, thresholds and one class more than those.
    """

    beta: float
    values: int
    columns: int
    classes: int
    pieces: dict[tuple[int, ...], tuple[Floats, tuple[int, ...]]]

    def probabilities(self, row: tuple[int, ...], numbers: Floats) -> Floats:
        """Of each class, at these categories and each of these numbers: a sum over all masks."""
        found = np.zeros((len(numbers), self.classes))
        for shown in itertools.product([True, False], repeat=self.columns):
            weight = math.prod(1 - self.beta if one else self.beta for one in shown)
            seen = tuple(value if one else MASKED for value, one in zip(row, shown))
            thresholds, classes = self.pieces[seen]
            below = norm.cdf(thresholds[None, :] - numbers[:, None])
            edges = np.hstack([np.zeros((len(numbers), 1)), below, np.ones((len(numbers), 1))])
            for place, label in enumerate(classes):
                found[:, label] += weight * (edges[:, place + 1] - edges[:, place])
        return found


def random_problem(rng: np.random.Generator) -> Problem:
    """Any thresholds and classes; class 0 likelier, so that there is something to certify."""
    beta, columns, values = (
        mask_probability(rng.uniform(0.75, 0.97)),
        int(rng.integers(1, 4)),
        int(rng.integers(2, 4)),
    )
    classes = int(rng.integers(2, 4))
    pieces = {}
    for seen in itertools.product([MASKED, *range(values)], repeat=columns):
        thresholds = np.sort(rng.normal(0, 2.5, size=int(rng.integers(0, 3))))
        weights = np.array([8.0, *[1.0] * (classes - 1)])
        drawn = rng.choice(classes, len(thresholds) + 1, p=weights / weights.sum())
        pieces[seen] = (thresholds, tuple(drawn.tolist()))
    return Problem(beta, values, columns, classes, pieces)


def adversarial_problem(rng: np.random.Generator) -> Problem:
    """The worst case for so many changes: the rows that show an old value are all class 0, those with a new one 1.

    Rows whose changed values are masked are told apart by a threshold. Three classes: a part of the old rows goes to 2.
    """
    beta, columns = mask_probability(rng.uniform(0.8, 0.99)), int(rng.integers(1, 4))
    changed, classes = int(rng.integers(1, columns + 1)), int(rng.integers(2, 4))
    first = float(rng.uniform(0.8, 3.0))
    second = first + float(rng.uniform(0.0, 1.5)) if classes == 3 else first
    pieces = {}
    for seen in itertools.product([MASKED, 0, 1], repeat=columns):
        of_changed = seen[:changed]
        if all(value == MASKED for value in of_changed):
            # Class 0 below the first threshold, 2 between them, 1 above.
            pieces[seen] = (np.array([first, second]), (0, 2 if classes == 3 else 1, 1))
        else:
            pieces[seen] = (np.array([]), (0,) if 1 not in of_changed else (1,))
    return Problem(beta, 2, columns, classes, pieces)


def closest_margin(problem: Problem) -> tuple[float, int, int]:
    """The smallest lead of the certified class within the region of its exact bounds; the points, and the changes."""
    origin = (0,) * problem.columns
    at_origin = problem.probabilities(origin, np.zeros(1))[0]
    chosen = int(at_origin.argmax())
    rivals = np.delete(at_origin, chosen)
    bounds = ClassBounds(down(float(at_origin[chosen])), up(float(rivals.max())))
    table = MaskTheorem(problem.beta, problem.columns, ONE_NUMBER).table(bounds)
    margin, points = math.inf, 0
    for row in itertools.product(range(problem.values), repeat=problem.columns):
        changed = sum(value != 0 for value in row)
        if changed >= len(table):
            continue
        shifts = np.concatenate([np.linspace(-1, 1, 21), [0.999999, -0.999999]]) * table[changed]
        found = problem.probabilities(row, shifts)
        leads = found[:, chosen] - np.delete(found, chosen, axis=1).max(axis=1)
        margin, points = min(margin, float(leads.min())), points + len(shifts)
    return margin, points, len(table) - 1


def test_no_point_of_a_region_has_another_class():
    rng = np.random.default_rng(34)
    problems = [random_problem(rng) if i % 2 else adversarial_problem(rng) for i in range(PROBLEMS)]
    found = [closest_margin(problem) for problem in problems]
    margins, points, changes = zip(*found)
    assert min(margins) > -1e-12  # 0 on the very edge, but for rounding of the sums
    assert (
        min(margin for margin, _, most in found if most > 0) < 1e-3
    )  # adversarial ones come close: it is tight
    assert sum(points) > 10_000
    assert sum(most > 0 for most in changes) > PROBLEMS / 3


@pytest.mark.parametrize("changes", [1, 2, 3])
def test_the_table_is_tight(changes):
    """A little beyond ρ(d), the worst classifier answers otherwise."""
    beta, threshold = mask_probability(0.9), 2.5
    pieces = {
        seen: (np.array([threshold]), (0, 1))
        if all(value == MASKED for value in seen)
        else (np.array([]), (1,) if 1 in seen else (0,))
        for seen in itertools.product([MASKED, 0, 1], repeat=changes)
    }
    problem = Problem(beta, 2, changes, 2, pieces)
    share = problem.probabilities((0,) * changes, np.zeros(1))[0, 0]
    rho = MaskTheorem(beta, changes, ONE_NUMBER).rho(ClassBounds(share, 1 - share), changes)
    inside, beyond = problem.probabilities((1,) * changes, np.array([rho, rho + 1e-6]))[:, 0]
    assert inside >= 0.5 > beyond


def share(table: dict[tuple[int, ...], int], beta: float, row: tuple[int, ...]) -> Fraction:
    """Of class 0, by all masks."""
    total, keep = Fraction(0), 1 - Fraction(beta)
    for shown in itertools.product([True, False], repeat=len(row)):
        seen = tuple(value if one else MASKED for value, one in zip(row, shown))
        total += (keep ** sum(shown)) * (1 - keep) ** (len(row) - sum(shown)) * table[seen]
    return 1 - total


def test_bytes_alone():
    """Every change of so many bytes, of a worst and of a random classifier of masked bytes."""
    rng = np.random.default_rng(5)
    for trial in range(40):
        length, beta = 4, mask_probability(rng.uniform(0.8, 0.95))
        likelier = rng.uniform(0.8, 1.0)
        table = {
            seen: int(rng.random() > likelier) if trial % 2 else int(1 in seen)
            for seen in itertools.product([MASKED, 0, 1], repeat=length)
        }

        at_origin = share(table, beta, (0,) * length)
        chosen = at_origin >= Fraction(1, 2)
        first = at_origin if chosen else 1 - at_origin
        bounds = ClassBounds(down(float(first)), up(float(1 - first)))
        most = min(int(Masks(beta, 2).certificate.radius(bounds)) - 1, length)
        for row in itertools.product([0, 1], repeat=length):
            if sum(row) <= most:
                assert (share(table, beta, row) > Fraction(1, 2)) == chosen


def test_more_masks_and_fewer_changes_certify_more():
    bounds = ClassBounds(0.98, 0.015)
    tables = [
        MaskTheorem(mask_probability(beta), 9, ONE_NUMBER).table(bounds) for beta in (0.7, 0.8, 0.9, 0.99)
    ]
    assert [len(table) for table in tables] == sorted(len(table) for table in tables)
    for table in tables:
        assert list(table) == sorted(table, reverse=True)
        assert table[0] == tables[0][0]  # d = 0 is the Gaussian theorem, whatever β
    assert tables[0][0] == pytest.approx((norm.ppf(0.98) - norm.ppf(0.015)) / 2, rel=1e-12)


def test_without_a_rival_bound_it_is_the_papers_formula():
    """ρ(d) = Φ⁻¹((L − 1 + v)/v) − Φ⁻¹(1/(2v))."""
    beta, lower = mask_probability(0.93), 0.97
    theorem = MaskTheorem(beta, 9, ONE_NUMBER)
    for changes in range(1, 5):
        v = beta**changes
        expected = norm.ppf((lower - 1 + v) / v) - norm.ppf(1 / (2 * v))
        assert theorem.rho(ClassBounds(lower, 1 - lower), changes) == pytest.approx(expected, abs=1e-10)


N0, N, ALPHA = 3, 150, 0.05


@pytest.mark.parametrize("threshold", [0.6, 1.0, 1.3])
def test_the_whole_procedure_errs_no_more_often_than_alpha(threshold):
    """Summed over all votes there can be, of the classifier for which the true table is the theorem's own."""
    columns = Columns(("number", "a", "b"), {"a": ("x", "y"), "b": ("x", "y")})
    scales, beta = TableScales(columns.names, columns.categorical, (1.0,)), mask_probability(0.93)
    theorem = MaskTheorem(beta, 2, scales)
    plan = CertifyPlan(_Unperturbed(theorem), n0=N0, n=N, alpha=ALPHA, seed=0, bound="top-two")
    # Class 0 wherever a category is shown, and below the threshold where none is: the adversary's choice at d = 2.
    shown = 1 - beta**2
    true = shown + beta**2 * float(norm.cdf(threshold))
    at_x = ClassBounds(true, 1 - true)
    wrong = certified = 0.0
    for first in range(N0 + 1):
        for count in range(N + 1):
            weight = float(stats.binom.pmf(first, N0, true) * stats.binom.pmf(count, N, true))
            selection = Tally(Stream(0, 0, Phase.SELECTION), 0, N0, (first, N0 - first))
            estimation = Tally(Stream(0, 0, Phase.ESTIMATION), 0, N, (count, N - count))
            answer = decide(np.zeros(3), plan, selection, estimation)
            if answer.predicted == ABSTAIN:
                continue
            assert answer.region is not None
            certified += weight
            claimed = answer.region.table
            is_false = answer.predicted != 0 or any(
                rho > theorem.rho(at_x, changes) + 1e-9
                for changes, rho in enumerate(claimed)
                if changes in (0, 2)
            )
            wrong += weight * is_false
    assert ALPHA / 4 < wrong <= ALPHA  # and the bound isn't far from what it promises
    assert certified > 0.5


class _Unperturbed(Masks):
    """Masks with another theorem: what votes are cast on takes no part here."""

    def __init__(self, theorem: MaskTheorem) -> None:
        super().__init__(theorem.beta, 9.0)
        object.__setattr__(self, "theorem", theorem)

    @property
    def certificate(self) -> MaskTheorem:
        return self.theorem  # type: ignore[attr-defined,no-any-return]


def test_the_verifier_finds_the_same_table_by_its_own_arithmetic():
    rng = np.random.default_rng(1)
    longer = 0
    for _ in range(25):
        beta, n = mask_probability(rng.uniform(0.6, 0.99)), int(rng.choice([100, 1000, 10_000]))
        first = int(n * rng.uniform(0.8, 1) ** 0.3)
        second = int(rng.integers(0, n - first + 1))
        counts = (first, second, n - first - second)
        found = MaskTheorem(beta, 9, ONE_NUMBER).table(top_two(hard_tally(counts), 0, 0.001))
        pair = bounds_of("top-two", Votes(0, 0, "estimation", 0, counts), 0, Fraction(0.001))
        exact = VerifiedMasks(Fraction(beta), 9, numbers=True).table(pair)
        assert len(found) == len(exact)
        for rho, interval in zip(found, exact):
            assert rho <= float(interval.low)
            assert rho == pytest.approx(float(interval.low), abs=1e-9)
        alone = VerifiedMasks(Fraction(beta), 1 << 16, numbers=False).radius(pair)
        assert Masks(beta, 256).certificate.radius(top_two(hard_tally(counts), 0, 0.001)) == float(alone.low)
        longer += len(found) > 2
    assert longer > 5


@pytest.mark.parametrize("beta", [0, 1, -0.1, 1.5, math.nan, "0.5"])
def test_only_probabilities_mask(beta):
    with pytest.raises(InvalidValueError, match=r"beta.*got"):
        mask_probability(beta)  # type: ignore[arg-type]
