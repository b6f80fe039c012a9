"""Searches for σ compared: certified radius at equal network evaluations, and what they cost beside certification.

`python -m benchmarks.sigma_search RUN --inputs 60 --n 10000` takes a training run (or a weight file with --sigma and
--dataset). Rows through the network are counted alike forward and backward, as in the papers. Costs are ratios of
turns taken one after another on the same machine.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.interleave import Ratio, interleave, speedup
from smoothcert import SmoothedClassifier
from smoothcert.commands.model_argument import NamedModel, load_named_model
from smoothcert.commands.options import ModelOptions
from smoothcert.datasets import load
from smoothcert.datasets.base import Dataset
from smoothcert.sigma_search import GradientSearch, GridSearch, LadderSearch, Problem, SigmaSearch

VOTES = 100_100
"""A certification of the papers' protocol: n0 = 100, n = 100 000."""


@dataclass(frozen=True)
class Outcome:
    """What one search made of the inputs."""

    name: str
    most_evaluations: int
    mean_evaluations: float
    mean_radius: float
    acr: float
    moved: int


def searches(budget: int) -> dict[str, SigmaSearch | None]:
    """Each search with at most ``budget`` evaluations an input."""
    gradient, grid, ladder = GradientSearch(), GridSearch(), LadderSearch()
    first = ladder.evaluations - ladder.rounds * ladder.round_votes
    return {
        "fixed σ": None,
        "gradient": GradientSearch(steps=max(1, (budget - gradient.check_evaluations) // 2)),
        "grid, n = 1": GridSearch(budget=max(1, budget - grid.check_evaluations), samples=1),
        "grid, n = 10": GridSearch(budget=max(10, budget - grid.check_evaluations), samples=10),
        "ladder": LadderSearch(rounds=max(0, (budget - first) // ladder.round_votes)),
    }


def radii(
    named: NamedModel, data: Dataset, chosen: list[int], budget: int, sigma: float, **plan: Any
) -> list[Outcome]:
    """Mean radius and ACR of every search on the same inputs."""
    outcomes = []
    for name, search in searches(budget).items():
        classifier = SmoothedClassifier(named.classifier, sigma=sigma, search=search, **plan)
        answers = list(classifier.certify_each((i, data.input(i)) for i in chosen))
        found = [answer.search for answer in answers if answer.search is not None]
        right = [a.radius if a.predicted == data.labels[a.index] else 0.0 for a in answers]
        outcome = Outcome(
            name,
            0 if search is None else search.evaluations,
            float(np.mean([one.evaluations for one in found])) if found else 0.0,
            float(np.mean([a.radius for a in answers])),
            float(np.mean(right)),
            sum(one.reason == "improved" for one in found),
        )
        print(
            f"| {outcome.name} | {outcome.most_evaluations} | {outcome.mean_evaluations:.0f} | "
            f"{outcome.mean_radius:.4f} | {outcome.acr:.4f} | {outcome.moved}/{len(chosen)} |",
            flush=True,
        )
        outcomes.append(outcome)
    return outcomes


def costs(
    named: NamedModel, data: Dataset, batch: int, votes: int, sigma: float, repeats: int
) -> dict[str, Ratio]:
    """Time of a search as a share of the time of a certification with n = 100 000, one at a time and batched."""
    classifier = SmoothedClassifier(named.classifier, sigma=sigma, n=votes, seed=0, levels=data.levels)
    plan = classifier.prepare(data.input_shape)
    problem = Problem(
        classifier.base,
        classifier.prepared(data.input_shape),
        plan.noise,
        plan.confidence_bound,
        VOTES,
        plan.alpha,
        plan.known_seed,
    )
    inputs: list[tuple[int, NDArray[Any]]] = [(i, data.input(i)) for i in range(batch)]

    def certify() -> int:
        answers = list(classifier.certify_each(inputs[:2]))
        return len(answers) * (plan.n0 + votes)

    def batched(search: SigmaSearch) -> int:
        return VOTES * len(search.search(problem, inputs))

    def one_at_a_time(search: SigmaSearch) -> int:
        return VOTES * sum(len(search.search(problem, [one])) for one in inputs[:3])

    contenders = {
        "certify": certify,
        "gradient, batched": lambda: batched(GradientSearch()),
        "gradient, one at a time (rows = 1)": lambda: one_at_a_time(GradientSearch(rows=1)),
        "ladder, batched": lambda: batched(LadderSearch()),
        "ladder, one at a time": lambda: one_at_a_time(LadderSearch()),
    }
    rounds = interleave(contenders, repeats)
    # Each search is credited with the votes it precedes: the ratio of rates is its share of their time.
    return {name: speedup(rounds, "certify", name) for name in contenders if name != "certify"}


def main() -> None:
    """Run the parts asked for and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="training run or weight file")
    parser.add_argument("--dataset", help="default: what the model was trained on")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--sigma", type=float, help="default: what the model was trained with")
    parser.add_argument("--noise", default="gaussian")
    parser.add_argument("--inputs", type=int, default=60)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--budget", type=int, nargs="*", default=[864, 2056])
    parser.add_argument("--batch", type=int, default=64, help="inputs searched together in the cost part")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of the cost part; 0 leaves it out")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    named = load_named_model(given.model, ModelOptions(), "hard")
    data = load(named.dataset_or(given.dataset), "test", given.data_dir)
    sigma = named.sigma_or(given.sigma)
    chosen = list(range(0, len(data), max(1, len(data) // given.inputs)))[: given.inputs]
    report: dict[str, Any] = {"radii": {}, "costs": {}}
    for budget in given.budget:
        print(f"\nAt most {budget} evaluations an input; {len(chosen)} inputs, n = {given.n}, σ₀ = {sigma:g}")
        print("| search | evaluations ≤ | mean | mean radius | ACR | moved |\n|---|---|---|---|---|---|")
        outcomes = radii(named, data, chosen, budget, sigma, noise=given.noise, n=given.n)
        report["radii"][budget] = [asdict(outcome) for outcome in outcomes]
    if given.repeats:
        print("\nTime of a search over that of a certification with n = 100 000")
        print("| search | share: median (range) |\n|---|---|")
        for name, share in costs(named, data, given.batch, given.n, sigma, given.repeats).items():
            print(f"| {name} | {share.median:.2%} ({share.low:.2%}–{share.high:.2%}) |")
            report["costs"][name] = asdict(share)
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
