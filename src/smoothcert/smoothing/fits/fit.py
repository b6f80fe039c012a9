"""One fit in a directory of its own, resumed after each sub-epoch; and which of several fits are worth showing."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError, RunError, check_positive
from smoothcert.files import make_folder, write_atomically
from smoothcert.models.adapt import class_order, labelled_for
from smoothcert.models.base import BaseClassifier
from smoothcert.perturb.base import NOISES
from smoothcert.perturb.diagonal import DiagonalNoise, diagonal_noise, load_sigmas, write_sigmas
from smoothcert.runs.layout import RunFiles, load_checkpoint, save_checkpoint
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import claim_run, inputs_fitted_on
from smoothcert.runs.side_files import write_lines
from smoothcert.runs.statement import PlanStatement, save_sigmas
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.fits.objective import (
    FitProgress,
    FitPurpose,
    GroupScales,
    LowRankScales,
    Streams,
    certified_area,
    starting_vector,
)
from smoothcert.smoothing.fits.plan import FitPlan, group_labels, named_groups
from smoothcert.smoothing.fits.routes import GradientRoute, Outcome, Route, VoteRoute
from smoothcert.smoothing.plan import CertifyPlan

KIND = "fit-noise"
_MOST_VOTED_GROUPS = 1000


@dataclass(frozen=True)
class SubEpoch:
    """Metrics of one sub-epoch; number 0 is the start."""

    sub_epoch: int
    accuracy: float
    """On the validation inputs, by votes."""
    certified: float
    area: float | None
    objective: float | None
    """Mean of O_CA while fitting, by the surrogate that was climbed; None at the start."""
    counted: float | None
    """Share of the fitted inputs that contributed."""
    right: float | None
    sigma: float
    """Geometric mean."""
    least: float
    greatest: float


@dataclass(frozen=True)
class Fit:
    """A fit that was read: its statement, its sub-epochs, and the noise it ended in (None while under way)."""

    path: Path
    manifest: Manifest
    history: tuple[SubEpoch, ...]
    noise: DiagonalNoise | None

    @property
    def kind(self) -> str:
        """The noise fitted."""
        return self.manifest.plan.known(PlanStatement.noise)

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the coordinates, where the data had any."""
        return self.manifest.origin.feature_names

    @property
    def init(self) -> float:
        """The constant that it began with."""
        return self.manifest.plan.known(PlanStatement.init)


def fit_into(
    out: Path,
    base: BaseClassifier,
    dataset: Dataset,
    plan: FitPlan,
    indices: range | None = None,
    execution: Execution | None = None,
    progress: FitProgress | None = None,
    origin: dict[str, Any] | None = None,
) -> Fit:
    """Find one σ vector for ``dataset`` in ``out``, resuming where it was interrupted; nothing to do if finished.

    ``indices``: which inputs of the data set to use (default: all). The validation inputs are kept apart and never
    fitted on. A kill costs at most the sub-epoch under way, and the vector at the end has the same bits. Another
    plan, model, data set or kind of device is rejected.
    """
    execution, progress = execution or Execution(), progress or FitProgress()
    indices = range(len(dataset)) if indices is None else indices
    fitted, kept = Streams(plan.seed).split(indices, plan.validation)
    labelled, statement = labelled_for(base, dataset), plan.as_json() | {"device": execution.device_kind}
    route, groups = _route(base, labelled, plan, execution, fitted)
    if groups is not None:
        statement["group_count"] = groups
    if not named_groups(plan.groups):
        labels = group_labels(plan.groups, dataset.input_shape)
        statement["groups"] = f"sha256:{hashlib.sha256(labels.astype('<i8').tobytes()).hexdigest()}"
    model = {"name": base.name, "sha256": base.fingerprint(dataset.input_shape)}
    data = inputs_fitted_on(dataset, indices)
    manifest = Manifest.of(KIND, statement, model, data, origin=origin or {}).made_now()
    if (order := class_order(base, dataset)) is not None:  # follows from names, which no hash covers
        manifest = manifest.stating(model=manifest.model.but(order=list(order)))
    with claim_run(out, manifest):
        files, (history, tensors) = RunFiles(out), _load_state(out)
        if history:
            route.restore(tensors)
        done = len(history)
        left, checks = plan.sub_epochs + 1 - done, (plan.validation_n0 + plan.validation_n) * len(kept)
        rows = left * checks + min(left, plan.sub_epochs) * route.rows(len(fitted))
        progress.begin(rows, plan.sub_epochs, max(done - 1, 0))
        for number in range(done, plan.sub_epochs + 1):
            outcome = route.sub_epoch(number, fitted, progress.rows) if number else Outcome()
            sigmas = route.sigmas()
            noise = diagonal_noise(plan.noise, sigmas)
            step = SubEpoch(
                sub_epoch=number,
                **asdict(validate(base, labelled, kept, sigmas, plan, execution, progress.rows)),
                **asdict(outcome),
                sigma=noise.sigma,
                least=noise.smallest_sigma,
                greatest=noise.largest_sigma,
            )
            history = (*history, step)
            make_folder(files.steps)
            write_sigmas(files.sigmas_after(number), sigmas)
            save_checkpoint(out, {"history": [asdict(each) for each in history], "tensors": route.tensors()})
            write_lines(files.metrics, map(asdict, history))
            progress.epoch(step)
        save_sigmas(out, diagonal_noise(plan.noise, route.sigmas()))
    return read_fit(out)


