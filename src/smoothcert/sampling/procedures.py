"""Procedures: what to find out about one input, as a generator that asks for votes."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import check_count
from smoothcert.noise import Noise
from smoothcert.tally import Phase, Tally

R = TypeVar("R")


@dataclass(frozen=True)
class Draw:
    """A request for the next ``votes`` votes of a phase."""

    phase: Phase
    votes: int

    def __post_init__(self) -> None:
        check_count("votes", self.votes)


Procedure = Generator[Draw, Tally, R]


def one_draw(draw: Draw) -> Procedure[Tally]:
    """The votes themselves, in one go."""
    return (yield draw)


@dataclass(frozen=True)
class Job(Generic[R]):
    """One input and the procedure that decides about it. ``index`` names its random streams; ``drawn`` votes were
    drawn before.
    """

    index: int
    x: NDArray[np.generic]
    noise: Noise
    procedure: Procedure[R]
    drawn: Mapping[Phase, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished(Generic[R]):
    """A procedure's answer, and the worker time its votes took."""

    job: Job[R]
    answer: R
    seconds: float
