"""Layouts: what a table shows of runs. Each is a function from runs and radii to a :class:`Table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from smoothcert.analysis import seeds, tables
from smoothcert.analysis.changes import changes_table
from smoothcert.analysis.facts import SECONDS, data_in_words, dataset_of, stated_training
from smoothcert.analysis.metrics import RunFacts, RunSummary, check_same_norm, summarise
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import norm_name
from smoothcert.registry import check_name
from smoothcert.runs.run import Run

_ABOUT = ("dataset", "split", "sigma_search", "sigma_per", "planned", "complete", "sigma_levels", "chooser")
_JSON_ABOUT = (
    *("dataset", "split", "sigma", "sigma_search", "sigma_per", "sigma_levels", "chooser"),
    *("inputs", "planned", "complete", "bound", "n", "alpha"),
)
# What a run states may be of any origin: beyond these it is no training, and a cell of hundreds of digits.
_MOST_EPOCHS, _MOST_SECONDS = 10**9, 1e10


def render_table(
    runs: Sequence[Run], radii_as_typed: Sequence[str], layout: str = "runs", format: str = "markdown"
) -> str:
    """The runs in one of :data:`LAYOUTS` and :data:`~smoothcert.analysis.tables.FORMATS`, as text."""
    check_name("layout", layout, LAYOUTS)
    if not runs or not radii_as_typed:
        raise InvalidValueError(f"a table needs runs and radii, got {len(runs)} and {len(radii_as_typed)}")
    return tables.render(LAYOUTS[layout](runs, radii_as_typed), format)


def run_table(runs: Sequence[Run], radii: Sequence[str]) -> tables.Table:
    """A row for each run, with what its figures rest on."""
    summaries = [summarise(run, _values(radii)) for run in runs]
    check_same_norm([(summary.run, summary.norm) for summary in summaries])
    return _certified(
        ("run", "data", "σ", "norm", "bound", "n", "α", "inputs", "ACR"),
        (tables.Section(f"C{_title(summaries[0].norm)[1:]}:", (tuple(map(_run_cells, summaries)),)),),
        [
            {"run": s.run, "sigma": tables.sigma_text(s.sigma, ""), "inputs": s.inputs, "acr": f"{s.acr:.3f}"}
            | dict(zip(radii, map(tables.percentage, s.accuracy)))
            | _stated(s, _ABOUT)
            for s in summaries
        ],
        [
            _stated(s, ("run", *_JSON_ABOUT, "norm", "acr", "abstained"))
            | {"certified_accuracy": dict(zip(radii, s.accuracy))}
            for s in summaries
        ],
        summaries[0].norm,
        radii,
        name="runs",
    )


def _certified(
    columns: tables.Row,
    sections: tuple[tables.Section, ...],
    records: Sequence[Mapping[str, object]],
    rows: Sequence[Mapping[str, object]],
    norm: str,
    radii: Sequence[str],
    name: str = "rows",
) -> tables.Table:
    """A table with certified accuracies at ``radii``, whose ``rows`` are called ``name`` in JSON."""
    value = {"norm": norm, "radii": list(radii), name: rows}
    return tables.Table((*columns, *radii), sections, records, value, _title(norm), len(radii))


def paper_table(runs: Sequence[Run], radii: Sequence[str]) -> tables.Table:
    """The papers' table: a section for each data set, methods grouped by σ. Norms don't mix.

    Runs of one method and σ that differ in their seed alone (distinct models, the same inputs) are averaged (mean ±
    standard deviation); others of one name are told apart by the names of their directories. The best value of a
    column within one σ is bold, all of them where they are printed alike. CSV and JSON mark nothing; standard
    deviations of the percentages are in JSON alone.
    """
    check_same_norm([(str(run.path), run.norm) for run in runs])
    by_dataset: dict[str | None, list[Run]] = {}
    for run in runs:
        by_dataset.setdefault(dataset_of(run), []).append(run)
    for members in by_dataset.values():
        seeds.check_same_inputs(members)
    norm = runs[0].norm
    by_sigma = {name: _by_sigma(members, _values(radii)) for name, members in by_dataset.items()}
    rows = [(sigma, row) for sigmas in by_sigma.values() for sigma, group in sigmas.items() for row in group]
    return _certified(
        ("σ", "method", "ACR"),
        tuple(_paper_section(name, sigmas, norm) for name, sigmas in by_sigma.items()),
        [
            {
                "dataset": row.dataset,
                "sigma": tables.sigma_text(sigma, ""),
                "method": row.method,
                "seeds": row.seeds,
            }
            | {"inputs": row.inputs, "acr": f"{row.acr.mean:.3f}"}
            | {"acr_sd": None if row.acr.sd is None else f"{row.acr.sd:.3f}"}
            | {radius: tables.percentage(spread.mean) for radius, spread in zip(radii, row.accuracy)}
            | _stated(row, _ABOUT[1:])
            for sigma, row in rows
        ],
        [
            _stated(row, (*_JSON_ABOUT, "method", "seeds")) | {"sigma": sigma} | _spreads(row, radii)
            for sigma, row in rows
        ],
        norm,
        radii,
    )


def seed_table(summaries: Sequence[seeds.SeedSummary], radii: Sequence[str]) -> tables.Table:
    """Mean ± standard deviation over seeds, a row for each method and σ."""
    check_same_norm([(summary.method, summary.norm) for summary in summaries])
    first = summaries[0]
    stated = ", ".join(f"{name} = {value}" for name in ("n", "bound") if (value := getattr(first, name)))
    cells = (
        (
            data_in_words(s.dataset, s.split) or tables.UNKNOWN,
            s.method,
            tables.UNKNOWN if s.sigma is None else f"{s.sigma:g}",
            str(s.seeds),
            str(s.inputs),
            *s.printed(),
        )
        for s in summaries
    )
    return _certified(
        ("data", "method", "σ", "seeds", "inputs", "ACR"),
        (tables.Section(f"C{_title(first.norm)[1:]}, mean±sd over seeds ({stated}):", (tuple(cells),)),),
        [
            _stated(s, ("method", "sigma", "seeds", "inputs"))
            | {
                f"{name}{end}": value
                for name, spread in zip(("acr", *radii), (s.acr, *s.accuracy))
                for end, value in (("", spread.mean), ("_sd", spread.sd))
            }
            | _stated(s, ("dataset", "split"))
            for s in summaries
        ],
        [
            _stated(s, ("dataset", "split", "method", "sigma", "seeds", "inputs", "n", "bound"))
            | _spreads(s, radii)
            for s in summaries
        ],
        first.norm,
        radii,
    )


def best_table(runs: Sequence[Run], radii: Sequence[str]) -> tables.Table:
    """The papers' envelope: the best certified accuracy of each method at each radius, over its runs."""
    rows, norm = seeds.best_rows(runs, _values(radii)), runs[0].norm
    data = data_in_words(rows[0].dataset, rows[0].split) or "data set not stated"
    cells = (
        (
            row.method,
            str(row.runs),
            _inputs(row),
            f"{row.acr[0]:.3f}",
            f"{row.oracle:.3f}",
            *(tables.percentage(best) for best, _ in row.accuracy),
        )
        for row in rows
    )
    note = (
        f"{tables.markdown_escaped(data)}: "
        f"best certified accuracy (%) at each {norm_name(norm)} radius, and best ACR, over each method's runs; every "
        "figure may be another run's. Oracle: the ACR if each input had its best run, which only its certificates "
        "tell, so that no classifier has it:"
    )
    heading = f"{data}: the best over each method's runs, for each figure alone"
    return _certified(
        ("method", "runs", "inputs", "ACR", "oracle"),
        (tables.Section(note, (tuple(cells),), heading),),
        [
            _stated(row, ("method", "runs", "inputs"))
            | {"acr": row.acr[0], "oracle_acr": row.oracle}
            | {radius: best for radius, (best, _) in zip(radii, row.accuracy)}
            | _stated(row, ("dataset", "split", "planned", "complete"))
            for row in rows
        ],
        [
            _stated(row, ("dataset", "split", "method", "runs", "inputs", "planned", "complete"))
            | {"acr": _of_run(row.acr), "oracle_acr": row.oracle}
            | {"certified_accuracy": dict(zip(radii, map(_of_run, row.accuracy)))}
            for row in rows
        ],
        norm,
        radii,
    )


