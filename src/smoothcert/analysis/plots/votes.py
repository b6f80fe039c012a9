"""How sure a run was of its answers: the lower bound of p_A over the inputs, right and wrong apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from smoothcert.analysis.metrics import acr_share_of_top, correct_radii
from smoothcert.analysis.overview import lower_bounds
from smoothcert.analysis.plots import drawing
from smoothcert.analysis.plots.kinds import check_panels, checked, partial_inputs, radius_label, register
from smoothcert.bounds.base import BOUNDS, Bound
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.base import NOISES, Perturbation
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.runs.run import Run
from smoothcert.runs.statement import PlanStatement
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

_ONE_SIDED = "clopper-pearson"
_LEAST_P, _MOST_P = 0.1, 1 - 1e-9  # p_A beyond them is drawn at them
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
    must state the one-sided Clopper–Pearson bound, and its abstentions are unknown.
    """
    plan, records = run.manifest.plan, run.records
    lower = lower_bounds(run)
    if lower is not None:
        known = np.array([record.estimation is not None and record.estimation.n > 0 for record in records])
    elif plan.noise == "gaussian" and plan.bound == _ONE_SIDED:
        lower, known = ndtr(records.radius / records.sigma), ~records.abstained
    else:
        raise InvalidValueError(
            f"{run.path} holds no votes, and its radii give p_A only for Gaussian noise and the {_ONE_SIDED} bound; "
            f"if it was made with them, import it with --bound {_ONE_SIDED}"
        )
    correct, abstained = records.correct, records.abstained
    wrong = known & ~correct & ~abstained
    return Confidence(lower[known & correct], lower[wrong], lower[known & abstained], int((~known).sum()))


@register("confidence", "how the lower bounds of p_A are spread, right and wrong answers apart")
def plot_confidence(runs: Sequence[Run], out: Path, width: str = "page") -> None:
    """Draw, for each run, how the lower bounds of p_A are spread: right answers upwards, the others downwards."""
    drawing.check_picture_path(out)
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    checked(runs)
    check_panels(runs)
    spreads = [confidence_of(run) for run in runs]
    unknown = (
        ", ".join(str(spread.unknown) for spread in spreads)
        if any(spread.unknown for spread in spreads)
        else None
    )
    right: drawing.Style = {"facecolor": drawing.BLUE}
    wrong: drawing.Style = {"facecolor": drawing.VERMILION, "hatch": "//////", "edgecolor": "white", "lw": 0}
    undecided: drawing.Style = {"facecolor": drawing.GREY, "alpha": 0.55, "lw": 0}
    with drawing.new_sheet(out, width, len(runs), 1.0 if len(runs) == 1 else 0.62) as sheet:
        edges = _edges(spreads)
        ticks: list[float] = []
        for p in _TICKS:  # one that would stand on the label before it is left out
            clear = not ticks or ndtri(p) - ndtri(ticks[-1]) > 0.1 * (edges[-1] - edges[0])
            if edges[0] <= ndtri(p) <= edges[-1] and clear:
                ticks.append(p)
        for axes, run, spread in zip(sheet.panels, runs, spreads):
            up, down, abstained = (
                _share(part, edges, len(run.records))
                for part in (spread.right, spread.wrong, spread.abstained)
            )
            axes.stairs(up, edges, fill=True, **right)
            axes.stairs(-down, edges, fill=True, **wrong)
            axes.stairs(-down - abstained, edges, baseline=-down, fill=True, **undecided)
            axes.axhline(0.0, color=drawing.INK, linewidth=0.6)
            share = acr_share_of_top(run.records)
            carried = None if share is None else f"surest tenth: {100 * share:.0f} % of the ACR"
            drawing.set_title(sheet, axes, run.name, partial_inputs(run), carried)
            axes.set_xticks([float(ndtri(p)) for p in ticks], [f"{p:g}" for p in ticks])
            axes.set_xlim(edges[0], edges[-1])
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
            axes.set_ylabel("inputs (%)")
        sheet.panels[-1].set_xlabel("lower bound of $p_A$ (axis linear in Φ⁻¹, as the radius is)")
        left_out = f" ({unknown} inputs not drawn: no votes)" if unknown else ""
        labels = ("right", "wrong", f"abstained{left_out}")
        sheet.add_legend([(Patch(**style), label) for style, label in zip((right, wrong, undecided), labels)])


