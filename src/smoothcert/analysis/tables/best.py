"""The papers' envelope as a table: the best certified accuracy of each method at each radius, over its runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.analysis.about import data_in_words, dataset_of, split_of
from smoothcert.analysis.metrics import check_same_indices, check_same_norm, counted_radii, summarise
from smoothcert.analysis.tables.cells import (
    csv_escaped,
    csv_text,
    inputs_text,
    json_text,
    markdown_escaped,
    markdown_table,
    stated,
)
from smoothcert.analysis.tables.naming import check_one_dataset, check_one_protocol, method_of
from smoothcert.plain_text import norm_name
from smoothcert.registry import check_name
from smoothcert.runs import Run


@dataclass(frozen=True)
class BestRow:
    """A method's best over its runs, of ACR and of the accuracy (0 to 1) at each radius, each with the run it is of.

    ``oracle`` is the ACR if every input could choose its run after all were certified.
    """

    method: str
    runs: int
    inputs: int
    acr: tuple[float, str]
    oracle: float
    accuracy: tuple[tuple[float, str], ...]
    dataset: str | None = None
    split: str | None = None
    planned: int | None = None
    complete: bool = True
    """How many inputs were asked for, and whether every run has them all."""


def best_rows(runs: Sequence[Run], radii: Sequence[float]) -> list[BestRow]:
    """A row for each method, over all its σ and searches (data-dependent smoothing, Tables 1 to 3).

    Each figure is a maximum over runs, chosen on the inputs that it is shown for: no one model reaches all of them,
    and the choice flatters, most of all the oracle's. That one is here because the papers' ACR of these tables lie
    above what any of their runs can have. Refused where a method's runs are on different inputs.
    """
    check_same_norm([(str(run.path), run.norm) for run in runs])
    check_one_dataset(runs)
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(method_of(run), []).append(run)
    return [_row(method, mine, radii) for method, mine in members.items()]


def _row(method: str, runs: Sequence[Run], radii: Sequence[float]) -> BestRow:
    check_same_indices(runs)  # the best would be that of the easier ones
    check_one_protocol(runs)
    summaries = [(summarise(run, radii), str(run.path)) for run in runs]
    return BestRow(
        method,
        len(runs),
        len(runs[0].records),
        max((summary.acr, path) for summary, path in summaries),
        math.fsum(np.max([counted_radii(run.records) for run in runs], axis=0)) / len(runs[0].records),
        tuple(max((summary.accuracy[k], path) for summary, path in summaries) for k in range(len(radii))),
        next((name for run in runs if (name := dataset_of(run)) is not None), None),
        next((name for run in runs if (name := split_of(run)) is not None), None),
        max((summary.planned for summary, _ in summaries if summary.planned is not None), default=None),
        all(summary.complete for summary, _ in summaries),
    )


def render_best(rows: Sequence[BestRow], radii_as_typed: Sequence[str], norm: str, format: str) -> str:
    """The rows in one of :data:`BEST_FORMATS`."""
    check_name("format of this layout", format, BEST_FORMATS)
    return BEST_FORMATS[format](rows, radii_as_typed, norm)


def _markdown(rows: Sequence[BestRow], radii: Sequence[str], norm: str) -> str:
    cells = [
        [
            row.method,
            str(row.runs),
            inputs_text(row.inputs, row.planned, row.complete),
            f"{row.acr[0]:.3f}",
            f"{row.oracle:.3f}",
            *(f"{100 * a:.1f}" for a, _ in row.accuracy),
        ]
        for row in rows
    ]
    data = data_in_words(rows[0].dataset, rows[0].split) or "data set not stated"
    note = (
        f"{markdown_escaped(data)}: "
        f"best certified accuracy (%) at each {norm_name(norm)} radius, and best ACR, over each method's runs; every "
        "figure may be another run's. Oracle: the ACR if each input had its best run, which only its certificates "
        "tell, so that no classifier has it:"
    )
    heads = ["method", "runs", "inputs", "ACR", "oracle", *radii]
    return f"{note}\n\n{markdown_table(heads, cells, text_columns={0})}"


def _csv(rows: Sequence[BestRow], radii: Sequence[str], _norm: str) -> str:
    lines = [
        [
            csv_escaped(row.method),
            *(row.runs, row.inputs),
            *(row.acr[0], row.oracle),
            *(best for best, _ in row.accuracy),
            *(csv_escaped(text or "") for text in (row.dataset, row.split)),
            *("" if row.planned is None else row.planned, "true" if row.complete else "false"),
        ]
        for row in rows
    ]
    return csv_text(
        ["method", "runs", "inputs", "acr", "oracle_acr", *radii, "dataset", "split", "planned", "complete"],
        lines,
    )


def _json(rows: Sequence[BestRow], radii: Sequence[str], norm: str) -> str:
    plain = [
        {
            **stated(row, ("dataset", "split", "method", "runs", "inputs", "planned", "complete")),
            "acr": {"best": row.acr[0], "run": row.acr[1]},
            "oracle_acr": row.oracle,
            "certified_accuracy": {
                radius: {"best": best, "run": path} for radius, (best, path) in zip(radii, row.accuracy)
            },
        }
        for row in rows
    ]
    return json_text({"norm": norm, "radii": list(radii), "rows": plain})


BEST_FORMATS: dict[str, Callable[[Sequence[BestRow], Sequence[str], str], str]] = {
    "markdown": _markdown,
    "csv": _csv,
    "json": _json,
}
"""Every format that the table can be written in."""
