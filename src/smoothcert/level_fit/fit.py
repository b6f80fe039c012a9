"""One chooser in a directory of its own: its statement, what it is worth, and its weights, which come last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.architectures.weights import WEIGHTS_NAME, load_model, save_model
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, ModelError, RunError
from smoothcert.level_fit.network import chooser_spec, chosen_inputs, fitted_chooser
from smoothcert.level_fit.plan import LevelFitPlan
from smoothcert.level_fit.report import LevelReport, reported
from smoothcert.level_fit.votes import counted_votes, radii_by_level
from smoothcert.noise import NOISES
from smoothcert.runs import Manifest, claim_run
from smoothcert.runs.data_check import inputs_fitted_on
from smoothcert.runs.layout import RunFiles
from smoothcert.sampling import BaseClassifier, Execution
from smoothcert.sampling.models import TorchClassifier
from smoothcert.sigma_levels.fitted import read_chooser_fields, write_chooser_statement
from smoothcert.smoothing.level_plans import stage_seed

KIND = "fit-levels"


@dataclass(frozen=True)
class Progress:
    """Progress callbacks."""

    begin: Callable[[int, int], None] | None = None
    """(noisy rows to be shown to a network, epochs of training)"""
    rows: Callable[[int], None] | None = None
    epoch: Callable[[], None] | None = None


def fit_levels_into(
    out: Path,
    models: Sequence[BaseClassifier],
    dataset: Dataset,
    plan: LevelFitPlan,
    indices: range | None = None,
    execution: Execution | None = None,
    progress: Progress | None = None,
    origin: dict[str, Any] | None = None,
    start: Path | None = None,
) -> LevelReport:
    """Fit a chooser for ``models`` (one for all levels, or one for each) in ``out``; nothing to do if it is there.

    The directory is a model of levels like any other once it is finished. A kill before that leaves nothing that could
    be taken for one: what makes it a model, the description of the weights, is written last. Another plan, model or
    data set is refused. ``start``: a trained model whose network, all but its last layer, the chooser starts from.
    """
    execution, progress = execution or Execution(), progress or Progress()
    indices = range(len(dataset)) if indices is None else indices
    if len(models) not in (1, len(plan.sigmas)):
        raise InvalidValueError(
            f"give one model for all levels or one for each of {len(plan.sigmas)}, got {len(models)}"
        )
    if plan.validation >= (drawn := min(plan.inputs, len(indices))):
        raise InvalidValueError(
            f"validation must be less than the {drawn} inputs that are voted on, got {plan.validation}: the rest is "
            f"fitted on. Keep fewer apart: --validation {max(1, drawn // 4)}, say"
        )
    if (out / WEIGHTS_NAME).exists() and not RunFiles(out).statement.exists():
        raise RunError(f"{out} holds {WEIGHTS_NAME} of something else: choose another --out")
    begun, begun_spec = (None, None) if start is None else load_model(start)
    spec = chooser_spec(dataset, plan, begun_spec)
    shape = dataset.input_shape
    named = [{"name": base.name, "sha256": base.fingerprint(shape)} for base in models]
    manifest = Manifest.of(
        kind=KIND,
        plan=plan.as_json() | {"device": execution.device_kind},
        model={
            "name": ", ".join(dict.fromkeys(one["name"] for one in named)),
            "sha256s": [one["sha256"] for one in named],
            **({} if begun is None else {"start_sha256": TorchClassifier(begun).fingerprint(shape)}),
        },
        data=inputs_fitted_on(dataset, indices),
        origin=origin,
    ).made_now()
    with claim_run(out, manifest):
        if (done := _finished(out)) is not None:
            return done
        fitted, kept = chosen_inputs(indices, plan)
        drawn_inputs = np.concatenate((fitted, kept))
        if progress.begin is not None:
            cast = plan.votes * (len(plan.sigmas) * len(drawn_inputs) + len(kept))
            progress.begin(cast + plan.epochs * plan.copies * len(fitted), plan.epochs)
        radii = radii_by_level(models, dataset, drawn_inputs, plan, execution, progress.rows)
        chooser = fitted_chooser(
            spec, dataset, fitted, radii[: len(fitted)], plan, progress.rows, progress.epoch, begun
        )
        noise = NOISES[plan.noise](plan.noise_sigma)
        seed = stage_seed(plan.seed, "fit chooser")
        voter = TorchClassifier(chooser, spec.architecture)
        counts = counted_votes(voter, dataset, kept, noise, plan.votes, seed, execution, progress.rows)
        report = reported(counts, radii[len(fitted) :], noise)
        about = {
            "noise": plan.noise,
            "models": named,
            "data": {"name": dataset.name, "sha256": dataset.fingerprint()},
            "report": report.as_json(),
        }
        write_chooser_statement(out, plan.sigmas, plan.noise_sigma, about)
        save_model(chooser, spec, out)
    return report


def _finished(out: Path) -> LevelReport | None:
    """The report of a chooser that is there and intact."""
    try:
        load_model(out)
        fields = read_chooser_fields(out)
        return None if fields is None else LevelReport.from_json(fields["report"])
    except (ModelError, KeyError, TypeError):
        return None
