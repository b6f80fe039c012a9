"""Figures: what all pictures share – matplotlib on demand, colours, and files that are whole or not there."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from smoothcert.errors import InvalidValueError
from smoothcert.extras import require
from smoothcert.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

_TITLE: ContextVar[str | None] = ContextVar("title", default=None)

# Okabe & Ito's colours, told apart by colour-blind readers too; without the yellow, too pale on paper.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
)
INK, GREY, PALE = "#1A1A1A", "#767676", "#E4E4E4"

# No dates in the files: the same records make the same bytes.
_METADATA: dict[str, dict[str, None]] = {
    ".pdf": {"CreationDate": None},
    ".png": {},
    ".svg": {"Date": None},
}
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "image.composite_image": False,  # a composite would blur the pictures of an SVG
    "pdf.fonttype": 42,  # text stays text: publishers refuse Type 3 fonts
    "svg.hashsalt": "smoothcert",
    "svg.fonttype": "path",
}


def require_matplotlib() -> None:
    """Refuse to begin work that ends in a picture, if none can be drawn."""
    require("matplotlib", "plotting")


def check_picture_path(out: Path) -> None:
    """Refuse a picture that can't be drawn, or not in that type of file, before any work is done."""
    if out.suffix.lower() not in _METADATA:
        raise InvalidValueError(
            f"pictures are written as {', '.join(_METADATA)}, got {out.suffix or 'no suffix'!r} in {out}"
        )
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
def new_figure(width: float, height: float, font_size: float = 9) -> Iterator[Figure]:
    """A figure of ``width`` by ``height`` inches in the house style, apart from any other of the process."""
    require_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's matplotlibrc must not change the picture
        matplotlib.rcParams.update(_STYLE | {"font.size": font_size})
        figure = Figure(figsize=(width, height), facecolor="white")
        FigureCanvasAgg(figure)
        yield figure


@contextmanager
def picture(out: Path, width: float, height: float, font_size: float = 9, dpi: int = 200) -> Iterator[Figure]:
    """A figure that is written to ``out`` at the end; refused at once where that can't be."""
    check_picture_path(out)
    with new_figure(width, height, font_size) as figure:
        yield figure
        save_figure(figure, out, dpi)


def add_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place of the figure, in inches."""
    across, up = figure.get_size_inches().tolist()
    return figure.add_axes((left / across, bottom / up, width / across, height / up))


def dress(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """A pale grid behind what is drawn, and no frame above and on the right."""
    axes.grid(axis=grid, color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, out: Path, dpi: int = 200) -> None:
    """Write the figure in the type its suffix names, in one step."""
    suffix = out.suffix.lower()
    buffer = io.BytesIO()
    more: dict[str, Any] = {}
    if (title := _TITLE.get()) is not None:
        more["bbox_inches"] = _with_title(figure, title)
    figure.savefig(buffer, format=suffix[1:], dpi=dpi, metadata=_METADATA[suffix], **more)
    write_atomically(out, buffer.getvalue())


def _with_title(figure: Figure, title: str) -> Bbox:
    """Write the title above everything that was drawn; what the page then has to hold, in inches."""
    from matplotlib import rcParams
    from matplotlib.transforms import Bbox

    width, height = figure.get_size_inches()
    size = 1.15 * rcParams["font.size"]
    lines = textwrap.wrap(title, max(8, int((width - 0.2) / (0.55 * size / 72)))) or [""]
    figure.text(
        0.1 / width,
        1 + 0.06 / height,
        "\n".join(lines),
        fontsize=size,
        va="bottom",
        parse_math=False,
    )
    return Bbox([[0.0, 0.0], [width, height + 0.14 + 1.25 * len(lines) * size / 72]])
