"""How many votes were cast, and how many a second of late."""

from __future__ import annotations

import math
import time

_SMOOTHING = 5.0  # seconds over which the speed is averaged
_LEAST_SPAN = 0.1  # seconds: what is shorter isn't measured on its own


class Pace:
    """An exponential average of the speed, over the time in which there was something to do."""

    def __init__(self) -> None:
        self.votes = 0
        self.per_second = 0.0
        self._begun, self._since = time.monotonic(), 0

    def add(self, votes: int) -> None:
        """Count votes that were just cast."""
        self.votes += votes
        self._since += votes
        now = time.monotonic()
        passed = now - self._begun
        if passed > _LEAST_SPAN:
            weight = 1 - math.exp(-passed / _SMOOTHING) if self.per_second else 1.0
            self.per_second += weight * (self._since / passed - self.per_second)
            self._begun, self._since = now, 0

    def begin(self) -> None:
        """Begin to measure after a pause, which isn't counted."""
        self._begun, self._since = time.monotonic(), 0
