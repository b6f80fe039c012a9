"""A σ vector as a picture: bright where the model bears much noise, dark where it leans on the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.figures import BLUE, GREY, add_axes, check_picture_path, dress, picture
from smoothcert.analysis.plots.kinds import register
from smoothcert.analysis.plots.sheets import LOOKS, Look, look_of, plain_text
from smoothcert.errors import InvalidValueError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Sigmas = NDArray[np.float64]

_MOST_PICTURES = 24
_COLUMNS = {"page": 5, "column": 3}
_WIDEST = 2.6  # inches, of one picture alone
_CAPTION = 0.42
_MARGIN, _GAP = 0.12, 0.14


def scaled_globally(sigmas: Sigmas) -> Sigmas:
    """From 0, the smallest σ of all channels, to 1, the largest; a constant vector is ½ everywhere.

    One scale for all channels, so that a colour the model ignores stands out.
    """
    low, high = float(sigmas.min()), float(sigmas.max())
    return np.full_like(sigmas, 0.5) if low == high else (sigmas - low) / (high - low)


@register("noise", "σ vectors as pictures, of fits or of runs certified with one", reads="scales")
def plot_noise(named: Sequence[tuple[str, Sigmas]], out: Path, width: str = "page") -> None:
    """Draw each (name, σ in the shape of an input): images as pictures, other inputs as a bar for each number."""
    check_picture_path(out)
    look_of(width)
    if not 0 < len(named) <= _MOST_PICTURES:
        raise InvalidValueError(f"a page holds 1 to {_MOST_PICTURES} σ vectors, got {len(named)}: name fewer")
    pictures = [_picture(sigmas) for _, sigmas in named]
    if all(image is not None for image in pictures):
        _draw_pictures(
            [(name, sigmas, p) for (name, sigmas), p in zip(named, pictures) if p is not None], out, width
        )
    else:
        _draw_bars(named, out, width)


def _picture(sigmas: Sigmas) -> Sigmas | None:
    """(height, width) or (height, width, 3), scaled; None for what is no image."""
    if sigmas.ndim == 2:
        return scaled_globally(sigmas)
    if sigmas.ndim != 3 or sigmas.shape[0] not in (1, 3):
        return None
    return scaled_globally(sigmas)[0] if sigmas.shape[0] == 1 else scaled_globally(sigmas).transpose(1, 2, 0)


def _draw_pictures(named: Sequence[tuple[str, Sigmas, Sigmas]], out: Path, width: str) -> None:
    look = LOOKS[width]
    columns = min(_COLUMNS[width], len(named))
    rows = math.ceil(len(named) / columns)
    side = min(_WIDEST, (look.width - 2 * _MARGIN - (columns - 1) * _GAP) / columns)
    tall = side * max(image.shape[0] / image.shape[1] for _, _, image in named)
    total_width = columns * side + (columns - 1) * _GAP + 2 * _MARGIN
    height = rows * (tall + _CAPTION) + (rows - 1) * _GAP + 2 * _MARGIN
    with picture(out, total_width, height, look.font) as figure:
        for k, (name, sigmas, image) in enumerate(named):
            row, column = divmod(k, columns)
            left = _MARGIN + column * (side + _GAP)
            top = height - _MARGIN - row * (tall + _CAPTION + _GAP)
            axes = add_axes(figure, left, top - tall, side, tall)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.imshow(image, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
            _caption(axes, look, side, name, f"{sigmas.min():.3g} (dark) … {sigmas.max():.3g}")


def _caption(axes: Axes, look: Look, side: float, name: str, span: str) -> None:
    room = max(8, int(side / (0.55 * look.legend / 72)))
    shown = name if len(name) <= room else f"…{name[-(room - 1) :]}"
    for line, text in enumerate((shown, span)):
        plain_text(
            axes,
            0.0,
            -0.03 - line * 1.25 * look.legend / 72 / side,
            text,
            transform=axes.transAxes,
            fontsize=look.legend,
            va="top",
        )


def _draw_bars(named: Sequence[tuple[str, Sigmas]], out: Path, width: str) -> None:
    look = LOOKS[width]
    panel, gap = 0.55 * look.panel, 0.45
    height = len(named) * (panel + gap) + 0.35
    with picture(out, look.width, height, look.font) as figure:
        for k, (name, sigmas) in enumerate(named):
            bottom = height - (k + 1) * (panel + gap) + 0.1
            axes = add_axes(figure, look.left, bottom, look.width - look.left - 0.16, panel)
            flat = sigmas.ravel()
            axes.bar(np.arange(flat.size), flat, width=0.8 if flat.size <= 200 else 1.0, color=BLUE)
            if flat.max() > 20 * flat.min():
                axes.set_yscale("log")
            axes.axhline(float(np.exp(np.log(flat).mean())), color=GREY, linewidth=0.8)
            dress(axes, grid="y")
            axes.set_ylabel("σ")
            axes.set_xlabel("number of the input (line: geometric mean)")
            plain_text(axes, 0.0, 1.04, name, transform=axes.transAxes, fontsize=look.legend)
