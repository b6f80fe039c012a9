"""Options made from the dataclasses that they fill: name, type, default and help are declared once, there."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from smoothcert.engine.execution import Execution
from smoothcert.knobs import Knob, knobs_of, written
from smoothcert.models.numerics import Dtype, Generator, Numerics, Route
from smoothcert.plain_text import option as spelled
from smoothcert.registry import Registry
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.search.base import SEARCHES, SigmaSearch, parse_search

if TYPE_CHECKING:
    from cyclopts import Token

OptionField = tuple[str, Any, Any]
"""What :func:`dataclasses.make_dataclass` takes: name, annotated type and default."""


def listed(kind: Any, tokens: Sequence[Token]) -> Any:
    """A tuple of all values, with commas or spaces between them."""
    from cyclopts import CoercionError, convert

    item = typing.get_args(without_none(kind))[0]
    words = [part.strip() for token in tokens for part in token.value.split(",") if part.strip()]
    try:
        return tuple(convert(item, [word]) for word in words)
    except CoercionError:
        raise ValueError(f"unable to convert {', '.join(words)} into {item.__name__}s") from None


def option(knob: Knob, group: Group | None = None, *, unset: bool = False) -> OptionField:
    """An option that has the field's default, or None where it is ``unset``; a switch can be turned off by --no-…."""
    kind = names_of(*knob.choices.split(":")) if knob.choices else knob.kind
    several = typing.get_origin(without_none(kind)) is tuple
    placed: dict[str, Any] = {} if group is None else {"group": group}
    parameter = Parameter(
        name=spelled(knob.option or knob.name),
        help=knob.help,
        converter=listed if several else None,
        consume_multiple=several,
        negative=None if without_none(kind) is bool else "",
        **placed,
    )
    if unset or knob.default is None:
        return knob.name, Annotated[without_none(kind) | None, parameter], None
    return knob.name, Annotated[kind, parameter], knob.default


def names_of(module: str, registry: str) -> Any:
    """A type that takes the names of a registry."""
    members: Registry[Any] = getattr(import_module(module), registry)
    return typing.Literal[tuple(members)]


def merged(knobs: Mapping[str, Iterable[Knob]]) -> list[Knob]:
    """The fields of several classes, one for each name: the help says what it is in which class, and its default.

    One that means the same and has the same default in all of them names no class. In the order declared.
    """
    kinds: dict[str, Any] = {}
    texts: dict[str, dict[str, dict[str, Any]]] = {}
    for owner, each in knobs.items():
        for knob in each:
            kinds.setdefault(knob.name, without_none(knob.kind))
            texts.setdefault(knob.name, {}).setdefault(knob.help, {})[owner] = knob.default
    return [
        Knob(name, kinds[name], None, "; ".join(_told(text, who, len(knobs)) for text, who in told.items()))
        for name, told in texts.items()
    ]


def _told(text: str, who: Mapping[str, Any], owners: int) -> str:
    defaults = set(who.values())
    if len(who) == owners and owners > 1 and len(defaults) == 1:
        (default,) = defaults
        return text if default in (None, False) else f"{text} \\[{default}]"
    each = (
        owner if default in (None, dataclasses.MISSING) else f"{owner} {default}"
        for owner, default in who.items()
    )
    return f"{text} \\[{', '.join(each)}]"


def options(fields: Iterable[OptionField]) -> Callable[[type], Any]:
    """Decorator: a frozen dataclass of these options in the class's place, which a command takes as one parameter."""

    def make(cls: type) -> Any:
        made = dataclasses.make_dataclass(cls.__name__, fields, frozen=True)
        made.__module__ = cls.__module__  # cyclopts looks inside classes of the program's own modules only
        return Parameter(name="*")(made)

    return make


def sentence(knob: Knob) -> Knob:
    """The field with its help as a sentence."""
    return dataclasses.replace(knob, help=f"{knob.help[:1].upper()}{knob.help[1:]}." if knob.help else "")


def given(options: Any, **more: Any) -> dict[str, Any]:
    """The options that were given, and ``more`` by name; those that weren't are None."""
    return {name: value for name, value in (vars(options) | more).items() if value is not None}