def read_fit(path: Path) -> Fit:
    """Read a fit, finished or not."""
    if not path.is_dir():
        raise RunError(f"{path} is not a fit: no such directory")
    manifest = Manifest.load(path)
    if manifest.kind != KIND:
        raise RunError(f"{path} is a {manifest.kind} run, not a fit: make one with smoothcert fit noise")
    history, _ = _load_state(path)
    noise = None
    if (sigmas := RunFiles(path).sigmas).exists():
        noise = diagonal_noise(manifest.plan.known(PlanStatement.noise), load_sigmas(sigmas))
    return Fit(path, manifest, history, noise)


def step_sigmas(path: Path, number: int) -> NDArray[np.float64]:
    """The vector after a sub-epoch (0: at the start)."""
    return load_sigmas(RunFiles(path).sigmas_after(number))


def _load_state(directory: Path) -> tuple[tuple[SubEpoch, ...], dict[str, Any]]:
    """The sub-epochs that were done and the tensors of the route after them; nothing at the beginning."""

    def parse(saved: dict[str, Any]) -> tuple[tuple[SubEpoch, ...], dict[str, Any]]:
        return tuple(SubEpoch(**step) for step in saved["history"]), saved["tensors"]

    return load_checkpoint(directory, parse, "fit") or ((), {})


def _route(
    base: BaseClassifier, dataset: Dataset, plan: FitPlan, execution: Execution, fitted: NDArray[np.int64]
) -> tuple[Route, int | None]:
    """The route, and the number of groups it moves (None for low rank)."""
    spread = _spread(dataset, fitted) if plan.scale == "std" else None
    start = starting_vector(dataset.input_shape, plan.init, spread)
    if plan.rank is not None:
        scales = LowRankScales(start, plan.rank, plan.seed)
        return GradientRoute(base, dataset, plan, scales, execution), None
    grouped = GroupScales(start, group_labels(plan.groups, dataset.input_shape))
    if plan.route == "gradient":
        return GradientRoute(base, dataset, plan, grouped, execution), grouped.groups
    if grouped.groups > _MOST_VOTED_GROUPS:
        raise InvalidValueError(
            f"the votes route tries each of {grouped.groups} groups by itself, which would take very long: join "
            f"them with --groups (at most {_MOST_VOTED_GROUPS}; patch:4 for images)"
        )
    return VoteRoute(base, dataset, plan, grouped, execution), grouped.groups


