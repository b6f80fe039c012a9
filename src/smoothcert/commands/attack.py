"""`smoothcert attack`: what an attacker achieves against a certified run, next to what it proves."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from smoothcert.commands.made_options import given
from smoothcert.commands.options import ModelOptions, OutputOptions
from smoothcert.commands.plan_options import AttackOptions
from smoothcert.commands.run_argument import RunPath
from smoothcert.commands.sampling_options import SpeedOptions, execution_of

if TYPE_CHECKING:
    from smoothcert.empirical import AttackedInput, AttackReport
    from smoothcert.runs import Run

_ORIGIN = Group("Where model and data are (what a run names is not opened unasked)", sort_key=5)
_INPUTS = Group("Which inputs of the run", sort_key=4)

_MOST_SHOWN = 10  # contradictions spelled out on the screen; --json has them all


def attack(
    run: RunPath,
    *,
    radii: str | None = None,
    plan_options: AttackOptions = AttackOptions(),
    out: Path | None = None,
    skip: Annotated[int, Parameter(group=_INPUTS)] = 1,
    max: Annotated[int | None, Parameter(group=_INPUTS)] = None,
    model: Annotated[str | None, Parameter(group=_ORIGIN)] = None,
    dataset: Annotated[str | None, Parameter(group=_ORIGIN)] = None,
    split: Annotated[Literal["test", "train"] | None, Parameter(group=_ORIGIN)] = None,
    data_dir: Annotated[Path | None, Parameter(group=_ORIGIN)] = None,
    attack_batch: int = 16,
    model_options: ModelOptions = ModelOptions(),
    speed: SpeedOptions = SpeedOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Attack the inputs of a certify run and show the accuracy that is left next to the certified one.

    For each input and radius, ascending, the attack looks for a point closer than that at which the smoothed
    classifier errs, and fresh votes check it: only if another class beats the label significantly is the input
    broken. The input itself is checked first, in the same way. Certified accuracy says what no attack can do,
    empirical accuracy what this one couldn't; its interval is over the choice of inputs, and needs a complete run.

    The exit code is 3 if an input was broken closer than the run certifies it: that is worth looking into.
    Runs with gaussian noise and hard votes. Models without gradients (ONNX files, functions, networks of whole numbers)
    are attacked by votes alone.

    Example: `smoothcert attack runs/digits-cert --model runs/digits --radii 0.25 0.5 0.75 --steps 40 --copies 64`

    Parameters
    ----------
    run
        Run directory made by certify, finished or not.
    radii
        ℓ2 radii to attack at, with commas or spaces between them (default: those certify shows, without 0).
    out
        File for a line per input: idx, label, smallest radius broken at (0: wrong without attack; empty: it
        held), certified radius.
    skip
        Attack every K-th input of the run.
    max
        Stop after M inputs, whatever --skip is.
    model
        The model: a training run, .onnx or weight file, or module:function. It must be the model that was certified.
    dataset
        The data set, unless the run names a registered one, such as mnist.
    split
        Split of the data set.
    data_dir
        Where the files of the data set are.
    attack_batch
        Inputs attacked together; changes speed and memory.
    """
    from smoothcert.analysis.tables import default_radii, parse_radii
    from smoothcert.commands.console import note, progress_bar, warn
    from smoothcert.commands.model_argument import declared_as, load_named_model
    from smoothcert.empirical import AttackPlan, AttackProgress, attack_run, check_attackable
    from smoothcert.evaluation import Choice
    from smoothcert.files import write_atomically
    from smoothcert.runs import read_run
    from smoothcert.runs.data_check import open_inputs_of
    from smoothcert.runs.statement import PlanStatement

    execution = execution_of(speed)
    choice = Choice(skip, max)
    whole = read_run(run)
    check_attackable(whole)
    typed = default_radii([whole])[1:] if radii is None else parse_radii(radii)
    typed = sorted(typed, key=float)
    plan = AttackPlan(**{"alpha": whole.manifest.plan.known(PlanStatement.alpha), **given(plan_options)})
    chosen = replace(whole, records=whole.records.take(choice.indices(len(whole.records))))
    if model is None:
        raise _model_missing(whole)
    named = load_named_model(model, declared_as(model_options, whole.manifest.model.declared), "hard")
    if plan.attack is None and not named.classifier.differentiable:
        note(f"{named.classifier.name} has no gradients: it is attacked by votes alone (nes)", output.quiet)
    inputs = open_inputs_of(whole, dataset, split, data_dir)
    for departure in named.departures(whole.manifest.plan.noise, whole.manifest.plan.sigma, inputs):
        warn(departure, output.quiet)
    with progress_bar("attacking", "attacks", output.silent) as bar:
        bar.begin(len(chosen.records) * len(typed), len(chosen.records))
        report = attack_run(
            chosen,
            named.classifier,
            inputs,
            [float(radius) for radius in typed],
            plan,
            execution=execution,
            batch=attack_batch,
            progress=AttackProgress(radii=bar.advance, attacked=lambda _: bar.item()),
        )
    if out is not None:
        write_atomically(out, _lines(report).encode())
    _show(chosen, report, typed, output, whole.shortfall)
    if report.contradictions():
        _report_contradictions(chosen, report)
        sys.exit(3)


