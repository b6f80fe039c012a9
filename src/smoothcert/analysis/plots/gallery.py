"""Gallery: one page of small pictures, from the least to the most robust input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.plots import drawing
from smoothcert.errors import InvalidValueError
from smoothcert.rounding import decimal_down
from smoothcert.runs.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_TILES = 144
_FEWEST_COLUMNS = 8
_SHORT_NAME, _LONGEST_NAME = 2, 10
_SMALL_TILE, _LARGE_TILE, _LINE, _HEADER = 0.76, 1.25, 0.14, 0.8  # inches
_CAPTION_SIZE = 6.5


@dataclass(frozen=True)
class _Mark:
    """How one kind of answer is marked."""

    name: str
    colour: str
    opacity: float = 1.0
    frame: str | None = None


_CORRECT = _Mark("correct", drawing.BLUE)
_WRONG = _Mark("wrong (label → answer)", drawing.VERMILION, frame="solid")
_ABSTAINED = _Mark("abstained", drawing.GREY, opacity=0.45, frame="dashed")


def plot_gallery(
    pictures: NDArray[Any], records: Sequence[Record], class_names: Sequence[str], out: Path, title: str
) -> None:
    """Draw ``pictures`` (N×H×W or N×C×H×W, values in [0, 1]) with what was certified of each.

    ``records[i]`` belongs to ``pictures[i]``. Sorted by radius, row by row; a bar as long as the radius and
    its number (cut off, never rounded up) stand under each picture; wrong answers and abstentions are
    framed. Of more than 144 inputs, 144 evenly spaced ones are shown.
    """
    drawing.check_picture_path(out)
    images = as_images(pictures)
    _check_alike(images, records, class_names)
    from matplotlib.patches import Patch

    order = sorted(range(len(records)), key=lambda k: (records[k].radius, not records[k].abstained, k))
    count = min(len(order), _MOST_TILES)
    shown = [order[place] for place in np.linspace(0, len(order) - 1, count).round().astype(int)]
    columns = max(math.ceil(math.sqrt(count)), _FEWEST_COLUMNS)
    rows = math.ceil(count / columns)
    # Names too long to share a line with the radius get larger tiles and two lines.
    short = max(map(len, class_names)) <= _SHORT_NAME
    tile, lines = (_SMALL_TILE, 1) if short else (_LARGE_TILE, 2)
    longest = max(record.radius for record in records)
    height = rows * (tile + lines * _LINE)
    with drawing.picture(out, columns * tile, height + _HEADER) as figure:
        header, gallery = figure.subfigures(2, 1, height_ratios=(_HEADER, height), squeeze=False)[:, 0]
        panels = gallery.subplots(rows, columns, squeeze=False).ravel()
        for axes in panels:
            axes.set_axis_off()
        for axes, k in zip(panels, shown):
            _draw_tile(axes, images[k], records[k], class_names, longest, not short)
        left = 0.06 / (columns * tile)
        header.suptitle(title, x=left, y=0.86, ha="left", weight="bold", parse_math=False)
        which = "" if count == len(records) else f"{count} of {len(records)} inputs, evenly spaced. "
        scale = f" (a full bar is {decimal_down(longest, 2)})" if longest > 0 else ""
        marks = [_mark(record) for record in records]
        legend = header.legend(
            [Patch(color=mark.colour) for mark in (_CORRECT, _WRONG, _ABSTAINED)],
            [f"{marks.count(mark)} {mark.name}" for mark in (_CORRECT, _WRONG, _ABSTAINED)],
            loc="lower left",
            bbox_to_anchor=(left, 0.05),
            borderaxespad=0.0,
            ncols=3,
            handlelength=1.0,
            title=f"{which}Row by row from least to most robust. Bar and number: certified radius{scale}.",
            alignment="left",
        )
        legend.get_title().set_color(drawing.GREY)


def _draw_tile(
    axes: Axes,
    image: NDArray[Any],
    record: Record,
    class_names: Sequence[str],
    longest: float,
    two_lines: bool,
) -> None:
    from matplotlib.patches import Rectangle

    mark = _mark(record)
    axes.imshow(image, cmap="gray", vmin=0, vmax=1, alpha=mark.opacity, interpolation="nearest")
    of_tile: drawing.Style = {"transform": axes.transAxes, "clip_on": False}
    if mark.frame is not None:
        edge: drawing.Style = {"edgecolor": mark.colour, "linewidth": 2, "linestyle": mark.frame}
        axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, **edge, **of_tile))
    for share, colour in ((1.0, drawing.PALE), (record.radius / longest if longest else 0.0, mark.colour)):
        axes.add_patch(Rectangle((0, -0.12), share, 0.06, color=colour, linewidth=0, **of_tile))
    names = _short(class_names[record.label])
    if mark is _WRONG:
        names += f" → {_short(class_names[record.predicted])}"
    certified = "abstains" if record.abstained else f"{decimal_down(record.radius, 2)}"
    # A class may be called "$x$".
    style: drawing.Style = {"fontsize": _CAPTION_SIZE, "va": "top", "parse_math": False}
    style |= {"transform": axes.transAxes, "weight": "bold" if mark is _WRONG else "normal"}
    # Not in the layout: a long name would widen its column.
    axes.text(0, -0.17, names, color=drawing.INK if record.correct else mark.colour, in_layout=False, **style)
    if two_lines:
        axes.text(0, -0.17, f"\n{certified}", color=mark.colour, **style)
    else:
        axes.text(1, -0.17, certified, color=mark.colour, ha="right", **style)


def _mark(record: Record) -> _Mark:
    if record.abstained:
        return _ABSTAINED
    return _CORRECT if record.correct else _WRONG


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _check_alike(images: NDArray[Any], records: Sequence[Record], class_names: Sequence[str]) -> None:
    if len(images) != len(records) or not records:
        raise InvalidValueError(
            f"a gallery needs one record for each picture, got {len(images)} pictures and {len(records)} records"
        )
    highest = max(max(record.label, record.predicted) for record in records)
    if highest >= len(class_names):
        raise InvalidValueError(f"class {highest} has no name: class_names has {len(class_names)}; name all")


def as_images(pictures: NDArray[Any]) -> NDArray[np.float64]:
    """N×H×W, or N×H×W×3 for colours, as matplotlib takes them."""
    images = np.asarray(pictures, dtype=np.float64)
    if images.ndim == 4 and images.shape[1] == 1:
        images = images[:, 0]
    elif images.ndim == 4 and images.shape[1] == 3:
        images = np.moveaxis(images, 1, -1)
    elif images.ndim != 3:
        raise InvalidValueError(f"pictures must be N×H×W, N×1×H×W or N×3×H×W, got {np.shape(pictures)}")
    if not np.all((images >= 0) & (images <= 1)):
        raise InvalidValueError(
            f"pictures must have values from 0 to 1, got {np.min(images)} to {np.max(images)}; rescale them"
        )
    return images


_WIDTH, _HEIGHT, _IMAGES = 6.4, 2.9, 0.95  # inches
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
    shown = ends[:MOST_ENDS]
    dashed = drawing.line_style(1)["linestyle"]
    with drawing.picture(out, _WIDTH, _HEIGHT + (_IMAGES if shown else 0.0)) as figure:
        heights = (_HEIGHT, _IMAGES) if shown else (_HEIGHT,)
        curves, *below = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        left, right = curves.subplots(1, 2)
        for shares, colour, name in (
            (label_shares, drawing.BLUE, "label"),
            (rival_shares, drawing.VERMILION, "strongest rival"),
        ):
            style = {"color": colour, "linestyle": "-" if name == "label" else dashed}
            if each:
                for number, share in enumerate(100 * shares):
                    # A legend leaves out names that begin with a line.
                    left.plot(ratios, share, lw=1.0, label="_" if number else name, **style)
                continue
            low, middle, high = 100 * np.quantile(shares, [0.25, 0.5, 0.75], axis=0)
            left.fill_between(ratios, low, high, color=colour, alpha=0.18, lw=0)
            left.plot(ratios, middle, label=name, **style)
        left.set(xlabel="mixing ratio: input 0, adversary 1", ylabel="share of votes (%)")
        left.legend(loc="center right", title="each input" if each else "median and middle half")
        models = [(turning, len(label_shares), drawing.INK, "-", "this model")]
        if before is not None:
            models.insert(0, (*before, drawing.VERMILION, dashed, "before"))
        for turned, rows, colour, dashes, name in models:
            grown = [100 * k / rows for k in (*range(len(turned) + 1), len(turned))]
            places = [0.0, *sorted(turned), 1.0]
            right.step(places, grown, where="post", color=colour, ls=dashes, label=name)
        if before is not None:
            right.legend(loc="lower right")
        right.axvline(0.5, **drawing.LIMIT)
        right.set(xlabel="equal-confidence mixing ratio", ylabel="inputs that have turned (%)")
        for axes in (left, right):
            axes.set(xlim=(0, 1), ylim=(0, 101.5))
        for row in below:
            panels = row.subplots(1, 2 * MOST_ENDS)
            for axes in panels:
                axes.set_axis_off()
            for place, pair in enumerate(shown):
                pictures = as_images(np.stack([pair.first, pair.last]))
                for axes, image in zip(panels[2 * place :], pictures):
                    axes.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                # A class may be called "$".
                panels[2 * place].set_title(pair.caption, fontsize=6.5, parse_math=False)
