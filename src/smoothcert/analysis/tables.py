"""One table, a renderer for each format, and the radii that head its columns.

A :class:`Table` holds what readers see and what programs read; :data:`FORMATS` writes it as Markdown, LaTeX, CSV or
JSON. What a table shows of runs is a layout's decision (:mod:`smoothcert.analysis.layouts`).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from smoothcert.analysis.metrics import largest_radius
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import shown_name
from smoothcert.registry import check_name
from smoothcert.runs.run import Run

UNKNOWN = "–"
"""A cell whose value isn't known."""

_TEXT_COLUMNS = frozenset({"run", "data", "method", "norm", "bound"})  # aligned left, all others are figures
_LATEX = {
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
    "≤": r"$\leq$",
    "±": r"$\pm$",
    "σ": r"$\sigma$",
    "α": r"$\alpha$",
    "η": r"$\eta$",
    UNKNOWN: "--",
}
_FIELD_STEP = Decimal("0.25")
_MOST_FIELD_STEPS, _MOST_STEPS = 12, 10
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

Row = tuple[str, ...]


class Best(str):
    """A cell that no other of its group exceeds: set in bold."""


@dataclass(frozen=True)
class Section:
    """Rows under one note (Markdown) or ``heading`` (LaTeX); a line is drawn between ``groups``."""

    note: str
    groups: tuple[tuple[Row, ...], ...]
    heading: str | None = None


@dataclass(frozen=True)
class Table:
    """``sections`` of rows under ``columns`` for readers; ``records`` for CSV and ``value`` for JSON.

    The last ``radii`` columns have ``title`` above them in LaTeX.
    """

    columns: Row
    sections: tuple[Section, ...]
    records: Sequence[Mapping[str, object]]
    value: object
    title: str = ""
    radii: int = 0


def render(table: Table, format: str) -> str:
    """The table in one of :data:`FORMATS`."""
    check_name("table format", format, FORMATS)
    return FORMATS[format](table)


def _markdown(table: Table) -> str:
    text = {k for k, name in enumerate(table.columns) if name in _TEXT_COLUMNS}
    sections = ((each.note, [row for group in each.groups for row in group]) for each in table.sections)
    return "\n".join(f"{note}\n\n{markdown_table(table.columns, rows, text)}" for note, rows in sections)


def _latex(table: Table) -> str:
    width = len(table.columns)
    groups = [group for section in table.sections for group in section.groups]
    bold = any(isinstance(cell, Best) for group in groups for row in group for cell in row)
    alignment = "".join("rl"[k == 0 or name in _TEXT_COLUMNS] for k, name in enumerate(table.columns))
    lines = [
        r"% needs \usepackage{booktabs}"
        + (r"; a bold value is the best of its \sigma, ties included" * bold),
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
    ]
    if table.radii:
        first = width - table.radii + 1
        title = latex_escaped(table.title)
        lines.append(rf"{'& ' * (first - 1)}\multicolumn{{{table.radii}}}{{c}}{{{title}}} \\")
        lines.append(rf"\cmidrule(l){{{first}-{width}}}")
    lines.append(" & ".join("$n$" if name == "n" else latex_escaped(name) for name in table.columns) + r" \\")
    for section in table.sections:
        if section.heading is not None:
            heading = rf"\multicolumn{{{width}}}{{l}}{{\textit{{{latex_escaped(section.heading)}}}}} \\"
            lines += [r"\midrule", heading]
        for group in section.groups:
            lines.append(r"\midrule")
            lines += (" & ".join(map(_latex_cell, row)) + r" \\" for row in group)
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.records[0])
    writer.writerows(map(_csv_cell, record.values()) for record in table.records)
    return stream.getvalue()


