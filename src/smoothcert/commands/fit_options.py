"""Options of `fit-noise`, made from the plan that they fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import Group

from smoothcert.commands.made_options import (
    OptionField,
    former,
    option,
    optional,
    options_class,
    sentence,
    under_their_names,
)
from smoothcert.commands.written_knobs import written_knobs

if TYPE_CHECKING:
    from smoothcert.noise_fit import FitPlan

_GROUPS = {
    "gradient": Group("Fit by gradient (torch models)", sort_key=6),
    "votes": Group("Fit by votes (any model)", sort_key=7),
    "validation": Group("Validation after each sub-epoch", sort_key=8),
}


def _fields() -> list[OptionField]:
    """All but init, since a ladder takes several; the route is None unless given: it follows from the model."""
    plan = written_knobs("smoothcert.noise_fit.plan", "FitPlan")
    knobs = [sentence(knob) for knob in plan if knob.name != "init"]
    shown = [(optional if knob.name == "route" else option)(knob, _GROUPS.get(knob.group)) for knob in knobs]
    return [*shown, *(field for knob in knobs for field in former(knob))]


if TYPE_CHECKING:

    class FitOptions:
        """The plan's fields but init, each with its default."""

        validation: int

else:
    FitOptions = options_class("FitOptions", _fields(), __name__)


def fit_plan(options: FitOptions, init: float, route: str) -> FitPlan:
    """The plan of a fit that starts at ``init``; ``route`` is the default."""
    from smoothcert.noise_fit import FitPlan

    values = under_their_names(options)
    return FitPlan(init=init, **(values | {"route": values["route"] or route}))
