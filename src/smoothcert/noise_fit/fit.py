"""One fit in a directory of its own: its statement, metrics, a checkpoint after each sub-epoch, σ at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.files import make_folder
from smoothcert.noise import DiagonalNoise, diagonal_noise, load_sigmas, write_sigmas
from smoothcert.noise_fit.gradient import GradientRoute
from smoothcert.noise_fit.groups import group_labels, named_groups
from smoothcert.noise_fit.plan import FitPlan
from smoothcert.noise_fit.route import Outcome, Route
from smoothcert.noise_fit.scales import GroupScales, LowRankScales, starting_vector
from smoothcert.noise_fit.state import State, SubEpoch, load_state, save_state
from smoothcert.noise_fit.streams import Purpose, stream
from smoothcert.noise_fit.validation import validate
from smoothcert.noise_fit.votes import VoteRoute
from smoothcert.runs import Manifest, claim_run
from smoothcert.runs.data_check import inputs_fitted_on
from smoothcert.runs.json_lines import write_lines
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.noise_files import save_sigmas
from smoothcert.runs.statement import PlanStatement
from smoothcert.sampling import BaseClassifier, Execution
from smoothcert.sampling.models import class_order, labelled_for

KIND = "fit-noise"
_MOST_VOTED_GROUPS = 1000


@dataclass(frozen=True)
class Progress:
    """Progress callbacks."""

    begin: Callable[[int, int, int], None] | None = None
    """(rows to evaluate, sub-epochs in all, sub-epochs done before)"""
    rows: Callable[[int], None] | None = None
    sub_epoch: Callable[[SubEpoch], None] | None = None


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
    progress: Progress | None = None,
    origin: dict[str, Any] | None = None,
) -> Fit:
    """Find one σ vector for ``dataset`` in ``out``, going on where it was interrupted; nothing to do if finished.

    ``indices``: which inputs of the data set to use (default: all). The validation inputs are kept apart and never
    fitted on. A kill costs at most the sub-epoch under way, and the vector at the end has the same bits. Another
    plan, model, data set or kind of device is refused.
    """
    execution, progress = execution or Execution(), progress or Progress()
    indices = range(len(dataset)) if indices is None else indices
    fitted, kept = split_validation(indices, plan)
    labelled = labelled_for(base, dataset)
    route, groups = _route(base, labelled, plan, execution, fitted)
    manifest = _manifest(base, dataset, indices, plan, groups, execution, origin or {})
    if (order := class_order(base, dataset)) is not None:  # follows from names, which no hash covers
        manifest = manifest.stating(model=manifest.model.but(order=list(order)))
    with claim_run(out, manifest):
        state = load_state(out)
        if state.history:
            route.restore(state.tensors)
        done = len(state.history)
        if progress.begin is not None:
            left, checks = plan.sub_epochs + 1 - done, (plan.validation_n0 + plan.validation_n) * len(kept)
            rows = left * checks + min(left, plan.sub_epochs) * route.rows(len(fitted))
            progress.begin(rows, plan.sub_epochs, max(done - 1, 0))
        for number in range(done, plan.sub_epochs + 1):
            outcome = route.sub_epoch(number, fitted, progress.rows) if number else Outcome()
            sigmas = route.sigmas()
            found = validate(base, labelled, kept, sigmas, plan, execution, progress.rows)
            noise = diagonal_noise(plan.noise, sigmas)
            one = SubEpoch(
                sub_epoch=number,
                **asdict(found),
                **asdict(outcome),
                sigma=noise.sigma,
                least=noise.smallest_sigma,
                greatest=noise.largest_sigma,
            )
            state = State((*state.history, one), route.tensors())
            make_folder(RunFiles(out).steps)
            write_sigmas(RunFiles(out).sigmas_after(number), sigmas)
            save_state(out, state)
            write_lines(RunFiles(out).metrics, map(asdict, state.history))
            if progress.sub_epoch is not None:
                progress.sub_epoch(one)
        save_sigmas(out, diagonal_noise(plan.noise, route.sigmas()))
    return read_fit(out)


def read_fit(path: Path) -> Fit:
    """Read a fit, finished or not."""
    if not path.is_dir():
        raise RunError(f"{path} is not a fit: no such directory")
    manifest = Manifest.load(path)
    if manifest.kind != KIND:
        raise RunError(f"{path} is a {manifest.kind} run, not a fit: make one with smoothcert fit-noise")
    history = load_state(path).history
    noise = None
    if (sigmas := RunFiles(path).sigmas).exists():
        noise = diagonal_noise(manifest.plan.known(PlanStatement.noise), load_sigmas(sigmas))
    return Fit(path, manifest, history, noise)


def step_sigmas(path: Path, number: int) -> NDArray[np.float64]:
    """The vector after a sub-epoch (0: at the start)."""
    return load_sigmas(RunFiles(path).sigmas_after(number))


def split_validation(indices: range, plan: FitPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions to fit on and ``validation`` positions kept apart, chosen by the seed."""
    if plan.validation >= len(indices):
        raise InvalidValueError(
            f"validation must be less than the {len(indices)} inputs there are, got {plan.validation}: the rest is "
            f"fitted on. Keep fewer apart: --validation {max(1, len(indices) // 4)}, say"
        )
    order = torch.randperm(len(indices), generator=stream(plan.seed, Purpose.HOLDOUT)).numpy()
    order = np.asarray(indices, dtype=np.int64)[order]
    return np.sort(order[plan.validation :]), np.sort(order[: plan.validation])


def _route(
    base: BaseClassifier,
    dataset: Dataset,
    plan: FitPlan,
    execution: Execution,
    fitted: NDArray[np.int64],
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
    """Each coordinate's standard deviation over the inputs fitted on, read in parts."""
    total = np.zeros(dataset.input_shape)
    squares = np.zeros(dataset.input_shape)
    middle = dataset.inputs(indices[:1]).astype(np.float64)[0]  # near the mean: squares don't cancel
    for first in range(0, len(indices), 1024):
        part = dataset.inputs(indices[first : first + 1024]).astype(np.float64) - middle
        total += part.sum(0)
        squares += (part * part).sum(0)
    mean = total / len(indices)
    return np.asarray(np.sqrt(np.maximum(squares / len(indices) - mean * mean, 0.0)))


def _manifest(
    base: BaseClassifier,
    dataset: Dataset,
    indices: range,
    plan: FitPlan,
    groups: int | None,
    execution: Execution,
    origin: dict[str, Any],
) -> Manifest:
    statement = plan.as_json() | {"device": execution.device_kind}
    if groups is not None:
        statement["group_count"] = groups
    if not named_groups(plan.groups):
        labels = group_labels(plan.groups, dataset.input_shape)
        statement["groups"] = f"sha256:{hashlib.sha256(labels.astype('<i8').tobytes()).hexdigest()}"
    return Manifest.of(
        kind=KIND,
        plan=statement,
        model={"name": base.name, "sha256": base.fingerprint(dataset.input_shape)},
        data=inputs_fitted_on(dataset, indices),
        origin=origin,
    ).made_now()
