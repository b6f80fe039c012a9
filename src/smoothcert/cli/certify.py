"""`smoothcert certify`: prove how robust a model is, input by input, into a run that survives a kill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from rich.table import Column, Table

from smoothcert.analysis.evidence import planned_ceiling
from smoothcert.analysis.facts import TRAINED, uninformative
from smoothcert.cli.arguments import foreign_fit
from smoothcert.cli.certification import Asked, CertificationOptions, certify_with_bar, run_view
from smoothcert.cli.console import View, emit, note, progress_bar, warn
from smoothcert.cli.options import Held, ModelName, ModelOptions, OutputOptions, held_back
from smoothcert.cli.progress import clock
from smoothcert.errors import InvalidValueError, check_count, check_not_negative
from smoothcert.perturb.base import NOISES, PERTURBATIONS
from smoothcert.plain_text import beside, command, norm_name
from smoothcert.runs.side_files import read_searches, searches_in_words
from smoothcert.runs.statement import PlanStatement
from smoothcert.smoothing.plan import CertifyPlan, former_default
from smoothcert.smoothing.stores.base import store_for

if TYPE_CHECKING:
    from smoothcert.smoothing.classifier import ModelClassifier
    from smoothcert.smoothing.holding import HoldingClassifier


DRY_RUN = Group("What it will cost", sort_key=12)


def certify(
    model: ModelName,
    *,
    out: Path | None = None,
    options: CertificationOptions = CertificationOptions(),
    hold: Held = None,
    memory: str | None = None,
    dry_run: Annotated[bool, Parameter(group=DRY_RUN)] = False,
    pilot_inputs: Annotated[int, Parameter(group=DRY_RUN)] = 8,
    price_per_hour: Annotated[float | None, Parameter(group=DRY_RUN)] = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Certify a model on a data set.

    For each input, `n0` noisy votes choose a class and `n` fresh ones bound its probability; the radius that
    follows holds with probability 1 − alpha. Results go to the run directory `--out`, one record per input.
    Stop it at any moment: rerun the same command to resume; it ends with the same bits.

    Noise is added in the units of the inputs (pixels in [0, 1] for the image sets; a file's own units for .npz).
    Normalisation belongs inside the model: a model that wants normalised inputs must do it itself.

    With `--stop` an input gets as many votes as it needs, at most `n`: often a few percent of them, and the promise
    is the same (docs/adaptive.md).

    With `--sigma-search`, other samples first choose each input's own σ, starting at `--sigma`. With `--chooser`, σ
    follows the input as part of the classifier itself (docs/levels.md).

    With `--dry-run` it says what the certification would cost: votes, forward passes, hours, disk and money. Votes a
    second are measured here for a second or two, on the device, route and workers that the options name. With `--stop`,
    real votes on a few inputs (`--pilot-inputs`) say how many of the votes will be needed. Nothing is written, and
    none of these votes certifies anything. With `--backend ray --workers 64` the workers are taken to be as fast as one
    here. It is a forecast: the inputs of the pilot may be easier than others, and a machine that is busier later is
    slower.

    Example: `smoothcert certify runs/digits --sigma 0.25 --n 10000 --out runs/digits-cert`

    Example: `smoothcert certify runs/digits --n 100000 --stop pilot:1% --dry-run --price-per-hour 2.5`

    Parameters
    ----------
    out
        Run directory, needed unless it is a dry run; made, or continued if it holds the same run.
    dry_run
        Only say what it would cost; no `--out` needed.
    pilot_inputs
        Inputs, evenly from all, whose votes tell what share the stop rules will need.
    price_per_hour
        What an hour of all workers together costs, in any currency.
    memory
        Then pass the certificates through this memory, as `smoothcert run remember` does, so that no two answers
        contradict each other: the answers go to `--out`, the certificates to a directory beside it, OUT-certificates.
    """
    from smoothcert.cli.runs import remember_with_bar
    from smoothcert.perturb.base import real_noise

    if dry_run:
        default_bound = None if out is None else former_default(out)
        _forecast(options.of(model, default_bound, hold), pilot_inputs, price_per_hour, output)
        return
    if out is None:
        raise InvalidValueError("--out is missing: name the run directory, or give --dry-run for the cost")
    if memory is not None:
        _check_memory(memory, hold, options.shard, out, options.levels.asked)
    # With a memory, the certificates that it is asked about afterwards go beside the answers.
    certified = out if memory is None else out.with_name(f"{out.name}-certificates")
    asked = options.of(model, former_default(certified), hold)
    if memory is not None:
        real_noise(asked.classifier.plan.noise, "a region memory (--memory)")
    named, inputs, classifier = asked.named, asked.inputs, asked.classifier
    voting = held_back(classifier, hold)
    _tell_what_to_know(asked, voting, out)
    origin: dict[str, Any] = {
        "model": model,
        "architecture": options.model_options.architecture,
        "dataset": asked.data_name,
        "split": options.data.split,
        "data_dir": None if options.data.data_dir is None else str(options.data.data_dir),
        "input_range": list(inputs.value_range()),
    }
    if named.trained_range is not None:
        origin["trained_range"] = list(named.trained_range)
    described = {
        **vars(options.model_options),
        "hold": hold,
        "chooser": options.levels.chooser,
        "level_models": options.levels.level_models and list(options.levels.level_models),
    }
    for key, value in described.items():
        if value not in (None, getattr(ModelOptions, key, None)):
            origin[key] = str(value) if isinstance(value, Path) else value
    if named.method is not None:
        origin["method"] = named.method
    if named.trained:
        origin[TRAINED] = dict(named.trained)
    run = certify_with_bar(voting, inputs, certified, asked.choice, origin)
    if memory is None:
        emit(run_view(run), output)
    answers = run.records
    if (doubt := uninformative(answers.predicted, answers.label, len(inputs.classes))) is not None:
        warn(doubt)
    if classifier.plan.search is not None:
        done = set(run.records.index.tolist())
        searches = [search for index, search in read_searches(certified).items() if index in done]
        note(searches_in_words(searches, classifier.plan.noise.sigma))
    if memory is not None:
        remember_with_bar(run, inputs, memory, out, output)


