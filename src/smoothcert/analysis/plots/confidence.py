"""How sure a run was of its answers: the lower bound of p_A over the inputs, right and wrong apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from smoothcert.analysis.about import alpha_of_class
from smoothcert.analysis.figures import BLUE, GREY, INK, VERMILION, check_picture_path
from smoothcert.analysis.metrics import acr_share_of_top
from smoothcert.analysis.plots.kinds import register
from smoothcert.analysis.plots.labels import checked, partial_inputs
from smoothcert.analysis.plots.sheets import add_title, new_sheet
from smoothcert.analysis.plots.sigma import check_panels
from smoothcert.bounds import BOUNDS
from smoothcert.errors import InvalidValueError
from smoothcert.runs import Record, Run
from smoothcert.runs.statement import PlanStatement

_ONE_SIDED = "clopper-pearson"
_LEAST, _MOST = 0.1, 1 - 1e-9  # p_A beyond them is drawn at them
_TICKS = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_BINS_PER_UNIT = 6


@dataclass(frozen=True)
class Confidence:
    """Lower bounds of p_A by outcome; ``unknown`` inputs have none: no votes were cast, or the log doesn't hold it."""

    right: NDArray[np.float64]
    wrong: NDArray[np.float64]
    abstained: NDArray[np.float64]
    unknown: int


def confidence_of(run: Run) -> Confidence:
    """The bound each certificate rests on, recomputed from the votes.

    A run without votes (an imported log) gives Φ(radius/σ), which is the bound only if p_B was taken as 1 − p_A: it
    must state the clopper-pearson bound and Gaussian noise. Its abstentions are unknown.
    """
    lower = np.array([_lower(run, record) for record in run.records], dtype=np.float64)
    known, correct, abstained = ~np.isnan(lower), run.records.correct, run.records.abstained
    wrong, unknown = known & ~correct & ~abstained, int((~known).sum())
    return Confidence(lower[known & correct], lower[wrong], lower[known & abstained], unknown)


@register("confidence", "how the lower bounds of p_A are spread, right and wrong answers apart")
def plot_confidence(runs: Sequence[Run], out: Path, width: str = "page") -> None:
    """Draw, for each run, how the lower bounds of p_A are spread: right answers upwards, the others downwards."""
    check_picture_path(out)
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    checked(runs)
    check_panels(runs)
    found = [confidence_of(run) for run in runs]
    unknown = ", ".join(str(each.unknown) for each in found) if any(each.unknown for each in found) else None
    labels = ["right", "wrong", "abstained" + (f" ({unknown} inputs not drawn: no votes)" if unknown else "")]
    height = 1.0 if len(runs) == 1 else 0.62
    with new_sheet(out, width, labels, panels=len(runs), panel_height=height, top=0.28) as sheet:
        edges = _edges(found)
        for axes, run, each in zip(sheet.panels, runs, found):
            up = _share(each.right, edges, len(run.records))
            wrong, abstained = (
                _share(part, edges, len(run.records)) for part in (each.wrong, each.abstained)
            )
            axes.stairs(up, edges, fill=True, facecolor=BLUE)
            axes.stairs(
                -wrong, edges, fill=True, facecolor=VERMILION, hatch="//////", edgecolor="white", lw=0
            )
            axes.stairs(
                -wrong - abstained, edges, baseline=-wrong, fill=True, facecolor=GREY, alpha=0.55, lw=0
            )
            axes.axhline(0.0, color=INK, linewidth=0.6)
            share = acr_share_of_top(run.records)
            carried = None if share is None else f"surest tenth: {100 * share:.0f} % of the ACR"
            add_title(axes, sheet.look, run.name, partial_inputs(run), carried)
            ticks = [p for p in _TICKS if edges[0] <= ndtri(p) <= edges[-1]]
            axes.set_xticks([float(ndtri(p)) for p in ticks], [f"{p:g}" for p in ticks])
            axes.set_xlim(edges[0], edges[-1])
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
            axes.set_ylabel("inputs (%)")
        sheet.panels[-1].set_xlabel("lower bound of $p_A$ (axis linear in Φ⁻¹, as the radius is)")
        sheet.add_legend(
            [
                Patch(facecolor=BLUE),
                Patch(facecolor=VERMILION, hatch="//////", edgecolor="white", lw=0),
                Patch(facecolor=GREY, alpha=0.55),
            ]
        )


def _edges(found: Sequence[Confidence]) -> NDArray[np.float64]:
    every = np.concatenate([part for each in found for part in (each.right, each.wrong, each.abstained)])
    low, high = float(every.min(initial=0.5)), float(every.max(initial=0.9))
    first = math.floor(_BINS_PER_UNIT * float(ndtri(max(low, _LEAST))))
    last = math.floor(_BINS_PER_UNIT * float(ndtri(min(high, _MOST)))) + 2
    return np.arange(first, last + 1) / _BINS_PER_UNIT


def _share(bounds: NDArray[np.float64], edges: NDArray[np.float64], inputs: int) -> NDArray[np.float64]:
    places = np.clip(ndtri(np.maximum(bounds, 1e-300)), edges[0], edges[-1])
    return 100 * np.histogram(places, edges)[0] / inputs


def _lower(run: Run, record: Record) -> float | None:
    plan = run.manifest.plan
    if record.estimation is not None and record.selection is not None:
        if not record.estimation.n:
            return None  # voting ended before it began
        chosen = record.selection.top() if record.abstained else record.predicted
        return BOUNDS[plan.known(PlanStatement.bound)](record.estimation, chosen, alpha_of_class(plan)).lower
    if plan.noise != "gaussian" or plan.bound != _ONE_SIDED:
        raise InvalidValueError(
            f"{run.path} holds no votes, and its radii give p_A only for Gaussian noise and the {_ONE_SIDED} bound; "
            f"if it was made with them, import it with --bound {_ONE_SIDED}"
        )
    return None if record.abstained else float(ndtr(record.radius / record.sigma))
