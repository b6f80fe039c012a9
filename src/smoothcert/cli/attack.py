"""`smoothcert attack`: what an attacker achieves against a certified run, and, by --lines, where confidence turns."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from smoothcert.analysis.plots.drawing import check_picture_path
from smoothcert.cli.arguments import NamedModel, RunPath, declared_as, load_named_model
from smoothcert.cli.commands import Exit
from smoothcert.cli.console import View, emit, figure_table, note, progress_bar, report_mistake, warn
from smoothcert.cli.options import ORIGIN, FewInputsOptions, ModelOptions, OriginOptions, OutputOptions
from smoothcert.cli.plan_options import SpeedOptions, execution_of, fields_of, given, option, options
from smoothcert.datasets.base import Dataset
from smoothcert.empirical.results import AttackPlan, LinePlan
from smoothcert.errors import InvalidValueError, ModelError, RunError
from smoothcert.files import write_atomically
from smoothcert.plain_text import command
from smoothcert.rounding import decimal_down
from smoothcert.runs.run import Run, open_inputs_of, read_run
from smoothcert.runs.statement import Choice, PlanStatement

if TYPE_CHECKING:
    from smoothcert.analysis.plots.gallery import Ends
    from smoothcert.empirical.attacker import ConfidenceLine
    from smoothcert.empirical.results import AttackReport
    from smoothcert.models.torch_module import TorchClassifier

_ALPHA = fields_of(AttackPlan)["alpha"]
_OWN_ALPHA = replace(_ALPHA, default=None, help=f"{_ALPHA.help[:-1]} (default: the run's alpha).")


@options(option(knob) for knob in (fields_of(AttackPlan) | {"alpha": _OWN_ALPHA}).values())
class AttackOptions:
    """The plan's fields with their defaults; alpha is None unless given."""


@options(option(knob) for knob in fields_of(LinePlan, but=("sigma", "clip")).values())
class LineOptions:
    """The plan's fields with their defaults, but σ and clip: those follow from model and data."""


_INPUTS = Group("Which inputs of the run", sort_key=4)

_MOST_SHOWN = 10  # contradictions spelled out on the screen; --json has them all