def _tell_what_to_know(asked: Asked, voting: ModelClassifier | HoldingClassifier, out: Path) -> None:
    from smoothcert.smoothing.holding import HoldingClassifier
    from smoothcert.smoothing.procedures import expected_votes

    named, noise, inputs, classifier = asked.named, asked.noise, asked.inputs, asked.classifier
    plan = classifier.plan
    low, high = inputs.value_range()
    units = plan.noise.in_words() or f"inputs lie in [{low:g}, {high:g}]; σ is in the same units"
    note(f"{inputs.name}: {units}")
    one_sigma = plan.noise.sigma if plan.sigma_levels is None else None
    for departure in named.departures(plan.noise.name, one_sigma, inputs):
        warn(departure)
    if (expected := expected_votes(plan)) is not None and expected >= plan.n:
        warn(
            f"{plan.budget.text} costs more than it saves at n = {plan.n}: with its pilot of "
            f"{plan.budget.pilot_votes} an input gets about {expected:.0f} votes. Leave it out, take a "
            "smaller pilot (pilot:1%,200) or a larger n"
        )
    noisy = inputs.input_shape
    if isinstance(voting, HoldingClassifier):
        noisy = (int((~voting.mask(noisy)).sum()),)
    if lost := plan.for_shape(noisy).rounding_of(inputs.levels):
        note(
            f"not all inputs are points of the noise's grid: each certificate is about the point nearest to its input. "
            f"Subtract {lost:.3g} from a radius for one that holds for any numbers, as the statements of show do; "
            "--grid Q chooses a grid that has the multiples of 1/Q"
        )
    if classifier.base.thread_safe is False and classifier.execution.worker_count() > 1:
        note(f"{classifier.base.name} is evaluated by one worker; --thread-safe lets all of them do it")
    if (warning := foreign_fit(noise, classifier, inputs.input_shape)) is not None:
        note(warning)
    if noise not in NOISES and noise not in PERTURBATIONS:
        note(
            "σ differs between coordinates: σ below is the geometric mean, and a radius that of the largest ball "
            f"inside the region. By volume: `{command('plot', out, kind='area', out=beside(out, 'area.png'))}`"
        )
    if plan.search is not None:
        note(
            "σ is searched for each input: each certificate is about the classifier frozen at that input's own σ. An "
            "input nearby may get another σ and another answer; only a region memory rules that out."
        )


