"""σ in pictures: how it is spread over inputs, what it is by levels, and vectors of it for each coordinate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.facts import levels_of
from smoothcert.analysis.metrics import counted_radii
from smoothcert.analysis.overview import LIMITS, decided_levels
from smoothcert.analysis.plots import drawing
from smoothcert.analysis.plots.kinds import check_panels, checked, partial_inputs, radius_label, register
from smoothcert.analysis.seeds import check_one_dataset
from smoothcert.errors import InvalidValueError
from smoothcert.runs.run import Run, read_run

if TYPE_CHECKING:
    from matplotlib.artist import Artist

Sigmas = NDArray[np.float64]

_BINS = 30
_LIMIT_MARKERS = {"home": "o", "level": "^", "chooser": "x"}


def input_sigmas(run: Run) -> NDArray[np.float64]:
    """Each input's σ; a run with one σ for all has nothing to show and is rejected."""
    sigmas = run.records.sigma
    if sigmas.min() == sigmas.max():
        raise InvalidValueError(
            f"{run.path}: every input was certified with σ = {sigmas[0]:g}; name a run that chooses σ for each input"
        )
    return sigmas


def improved_sigmas(run: Run, against: Run) -> NDArray[np.float64]:
    """The σ of the inputs that ``run`` certifies farther than ``against`` does; rejected on other inputs.

    A wrong answer and an abstention have no radius.
    """
    check_one_dataset([run, against])
    missing = np.setdiff1d(run.records.index, against.records.index)
    if len(missing):
        raise InvalidValueError(
            f"{against.path} lacks input {missing[0]} of {run.path}; name a run that has it"
        )
    places = np.searchsorted(against.records.index, run.records.index)
    return run.records.sigma[counted_radii(run.records) > counted_radii(against.records)[places]]


@register(
    "sigma",
    "how σ is spread over the inputs, for runs that choose it for each",
    options={"against": "a run on the same inputs; inputs with a larger radius than there are drawn apart"},
)
def plot_sigma(runs: Sequence[Run], out: Path, width: str = "page", against: Path | None = None) -> None:
    """Draw a histogram of the inputs' σ for each run, with its median and the σ of its plan.

    With ``against``, the directory of a run of one σ, also the share whose radius grew (data-dependent smoothing, 2022,
    figure 4).
    """
    drawing.check_picture_path(out)
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    checked(runs)
    fixed = None if against is None else read_run(against)
    check_panels(runs)
    sigmas = [input_sigmas(run) for run in runs]
    edges = np.linspace(min(s.min() for s in sigmas), max(s.max() for s in sigmas), _BINS + 1)
    margin = 0.03 * (edges[-1] - edges[0])
    plans = [run.manifest.plan for run in runs]
    stated = [plan.sigma if plan.sigma_levels is None else None for plan in plans]  # no level is the plan's
    grown = [None if fixed is None else improved_sigmas(run, fixed) for run in runs]
    with drawing.new_sheet(out, width, len(runs), 1.0 if len(runs) == 1 else 0.5) as sheet:
        for axes, run, values, start, better in zip(sheet.panels, runs, sigmas, stated, grown):
            share = 100 * np.histogram(values, edges)[0] / values.size
            axes.stairs(share, edges, fill=True, facecolor=drawing.BLUE, alpha=0.45)
            axes.stairs(share, edges, color=drawing.BLUE, linewidth=0.7 * sheet.size.line)
            if better is not None:
                share = 100 * np.histogram(better, edges)[0] / values.size
                axes.stairs(share, edges, fill=True, facecolor=drawing.INK, alpha=0.55)
            axes.axvline(float(np.median(values)), color=drawing.INK)
            if start is not None:
                axes.axvline(start, **drawing.LIMIT | {"color": drawing.INK})
            drawing.set_title(sheet, axes, run.name, partial_inputs(run))
            axes.set(ylabel="inputs (%)", ylim=(0.0, None), xlim=(edges[0] - margin, edges[-1] + margin))
        sheet.panels[-1].set_xlabel("σ of an input")
        entries: list[tuple[Artist, str]] = [(Line2D([], [], color=drawing.INK), "median")]
        if any(s is not None for s in stated):
            entries.append((Line2D([], [], **drawing.LIMIT | {"color": drawing.INK}), "σ of the plan"))
        if fixed is not None:
            entries.append((Patch(facecolor=drawing.INK, alpha=0.55), f"radius larger than in {fixed.name}"))
        sheet.add_legend(entries)


