"""Claims of the papers, tested on kept results: ``python -m benchmarks.papers keep RUN …``, then

``ds`` prints X-DS as published beside the fixed σ and our searches (docs/results/data-dependent.md), ``curves`` the
classifiers of σ levels beside every fixed σ and their envelope (docs/results/levels.md).
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import ROOT, command_line, narrow_table
from smoothcert.analysis.intervals import percent_down, percent_up, rate_interval
from smoothcert.runs.run import read_run
from smoothcert.runs.statement import PlanStatement
from smoothcert.tally import ABSTAIN

RESULTS = ROOT / "docs" / "results"
KEPT = RESULTS / "as-published.tsv"
LEVELS = RESULTS / "levels.tsv"
RADII = (0, 0.25, 0.5, 0.75, 1, 1.5, 2)
_COLUMNS = ("start", "search", "n", "idx", "label", "predicted", "radius", "sigma")

app = command_line("papers", __doc__)


@app.command
def keep(runs: list[Path], /, *, kept: Path = KEPT) -> None:
    """Add certified runs to the kept results; what is kept of the same σ₀, search and n is replaced."""
    rows = list(_read(kept)) if kept.exists() else []
    for path in runs:
        run = read_run(path)
        if not run.complete:
            raise SystemExit(f"{path}: not finished; rerun the `smoothcert certify` that made it")
        plan = run.manifest.plan
        start, n = f"{plan.known(PlanStatement.sigma):g}", str(plan.known(PlanStatement.n))
        name = _search_words({key: plan.value(key) for key in ("sigma_search", *_DETAILS)})
        rows = [row for row in rows if (row["start"], row["search"], row["n"]) != (start, name, n)]
        for r in run.records:
            values = (start, name, n, r.index, r.label, r.predicted, f"{r.radius:.5g}", f"{r.sigma:.4g}")
            rows.append(dict(zip(_COLUMNS, map(str, values))))
    rows.sort(key=lambda row: (float(row["start"]), row["search"], int(row["idx"])))
    lines = ["\t".join(_COLUMNS), *("\t".join(row.values()) for row in rows)]
    kept.write_text("\n".join(lines) + "\n", encoding="utf-8")


_DETAILS = {"sigma_search.steps": "K", "sigma_search.samples": "n", "sigma_search.check_votes": "checked by"}


def _search_words(stated: dict[str, Any]) -> str:
    if (search := stated["sigma_search"]) is None:
        return "fixed σ"
    details = [f"{word} = {stated[key]}" for key, word in _DETAILS.items() if stated[key]]
    return ", ".join([search, *(details if search != "ladder" else [])])


def _read(path: Path) -> Iterator[dict[str, str]]:
    return csv.DictReader(path.read_text(encoding="utf-8").splitlines(), delimiter="\t")


@app.command
def ds(*, kept: Path = KEPT) -> None:
    """Print the table of X-DS."""
    print(ds_table(kept))


def ds_table(kept: Path) -> str:
    """A row for each σ₀ and search: ACR, its difference from the fixed σ in pairs, accuracies, and where σ ended."""
    cells = []
    for start, of_start in itertools.groupby(_read(kept), lambda row: row["start"]):
        found = {name: list(rows) for name, rows in itertools.groupby(of_start, lambda row: row["search"])}
        fixed = {row["idx"]: row for row in found["fixed σ"]}
        for name in sorted(found, key=lambda name: (name != "fixed σ", name)):
            rows = found[name]
            radii = _label_radii(rows)
            gain = radii - _label_radii([fixed[row["idx"]] for row in rows])
            changed = sum(
                row["predicted"] != fixed[row["idx"]]["predicted"] and row["predicted"] != str(ABSTAIN)
                for row in rows
            )
            right = int((radii > 0).sum())
            low, high = rate_interval(right, len(rows))
            sigmas = np.array([float(row["sigma"]) for row in rows])
            cells.append(
                [
                    start,
                    name,
                    str(len(rows)),
                    f"{np.quantile(sigmas, 0.1):.2f}, {np.median(sigmas):.2f}, {np.quantile(sigmas, 0.9):.2f}",
                    str(changed),
                    f"{radii.mean():.3f}",
                    "" if name == "fixed σ" else f"{gain.mean():+.3f} ± {_error(gain):.3f}",
                    f"{100 * right / len(rows):.0f} ({percent_down(low)}–{percent_up(high)})",
                    *(f"{100 * (radii >= radius).mean():.0f}" for radius in RADII[1:]),
                ]
            )
    heads = ["σ₀", "search", "inputs", "σ: tenth, half, nine tenths", "other class", "ACR", "gain", "0"]
    return narrow_table([*heads, *(f"{radius:g}" for radius in RADII[1:])], cells, text_columns={1, 3})


def _error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)


def _label_radii(rows: list[dict[str, str]]) -> NDArray[np.float64]:
    return np.array([float(row["radius"]) if row["predicted"] == row["label"] else 0.0 for row in rows])


@app.command
def curves(*, kept: Path = LEVELS, results: Path = RESULTS) -> None:
    """Print certified accuracies of classifiers with σ levels over those of every fixed σ, and draw them."""
    print(curves_table(kept, results))


def curves_table(kept: Path, results: Path | None = None) -> str:
    """By data set: each fixed σ, their envelope (the best at each radius), and how far each chooser is from it."""
    tables, panels = [], []
    for name, of_set in itertools.groupby(_read(kept), lambda row: row["data"]):
        rows = list(of_set)
        radii = [key for key in rows[0] if key[0].isdigit() and rows[0][key]]
        curve = {row["classifier"]: np.array([float(row[radius]) for radius in radii]) for row in rows}
        fixed = [which for which in curve if which.startswith("σ = ")]
        envelope = np.max([curve[which] for which in fixed], axis=0)
        curve = {which: curve[which] for which in fixed} | {"envelope of the fixed σ": envelope} | curve
        cells = []
        for which, values in curve.items():
            below = values - envelope
            distances = {other: float(np.abs(curve[other] - values).sum()) for other in fixed}
            best = min(fixed, key=distances.__getitem__)
            told = "" if which in fixed else f"{below.min():+.1f} … {below.max():+.1f}"
            cells.append([which, *(f"{value:.1f}" for value in values), told, "" if which in fixed else best])
        heads = [name, *radii, "from the envelope", "nearest fixed σ"]
        tables.append(narrow_table(heads, cells, text_columns={0, len(heads) - 1}))
        panels.append((name, [float(radius) for radius in radii], curve))
    if results is not None:
        _draw(panels, results / "levels-curves.png")
    return "\n\n".join(tables)


def _draw(panels: list[tuple[str, list[float], dict[str, NDArray[np.float64]]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    for axes, (name, radii, curve) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
        for which, values in curve.items():
            one_classifier = not which.startswith(("envelope", "best", "σ frozen"))
            axes.plot(radii, values, "-" if one_classifier else ":", marker=".", label=which)
        axes.set(title=name, xlabel="ℓ2 radius", ylabel="certified accuracy (%)")
        axes.legend(fontsize="x-small")
    figure.savefig(path, dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    app()
