"""``python -m benchmarks.alpha_share [RUN …] [--log FILE SIGMA …]``: which part of α the rival's bound should get.

Of `clopper-pearson`'s average radius, what each share gains or loses: on votes for one class alone, on closed-form
votes, on the votes of certified runs (and on the same shares of votes at other n), and on the p_A of published logs
with all other votes for one rival, where a bound of the rival can only cost. Last, what a bound of the radius itself
could bring at best (normal approximation, no proof): the room that is left.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta, norm

from benchmarks.adaptive_simulation import population
from smoothcert.runs import read_run

SHARES = (0.5, 0.2, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002)
NS = (10**3, 10**4, 10**5, 10**6)

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Votes:
    """Votes for the chosen class and for its strongest rival, of inputs that are ``right``."""

    name: str
    first: Counts
    second: Counts
    n: int
    right: NDArray[np.bool_]

    def scaled(self, n: int) -> Votes:
        """The same shares of other numbers of votes."""
        return Votes(
            f"  same shares, n = {n:,}",
            np.round(self.first / self.n * n),
            np.round(self.second / self.n * n),
            n,
            self.right,
        )


def lower(counts: Counts, n: int, alpha: float) -> Counts:
    """Clopper–Pearson, by scipy."""
    return np.where(counts > 0, beta.ppf(alpha, np.maximum(counts, 1), n - counts + 1), 0.0)


def upper(counts: Counts, n: int, alpha: float) -> Counts:
    """Clopper–Pearson, by scipy."""
    return 1 - lower(n - counts, n, alpha)


def mean_radius(votes: Votes, alpha: float, share: float | None) -> float:
    """In σ, 0 for abstentions and wrong answers; without a share: the papers' bound."""
    low = lower(votes.first, votes.n, alpha if share is None else alpha * (1 - share))
    high = 1 - low
    if share is not None:
        high = np.minimum(high, upper(votes.second, votes.n, alpha * share))
    return _mean(votes, low, high)


def joint_mean_radius(votes: Votes, alpha: float) -> float:
    """What Φ⁻¹(p_A) − Φ⁻¹(p_B) less z_α standard errors would give (delta method), not below the papers' bound."""
    n = votes.n
    a, b = np.clip(votes.first, 1, n - 1) / n, np.clip(votes.second, 1, n - 1) / n
    da, db = 1 / norm.pdf(ndtri(a)), 1 / norm.pdf(ndtri(b))
    variance = da**2 * a * (1 - a) + db**2 * b * (1 - b) + 2 * da * db * a * b
    found = (ndtri(a) - ndtri(b) + ndtri(alpha) * np.sqrt(variance / n)) / 2
    plain = ndtri(lower(votes.first, n, alpha))
    return float((np.maximum(0, np.maximum(found, plain)) * votes.right).mean())


def _mean(votes: Votes, low: Counts, high: Counts) -> float:
    tiny = 1e-300
    radius = (ndtri(np.maximum(low, tiny)) - ndtri(np.maximum(high, tiny))) / 2
    return float((np.where(low > high, radius, 0) * votes.right).mean())


def of_run(path: Path) -> Votes:
    """The votes of a certified run."""
    records = [record for record in read_run(path).records if record.estimation is not None]
    counts = np.array([record.estimation.counts for record in records if record.estimation], dtype=np.float64)
    ranked = np.sort(counts, axis=1)
    right = counts.argmax(axis=1) == [record.label for record in records]
    return Votes(str(path), ranked[:, -1], ranked[:, -2], int(counts[0].sum()), right)


def of_log(path: Path, sigma: float, alpha: float, n: int = 10**5) -> Votes:
    """The votes that a log's radii stand for, those against all for one rival."""
    found = population(path, sigma, n, alpha, most=2000)
    first = np.round(found.p * n)
    return Votes(path.name, first, n - first, n, found.right)


def main() -> None:
    """A row for each set of votes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--log", nargs=2, action="append", default=[], metavar=("FILE", "SIGMA"))
    parser.add_argument("--alpha", type=float, default=0.001)
    options = parser.parse_args()
    rows: list[Votes] = []
    yes = np.ones(1, dtype=np.bool_)
    for n in NS:
        for name, p, q in (("one class alone", 1.0, 0.0), (".9, .05", 0.9, 0.05), (".45, .1", 0.45, 0.1)):
            rows.append(Votes(f"{name}, n = {n:,}", np.array([p * n]), np.array([q * n]), n, yes))
    logs = [of_log(Path(path), float(sigma), options.alpha) for path, sigma in options.log]
    for found in [*map(of_run, options.runs), *logs]:
        rows += [found, *(found.scaled(n) for n in NS if n != found.n)]
    print("| votes | clopper-pearson, σ | " + " | ".join(f"{share:g}" for share in SHARES) + " | joint |")
    print("|---|---:|" + "---:|" * (len(SHARES) + 1))
    for votes in rows:
        base = mean_radius(votes, options.alpha, None)
        values = [mean_radius(votes, options.alpha, share) for share in SHARES]
        values.append(joint_mean_radius(votes, options.alpha))
        if base:
            cells = [f"{100 * (value / base - 1):+.3f} %" for value in values]
        else:
            cells = [f"{value:.4f}" for value in values]
        print(f"| {votes.name} | {base:.4f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
