"""Bars of how much noise each feature bears, the most sensitive on top."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smoothcert.analysis.figures import BLUE, GREY, add_axes, dress, picture
from smoothcert.analysis.plots.sheets import look_of
from smoothcert.errors import InvalidValueError

_MOST_BARS = 60
_BAR = 0.19
_LONGEST = 32


def plot_features(
    names: Sequence[str], values: Sequence[float], meaning: str, out: Path, width: str = "page"
) -> None:
    """A bar for each name from above on a logarithmic axis; of more than 60 the first 30 and the last 30."""
    look = look_of(width)
    if not names or len(names) != len(values):
        raise InvalidValueError(
            f"a bar needs a name and a value, got {len(names)} names, {len(values)} values"
        )
    shown = range(len(names))
    half = _MOST_BARS // 2
    places = [*shown] if len(names) <= _MOST_BARS else [*shown[:half], *shown[-half:]]
    left = 0.15 + min(_LONGEST, max(len(names[k]) for k in places)) * 0.55 * look.legend / 72
    height = len(places) * _BAR + 0.65
    with picture(out, look.width, height, look.legend) as figure:
        axes = add_axes(figure, left, 0.5, look.width - left - 0.2, height - 0.6)
        rows = range(len(places))
        axes.barh(list(rows), [values[k] for k in places], color=BLUE, height=0.7)
        axes.set_ylim(len(places) - 0.4, -0.6)
        # A name may hold a dollar sign, which is no formula.
        axes.set_yticks(list(rows), [_short(names[k]) for k in places], parse_math=False)
        if len(places) < len(names):
            axes.axhline(half - 0.5, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)))
        if min(values) > 0 and max(values) > 20 * min(values):
            axes.set_xscale("log")
        axes.set_xlabel(meaning, loc="right")  # longer than the axis, it has room on the left
        dress(axes, grid="x")
        axes.tick_params(axis="y", length=0)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