@dataclass(frozen=True)
class RankedRadii:
    """Right certified inputs from the largest radius down: of each its radius, its level, and what limits it."""

    radius: NDArray[np.float64]
    home: NDArray[np.int64]
    limit: NDArray[np.str_]
    inputs: int
    """How many there are in all."""

    @property
    def place(self) -> NDArray[np.float64]:
        """Of each the share of inputs up to it, in percent: where its radius lies on the axis."""
        return 100 * (np.arange(len(self.radius)) + 0.5) / self.inputs


def ranked_radii(run: Run) -> RankedRadii:
    """What the picture shows of a run; rejected for one without levels."""
    evidence = decided_levels(run)
    if evidence is None:
        raise InvalidValueError(f"{run.path} has no σ levels; name a run of certify --sigma-levels --chooser")
    counted = counted_radii(run.records)
    order = np.argsort(-counted, kind="stable")
    order = order[counted[order] > 0]
    home = np.array([decided.home for decided in evidence], dtype=np.int64)
    limit = np.array([decided.limit for decided in evidence], dtype=np.str_)
    return RankedRadii(counted[order], home[order], limit[order], len(counted))


@register(
    "levels",
    "runs whose σ follows the input by levels: radii by rank, coloured by level, marked by what limits them",
    options={"against": "a run on the same inputs, at one σ for instance, whose radii are drawn as a line"},
)
def plot_levels(runs: Sequence[Run], out: Path, width: str = "page", against: Path | None = None) -> None:
    """Draw each right certified input's radius, from the largest down, in the colour of its level.

    The mark says what keeps the radius from being larger: the input's own level, another that the chooser may come to,
    or the chooser. The share of inputs with at least a radius, the certified accuracy there, is read off below. With
    ``against``, the directory of another run, the same of its radii as a line.
    """
    drawing.check_picture_path(out)
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    checked(runs)
    check_panels(runs)
    ranks = [ranked_radii(run) for run in runs]
    sigmas = _common_levels(runs)
    fixed = None if against is None else read_run(against)
    if fixed is not None:
        for run in runs:
            check_one_dataset([run, fixed])
        checked([*runs, fixed])
    with drawing.new_sheet(out, width, len(runs), 1.0 if len(runs) == 1 else 0.6) as sheet:
        for axes, run, ranked in zip(sheet.panels, runs, ranks):
            if fixed is not None:
                radii = np.sort(counted_radii(fixed.records))[::-1]
                shares = np.linspace(0.0, 100.0, len(radii) + 1)
                axes.stairs(radii, shares, color=drawing.GREY, linewidth=sheet.size.line, baseline=None)
            marks: drawing.Style = {"s": 4.0 if len(ranked.radius) > 400 else 14.0, "linewidths": 0.8}
            for name, marker in _LIMIT_MARKERS.items():
                of = ranked.limit == name
                colours = [drawing.COLOURS[k % len(drawing.COLOURS)] for k in ranked.home[of].tolist()]
                if colours:
                    places = ranked.place[of], ranked.radius[of]
                    axes.scatter(*places, c=colours, marker=marker, clip_on=False, **marks)
            drawing.set_title(sheet, axes, run.name, partial_inputs(run))
            axes.set(ylabel=radius_label(run.norm), xlim=(0.0, 100.0), ylim=(0.0, None))
        sheet.panels[-1].set_xlabel("inputs from the largest radius down (%)")
        entries: list[tuple[Artist, str]] = [
            (Patch(facecolor=drawing.COLOURS[k % len(drawing.COLOURS)]), f"σ = {sigma:g}")
            for k, sigma in enumerate(sigmas)
        ]
        for name, marker in _LIMIT_MARKERS.items():
            if any((ranked.limit == name).any() for ranked in ranks):
                handle = Line2D([], [], color=drawing.INK, marker=marker, linestyle="", markersize=4)
                entries.append((handle, f"limited by {LIMITS[name]}"))
        if fixed is not None:
            entries.append((Line2D([], [], color=drawing.GREY), f"radii of {fixed.name}"))
        sheet.add_legend(entries)


def _common_levels(runs: Sequence[Run]) -> tuple[float, ...]:
    levels = {levels_of(run) for run in runs}
    if len(levels) > 1:
        named = "; ".join(" ".join(f"{sigma:g}" for sigma in each or ()) for each in sorted(levels, key=str))
        raise InvalidValueError(f"the runs have different σ levels ({named}): draw each in its own picture")
    return levels.pop() or ()


_MOST_PICTURES = 24
_COLUMNS = {"page": 5, "column": 3}
_WIDEST = 2.6  # inches, of one picture alone
_MOST_BARS = 60
_BAR = 0.19
_LONGEST = 32


def scaled_globally(sigmas: Sigmas) -> Sigmas:
    """From 0, the smallest σ of all channels, to 1, the largest; a constant vector is ½ everywhere.

    One scale for all channels, so that a colour the model ignores stands out.
    """
    low, high = float(sigmas.min()), float(sigmas.max())
    return np.full_like(sigmas, 0.5) if low == high else (sigmas - low) / (high - low)