def _spread(dataset: Dataset, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    total = np.zeros(dataset.input_shape)
    squares = np.zeros(dataset.input_shape)
    middle = dataset.inputs(indices[:1]).astype(np.float64)[0]  # near the mean: squares don't cancel
    for first in range(0, len(indices), 1024):
        part = dataset.inputs(indices[first : first + 1024]).astype(np.float64) - middle
        total += part.sum(0)
        squares += (part * part).sum(0)
    mean = total / len(indices)
    return np.asarray(np.sqrt(np.maximum(squares / len(indices) - mean * mean, 0.0)))


@dataclass(frozen=True)
class Validation:
    """``accuracy``: share of inputs that n0 votes put in the right class. ``area``: mean of O_CA over the right ones
    that are certified, None if there are none; ``certified`` is their share.
    """

    accuracy: float
    certified: float
    area: float | None


def validate(
    base: BaseClassifier,
    dataset: Dataset,
    indices: NDArray[np.int64],
    sigmas: NDArray[np.float64],
    plan: FitPlan,
    execution: Execution,
    on_votes: Callable[[int], None] | None = None,
) -> Validation:
    """CERTIFY with the paper's bound on the inputs ``indices``; the same votes at every σ of a fit.

    They are never votes of ``certify``, whatever its seed: a σ may be chosen by these figures and certified afterwards.
    """
    statement = CertifyPlan(
        diagonal_noise(plan.noise, sigmas),
        bound="clopper-pearson",
        n0=plan.validation_n0,
        n=plan.validation_n,
        alpha=plan.alpha,
        seed=Streams(plan.seed).number(FitPurpose.VALIDATION),
    )
    smoothed = SmoothedClassifier(base, statement, execution=execution)
    inputs: list[tuple[int, NDArray[Any]]] = [(int(index), dataset.input(int(index))) for index in indices]
    # In order of index: a mean of floats depends on it, and answers come as they are ready.
    answers = sorted(smoothed.certify_each(inputs, on_votes), key=lambda answer: answer.index)
    right = [answer for answer in answers if answer.evidence.candidate == dataset.labels[answer.index]]
    soft_gap = NOISES[plan.noise].soft_gap
    bounds = [answer.evidence.bounds for answer in right if not answer.abstained]
    areas = [certified_area(sigmas, float(soft_gap(b.lower, b.upper)), plan.noise) for b in bounds]
    area = math.fsum(areas) / len(areas) if areas else None
    return Validation(len(right) / len(answers), len(areas) / len(answers), area)


_MOST_STARTS = 200


@dataclass(frozen=True)
class FitPoint:
    """A sub-epoch of a fit: accuracy and mean area on the validation inputs. Sub-epoch 0 is the start itself."""

    fit: str
    init: float
    sub_epoch: int
    area: float
    accuracy: float
    certified: float
    kept: bool = False


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Positions of the (area, accuracy) points worth showing, from the most accurate down (Tecot et al., B.1).

    A point is kept only if its area lies outside the range of those kept before it: what is dropped has a more
    accurate point on either side. Of equally accurate points the one with the larger area comes first.
    """
    order = sorted(range(len(points)), key=lambda k: (-points[k][1], -points[k][0]))
    kept: list[int] = []
    for k in order:
        areas = [points[j][0] for j in kept]
        if not areas or not min(areas) <= points[k][0] <= max(areas):
            kept.append(k)
    return kept


def starting_constants(spec: str) -> list[float]:
    """``0.5``; ``0.1,0.2,0.5``; or ``0.1:1.0:0.1``, from the first to the second in steps of the third."""
    is_range = spec.count(":") == 2
    try:
        constants = [float(part) for part in spec.split(":" if is_range else ",")]
        if is_range:
            low, high, step = constants
            if not (math.isfinite(low) and math.isfinite(high) and step > 0 and high >= low):
                raise ValueError
    except ValueError:
        raise InvalidValueError(
            f"init must be a number, a list 0.1,0.2 or a range FIRST:LAST:STEP such as 0.1:1.0:0.1; got {spec!r}"
        ) from None
    if is_range:
        if (count := math.floor((high - low) / step + 1e-9) + 1) > _MOST_STARTS:
            raise InvalidValueError(
                f"init {spec!r} makes {count} starting constants; at most {_MOST_STARTS}: take a larger step"
            )
        constants = [float(f"{low + k * step:.10g}") for k in range(count)]
    for value in constants:
        check_positive("init", value)
    if len(set(constants)) < len(constants):
        raise InvalidValueError(f"init {spec!r} names a starting constant twice")
    return constants


def front_points(fits: Sequence[Fit]) -> list[FitPoint]:
    """Every sub-epoch that certified something, ordered by area; ``kept``: on the Pareto front.

    Sub-epoch 0 is noise without a fit and takes no part in the front.
    """
    points = [
        FitPoint(fit.path.name, fit.init, step.sub_epoch, step.area, step.accuracy, step.certified)
        for fit in fits
        for step in fit.history
        if step.area is not None
    ]
    fitted = [point for point in points if point.sub_epoch > 0]
    kept = {fitted[k] for k in pareto_front([(point.area, point.accuracy) for point in fitted])}
    marked = [replace(point, kept=point in kept) for point in points]
    return sorted(marked, key=lambda point: (point.area, point.fit, point.sub_epoch))


def read_fits(path: Path) -> list[Fit]:
    """The fits in a directory by starting constant; the directory may be a single fit."""
    if not path.is_dir():
        raise RunError(f"{path} is not a fit: no such directory")
    if RunFiles(path).statement.exists():
        return [read_fit(path)]
    fits = [read_fit(each) for each in sorted(path.iterdir()) if RunFiles(each).statement.exists()]
    if not fits:
        raise RunError(f"{path} is not a fit: make one with smoothcert fit noise")
    return sorted(fits, key=lambda fit: fit.init)


def finished_fit(path: Path) -> Fit:
    """A single fit that has ended; else an error that says what to name instead."""
    fits = read_fits(path)
    if len(fits) > 1 or fits[0].path != path:
        names = ", ".join(str(each.path) for each in fits)
        raise RunError(f"{path} holds several fits: name one of {names}")
    if fits[0].noise is None:
        raise RunError(f"{path} isn't finished: rerun the fit noise command to resume it")
    return fits[0]


def write_front(path: Path, points: Sequence[FitPoint]) -> None:
    """``blanket.json`` and ``blanket.csv``: all points, those on the Pareto front marked."""
    rows = [asdict(point) for point in points]
    write_atomically(path / "blanket.json", (json.dumps(rows, indent=2) + "\n").encode())
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else ["fit"])
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path / "blanket.csv", text.getvalue().encode())
