"""What stopping early would have cost and saved: the library's procedures on simulated votes, with the p_A of a log.

    python -m benchmarks.adaptive_simulation LOG.tsv.gz --sigma 0.5 [--stop decide:0.5 …] [--total-share 0.2]

p_A is read off each radius of the log (Clopper–Pearson, n = 100 000, α = .001, unless said otherwise); votes against go
to one rival, the worst case. No network runs. Every rule is compared with the fixed-n protocol on the same p_A.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from scipy.special import ndtr

from smoothcert.bounds import clopper_pearson_lower
from smoothcert.noise import Gaussian
from smoothcert.runs.field_log import read_field_log
from smoothcert.sampling import Numerics, Procedure
from smoothcert.smoothing import CertifyPlan
from smoothcert.smoothing.adaptive import (
    allocated_procedure,
    forecast_for,
    piloting_procedure,
    shares_of,
    stopping_procedure,
)
from smoothcert.smoothing.answers import Certification
from smoothcert.stopping import Decide, Grid, allocate
from smoothcert.tally import Phase, Stream, Tally

R = TypeVar("R")

NUMERICS = Numerics("float32", "eager", 256, 128)
RULES = ("decide:{r}", "grid:{grid}", "gain:1%", "pilot:1%")


@dataclass(frozen=True)
class Population:
    """Inputs with the probability of their likeliest class, and whether that is the label."""

    p: np.ndarray
    right: np.ndarray


def population(log: Path, sigma: float, n: int, alpha: float, most: int) -> Population:
    """The inputs of a log, thinned out evenly to ``most``."""
    records = read_field_log(log, sigma).records
    records = records[:: max(1, len(records) // most)]
    p = [_p_of(record.radius / sigma, n, alpha) if record.radius > 0 else 0.45 for record in records]
    return Population(np.array(p), np.array([record.correct or record.radius == 0 for record in records]))


def _p_of(scaled: float, n: int, alpha: float) -> float:
    """The share of n votes whose lower bound is Φ(radius/σ), by halving."""
    goal, low, high = float(ndtr(scaled)), n // 2, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if clopper_pearson_lower(middle, n, alpha) <= goal else (low, middle)
    return min(low / n, 1 - 0.3 / n)


class Voters:
    """Answers draws with simulated votes: class 0 with probability p, class 1 otherwise."""

    def __init__(self, p: float, index: int, rng: np.random.Generator) -> None:
        self.p, self.index, self.rng = p, index, rng
        self.drawn: dict[Phase, int] = {}

    def run(self, procedure: Procedure[R]) -> R:
        """The procedure's answer."""
        try:
            draw = next(procedure)
            while True:
                start = self.drawn.get(draw.phase, 0)
                self.drawn[draw.phase] = start + draw.votes
                k = int(self.rng.binomial(draw.votes, self.p))
                counts = (k, draw.votes - k)
                draw = procedure.send(
                    Tally(Stream(0, self.index, draw.phase), start, start + draw.votes, counts)
                )
        except StopIteration as stop:
            answer: R = stop.value
            return answer

    @property
    def votes(self) -> int:
        """All that were asked for."""
        return sum(self.drawn.values())


def simulate(plan: CertifyPlan, inputs: Population, seed: int) -> tuple[list[Certification], int]:
    """Certify every input by the plan; its answers and the votes they took."""
    rng, forecast = np.random.default_rng(seed), forecast_for(plan)
    answers, votes = [], 0
    for index, p in enumerate(inputs.p):
        voters = Voters(float(p), index, rng)
        label = 0 if inputs.right[index] else 2
        answers.append(voters.run(stopping_procedure(np.zeros(1), plan, label=label, forecast=forecast)))
        votes += voters.votes
    return answers, votes