def _of_run(best: tuple[float, str]) -> dict[str, object]:
    return dict(zip(("best", "run"), best))


@dataclass(frozen=True)
class TrainingTime:
    """A run's model: how long it was trained on the machine that did, validation included, and its ACR.

    The ACR is of ``inputs`` so far; ``planned`` were asked for, and ``complete`` says whether these are all.
    """

    method: str
    sigma: float | None
    epochs: int
    seconds: float
    acr: float
    dataset: str | None
    split: str | None
    inputs: int
    planned: int | None
    complete: bool


def training_time(run: Run) -> TrainingTime:
    """As the run states it; rejected where it states nothing, as imported logs don't."""
    trained = stated_training(run.manifest.origin)
    epochs, seconds = trained.get("epochs"), trained.get(SECONDS)
    # True is an int to Python.
    if (
        (isinstance(epochs, bool) or not isinstance(epochs, int) or not 1 <= epochs <= _MOST_EPOCHS)
        or (isinstance(seconds, bool) or not isinstance(seconds, int | float))
        or not 0 <= seconds <= _MOST_SECONDS
    ):
        raise InvalidValueError(
            f"{run.path} doesn't say how long its model was trained: runs certified from a training run do, since they "
            "copy it; certify the model again, or leave the run out"
        )
    summary = summarise(run, [0.0])
    about = _stated(summary, ("sigma", "acr", "dataset", "split", "inputs", "planned", "complete"))
    return TrainingTime(method=seeds.method_of(run), epochs=epochs, seconds=float(seconds), **about)