def _edges(spreads: Sequence[Confidence]) -> NDArray[np.float64]:
    every = np.concatenate([part for each in spreads for part in (each.right, each.wrong, each.abstained)])
    low, high = float(every.min(initial=0.5)), float(every.max(initial=0.9))
    first = math.floor(_BINS_PER_UNIT * float(ndtri(max(low, _LEAST_P))))
    last = math.floor(_BINS_PER_UNIT * float(ndtri(min(high, _MOST_P)))) + 2
    return np.arange(first, last + 1) / _BINS_PER_UNIT


def _share(bounds: NDArray[np.float64], edges: NDArray[np.float64], inputs: int) -> NDArray[np.float64]:
    places = np.clip(ndtri(np.maximum(bounds, 1e-300)), edges[0], edges[-1])
    return 100 * np.histogram(places, edges)[0] / inputs


_SHARES = ("0.6", "0.8", "0.9", "0.99", "0.999", "0.9999", "1")
_FEWEST, _MOST, _STEPS = 10, 1_000_000, 60
_MOST_POINTS = 300
_GOLDEN = 0.6180339887498949
# Decades of a strip, of all strips of one n, and how much of each has points.
_STRIP, _STRIPS, _FILLED = 0.2, 0.9, 0.75
_PAPER_BOUND, _PAPER_ALPHA = "clopper-pearson", 0.001


@dataclass(frozen=True)
class VotePlan:
    """What fixes the radius of a tally."""

    noise: Perturbation
    bound: Bound
    alpha: float

    def radius(self, share: Fraction, n: int) -> float:
        """The radius when exactly ``share`` of n votes are for the class and one rival has all others.

        Soft votes are taken to be 0 or 1, the largest variance their mean allows.
        """
        count = int(share * n)
        counts = (count, n - count)
        soft = tuple(c * SOFT_UNIT for c in counts) if self.bound.votes == "soft" else None
        tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, n, counts, soft, soft)
        return self.noise.certificate.radius(self.bound(tally, 0, self.alpha))


def vote_numbers(share: Fraction) -> list[int]:
    """Numbers of votes of which ``share`` is a whole number, evenly spaced on a logarithmic axis."""
    unit = share.denominator
    wanted = np.geomspace(max(_FEWEST, unit), _MOST, _STEPS)
    return sorted({max(1, round(n / unit)) * unit for n in wanted})


def common_plan(runs: Sequence[Run]) -> VotePlan:
    """The noise, bound and α of all runs; the papers' at σ = 1 if there are none."""
    if not runs:
        return VotePlan(Gaussian(1.0), BOUNDS[_PAPER_BOUND], _PAPER_ALPHA)
    for field in (PlanStatement.noise, PlanStatement.sigma, PlanStatement.bound, PlanStatement.alpha):
        name, values = field.name, {run.manifest.plan.value(field) for run in runs}
        if None in values:
            raise InvalidValueError(
                f"a run states no {name}, which the attainable radius depends on; import logs with --{name}, or draw "
                "the picture without a run"
            )
        if len(values) > 1:
            raise InvalidValueError(
                f"the runs differ in {name} ({', '.join(sorted(map(str, values)))}), so that one set of curves can't "
                "hold for all; name runs that agree"
            )
    plan = runs[0].manifest.plan
    if any(run.manifest.plan.sigma_levels is not None for run in runs):
        raise InvalidValueError(
            "these curves are for one σ, and a run's σ follows its inputs by levels; name other runs, or draw the "
            "picture without a run"
        )
    bound = BOUNDS[plan.known(PlanStatement.bound)]
    if plan.noise not in NOISES or bound.next_look is not None:
        raise InvalidValueError(
            f"these curves are for noise of one scale and bounds at any number of votes, got {plan.noise} noise "
            f"and the {plan.bound} bound; name other runs, or draw the picture without a run"
        )
    return VotePlan(plan.noise_in(runs[0].path), bound, plan.known(PlanStatement.alpha))


