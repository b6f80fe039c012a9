"""`smoothcert plan`: what a certification will cost, before anything is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from smoothcert.commands.asked import CertificationOptions
from smoothcert.commands.options import ModelName

if TYPE_CHECKING:
    from smoothcert.evaluation.costs import Pace, Work
    from smoothcert.evaluation.planning import Pilot
    from smoothcert.smoothing import CertifyPlan


def plan(
    model: ModelName,
    *,
    options: CertificationOptions = CertificationOptions(),
    pilot_inputs: int = 8,
    price_per_hour: float | None = None,
    format: Literal["text", "json"] = "text",
    quiet: bool = False,
) -> None:
    """Say what `certify` with the same options would cost: votes, forward passes, hours, disk and money.

    Votes a second are measured here for a second or two, on the device, route and workers that the options name. With
    `--stop`, real votes on a few inputs (`--pilot-inputs`) say how many of the votes will be needed. Nothing is
    written, and none of these votes certifies anything.

    With `--backend ray --workers 64` the workers are taken to be as fast as one here. It is a forecast: the inputs of
    the pilot may be easier than others, and a machine that is busier later is slower.

    Example: `smoothcert plan runs/digits --n 100000 --stop pilot:1% --price-per-hour 2.5`

    Parameters
    ----------
    pilot_inputs
        Inputs, evenly from all, whose votes tell what share the stop rules will need.
    price_per_hour
        What an hour of all workers together costs, in any currency.
    format
        text, or json: one object on standard output.
    quiet
        No progress.
    """
    import time

    from smoothcert.analysis.ceiling import planned_ceiling
    from smoothcert.commands.console import progress_bar
    from smoothcert.errors import InvalidValueError, check_count, check_not_negative
    from smoothcert.evaluation.costs import bytes_on_disk
    from smoothcert.evaluation.planning import fixed_draws, paced, piloted, work_of
    from smoothcert.runs.statement import PlanStatement

    check_count("pilot inputs (--pilot-inputs)", pilot_inputs)
    if price_per_hour is not None:
        check_not_negative("price per hour (--price-per-hour)", price_per_hour)
    asked = options.of(model)
    classifier, inputs = asked.classifier, asked.inputs
    indices = asked.choice.indices(len(inputs))
    if not indices:
        raise InvalidValueError(f"--shard {options.shard} has no inputs: there are fewer inputs than shards")
    classifier.plan.budget.check_inputs(len(indices), classifier.plan.n0)
    chosen = indices[:: max(1, len(indices) // pilot_inputs)][:pilot_inputs]
    began = time.perf_counter()
    settled = classifier.prepare(inputs.input_shape)
    start = time.perf_counter() - began
    some = list(inputs.each(chosen))
    silent = quiet or format == "json"
    with progress_bar("measuring", "votes", silent) as bar:
        bar.begin(None, len(some))
        pace = paced(classifier, some, start)
        whole = work_of(settled, len(indices), fixed_draws(settled, len(indices)))
        pilot = None
        if settled.stops and not settled.budget.spreads:
            pilot = piloted(classifier, inputs, some, pace, bar.advance)
    work = whole
    if pilot is not None:
        searched = () if settled.search is None else ((1.0, settled.search.evaluations),)
        work = work_of(settled, len(indices), (*pilot.draws, *searched))
    statement = PlanStatement(settled.as_json())
    told = _told(settled, whole, work, pace, pilot) | {
        "inputs": len(indices),
        "bytes": bytes_on_disk(len(indices), classifier.classes),
        "largest_radius": planned_ceiling(statement),
        "device": classifier.execution.device,
        "backend": classifier.execution.backend,
        "workers": classifier.execution.worker_count(),
        "price_per_hour": price_per_hour,
        "cost": None if price_per_hour is None else price_per_hour * pace.seconds(work) / 3600,
    }
    if format == "json":
        print(json.dumps(told))
    else:
        _show(told, settled)


def _told(settled: CertifyPlan, whole: Work, work: Work, pace: Pace, pilot: Pilot | None) -> dict[str, Any]:
    layout = settled.numerics.layout()
    per_row = work.votes / work.rows
    return {
        "votes_planned": round(whole.votes),
        "votes_expected": round(work.votes),
        "expected_share": work.votes / whole.votes,
        "pilot": None if pilot is None else {"inputs": pilot.inputs, "votes_each": pilot.votes},
        "forward_passes": round(work.passes),
        "rows_of_a_pass": layout.chunk,
        "route": settled.numerics.route,
        "dtype": settled.numerics.dtype,
        "votes_per_second": pace.rows_per_second * per_row,
        "seconds": pace.seconds(work),
        "seconds_without_stopping": pace.seconds(whole),
        "start_seconds": pace.start_seconds,
        "bottleneck": pace.bottleneck(work),
    }


def _show(told: dict[str, Any], settled: CertifyPlan) -> None:
    from rich.table import Table

    from smoothcert.commands.console import print_figures
    from smoothcert.commands.progress import clock
    from smoothcert.plain_text import norm_name

    rows = [
        ("inputs", f"{told['inputs']:,}", f"n0 = {settled.n0}, n = {settled.n}, α = {settled.alpha:g}"),
        ("votes at most", f"{told['votes_planned']:,}", ""),
    ]
    if (pilot := told["pilot"]) is not None:
        why = f"as {pilot['inputs']} inputs with {pilot['votes_each']} votes each suggest"
        share = f"{100 * told['expected_share']:.1f} % of them, {why}"
        rows.append(("votes expected", f"{told['votes_expected']:,}", share))
    passes = f"of {told['rows_of_a_pass']} rows, {told['route']}, {told['dtype']}"
    rows.append(("forward passes", f"{told['forward_passes']:,}", passes))
    workers = f"{told['workers']} × {told['device']}, {told['backend']}"
    rows.append(("votes a second", f"{told['votes_per_second']:,.0f}", workers))
    hours = f"{told['seconds'] / 3600:.3g} hours; {told['start_seconds']:.1f} s to start"
    rows.append(("time", clock(told["seconds"]), hours))
    if told["bottleneck"] != "votes":
        rows.append(("", "", "records are written more slowly than votes are cast: take shards"))
    if told["cost"] is not None:
        rows.append(("cost", f"{told['cost']:,.2f}", f"at {told['price_per_hour']:g} an hour"))
    rows.append(("disk", f"{told['bytes'] / 1e6:,.1f} MB", ""))
    if (radius := told["largest_radius"]) is not None:
        why = f"in {norm_name(settled.certificate.norm)}, of a unanimous vote with the {settled.bound} bound"
        rows.append(("largest radius", f"{radius:.4g}", why))
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for row in rows:
        table.add_row(*row)
    print_figures(table)
