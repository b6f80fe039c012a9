"""One row for each run, with what its figures rest on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smoothcert.analysis.about import data_in_words
from smoothcert.analysis.metrics import RunSummary, check_same_norm
from smoothcert.analysis.tables.cells import (
    ABOUT,
    UNKNOWN,
    acr_text,
    csv_about,
    csv_escaped,
    csv_text,
    inputs_text,
    json_text,
    latex_escaped,
    latex_norm,
    markdown_table,
    percentage,
    sigma_text,
    stated,
)
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import norm_name
from smoothcert.registry import check_name

_FIELDS = (
    *("run", "dataset", "split", "sigma", "sigma_search", "sigma_per", "sigma_levels", "chooser", "norm"),
    *("bound", "n", "alpha", "inputs", "planned", "complete", "acr", "abstained"),
)


def render_table(summaries: Sequence[RunSummary], radii_as_typed: Sequence[str], format: str) -> str:
    """The table in one of :data:`TABLE_FORMATS`: ACR, and certified accuracy at each radius."""
    check_name("table format", format, TABLE_FORMATS)
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
    rows = [
        [
            csv_escaped(summary.run),
            sigma_text(summary.sigma, unknown=""),
            summary.inputs,
            acr_text(summary.acr),
            *map(percentage, summary.accuracy),
            *csv_about(summary),
        ]
        for summary in summaries
    ]
    return csv_text(["run", "sigma", "inputs", "acr", *radii, *ABOUT], rows)


def _markdown(summaries: Sequence[RunSummary], radii: Sequence[str]) -> str:
    header = ["run", "data", "σ", "norm", "bound", "n", "α", "inputs", "ACR", *radii]
    rows = [_stated_cells(summary) for summary in summaries]
    note = f"Certified accuracy (%) at {norm_name(summaries[0].norm)} radius:"
    return f"{note}\n\n{markdown_table(header, rows, text_columns={0, 1, 3, 4})}"


def _latex(summaries: Sequence[RunSummary], radii: Sequence[str]) -> str:
    norm = latex_norm(summaries[0].norm)
    first = 10
    span = f"{first}-{first + len(radii) - 1}"
    names = ["run", "data", r"$\sigma$", "norm", "bound", "$n$", r"$\alpha$", "inputs", "ACR", *radii]
    rows = []
    for summary in summaries:
        cells = [latex_escaped(cell).replace(UNKNOWN, "--") for cell in _stated_cells(summary)]
        cells[3] = norm
        rows.append(" & ".join(cells) + r" \\")
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{llrllrrrr{'r' * len(radii)}}}",
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
    runs = [
        stated(summary, _FIELDS) | {"certified_accuracy": dict(zip(radii, summary.accuracy))}
        for summary in summaries
    ]
    return json_text({"norm": summaries[0].norm, "radii": list(radii), "runs": runs})


TABLE_FORMATS: dict[str, Callable[[Sequence[RunSummary], Sequence[str]], str]] = {
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "json": _json,
}
"""Every format a table can be written in."""


def _votes_cell(summary: RunSummary) -> str:
    if summary.most_votes is not None:
        return f"≤ {summary.most_votes}"
    return UNKNOWN if summary.n is None else str(summary.n)


def _stated_cells(summary: RunSummary) -> list[str]:
    """A row that states what its figures rest on."""
    return [
        summary.run,
        data_in_words(summary.dataset, summary.split) or UNKNOWN,
        sigma_text(summary.sigma, unknown=UNKNOWN) + summary.sigma_mark,
        norm_name(summary.norm),
        summary.bound or UNKNOWN,
        _votes_cell(summary),
        UNKNOWN if summary.alpha is None else f"{summary.alpha:g}",
        inputs_text(summary.inputs, summary.planned, summary.complete),
        acr_text(summary.acr),
        *map(percentage, summary.accuracy),
    ]
