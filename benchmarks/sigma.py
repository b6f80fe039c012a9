"""Ways to choose σ for each input, compared on the same models and inputs.

``python -m benchmarks.sigma searches MODEL``: certified radius of every search at equal network evaluations (rows are
counted alike forward and backward, as in the papers). ``cost MODEL``: a search's time beside a certification's.
``levels MODEL… --sigma-levels … --chooser DIR…``: every level as a fixed σ, the best level of each input (the ceiling,
which no classifier answers), and the classifier whose σ a chooser picks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import command_line, interleave, show, speedup
from smoothcert import Execution, SmoothedClassifier
from smoothcert.analysis.tables import markdown_table
from smoothcert.cli.arguments import NamedModel, load_named_model
from smoothcert.cli.levels import load_chooser
from smoothcert.cli.options import ModelOptions
from smoothcert.datasets import load
from smoothcert.datasets.base import Dataset
from smoothcert.experimental.levels.choosers import ConstantChooser, read_chooser_statement
from smoothcert.experimental.levels.classifier import LevelledClassifier
from smoothcert.experimental.levels.procedures import stage_seed
from smoothcert.models.adapt import class_order
from smoothcert.perturb.base import real_noise
from smoothcert.runs.statement import Choice
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.search.base import SearchProblem, SigmaSearch
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


@app.command
def cost(
    model: str,
    /,
    *,
    dataset: str | None = None,
    data_dir: Path | None = None,
    sigma: float | None = None,
    n: int = 4000,
    batch: int = 64,
    repeats: int = 3,
) -> None:
    """Time of a search as a share of that of a certification with n = 100 000, batched and one input at a time.

    Parameters
    ----------
    n:
        Votes that are cast to measure the certification.
    batch:
        Inputs that are searched together.
    """
    named, data = _named(model, dataset, data_dir)
    classifier = SmoothedClassifier(
        named.classifier, sigma=named.sigma_or(sigma), n=n, seed=0, levels=data.levels
    )
    plan = classifier.prepare(data.input_shape)
    problem = SearchProblem(
        classifier.base,
        classifier.prepared(data.input_shape),
        real_noise(plan.noise, "a search"),
        plan.confidence_bound,
        VOTES,
        plan.alpha,
        plan.known_seed,
    )
    inputs: list[tuple[int, NDArray[Any]]] = [(i, data.input(i)) for i in range(batch)]

    def certify() -> int:
        return len(list(classifier.certify_each(inputs[:2]))) * (plan.n0 + n)

    def batched(search: SigmaSearch) -> Callable[[], int]:
        return lambda: VOTES * len(search.search(problem, inputs))

    def single(search: SigmaSearch) -> Callable[[], int]:
        return lambda: VOTES * sum(len(search.search(problem, [one])) for one in inputs[:3])

    contenders = {
        "certify": certify,
        "gradient, batched": batched(GradientSearch()),
        "gradient, one at a time (rows = 1)": single(GradientSearch(rows=1)),
        "ladder, batched": batched(LadderSearch()),
        "ladder, one at a time": single(LadderSearch()),
    }
    rounds = interleave(contenders, repeats)
    # A search is credited with the votes that it precedes: the ratio of rates is its share of their time.
    rows = [[name, speedup(rounds, "certify", name)] for name in contenders if name != "certify"]
    show(["search", "time / a certification's"], rows)


@app.command
def levels(
    models: list[str],
    /,
    *,
    sigma_levels: tuple[float, ...] = (),
    chooser: tuple[str, ...] = (),
    chooser_sigma: float | None = None,
    chooser_n: int | None = None,
    dataset: str | None = None,
    data_dir: Path | None = None,
    n: int = 10_000,
    skip: int = 20,
    most: int | None = None,
    radii: tuple[float, ...] = (0, 0.25, 0.5, 0.75, 1, 1.5, 2),
) -> None:
    """Certify the same inputs at every level and with choosers, and compare them with the best fixed σ in pairs.

    Parameters
    ----------
    models:
        One for all levels, or one for each, smallest σ first.
    sigma_levels:
        Default: the first chooser's.
    chooser:
        Made by ``fit-levels``, or ``spread:0.3,0.4``, ….
    """
    named, data = zip(*(_named(model, dataset, data_dir) for model in models), strict=True)
    stated = [read_chooser_statement(Path(name)) for name in chooser]
    sigmas = list(sigma_levels or (stated[0][0] if stated and stated[0] is not None else ()))
    if not sigmas:
        raise SystemExit("the levels are not stated by a chooser, add --sigma-levels")
    places = Choice(skip, most).indices(len(data[-1]))

    def certified(way: Any, seed: int, sigma: float | None = None) -> list[Certification]:
        classifier = LevelledClassifier(
            [one.classifier for one in named],
            way,
            sigmas=sigmas,
            chooser_sigma=sigma,
            chooser_n=chooser_n,
            levels=data[-1].levels,
            n=n,
            seed=seed,
            execution=Execution(),
        ).in_order(class_order(named[-1].classifier, data[-1]))
        answers = classifier.certify_each((i, data[-1].input(i)) for i in places)
        return sorted(answers, key=lambda answer: answer.index)

    rows: dict[str, NDArray[np.float64]] = {}
    for level, sigma in enumerate(
        sigmas
    ):  # a constant chooser has its σ's own streams: let them be the level's
        answers = certified(ConstantChooser(level), stage_seed(0, f"level {level}"))
        rows[f"σ = {sigma:g}"] = _label_radii(answers, data[-1])
    best = max(rows.values(), key=lambda found: float(found.mean()))
    rows["best level of each input"] = ceiling = np.max(list(rows.values()), axis=0)
    room = float((ceiling - best).mean())
    for name, statement in zip(chooser, stated, strict=True):
        answers = certified(load_chooser(name), 0, chooser_sigma or (statement[1] if statement else None))
        rows[f"chosen by {Path(name).name}"] = _label_radii(answers, data[-1])
    cells = []
    for name, found in rows.items():
        gain, error = float((found - best).mean()), (found - best).std(ddof=1) / len(found) ** 0.5
        accuracies = [np.mean(found > 0) if radius == 0 else np.mean(found >= radius) for radius in radii]
        shares = [f"{100 * accuracy:.1f}" for accuracy in accuracies]
        of_ceiling = f"{gain / room:.0%}" if room > 0 else ""
        cells.append([name, f"{found.mean():.4f}", f"{gain:+.4f} ± {error:.4f}", of_ceiling, *shares])
    heads = ["σ", "ACR", "gain", "of the ceiling's", *(f"{radius:g}" for radius in radii)]
    print(f"{len(places)} inputs, n = {n}\n\n{markdown_table(heads, cells, text_columns={0})}")


if __name__ == "__main__":
    app()