def training_table(runs: Sequence[Run], _radii: Sequence[str]) -> tables.Table:
    """What training cost and what it bought: seconds an epoch, hours in all, ACR (MACER, Tables 3 and 8)."""
    rows = [training_time(run) for run in runs]
    cells = (
        (
            data_in_words(row.dataset, row.split) or tables.UNKNOWN,
            row.method,
            tables.sigma_text(row.sigma, unknown="?"),
            f"{row.seconds / row.epochs:.1f}",
            str(row.epochs),
            f"{row.seconds / 3600:.2f}",
            _inputs(row),
            f"{row.acr:.3f}",
        )
        for row in rows
    )
    note = "Time of training, validation after each epoch included, on the machine that trained:"
    plain = [asdict(row) for row in rows]
    return tables.Table(
        ("data", "method", "σ", "s/epoch", "epochs", "hours", "inputs", "ACR"),
        (tables.Section(note, (tuple(cells),)),),
        plain,
        plain,
    )


LAYOUTS: dict[str, Callable[[Sequence[Run], Sequence[str]], tables.Table]] = {
    "runs": run_table,
    "paper": paper_table,
    "best": best_table,
    "training": training_table,
    "changes": changes_table,
}
"""A row for each run; methods by σ as papers print them; the best of each method's runs; what training took; what
tables certify over changed categories."""


def _values(radii: Sequence[str]) -> list[float]:
    return [float(radius) for radius in radii]


def _title(norm: str) -> str:
    return f"certified accuracy (%) at {norm_name(norm)} radius"


