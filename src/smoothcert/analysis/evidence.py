"""What a run must be for anything to follow from it: complete, and with radii that are known to be certified."""

from __future__ import annotations

from decimal import ROUND_UP, Context

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.facts import inputs_depend, most_votes
from smoothcert.bounds.base import BOUNDS
from smoothcert.errors import RunError
from smoothcert.perturb.base import NOISES, PERTURBATIONS, Noise, Perturbation, largest_radius
from smoothcert.perturb.diagonal import DIAGONAL_NOISES, load_sigmas
from smoothcert.perturb.grid import Grid
from smoothcert.rounding import up
from smoothcert.runs.field_log import Printed
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.run import Run
from smoothcert.runs.statement import PlanStatement, is_count
from smoothcert.sigma_levels import SigmaLevels

_VERSIONS = 1e-11


def planned_ceiling(plan: PlanStatement) -> float | None:
    """The radius of a unanimous vote with the most votes that a run's plan allows; None where it doesn't say."""
    noise, bound, alpha = _noise_of(plan), plan.bound, plan.alpha
    if noise is None or plan.n is None or alpha is None or bound is None or bound not in BOUNDS:
        return None
    return largest_radius(noise, BOUNDS[bound], most_votes(plan), alpha)


def _noise_of(plan: PlanStatement) -> Perturbation | None:
    """The plan's noise as far as its radii go: of scales for each dimension the smallest decides."""
    if plan.noise is not None and plan.noise in PERTURBATIONS:
        return PERTURBATIONS[plan.noise].stated(plan.as_json())
    if plan.noise is not None and plan.noise in NOISES and plan.sigma is not None:
        return NOISES[plan.noise](plan.sigma)
    if plan.noise is not None and plan.noise in DIAGONAL_NOISES and plan.least_sigma is not None:
        return DIAGONAL_NOISES[plan.noise](np.array([plan.least_sigma]))
    return None


def at_most(ceiling: float) -> float:
    """What no radius under the plan is above, whichever version of scipy rounded its last bits."""
    return up(ceiling, _VERSIONS)


def radius_ceiling(run: Run) -> float | None:
    """The same for what the run did: None also where σ may differ by input, whether or not it came to that.

    Where it follows the input by levels, none is above the plan's, which is the largest of them.
    """
    plan = run.manifest.plan
    differs = plan.sigma_search or (run.records.sigma != plan.sigma).any()
    return None if plan.sigma_levels is None and differs else planned_ceiling(plan)


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
        lost = max(kind(sigma).lost_off_grid(grid, dimension, levels) for sigma in drawn)
        return np.full(len(records), lost)
    if not plan.sigma_search:
        lost = plan.noise_in(run.path).lost_off_grid(grid, dimension, levels)
        return np.full(len(records), lost)
    RunFiles(run.path).refuse_link()
    columns = records.index.tolist(), records.sigma.tolist(), (~np.isnan(records.volume_radius)).tolist()
    noises = (_own_noise(run, *one) for one in zip(*columns))
    return np.array([noise.lost_off_grid(grid, dimension, levels) for noise in noises])


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

    A record whose region is not a ball has such a file, and a run that has lost it isn't read as if it were one.
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


def check_complete(run: Run) -> None:
    """Refuse a run that isn't known to hold every input it was asked for.

    Inputs that are decided quickly are journalled first, so those done so far are no fair sample; and looking
    again and again finds a lucky moment even if they are.
    """
    run.check_begun()
    if run.complete:
        return
    if run.planned is not None:
        raise RunError.of(
            run.path,
            "isn't complete",
            f": it holds {run.shortfall}. Inputs that are decided quickly come first, so nothing is stated before all "
            f"are done; {_remedy(run)}",
        )
    raise RunError.of(
        run.path,
        "isn't known to be complete",
        f": it holds {run.shortfall}. Nothing is stated of what may be under way; {_remedy(run)}",
    )


def learnt_from(run: Run) -> bool:
    """Whether its inputs are of the split that models are trained on: they are no draws independent of the model."""
    return run.manifest.origin.split == "train"


def check_unseen(run: Run) -> None:
    """Refuse a run on inputs that the model may have learnt, on which it does better than on others."""
    if learnt_from(run):
        raise RunError.of(
            run.path,
            "is of the train split, from which its model may have learnt",
            ": nothing follows from it for other inputs. Certify the test split",
        )


def _remedy(run: Run) -> str:
    if run.manifest.kind == "import":
        return "import the whole log again"
    if run.manifest.plan.recertified_from or run.stateful:
        return "finish the run it was made from, and make it again from that"
    return (
        "certify into a new directory"
        if run.planned is None
        else "give the command it was started with again"
    )


def is_sample(run: Run) -> bool:
    """Whether tests and intervals over the choice of inputs hold for the run: complete, and inputs independent."""
    return run.complete and not inputs_depend(run.manifest)


def certain_radii(run: Run) -> NDArray[np.float64]:
    """For each record the radius that is certain to be certified: of a log half a unit less than it prints."""
    radii, doubts = _radii(run)
    return np.maximum(radii - doubts, 0.0)


def radii_of_inputs(run: Run) -> NDArray[np.float64]:
    """For each record the radius that is certain to be certified around the input itself, on the grid or not."""
    return np.maximum(certain_radii(run) - lost_to_rounding(run), 0.0)


def certain_count(run: Run, radius: float) -> int:
    """How many inputs are right and certainly certified at ``radius`` or more, whatever the rounding was: of a log's
    radii, or of inputs that lie off the grid."""
    return int(np.count_nonzero(run.records.correct & (radii_of_inputs(run) >= radius)))


def possible_radii(run: Run) -> NDArray[np.float64]:
    """For each record the largest radius that may have been certified: of a log half a unit more than it prints."""
    radii, doubts = _radii(run)
    return radii + doubts


def printed_radii(run: Run) -> Printed | None:
    """How a log's radii are printed; None where radii are those that were certified, to the last bit."""
    if run.manifest.kind != "import":
        return None
    # Logs imported by earlier versions don't say: the shortest texts of their radii have no more digits than theirs.
    return Printed.stated(run.manifest.data) or Printed.of(map(repr, run.records.radius.tolist()))


def check_plan_allows(run: Run) -> None:
    """Refuse a run with a radius that its plan can't give: the log was made with another plan, or the run altered."""
    ceiling = radius_ceiling(run)
    if ceiling is None:
        return
    above = certain_radii(run) > at_most(ceiling)
    if above.any():
        record = run.records[int(above.argmax())]
        remedy = (
            "import the log again with those it was made with"
            if run.manifest.kind == "import"
            else "the run was altered or is damaged: restore it or certify again"
        )
        raise RunError.of(
            run.path,
            f"has a radius of {record.radius:g} (input {record.index}), and the noise, n, alpha and bound it states "
            f"allow {ceiling:.6g} at most",
            f"; {remedy}",
        )


def _radii(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    radii = run.records.radius
    printed = printed_radii(run)
    return radii, np.zeros_like(radii) if printed is None else printed.half_units(radii)
