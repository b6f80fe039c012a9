"""Stores of a region memory: what it is about, the chain of its records, and the interface to a database."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.databases import split_address
from smoothcert.errors import InvalidValueError, SmoothcertError
from smoothcert.files import checksum, parse_json
from smoothcert.registry import Registry
from smoothcert.runs.manifest import unlike_answers

if TYPE_CHECKING:
    from smoothcert.smoothing.classifier import ModelClassifier

NOTHING_LOST = "no answer that was given is lost"

REMEDY = (
    "An incomplete memory is an unsound one: a question near a lost answer may get another class. Stop serving from "
    "it; restore the latest complete copy if nothing was answered since that copy, otherwise begin a new memory and "
    "withdraw every region handed out from this one."
)


class StoreError(SmoothcertError):
    """A store that can't be opened, read or written; what it had acknowledged is still there."""


class IncompleteMemoryError(StoreError):
    """Records are missing, changed, out of order, or contradict each other: nothing may be answered any more."""

    def __init__(self, where: str, finding: str) -> None:
        super().__init__(f"{where}: {finding}. {REMEDY}")


FORMAT = 1
NORMS = ("l1", "l2")
_SHOWN = 16  # numbers of classes


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
            raise InvalidValueError(
                f"a region memory holds balls and ellipsoids of numbers (norms {', '.join(NORMS)}), got {self.noise} "
                f"noise ({self.norm}): with one noise for all inputs it is one classifier, whose certificates don't "
                "contradict each other. Leave the memory out"
            )
        if not self.input_shape or min(self.input_shape) < 1:
            raise InvalidValueError(f"input_shape must name positive sizes, got {self.input_shape}")
        if self.format != FORMAT:
            raise InvalidValueError(f"memories have format {FORMAT} here, got {self.format}")

    @classmethod
    def of(
        cls, classifier: ModelClassifier, input_shape: tuple[int, ...], preprocessing: str = "none"
    ) -> MemoryStatement:
        """The statement of a smoothed classifier for inputs of this shape; its σ doesn't enter."""
        plan = classifier.plan
        if plan.sigma_levels is not None:
            raise InvalidValueError(
                "with sigma levels it is one classifier already, whose certificates never contradict each other: it "
                "needs no memory"
            )
        sha256, stated = classifier.base.fingerprint(input_shape), (plan.noise.name, plan.certificate.norm)
        return cls(sha256, input_shape, *stated, preprocessing + numbering(classifier.class_order))

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
        pairs = ((name, theirs.get(name), mine.get(name)) for name in names)
        return [f"{name}: the store has {one!r}, now {now!r}" for name, one, now in pairs if one != now]


def answers_text(rows: str, classes: Sequence[int] | None) -> str:
    """Classes of the rows that ``rows`` names, as a statement has them."""
    return "" if not classes else f"{rows}|{' '.join(map(str, classes))}"


def _contradict(mine: object, theirs: object) -> bool:
    """Whether both are answers to the same rows, and differ by more than another machine's rounding."""
    if not isinstance(mine, str) or not isinstance(theirs, str):
        return False
    (rows, _, one), (others, _, other) = mine.partition("|"), theirs.partition("|")
    return rows == others and unlike_answers(one.split(), other.split()) > 0


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


HASH_BYTES = 32


