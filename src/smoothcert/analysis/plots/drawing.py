"""Pictures: one style, figures at page or column width with a legend beside them, files that are whole or absent."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from smoothcert.errors import InvalidValueError
from smoothcert.extras import require
from smoothcert.files import write_atomically
from smoothcert.registry import check_name

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from numpy.typing import NDArray

# Okabe & Ito's colours, told apart by colour-blind readers too; without the yellow, too pale on paper.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
INK, GREY, PALE = "#1A1A1A", "#767676", "#E4E4E4"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Five styles to seven colours: 35 runs before a pair repeats. Dotted is kept for limits.
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (6, 2, 1.2, 2)), (0, (3, 1.5)), (0, (10, 2, 3, 2)))
Style: TypeAlias = dict[str, Any]
"""Keywords of matplotlib."""

LIMIT: Style = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (1, 2))}
"""How a limit is drawn: dotted and thin."""

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.w_pad": 0.06,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "legend.handletextpad": 0.7,
    "legend.labelspacing": 0.45,
    "legend.borderpad": 0.0,
    "legend.borderaxespad": 0.7,
    **{
        f"{axis}tick.{name}": value
        for axis in "xy"
        for name, value in (("color", GREY), ("labelcolor", INK), ("major.size", 3), ("major.width", 0.6))
    },
    "image.composite_image": False,  # a composite would blur the pictures of an SVG
    "pdf.fonttype": 42,  # text stays text: publishers refuse Type 3 fonts
    "svg.hashsalt": "smoothcert",
    "svg.fonttype": "path",
}
# No dates in the files: the same records make the same bytes.
_METADATA: dict[str, dict[str, None]] = {".pdf": {"CreationDate": None}, ".png": {}, ".svg": {"Date": None}}
_LETTER = 0.55  # mean width of a letter, in type sizes
_HANDLE = int(3.5 / _LETTER)  # letters that a legend's line with its gap is wide
_POINT = 1 / 72
_TOGETHER = re.compile(r"\S+ = \S+|ACR \S+|[0-9]+ %")
_TITLE: ContextVar[str | None] = ContextVar("title", default=None)


@dataclass(frozen=True)
class Size:
    """Lengths in inches and type sizes in points: a picture is read at the size it is drawn.

    ``beside`` is the width that a legend may take on the right; 0: it stands below.
    """

    width: float
    panel: float
    beside: float
    font: float
    small: float
    line: float
    dpi: int

    @property
    def style(self) -> dict[Any, Any]:
        """The sizes as settings of matplotlib."""
        return {
            "font.size": self.font,
            "axes.titlesize": self.small,
            "legend.fontsize": self.small,
            "legend.title_fontsize": self.small,
            "lines.linewidth": self.line,
            "lines.markersize": 2.6 * self.line,
        }

    def letters(self, width: float) -> int:
        """How many small ones fit in a width."""
        return int(width / (_LETTER * self.small * _POINT))


SIZES: dict[str, Size] = {
    "page": Size(width=6.4, panel=2.75, beside=2.25, font=9, small=8, line=1.5, dpi=200),
    "column": Size(width=3.3, panel=1.95, beside=0.0, font=7.5, small=6.8, line=1.2, dpi=300),
}
"""Of a page, and of a column of a two-column paper (3.3 inches)."""


def size_of(width: str) -> Size:
    """The size that a width names."""
    check_name("width", width, SIZES)
    return SIZES[width]


def require_matplotlib() -> None:
    """Refuse to begin work that ends in a picture, if none can be drawn."""
    require("matplotlib", "plotting")


def check_picture_path(out: Path) -> None:
    """Refuse a picture that can't be drawn, or not in that type of file, before any work is done."""
    if out.suffix.lower() not in _METADATA:
        raise InvalidValueError(f"pictures are {', '.join(_METADATA)}, got {out.suffix or 'none'!r} in {out}")
    require_matplotlib()


@contextmanager
def titled(title: str | None) -> Iterator[None]:
    """Pictures that are saved inside have this title above them, whatever they show."""
    token = _TITLE.set(title)
    try:
        yield
    finally:
        _TITLE.reset(token)


@contextmanager
def picture(out: Path, width: float, height: float, size: Size = SIZES["page"]) -> Iterator[Figure]:
    """A figure of ``width`` by ``height`` inches that is written to ``out`` at the end, apart from any other."""
    check_picture_path(out)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's matplotlibrc must not change the picture
        matplotlib.rcParams.update(_STYLE | size.style)
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        yield figure
        if (
            title := _TITLE.get()
        ) is not None:  # above everything that was drawn; the figure grows by its height
            points = 1.15 * size.font
            width, height = figure.get_size_inches()
            lines = textwrap.wrap(title, max(8, int((width - 0.2) / (_LETTER * points * _POINT)))) or [""]
            text = figure.suptitle("\n".join(lines), x=0.1 / width, ha="left", fontsize=points)
            text.set_parse_math(False)
            figure.set_figheight(height + 0.1 + 1.25 * len(lines) * points * _POINT)
        save_figure(figure, out, size.dpi)


