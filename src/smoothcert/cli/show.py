"""`smoothcert show`: one run in full, with what it proves about other inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from smoothcert.analysis.evidence import off_grid_in_words, printed_radii
from smoothcert.analysis.facts import Departures, data_in_words, votes_used
from smoothcert.cli.arguments import RunPath, chosen_beforehand
from smoothcert.cli.console import View, emit, figure_table
from smoothcert.cli.options import OutputOptions
from smoothcert.errors import RunError
from smoothcert.runs.run import Run, read_run

if TYPE_CHECKING:
    from smoothcert.analysis.overview import RunOverview


def show(
    run: RunPath,
    *,
    radii: str | None = None,
    confidence: float = 0.99,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Show one run in full: accuracies by name, confidence, classes, time, and what it proves about other inputs.

    *Base* accuracy is the model's alone, without noise; *noisy* accuracy its share of right votes under noise;
    *smoothed* accuracy that of the smoothed classifier, the only one that certificates are about. "Proved" is a lower
    bound for inputs from the same distribution, false certificates allowed for; the statements of all radii hold
    together with the probability `--confidence`. A few inputs with over-confident answers can carry the
    mean radius: see the spread of p_A, and the surest tenth's share of the ACR. For an unfinished run only counts are
    shown; statements and intervals wait until it is complete.

    Example: `smoothcert show runs/digits-cert --radii 0,0.25,0.5`

    Parameters
    ----------
    run
        Run directory made by certify or run import.
    radii
        Radii to report, with commas or spaces between them (default: up to the largest that n and alpha allow).
    confidence
        Probability with which the statements about other inputs hold together.
    """
    from smoothcert.analysis.changes import RHOS, CertifiedChanges, is_of_changes
    from smoothcert.analysis.overview import overview, used_json
    from smoothcert.analysis.tables import default_radii

    read = read_run(run)
    chosen = chosen_beforehand(radii, [read])
    typed = default_radii([read]) if chosen is None else chosen
    lost = off_grid_in_words(read)  # first: scales that are damaged are no reason to state nothing
    whole = overview(read, [float(radius) for radius in typed])
    proved: list[str] | str = (
        f"{run} doesn't state how large radii could be, so its results chose those above; give --radii for statements"
        if chosen is None
        else _statements(read, chosen, confidence)
    )
    notes = [*([] if lost is None else [_off_grid(lost)]), *Departures.of(read.manifest).in_words()]
    data = {**asdict(whole), **used_json(read), "notes": notes, "statements": proved}
    if is_of_changes(read):
        data["changes"] = CertifiedChanges.of(read).as_json(RHOS)
    emit(View(data, _parts(read, whole, typed, proved, lost)), output)


def _statements(run: Run, typed: list[str], confidence: float) -> list[str] | str:
    from smoothcert.analysis.intervals import statement

    try:
        return [statement(run, float(radius), confidence, among=len(typed)) for radius in typed]
    except RunError as error:
        return str(error)


def _off_grid(lost: str) -> str:
    return (
        f"Radii are around the point of the noise's grid that is nearest to an input: subtract {lost} for radii that "
        "hold for any numbers, as statements do"
    )


