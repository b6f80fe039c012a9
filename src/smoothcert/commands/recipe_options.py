"""Options of training made from the dataclasses they fill: a new objective's knobs appear here by themselves.

Importing this file imports torch; commands that use it are loaded only when asked for.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from smoothcert.knobs import help_of, knob_types
from smoothcert.objectives import OBJECTIVES
from smoothcert.training import TrainPlan

_PLAN = Group("Plan (overrides the recipe)", sort_key=2)
_KNOBS = Group("Knobs of the objective (default of each that has it)", sort_key=3)


def _optional(name: str, kind: Any, group: Group, help: str) -> tuple[str, Any, None]:
    parameter = Parameter(
        group=group,
        help=help,
        # A tuple takes all the values that follow, and --no-… only makes sense for a switch.
        consume_multiple=typing.get_origin(kind) is tuple,
        negative=None if kind is bool else "",
    )
    return name, Annotated[kind | None, parameter], None


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) is types.UnionType:
        return next(part for part in typing.get_args(kind) if part is not type(None))
    return kind


def _plan_fields() -> list[tuple[str, Any, None]]:
    types_ = knob_types(TrainPlan)
    made = []
    for field in dataclasses.fields(TrainPlan):
        if field.name in ("objective", "ramps"):
            continue
        default = field.default
        shown = "" if default in (dataclasses.MISSING, None, (), False) else f" \\[{default}]"
        made.append(_optional(field.name, _without_none(types_[field.name]), _PLAN, help_of(field) + shown))
    return made


def _knob_fields() -> list[tuple[str, Any, None]]:
    kinds: dict[str, Any] = {}
    texts: dict[str, dict[str, list[str]]] = {}
    for name in OBJECTIVES:
        for field in dataclasses.fields(OBJECTIVES[name]):
            kinds.setdefault(field.name, _without_none(knob_types(OBJECTIVES[name])[field.name]))
            who = f"{name} {field.default}".removesuffix(" None")
            texts.setdefault(field.name, {}).setdefault(help_of(field), []).append(who)
    return [
        _optional(
            knob,
            kinds[knob],
            _KNOBS,
            "; ".join(f"{text} \\[{', '.join(who)}]" for text, who in texts[knob].items()),
        )
        for knob in sorted(kinds)
    ]


def _options(name: str, fields: list[tuple[str, Any, None]]) -> Any:
    made = dataclasses.make_dataclass(name, fields, frozen=True)
    made.__module__ = __name__  # cyclopts looks inside classes of the program's own modules only
    return Parameter(name="*")(made)


if TYPE_CHECKING:

    class PlanOptions:
        """The plan's fields but objective and ramps, each None unless given."""

    class SweepOptions:
        """The same without σ and seed, of which a sweep takes several."""

    class KnobOptions:
        """The knobs of all objectives, each None unless given."""

else:
    PlanOptions = _options("PlanOptions", _plan_fields())
    SweepOptions = _options(
        "SweepOptions", [field for field in _plan_fields() if field[0] not in ("sigma", "seed")]
    )
    KnobOptions = _options("KnobOptions", _knob_fields())


def given(options: Any) -> dict[str, Any]:
    """What was given on the command line."""
    return {name: value for name, value in vars(options).items() if value is not None}