def _stated(row: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _spreads(row: seeds.SeedSummary, radii: Sequence[str]) -> dict[str, Any]:
    accuracy = {radius: asdict(spread) for radius, spread in zip(radii, row.accuracy)}
    return {"acr": row.acr.mean, "acr_sd": row.acr.sd, "certified_accuracy": accuracy}


def _inputs(row: RunFacts | seeds.BestRow | TrainingTime) -> str:
    """``500``; ``20 of 500`` or ``20 so far`` for a run that isn't known to be complete."""
    if row.complete:
        return str(row.inputs)
    return f"{row.inputs} so far" if row.planned is None else f"{row.inputs} of {row.planned}"


def _run_cells(summary: RunSummary) -> tables.Row:
    n = tables.UNKNOWN if summary.n is None else str(summary.n)
    return (
        summary.run,
        data_in_words(summary.dataset, summary.split) or tables.UNKNOWN,
        tables.sigma_text(summary.sigma, unknown=tables.UNKNOWN) + summary.sigma_mark,
        norm_name(summary.norm),
        summary.bound or tables.UNKNOWN,
        n if summary.most_votes is None else f"≤ {summary.most_votes}",
        tables.UNKNOWN if summary.alpha is None else f"{summary.alpha:g}",
        _inputs(summary),
        f"{summary.acr:.3f}",
        *map(tables.percentage, summary.accuracy),
    )


def _by_sigma(runs: Sequence[Run], radii: Sequence[float]) -> dict[float | None, list[seeds.SeedSummary]]:
    """The rows of each σ, ascending, an unknown one last; runs that don't average have a row each."""
    methods: dict[float | None, dict[str, list[Run]]] = {}
    for run in runs:
        methods.setdefault(run.manifest.plan.sigma, {}).setdefault(seeds.method_of(run), []).append(run)
    rows: dict[float | None, list[seeds.SeedSummary]] = {}
    for sigma in sorted(methods, key=lambda value: (value is None, value or 0.0)):
        groups: list[tuple[str, list[Run]]] = []
        for method, same in methods[sigma].items():
            if len(same) == 1 or seeds.differ_in_seed_alone(same):
                groups.append((method, same))
                continue
            unique = len({run.name for run in same}) == len(same)
            groups += ((f"{method} ({run.name if unique else run.path})", [run]) for run in same)
        rows[sigma] = [
            seeds.summarise_seeds(seeds.SeedGroup(name, sigma or 0.0, tuple(same)), radii)
            for name, same in groups
        ]
    return rows


def _paper_section(
    dataset: str | None, sigmas: Mapping[float | None, Sequence[seeds.SeedSummary]], norm: str
) -> tables.Section:
    rows = [row for group in sigmas.values() for row in group]
    splits = {row.split for row in rows} - {None}
    heading = (
        data_in_words(dataset or "data set not stated", splits.pop() if len(splits) == 1 else None) or ""
    )
    mixed = [tables.sigma_text(sigma, "unknown") for sigma, rows in sigmas.items() if not _same_inputs(rows)]
    basis = _basis(rows)
    without = f" (no best at σ = {', '.join(mixed)}: rows on different inputs)" if mixed else ""
    return tables.Section(
        f"{tables.markdown_escaped(heading)}: {_title(norm)}, {basis}; bold: best of its σ{without}.",
        tuple(tuple(_paper_rows(sigma, group)) for sigma, group in sigmas.items()),
        f"{heading}: {basis}{without}",
    )


def _paper_rows(sigma: float | None, group: Sequence[seeds.SeedSummary]) -> list[tables.Row]:
    """σ on the first row only: no ``multirow`` is needed.

    Zeros, lone rows, and rows on different inputs or of other certainty (bound, n, α) are no best.
    """
    means = [[float(cell.partition("±")[0]) for cell in row.printed()] for row in group]
    highest = [max(column) for column in zip(*means)]
    alike = len({(row.bound, row.n, row.alpha) for row in group}) == 1
    rivals = len(group) > 1 and alike and _same_inputs(group)
    return [
        (
            "" if k else tables.sigma_text(sigma, tables.UNKNOWN),
            row.method,
            *(
                tables.Best(cell) if rivals and mean == top > 0 else cell
                for cell, mean, top in zip(row.printed(), means[k], highest)
            ),
        )
        for k, row in enumerate(group)
    ]


def _same_inputs(rows: Sequence[seeds.SeedSummary]) -> bool:
    return len({row.indices for row in rows}) == 1


def _basis(rows: Sequence[seeds.SeedSummary]) -> str:
    """What the figures rest on: stated where all rows agree, said to differ where they don't."""
    counts = sorted({row.inputs for row in rows})
    parts = [f"{counts[0]} inputs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} inputs"]
    counted = ((row.most_votes or row.n, "≤" if row.most_votes else "=") for row in rows)
    votes = {None if n is None else f"n {sign} {n}" for n, sign in counted}
    for differs, values in (
        ("bounds differ", {row.bound and f"{row.bound} bound" for row in rows}),
        ("n differs", votes),
        ("α differs", {None if row.alpha is None else f"α = {row.alpha:g}" for row in rows}),
    ):
        if len(values) > 1:
            parts.append(differs)
        elif (value := values.pop()) is not None:
            parts.append(value)
    if (unfinished := sum(not row.complete for row in rows)) > 0:
        parts.append(f"{unfinished} of {len(rows)} rows not complete")
    if any(row.seeds > 1 for row in rows):
        parts.append("mean±sd over seeds")
    return ", ".join(parts)
