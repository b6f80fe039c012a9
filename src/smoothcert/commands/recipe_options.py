"""Options of training made from the dataclasses they fill: a new objective's knobs appear here automatically.

Importing this file imports torch; commands that use it are loaded only when asked for.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from cyclopts import Group

from smoothcert.commands.made_options import OptionField, merged, optional, options_class
from smoothcert.knobs import knobs_of
from smoothcert.objectives import OBJECTIVES
from smoothcert.training import TrainPlan

_PLAN = Group("Plan (overrides the recipe)", sort_key=2)
_KNOBS = Group("Knobs of the objective (default of each that has it)", sort_key=3)


def _plan_fields() -> list[OptionField]:
    made = []
    for knob in knobs_of(TrainPlan):
        if knob.name in ("objective", "ramps"):
            continue
        shown = "" if knob.default in (dataclasses.MISSING, None, (), False) else f" \\[{knob.default}]"
        made.append(optional(dataclasses.replace(knob, help=knob.help + shown), _PLAN))
    return made


def _knob_fields() -> list[OptionField]:
    knobs = merged({name: knobs_of(OBJECTIVES[name]) for name in OBJECTIVES})
    return [optional(knob, _KNOBS) for knob in sorted(knobs, key=lambda knob: knob.name)]


if TYPE_CHECKING:

    class PlanOptions:
        """The plan's fields but objective and ramps, each None unless given."""

    class SweepOptions:
        """The same without σ and seed: a sweep takes several of both."""

    class KnobOptions:
        """The knobs of all objectives, each None unless given."""

else:
    PlanOptions = options_class("PlanOptions", _plan_fields(), __name__)
    SweepOptions = options_class(
        "SweepOptions", [field for field in _plan_fields() if field[0] not in ("sigma", "seed")], __name__
    )
    KnobOptions = options_class("KnobOptions", _knob_fields(), __name__)
