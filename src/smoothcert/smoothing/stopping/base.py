"""Stop rules and budgets: what they are, how they are written, and the lists of them.

Two ways keep a certificate's promise with fewer votes. A *stop rule* sees the votes as they come, and the bound is one
that holds at every checkpoint (anytime-valid). A *budget* settles n before the first estimation vote, perhaps by votes
of another stream: to the estimation votes n is then a constant, and the papers' fixed-n bounds hold. See
docs/adaptive.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self

from smoothcert.errors import InvalidValueError, check_count, check_probability
from smoothcert.registry import Registry, unknown_name
from smoothcert.smoothing.stopping.forecasts import RadiusForecast, VotingState
from smoothcert.tally import Tally

Sees = Literal["selection", "estimation"]
"""The votes that a rule looks at. Only one that looks at the estimation votes needs an anytime-valid bound."""

Goal = Literal["decision", "mean radius", "any"]
"""What votes are saved for. Where it is a decision, radii stop growing once it is made: their mean means little."""

FUTILITY = 0.01
"""Chance of giving up on an input that would have made it. It costs power, never validity."""

PILOT_VOTES = 1000


@dataclass(frozen=True)
class Form:
    """How a field of a rule is written: ``read`` raises ValueError or OverflowError for what it can't be."""

    words: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]


def shortest(value: float) -> str:
    """A number in its usual notation: 0.5, 1, 1e-06."""
    return repr(int(value)) if value == int(value) else repr(value)


def _number(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError
    return value


def _percentage(text: str) -> float:
    if not text.endswith("%"):
        raise ValueError
    return _number(text.removesuffix("%")) / 100


def _whole(text: str) -> int:
    if (value := _number(text)) != int(value):
        raise ValueError
    return int(value)


NUMBER = Form("a number", _number, shortest)
NUMBERS = Form(
    "numbers with commas between",
    lambda text: tuple(map(_number, text.split(","))),
    lambda numbers: ",".join(map(shortest, numbers)),
)
PERCENT = Form("a percentage", _percentage, lambda share: f"{100 * share:.12g}%")
COUNT = Form("a whole number", _whole, str)


class WrittenRule(ABC):
    """What plans and the command line write as ``name`` or ``name:argument``: a stop rule, or a budget."""

    name: ClassVar[str]
    example: ClassVar[str]
    """How it is written."""
    words: ClassVar[str]
    """What help says of the example."""
    goal: ClassVar[Goal]
    needs_label: ClassVar[bool] = False
    form: ClassVar[Form | None] = None
    """How its first field is written; None where it takes no value."""
    tail: ClassVar[tuple[str, Form, str] | None] = None
    """Sign, form and example of its last field, which is written behind the sign where it isn't the default."""

    def __init_subclass__(cls, **stated: Any) -> None:
        """The variables above may be keywords of a class; its name then follows from the example."""
        super().__init_subclass__()
        if "example" in stated:
            cls.name = stated["example"].partition(":")[0]
        for name, value in stated.items():
            setattr(cls, name, value)

    @property
    def text(self) -> str:
        """The whole as it is parsed."""
        values = list(vars(self).values())
        stated = "" if self.form is None else self.form.write(values[0])
        if self.tail is not None and values[-1] != fields(self)[-1].default:  # type: ignore[arg-type]
            sign, form, _ = self.tail
            stated += sign + form.write(values[-1])
        return f"{self.name}:{stated}" if stated else self.name

    @classmethod
    def parse(cls, argument: str) -> Self:
        """What the text after the colon describes; a mistake is named with an example of how it is written."""
        values: list[Any] = []
        sign, form, example = cls.tail or ("", COUNT, "")
        first, stated, last = argument.partition(sign) if sign else (argument, "", "")
        if cls.form is not None:
            values.append(cls._read(cls.form, first, cls.example))
        elif first:
            raise InvalidValueError(f"{cls.name} takes no value, got {first!r}; write {cls.name}")
        if stated:
            values.append(cls._read(form, last, f"{cls.example}{sign}{example}"))
        return cls(*values)

    @classmethod
    def _read(cls, form: Form, text: str, example: str) -> Any:
        try:
            return form.read(text)
        except (ValueError, OverflowError):
            raise InvalidValueError(
                f"{cls.name} needs {form.words}, got {text!r}; for example {example}"
            ) from None

    def check_share(self, share: float) -> None:
        """Refuse a percentage outside (0, 100)."""
        if not 0 < share < 1:
            raise InvalidValueError(f"{self.name} needs a percentage between 0 and 100, got {100 * share:g}%")


class StopRule(WrittenRule):
    """A frozen description of when to stop."""

    sees: ClassVar[Sees] = "estimation"

    @abstractmethod
    def reason(self, state: VotingState) -> str | None:
        """Why voting ends now ("word: details"), or None to continue."""


class FutilityRule(StopRule):
    """A rule that also gives up, at level ``futility``: a dataclass whose last field that is; ``@0.001`` states it."""

    tail: ClassVar[tuple[str, Form, str]] = ("@", NUMBER, str(FUTILITY))
    futility: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "futility", check_probability("futility", self.futility))


