"""What a memory is about. A store is made for one and refuses every other."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from smoothcert.checksums import checksum
from smoothcert.errors import InvalidValueError
from smoothcert.files import parse_json
from smoothcert.region_memory.errors import IncompleteMemoryError, StoreError
from smoothcert.registry import unknown_name

if TYPE_CHECKING:
    from smoothcert.smoothing import SmoothedClassifier

FORMAT = 1
NORMS = ("l1", "l2")
_SHOWN = 16  # numbers of classes
_ROUNDED = 50  # of so many rows one may have another class on another machine


@dataclass(frozen=True)
class MemoryStatement:
    """Which classifier the regions belong to, and in which space they are balls.

    Regions of another model, of inputs prepared in another way, or in another norm say nothing about this one.
    ``preprocessing`` is free text for what is done to an input before it is asked about (scaling, cropping): equal
    text, equal space. σ is not part of it: it differs from input to input, which is why there is a memory.
    """

    model_sha256: str
    input_shape: tuple[int, ...]
    noise: str
    norm: str
    preprocessing: str = "none"
    format: int = FORMAT
    answers: str = ""
    """Of a run's model: which rows of its data it was asked about, and their classes; empty where there was no run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_shape", tuple(int(size) for size in self.input_shape))
        if self.norm not in NORMS:
            raise unknown_name("norm", self.norm, list(NORMS))
        if not self.input_shape or min(self.input_shape) < 1:
            raise InvalidValueError(f"input_shape must name positive sizes, got {self.input_shape}")
        if self.format != FORMAT:
            raise InvalidValueError(f"memories have format {FORMAT} here, got {self.format}")

    @classmethod
    def of(
        cls, classifier: SmoothedClassifier, input_shape: tuple[int, ...], preprocessing: str = "none"
    ) -> MemoryStatement:
        """The statement of a smoothed classifier for inputs of this shape; its σ doesn't enter."""
        plan = classifier.plan
        if plan.sigma_levels is not None:
            raise InvalidValueError(
                "with sigma levels it is one classifier already, whose certificates never contradict each other: it "
                "needs no memory"
            )
        return cls(
            model_sha256=classifier.base.fingerprint(input_shape),
            input_shape=input_shape,
            noise=plan.noise.name,
            norm=plan.certificate.norm,
            preprocessing=preprocessing + numbering(classifier.class_order),
        )

    @property
    def dimension(self) -> int:
        """Number of coordinates of an input."""
        return math.prod(self.input_shape)

    def text(self) -> str:
        """Canonical JSON: equal statements, equal text."""
        return self._text({} if not self.answers else {"answers": self.answers})

    @property
    def identity(self) -> str:
        """What all who use a store agree on: the text without answers, which only runs know."""
        return self._text({})

    def _text(self, more: dict[str, str]) -> str:
        stated = {name: value for name, value in asdict(self).items() if name != "answers"}
        return json.dumps(stated | more, sort_keys=True, separators=(",", ":"))

    def differences(self, stored: str) -> list[str]:
        """Each field in which the text of an existing store disagrees."""
        mine = json.loads(self.text())
        theirs = parse_json(stored)
        if not isinstance(theirs, dict):
            return [f"the store's statement is {stored[:60]!r}, which isn't one"]
        if not _contradict(mine.get("answers"), theirs.get("answers")):
            mine.pop("answers", None)
            theirs.pop("answers", None)
        names = [field.name for field in fields(self)] + sorted(set(theirs) - set(mine))
        return [
            f"{name}: the store has {theirs.get(name)!r}, now {mine.get(name)!r}"
            for name in names
            if theirs.get(name) != mine.get(name)
        ]


def answers_text(rows: str, classes: Sequence[int] | None) -> str:
    """Classes of the rows that ``rows`` names, as a statement has them."""
    return "" if not classes else f"{rows}|{' '.join(map(str, classes))}"


def _contradict(mine: object, theirs: object) -> bool:
    """Whether both are answers to the same rows, and differ by more than another machine's rounding."""
    if not isinstance(mine, str) or not isinstance(theirs, str):
        return False
    (rows, _, one), (others, _, other) = mine.partition("|"), theirs.partition("|")
    classes = one.split(), other.split()
    unlike = sum(a != b for a, b in zip(*classes))
    return rows == others and (len(classes[0]) != len(classes[1]) or unlike * _ROUNDED > len(classes[0]))


def numbering(order: Sequence[int] | None) -> str:
    """What a statement adds where class c is the model's class order[c]: other numbers are other classes."""
    if order is None:
        return ""
    shown = ", ".join(map(str, order[:_SHOWN]))
    return f"; classes numbered {shown}" + (f", … ({checksum(list(order))})" if len(order) > _SHOWN else "")


def check_statement(name: str, statement: MemoryStatement, stored: str | None) -> None:
    """Refuse a store made for another statement, naming what differs."""
    if stored is None:
        raise IncompleteMemoryError(name, "its statement is missing")
    try:
        differences = statement.differences(stored)
    except ValueError as error:
        raise IncompleteMemoryError(name, f"its statement is damaged ({error})") from None
    if differences:
        raise StoreError(
            f"{name} was made for another statement:\n  "
            + "\n  ".join(differences)
            + "\nIts regions say nothing about this one: choose another store."
        )
