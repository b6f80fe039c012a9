"""Sheets: one picture at column or page width, its panels, and a legend below them that hides nothing."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.analysis.figures import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    add_axes,
    dress,
    picture,
)
from smoothcert.registry import check_name

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Dashes = Any  # matplotlib's line styles: a name, or an offset and lengths

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)
# Five styles to seven colours: 35 runs before a pair repeats. Dotted is kept for limits.
DASHES: tuple[Dashes, ...] = ("-", (0, (6, 2)), (0, (6, 2, 1.2, 2)), (0, (3, 1.5)), (0, (10, 2, 3, 2)))
LIMIT_DASHES: Dashes = (0, (1, 2))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LETTER = 0.55  # mean width of a letter, in type sizes
_HANDLE_LETTERS = 6  # that fit in the place of a handle
_POINT = 1 / 72
_EDGE = 0.03  # inches that stay free on the left of all
_TOGETHER = re.compile(r"\S+ = \S+|ACR \S+|[0-9]+ %")


@dataclass(frozen=True)
class Look:
    """Lengths in inches and type sizes in points: a picture is read at the size it is drawn."""

    width: float
    panel: float
    left: float
    font: float
    legend: float
    line: float

    @property
    def handle(self) -> float:
        """Length of a legend's line with its gap."""
        return 4.4 * self.legend * _POINT

    @property
    def letters(self) -> int:
        """How many of them a line of the legend holds."""
        return int((self.width - 0.25 - self.handle) / (_LETTER * self.legend * _POINT))


LOOKS: dict[str, Look] = {
    "page": Look(width=6.4, panel=3.08, left=0.61, font=9, legend=8.5, line=1.5),
    "column": Look(width=3.3, panel=1.95, left=0.5, font=7.5, legend=6.8, line=1.2),
}
"""Of a page, and of a column of a two-column paper (3.3 inches)."""


def look_of(width: str) -> Look:
    """The look that a width names."""
    check_name("width", width, LOOKS)
    return LOOKS[width]


@dataclass(frozen=True)
class Sheet:
    """A picture being drawn: paint the panels, then add the handles of its legend."""

    figure: Figure
    panels: tuple[Axes, ...]
    look: Look
    _labels: tuple[str, ...]
    _heading: str | None = None

    def add_legend(self, handles: Sequence[Artist]) -> None:
        """One handle for each label the sheet was opened with."""
        legend = self.figure.legend(
            handles,
            [str(k) for k in range(len(self._labels))],
            loc="lower left",
            bbox_to_anchor=(0.1 / self.look.width, 0.06 / self.figure.get_figheight()),
            frameon=False,
            handlelength=3.6,
            handletextpad=0.8,
            labelspacing=0.35,
            borderpad=0.0,
            borderaxespad=0.0,
            fontsize=self.look.legend,
            title="" if self._heading is None else " ",
            title_fontsize=self.look.legend,
            alignment="left",
        )
        if self._heading is not None:
            legend.get_title().set_parse_math(False)
            legend.set_title(self._heading)
        # Set afterwards and without mathematics: a legend drops names that begin with "_" and typesets "$".
        for text, label in zip(legend.get_texts(), self._labels):
            text.set_parse_math(False)
            text.set_text(label)


@contextmanager
def new_sheet(
    out: Path,
    width: str,
    labels: Sequence[str],
    *,
    panels: int = 1,
    panel_height: float = 1.0,
    right: float = 0.16,
    top: float = 0.12,
    more_left: float = 0.0,
    heading: str | None = None,
) -> Iterator[Sheet]:
    """A sheet that is written to ``out`` at the end; ``panel_height`` is a share of a look's panel.

    ``heading`` stands above the labels: what they have in common. Panels give way to what stands on their left.
    """
    look = look_of(width)
    wrapped = tuple("\n".join(textwrap.wrap(_bound_together(label), look.letters)) or " " for label in labels)
    above = (
        None
        if heading is None
        else "\n".join(textwrap.wrap(_bound_together(heading), look.letters + _HANDLE_LETTERS))
    )
    lines = sum(label.count("\n") + 1 for label in (*wrapped, *(() if above is None else (above,))))
    legend_height = (lines * 1.2 + len(wrapped) * 0.35) * look.legend * _POINT + 0.1
    panel, gap = look.panel * panel_height, 2.2 * look.font * _POINT
    below = legend_height + 3.6 * look.font * _POINT
    height = below + panels * panel + (panels - 1) * gap + top
    dpi = 200 if width == "page" else 300
    with picture(out, look.width, height, look.font, dpi=dpi) as figure:
        left = look.left + more_left
        axes = tuple(
            add_axes(figure, left, below + (panels - 1 - k) * (panel + gap), look.width - left - right, panel)
            for k in range(panels)
        )
        for each in axes:
            dress(each)
            each.tick_params(length=3, width=0.6)
        for each in axes[:-1]:
            each.tick_params(labelbottom=False)
        yield Sheet(figure, axes, look, wrapped, above)
        _make_room(figure, axes, dpi)


def _make_room(figure: Figure, panels: Sequence[Axes], dpi: int) -> None:
    """Narrow the panels where long numbers beside them would push their names off the sheet."""
    before = figure.dpi
    figure.set_dpi(dpi)  # letters are as wide as they will be
    boxes = [box for each in panels if (box := each.yaxis.get_tightbbox()) is not None]
    missing = max((_EDGE - box.x0 / dpi for box in boxes), default=0.0) / figure.get_figwidth()
    figure.set_dpi(before)
    if missing > 0:
        for each in panels:
            left, bottom, width, height = each.get_position().bounds
            each.set_position((left + missing, bottom, width - missing, height))


def _bound_together(label: str) -> str:
    """No line ends within ``σ = 0.25``, ``ACR 0.525`` or ``95 %``."""
    return _TOGETHER.sub(lambda found: found[0].replace(" ", "\u00a0"), label)


def draw_steps(
    axes: Axes, sizes: NDArray[np.float64], share: NDArray[np.float64], k: int, line: float
) -> Artist:
    """The k-th curve of a picture: a share (0 to 1) in percent, which holds from each size to the next."""
    colour, dashes = COLOURS[k % len(COLOURS)], DASHES[k % len(DASHES)]
    (handle,) = axes.step(sizes, 100 * share, where="post", color=colour, linewidth=line, linestyle=dashes)
    return handle


def dress_accuracy(axes: Axes) -> None:
    """The vertical axis of certified accuracy."""
    axes.set_ylim(0.0, 101.5)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("certified accuracy (%)")


def add_title(axes: Axes, look: Look, name: str, *about: str | None) -> None:
    """Above a panel: a run's name, its beginning cut off if need be, and what there is to say of it."""
    facts = "".join(f", {fact}" for fact in about if fact)
    room = int((look.width - look.left - 0.16) / (_LETTER * look.legend * _POINT)) - len(facts)
    shown = name if len(name) <= room else f"…{name[-max(room - 1, 8) :]}"
    plain_text(axes, 0.0, 1.03, shown + facts, transform=axes.transAxes, fontsize=look.legend)


def plain_text(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Text without mathematics: a run may be called ``$x$``."""
    axes.text(x, y, text, parse_math=False, **style)