def _check_memory(memory: str, hold: list[str] | None, shard: str | None, out: Path, levelled: bool) -> None:
    if hold is not None:
        raise InvalidValueError("a memory's regions are of whole inputs: leave --hold or --memory out")
    if levelled:
        raise InvalidValueError("with sigma levels it is one classifier and needs no memory: drop --memory")
    if shard is not None:
        raise InvalidValueError(
            "answers depend on the order of questions: merge the shards, then pass the whole run through the memory "
            "with smoothcert run remember"
        )
    if not out.name:
        raise InvalidValueError(f"--out must be a directory with a name, got {str(out)!r}")
    store_for(memory.removeprefix("sqlite:"))


def _forecast(asked: Asked, pilot_inputs: int, price_per_hour: float | None, output: OutputOptions) -> None:
    import time

    from smoothcert.evaluation.planning import bytes_on_disk, fixed_draws, paced, piloted, work_of

    check_count("pilot inputs (--pilot-inputs)", pilot_inputs)
    if price_per_hour is not None:
        check_not_negative("price per hour (--price-per-hour)", price_per_hour)
    classifier, inputs = asked.classifier, asked.inputs
    indices = asked.choice.indices(len(inputs))
    if not indices:
        raise InvalidValueError(f"--shard {asked.choice.shard} is empty: there are more shards than inputs")
    classifier.plan.budget.check_inputs(len(indices), classifier.plan.n0)
    chosen = indices[:: max(1, len(indices) // pilot_inputs)][:pilot_inputs]
    began = time.perf_counter()
    settled = classifier.prepare(inputs.input_shape)
    start = time.perf_counter() - began
    some = list(inputs.each(chosen))
    with progress_bar("measuring", "votes") as bar:
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
    told = {
        "votes_planned": round(whole.votes),
        "votes_expected": round(work.votes),
        "expected_share": work.votes / whole.votes,
        "pilot": None if pilot is None else {"inputs": pilot.inputs, "votes_each": pilot.votes},
        "forward_passes": round(work.passes),
        "rows_of_a_pass": settled.numerics.layout().chunk,
        "route": settled.numerics.route,
        "dtype": settled.numerics.dtype,
        "votes_per_second": pace.rows_per_second * work.votes / work.rows,
        "seconds": pace.seconds(work),
        "seconds_without_stopping": pace.seconds(whole),
        "start_seconds": pace.start_seconds,
        "bottleneck": pace.bottleneck(work),
        "inputs": len(indices),
        "bytes": bytes_on_disk(len(indices), classifier.classes),
        "largest_radius": planned_ceiling(PlanStatement(settled.as_json())),
        "device": classifier.execution.device,
        "backend": classifier.execution.backend,
        "workers": classifier.execution.worker_count(),
        "price_per_hour": price_per_hour,
        "cost": None if price_per_hour is None else price_per_hour * pace.seconds(work) / 3600,
    }
    # There is nothing else to see of it: quiet only silences the bar.
    emit(View(told, [_table(told, settled)]), replace(output, quiet=False))


def _table(told: dict[str, Any], settled: CertifyPlan) -> Table:
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
    table = Table(
        Column(no_wrap=True), Column(justify="right", no_wrap=True), Column(no_wrap=True), show_header=False
    )
    for row in rows:
        table.add_row(*row)
    return table
