"""What a run must be for anything to follow from it: complete, and with radii that are known to be certified."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.ceiling import at_most, radius_ceiling
from smoothcert.analysis.off_grid import lost_to_rounding
from smoothcert.analysis.votes import inputs_depend
from smoothcert.errors import RunError
from smoothcert.runs import Run
from smoothcert.runs.printed import Printed


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
