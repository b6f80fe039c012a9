"""Clean accuracy against mean certified area: what ladders of fitted noise trade for what (Tecot et al., Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from smoothcert.analysis.plots.kinds import register
from smoothcert.analysis.plots.sheets import COLOURS, LIMIT_DASHES, MARKERS, new_sheet
from smoothcert.errors import InvalidValueError

_MOST_LADDERS = len(COLOURS)


class LadderPoint(Protocol):
    """A sub-epoch of a fit on inputs kept apart."""

    @property
    def sub_epoch(self) -> int:
        """0 is the constant vector that the fit started from."""
        ...

    @property
    def area(self) -> float:
        """Mean certified area of the right answers that were certified."""
        ...

    @property
    def accuracy(self) -> float:
        """Clean accuracy of the smoothed classifier."""
        ...

    @property
    def kept(self) -> bool:
        """Whether it is on the blanket."""
        ...


@register(
    "clean-accuracy",
    "clean accuracy against mean certified area, a line for each ladder of fits",
    reads="ladders",
)
def plot_clean_accuracy(
    ladders: Sequence[tuple[str, Sequence[LadderPoint]]], out: Path, width: str = "page"
) -> None:
    """Draw each (name, points): the blanket as a line, its starting constants dashed, other sub-epochs as dots."""
    if not 0 < len(ladders) <= _MOST_LADDERS:
        raise InvalidValueError(
            f"one picture holds 1 to {_MOST_LADDERS} ladders, got {len(ladders)}: name fewer"
        )
    for name, points in ladders:
        if not any(point.kept for point in points):
            raise InvalidValueError(f"{name}: no sub-epoch certified anything, so there is no point to draw")
    labels = [
        label
        for name, _ in ladders
        for label in (f"{name}: fitted (blanket)", f"{name}: the same σ everywhere")
    ]
    with new_sheet(out, width, labels, top=0.15) as sheet:
        (axes,) = sheet.panels
        handles = []
        for k, (_, points) in enumerate(ladders):
            colour, marker = COLOURS[k], MARKERS[k]
            kept = sorted((point.area, 100 * point.accuracy) for point in points if point.kept)
            start = sorted((point.area, 100 * point.accuracy) for point in points if point.sub_epoch == 0)
            rest = [(p.area, 100 * p.accuracy) for p in points if p.sub_epoch > 0 and not p.kept]
            handles += axes.plot(
                *zip(*kept), color=colour, marker=marker, markersize=4, linewidth=sheet.look.line
            )
            handles += axes.plot(
                *(zip(*start) if start else ([], [])),
                color=colour,
                marker=marker,
                markersize=4,
                markerfacecolor="white",
                linestyle=LIMIT_DASHES,
                linewidth=sheet.look.line,
            )
            if rest:
                axes.plot(*zip(*rest), linestyle="", marker=".", markersize=4, color=colour, alpha=0.35)
        axes.set_xlabel("mean certified area: Σ ln of the region's semi-axes")
        axes.set_ylabel("clean accuracy (%)")
        sheet.add_legend(handles)
