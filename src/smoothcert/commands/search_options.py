"""Options of the searches for each input's σ, made from the searches' own knobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Group

from smoothcert.commands.made_options import OptionField, given, merged, optional, options_class, sentence
from smoothcert.commands.written_knobs import registered, written_knobs
from smoothcert.knobs import Knob

if TYPE_CHECKING:
    from smoothcert.sigma_search import SigmaSearch

_GROUP = Group("A σ for each input (data-dependent smoothing)", sort_key=6)
_PREFIX = "search_"
_NAMES = registered("smoothcert.sigma_search", "SEARCHES")


def _fields() -> list[OptionField]:
    literal: Any = Literal
    chosen = Knob(
        "sigma_search",
        literal[tuple(_NAMES)],
        None,
        "Choose each input's σ before certifying it: ladder (votes, any model), gradient (the papers' ascent, torch "
        "models), grid (their baseline), ellipsoid (a per-coordinate σ, torch models). Without a region memory, a "
        "certificate is then about the classifier frozen at that input's σ.",
    )
    knobs = merged({name: written_knobs(*where) for name, where in _NAMES.items()})
    return [
        optional(chosen, _GROUP),
        *(optional(sentence(knob), _GROUP, prefix=_PREFIX, negative=False) for knob in knobs),
    ]


if TYPE_CHECKING:

    class SearchOptions:
        """The search and the knobs of all searches, each None unless given."""

else:
    SearchOptions = options_class("SearchOptions", _fields(), __name__)


def search_of(options: SearchOptions) -> SigmaSearch | None:
    """The search asked for, or None; a knob that it doesn't have is named."""
    from smoothcert.errors import InvalidValueError
    from smoothcert.knobs import from_mapping
    from smoothcert.sigma_search import SEARCHES

    values = given(options)
    name = values.pop("sigma_search", None)
    knobs = {option.removeprefix(_PREFIX): value for option, value in values.items()}
    if name is None:
        if knobs:
            option = f"--search-{next(iter(knobs)).replace('_', '-')}"
            *others, last = _NAMES
            raise InvalidValueError(
                f"{option} needs a search: add --sigma-search {', '.join(others)} or {last}"
            )
        return None
    return from_mapping(SEARCHES[name], knobs, f"sigma search {name}", SEARCHES.load())
