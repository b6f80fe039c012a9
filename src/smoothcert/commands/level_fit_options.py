"""Options of `fit-levels`, made from the plan that they fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import Group

from smoothcert.commands.made_options import OptionField, option, options_class, sentence
from smoothcert.commands.written_knobs import written_knobs

if TYPE_CHECKING:
    from smoothcert.level_fit import LevelFitPlan

_GROUPS = {
    "votes": Group("What each level is worth", sort_key=6),
    "chooser": Group("The chooser's training", sort_key=7),
}


_NAMES = (
    "noise",
    "chooser_sigma",
    "inputs",
    "votes",
    "validation",
    "network",
    "epochs",
    "batch",
    "copies",
    "lr",
    "seed",
)
"""All but the levels, which the command itself takes."""


def _fields() -> list[OptionField]:
    knobs = written_knobs("smoothcert.level_fit.plan", "LevelFitPlan", only=_NAMES)
    return [option(sentence(knob), _GROUPS.get(knob.group)) for knob in knobs]


if TYPE_CHECKING:

    class LevelFitOptions:
        """The plan's fields but the levels, each with its default."""

else:
    LevelFitOptions = options_class("LevelFitOptions", _fields(), __name__)


def level_fit_plan(options: LevelFitOptions, sigmas: list[float]) -> LevelFitPlan:
    """The plan of a chooser among these levels."""
    from smoothcert.level_fit import LevelFitPlan

    return LevelFitPlan(sigmas=tuple(sigmas), **vars(options))
