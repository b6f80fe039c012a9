"""Options that say how many votes certify an input and at which level, made from the plan that they fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smoothcert.commands.made_options import option, options_class, sentence
from smoothcert.commands.written_knobs import written_knobs

if TYPE_CHECKING:

    class VoteOptions:
        """n0, n and alpha, with the plan's defaults."""

else:
    _KNOBS = written_knobs("smoothcert.smoothing.plan", "CertifyPlan", only=("n0", "n", "alpha"))
    VoteOptions = options_class("VoteOptions", [option(sentence(knob), None) for knob in _KNOBS], __name__)
