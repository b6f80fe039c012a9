"""`smoothcert fit-noise`: a per-coordinate σ, so that the certified regions are largest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from smoothcert.commands.options import ModelName, ModelOptions, OutputOptions, TrainingDataOptions
from smoothcert.commands.plan_options import FitOptions, fit_plan
from smoothcert.commands.sampling_options import DeviceOptions, execution_of

if TYPE_CHECKING:
    from smoothcert.noise_fit import Fit, FitPlan


def fit_noise(
    model: ModelName,
    *,
    out: Path,
    init: str,
    dataset: Annotated[str | None, Parameter(alias="-d")] = None,
    fit: FitOptions = FitOptions(),
    data: TrainingDataOptions = TrainingDataOptions(),
    model_options: ModelOptions = ModelOptions(),
    speed: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Find a per-coordinate σ, the same for all inputs, that makes certified regions large.

    Where the model is insensitive, noise is free: σ grows there, and the certified ellipsoid with it. The objective is
    the mean log-volume over the inputs that the smoothed classifier gets right (Tecot et al., non-uniform smoothing).
    Fit on training inputs (`--split train`, the default), then certify others:

    Example: `smoothcert fit-noise runs/digits --dataset digits --init 0.25 --out fits/digits`

    Then: `smoothcert certify runs/digits --dataset digits --noise fits/digits --n 10000 --out runs/digits-ellipsoids`

    A ladder of starting constants trades accuracy for volume; each gets a directory of its own, and the picture
    `clean-accuracy.png` shows which to take:

    Example: `smoothcert fit-noise runs/lenet --init 0.1:1.0:0.1 --max 10000 --out fits/lenet`

    Tabular data in their own units, a model without gradients:

    Example: `smoothcert fit-noise mine:scores -d mine.npz --scale std --init 0.2 --out fits/mine`

    Kill it at any moment: the same command goes on after the last finished sub-epoch and ends with the same bits.

    Parameters
    ----------
    out
        Directory for sigmas.npy, sigma.png, metrics.jsonl and the statement; made if missing, continued if the same.
    init
        Where every σ starts, in input units: a number, a list 0.1,0.2 or a ladder FIRST:LAST:STEP.
    dataset
        Data set (default: what the model was trained on).
    """
    from smoothcert.analysis.figures import require_matplotlib
    from smoothcert.commands.console import note
    from smoothcert.commands.model_argument import load_named_model
    from smoothcert.evaluation import Choice
    from smoothcert.hints import beside, command, typed
    from smoothcert.noise_fit import feature_names, fit_into, split_validation, starting_constants
    from smoothcert.sampling.models import TorchClassifier

    require_matplotlib()
    execution = execution_of(speed)
    named = load_named_model(model, model_options, "hard")
    base = named.classifier
    route = "gradient" if isinstance(base, TorchClassifier) else "votes"
    plans = [fit_plan(fit, constant, route) for constant in starting_constants(init)]
    data_name = named.dataset_or(dataset)
    inputs = data.load(data_name)
    places = Choice(data.skip, data.max).indices(len(inputs))
    quiet = output.silent
    split_validation(places, plans[0])
    note(
        f"{inputs.name}, {data.split} split: {len(places)} inputs, {fit.validation} of them kept apart from the fit"
        + (", not from the model's training" if data.split == "train" else ""),
        quiet,
    )
    origin: dict[str, Any] = {"model": model, "dataset": data_name, "split": data.split}
    if (names := feature_names(data_name)) is not None:
        origin["feature_names"] = names
    folders = [out] if len(plans) == 1 else [out / f"{plan.init:g}" for plan in plans]
    start = partial(fit_into, base=base, dataset=inputs, indices=places, execution=execution, origin=origin)
    fits = [_fit_with_bar(start, folder, plan, quiet) for folder, plan in zip(folders, plans)]
    if len(fits) > 1:
        _write_ladder(out, fits, quiet)
    chosen = fits[(len(fits) - 1) // 2].path
    after = command(
        "certify",
        model,
        dataset=None if dataset is None and named.dataset == data_name else data_name,
        data_dir=data.data_dir,
        noise=chosen,
        **typed(model_options),
        out=beside(chosen, "certified"),
    )
    _show(out, fits, after, output)


def _fit_with_bar(start: Callable[..., Fit], out: Path, plan: FitPlan, quiet: bool) -> Fit:
    """One fit, its sub-epochs as they end, and its picture."""
    from smoothcert.analysis.plots import plot_noise
    from smoothcert.commands.console import note, progress_bar
    from smoothcert.noise_fit import Progress, SubEpoch

    with progress_bar("sub-epochs", "rows", quiet) as bar:

        def step(one: SubEpoch) -> None:
            if one.sub_epoch:
                bar.item()
            area = "nothing certified" if one.area is None else f"mean area {one.area:.1f}"
            spread = f"σ {one.least:.3g} … {one.greatest:.3g}, geometric mean {one.sigma:.3g}"
            note(
                f"init {plan.init:g}, sub-epoch {one.sub_epoch}: accuracy {one.accuracy:.1%}, {area}, {spread}",
                quiet,
            )

        fit = start(out=out, plan=plan, progress=Progress(bar.begin, bar.advance, step))
    assert fit.noise is not None
    plot_noise([(f"{out.name}, σ", fit.noise.sigmas)], out / "sigma.png")
    return fit


def _write_ladder(out: Path, fits: list[Fit], quiet: bool) -> None:
    from smoothcert.analysis.plots import plot_clean_accuracy
    from smoothcert.commands.console import note
    from smoothcert.errors import InvalidValueError
    from smoothcert.noise_fit import ladder_points, write_blanket

    points = ladder_points(fits)
    write_blanket(out, points)
    try:
        plot_clean_accuracy([(f"{out.name}, {split_of(fits[0])}", points)], out / "clean-accuracy.png")
    except InvalidValueError as error:
        note(f"no clean-accuracy.png: {error}", quiet)


def _show(out: Path, fits: list[Fit], after: str, output: OutputOptions) -> None:
    """What each fit ended with, and the command to go on with: a table, or a JSON object."""
    from smoothcert.commands.console import figure_table, print_figures, say

    if output.json:
        rows = [{"fit": str(fit.path), "init": fit.init, **asdict(fit.history[-1])} for fit in fits]
        print(json.dumps({"out": str(out), "fits": rows}))
        return
    if output.quiet:
        return
    split = split_of(fits[0])
    seen = " but not from the model's training" if split == "train split" else ""
    title = f"on inputs of the {split}, kept apart from the fit{seen}: at the start → fitted"
    headings = ("init", "accuracy (%)", "mean certified area", "geometric mean σ", "σ from", "to")
    table = figure_table(*headings, title=title)
    for fit in fits:
        first, last = fit.history[0], fit.history[-1]
        table.add_row(
            f"{fit.init:g}",
            f"{100 * first.accuracy:.1f} → {100 * last.accuracy:.1f}",
            f"{_area(first.area)} → {_area(last.area)}",
            f"{last.sigma:.3g}",
            f"{last.least:.3g}",
            f"{last.greatest:.3g}",
        )
    print_figures(table)
    say("area: Σ ln σ + D ln gap")
    if len(fits) > 1:
        say(f"{out} has a folder for each init: take another by its figures")
    say(f"Next: {after}")


def split_of(fit: Fit) -> str:
    """The split that a fit's figures are on: a model may have memorised its training inputs."""
    return f"{fit.manifest.origin.split or 'unknown'} split"


def _area(area: float | None) -> str:
    return "–" if area is None else f"{area:.1f}"
