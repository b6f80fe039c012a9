"""Memories in either store, and a way to tamper with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from smoothcert.region_memory import (
    Head,
    RegionMemory,
)
from tests.region_memory.toys import saying, statement


class Place:
    """Where a memory is, and a way to tamper with it behind its back."""

    def __init__(self, address: str, execute: Callable[..., None], schema: str) -> None:
        self.address = address
        self._execute = execute
        self._schema = schema

    def open(self, **other: Any) -> RegionMemory:
        return RegionMemory.open(self.address, statement(**other))

    def filled(self, count: int = 5) -> Head:
        with self.open() as memory:
            for i in range(count):
                assert memory.answer(np.array([float(i), 0.0]), saying(i % 3, 0.25)).source == "certified"
            return memory.head

    def tamper(self, *commands: str) -> None:
        for command in commands:
            self._execute(command.replace("$", self._schema))
