"""The papers' table in words: Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from smoothcert.analysis.about import data_in_words
from smoothcert.analysis.seeds import SeedSummary
from smoothcert.analysis.tables.cells import (
    ABOUT,
    UNKNOWN,
    acr_text,
    csv_about,
    csv_escaped,
    csv_text,
    json_text,
    latex_escaped,
    latex_norm,
    markdown_escaped,
    markdown_table,
    sigma_text,
    stated,
)
from smoothcert.analysis.tables.paper import DatasetBlock, PaperTable, SigmaBlock
from smoothcert.plain_text import norm_name
from smoothcert.registry import check_name

_FIELDS = (
    *("dataset", "split", "sigma", "sigma_search", "sigma_per", "sigma_levels", "chooser", "method", "seeds"),
    *("inputs", "planned", "complete", "bound", "n", "alpha"),
)
_LATEX_NOTE = r"% needs \usepackage{booktabs}; a bold value is the best of its \sigma, ties included"
_LATEX_CHARACTERS = {"±": r"$\pm$", "σ": r"$\sigma$", "α": r"$\alpha$", "η": r"$\eta$", UNKNOWN: "--"}


def render_paper_table(table: PaperTable, format: str) -> str:
    """The table in one of :data:`PAPER_FORMATS`.

    Markdown and LaTeX set the best value of a column within one σ in bold, all of them where they are printed alike,
    and name σ on the first row of its block only: no ``multirow`` is needed. CSV and JSON mark nothing and repeat σ;
    standard deviations of the percentages are in JSON alone.
    """
    check_name("table format", format, PAPER_FORMATS)
    return PAPER_FORMATS[format](table)


def _markdown(table: PaperTable) -> str:
    parts = []
    for block in table.datasets:
        header = ["σ", "method", "ACR", *table.radii]
        rows = [
            [sigma, row.method, *(f"**{cell}**" if best else cell for cell, best in cells)]
            for part in block.sigmas
            for sigma, row, cells in _lines(part)
        ]
        heading = (
            f"{markdown_escaped(_heading(block))}: certified accuracy (%) at {norm_name(table.norm)} radius"
        )
        note = f"{heading}, {_basis(block.rows)}; bold: best of its σ{_without_best(block)}."
        parts.append(f"{note}\n\n{markdown_table(header, rows, text_columns={1})}")
    return "\n".join(parts)


def _latex(table: PaperTable) -> str:
    width = 3 + len(table.radii)
    title = rf"certified accuracy (\%) at {latex_norm(table.norm)} radius"
    lines = [
        _LATEX_NOTE,
        rf"\begin{{tabular}}{{llr{'r' * len(table.radii)}}}",
        r"\toprule",
        rf"& & & \multicolumn{{{len(table.radii)}}}{{c}}{{{title}}} \\",
        rf"\cmidrule(l){{4-{width}}}",
        " & ".join([r"$\sigma$", "method", "ACR", *table.radii]) + r" \\",
    ]
    for block in table.datasets:
        heading = f"{_heading(block)}: {_basis(block.rows)}{_without_best(block)}"
        lines += [r"\midrule", rf"\multicolumn{{{width}}}{{l}}{{\textit{{{_latex_words(heading)}}}}} \\"]
        for part in block.sigmas:
            lines.append(r"\midrule")
            for sigma, row, cells in _lines(part):
                figures = [
                    rf"\textbf{{{_latex_words(cell)}}}" if best else _latex_words(cell)
                    for cell, best in cells
                ]
                lines.append(" & ".join([_latex_words(sigma), _latex_words(row.method), *figures]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _csv(table: PaperTable) -> str:
    header = ["dataset", "sigma", "method", "seeds", "inputs", "acr", "acr_sd"]
    rows: list[list[object]] = []
    for block in table.datasets:
        for part in block.sigmas:
            sigma = sigma_text(part.sigma, unknown="")
            for row in part.rows:
                acr, *shares = (cell.partition("±")[0] for cell in row.printed())
                spread = "" if row.acr.sd is None else acr_text(row.acr.sd)
                dataset, *about = csv_about(row)
                named = [dataset, sigma, csv_escaped(row.method), row.seeds, row.inputs]
                rows.append([*named, acr, spread, *shares, *about])
    return csv_text([*header, *table.radii, *ABOUT[1:]], rows)


def _json(table: PaperTable) -> str:
    rows = [
        {
            **stated(row, _FIELDS),
            "sigma": part.sigma,
            "acr": row.acr.mean,
            "acr_sd": row.acr.sd,
            "certified_accuracy": row.spreads(table.radii),
        }
        for block in table.datasets
        for part in block.sigmas
        for row in part.rows
    ]
    return json_text({"norm": table.norm, "radii": list(table.radii), "rows": rows})


PAPER_FORMATS: dict[str, Callable[[PaperTable], str]] = {
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "json": _json,
}
"""Every format the papers' table can be written in."""


def _lines(block: SigmaBlock) -> Iterator[tuple[str, SeedSummary, list[tuple[str, bool]]]]:
    """σ (on the first line only), the row, and its figures, each with whether it is the best."""
    for k, (row, best) in enumerate(zip(block.rows, block.best())):
        yield "" if k else sigma_text(block.sigma, unknown=UNKNOWN), row, list(zip(row.printed(), best))


def _heading(block: DatasetBlock) -> str:
    return data_in_words(block.dataset or "data set not stated", block.split) or ""


def _without_best(block: DatasetBlock) -> str:
    """Where rows are on different inputs, and none is called the best."""
    sigmas = [sigma_text(part.sigma, unknown="unknown") for part in block.sigmas if not part.same_inputs]
    return f" (no best at σ = {', '.join(sigmas)}: rows on different inputs)" if sigmas else ""


def _basis(rows: Sequence[SeedSummary]) -> str:
    """What the figures rest on: stated where all rows agree, said to differ where they don't."""
    counts = sorted({row.inputs for row in rows})
    parts = [f"{counts[0]} inputs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} inputs"]
    bounds = {row.bound for row in rows}
    if len(bounds) > 1:
        parts.append("bounds differ")
    elif (bound := bounds.pop()) is not None:
        parts.append(f"{bound} bound")
    for name, values in (
        ("n", {_votes_words(row) for row in rows}),
        ("α", {None if row.alpha is None else f"α = {row.alpha:g}" for row in rows}),
    ):
        if len(values) > 1:
            parts.append(f"{name} differs")
        elif (value := values.pop()) is not None:
            parts.append(value)
    if (unfinished := sum(not row.complete for row in rows)) > 0:
        parts.append(f"{unfinished} of {len(rows)} rows not complete")
    if any(row.seeds > 1 for row in rows):
        parts.append("mean±sd over seeds")
    return ", ".join(parts)


def _votes_words(row: SeedSummary) -> str | None:
    if row.most_votes is not None:
        return f"n ≤ {row.most_votes}"
    return None if row.n is None else f"n = {row.n}"


def _latex_words(text: str) -> str:
    plain = latex_escaped(text)
    for character, command in _LATEX_CHARACTERS.items():
        plain = plain.replace(character, command)
    return plain
