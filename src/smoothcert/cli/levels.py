"""One classifier whose σ follows the input: its options, and `smoothcert experimental levels`, which fits a chooser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from rich.table import Table

from smoothcert.cli.arguments import NamedModel, level_classifiers, load_named_model
from smoothcert.cli.console import View, emit, figure_table, note, progress_bar
from smoothcert.cli.options import DataName, ModelOptions, OutputOptions, TrainingDataOptions
from smoothcert.cli.plan_options import DeviceOptions, execution_of, fields_of, listed, option, options
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError
from smoothcert.experimental.levels.choosers import LevelFitPlan, chooser_named, read_chooser_statement
from smoothcert.perturb.base import NOISES
from smoothcert.plain_text import beside, command, typed

if TYPE_CHECKING:
    from smoothcert.experimental.levels.fit import LevelReport
    from smoothcert.perturb.base import Perturbation
    from smoothcert.smoothing.classifier import ModelClassifier

_GROUP = Group("σ levels (one classifier whose σ follows the input)", sort_key=7)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True)
class LevelOptions:
    """Levels of σ and the chooser among them."""

    chooser: str | None = None
    """What gives each point its σ: a model of levels (a directory that `smoothcert experimental levels` made, or
    any MODEL with a score for each level), `constant:K` (level K, counted from 0, everywhere), or a statistic of the
    noisy input with its edges, such as `spread:0.3,0.4`, `mean:…`, `energy:…`. Its median under noise makes one
    classifier of all levels, which needs no memory (docs/levels.md)."""
    sigma_levels: Annotated[tuple[float, ...] | None, Parameter(consume_multiple=True, converter=listed)] = (
        None
    )
    """The σ that it chooses among, ascending: `--sigma-levels 0.25 0.5 1` (default: what the chooser was fitted
    for)."""
    level_models: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True, converter=listed)] = None
    """A model for each level, smallest σ first; the last must be MODEL (default: MODEL for all)."""
    chooser_sigma: float | None = None
    """σ of the chooser's noise (default: what it was fitted for, or the largest level)."""
    chooser_n0: int = 100
    """Votes of the chooser that find the likeliest level."""
    chooser_n: int | None = None
    """Votes of the chooser that bound how likely other levels are, at most (default: n; they end once that is
    enough)."""

    @property
    def asked(self) -> bool:
        """Whether any of it was given."""
        return self != LevelOptions()

    def smoothed(
        self,
        model: str,
        named: NamedModel,
        model_options: ModelOptions,
        execution: Execution,
        sigma: float | None,
        noise: str | Perturbation,
        **plan_fields: Any,
    ) -> ModelClassifier:
        """The model smoothed with one σ, or with the levels that the options describe."""
        from smoothcert.experimental.levels.classifier import LevelledClassifier

        if not self.asked:
            return named.smoothed(execution, sigma, noise=noise, **plan_fields)
        if sigma is not None:
            raise InvalidValueError(f"--sigma {sigma:g} is one σ for all inputs: leave it or the levels out")
        if not isinstance(noise, str) or noise not in NOISES:
            raise InvalidValueError(f"sigma levels have one σ each, --noise {noise} one for each coordinate")
        chooser, sigmas, chooser_sigma = self._chosen()
        models = level_classifiers(model, named, self.level_models, model_options)
        plan_fields |= {"chooser_n0": self.chooser_n0, "chooser_n": self.chooser_n, "noise": noise}
        by_level: Any = models[0] if self.level_models is None else models
        return LevelledClassifier(
            by_level, chooser, sigmas=sigmas, chooser_sigma=chooser_sigma, execution=execution, **plan_fields
        )

    def _chosen(self) -> tuple[Any, Sequence[float], float | None]:
        if self.chooser is None:
            raise InvalidValueError(
                "--chooser is missing: what gives each point its σ? A directory that `smoothcert experimental levels` "
                "made, constant:K, or a statistic such as spread:0.3,0.4"
            )
        fitted = read_chooser_statement(Path(self.chooser))
        sigmas = self.sigma_levels or (None if fitted is None else list(fitted[0]))
        if sigmas is None:
            raise InvalidValueError(
                f"--sigma-levels is missing, and the chooser {self.chooser} doesn't say which σ it chooses among"
            )
        sigma = self.chooser_sigma if fitted is None or self.chooser_sigma is not None else fitted[1]
        return load_chooser(self.chooser), sigmas, sigma