def shown_radii(run: Run) -> list[float]:
    """The radii of the right answers in ascending order, of many a few hundred at evenly spaced ranks."""
    radii = correct_radii(run.records)
    ranks = np.linspace(0, radii.size - 1, min(radii.size, _MOST_POINTS)).round().astype(int)
    return [float(radius) for radius in radii[ranks]]


def strips(votes: Sequence[int]) -> list[tuple[float, float]]:
    """Centre and width, in decades, of each run's points about its n: those of one n lie beside each other."""
    placed = []
    for position, n in enumerate(votes):
        together, place = votes.count(n), votes[:position].count(n)
        each = min(_STRIP, _STRIPS / together)
        placed.append((math.log10(n) + each * (place - (together - 1) / 2), each * _FILLED))
    return placed


@register("samples", "the radius that n votes can reach, with or without runs", fewest=0)
def plot_samples(runs: Sequence[Run], out: Path, width: str = "page") -> None:
    """Draw radius against votes for several shares of them, and the runs' right answers at their own n."""
    drawing.check_picture_path(out)
    from matplotlib.lines import Line2D

    if runs:
        checked(runs)
    plan = common_plan(runs)
    sigma = f"σ = {plan.noise.sigma:g}" if runs else "σ = 1, so the radius is in units of σ"
    beside = ", runs of one n beside each other" if len({_votes(run) for run in runs}) < len(runs) else ""
    heading = f"{plan.bound.name} bound, α = {plan.alpha:g}, {sigma}{beside}"
    with drawing.new_sheet(out, width) as sheet:
        (axes,) = sheet.panels
        thin = 0.75 * sheet.size.line
        for text in _SHARES:
            share = Fraction(text)
            reached = [(n, radius) for n in vote_numbers(share) if (radius := plan.radius(share, n)) > 0]
            axes.plot(*zip(*reached), color=drawing.INK, linewidth=thin)
            end = reached[-1][1]
            place: drawing.Style = {"transform": axes.get_yaxis_transform(), "va": "center"}
            axes.text(1.02, end, f"{float(100 * share):g} %", fontsize=sheet.size.small, **place)
        entries = [
            (
                Line2D([], [], color=drawing.INK, linewidth=thin),
                "radius when this share of n votes is for the class",
            )
        ]
        places_of = strips([_votes(run) for run in runs])
        points: drawing.Style = {"linestyle": "", "markersize": 1.9 * sheet.size.line, "alpha": 0.7}
        points["markeredgewidth"] = 0
        for k, (run, (centre, spread)) in enumerate(zip(runs, places_of)):
            radii = shown_radii(run)
            # Spread by the golden ratio: points of one n would hide one another.
            decades = [centre + spread * ((j * _GOLDEN) % 1 - 0.5) for j in range(len(radii))]
            axes.plot([10**decade for decade in decades], radii, **drawing.marker_style(k), **points)
            handle = Line2D([], [], linestyle="", **drawing.marker_style(k))
            entries.append((handle, f"right answers of {run.name} (n = {_votes(run)})"))
        axes.set_xscale("log")
        axes.set_xlim(
            min([_FEWEST, *(10 ** (centre - spread) for centre, spread in places_of)]),
            max([_MOST, *(10 ** (centre + spread) for centre, spread in places_of)]),
        )
        axes.set_ylim(0.0, 1.04 * end)
        axes.set_xlabel("votes n")
        axes.set_ylabel(radius_label(plan.noise.certificate.norm))
        sheet.add_legend(entries, heading)


def _votes(run: Run) -> int:
    n = run.manifest.plan.n
    if not isinstance(n, int):
        raise InvalidValueError(f"{run.path} states no n; import it with --n, or draw the picture without it")
    if run.manifest.plan.stop:
        raise InvalidValueError(
            f"{run.path} gave its inputs different numbers of votes, and this picture is about one; draw it without"
        )
    return n
