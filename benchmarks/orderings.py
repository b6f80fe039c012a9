"""``python -m benchmarks.orderings --data-dir DIR``: do the methods rank as the papers say, on a reduced schedule?

MNIST, LeNet, σ = 0.5: the published recipes with the same number of inputs, epochs and rows a step for all (for macer,
inputs a step); their learning rates, their warm-up and the time until a term sets in are shortened in proportion, so
that what sets in with a drop of the rate still does. Interrupted, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.plots import plot_seed_groups
from smoothcert.analysis.seeds import SeedGroup, render_seed_table, summarise_seeds
from smoothcert.analysis.tables import default_radii, markdown_table
from smoothcert.datasets import load
from smoothcert.evaluation import Choice
from smoothcert.runs import Run
from smoothcert.sampling import Execution
from smoothcert.sweeps import Cell, Trial, group_by_seed
from smoothcert.training import Recipe, find_recipe
from smoothcert.training.memory import keep_freed_memory

SIGMA = 0.5
METHODS = ("gaussian", "stability", "consistency", "macer", "smoothmix", "smoothadv")
SCHEDULES = {"step": "learning rate 0.01, × 0.1 after a third and two thirds", "cosine": "cosine from 0.01"}
ABOVE_GAUSSIAN = ("consistency", "macer", "smoothadv", "smoothmix")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and certify every method, and print the table."""
    options = _parser().parse_args(arguments)
    keep_freed_memory()
    train_set, test_set = (load("mnist", split, options.data_dir) for split in ("train", "test"))
    trial = Trial({"n": options.n}, Choice(options.skip), Execution("cpu", options.workers))
    done: list[tuple[Cell, Run]] = []
    for seed in options.seeds:
        for method in options.methods:
            cell = Cell(method, _reduced(method, seed, options))
            began = time.perf_counter()
            trial.train(cell, options.out, train_set, test_set)
            trained = time.perf_counter()
            done.append((cell, trial.certify(cell, options.out, test_set)))
            times = f"trained in {trained - began:.0f} s, certified in {time.perf_counter() - trained:.0f} s"
            print(f"{cell.folder}: {times}", file=sys.stderr, flush=True)
    groups = group_by_seed(done)
    text = _table(groups, options)
    (options.out / "orderings.md").write_text(text, encoding="utf-8")
    plot_seed_groups(groups, options.out / "orderings.png")
    print(text)


def _reduced(method: str, seed: int, options: argparse.Namespace) -> Recipe:
    published = find_recipe(f"mnist-{method}-{SIGMA}")
    share = options.epochs / published.plan.epochs
    return published.changed(
        {
            "epochs": options.epochs,
            "inputs": options.inputs,
            "batch_size": options.batch_size,
            "schedule": options.schedule,
            "step_epochs": max(1, round(share * published.plan.step_epochs)),
            "ramps": [str(ramp.scaled(share)) for ramp in published.plan.ramps],
            "seed": seed,
        }
    )


def _table(groups: Sequence[SeedGroup], options: argparse.Namespace) -> str:
    radii = default_radii([run for group in groups for run in group.runs])
    summaries = [summarise_seeds(group, [float(radius) for radius in radii]) for group in groups]
    of = {group.method: group for group in groups}
    rows = [_comparison(group, of["gaussian"]) for group in groups if "gaussian" in of]
    stated = (
        f"MNIST, LeNet, σ = {SIGMA}: first {options.inputs} training inputs, {options.epochs} epochs, "
        f"{options.batch_size} rows a step (macer: inputs), {SCHEDULES[options.schedule]}, "
        f"seeds {', '.join(map(str, options.seeds))}; "
        f"certified on every {options.skip}th test input.\n"
    )
    header = [
        "method",
        "ACR − gaussian's ± s. e. over inputs",
        "of each seed",
        "published ACR − gaussian's",
        "papers' ordering holds",
    ]
    return "\n".join(
        [
            stated,
            render_seed_table(summaries, radii, "markdown"),
            markdown_table(header, rows, text_columns={0, 2, 4}),
        ]
    )


def _comparison(group: SeedGroup, gaussian: SeedGroup) -> list[str]:
    published, baseline = (
        find_recipe(f"mnist-{method}-{SIGMA}").published_acr for method in (group.method, "gaussian")
    )
    assert published is not None
    assert baseline is not None
    differences = np.array([_counted(run) - _counted(other) for run, other in zip(group.runs, gaussian.runs)])
    of_inputs = differences.mean(0)
    verdict = ""
    if group.method in ABOVE_GAUSSIAN:
        verdict = "yes" if of_inputs.mean() > 0 else "no"
    return [
        group.method,
        f"{of_inputs.mean():+.3f} ± {of_inputs.std(ddof=1) / len(of_inputs) ** 0.5:.3f}",
        ", ".join(f"{each:+.3f}" for each in differences.mean(1)),
        f"{published - baseline:+.3f}",
        verdict,
    ]


def _counted(run: Run) -> NDArray[np.float64]:
    return np.where(run.records.correct, run.records.radius, 0.0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.orderings", description=main.__doc__)
    parser.add_argument("--data-dir", type=Path, help="where MNIST is (default: SMOOTHCERT_DATA)")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks-orderings"), help="folder for runs and tables"
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=9, help="a tenth of the recipes'")
    parser.add_argument("--inputs", type=int, default=10_000, help="training inputs")
    parser.add_argument("--batch-size", type=int, default=64, help="rows per step (macer: inputs)")
    parser.add_argument(
        "--schedule",
        choices=sorted(SCHEDULES),
        default="step",
        help="the recipes' own, shortened, or cosine",
    )
    parser.add_argument("--n", type=int, default=10_000, help="votes per certified input")
    parser.add_argument("--skip", type=int, default=50, help="certify every so many-th test input")
    parser.add_argument("--workers", type=int, help="threads that certify (default: one per core)")
    return parser


if __name__ == "__main__":
    main()
