"""Tables with masks: ``--noise hybrid:…``, what is certified over d, and `smoothcert fit masks`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

import numpy as np
from cyclopts import Parameter

from smoothcert.cli.console import View, emit, figure_table, note, progress_bar
from smoothcert.cli.options import OutputOptions, TrainingDataOptions
from smoothcert.cli.plan_options import DeviceOptions, execution_of, listed
from smoothcert.errors import InvalidValueError
from smoothcert.extras import require
from smoothcert.files import make_folder, write_atomically
from smoothcert.masked.choice import BETAS, SIGMAS
from smoothcert.plain_text import beside, command

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

    from smoothcert.cli.arguments import NamedModel
    from smoothcert.datasets.base import Dataset
    from smoothcert.masked.choice import MaskedChoice, MaskedPoint
    from smoothcert.perturb.base import Perturbation
    from smoothcert.perturb.columns import Columns
    from smoothcert.runs.run import Run


_ESTIMATOR = (
    "What to train: module:Class, module:function or module:object, made without arguments, or a .joblib or .pkl file "
    "(with --trust-pickle)."
)


@dataclass(frozen=True)
class TrainingSplit:
    """Rows of the training split, read only where a σ is relative to them."""

    columns: Columns | None
    load: Callable[[], Dataset]

    def rows(self) -> NDArray[Any]:
        """As the model has them."""
        found = self.load()
        return np.asarray((found if self.columns is None else found.encoded_by(self.columns)).stored)


def perturbation_of(
    named: NamedModel, text: str | None, sigma: float | None, table: TrainingSplit | None
) -> Perturbation | None:
    """What ``--noise`` names or the model was trained for; None for noise on real numbers.

    ``table`` is None where there is no data set: then only the model can say what σ is relative to.
    """
    from smoothcert.perturb.base import PERTURBATIONS

    trained_for = named.trained_for
    name, _, rest = (text or "").partition(":")
    if text is None or name not in PERTURBATIONS:
        if text is not None or trained_for is None:
            return None
        if sigma is None:
            return trained_for
        name, rest = trained_for.name, f"beta={trained_for.beta!r}"
    options = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.rpartition("=")
        if not equals:
            raise InvalidValueError(f"--noise {text}: options are NAME=VALUE, got {part!r}")
        options[unquote(option)] = value
    if table is None:
        raise InvalidValueError(
            f"--noise {name} needs rows that σ is relative to: serve a model of fit_masked, which has its noise, or "
            "give --plan-from a run"
        )
    if name == getattr(trained_for, "name", None) and not options and sigma is None:
        return trained_for
    return PERTURBATIONS[name].asked(options, sigma, table)


def perturbed(
    named: NamedModel,
    text: str | None,
    sigma: float | None,
    inputs: Dataset,
    training: Callable[[], Dataset],
    *,
    held: bool,
) -> tuple[Perturbation | None, Dataset]:
    """The perturbation, and the inputs as its columns have them; categories are not given noise on numbers."""
    trained_for = named.trained_for
    columns = inputs.columns if trained_for is None else trained_for.columns
    found = perturbation_of(named, text, sigma, TrainingSplit(columns, training))
    if found is None and not held and inputs.columns is not None and inputs.columns.categorical:
        categories = ", ".join(inputs.columns.categories)
        raise InvalidValueError(
            f"{inputs.name}: noise on numbers means nothing to categories ({categories}): give --noise hybrid, which "
            "masks them, or --hold them"
        )
    columns = getattr(found, "columns", None)
    return found, inputs if columns is None else inputs.encoded_by(columns)


def changes_parts(run: Run) -> Iterator[str | Table]:
    """The share that is right and certified over d and ρ, and what that means for one row of the table."""
    from smoothcert.analysis.changes import CertifiedChanges
    from smoothcert.analysis.tables import percentage

    found = CertifiedChanges.of(run)
    rhos = found.rhos()
    table = figure_table(
        *("d", *(f"ρ = {rho}" for rho in rhos)),
        title="certified accuracy (%) after d changed categories, numbers moved by less than ρ",
    )
    for d in found.rows():
        table.add_row(str(d), *(percentage(found.share(d, float(rho))) for rho in rhos))
    yield table
    yield from filter(None, map(found.units, rhos[1:2]))
    right = [
        place for place, correct in enumerate(run.records.correct.tolist()) if correct and found.tables[place]
    ]
    if right:
        median = sorted(right, key=lambda place: found.tables[place])[len(right) // 2]
        (sentences,) = found.regions([median])
        yield f"The median right answer (input {run.records.index[median]}) holds though its row"
        yield from (f"  {sentence}" for sentence in sentences)


def fit_masks(
    estimator: Annotated[str, Parameter(help=_ESTIMATOR)],
    *,
    dataset: Annotated[str, Parameter(alias="-d")],
    out: Path,
    sigmas: Annotated[tuple[float, ...], Parameter(consume_multiple=True, converter=listed)] = SIGMAS,
    betas: Annotated[tuple[float, ...], Parameter(consume_multiple=True, converter=listed)] = BETAS,
    changes: int = 1,
    move: float = 0.05,
    balanced: bool = False,
    validation: int = 200,
    n: int = 1000,
    alpha: float = 0.001,
    copies: int = 10,
    seed: int = 0,
    trust_pickle: bool = False,
    data: TrainingDataOptions = TrainingDataOptions(),
    speed: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Train a classifier of tables for masks and noise, and choose how much of both.

    On each σ and β of a grid, the classifier is trained on masked, noisy copies of training rows, and rows kept apart
    are certified with few votes. The table and the picture show what share stays right after d changed categories and
    numbers that move so far; the model of the best point is written. Its shares are of the rows that it was chosen on:
    certify others, such as the test split.

    Example: `smoothcert fit masks sklearn.ensemble:HistGradientBoostingClassifier --dataset bank --out fits/bank`

    Then: `smoothcert certify fits/bank/model.joblib --trust-pickle --dataset bank --n 10000 --out runs/bank`

    Parameters
    ----------
    dataset
        A table: csv:PATH, parquet:PATH or bank.
    out
        Directory for model.joblib, choice.json and trade-off.png.
    sigmas
        In standard deviations of each number.
    betas
        Probabilities of a mask.
    changes
        Changed categories that the best point is chosen for.
    move
        How far numbers move, in standard deviations, that the best point is chosen for.
    balanced
        Choose by the mean over classes, so that a rare class counts as much.
    validation
        Rows kept apart from training.
    n
        Votes that certify each of them.
    alpha
        Probability that a certificate is wrong.
    copies
        How often each row is shown in training.
    seed
        Of the rows kept apart, of masks and noise.
    trust_pickle
        Unpickle ESTIMATOR (.joblib, .pkl). It can run any code: only for files you trust.
    """
    from smoothcert.analysis.plots.drawing import require_matplotlib
    from smoothcert.cli.arguments import named_estimator
    from smoothcert.datasets.tables import as_frame
    from smoothcert.masked.choice import choose_masked

    require_matplotlib()
    joblib = require("joblib", "writing model.joblib")
    classifier = named_estimator(estimator, trust_pickle)
    inputs = data.load(dataset)
    table, classes = as_frame(inputs)
    places = data.choice().indices(len(inputs))
    assert inputs.columns is not None
    categories = [inputs.columns.names[place] for place in inputs.columns.categorical]
    with progress_bar("points", "points", len(sigmas) * len(betas)) as bar:

        def step(point: MaskedPoint) -> None:
            bar.one()
            seconds = point.fit_seconds + point.vote_seconds
            note(f"{point}: {point.share(changes, move):.1%} certified, {seconds:.1f} s")

        found = choose_masked(
            classifier,
            table.iloc[places],
            classes[places],
            sigmas=sigmas,
            betas=betas,
            changes=changes,
            move=move,
            balanced=balanced,
            validation=validation,
            n=n,
            alpha=alpha,
            categorical=categories,
            copies=copies,
            seed=seed,
            execution=execution_of(speed),
            progress=step,
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    make_folder(out)
    spec = data.spec(dataset)
    kept = np.asarray(places)[found.rows].tolist()
    told = found.as_json() | {"estimator": estimator, "dataset": spec, "split": data.split, "rows": kept}
    joblib.dump(found.model, out / "model.joblib")
    write_atomically(out / "choice.json", (json.dumps(told, indent=2) + "\n").encode())
    found.plot(out / "trade-off.png")
    certified = {"dataset": spec, "data_dir": data.data_dir, "out": beside(out, "certified")}
    after = command("certify", out / "model.joblib", trust_pickle=True, **certified)
    emit(View({"out": str(out), **told, "next": after}, _chosen(found, out, after)), output)


def _chosen(found: MaskedChoice, out: Path, after: str) -> Iterator[str | Table]:
    """Every point for the changes asked for, the best one for others, cost, and the command to continue with."""
    from smoothcert.analysis.tables import percentage

    counts, moves = found.counts(), sorted({0.0, found.move})
    headings = [f"d = {d}, {move:g}" for d in counts for move in moves]
    table = figure_table(
        *("σ", "β", *headings, "worst class", "seconds"),
        title=f"certified accuracy (%) of {len(found.rows)} rows kept apart, n = {found.n}, after d changed categories "
        "and numbers that move by so many standard deviations",
    )
    for point in found.points:
        shares = [percentage(point.share(d, move)) for d in counts for move in moves]
        least = percentage(min(point.by_class(found.changes, found.move).values()))
        seconds = f"{point.fit_seconds + point.vote_seconds:.1f}"
        table.add_row(f"{point.sigma:g}", f"{point.beta:g}", *shares, least, seconds)
    yield table
    about, asked = found.as_json(), f"d = {found.changes}, {found.move:g}"
    yield f"Chosen: {found.best}, best at {asked}{' by the mean over classes' if found.balanced else ''}"
    yield f"worst class: the class of which the smallest share is certified, at {asked}"
    yield f"cost: {about['votes']} votes, {about['seconds']:.0f} s"
    yield found.note()
    yield f"{out / 'trade-off.png'}: the points that are best at any of {len(counts)} d and other distances"
    yield f"Next: {after}"