class Budget(WrittenRule):
    """A frozen description of the votes there are for an input, or for a data set."""

    @property
    def pilot_votes(self) -> int:
        """Votes of an input's pilot, which help to settle its n and certify nothing; 0: n is the plan's."""
        return 0

    @property
    def shared_votes(self) -> int | None:
        """The votes that all inputs of a data set share, pilots included; None where each input has its own."""
        return None

    @property
    def spreads(self) -> bool:
        """Whether votes are spread over a data set: then each input's n depends on the others' pilots."""
        return self.shared_votes is not None

    def most_votes(self, n: int) -> int:
        """The most estimation votes that one input can get, under a plan with ``n``."""
        return n

    def check_inputs(self, inputs: int, n0: int) -> None:
        """Refuse more inputs than the budget can cover."""

    def choose(self, _forecast: RadiusForecast, _pilot: Tally, _chosen: int, _n: int, _block: int, /) -> int:
        """The number of fresh votes, at most ``n``, for an input with this pilot; asked only where it has one."""
        raise InvalidValueError(f"{self.text} doesn't choose the votes of one input by its pilot alone")


class PilotedBudget(Budget):
    """One that pilots help to settle: a dataclass whose last field is ``votes``; ``,500`` states it."""

    tail: ClassVar[tuple[str, Form, str]] = (",", COUNT, "500")
    votes: int

    def __post_init__(self) -> None:
        check_count(f"the votes of {self.name}'s pilot", self.votes)

    @property
    def pilot_votes(self) -> int:
        """As stated."""
        return self.votes


STOP_RULES: Registry[type[StopRule]] = Registry("stopping rule", __package__)
BUDGETS: Registry[type[Budget]] = Registry("budget of votes", __package__)
Stop = StopRule | Budget


@BUDGETS.register("budget")
@dataclass(frozen=True)
class FixedVotes(
    Budget, example="budget", words="n votes for every input, as in the papers: the default", goal="any"
):
    """The plan's n for every input, as in the papers. The default."""


def parse_stop(text: str) -> Stop:
    """``decide:0.5`` as a rule, ``pilot:1%`` as a budget."""
    name, _, argument = text.strip().partition(":")
    known: dict[str, type[Stop]] = {**STOP_RULES.load(), **BUDGETS.load()}
    if name not in known:
        raise unknown_name("stopping rule", name, sorted(known))
    return known[name].parse(argument.strip())


def parse_stops(stops: Iterable[str | Stop] | str | Stop) -> tuple[Stop, ...]:
    """Rules and budgets in the order given; the plan's n needs no mention. One kind may be named once."""
    given = list(stops) if isinstance(stops, Iterable) and not isinstance(stops, str) else [stops]
    parsed = [parse_stop(each) if isinstance(each, str) else each for each in given]
    stated = tuple(each for each in parsed if not isinstance(each, FixedVotes))
    names = [each.name for each in stated]
    for name in names:
        if names.count(name) > 1:
            raise InvalidValueError(f"the stopping rule {name!r} is given twice; give it once")
    budgets = [each for each in stated if isinstance(each, Budget)]
    sequential = [rule for rule in stop_rules(stated) if rule.sees == "estimation"]
    if budgets and (conflicting := [*sequential, *budgets[1:]]):
        raise InvalidValueError(
            f"{budgets[0].name!r} fixes the number of votes in advance and {conflicting[0].name!r} doesn't leave it "
            "fixed: give one of them (wrong goes with either)"
        )
    return stated


def stop_rules(stated: Iterable[Stop]) -> tuple[StopRule, ...]:
    """The rules among what is stated."""
    return tuple(each for each in stated if isinstance(each, StopRule))


def budget_among(stated: Iterable[Stop]) -> Budget:
    """The budget among what is stated; the plan's n for every input where there is none."""
    return next((each for each in stated if isinstance(each, Budget)), FixedVotes())