@register("noise", "σ vectors as pictures, of fits or of runs certified with one", reads="scales")
def plot_noise(named: Sequence[tuple[str, Sigmas]], out: Path, width: str = "page") -> None:
    """Draw each (name, σ in the shape of an input): images as pictures, other inputs as a bar for each number.

    Bright is where the model tolerates much noise, dark where it relies on the input.
    """
    drawing.check_picture_path(out)
    drawing.size_of(width)
    if not 0 < len(named) <= _MOST_PICTURES:
        raise InvalidValueError(f"a page holds 1 to {_MOST_PICTURES} σ vectors, got {len(named)}: name fewer")
    if all(_is_image(sigmas) for _, sigmas in named):
        _draw_images(named, out, width)
    else:
        _draw_bars(named, out, width)


def plot_features(
    names: Sequence[str], values: Sequence[float], meaning: str, out: Path, width: str = "page"
) -> None:
    """A bar for each name, the first on top, on a logarithmic axis; of more than 60 the first and the last 30."""
    size = drawing.size_of(width)
    if not names or len(names) != len(values):
        raise InvalidValueError(f"a bar needs a name and a value, got {len(names)} and {len(values)}")
    shown, half = range(len(names)), _MOST_BARS // 2
    places = [*shown] if len(names) <= _MOST_BARS else [*shown[:half], *shown[-half:]]
    with drawing.picture(out, size.width, len(places) * _BAR + 0.65, size) as figure:
        axes = figure.subplots()
        rows = range(len(places))
        axes.barh(rows, [values[k] for k in places], color=drawing.BLUE, height=0.7)
        axes.set_ylim(len(places) - 0.4, -0.6)
        short = (names[k] if len(names[k]) <= _LONGEST else f"{names[k][: _LONGEST - 1]}…" for k in places)
        # A name may hold a dollar sign, which is no formula.
        axes.set_yticks(rows, list(short), parse_math=False, fontsize=size.small)
        if len(places) < len(names):
            axes.axhline(half - 0.5, **drawing.LIMIT)
        if min(values) > 0 and max(values) > 20 * min(values):
            axes.set_xscale("log")
        axes.set_xlabel(meaning, loc="right")  # longer than the axis, it has room on the left
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)


def _is_image(sigmas: Sigmas) -> bool:
    return sigmas.ndim == 2 or (sigmas.ndim == 3 and sigmas.shape[0] in (1, 3))


def _draw_images(named: Sequence[tuple[str, Sigmas]], out: Path, width: str) -> None:
    size, columns = drawing.size_of(width), min(_COLUMNS[width], len(named))
    rows = math.ceil(len(named) / columns)
    side = min(_WIDEST, size.width / columns)
    tall = side * max(sigmas.shape[-2] / sigmas.shape[-1] for _, sigmas in named)
    caption = 4.2 * size.small / 72
    with drawing.picture(out, columns * side, rows * (tall + caption), size) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in panels[len(named) :]:
            axes.set_axis_off()
        for axes, (name, sigmas) in zip(panels, named):
            scaled = scaled_globally(sigmas)
            image = (
                scaled if scaled.ndim == 2 else scaled[0] if len(scaled) == 1 else scaled.transpose(1, 2, 0)
            )
            axes.imshow(image, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            room = size.letters(side - 0.1)
            shown = name if len(name) <= room else f"…{name[1 - room :]}"
            span = f"{sigmas.min():.2g} (dark) … {sigmas.max():.2g}"
            axes.set_xlabel(f"{shown}\n{span}", loc="left", fontsize=size.small, parse_math=False)


def _draw_bars(named: Sequence[tuple[str, Sigmas]], out: Path, width: str) -> None:
    size = drawing.size_of(width)
    with drawing.picture(out, size.width, len(named) * (0.55 * size.panel + 0.45) + 0.35, size) as figure:
        for axes, (name, sigmas) in zip(figure.subplots(len(named), 1, squeeze=False)[:, 0], named):
            flat = sigmas.ravel()
            axes.bar(np.arange(flat.size), flat, width=0.8 if flat.size <= 200 else 1.0, color=drawing.BLUE)
            if flat.max() > 20 * flat.min():
                axes.set_yscale("log")
            axes.axhline(float(np.exp(np.log(flat).mean())), color=drawing.GREY, linewidth=0.8)
            axes.grid(visible=False, axis="x")
            axes.set_ylabel("σ")
            axes.set_xlabel("number of the input (line: geometric mean)")
            axes.set_title(drawing.wrapped(name, size.letters(size.width - 0.7)), parse_math=False)
