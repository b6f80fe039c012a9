"""What more votes can buy: the radius attainable with n votes, for several true probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from smoothcert.analysis.figures import INK, check_picture_path
from smoothcert.analysis.metrics import correct_radii
from smoothcert.analysis.plots.kinds import register
from smoothcert.analysis.plots.labels import checked, radius_label
from smoothcert.analysis.plots.sheets import COLOURS, MARKERS, new_sheet, plain_text
from smoothcert.bounds import BOUNDS, Bound
from smoothcert.certificates import certificate_for
from smoothcert.errors import InvalidValueError
from smoothcert.noise import NOISES, Gaussian, Noise
from smoothcert.runs import Run
from smoothcert.runs.statement import PlanStatement
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

_SHARES = ("0.6", "0.8", "0.9", "0.99", "0.999", "0.9999", "1")
_FEWEST, _MOST, _STEPS = 10, 1_000_000, 60
_MOST_POINTS = 300
_GOLDEN = 0.6180339887498949
_STRIP, _STRIPS, _FILLED = (
    0.2,
    0.9,
    0.75,
)  # decades of a strip, of all strips of one n, and how much of each has points
_PAPER_BOUND, _PAPER_ALPHA = "clopper-pearson", 0.001


@dataclass(frozen=True)
class VotePlan:
    """What fixes the radius of a tally."""

    noise: Noise
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
        return certificate_for(self.noise).radius(self.bound(tally, 0, self.alpha))


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


@dataclass(frozen=True)
class Strip:
    """Where a run's points lie, in decades of votes."""

    centre: float
    width: float


def strips(votes: Sequence[int]) -> list[Strip]:
    """A strip for each run about its n: those of one n lie beside each other, with gaps between them."""
    found = []
    for position, n in enumerate(votes):
        together, place = votes.count(n), votes[:position].count(n)
        each = min(_STRIP, _STRIPS / together)
        found.append(Strip(math.log10(n) + each * (place - (together - 1) / 2), each * _FILLED))
    return found


@register("samples", "the radius that n votes can reach, with or without runs", fewest=0)
def plot_samples(runs: Sequence[Run], out: Path, width: str = "page") -> None:
    """Draw radius against votes for several shares of them, and the runs' right answers at their own n."""
    check_picture_path(out)
    from matplotlib.lines import Line2D

    if runs:
        checked(runs)
    plan = common_plan(runs)
    certificate = certificate_for(plan.noise)
    sigma = f"σ = {plan.noise.sigma:g}" if runs else "σ = 1, so the radius is in units of σ"
    labels = ["radius when this share of n votes is for the class"]
    labels += [f"right answers of {run.name} (n = {_votes(run)})" for run in runs]
    beside = ", runs of one n beside each other" if len({_votes(run) for run in runs}) < len(runs) else ""
    heading = f"{plan.bound.name} bound, α = {plan.alpha:g}, {sigma}{beside}"
    with new_sheet(out, width, labels, right=0.75, heading=heading) as sheet:
        (axes,) = sheet.panels
        ends = []
        for text in _SHARES:
            share = Fraction(text)
            numbers = vote_numbers(share)
            radii = [plan.radius(share, n) for n in numbers]
            shown = [(n, radius) for n, radius in zip(numbers, radii) if radius > 0]
            axes.plot(*zip(*shown), color=INK, linewidth=0.75 * sheet.look.line)
            ends.append((text, shown[-1][1]))
        handles = [Line2D([], [], color=INK, linewidth=0.75 * sheet.look.line)]
        places_of = strips([_votes(run) for run in runs])
        for k, (run, strip) in enumerate(zip(runs, places_of)):
            radii = shown_radii(run)
            # Spread by the golden ratio: points of one n would hide one another.
            places = [
                10 ** (strip.centre + strip.width * ((j * _GOLDEN) % 1 - 0.5)) for j in range(len(radii))
            ]
            handles += axes.plot(
                places,
                radii,
                MARKERS[k % len(MARKERS)],
                color=COLOURS[k % len(COLOURS)],
                markersize=1.9 * sheet.look.line,
                alpha=0.7,
                markeredgewidth=0,
            )
        axes.set_xscale("log")
        axes.set_xlim(
            min([_FEWEST, *(10 ** (strip.centre - strip.width) for strip in places_of)]),
            max([_MOST, *(10 ** (strip.centre + strip.width) for strip in places_of)]),
        )
        axes.set_ylim(0.0, 1.04 * ends[-1][1])
        axes.set_xlabel("votes n")
        axes.set_ylabel(radius_label(certificate.norm))
        for text, end in ends:
            name = f"{float(100 * Fraction(text)):g} %"
            plain_text(
                axes,
                1.02,
                end,
                name,
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=sheet.look.legend,
                color=INK,
            )
        sheet.add_legend(handles)


def _votes(run: Run) -> int:
    n = run.manifest.plan.n
    if not isinstance(n, int):
        raise InvalidValueError(f"{run.path} states no n; import it with --n, or draw the picture without it")
    if run.manifest.plan.stop:
        raise InvalidValueError(
            f"{run.path} gave its inputs different numbers of votes, and this picture is about one; draw it without"
        )
    return n
