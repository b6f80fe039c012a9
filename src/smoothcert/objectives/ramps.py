"""Numbers of a training method that change from epoch to epoch."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.registry import unknown_name

if TYPE_CHECKING:
    from smoothcert.objectives.base import Objective

_FORM = re.compile(r"(?P<option>\w+)(=(?P<start>[^:@=]+))?:(?P<epochs>\d+)(@(?P<after>\d+))?")


@dataclass(frozen=True)
class Ramp:
    """``option`` stays at ``start`` for ``after`` epochs, then rises evenly to its value over ``epochs`` epochs.

    The first epoch of a rise over 10 is at a tenth of the way, as in the papers' recipes; a rise over 0 epochs
    is a jump.
    """

    option: str
    epochs: int
    start: float = 0.0
    after: int = 0

    def __post_init__(self) -> None:
        check_count("epochs of a ramp", self.epochs, least=0)
        check_count("first epochs of a ramp", self.after, least=0)
        if not math.isfinite(self.start):
            raise InvalidValueError(f"ramp of {self.option} must start at a finite number, got {self.start}")

    def value(self, final: float, epoch: int) -> float:
        """The option's value during ``epoch``, counted from 0."""
        if epoch < self.after:
            return self.start
        risen = epoch + 1 - self.after
        return final if risen >= self.epochs else self.start + (final - self.start) * risen / self.epochs

    def scaled(self, share: float) -> Ramp:
        """The same ramp of a schedule that is ``share`` times as long; what rises or waits takes an epoch at least."""
        epochs, after = (max(1, round(share * span)) if span else 0 for span in (self.epochs, self.after))
        return replace(self, epochs=epochs, after=after)

    def __str__(self) -> str:
        start = f"={self.start!r}".removesuffix(".0") if self.start else ""
        after = f"@{self.after}" if self.after else ""
        return f"{self.option}{start}:{self.epochs}{after}"

    @classmethod
    def parse(cls, text: str) -> Ramp:
        """A ramp from ``OPTION[=START]:EPOCHS[@AFTER]``: ``epsilon:10``, ``lr=0.001:5``, ``lam:0@60``."""
        match = _FORM.fullmatch(text)
        try:
            if match is None:
                raise ValueError
            start = float(match["start"] or 0)
        except ValueError:
            raise InvalidValueError(
                f"ramp {text!r} is not of the form OPTION[=START]:EPOCHS[@AFTER], such as epsilon:10 (rise from 0 over "
                "10 epochs), lr=0.001:5 or lam:0@60 (jump after 60 epochs)"
            ) from None
        return cls(match["option"], int(match["epochs"]), start, int(match["after"] or 0))


def at_epoch(objective: Objective, ramp: Ramp, epoch: int, others: Collection[str] = ()) -> Objective:
    """The method with the option of a ramp as it is during ``epoch``, counted from 0.

    ``others``: names that can be ramped beside its options, which an unknown name is told.
    """
    final = getattr(objective, ramp.option, None)
    if final is None and ramp.option in {each.name for each in fields(objective)}:
        raise InvalidValueError(f"ramp {ramp}: give {ramp.option} the value to reach")
    # The number of copies can set the size of a batch, which stays the same throughout.
    values = {each.name: getattr(objective, each.name) for each in fields(objective) if each.name != "copies"}
    known = [name for name, value in values.items() if type(value) in (int, float)]
    if ramp.option not in known:
        raise unknown_name("option to ramp", ramp.option, [*others, *known])
    assert isinstance(final, (int, float))
    value = ramp.value(final, epoch)
    return replace(objective, **{ramp.option: max(1, round(value)) if isinstance(final, int) else value})