def _parts(
    run: Run, whole: RunOverview, typed: list[str], proved: list[str] | str, lost: str | None
) -> Iterator[str | Text | Table]:
    from smoothcert.analysis.changes import is_of_changes
    from smoothcert.analysis.overview import levels_used
    from smoothcert.analysis.tables import sigma_text
    from smoothcert.cli.tables import changes_parts

    summary = whole.summary
    held = f"{summary.inputs} inputs" if run.shortfall is None else run.shortfall
    yield Text(f"{summary.run}: {held}", "bold")
    sigma = sigma_text(summary.sigma, "not stated") + summary.sigma_mark
    data = data_in_words(summary.dataset, summary.split) or "not stated"
    yield f"  data: {data}; σ: {sigma}"
    for name, share in (
        ("base accuracy (no noise, no certificate)", whole.base_accuracy),
        ("noisy accuracy of the base classifier", whole.noisy_accuracy),
        ("smoothed accuracy (certified at radius 0)", whole.smoothed_accuracy),
        ("abstained", summary.abstained),
    ):
        yield f"  {name}: {_percent(share)}"
    yield _acr_line(run, whole)
    if whole.runtime is not None:
        rate = whole.runtime.votes_per_second
        votes = "" if rate is None else f", {rate:,.0f} votes a second"
        yield f"  time: {whole.runtime.total_seconds:,.1f} s of workers{votes}"
    if (used := votes_used(run)) is not None:
        yield f"  votes: {used.in_words()}"
    if (levels := levels_used(run)) is not None:
        for sentence in levels.sentences():
            yield f"  {sentence}"
    yield _spread_line(whole)
    yield _class_table(whole, typed)
    if is_of_changes(run):
        yield from changes_parts(run)
    if (printed := printed_radii(run)) is not None:
        yield (
            f"Radii are as the log prints them, rounded to {printed.digits} digits; statements and intervals allow for "
            "half a unit of the last one."
        )
    if lost is not None:
        yield f"{_off_grid(lost)}."
    if run.manifest.kind == "certify" and run.manifest.plan.stream is None:
        yield (
            "Noise was added in floating point, as in every version before: certificates don't cover "
            "classifiers that read low-order bits. Certify again for those that do."
        )
    for departure in Departures.of(run.manifest).in_words():
        yield f"Note: {departure}."
    if isinstance(proved, str):
        yield f"Nothing is proved about other inputs: {proved}."
        return
    for sentence in proved:
        yield f"Proved: {sentence}."
    if run.manifest.plan.recertified_from:
        yield "The run was recertified: this holds if α and bound were chosen without looking at its votes."


def _acr_line(run: Run, whole: RunOverview) -> str:
    from smoothcert.analysis.intervals import acr_interval

    try:
        low, high = acr_interval(run)
        ends = f"{math.floor(1e3 * low) / 1e3:.3f} to {math.ceil(1e3 * high) / 1e3:.3f}"
        between = f" (95 % interval over the choice of inputs: {ends})"
    except RunError as error:
        between = f" (no interval: {error.fault or error})"
    top = whole.acr_share_of_top
    share = "" if top is None else f", surest tenth {100 * top:.0f} % of it"
    return f"  ACR: {whole.summary.acr:.3f}{between}{share}; median radius {whole.median_radius:.3f}"


def _spread_line(whole: RunOverview) -> str:
    from smoothcert.analysis.overview import QUANTILES

    if whole.top_class is None:
        return "  p_A: missing (there are no votes to estimate it from)"
    at, names = dict(zip(QUANTILES, whole.top_class.estimates)), {0.05: "5 %", 0.5: "median", 0.95: "95 %"}
    shown = ", ".join(f"{name} {at[quantile]:.4f}" for quantile, name in names.items())
    inputs, of = whole.top_class.inputs, whole.summary.inputs
    whose = "inputs" if inputs == of else f"these {inputs} of {of} inputs, which alone have estimation votes"
    return f"  p_A: {shown}; all votes for one class: {_percent(whole.top_class.at_ceiling)} of {whose}"


def _class_table(whole: RunOverview, typed: list[str]) -> Table:
    headings = ("class", "inputs", "abstained", "ACR", *typed)
    table = figure_table(*headings, title="certified accuracy (%) at radius, by class")
    for one in whole.classes:
        if one.accuracy is None or one.acr is None:
            table.add_row(str(one.label), "0", *["–"] * (len(typed) + 2))
            continue
        figures = (f"{100 * share:.1f}" for share in one.accuracy)
        table.add_row(str(one.label), str(one.inputs), _percent(one.abstained), f"{one.acr:.3f}", *figures)
    return table


def _percent(share: float | None) -> str:
    return "missing" if share is None else f"{100 * share:.1f} %"
