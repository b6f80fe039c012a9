"""`smoothcert fit`: a σ for each coordinate, what it says of a model's features, and networks in int8."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from rich.table import Table

from smoothcert.analysis.plots.drawing import check_picture_path, require_matplotlib
from smoothcert.cli.arguments import RunPath, load_named_model
from smoothcert.cli.console import View, emit, figure_table, note, progress_bar
from smoothcert.cli.options import ModelName, ModelOptions, OutputOptions, Sigma, TrainingDataOptions
from smoothcert.cli.plan_options import DeviceOptions, execution_of, fields_of, given, option, options
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.plain_text import beside, command, typed
from smoothcert.rounding import decimal_down
from smoothcert.runs.run import read_run
from smoothcert.smoothing.fits.plan import (
    CALIBRATION,
    VALIDATION,
    VOTES,
    Feature,
    FitPlan,
    feature_names,
    group_labels,
    group_names,
    ranked_features,
    ranked_groups,
)

if TYPE_CHECKING:
    from smoothcert.smoothing.fits.fit import Fit

_SHOWN = 40

_GROUPS = {
    "gradient": Group("Fit by gradient (torch models)", sort_key=6),
    "votes": Group("Fit by votes (any model)", sort_key=7),
    "validation": Group("Validation after each sub-epoch", sort_key=8),
}
_FIT = fields_of(FitPlan, but=("init",))


@options(option(knob, _GROUPS.get(knob.group), unset=name == "route") for name, knob in _FIT.items())
class FitOptions:
    """The plan's fields but init, since a ladder takes several; the route is None unless given."""

    validation: int


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

    Example: `smoothcert fit noise runs/digits --dataset digits --init 0.25 --out fits/digits`

    Then: `smoothcert certify runs/digits --dataset digits --noise fits/digits --n 10000 --out runs/digits-ellipsoids`

    A ladder of starting constants trades accuracy for volume; each gets a directory of its own, and the picture
    `clean-accuracy.png` shows which to take:

    Example: `smoothcert fit noise runs/lenet --init 0.1:1.0:0.1 --max 10000 --out fits/lenet`

    Tabular data in their own units, a model without gradients:

    Example: `smoothcert fit noise mine:scores -d mine.npz --scale std --init 0.2 --out fits/mine`

    Stop it at any moment: rerun the same command to resume after the last finished sub-epoch. It ends with the same
    bits.

    Parameters
    ----------
    out
        Directory for sigmas.npy, sigma.png, metrics.jsonl and the statement; made if missing, continued if the same.
    init
        Where every σ starts, in input units: a number, a list 0.1,0.2 or a ladder FIRST:LAST:STEP.
    dataset
        Data set (default: what the model was trained on).
    """
    from smoothcert.models.torch_module import TorchClassifier
    from smoothcert.smoothing.fits.fit import fit_into, starting_constants
    from smoothcert.smoothing.fits.objective import Streams

    require_matplotlib()
    execution = execution_of(speed)
    named = load_named_model(model, model_options, "hard")
    base = named.classifier
    route = "gradient" if isinstance(base, TorchClassifier) else "votes"
    plans = [
        FitPlan(**{"init": constant, "route": route, **given(fit)}) for constant in starting_constants(init)
    ]
    data_name = data.spec(named.dataset_or(dataset))
    inputs = data.load(data_name)
    places = data.choice().indices(len(inputs))
    Streams(plans[0].seed).split(places, plans[0].validation)  # fails early
    note(
        f"{inputs.name}, {data.split} split: {len(places)} inputs, {fit.validation} of them kept apart from the fit"
        + (", not from the model's training" if data.split == "train" else "")
    )
    origin: dict[str, Any] = {"model": model, "dataset": data_name, "split": data.split}
    names = feature_names(data_name) if inputs.columns is None else list(inputs.columns.names)
    if names is not None:
        origin["feature_names"] = names
    folders = [out] if len(plans) == 1 else [out / f"{plan.init:g}" for plan in plans]
    start = partial(fit_into, base=base, dataset=inputs, indices=places, execution=execution, origin=origin)
    fits = [_fit_with_bar(start, folder, plan) for folder, plan in zip(folders, plans)]
    if len(fits) > 1:
        _write_ladder(out, fits)
    chosen = fits[(len(fits) - 1) // 2].path
    given_data = None if dataset is None and named.dataset == data_name else data_name
    rest = {"noise": chosen, **typed(model_options), "out": beside(chosen, "certified")}
    after = command("certify", model, dataset=given_data, data_dir=data.data_dir, **rest)
    rows = [{"fit": str(fit.path), "init": fit.init, **asdict(fit.history[-1])} for fit in fits]
    emit(View({"out": str(out), "fits": rows, "next": after}, _fitted(out, fits, after)), output)


def _fit_with_bar(start: Callable[..., Fit], out: Path, plan: FitPlan) -> Fit:
    from smoothcert.analysis.plots.sigma import plot_noise
    from smoothcert.smoothing.fits.fit import SubEpoch
    from smoothcert.smoothing.fits.objective import FitProgress

    with progress_bar("sub-epochs", "rows") as bar:

        def step(one: SubEpoch) -> None:
            if one.sub_epoch:
                bar.item()
            area = "nothing certified" if one.area is None else f"mean area {one.area:.1f}"
            spread = f"σ {one.least:.3g} … {one.greatest:.3g}, geometric mean {one.sigma:.3g}"
            note(
                f"init {plan.init:g}, sub-epoch {one.sub_epoch}: accuracy {one.accuracy:.1%}, {area}, {spread}"
            )

        fit = start(out=out, plan=plan, progress=FitProgress(bar.begin, bar.advance, step))
    assert fit.noise is not None
    plot_noise([(f"{out.name}, σ", fit.noise.sigmas)], out / "sigma.png")
    return fit


def _write_ladder(out: Path, fits: list[Fit]) -> None:
    from smoothcert.analysis.plots.training import plot_clean_accuracy
    from smoothcert.smoothing.fits.fit import front_points, write_front

    points = front_points(fits)
    write_front(out, points)
    try:
        plot_clean_accuracy([(f"{out.name}, {split_of(fits[0])}", points)], out / "clean-accuracy.png")
    except InvalidValueError as error:
        note(f"no clean-accuracy.png: {error}")


def _fitted(out: Path, fits: list[Fit], after: str) -> Iterator[str | Table]:
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
            " → ".join("–" if one.area is None else f"{one.area:.1f}" for one in (first, last)),
            f"{last.sigma:.3g}",
            f"{last.least:.3g}",
            f"{last.greatest:.3g}",
        )
    yield table
    yield "area: Σ ln σ + D ln gap"
    if len(fits) > 1:
        yield f"{out} has a folder for each init: take another by its figures"
    yield f"Next: {after}"


def split_of(fit: Fit) -> str:
    """The split that a fit's figures are on: a model may have memorised its training inputs."""
    return f"{fit.manifest.origin.split or 'unknown'} split"


