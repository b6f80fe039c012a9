"""Choose σ and β on rows kept apart: train on each point of a small grid, certify few votes, compare what holds.

ρ counts in units of σ, and points of the grid have different σ. So points are compared by how far numbers move in
standard deviations of each column of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError, check_count, check_not_negative, check_positive
from smoothcert.masked.fit import Encoding, MaskedEstimator, fit_masked
from smoothcert.perturb.hybrid import Hybrid, mask_probability
from smoothcert.regions.changes import ChangeRegion

if TYPE_CHECKING:
    from smoothcert.engine.execution import Execution

SIGMAS, BETAS = (0.125, 0.25, 0.5), (0.75, 0.85, 0.95)
MOVES = (0.0, 0.05, 0.1, 0.2, 0.4)
"""How far numbers move in the columns of a table, in standard deviations."""
COUNTS = (0, 1, 2, 4)
"""Changed categories that a table and a picture show beside those that were asked for."""


@dataclass(frozen=True, eq=False)
class MaskedPoint:
    """One σ (in standard deviations) and β: what held on the rows kept apart, and what that cost."""

    sigma: float
    beta: float
    tables: tuple[tuple[float, ...], ...]
    """ρ(0), ρ(1), … of each row, in units of σ; empty where the answer is wrong or nothing is certified."""
    labels: NDArray[Any]
    """The class of each row."""
    right: float
    """Share of rows whose answer is right, certified or not."""
    votes: int
    fit_seconds: float
    vote_seconds: float

    def moves(self, changes: int) -> NDArray[np.float64]:
        """How far the numbers of each row may move after so many changes, in standard deviations; 0 for not at all."""
        reached = [self.sigma * table[changes] if changes < len(table) else 0.0 for table in self.tables]
        return np.array(reached)

    def held(self, changes: int, move: float) -> NDArray[np.bool_]:
        """Whether each row is right, and stays so after so many changes and any smaller move."""
        reached = self.moves(changes)
        return np.asarray((reached > 0) & (reached >= move))

    def share(self, changes: int, move: float, *, balanced: bool = False) -> float:
        """The share of rows that is right, and stays so after such a change; ``balanced``: the mean over classes."""
        if balanced:
            return float(np.mean(list(self.by_class(changes, move).values())))
        return float(np.mean(self.held(changes, move)))

    def by_class(self, changes: int, move: float) -> dict[Any, float]:
        """The same of each class."""
        held = self.held(changes, move)
        return {label: float(held[self.labels == label].mean()) for label in np.unique(self.labels).tolist()}

    def __str__(self) -> str:
        return f"σ = {self.sigma:g}, β = {self.beta:g}"


@dataclass(frozen=True, eq=False)
class MaskedChoice:
    """The points of a grid, the rows that they are compared on, and the classifier of the best one.

    The best point is the best *on these rows*: its shares there are too high, on average. Report other rows. Each
    certificate holds whatever was chosen.
    """

    points: tuple[MaskedPoint, ...]
    """In the order of the grid."""
    changes: int
    """The best point has the largest certified share after so many changed categories, …"""
    move: float
    """… and numbers that move so far, in standard deviations of each."""
    balanced: bool
    """Whether that share is the mean over classes."""
    rows: NDArray[np.intp]
    """Places of the rows that were kept apart from training, in the order of the tables."""
    model: MaskedEstimator
    """Fitted to the other rows, with the noise of the best point."""
    n: int
    """Votes that certified each row."""
    alpha: float
    """Probability that a certificate is wrong."""

    @property
    def best(self) -> MaskedPoint:
        """The point that was chosen."""
        return best_of(self.points, self.changes, self.move, self.balanced)

    def counts(self) -> list[int]:
        """The numbers of changed categories that are worth showing."""
        most = max(len(table) for point in self.points for table in point.tables) - 1
        return sorted({0, self.changes} | {count for count in COUNTS if count <= most})

    def front(self) -> list[MaskedPoint]:
        """The best point, and those that are best for another change that a table shows."""
        leaders = [self.best]
        for changes in self.counts():
            for move in MOVES:
                one = best_of(self.points, changes, move, self.balanced)
                leaders += [one] if one not in leaders and one.share(changes, move) > 0 else []
        return leaders

    def as_json(self) -> dict[str, Any]:
        """Every point with its shares and its cost, and what may be said of them."""
        counts = self.counts()
        points = [
            {
                "sigma": point.sigma,
                "beta": point.beta,
                "right": point.right,
                "certified": {str(d): [point.share(d, move) for move in MOVES] for d in counts},
                "by_class": {str(k): v for k, v in point.by_class(self.changes, self.move).items()},
                "votes": point.votes,
                "fit_seconds": point.fit_seconds,
                "vote_seconds": point.vote_seconds,
            }
            for point in self.points
        ]
        return {
            "chosen": {"sigma": self.best.sigma, "beta": self.best.beta},
            "for": {"changes": self.changes, "move": self.move, "balanced": self.balanced},
            "moves": list(MOVES),
            "points": points,
            "n": self.n,
            "alpha": self.alpha,
            "rows": self.rows.tolist(),
            "votes": sum(point.votes for point in self.points),
            "seconds": sum(point.fit_seconds + point.vote_seconds for point in self.points),
            "note": self.note(),
        }

    def note(self) -> str:
        """What the shares are good for."""
        return (
            f"σ and β were chosen on these {len(self.rows)} rows, so the shares of the best point are too high on "
            "average: report rows that are not among them, nor among the training rows"
        )

    def plot(self, out: Path | str) -> None:
        """Draw the share that is right and certified against how far numbers move, a panel for each d."""
        from smoothcert.analysis.plots.curves import plot_choice

        counts = self.counts()
        curves = {str(point): [point.moves(d) for d in counts] for point in self.front()}
        plot_choice(counts, curves, Path(out), self.changes, self.move)


def best_of(points: Sequence[MaskedPoint], changes: int, move: float, balanced: bool) -> MaskedPoint:
    """The point with the largest share for these; equal ones are told apart by the mean certified distance."""

    def worth(point: MaskedPoint) -> tuple[float, float]:
        return point.share(changes, move, balanced=balanced), float(point.moves(changes).mean())

    return max(points, key=worth)


def choose_masked(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    sigmas: Sequence[float] = SIGMAS,
    betas: Sequence[float] = BETAS,
    changes: int = 1,
    move: float = 0.05,
    balanced: bool = False,
    validation: int = 200,
    n: int = 1000,
    alpha: float = 0.001,
    categorical: Sequence[str | int] | None = None,
    copies: int = 10,
    encoding: Encoding = "auto",
    seed: int = 0,
    execution: Execution | None = None,
    progress: Callable[[MaskedPoint], None] = lambda _: None,
) -> MaskedChoice:
    """Train ``estimator`` by :func:`fit_masked` on each σ and β, and compare them on rows kept apart.

    Give training rows alone: the rows that σ and β are chosen on are taken from these, and a share that is reported
    should be of rows that took no part.

    Parameters
    ----------
    estimator
        As in :func:`fit_masked`.
    X
        A DataFrame, or an array of rows whose ``categorical`` columns hold codes.
    y
        The class of each row.
    sigmas
        In standard deviations of each number.
    betas
        Probabilities of a mask.
    changes
        Changed categories that the best point is chosen for.
    move
        How far numbers move, in standard deviations, that the best point is chosen for; 0 for not at all.
    balanced
        Choose by the mean over classes. Where most rows are of one class, the largest share of all rows goes to a
        classifier that answers it nearly always, and such an answer is easily certified.
    validation
        Rows kept apart from training.
    n
        Votes that certify each of them. More raise all shares, those of large β most.
    alpha
        Probability that a certificate is wrong.
    categorical
        Columns of categories; by default those of texts, pandas' categories and truths.
    copies
        How often each row is shown in training.
    encoding
        What the classifier is given of a row.
    seed
        Of the rows kept apart, of training's masks and noise, and of the votes.
    execution
        How fast votes are cast.
    progress
        Called with each point.
    """
    from smoothcert.smoothing.classifier import SmoothedClassifier

    check_count("changes", changes, least=0)
    check_not_negative("move", move)
    check_count("validation", validation)
    for name, values in (("sigmas", sigmas), ("betas", betas)):
        if not len(values):
            raise InvalidValueError(f"{name} must hold at least 1 number, got none")
    grid = [(check_positive("sigma", sigma), mask_probability(beta)) for beta in betas for sigma in sigmas]
    whole = Hybrid.of(X, 1.0, grid[0][1], categorical)
    table, labels = np.asarray(whole.encoded(X), dtype=np.float64), np.asarray(y)
    if labels.shape != (len(table),):
        raise InvalidValueError(
            f"y must hold a label for each of {len(table)} rows, got shape {labels.shape}"
        )
    if not 2 * validation <= len(table):
        raise InvalidValueError(
            f"validation must be at most half of the {len(table)} rows, since the others train, got {validation}"
        )
    order = np.random.default_rng(seed).permutation(len(table))
    kept, rest = np.sort(order[:validation]), np.sort(order[validation:])
    points: list[MaskedPoint] = []
    best, model = None, None
    for sigma, beta in grid:
        noise = replace(whole, sigmas=tuple(sigma * one for one in whole.sigmas), beta=beta)
        began = time.perf_counter()
        fitted = fit_masked(
            estimator, table[rest], labels[rest], noise, copies=copies, encoding=encoding, seed=seed
        )
        trained = time.perf_counter()
        voting = SmoothedClassifier(fitted, noise=noise, n=n, alpha=alpha, seed=seed, execution=execution)
        answers = voting.certify(table[kept])
        right = np.asarray(answers.label == labels[kept])
        regions = [one.region if ok else None for ok, one in zip(right, answers)]
        tables = tuple(one.table if isinstance(one, ChangeRegion) else () for one in regions)
        votes = [one.evidence.selection.n + one.evidence.estimation.n for one in answers]
        share, seconds = float(np.mean(right)), time.perf_counter() - trained
        points.append(
            MaskedPoint(sigma, beta, tables, labels[kept], share, sum(votes), trained - began, seconds)
        )
        progress(points[-1])
        if (found := best_of(points, changes, move, balanced)) is not best:
            best, model = found, fitted
    assert model is not None
    return MaskedChoice(tuple(points), changes, move, balanced, kept, model, n, alpha)
