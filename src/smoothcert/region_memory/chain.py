"""The chain: every record's hash covers the one before it, so that none can be lost, changed or moved unnoticed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from smoothcert.errors import InvalidValueError
from smoothcert.region_memory.statement import MemoryStatement

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
    if link(previous, number, row.payload) != row.hash:
        return f"record {number} was changed, moved, or follows a changed one: its hash doesn't match"
    return None