def simulate_total(
    plan: CertifyPlan, inputs: Population, total: int, seed: int
) -> tuple[list[Certification], int]:
    """The same where an allocation decides."""
    rng = np.random.default_rng(seed)
    voters = [Voters(float(p), index, rng) for index, p in enumerate(inputs.p)]
    labels = [0 if right else 2 for right in inputs.right]
    piloted = {
        v.index: v.run(piloting_procedure(plan, label)) for v, label in zip(voters, labels, strict=True)
    }
    spent = sum(v.votes for v in voters)
    votes = allocate(shares_of(plan, piloted), total - spent)
    answers = [
        v.run(allocated_procedure(np.zeros(1), plan, piloted[v.index], label, votes.get(v.index, 0)))
        for v, label in zip(voters, labels, strict=True)
    ]
    return answers, sum(v.votes for v in voters)


def radii(answers: list[Certification], inputs: Population) -> np.ndarray:
    """Radii that count: of the right class (0), abstentions 0."""
    right = inputs.right & (np.array([a.predicted for a in answers]) == 0)
    return np.where(right, [a.radius for a in answers], 0.0)


def asked(plan: CertifyPlan) -> list[float]:
    """The radii that the plan's rules want to know about."""
    found = [rule for rule in plan.stop_rules if isinstance(rule, Decide | Grid)]
    return [r for rule in found for r in (rule.radii if isinstance(rule, Grid) else (rule.radius,))]


def certified(found: np.ndarray, radius: float) -> float:
    """The certified accuracy at a radius, as tables count it."""
    return float(np.mean((found > 0) & (found >= radius)))


def compare(
    name: str, found: np.ndarray, votes: int, fixed: np.ndarray, all_votes: int, at: list[float]
) -> None:
    """One line: votes, ACR and points of certified accuracy against the fixed protocol."""
    lost = "  ".join(f"{r:g}: {100 * (certified(fixed, r) - certified(found, r)):+.2f}" for r in at)
    share, kept = 100 * votes / all_votes, 100 * found.mean() / fixed.mean()
    print(f"{name:34s} votes {share:6.2f} %  ACR kept {kept:6.2f} %  points lost at {lost}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", type=Path)
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--alpha", type=float, default=0.001)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bound", default="auto")
    parser.add_argument(
        "--stop", action="append", help="rules of one plan, joined by + (default: one of each kind)"
    )
    parser.add_argument(
        "--total-share", type=float, default=0.2, help="total votes as a share of the protocol's"
    )
    options = parser.parse_args()
    inputs = population(options.log, options.sigma, options.n, options.alpha, options.inputs)
    noise = Gaussian(options.sigma)
    at = [options.sigma * k for k in (0, 1, 2, 3)]

    def plan(stop: tuple[str, ...], n: int = options.n, bound: str = "auto") -> CertifyPlan:
        return CertifyPlan(noise, bound, n=n, alpha=options.alpha, numerics=NUMERICS, stop=stop)

    fixed, all_votes = simulate(plan(()), inputs, options.seed)
    reference = radii(fixed, inputs)
    print(f"{options.log.name}: {len(inputs.p)} inputs, fixed n = {options.n}: ACR {reference.mean():.4f}")
    grid = ",".join(f"{r:g}" for r in at)
    rules = options.stop or [rule.format(r=f"{options.sigma:g}", grid=grid) for rule in RULES]
    for rule in rules:
        stopping = plan(tuple(rule.split("+")), bound="auto" if "pilot" in rule else options.bound)
        answers, votes = simulate(stopping, inputs, options.seed + 1)
        compare(rule, radii(answers, inputs), votes, reference, all_votes, asked(stopping) or at)
    for share in [options.total_share] if options.total_share else []:
        total = int(share * all_votes)
        answers, votes = simulate_total(plan((f"total:{total}",)), inputs, total, options.seed + 1)
        compare(f"total:{total}", radii(answers, inputs), votes, reference, all_votes, at)
        same = total // len(inputs.p) - 100
        answers, votes = simulate(plan((), same), inputs, options.seed + 1)
        compare(f"fixed n = {same}", radii(answers, inputs), votes, reference, all_votes, at)


if __name__ == "__main__":
    main()