@dataclass(frozen=True)
class Head:
    """How many records there are and the hash of the last: names one exact memory.

    Note it outside the store (a log, another machine): it is what tells an old copy from the whole, which the copy
    itself can't.
    """

    count: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.count}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The inverse of ``str``."""
        count, _, digest = text.partition(":")
        try:
            head = cls(int(count), bytes.fromhex(digest))
        except ValueError:
            head = cls(-1, b"")
        if head.count < 0 or len(head.hash) != HASH_BYTES:
            raise InvalidValueError(f"a head is COUNT:SHA256 in hexadecimal, got {text!r}")
        return head


@dataclass(frozen=True)
class Row:
    """A record as a store keeps it: its number from 1 on, its content, its place in the chain."""

    id: int
    payload: bytes
    hash: bytes


def genesis(statement: MemoryStatement) -> Head:
    """The head of an empty memory: the statement itself, so that the chain belongs to it."""
    return Head(0, hashlib.sha256(b"smoothcert region memory\n" + statement.identity.encode()).digest())


def link(previous: bytes, number: int, payload: bytes) -> bytes:
    """The hash of record ``number`` that follows one with hash ``previous``."""
    digest = hashlib.sha256(previous)
    digest.update(number.to_bytes(8, "big"))
    digest.update(payload)
    return digest.digest()


def next_row(head: Head, payload: bytes) -> Row:
    """The row that continues the chain."""
    return Row(head.count + 1, payload, link(head.hash, head.count + 1, payload))


def breach(previous: bytes, number: int, row: Row) -> str | None:
    """What is wrong with ``row`` as record ``number`` after ``previous``, if anything."""
    if row.id != number:
        return f"record {number} is missing (the next one there is {row.id})"
    payload: object = row.payload
    if not isinstance(payload, bytes):  # SQLite's columns take anything
        return f"record {number} was changed: it is not bytes"
    if link(previous, number, row.payload) != row.hash:
        return f"record {number} was changed, moved, or follows a changed one: its hash doesn't match"
    return None


_BATCH = 256


class Store(ABC):
    """An append-only table of rows and its head, in tables ``records`` and ``head`` of an SQL database.

    What :meth:`head` and :meth:`rows` show outside :meth:`exclusive` is committed and durable. Every failure is a
    StoreError, after which either the whole transaction is stored or nothing of it.
    """

    statement: MemoryStatement
    """What the store was made for."""
    inside = False
    """Whether this process is inside :meth:`exclusive`."""

    @classmethod
    @abstractmethod
    def takes(cls, address: str) -> bool:
        """Whether an address is one of this kind; no two kinds take the same."""

    @classmethod  # noqa: B027 - most kinds need nothing
    def check_installed(cls) -> None:
        """Refuse, with the command that installs it, where a package that it needs is missing."""

    @classmethod
    @abstractmethod
    def at(cls, address: str, statement: MemoryStatement, known: Head | None) -> Store:
        """Open the store there, or make it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in messages."""

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """One serialised transaction: no other process is in its own; sees all that was committed before.

        Left normally, everything appended is durable. Left by an exception, nothing is stored.
        """

    @abstractmethod
    def query(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        """What the database answers, its errors in the operator's words.

        ``{records}`` and ``{head}`` stand for the tables, ``%s`` for a parameter.
        """

    @abstractmethod
    def fetch(self, ids: Sequence[int]) -> list[Row]:
        """The rows with these ids that exist, in order of id."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def head(self) -> Head:
        """The head as it is now."""
        found = self.query("SELECT count, hash FROM {head}")
        if not found:
            raise IncompleteMemoryError(self.name, "its head is missing")
        count, digest = found[0]
        if not isinstance(count, int) or not isinstance(digest, bytes):  # SQLite's columns take anything
            raise IncompleteMemoryError(self.name, "its head is not a number and hash")
        return Head(count, digest)

    def last_id(self) -> int:
        """The largest number of any row, 0 if there is none."""
        return int(self.query("SELECT coalesce(max(id), 0) FROM {records}")[0][0])

    def rows(self, after: int, upto: int) -> Iterator[Row]:
        """The rows with after < id ≤ upto, in order."""
        page = "SELECT id, payload, hash FROM {records} WHERE id > %s AND id <= %s ORDER BY id LIMIT %s"
        while after < upto and (batch := self.query(page, after, upto, _BATCH)):
            yield from (Row(*row) for row in batch)
            after = batch[-1][0]

    def append(self, row: Row) -> None:
        """Add a row and make it the head; only inside :meth:`exclusive`."""
        if not self.inside:
            raise InvalidValueError("rows are appended inside exclusive() only")
        self.query(
            "INSERT INTO {records} (id, payload, hash) VALUES (%s, %s, %s)", row.id, row.payload, row.hash
        )
        self.query("UPDATE {head} SET count = %s, hash = %s", row.id, row.hash)


STORES: Registry[type[Store]] = Registry("store of a region memory", __package__)


def open_store(address: str | Path, statement: MemoryStatement, known: Head | None = None) -> Store:
    """Open a store, or make it: ``postgresql://USER@HOST/DATABASE#SCHEMA``, or the path of an SQLite file.

    A password is best left to PGPASSWORD, ~/.pgpass or a service file; one that is in the address isn't repeated.

    ``known`` is a head noted earlier; only SQLite uses it here, for a file whose witness was lost. Pass it to
    RegionMemory as well.
    """
    return store_for(address).at(str(address), statement, known)


def store_for(address: str | Path) -> type[Store]:
    """The kind of store that an address is of; what that needs is installed."""
    text = str(address)
    for name in STORES:
        if STORES[name].takes(text):
            STORES[name].check_installed()
            return STORES[name]
    # An address isn't taken for a path.
    raise InvalidValueError(
        f"a memory is in PostgreSQL or in an SQLite file, got an address of {split_address(text).scheme}://…; write "
        "postgresql://USER@HOST/DATABASE#SCHEMA, or the path of a file"
    )