def attack(
    run: RunPath,
    *,
    radii: str | None = None,
    plan_options: AttackOptions = AttackOptions(),
    out: Path | None = None,
    lines: bool = False,  # noqa: ARG001  (with it, the words go to the command below)
    every: Annotated[int, Parameter(group=_INPUTS)] = 1,
    max: Annotated[int | None, Parameter(group=_INPUTS)] = None,
    model: Annotated[str | None, Parameter(group=ORIGIN)] = None,
    origin: OriginOptions = OriginOptions(),
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
    lines
        Without a run: walk from inputs to adversaries that no norm restricts, and see where confidence turns
        (`smoothcert attack MODEL --lines --help`).
    every
        Attack every K-th input of the run.
    max
        Stop after M inputs, whatever --every is.
    model
        The model: a training run, .onnx or weight file, or module:function. It must be the model that was certified.
    attack_batch
        Inputs attacked together; changes speed and memory.
    """
    from smoothcert.analysis.tables import default_radii, parse_radii
    from smoothcert.empirical.attacker import attack_run, check_attackable
    from smoothcert.empirical.results import AttackProgress

    execution = execution_of(speed)
    choice = Choice(every, max)
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
        note(f"{named.classifier.name} has no gradients: it is attacked by votes alone (nes)")
    inputs = open_inputs_of(whole, **vars(origin))
    for departure in named.departures(whole.manifest.plan.noise, whole.manifest.plan.sigma, inputs):
        warn(departure)
    with progress_bar("attacking", "attacks") as bar:
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
    emit(_view(chosen, report, typed, whole.shortfall), output)
    if report.contradictions():
        _report_contradictions(chosen, report)
        sys.exit(Exit.CONTRADICTED)


def _model_missing(run: Run) -> Exception:
    origin = run.manifest.origin
    if origin.model is None:
        return RunError(f"--model is missing, {run.path} doesn't say where {run.manifest.model.name} is")
    names = ("model", "architecture", "sharpen", "dataset", "data_dir")
    stated = {name: None if (value := origin.value(name)) is None else str(value) for name in names}
    again = command("attack", run.path, **stated)
    return RunError(
        f"--model is missing: what a run names is never opened unasked, because runs may be untrusted. If you "
        f"trust what it names: `{again}`"
    )


def _lines(report: AttackReport) -> str:
    rows = [["idx", "label", "broken_at", "certified_radius"]]
    for one in report.inputs:
        broken_at = "" if one.broken_at is None else f"{one.broken_at!r}"
        radius = decimal_down(one.certified_radius, 6)
        rows.append([str(one.record.index), str(one.record.label), broken_at, radius])
    return "".join("\t".join(row) + "\n" for row in rows)


def _view(run: Run, report: AttackReport, typed: list[str], shortfall: str | None) -> View:
    """The accuracies; intervals are left out where the run isn't known to be complete (``shortfall``): none would
    hold."""
    from smoothcert.analysis.intervals import percent_down, percent_up, rate_interval
    from smoothcert.analysis.metrics import certified_accuracy

    certified = certified_accuracy(run.records, report.radii).tolist()
    empirical, broken = report.empirical_accuracy(), report.broken()
    count, plan = len(report.inputs), report.plan
    intervals = [
        rate_interval(standing, count) if shortfall is None else None for standing in report.standing()
    ]
    data: dict[str, Any] = {
        "run": str(run.path),
        "inputs": count,
        "attack": asdict(plan),
        "wrong_without_attack": report.wrong,
        "radii": typed,
        "certified_accuracy": dict(zip(typed, certified)),
        "empirical_accuracy": dict(zip(typed, empirical)),
        "empirical_interval": dict(zip(typed, intervals)),
        "broken": dict(zip(typed, broken)),
        "contradictions": [
            {"idx": one.record.index, "label": one.record.label, "certified_radius": one.certified_radius}
            | asdict(one.broken)
            for one in report.contradictions()
            if one.broken is not None
        ],
    }
    heading = f"{run.name}: accuracy (%) over {count} inputs at ℓ2 radius"
    table = figure_table("radius", "certified", "empirical", "interval", "inputs broken")
    for radius, proved, left, ends, fell in zip(typed, certified, empirical, intervals, broken):
        between = "–" if ends is None else f"{percent_down(ends[0])} to {percent_up(ends[1])}"
        table.add_row(radius, f"{100 * proved:.1f}", f"{100 * left:.1f}", between, str(fell))
    interval = (
        "interval: 95 %, over the choice of inputs, of the share that this attack leaves standing; each radius alone"
        if shortfall is None
        else f"no interval: the run holds {shortfall}"
    )
    told = (
        f"{plan.attack}, {plan.steps} steps, {plan.copies} noise copies, {plan.restarts} "
        f"{'try' if plan.restarts == 1 else 'tries'}, judged by {plan.n} votes (α = {plan.alpha:g}); "
        f"shown wrong without attack: {report.wrong}\n"
        f"certified: no attack changes the answer (each wrong with probability at most "
        f"{report.certificate_alpha:g})\n"
        "empirical: shown neither wrong nor broken by this attack; a stronger one might show more\n"
        "inputs broken: how many the attack has made wrong, at that radius or a smaller one\n"
        f"{interval}"
    )
    return View(data, [heading, table, told])


def _report_contradictions(run: Run, report: AttackReport) -> None:
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


def lines(
    model: str,
    *,
    out: Path | None = None,
    dataset: Annotated[str | None, Parameter(alias="-d")] = None,
    sigma: float | None = None,
    plan_options: LineOptions = LineOptions(),
    each: bool = False,
    before: str | None = None,
    data: FewInputsOptions = FewInputsOptions(),
    model_options: ModelOptions = ModelOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Walk from inputs to adversaries that no norm restricts, and see where confidence turns.

    For each input, normalised gradient steps up the smoothed classifier's loss find an adversary; votes at points on
    the straight line to it show how the label's share falls and the rival's rises. The equal-confidence mixing ratio
    is where they meet: small ratios mean over-confident surroundings, which cost certified radius (SmoothMix, Jeong et
    al., 2021). Not a certificate.

    Example: `smoothcert attack runs/lenet --lines --every 100 --max 50 --out line.png`

    Parameters
    ----------
    model
        A training run, .safetensors or published checkpoint: a torch model, because gradients are needed.
    out
        Picture to write (.png, .svg, .pdf): mean confidence along the line, and the distribution of ratios.
    dataset
        Data set (default: what the model was trained on).
    sigma
        Standard deviation of the noise (default: what the model was trained with).
    each
        Draw a line for each input instead of the median over them, and the first four images with their adversaries
        (SmoothMix, figure 2): for a few inputs.
    before
        Another model, whose mixing ratios are drawn beside these, on the same inputs and at the same σ (figure 5).
    """
    import numpy as np

    from smoothcert.analysis.plots.gallery import plot_confidence_lines
    from smoothcert.empirical.attacker import confidence_lines
    from smoothcert.models.adapt import labelled_for

    if out is not None:
        check_picture_path(out)
    classifier, named = _torch_model(model, model_options)
    inputs = labelled_for(classifier, data.load(named.dataset_or(dataset)))
    low, high = inputs.value_range()
    plan = LinePlan(named.sigma_or(sigma), clip=low >= 0 and high <= 1, **vars(plan_options))
    indices = list(data.choice().indices(len(inputs)))
    with progress_bar("lines", "inputs", len(indices)) as bar:
        walked = confidence_lines(classifier.module, inputs, indices, plan, bar.one)
    right, turned = _turned(walked)
    earlier = None
    if before is not None:
        other, _ = _torch_model(before, model_options)
        with progress_bar("lines, before", "inputs", len(indices)) as bar:
            of_other = _turned(confidence_lines(other.module, inputs, indices, plan, bar.one))
        if not of_other[0]:
            raise InvalidValueError(f"{before} is right on none of the inputs: there is no ratio to draw")
        earlier = of_other[1], len(of_other[0])
    median = turned[len(turned) // 2] if turned else None
    names = ("label", "rival", "right", "distance", "equal_confidence_ratio")
    rows = [{"idx": line.index} | {name: getattr(line, name) for name in names} for line in walked]
    words = "no adversary turned the answer" if median is None else f"median mixing ratio {median:.3f}"
    told = (
        f"{len(walked)} inputs, {len(right)} right without attack; of those, {len(turned)} are turned on the way to "
        f"their adversary: {words}"
    )
    emit(View({"sigma": plan.sigma, "median_ratio": median, "inputs": rows}, [told]), output)
    if out is not None:
        plot_confidence_lines(
            walked[0].ratios,
            np.array([line.shares[:, line.label] for line in right]),
            np.array([line.shares[:, line.rival] for line in right]),
            turned,
            out,
            each=each,
            before=earlier,
            ends=_ends(right, inputs) if each and plan.clip else (),
        )
        note(str(out))


def _torch_model(text: str, options: ModelOptions) -> tuple[TorchClassifier, NamedModel]:
    from smoothcert.models.torch_module import TorchClassifier

    named = load_named_model(text, options, "hard")
    if not isinstance(named.classifier, TorchClassifier):
        raise ModelError(f"{text} gives no gradients, which the adversary needs: name a torch model")
    return named.classifier, named


def _ends(lines: list[ConfidenceLine], inputs: Dataset) -> list[Ends]:
    """Where the lines of the first few inputs begin and end, if inputs are grey or coloured images."""
    from smoothcert.analysis.plots.gallery import MOST_ENDS, Ends

    shape = inputs.input_shape
    if not (len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3))):
        return []
    return [
        Ends(
            inputs.input(line.index),
            line.adversary,
            f"{line.index}: {inputs.classes[line.label]} → {inputs.classes[line.rival]}, ℓ2 {line.distance:.2f}",
        )
        for line in lines[:MOST_ENDS]
        if line.adversary is not None
    ]


def _turned(lines: list[ConfidenceLine]) -> tuple[list[ConfidenceLine], list[float]]:
    """The lines of inputs that are right without attack, and the ratios at which those turn, ascending."""
    right = [line for line in lines if line.right]
    ratios = [line.equal_confidence_ratio for line in right]
    return right, sorted(ratio for ratio in ratios if ratio is not None)