def int8(
    model: ModelName,
    *,
    out: Path,
    dataset: Annotated[str | None, Parameter(alias="-d")] = None,
    sigma: Sigma = None,
    agreement: float | None = None,
    calibration: int = CALIBRATION,
    validation: int = VALIDATION,
    votes: int = VOTES,
    seed: int = 0,
    data: TrainingDataOptions = TrainingDataOptions(),
    model_options: ModelOptions = ModelOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Quantise a network to int8: another classifier, several times as fast to certify.

    Weights get a scale for each channel; ranges of activations are fixed from noisy training inputs. The file that is
    written is certified, served and verified like any ONNX file; OpenVINO (`pip install 'smoothcert[openvino]'`)
    evaluates it fastest. Its statement says how many votes agree with the original's on held-out inputs, and how the
    average certified radius changes.

    Example: `smoothcert fit int8 runs/lenet --dataset mnist --sigma 0.5 --out fits/lenet-int8`

    Then: `smoothcert certify fits/lenet-int8/model.onnx --dataset mnist --sigma 0.5 --out runs/lenet-int8`

    Parameters
    ----------
    out
        Directory for model.onnx and statement.json.
    dataset
        Data set (default: what the model was trained on).
    agreement
        Percentage of votes that should not change: where fewer agree, the most sensitive layers stay in float32.
    calibration
        Noisy inputs that ranges are taken from.
    validation
        Inputs held out for the statement.
    votes
        Noisy copies of each of those.
    seed
        Of the noise, and of which inputs are held out.
    """
    import numpy as np

    from smoothcert.smoothing.fits.int8 import quantize

    named = load_named_model(model, model_options, "hard")
    noise = named.sigma_or(sigma)
    data_name = named.dataset_or(dataset)
    inputs = data.load(data_name)
    places = np.random.default_rng(seed).permutation(data.choice().indices(len(inputs)))
    places = np.sort(places[: calibration + 2 * validation])
    asked = {"calibration": calibration, "validation": validation, "votes": votes, "seed": seed}
    rows, labels = inputs.inputs(places), inputs.labels[places]
    made = quantize(named.classifier, rows, noise, labels=labels, agreement=agreement, **asked)
    path, beside_it = made.save(out), beside(out, "certified")
    after = command("certify", path, dataset=data_name, data_dir=data.data_dir, sigma=noise, out=beside_it)
    held_out = made.statement["held_out"]
    agreed, change = held_out["agreement_percent"], held_out["acr_change"]
    in_float = made.statement["in_float32"]
    lines = [
        f"{path}: {made.statement['layers'] - len(in_float)} of {made.statement['layers']} layers in int8"
        + (f"; in float32: {', '.join(in_float)}" if in_float else ""),
        f"on {validation} held-out inputs ({data.split} split) of {votes} votes:",
        f"  votes that agree: {agreed['mean']:.2f} % ({agreed['low']:.2f} to {min(100, agreed['high']):.2f})",
        f"  average certified radius: {held_out['acr_float32']:.4f} → {held_out['acr_int8']:.4f}, "
        f"change {change['mean']:+.4f} ({change['low']:+.4f} to {change['high']:+.4f})",
        f"Next: {after}",
    ]
    emit(View({"out": str(out), "statement": made.statement, "next": after}, lines), output)


def features(
    fit: Path, *, run: RunPath | None = None, out: Path | None = None, output: OutputOptions = OutputOptions()
) -> None:
    """Show which features the model is sensitive to: those that tolerate little noise.

    Where the fit made σ smaller, or let it grow least, a small change may change the answer; where it grew most, the
    model is least sensitive. Features are ranked by σ over where it started (with `fit noise --scale std`: in standard
    deviations), because σ itself is in each feature's own units. With `--run`, a run certified with this fit, the table
    also says how far each feature may change *alone* without changing a typical answer: the half-width of the certified
    region of median size. Several may change at once as long as the input stays inside the region.

    Example: `smoothcert fit features fits/cancer --run runs/cancer --out features.png`

    Parameters
    ----------
    fit
        Directory made by fit noise (of a ladder: one of its points).
    run
        A run made by `certify --noise FIT`.
    out
        Picture to write (.png, .svg, .pdf): bars, or a heat map for images.
    """
    from smoothcert.analysis.plots.sigma import plot_features, plot_noise
    from smoothcert.smoothing.fits.fit import finished_fit, step_sigmas

    if out is not None:
        check_picture_path(out)
    found = finished_fit(fit)
    assert found.noise is not None
    sigmas = found.noise.sigmas
    reach = None if run is None else _median_reach(run, found)
    ranked = ranked_features(sigmas, step_sigmas(found.path, 0), found.feature_names, reach)
    groups = str(found.manifest.plan.value("groups"))
    if (names := group_names(groups, sigmas.shape)) is not None:
        ranked = ranked_groups(ranked, group_labels(groups, sigmas.shape), names)
    rows = [asdict(feature) for feature in ranked]
    data = {"fit": str(fit), "median_volume_radius": reach, "features": rows}
    emit(View(data, [_feature_table(fit, ranked)]), output)
    if out is not None:
        if sigmas.ndim == 3:
            plot_noise([(f"{fit.resolve().name}: σ", sigmas)], out)
        else:
            values = [feature.factor for feature in ranked]
            meaning = "σ over where the fit started it: short bars are features that the model relies on"
            plot_features([feature.name for feature in ranked], values, meaning, out)
        note(str(out))


def _median_reach(path: Path, fit: Fit) -> float:
    """The median equal-volume radius of the run's right answers."""
    run = read_run(path)
    assert fit.noise is not None
    if run.stateful:
        raise RunError(f"{path} is of a region memory, which cuts regions: name the run it was made from")
    if run.manifest.plan.sigmas_sha256 != fit.noise.sha256:
        raise RunError(f"{path} has other noise than {fit.path}: name a run of certify --noise {fit.path}")
    radii = [record.volume_radius or record.radius for record in run.records if record.correct]
    if not radii:
        raise RunError(f"{path}: no right answer is certified, so there is no typical region")
    return statistics.median(radii)


def _feature_table(path: Path, features: list[Feature]) -> Table:
    with_width = features[0].half_width is not None
    headings = ("rank", "feature", "σ", "σ / start", *(["alone it may change by"] if with_width else []))
    table = figure_table(*headings, title=f"{path.resolve().name}: from the most sensitive feature on")
    table.columns[1].justify = "left"
    half = _SHOWN // 2
    rows = features if len(features) <= _SHOWN else [*features[:half], *features[-half:]]
    for place, feature in enumerate(rows):
        if len(rows) < len(features) and place == half:
            table.add_row("…", f"{len(features) - len(rows)} more", "")
        cells = [str(feature.rank), feature.name, f"{feature.sigma:.4g}", f"{feature.factor:.2f}"]
        if feature.half_width is not None:
            digits = max(0, 2 - math.floor(math.log10(feature.half_width)))  # that show three of a number
            cells.append(f"± {decimal_down(feature.half_width, digits)}")
        table.add_row(*cells)
    return table
