"""Ways to choose σ for each input, compared on the same models and inputs.

``python -m benchmarks.sigma searches MODEL``: certified radius of every search at equal network evaluations (rows are
counted alike forward and backward, as in the papers).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import command_line
from smoothcert import SmoothedClassifier
from smoothcert.analysis.tables import markdown_table
from smoothcert.cli.arguments import NamedModel, load_named_model
from smoothcert.cli.options import ModelOptions
from smoothcert.datasets import load
from smoothcert.datasets.base import Dataset
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.search.base import SigmaSearch
from smoothcert.smoothing.search.by_gradient import GradientSearch
from smoothcert.smoothing.search.by_votes import GridSearch, LadderSearch

VOTES = 100_100
"""A certification of the papers' protocol: n0 = 100, n = 100 000."""

app = command_line("sigma", __doc__)


@app.command
def searches(
    model: str,
    /,
    *,
    dataset: str | None = None,
    data_dir: Path | None = None,
    sigma: float | None = None,
    noise: str = "gaussian",
    inputs: int = 60,
    n: int = 10_000,
    budget: tuple[int, ...] = (864, 2056),
) -> None:
    """Certify the same inputs with every search.

    Parameters
    ----------
    model:
        Training run or weight file.
    dataset:
        Default: what the model was trained on.
    sigma:
        Default: what the model was trained with.
    budget:
        Network evaluations that a search may use for an input.
    """
    named, data = _named(model, dataset, data_dir)
    start, places = named.sigma_or(sigma), _spread(len(data), inputs)
    rows = []
    for most in budget:
        for name, search in _searches(most).items():
            classifier = SmoothedClassifier(named.classifier, sigma=start, search=search, noise=noise, n=n)
            answers = list(classifier.certify_each((i, data.input(i)) for i in places))
            found = [of.search for of in (answer.evidence for answer in answers) if of.search is not None]
            evaluations = f"{np.mean([one.evaluations for one in found]):.0f}" if found else ""
            mean = np.mean([answer.radius for answer in answers])
            moved = f"{sum(one.reason == 'improved' for one in found)}/{len(places)}"
            acr = _label_radii(answers, data).mean()
            rows.append([str(most), name, evaluations, f"{mean:.4f}", f"{acr:.4f}", moved])
    print(f"{len(places)} inputs, n = {n}, σ₀ = {start:g}\n")
    heads = ["evaluations ≤", "search", "mean", "mean radius", "ACR", "moved"]
    print(markdown_table(heads, rows, text_columns={1}))


def _named(model: str, dataset: str | None, data_dir: Path | None) -> tuple[NamedModel, Dataset]:
    named = load_named_model(model, ModelOptions(), "hard")
    return named, load(named.dataset_or(dataset), "test", data_dir)


def _spread(total: int, count: int) -> list[int]:
    return list(range(0, total, max(1, total // count)))[:count]


def _searches(budget: int) -> dict[str, SigmaSearch | None]:
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


def _label_radii(answers: list[Certification], data: Dataset) -> NDArray[np.float64]:
    """Of each input: its radius where the label is certified, else 0."""
    return np.array([a.radius if a.predicted == data.labels[a.index] else 0.0 for a in answers])


if __name__ == "__main__":
    app()
