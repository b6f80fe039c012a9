"""Picture of SmoothMix's diagnostics: confidence on the way to an adversary, and where it turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.figures import BLUE, GREY, INK, VERMILION, add_axes, dress, picture
from smoothcert.analysis.plots.images import as_images
from smoothcert.errors import InvalidValueError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches.
_WIDTH, _HEIGHT = 6.4, 2.9
_SIDE, _GAP, _CAPTION = 0.68, 0.06, 0.2
MOST_ENDS = 4
"""So many pairs of pictures stand in a row."""


@dataclass(frozen=True)
class Ends:
    """An input and its adversary, images with values in [0, 1], and what to write above them."""

    first: NDArray[Any]
    last: NDArray[Any]
    caption: str


def plot_confidence_lines(
    ratios: NDArray[np.float64],
    label_shares: NDArray[np.float64],
    rival_shares: NDArray[np.float64],
    turning: Sequence[float],
    out: Path,
    *,
    each: bool = False,
    before: tuple[Sequence[float], int] | None = None,
    ends: Sequence[Ends] = (),
) -> None:
    """Left: the label's and the rival's share of votes at each mixing ratio, median and middle half over inputs
    (rows), or a line for ``each``. Right: the share of inputs that have turned by a ratio, among all rows; also of
    another model, where ``before`` has its turning ratios and its number of rows. Below: where lines begin and end,
    the first four of ``ends``.
    """
    if label_shares.ndim != 2 or not len(label_shares):
        raise InvalidValueError("no input is right without attack, so there is no line to draw")
    below = _CAPTION + _SIDE + 2 * _GAP if ends else 0.0
    bottom, height = ((below + 0.165 * _HEIGHT) / (_HEIGHT + below), 0.79 * _HEIGHT / (_HEIGHT + below))
    with picture(out, _WIDTH, _HEIGHT + below) as figure:
        left = figure.add_axes((0.085, bottom, 0.4, height))
        for shares, colour, name in (
            (label_shares, BLUE, "label"),
            (rival_shares, VERMILION, "strongest rival"),
        ):
            dashes = "-" if name == "label" else (0, (6, 2))
            if each:
                for number, share in enumerate(100 * shares):
                    # A legend leaves out names that begin with a line.
                    left.plot(ratios, share, color=colour, lw=1.0, ls=dashes, label="_" if number else name)
                continue
            low, middle, high = 100 * np.quantile(shares, [0.25, 0.5, 0.75], axis=0)
            left.fill_between(ratios, low, high, color=colour, alpha=0.18, lw=0)
            left.plot(ratios, middle, color=colour, lw=1.6, ls=dashes, label=name)
        left.set_xlabel("mixing ratio: input 0, adversary 1")
        left.set_ylabel("share of votes (%)")
        left.legend(
            frameon=False,
            fontsize=8.5,
            loc="center right",
            title="each input" if each else "median and middle half",
            title_fontsize=8.5,
        )
        right = figure.add_axes((0.58, bottom, 0.4, height))
        curves = [(turning, len(label_shares), INK, "this model")]
        if before is not None:
            curves.insert(0, (*before, VERMILION, "before"))
        for turned, rows, colour, name in curves:
            right.step(
                [0.0, *sorted(turned), 1.0],
                [100 * k / rows for k in [0, *range(1, len(turned) + 1), len(turned)]],
                where="post",
                color=colour,
                lw=1.4,
                ls=(0, (6, 2)) if name == "before" else "-",
                label=name,
            )
        if before is not None:
            right.legend(frameon=False, fontsize=8.5, loc="lower right")
        right.axvline(0.5, color=GREY, lw=0.8, ls=(0, (1, 2)))
        right.set_xlabel("equal-confidence mixing ratio")
        right.set_ylabel("inputs that have turned (%)")
        for axes in (left, right):
            axes.set_xlim(0, 1)
            axes.set_ylim(0, 101.5)
            dress(axes)
        for place, pair in enumerate(ends[:MOST_ENDS]):
            _draw_ends(figure, pair, 0.085 * _WIDTH + place * (2 * _SIDE + 3 * _GAP))


def _draw_ends(figure: Figure, pair: Ends, left: float) -> None:
    for number, image in enumerate(as_images(np.stack([pair.first, pair.last]))):
        axes = add_axes(figure, left + number * (_SIDE + _GAP), _GAP, _SIDE, _SIDE)
        axes.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_axis_off()
    width, height = figure.get_size_inches()
    place = left / width, (_SIDE + 2 * _GAP) / height
    figure.text(
        *place, pair.caption, fontsize=6.5, va="bottom", parse_math=False
    )  # a class may be called "$"
