"""Options of votes, attacks and fits, made from the plans that they fill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cyclopts import Group

from smoothcert.commands.made_options import (
    former,
    option,
    optional,
    options_class,
    sentence,
    under_their_names,
)
from smoothcert.commands.written_knobs import written_knobs

if TYPE_CHECKING:
    from smoothcert.level_fit import LevelFitPlan
    from smoothcert.noise_fit import FitPlan

    class VoteOptions:
        """n0, n and alpha, with the plan's defaults."""

    class AttackOptions:
        """The plan's fields with their defaults; alpha is None unless given."""

    class LineOptions:
        """The plan's fields with their defaults, but σ and clip: those follow from model and data."""

    class FitOptions:
        """The plan's fields but init, since a ladder takes several; the route is None unless given."""

        validation: int

    class LevelFitOptions:
        """The plan's fields but the levels, which the command itself takes."""

else:
    _FIT_GROUPS = {
        "gradient": Group("Fit by gradient (torch models)", sort_key=6),
        "votes": Group("Fit by votes (any model)", sort_key=7),
        "validation": Group("Validation after each sub-epoch", sort_key=8),
    }
    _LEVEL_GROUPS = {
        "votes": Group("What each level is worth", sort_key=6),
        "chooser": Group("The chooser's training", sort_key=7),
    }

    _VOTES = written_knobs("smoothcert.smoothing.plan", "CertifyPlan", only=("n0", "n", "alpha"))
    VoteOptions = options_class("VoteOptions", [option(sentence(knob)) for knob in _VOTES], __name__)

    *_ATTACK, _ALPHA = map(sentence, written_knobs("smoothcert.empirical.results", "AttackPlan"))
    _ALPHA = replace(_ALPHA, default=None, help=f"{_ALPHA.help[:-1]} (default: the run's alpha).")
    AttackOptions = options_class(
        "AttackOptions",
        [(optional if knob.default is None else option)(knob) for knob in (*_ATTACK, _ALPHA)],
        __name__,
    )

    _LINE = written_knobs("smoothcert.empirical.diagnostics", "LinePlan", but=("sigma", "clip"))
    LineOptions = options_class("LineOptions", [option(sentence(knob)) for knob in _LINE], __name__)

    _FIT = [sentence(knob) for knob in written_knobs("smoothcert.noise_fit.plan", "FitPlan", but=("init",))]
    _FIT_FIELDS = [
        (optional if knob.name == "route" else option)(knob, _FIT_GROUPS.get(knob.group)) for knob in _FIT
    ]
    _EARLIER = [field for knob in _FIT for field in former(knob)]
    FitOptions = options_class("FitOptions", [*_FIT_FIELDS, *_EARLIER], __name__)

    _LEVELS = written_knobs("smoothcert.level_fit.plan", "LevelFitPlan", but=("sigmas",))
    LevelFitOptions = options_class(
        "LevelFitOptions",
        [option(sentence(knob), _LEVEL_GROUPS.get(knob.group)) for knob in _LEVELS],
        __name__,
    )


def fit_plan(options: FitOptions, init: float, route: str) -> FitPlan:
    """The plan of a fit that starts at ``init``; ``route`` is the default, which follows from the model."""
    from smoothcert.noise_fit import FitPlan

    values = under_their_names(options)
    return FitPlan(init=init, **(values | {"route": values["route"] or route}))


def level_fit_plan(options: LevelFitOptions, sigmas: list[float]) -> LevelFitPlan:
    """The plan of a chooser among these levels."""
    from smoothcert.level_fit import LevelFitPlan

    return LevelFitPlan(sigmas=tuple(sigmas), **vars(options))
