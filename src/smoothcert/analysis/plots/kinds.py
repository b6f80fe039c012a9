"""Kinds of plot by name: a function of this folder that draws what was read into a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from smoothcert.registry import Registry

Reads = Literal["runs", "ladders", "scales", "trainings"]
"""What a plot is drawn from: runs, ladders of fits, σ vectors, or epochs of training runs."""

Draw = TypeVar("Draw", bound=Callable[..., None])


@dataclass(frozen=True)
class PlotKind:
    """``draw(things, out=…, width=…)`` and what help says of it; ``options`` explains further keywords.

    ``names_each``: whether the picture calls each thing by its name, or speaks of methods.
    """

    name: str
    words: str
    draw: Callable[..., None]
    reads: Reads
    fewest: int
    options: Mapping[str, str]
    names_each: bool


PLOTS: Registry[PlotKind] = Registry("kind of plot", __package__)


def register(
    name: str,
    words: str,
    *,
    reads: Reads = "runs",
    fewest: int = 1,
    options: Mapping[str, str] | None = None,
    names_each: bool = True,
) -> Callable[[Draw], Draw]:
    """Decorator: put a function on the list of plots. All arguments are literals: help is made from the source."""

    def add(draw: Draw) -> Draw:
        PLOTS.register(name)(PlotKind(name, words, draw, reads, fewest, options or {}, names_each))
        return draw

    return add