def _json(table: Table) -> str:
    return json.dumps(table.value, indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "json": _json,
}
"""Every format that a table can be written in."""


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Container[int]) -> str:
    """Aligned for reading as plain text as well: ``text_columns`` to the left, the others to the right."""
    rows = [
        [f"**{cell}**" if isinstance(cell, Best) else markdown_escaped(cell) for cell in row] for row in rows
    ]
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(header, *rows)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if k in text_columns else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(cells, widths))
        )
        return f"| {' | '.join(padded)} |"

    rule = ["-" * w if k in text_columns else "-" * (w - 1) + ":" for k, w in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)]) + "\n"


def markdown_escaped(text: str) -> str:
    """Text of one line that is not HTML, link, picture or code to a reader of Markdown."""
    return re.sub(r"[|\[\]`]", r"\\\g<0>", shown_name(text)).replace("<", "&lt;")


def latex_escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    plain = "".join(_LATEX.get(character, character) for character in shown_name(text))
    return re.sub(r"ℓ(\d)", r"$\\ell_\1$", plain)


def csv_escaped(text: str) -> str:
    """Text of one line that no spreadsheet takes for a formula."""
    text = shown_name(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def percentage(share: float) -> str:
    """One decimal.

    It is ``100 * (count / inputs)`` in float64, formatted, so that an exact tie falls where the field's tables have
    it: 76.65 is published as 76.6 but 57.85 as 57.9, which no rule on exact decimals reproduces.
    """
    return f"{100 * share:.1f}"


def sigma_text(sigma: float | None, unknown: str) -> str:
    """σ with at least one decimal and at most six digits: the mean of a diagonal noise's scales has sixteen."""
    return unknown if sigma is None else str(float(f"{sigma:.6g}"))


def parse_radii(text: str) -> list[str]:
    """Split ``0,0.25,0.5`` into radii, each kept as it was typed."""
    radii = [part.strip() for part in text.split(",")]
    seen: dict[float, str] = {}
    for radius in radii:
        value = float(radius) if _DECIMAL.fullmatch(radius) else math.nan
        if not (math.isfinite(value) and value >= 0):
            raise InvalidValueError(
                f"radii must be numbers ≥ 0 with commas between, got {radius!r} in {text!r}"
            )
        if value in seen:
            raise InvalidValueError(f"radius {radius} is twice in {text!r} (as {seen[value]}); leave one out")
        seen[value] = radius
    return radii


def default_radii(runs: Sequence[Run]) -> list[str]:
    """Radii from 0 to just above the largest one certified correctly.

    They are the field's multiples of 0.25 where those make 2 to 12 columns, else multiples of a round number
    that make at most ten.
    """
    return radii_up_to(max((largest_radius(run.records) for run in runs), default=0.0))


def radii_up_to(largest: float) -> list[str]:
    """The same up to just above a radius."""
    reach = Decimal(largest)
    if 0 < reach < 2 * _FIELD_STEP or reach >= _MOST_FIELD_STEPS * _FIELD_STEP:
        return round_radii(largest, _MOST_STEPS)
    return _multiples(_FIELD_STEP, reach)


def round_radii(largest: float, most: int) -> list[str]:
    """The same by the least of 1, 2.5 and 5 times a power of ten that takes at most ``most`` steps."""
    reach = Decimal(largest)
    power = Decimal(10) ** (reach.adjusted() - 3)
    while True:
        for factor in ("1", "2.5", "5"):
            if reach < (step := power * Decimal(factor)) * most:
                return _multiples(step, reach)
        power *= 10


def _multiples(step: Decimal, reach: Decimal) -> list[str]:
    last = max(2, int((reach / step).to_integral_value(ROUND_FLOOR)) + 1)
    return [format((step * k).normalize(), "f") for k in range(last + 1)]


def _latex_cell(cell: str) -> str:
    return rf"\textbf{{{latex_escaped(cell)}}}" if isinstance(cell, Best) else latex_escaped(cell)


def _csv_cell(value: Any) -> object:
    if isinstance(value, str):
        return csv_escaped(value)
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(f"{each:g}" for each in value) if isinstance(value, tuple) else value