def load_chooser(text: str) -> Any:
    """The chooser that an option names: one without training, or a model of levels."""
    return chooser_named(text) or load_named_model(text, ModelOptions(), "hard").classifier


_GROUPS = {
    "votes": Group("What each level is worth", sort_key=6),
    "chooser": Group("The chooser's training", sort_key=7),
}
_FIELDS = fields_of(LevelFitPlan, but=("sigmas",)).values()


@options(option(knob, _GROUPS.get(knob.group)) for knob in _FIELDS)
class LevelFitOptions:
    """The plan's fields but the levels, which the command itself takes."""


def fit_levels(
    model: str,
    *,
    out: Path,
    sigma_levels: Annotated[tuple[float, ...], Parameter(consume_multiple=True, converter=listed)],
    dataset: DataName = None,
    level_models: Annotated[
        tuple[str, ...] | None, Parameter(consume_multiple=True, converter=listed)
    ] = None,
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

    Example: `smoothcert experimental levels runs/digits --sigma-levels 0.12 0.25 0.5 --out choosers/digits`

    Then: `smoothcert certify runs/digits --chooser choosers/digits --n 10000 --out runs/digits-levels`

    A model trained for each level, smallest σ first, MODEL last:

    Example: `smoothcert experimental levels runs/lenet-1.0 --level-models runs/lenet-0.25 runs/lenet-0.5 runs/lenet-1.0
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
    from smoothcert.experimental.levels.fit import fit_levels_into
    from smoothcert.smoothing.fits.objective import FitProgress

    execution = execution_of(speed)
    plan = LevelFitPlan(sigmas=tuple(sigma_levels), **vars(fit))
    named = load_named_model(model, model_options, "hard")
    models = level_classifiers(model, named, level_models, model_options)
    data_name = data.spec(named.dataset_or(dataset))
    inputs = data.load(data_name)
    places = data.choice().indices(len(inputs))
    note(
        f"{inputs.name}, {data.split} split: {min(plan.inputs, len(places))} inputs, {plan.validation} of them kept "
        "apart from the fit" + (", not from the model's training" if data.split == "train" else "")
    )
    with progress_bar("epochs", "rows") as bar:
        progress = FitProgress(bar.begin, bar.advance, lambda _: bar.item())
        origin = {"model": model, "dataset": data_name, "split": data.split}
        report = fit_levels_into(out, models, inputs, plan, places, execution, progress, origin, start)
    chosen: dict[str, object] = {"chooser": out}
    if report.gain <= 0:
        chosen = {"chooser": f"constant:{report.best}", "sigma_levels": plan.sigmas}
    given_data = None if dataset is None and named.dataset == data_name else data_name
    chosen |= {"level_models": level_models, **typed(model_options), "out": beside(out, "certified")}
    after = command("certify", model, dataset=given_data, data_dir=data.data_dir, **chosen)
    told = {"sigma_levels": list(plan.sigmas), "chooser_sigma": plan.noise_sigma, **report.as_json()}
    figures = {"out": str(out), **told, "gain": report.gain, "next": after}
    emit(View(figures, _worth(plan, report, after)), output)


def _worth(plan: LevelFitPlan, report: LevelReport, after: str) -> Iterator[str | Table]:
    title = f"estimated mean radius on {report.inputs} inputs kept apart from the fit"
    table = figure_table("σ", "mean radius", "chosen for", title=title)
    for sigma, radius, share in zip(plan.sigmas, report.fixed, report.shares):
        table.add_row(f"{sigma:g}", f"{radius:.4f}", f"{share:.1%}")
    table.add_row("chooser", f"{report.chooser:.4f}", "")
    table.add_row("its levels alone", f"{report.homes:.4f}", "")
    table.add_row("best of each", f"{report.ceiling:.4f}", "")
    yield table
    best = f"σ = {plan.sigmas[report.best]:g} for all inputs"
    gain = f"{report.gain:+.4f} ± {report.gain_error:.4f}"
    if report.gain > 0:
        yield f"against {best}: {gain}"
    else:
        yield f"The chooser is not better than {best} ({gain}): take that, --chooser constant:{report.best}"
    yield f"Next: {after}"
