"""Gallery: one page of small pictures, from the least to the most robust input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.figures import BLUE, GREY, INK, PALE, VERMILION, picture
from smoothcert.analysis.plots.images import as_images
from smoothcert.analysis.plots.sheets import plain_text
from smoothcert.errors import InvalidValueError
from smoothcert.rounding import decimal_down
from smoothcert.runs import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_TILES = 144
_FEWEST_COLUMNS = 8
_SHORT_NAME, _LONGEST_NAME = 2, 10
# Lengths are in inches, type sizes in points.
_SMALL_TILE, _LARGE_TILE = 0.62, 1.0
_GAP, _MARGIN, _HEADER = 0.13, 0.20, 0.68
_BAR_DISTANCE, _BAR_HEIGHT, _TEXT_DISTANCE, _LINE = 0.045, 0.04, 0.11, 0.115
_TITLE_SIZE, _NOTE_SIZE, _CAPTION_SIZE = 11, 7.5, 6.5


@dataclass(frozen=True)
class _Look:
    """How one kind of answer is marked."""

    name: str
    colour: str
    opacity: float = 1.0
    frame: str | None = None


_CORRECT = _Look("correct", BLUE)
_WRONG = _Look("wrong (label → answer)", VERMILION, frame="solid")
_ABSTAINED = _Look("abstained", GREY, opacity=0.45, frame="dashed")


def plot_gallery(
    pictures: NDArray[Any], records: Sequence[Record], class_names: Sequence[str], out: Path, title: str
) -> None:
    """Draw ``pictures`` (N×H×W or N×C×H×W, values in [0, 1]) with what was certified of each.

    ``records[i]`` belongs to ``pictures[i]``. Sorted by radius, row by row; a bar as long as the radius and
    its number (cut off, never rounded up) stand under each picture; wrong answers and abstentions are
    framed. Of more than 144 inputs, 144 evenly spaced ones are shown.
    """
    images = as_images(pictures)
    _check_alike(images, records, class_names)
    order = sorted(range(len(records)), key=lambda k: (records[k].radius, not records[k].abstained, k))
    shown = [order[k] for k in _evenly_spaced(len(order), _MOST_TILES)]
    layout = _Layout(
        columns=max(math.ceil(math.sqrt(len(shown))), min(_FEWEST_COLUMNS, len(shown))),
        count=len(shown),
        short_names=max(map(len, class_names)) <= _SHORT_NAME,
    )
    longest = max(record.radius for record in records)
    with picture(out, layout.width + 2 * _MARGIN, layout.height + _HEADER + 2 * _MARGIN) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        for place, k in enumerate(shown):
            _draw_tile(axes, layout, place, images[k], records[k], class_names, longest)
        _draw_header(axes, records, len(shown), longest, title)
        axes.set_aspect("auto")
        axes.set_xlim(-_MARGIN, layout.width + _MARGIN)
        axes.set_ylim(layout.height + _MARGIN, -_HEADER - _MARGIN)


@dataclass(frozen=True)
class _Layout:
    """Where the tiles go. Names too long to share a line with the radius get larger tiles and two lines."""

    columns: int
    count: int
    short_names: bool

    @property
    def tile(self) -> float:
        return _SMALL_TILE if self.short_names else _LARGE_TILE

    @property
    def row_height(self) -> float:
        return self.tile + _TEXT_DISTANCE + (1 if self.short_names else 2) * _LINE + _GAP

    @property
    def width(self) -> float:
        # The header needs some room even above a few tiles.
        return max(self.columns * (self.tile + _GAP) - _GAP, 5.2)

    @property
    def height(self) -> float:
        return math.ceil(self.count / self.columns) * self.row_height - _GAP

    def corner(self, place: int) -> tuple[float, float]:
        """Left and top of a tile."""
        row, column = divmod(place, self.columns)
        return column * (self.tile + _GAP), row * self.row_height


def _draw_tile(
    axes: Axes,
    layout: _Layout,
    place: int,
    image: NDArray[np.float64],
    record: Record,
    class_names: Sequence[str],
    longest: float,
) -> None:
    look, side = _look(record), layout.tile
    left, top = layout.corner(place)
    axes.imshow(
        image,
        extent=(left, left + side, top + side, top),
        cmap="gray",
        vmin=0,
        vmax=1,
        alpha=look.opacity,
        interpolation="nearest",
    )
    if look.frame is not None:
        _add_box(axes, left, top, side, side, None, edgecolor=look.colour, linewidth=2, linestyle=look.frame)
    bar = top + side + _BAR_DISTANCE
    _add_box(axes, left, bar, side, _BAR_HEIGHT, PALE)
    if record.radius > 0:
        _add_box(axes, left, bar, side * record.radius / longest, _BAR_HEIGHT, look.colour)
    names = _short(class_names[record.label])
    if not record.abstained and not record.correct:
        names += f" → {_short(class_names[record.predicted])}"
    found = "abstains" if record.abstained else decimal_down(record.radius, 2)
    weight = "bold" if look is _WRONG else "normal"
    text_top = top + side + _TEXT_DISTANCE
    _write(axes, left, text_top, names, _CAPTION_SIZE, INK if record.correct else look.colour, weight)
    if layout.short_names:
        _write(axes, left + side, text_top, found, _CAPTION_SIZE, look.colour, weight, ha="right")
    else:
        _write(axes, left, text_top + _LINE, found, _CAPTION_SIZE, look.colour, weight)


def _draw_header(axes: Axes, records: Sequence[Record], shown: int, longest: float, title: str) -> None:
    _write(axes, 0, -_HEADER, title, _TITLE_SIZE, INK, "bold")
    which = "" if shown == len(records) else f"{shown} of {len(records)} inputs, evenly spaced. "
    scale = f" (a full bar is {decimal_down(longest, 2)})" if longest > 0 else ""
    note = f"{which}Row by row from least to most robust. Bar and number: certified radius{scale}."
    _write(axes, 0, -_HEADER + 0.23, note, _NOTE_SIZE, GREY)
    top, square = -_HEADER + 0.41, 0.09
    for left, look in ((0.0, _CORRECT), (0.95, _WRONG), (2.75, _ABSTAINED)):
        count = sum(_look(record) is look for record in records)
        _add_box(axes, left, top, square, square, look.colour)
        _write(axes, left + 0.13, top - 0.01, f"{count} {look.name}", _NOTE_SIZE, INK)


def _add_box(
    axes: Axes, left: float, top: float, width: float, height: float, colour: str | None, **edge: Any
) -> None:
    from matplotlib.patches import Rectangle

    style = {"linewidth": 0, **edge}
    axes.add_patch(
        Rectangle((left, top), width, height, fill=colour is not None, facecolor=colour or "none", **style)
    )


def _write(
    axes: Axes, x: float, y: float, text: str, size: float, colour: str, weight: str = "normal", **style: Any
) -> None:
    plain_text(axes, x, y, text, fontsize=size, color=colour, weight=weight, va="top", **style)


def _look(record: Record) -> _Look:
    if record.abstained:
        return _ABSTAINED
    return _CORRECT if record.correct else _WRONG


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _evenly_spaced(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]


def _check_alike(images: NDArray[Any], records: Sequence[Record], class_names: Sequence[str]) -> None:
    if len(images) != len(records) or not records:
        raise InvalidValueError(
            f"a gallery needs one record for each picture, got {len(images)} pictures and {len(records)} records"
        )
    highest = max(max(record.label, record.predicted) for record in records)
    if highest >= len(class_names):
        raise InvalidValueError(
            f"class {highest} has no name: class_names has {len(class_names)}; give one for each class"
        )
