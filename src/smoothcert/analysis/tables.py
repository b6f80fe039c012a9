"""Tables: summaries of runs as Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from smoothcert.analysis.metrics import RunSummary, check_same_norm, correct_radii
from smoothcert.errors import InvalidValueError
from smoothcert.registry import unknown_name
from smoothcert.runs import Run

_UNKNOWN = "–"
_NORM_NAMES = {"l1": "ℓ1", "l2": "ℓ2"}
_FIELD_STEP = Decimal("0.25")
_MOST_FIELD_STEPS = 12
_MOST_STEPS = 10
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def parse_radii(text: str) -> list[str]:
    """Split ``0,0.25,0.5`` into radii, each kept as it was typed."""
    radii = [part.strip() for part in text.split(",")]
    seen: dict[float, str] = {}
    for radius in radii:
        value = float(radius) if _DECIMAL.fullmatch(radius) else math.nan
        if not (math.isfinite(value) and value >= 0):
            raise InvalidValueError(
                f"radii must be numbers of at least 0 with commas between them, got {radius!r} in {text!r}"
            )
        if value in seen:
            raise InvalidValueError(
                f"radius {radius} is given twice in {text!r} (as {seen[value]}); leave one out"
            )
        seen[value] = radius
    return radii


def default_radii(runs: Sequence[Run]) -> list[str]:
    """Radii from 0 to just above the largest one certified correctly.

    They are the field's multiples of 0.25 where those make 2 to 12 columns, else multiples of a round number
    that make at most ten.
    """
    largest = max((float(r) for run in runs for r in correct_radii(run.records)[-1:]), default=0.0)
    reach = Decimal(largest)
    step = _FIELD_STEP
    if 0 < reach < 2 * _FIELD_STEP or reach >= _MOST_FIELD_STEPS * _FIELD_STEP:
        step = _round_step(reach)
    last = max(2, int((reach / step).to_integral_value(ROUND_FLOOR)) + 1)
    return [format((step * k).normalize(), "f") for k in range(last + 1)]


def render_table(summaries: Sequence[RunSummary], radii_as_typed: Sequence[str], format: str) -> str:
    """The table in one of :data:`TABLE_FORMATS`: ACR, and certified accuracy at each radius.

    Percentages are ``100 * (count / inputs)`` in float64, formatted to one decimal, so that an exact tie falls
    where the field's tables have it: 76.65 is published as 76.6 but 57.85 as 57.9, which no rule on
    exact decimals reproduces.
    """
    if format not in TABLE_FORMATS:
        raise unknown_name("table format", format, list(TABLE_FORMATS))
    if not summaries or not radii_as_typed:
        raise InvalidValueError(
            f"a table needs at least one run and one radius, got {len(summaries)} and {len(radii_as_typed)}"
        )
    for summary in summaries:
        if len(summary.accuracy) != len(radii_as_typed):
            raise InvalidValueError(
                f"run {summary.run} was summarised at {len(summary.accuracy)} radii, the table asks for "
                f"{len(radii_as_typed)}; summarise it at the radii of the table"
            )
    check_same_norm([(summary.run, summary.norm) for summary in summaries])
    return TABLE_FORMATS[format](summaries, radii_as_typed)


def _csv(summaries: Sequence[RunSummary], radii: Sequence[str]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["run", "sigma", "inputs", "acr", *radii])
    for summary in summaries:
        writer.writerow(
            [summary.run, _sigma(summary, unknown=""), summary.inputs, _acr(summary), *_percentages(summary)]
        )
    return stream.getvalue()


def _markdown(summaries: Sequence[RunSummary], radii: Sequence[str]) -> str:
    header = ["run", "σ", "norm", "bound", "n", "α", "inputs", "ACR", *radii]
    rows = [_stated_cells(summary) for summary in summaries]
    note = f"Certified accuracy (%) at {_norm_name(summaries)} radius:"
    return f"{note}\n\n{markdown_table(header, rows, text_columns={0, 2, 3})}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: set[int]) -> str:
    """Aligned for reading as plain text too: ``text_columns`` to the left, the others to the right."""
    rows = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(header, *rows)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if k in text_columns else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(cells, widths))
        )
        return f"| {' | '.join(padded)} |"

    rule = ["-" * w if k in text_columns else "-" * (w - 1) + ":" for k, w in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)]) + "\n"


def _latex(summaries: Sequence[RunSummary], radii: Sequence[str]) -> str:
    norm = f"$\\ell_{norm[1:]}$" if (norm := summaries[0].norm) in _NORM_NAMES else _latex_escaped(norm)
    first = 9
    span = f"{first}-{first + len(radii) - 1}"
    names = ["run", r"$\sigma$", "norm", "bound", "$n$", r"$\alpha$", "inputs", "ACR", *radii]
    rows = []
    for summary in summaries:
        cells = [_latex_escaped(cell).replace(_UNKNOWN, "--") for cell in _stated_cells(summary)]
        cells[2] = norm
        rows.append(" & ".join(cells) + r" \\")
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{lrllrrrr{'r' * len(radii)}}}",
        r"\toprule",
        rf"{'& ' * (first - 1)}\multicolumn{{{len(radii)}}}{{c}}{{certified accuracy (\%) at {norm} radius}} \\",
        rf"\cmidrule(l){{{span}}}",
        " & ".join(names) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _json(summaries: Sequence[RunSummary], radii: Sequence[str]) -> str:
    runs: list[dict[str, Any]] = [
        {
            "run": summary.run,
            "sigma": summary.sigma,
            "norm": summary.norm,
            "bound": summary.bound,
            "n": summary.n,
            "alpha": summary.alpha,
            "inputs": summary.inputs,
            "acr": summary.acr,
            "abstained": summary.abstained,
            "certified_accuracy": dict(zip(radii, summary.accuracy)),
        }
        for summary in summaries
    ]
    table = {"norm": summaries[0].norm, "radii": list(radii), "runs": runs}
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"


TABLE_FORMATS: dict[str, Callable[[Sequence[RunSummary], Sequence[str]], str]] = {
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "json": _json,
}
"""Every format a table can be written in."""


def _stated_cells(summary: RunSummary) -> list[str]:
    """A row that states what its figures rest on."""
    return [
        summary.run,
        _sigma(summary, unknown=_UNKNOWN),
        _NORM_NAMES.get(summary.norm, summary.norm),
        summary.bound or _UNKNOWN,
        _UNKNOWN if summary.n is None else str(summary.n),
        _UNKNOWN if summary.alpha is None else f"{summary.alpha:g}",
        str(summary.inputs),
        _acr(summary),
        *_percentages(summary),
    ]


def _sigma(summary: RunSummary, unknown: str) -> str:
    return unknown if summary.sigma is None else str(float(summary.sigma))


def _acr(summary: RunSummary) -> str:
    return f"{summary.acr:.3f}"


def _percentages(summary: RunSummary) -> list[str]:
    return [f"{100 * fraction:.1f}" for fraction in summary.accuracy]


def _norm_name(summaries: Sequence[RunSummary]) -> str:
    return _NORM_NAMES.get(summaries[0].norm, summaries[0].norm)


def _latex_escaped(text: str) -> str:
    return "".join(_LATEX_ESCAPES.get(character, character) for character in text)


def _round_step(reach: Decimal) -> Decimal:
    """The least of 1, 2.5 and 5 times a power of ten that reaches ``reach`` in at most ten steps."""
    power = Decimal(10) ** (reach.adjusted() - 1)
    while True:
        for factor in ("1", "2.5", "5"):
            step = power * Decimal(factor)
            if reach < step * _MOST_STEPS:
                return step
        power *= 10
