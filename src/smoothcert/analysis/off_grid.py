"""Inputs off the grid of the noise: how much a radius around the input itself is short of its grid point's."""

from __future__ import annotations

from decimal import ROUND_UP, Context

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import RunError
from smoothcert.noise import DIAGONAL_NOISES, NOISES, Grid, Noise, load_sigmas, lost_off_grid
from smoothcert.runs import Run
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.statement import PlanStatement, is_count
from smoothcert.sigma_levels import SigmaLevels


def lost_to_rounding(run: Run) -> NDArray[np.float64]:
    """For each record, what its radius must give up to hold for the input as it is and for any numbers around it.

    Nothing where the data say that their inputs are points of the grid, and where there is none: in runs of earlier
    versions and in logs. A search gives every input a noise, and with it a grid, of its own; stages of σ levels have
    the coarsest of theirs in common.
    """
    plan, records = run.manifest.plan, run.records
    if run.manifest.kind != "certify" or plan.stream is None or not len(records):
        return np.zeros(len(records))
    grid = Grid(plan.known(PlanStatement.levels), plan.known(PlanStatement.cells_per_sigma))
    dimension = plan.known(PlanStatement.dimension)
    stated = run.manifest.data.levels
    levels = stated if is_count(stated) and stated > 0 else None
    if plan.sigma_levels is not None:
        drawn = SigmaLevels.from_json(plan.sigma_levels, plan.known(PlanStatement.chooser)).all_sigmas
        kind = NOISES[plan.known(PlanStatement.noise)]
        lost = max(lost_off_grid(kind(sigma), grid, dimension, levels) for sigma in drawn)
        return np.full(len(records), lost)
    if not plan.sigma_search:
        lost = lost_off_grid(plan.noise_in(run.path), grid, dimension, levels)
        return np.full(len(records), lost)
    RunFiles(run.path).refuse_link()
    columns = records.index.tolist(), records.sigma.tolist(), (~np.isnan(records.volume_radius)).tolist()
    noises = (_own_noise(run, *one) for one in zip(*columns))
    return np.array([lost_off_grid(noise, grid, dimension, levels) for noise in noises])


def off_grid_in_words(run: Run) -> str | None:
    """What radii give up, in three digits and rounded up; None where inputs are points of the grid."""
    lost = lost_to_rounding(run)
    if not lost.any():
        return None
    digits = Context(prec=3, rounding=ROUND_UP)
    low, high = (f"{float(digits.create_decimal_from_float(end)):g}" for end in (lost.min(), lost.max()))
    return high if low == high else f"{low} to {high}"


def _own_noise(run: Run, index: int, sigma: float, stretched: bool) -> Noise:
    """The noise that a search found for one input: with scales in a file of its own, or with one σ.

    A record whose region is no ball has such a file, and a run that has lost it isn't read as if it were one.
    """
    kind = run.manifest.plan.known(PlanStatement.noise)
    scales = RunFiles(run.path).sigmas_of(index)
    if not scales.exists():
        if stretched:
            raise RunError(
                f"{scales} is missing: the scales of input {index}'s noise. Certify again with the same command, which "
                "fills in what is missing"
            )
        return NOISES[kind](sigma)
    return DIAGONAL_NOISES[f"diagonal-{kind}"](load_sigmas(scales))
