"""What ``--sigma-search`` holds: a search with its knobs, such as ``ladder:rungs=9,votes=32``."""

from __future__ import annotations

from smoothcert.errors import InvalidValueError
from smoothcert.knobs import from_mapping, knobs_of, plain_value, written, written_values
from smoothcert.registry import closest
from smoothcert.sigma_search.base import SEARCHES, SigmaSearch


def parse_search(text: str) -> SigmaSearch:
    """The search that a text names; a mistake is told with every knob and its default. A switch may stand alone."""
    name, _, knobs = (part.strip() for part in text.partition(":"))
    if name not in SEARCHES:
        guess = closest(name, SEARCHES.names(), most=1)
        meant = f" Did you mean {guess[0]!r}?" if guess else ""
        listed = "\n  ".join(_defaults(one) for one in SEARCHES)
        raise InvalidValueError(
            f"unknown sigma search {name!r}.{meant} Known, with their knobs and defaults:\n  {listed}"
        )
    values = {knob: plain_value(value) for knob, value in written_values(knobs, name, switches=True)}
    known = {knob.name for knob in knobs_of(SEARCHES[name])}
    if unknown := [knob for knob in values if knob not in known]:
        owners = [one for one in SEARCHES if unknown[0] in {knob.name for knob in knobs_of(SEARCHES[one])}]
        whose = f", which belongs to {' or '.join(owners)}" if owners else ""
        raise InvalidValueError(
            f"unknown knob of sigma search {name} {unknown[0]!r}{whose}. Known, with their defaults: {_defaults(name)}"
        )
    return from_mapping(SEARCHES[name], values, f"sigma search {name}")


def _defaults(name: str) -> str:
    return written(name, {knob.name: knob.default for knob in knobs_of(SEARCHES[name])})
