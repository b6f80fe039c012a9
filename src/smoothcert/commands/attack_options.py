"""Options of `attack` and `diagnose`, made from the plans that they fill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from smoothcert.commands.made_options import option, optional, options_class, sentence
from smoothcert.commands.written_knobs import written_knobs

if TYPE_CHECKING:

    class AttackOptions:
        """The plan's fields with their defaults; alpha is None unless given."""

    class LineOptions:
        """The plan's fields with their defaults, but σ and clip: those follow from model and data."""

else:
    *_ATTACK, _ALPHA = map(sentence, written_knobs("smoothcert.empirical.results", "AttackPlan"))
    _ALPHA = replace(_ALPHA, default=None, help=f"{_ALPHA.help[:-1]} (default: the run's alpha).")
    AttackOptions = options_class(
        "AttackOptions",
        [(optional if knob.default is None else option)(knob, None) for knob in (*_ATTACK, _ALPHA)],
        __name__,
    )
    _LINE = written_knobs("smoothcert.empirical.diagnostics", "LinePlan")
    LineOptions = options_class(
        "LineOptions",
        [option(sentence(knob), None) for knob in _LINE if knob.name not in ("sigma", "clip")],
        __name__,
    )