def _model_missing(run: Run) -> Exception:
    from smoothcert.errors import RunError
    from smoothcert.hints import command

    origin = run.manifest.origin
    if origin.model is None:
        return RunError(
            f"{run.path} doesn't say where its model ({run.manifest.model.name}) was found; give it with --model"
        )
    again = command(
        "attack",
        run.path,
        model=origin.model,
        architecture=origin.architecture,
        sharpen=None if (beta := origin.value("sharpen")) is None else str(beta),
        dataset=origin.dataset,
        data_dir=origin.data_dir,
    )
    return RunError(
        f"--model is missing: what a run names is never opened unasked, because runs may be untrusted. If you "
        f"trust what it names: `{again}`"
    )


def _lines(report: AttackReport) -> str:
    from smoothcert.rounding import decimal_down

    rows = [["idx", "label", "broken_at", "certified_radius"]]
    for one in report.inputs:
        broken_at = "" if one.broken_at is None else f"{one.broken_at!r}"
        radius = decimal_down(one.certified_radius, 6)
        rows.append([str(one.record.index), str(one.record.label), broken_at, radius])
    return "".join("\t".join(row) + "\n" for row in rows)


def _show(
    run: Run, report: AttackReport, typed: list[str], output: OutputOptions, shortfall: str | None
) -> None:
    """The accuracies: a table, a JSON object, or nothing when quiet.

    Intervals are left out where the run isn't known to be complete (``shortfall``): none would hold.
    """
    from smoothcert.analysis.intervals import percent_down, percent_up, rate_interval
    from smoothcert.analysis.metrics import certified_accuracy
    from smoothcert.commands.console import figure_table, print_figures, say

    certified = certified_accuracy(run.records, report.radii).tolist()
    empirical, broken = report.empirical_accuracy(), report.broken()
    count, plan = len(report.inputs), report.plan
    intervals = [
        rate_interval(standing, count) if shortfall is None else None for standing in report.standing()
    ]
    if output.json:
        found: dict[str, Any] = {
            "run": str(run.path),
            "inputs": count,
            "attack": asdict(plan),
            "wrong_without_attack": report.wrong,
            "radii": typed,
            "certified_accuracy": dict(zip(typed, certified)),
            "empirical_accuracy": dict(zip(typed, empirical)),
            "empirical_interval": dict(zip(typed, intervals)),
            "broken": dict(zip(typed, broken)),
            "contradictions": [_contradiction(one) for one in report.contradictions()],
        }
        print(json.dumps(found))
        return
    if output.quiet:
        return
    say(f"{run.name}: accuracy (%) over {count} inputs at ℓ2 radius")
    table = figure_table("radius", "certified", "empirical", "interval", "inputs broken")
    for radius, proved, left, ends, fell in zip(typed, certified, empirical, intervals, broken):
        between = "–" if ends is None else f"{percent_down(ends[0])} to {percent_up(ends[1])}"
        table.add_row(radius, f"{100 * proved:.1f}", f"{100 * left:.1f}", between, str(fell))
    print_figures(table)
    interval = (
        "interval: 95 %, over the choice of inputs, of the share that this attack leaves standing; each radius alone"
        if shortfall is None
        else f"no interval: the run holds {shortfall}"
    )
    say(
        f"{plan.attack}, {plan.steps} steps, {plan.copies} noise copies, {plan.restarts} "
        f"{'try' if plan.restarts == 1 else 'tries'}, judged by {plan.n} votes (α = {plan.alpha:g}); "
        f"shown wrong without attack: {report.wrong}\n"
        f"certified: no attack changes the answer (each wrong with probability at most "
        f"{report.certificate_alpha:g})\n"
        "empirical: shown neither wrong nor broken by this attack; a stronger one might show more\n"
        "inputs broken: how many the attack has made wrong, at that radius or a smaller one\n"
        f"{interval}",
    )


def _contradiction(one: AttackedInput) -> dict[str, Any]:
    assert one.broken is not None
    return {
        "idx": one.record.index,
        "label": one.record.label,
        "certified_radius": one.certified_radius,
        **asdict(one.broken),
    }


def _report_contradictions(run: Run, report: AttackReport) -> None:
    from smoothcert.commands.console import report_mistake
    from smoothcert.rounding import decimal_down

    against = report.contradictions()
    for one in against[:_MOST_SHOWN]:
        assert one.broken is not None
        votes, label, rival = one.broken.votes, one.record.label, one.broken.rival
        report_mistake(
            f"input {one.record.index} contradicts its certificate: class {label} is certified up to radius "
            f"{decimal_down(one.certified_radius, 6)}, but at distance {one.broken.distance:.6g} class {rival} has "
            f"{votes[rival]} of {report.plan.n} votes and class {label} has {votes[label]} "
            f"(p = {one.broken.p_value:.2g})"
        )
    report_mistake(
        f"{len(against)} of {len(report.inputs)} inputs of {run.name} contradict their certificates. A certificate "
        f"is wrong with probability at most {report.certificate_alpha:g} and a break with at most "
        f"{report.plan.alpha:g}; this many by chance alone has probability at most "
        f"{report.chance_of_contradictions():.2g}. If that is small, don't trust the run: it was altered, "
        "or smoothcert has a bug; please report it"
    )