def without_none(kind: Any) -> Any:
    """The type without None."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return next(part for part in typing.get_args(kind) if part is not type(None))
    return kind


def fields_of(cls: type, only: Collection[str] | None = None, but: Collection[str] = ()) -> dict[str, Knob]:
    """The fields of a plan that are options, by name, with their help as sentences."""
    return {
        knob.name: sentence(knob)
        for knob in knobs_of(cls)
        if knob.name not in but and (only is None or knob.name in only)
    }


_SPEED = Group("Speed (never changes an answer)", sort_key=20)
_NUMERICS = Group("Numerics (part of the plan: may change a last bit)", sort_key=10)
_FIELDS = fields_of(Execution)
# Names to be completed by Tab; a plugin's are taken as well, and the registry isn't loaded for help.
_BACKENDS = typing.Literal["threads", "processes", "ray"] | str
_EXECUTION = _FIELDS | {"backend": dataclasses.replace(_FIELDS["backend"], kind=_BACKENDS)}
_PLAN = fields_of(CertifyPlan, only=("n0", "n", "alpha", "levels"))
_KINDS = {"dtype": Dtype, "route": Route, "generator": Generator}
_NUMBERS = [
    dataclasses.replace(knob, kind=_KINDS.get(name, knob.kind))
    for name, knob in fields_of(Numerics, only=("dtype", "route", "chunk", "generator")).items()
]


@options(option(_PLAN[name]) for name in ("n0", "n", "alpha"))
class VoteOptions:
    """n0, n and alpha, with the plan's defaults."""


@options(option(_EXECUTION[name], _SPEED) for name in ("device", "workers"))
class DeviceOptions:
    """Device and workers, for commands that cast few votes."""


@options(option(knob, _SPEED) for knob in _EXECUTION.values())
class SpeedOptions(DeviceOptions):
    """What may change speed but never an answer."""


@options(option(knob, _NUMERICS) for knob in (*_NUMBERS, _PLAN["levels"]))
class NumericsOptions:
    """What may change a last bit; ``levels`` is the plan's own."""

    dtype: str
    route: str
    chunk: int | None
    generator: str
    levels: int | None


def execution_of(options: DeviceOptions) -> Execution:
    """The options as the engine takes them, on a device that can be reached."""
    from smoothcert.engine.backends.workers import BACKENDS

    execution = Execution(**vars(options))
    BACKENDS[execution.backend]  # refused before anything long begins
    execution.check_devices()
    return execution


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """How votes are computed, and how fast."""

    numerics: NumericsOptions = NumericsOptions()
    speed: SpeedOptions = SpeedOptions()

    @property
    def execution(self) -> Execution:
        """On a device that can be reached."""
        return execution_of(self.speed)

    @property
    def plan_fields(self) -> dict[str, Any]:
        """The numerics and the grid as the plan takes them."""
        of = self.numerics
        return {
            "numerics": Numerics(of.dtype, of.route, of.chunk, generator=of.generator),
            "levels": of.levels,
        }


def _searches_in_words() -> str:
    """Every search with its options, their defaults and what they are; what all searches have is told once."""
    searches = {name: knobs_of(SEARCHES[name]) for name in SEARCHES}
    first, *others = searches.values()
    common = [knob for knob in first if all(knob in knobs for knobs in others)]
    told = [f"With any: {_search_options(common)}."]
    told += [
        f"**{name}**: {_search_options([knob for knob in knobs if knob not in common])}."
        for name, knobs in searches.items()
    ]
    return "\n\n".join(told)


def _search_options(knobs: list[Knob]) -> str:
    return "; ".join(f"`{written('', {knob.name: knob.default})[1:]}` {knob.help}" for knob in knobs)


SearchText = Annotated[
    str | None,
    Parameter(
        group=Group("A σ for each input (data-dependent smoothing)", sort_key=6),
        help="Choose each input's own σ before certifying it: ladder (any model), gradient, grid or ellipsoid, "
        "with options as in `ladder:rungs=9,votes=32`. Ladder casts votes; gradient is the papers' ascent and grid "
        "their baseline; ellipsoid finds a per-coordinate σ. Gradient and ellipsoid are for torch models. Without "
        "a region memory, a certificate is then about the classifier frozen at that input's σ."
        f"\n\n{_searches_in_words()}",
    ),
]


def search_of(text: str | None) -> SigmaSearch | None:
    """The search asked for, or None."""
    return None if text is None else parse_search(text)
