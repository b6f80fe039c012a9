"""Figures as they are printed, and the two kinds of text they are printed in."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from smoothcert.analysis.metrics import RunFacts
from smoothcert.plain_text import norm_name, shown_name

UNKNOWN = "–"
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
    "≤": r"$\leq$",
}


def latex_norm(norm: str) -> str:
    """A norm in LaTeX."""
    return f"$\\ell_{norm[1]}${latex_escaped(norm[2:])}" if norm_name(norm) != norm else latex_escaped(norm)


def sigma_text(sigma: float | None, unknown: str) -> str:
    """σ with at least one decimal and at most six digits: the mean of a diagonal noise's scales has sixteen."""
    return unknown if sigma is None else str(float(f"{sigma:.6g}"))


ABOUT = ("dataset", "split", "sigma_search", "sigma_per", "planned", "complete", "sigma_levels", "chooser")
"""The columns that say it in CSV and JSON."""


def csv_about(row: RunFacts) -> list[str]:
    """The row's :data:`ABOUT`; what isn't known is empty."""
    texts = (csv_escaped(text or "") for text in (row.dataset, row.split, row.sigma_search, row.sigma_per))
    planned, complete = "" if row.planned is None else str(row.planned), "true" if row.complete else "false"
    levels = " ".join(f"{sigma:g}" for sigma in row.sigma_levels or ())
    return [*texts, planned, complete, levels, csv_escaped(row.chooser or "")]


def inputs_text(inputs: int, planned: int | None, complete: bool) -> str:
    """``500``; ``20 of 500`` or ``20 so far`` for a run that isn't known to be complete."""
    if complete:
        return str(inputs)
    return f"{inputs} so far" if planned is None else f"{inputs} of {planned}"


def acr_text(acr: float) -> str:
    """Three decimals, as every paper has them."""
    return f"{acr:.3f}"


def percentage(fraction: float) -> str:
    """One decimal.

    It is ``100 * (count / inputs)`` in float64, formatted, so that an exact tie falls where the field's tables have
    it: 76.65 is published as 76.6 but 57.85 as 57.9, which no rule on exact decimals reproduces.
    """
    return f"{100 * fraction:.1f}"


def latex_escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX_ESCAPES.get(character, character) for character in shown_name(text))


def markdown_escaped(text: str) -> str:
    """Text of one line that is no HTML, link, picture or code to a reader of Markdown."""
    return re.sub(r"[|\[\]`]", r"\\\g<0>", shown_name(text)).replace("<", "&lt;")


def csv_escaped(text: str) -> str:
    """Text of one line that no spreadsheet takes for a formula."""
    text = shown_name(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A line for the header and for each row."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return stream.getvalue()


def json_text(value: object) -> str:
    """Indented, and in the letters of its texts."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def stated(row: object, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names."""
    return {name: getattr(row, name) for name in names}


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: set[int]) -> str:
    """Aligned for reading as plain text too: ``text_columns`` to the left, the others to the right."""
    rows = [[markdown_escaped(cell) for cell in row] for row in rows]
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(header, *rows)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if k in text_columns else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(cells, widths))
        )
        return f"| {' | '.join(padded)} |"

    rule = ["-" * w if k in text_columns else "-" * (w - 1) + ":" for k, w in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)]) + "\n"
