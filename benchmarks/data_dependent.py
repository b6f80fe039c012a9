"""``python -m benchmarks.data_dependent --models RUN… --retrained RUN… --out DIR``: fixed σ, DS and DS² side by side.

Each model is certified at its own σ and with every search at the same budget of network evaluations; each retrained one
(`train --from RUN --data-dependent`) at its σ and with the ladder. Writes the runs, a table and a figure: envelopes
over σ, the σ found, and where they improve. Interrupted, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.sigma_search import searches
from smoothcert import SmoothedClassifier
from smoothcert.analysis.figures import BLUE, GREY, ORANGE, new_figure, save_figure
from smoothcert.analysis.metrics import average_certified_radius
from smoothcert.analysis.overview import envelope
from smoothcert.analysis.tables import default_radii, markdown_table
from smoothcert.commands.model_argument import load_named_model
from smoothcert.commands.options import ModelOptions
from smoothcert.datasets import load
from smoothcert.evaluation import Choice, certify_dataset
from smoothcert.runs import Run
from smoothcert.runs.statement import PlanStatement
from smoothcert.sigma_search import SigmaSearch
from smoothcert.sigma_search.log import read_found

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIXED, BEST = "fixed σ", "ladder"


@dataclass(frozen=True)
class Certified:
    """One model with one search."""

    model: str
    search: str
    run: Run

    @property
    def acr(self) -> float:
        """Average certified radius."""
        return average_certified_radius(self.run.records)

    @property
    def mean_radius(self) -> float:
        """Mean radius, right or wrong."""
        return float(np.mean([record.radius for record in self.run.records]))

    @property
    def evaluations(self) -> float:
        """Mean number of rows the search used."""
        found = read_found(self.run.path)
        return float(np.mean([one.evaluations for one in found.values()])) if found else 0.0


def certified(
    models: Sequence[Path], chosen: Mapping[str, SigmaSearch | None], options: argparse.Namespace
) -> Iterator[Certified]:
    """Every model with every search, one after the other."""
    for path in models:
        named = load_named_model(str(path), ModelOptions(), "hard")
        data = load(named.dataset_or(options.dataset), "test", options.data_dir)
        for name, search in chosen.items():
            classifier = SmoothedClassifier(
                named.classifier, sigma=named.sigma_or(None), noise=options.noise, n=options.n, search=search
            )
            out = options.out / f"{path.name}-{name.replace(' ', '-').replace(',', '').replace('=', '')}"
            done = Certified(
                path.name, name, certify_dataset(classifier, data, out, Choice(options.skip, options.max))
            )
            print(f"{done.model} {done.search}: ACR {done.acr:.4f}", flush=True)
            yield done


def table(rows: Sequence[Certified], retrained: Sequence[Certified]) -> str:
    """ACR and mean radius of every run."""
    cells = [
        [
            one.model,
            one.search,
            f"{one.evaluations:.0f}",
            f"{one.mean_radius:.4f}",
            f"{one.acr:.4f}",
            f"{_moved(one.run):.0%}" if one.search != FIXED else "",
        ]
        for one in (*rows, *retrained)
    ]
    header = ["model", "σ", "rows a search", "mean radius", "ACR", "σ moved"]
    return markdown_table(header, cells, text_columns={0, 1})


def envelopes(groups: Mapping[str, Sequence[Run]]) -> str:
    """Certified accuracy of the best model at each radius, for each way of choosing σ."""
    radii = default_radii([run for runs in groups.values() for run in runs])
    cells = []
    for name, runs in groups.items():
        points = envelope(runs, [float(radius) for radius in radii])
        best = max(average_certified_radius(run.records) for run in runs)
        cells.append([name, f"{best:.4f}", *(f"{100 * point.accuracy:.1f}" for point in points)])
    return markdown_table(["envelope over σ", "best ACR", *radii], cells, text_columns={0})


def figure(groups: Mapping[str, Sequence[Run]], pairs: Sequence[tuple[Run, Run]], out: Path) -> None:
    """Envelopes, σ* against σ₀, and what each input gains."""
    with new_figure(9.0, 2.9) as sheet:
        curves, spread, gains = sheet.subplots(1, 3)
        sheet.subplots_adjust(left=0.06, right=0.99, bottom=0.16, top=0.9, wspace=0.25)
        _draw_envelopes(curves, groups)
        ratios = [
            np.log2([r.sigma / run.manifest.plan.known(PlanStatement.sigma) for r in run.records])
            for _, run in pairs
        ]
        spread.hist(np.concatenate(ratios), bins=33, range=(-2.06, 2.06), color=BLUE, alpha=0.6)
        spread.axvline(0.0, color=GREY, linewidth=0.9, linestyle="--")
        spread.set(xlabel="log₂ σ*/σ₀", ylabel="inputs", title="σ found by the ladder")
        for before, after in pairs:
            fixed = [record.radius for record in before.records]
            moved = [record.radius for record in after.records]
            gains.plot(
                fixed, moved, ".", markersize=3, alpha=0.6, label=f"σ₀ = {before.manifest.plan.sigma:g}"
            )
        top = gains.get_xlim()[1]
        gains.plot([0, top], [0, top], color=GREY, linewidth=0.9, linestyle="--")
        gains.set(xlabel="radius at σ₀", ylabel="radius at σ*", title="where it improves")
        gains.legend(frameon=False)
        save_figure(sheet, out)


def _draw_envelopes(axes: Axes, groups: Mapping[str, Sequence[Run]]) -> None:
    radii = np.linspace(
        0.0, max(r.radius for runs in groups.values() for run in runs for r in run.records), 300
    )
    for (name, runs), colour in zip(groups.items(), (GREY, BLUE, ORANGE)):
        points = envelope(runs, radii.tolist())
        axes.plot(radii, [100 * point.accuracy for point in points], color=colour, label=name)
    axes.set(xlabel="radius", ylabel="certified accuracy (%)", title="envelope over σ", ylim=(0, 101))
    axes.legend(frameon=False)


def _moved(run: Run) -> float:
    start = run.manifest.plan.sigma
    return float(np.mean([record.sigma != start for record in run.records]))


def main() -> None:
    """Certify, tabulate, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, nargs="+", required=True, help="training runs at one σ each")
    parser.add_argument(
        "--retrained", type=Path, nargs="*", default=[], help="the same, trained data-dependently"
    )
    parser.add_argument("--dataset", help="default: what the models were trained on")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--noise", default="gaussian")
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--skip", type=int, default=100)
    parser.add_argument("--max", type=int)
    parser.add_argument(
        "--budget", type=int, default=2056, help="network evaluations a search may use for an input"
    )
    parser.add_argument("--searches", nargs="*", help="leave out the others (the ladder stays)")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    wanted = searches(options.budget)
    if options.searches is not None:
        wanted = {name: s for name, s in wanted.items() if name in (*options.searches, FIXED, BEST)}
    rows = list(certified(options.models, wanted, options))
    both = {name: search for name, search in wanted.items() if name in (FIXED, BEST)}
    retrained = list(certified(options.retrained, both, options))
    fixed = [one.run for one in rows if one.search == FIXED]
    moved = [one.run for one in rows if one.search == BEST]
    groups = {"fixed σ": fixed, "DS": moved}
    if retrained:
        groups["DS²"] = [one.run for one in retrained if one.search == BEST]
    text = f"{table(rows, retrained)}\n{envelopes(groups)}"
    (options.out / "data-dependent.md").write_text(text, encoding="utf-8")
    figure(groups, list(zip(fixed, moved)), options.out / "data-dependent.png")
    print(text)


if __name__ == "__main__":
    main()