def save_figure(figure: Figure, out: Path, dpi: int) -> None:
    """Write the figure in the type its suffix names, in one step."""
    suffix, buffer = out.suffix.lower(), io.BytesIO()
    figure.savefig(buffer, format=suffix[1:], dpi=dpi, metadata=_METADATA[suffix])
    write_atomically(out, buffer.getvalue())


@dataclass(frozen=True)
class Sheet:
    """A picture being drawn: paint the panels, then add the legend."""

    figure: Figure
    panels: tuple[Axes, ...]
    size: Size

    def add_legend(self, entries: Sequence[tuple[Artist, str]], heading: str | None = None) -> None:
        """Each handle with its label, under ``heading``, what they have in common.

        It stands on the right where it is no taller than the panels, else below, and the figure grows.
        """
        size, figure = self.size, self.figure
        if size.beside:
            legend = self._legend("outside right upper", entries, heading, size.letters(size.beside))
            if _height(legend) <= figure.get_figheight() - 0.2:
                return
            legend.remove()
        letters = size.letters(size.width - 0.2)
        half = letters // 2 - 1
        fits = len(entries) > 4 and all(len(label) + _HANDLE <= half for _, label in entries)
        legend = self._legend("outside lower left", entries, heading, letters, 2 if fits else 1)
        figure.set_figheight(figure.get_figheight() + _height(legend) + 0.16)

    def _legend(
        self,
        place: Any,
        entries: Sequence[tuple[Artist, str]],
        heading: str | None,
        letters: int,
        columns: int = 1,
    ) -> Legend:
        handles: list[Any] = [handle for handle, _ in entries]
        title = wrapped(heading, letters) if heading else ""
        places = [str(k) for k in range(len(entries))]
        legend = self.figure.legend(handles, places, loc=place, ncols=columns, title=title, alignment="left")
        legend.get_title().set_parse_math(False)
        # Set afterwards and without mathematics: a legend drops names that begin with "_" and typesets "$".
        for text, (_, label) in zip(legend.get_texts(), entries):
            text.set_parse_math(False)
            text.set_text(wrapped(label, letters // columns - _HANDLE))
        return legend


@contextmanager
def new_sheet(out: Path, width: str, panels: int = 1, share: float = 1.0) -> Iterator[Sheet]:
    """A sheet that is written to ``out`` at the end; ``share``: how high a panel is, of a panel that is alone."""
    size = size_of(width)
    height = panels * (size.panel * share + 2.2 * size.font * _POINT) + 2.4 * size.font * _POINT
    with picture(out, size.width, height, size) as figure:
        axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
        yield Sheet(figure, tuple(axes), size)


def wrapped(text: str, letters: int) -> str:
    """Lines of so many letters; none ends within ``σ = 0.25``, ``ACR 0.525`` or ``95 %``."""
    bound = _TOGETHER.sub(lambda part: part[0].replace(" ", "\u00a0"), text)
    return "\n".join(textwrap.wrap(bound, max(8, letters))) or " "


def line_style(k: int) -> Style:
    """Colour and dashes of the k-th line of a picture."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": _DASHES[k % len(_DASHES)]}


def marker_style(k: int) -> Style:
    """Colour and marker of the k-th set of points of a picture."""
    return {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}


def draw_steps(
    axes: Axes, sizes: NDArray[np.float64], share: NDArray[np.float64], k: int, **style: Any
) -> Artist:
    """The k-th curve of a picture: a share (0 to 1) in percent, which holds from each size to the next."""
    (handle,) = axes.step(sizes, 100 * share, where="post", **line_style(k) | style)
    axes.set(ylim=(0.0, 101.5), yticks=range(0, 101, 20), ylabel="certified accuracy (%)")
    return handle


def set_title(sheet: Sheet, axes: Axes, name: str, *about: str | None) -> None:
    """Above a panel: a run's name, and what there is to say of it."""
    text = ", ".join(part for part in (name, *about) if part)
    letters = sheet.size.letters(sheet.size.width - sheet.size.beside - 0.7)
    axes.set_title(wrapped(text, letters), parse_math=False)


def _height(legend: Legend) -> float:
    return float(legend.get_window_extent().height / legend.figure.dpi)
