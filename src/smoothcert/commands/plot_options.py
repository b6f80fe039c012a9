"""Kinds of plot and their options, made from what the plots' own files say."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeAlias

from smoothcert.commands.made_options import merged, optional, options_class, sentence
from smoothcert.commands.written_knobs import choices, members

_KINDS = {each.name: each for each in members("smoothcert.analysis.plots", "PLOTS")}
KINDS_IN_WORDS = "; ".join(
    f"`{name}`: {ast.literal_eval(each.mark.args[1])}" for name, each in _KINDS.items()
)
KNOBS = {name: each.keywords(each.argument("options") or {}) for name, each in _KINDS.items()}

if TYPE_CHECKING:
    KindName: TypeAlias = str

    class PlotOptions:
        """The options of all kinds, each None unless given."""

else:
    KindName = choices("smoothcert.analysis.plots", "PLOTS")
    PlotOptions = options_class("PlotOptions", [optional(sentence(knob)) for knob in merged(KNOBS)], __name__)
