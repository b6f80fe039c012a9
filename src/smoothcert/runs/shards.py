"""Shards: a run's inputs dealt out to the jobs of a batch queue, each with a directory of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from smoothcert.errors import InvalidValueError

_WRITTEN = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True)
class Shard:
    """Part ``number`` of ``of``, counted from 1: every ``of``-th of the inputs, so that parts are about as hard."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise InvalidValueError(
                f"a shard is I/N with I from 1 to N, got {self}: an array of N jobs has the shards 1/N to N/N"
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """From ``3/8``."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise InvalidValueError(f"a shard is written I/N, such as 3/8, got {text!r}")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def part(self, indices: range) -> range:
        """Its own of the inputs."""
        return indices[self.number - 1 :: self.of]
