"""`smoothcert fit-levels`: a chooser that gives each point its σ, among a few levels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothcert.commands.options import DataName, ModelOptions, OutputOptions, TrainingDataOptions
from smoothcert.commands.plan_options import LevelFitOptions, level_fit_plan
from smoothcert.commands.sampling_options import DeviceOptions, execution_of

if TYPE_CHECKING:
    from smoothcert.level_fit import LevelFitPlan, LevelReport


def fit_levels(
    model: str,
    *,
    out: Path,
    sigma_levels: Annotated[list[float], Parameter(consume_multiple=True)],
    dataset: DataName = None,
    level_models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    start: Annotated[Path | None, Parameter(name="--from")] = None,
    fit: LevelFitOptions = LevelFitOptions(),
    data: TrainingDataOptions = TrainingDataOptions(),
    model_options: ModelOptions = ModelOptions(),
    speed: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Fit a chooser: a small network that gives each point its σ, so that certified radii are large.

    Votes on training inputs say what radius each level of σ is worth there; the network learns under noise where to
    leave the level that is best on average, and to be sure about it. `certify --chooser` then certifies one classifier
    whose σ follows the input (docs/levels.md).

    Example: `smoothcert fit-levels runs/digits --sigma-levels 0.12 0.25 0.5 --out choosers/digits`

    Then: `smoothcert certify runs/digits --chooser choosers/digits --n 10000 --out runs/digits-levels`

    A model trained for each level, smallest σ first, MODEL last:

    Example: `smoothcert fit-levels runs/lenet-1.0 --level-models runs/lenet-0.25 runs/lenet-0.5 runs/lenet-1.0
    --sigma-levels 0.25 0.5 1 --out choosers/lenet`

    It ends with what the chooser is worth on inputs kept apart from the fit, and says so where one σ for all inputs is
    better.

    Parameters
    ----------
    model
        A training run, .safetensors, .onnx, a published checkpoint, or module:function.
    out
        Directory for the chooser, a model of levels; made if missing.
    sigma_levels
        The σ that it chooses among, ascending.
    level_models
        A model for each level, smallest σ first; the last must be MODEL (default: MODEL for all).
    start
        Start from the network of this finished training run, all but its last layer, instead of from new weights.
    """
    from smoothcert.commands.console import note, progress_bar
    from smoothcert.commands.model_argument import level_classifiers, load_named_model
    from smoothcert.evaluation import Choice
    from smoothcert.hints import beside, command, typed
    from smoothcert.level_fit import Progress, fit_levels_into

    execution = execution_of(speed)
    plan = level_fit_plan(fit, sigma_levels)
    named = load_named_model(model, model_options, "hard")
    models = level_classifiers(model, named, level_models, model_options)
    data_name = named.dataset_or(dataset)
    inputs = data.load(data_name)
    places = Choice(data.skip, data.max).indices(len(inputs))
    note(
        f"{inputs.name}, {data.split} split: {min(plan.inputs, len(places))} inputs, {plan.validation} of them kept "
        "apart from the fit" + (", not from the model's training" if data.split == "train" else ""),
        output.silent,
    )
    with progress_bar("epochs", "rows", output.silent) as bar:
        report = fit_levels_into(
            out,
            models,
            inputs,
            plan,
            places,
            execution,
            Progress(bar.begin, bar.advance, bar.item),
            {"model": model, "dataset": data_name, "split": data.split},
            start,
        )
    chosen: dict[str, object] = {"chooser": out}
    if report.gain <= 0:
        chosen = {"chooser": f"constant:{report.best}", "sigma_levels": plan.sigmas}
    after = command(
        "certify",
        model,
        dataset=None if dataset is None and named.dataset == data_name else data_name,
        data_dir=data.data_dir,
        **chosen,
        level_models=None if level_models is None else tuple(level_models),
        **typed(model_options),
        out=beside(out, "certified"),
    )
    _show(out, plan, report, after, output)


def _show(out: Path, plan: LevelFitPlan, report: LevelReport, after: str, output: OutputOptions) -> None:
    """What each level is worth and what the chooser makes of them: a table, or a JSON object."""
    from smoothcert.commands.console import figure_table, say, stdout

    if output.json:
        told = {"sigma_levels": list(plan.sigmas), "chooser_sigma": plan.noise_sigma, **report.as_json()}
        print(json.dumps({"out": str(out), **told, "gain": report.gain, "next": after}))
        return
    if output.quiet:
        return
    title = f"estimated mean radius on {report.inputs} inputs kept apart from the fit"
    table = figure_table("σ", "mean radius", "chosen for", title=title)
    for sigma, radius, share in zip(plan.sigmas, report.fixed, report.shares):
        table.add_row(f"{sigma:g}", f"{radius:.4f}", f"{share:.1%}")
    table.add_row("chooser", f"{report.chooser:.4f}", "")
    table.add_row("its levels alone", f"{report.homes:.4f}", "")
    table.add_row("best of each", f"{report.ceiling:.4f}", "")
    stdout().print(table)
    best = f"σ = {plan.sigmas[report.best]:g} for all inputs"
    gain = f"{report.gain:+.4f} ± {report.gain_error:.4f}"
    if report.gain > 0:
        say(f"against {best}: {gain}")
    else:
        say(f"The chooser is not better than {best} ({gain}): take that, --chooser constant:{report.best}")
    say(f"Next: {after}")
