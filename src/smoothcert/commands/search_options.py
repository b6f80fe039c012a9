"""The search for each input's σ as an option: one text, whose help is made from the searches' own knobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from smoothcert.commands.written_knobs import registered, written_knobs
from smoothcert.knobs import Knob, written

if TYPE_CHECKING:
    from smoothcert.sigma_search import SigmaSearch


def _help() -> str:
    """Every search with its knobs, their defaults and what they are; what all searches have is told once."""
    searches = {
        name: written_knobs(*where)
        for name, where in registered("smoothcert.sigma_search", "SEARCHES").items()
    }
    first, *others = searches.values()
    common = [knob for knob in first if all(knob in knobs for knobs in others)]
    told = [f"With any: {_told(common)}."]
    told += [
        f"**{name}**: {_told([knob for knob in knobs if knob not in common])}."
        for name, knobs in searches.items()
    ]
    return "\n\n".join(told)


def _told(knobs: list[Knob]) -> str:
    return "; ".join(f"`{written('', {knob.name: knob.default})[1:]}` {knob.help}" for knob in knobs)


SearchText = Annotated[
    str | None,
    Parameter(
        group=Group("A σ for each input (data-dependent smoothing)", sort_key=6),
        help="Choose each input's own σ before certifying it: ladder (any model), gradient, grid or ellipsoid, "
        "with knobs as in `ladder:rungs=9,votes=32`. Ladder casts votes; gradient is the papers' ascent and grid "
        "their baseline; ellipsoid finds a per-coordinate σ. Gradient and ellipsoid are for torch models. Without "
        "a region memory, a certificate is then about the classifier frozen at that input's σ."
        f"\n\n{_help()}",
    ),
]


def search_of(text: str | None) -> SigmaSearch | None:
    """The search asked for, or None."""
    if text is None:
        return None
    from smoothcert.sigma_search.parsing import parse_search

    return parse_search(text)
