"""Copies of a model that are the same function: each is asked the same pass before any other, and must answer alike."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import torch

from smoothcert.errors import ModelError
from smoothcert.sampling.models.probes import Outputs, Probe


class EqualCopies:
    """Makes the function of one worker after another.

    A model may set something up in its first pass and keep it, where votes must not decide what that is. So the first
    pass of every copy is ``rows()``; one that answers it with other bits than the first copy did is refused.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Outputs],
        ask: Callable[[Outputs, torch.Tensor], torch.Tensor],
        rows: Callable[[], torch.Tensor],
        same: Callable[[torch.Tensor, torch.Tensor], bool],
    ) -> None:
        """``same`` tells whether answers are equal up to rounding, where a device doesn't give the same bits twice."""
        self._name, self._make, self._ask, self._rows, self._same = name, make, ask, rows, same
        self._lock = threading.Lock()
        self._first: Callable[[], Outputs | None] = lambda: None
        self._answers: torch.Tensor | None = None
        self._to_the_bit = True

    def __call__(self) -> Outputs:
        """Another copy, ready to vote."""
        made = self._make()
        if made is self._first():  # a function, which all workers share
            return made
        answers = self._ask(made, self._rows()).cpu()
        with self._lock:
            if self._answers is None:
                self._first, self._answers = weakref.ref(made), answers
        if not self._alike(self._answers, answers):
            raise ModelError(
                f"a new copy of {self._name} answers a fixed pass otherwise than the first copy did: it goes by "
                "something that copies find changed. Keep that in local variables or on the module itself"
            )
        return made

    def first(self) -> Probe:
        """The fixed pass, and what the first copy answered to it."""
        assert self._answers is not None  # there is a copy
        return Probe(self._rows(), self._answers)

    def check_order(self, other: Probe) -> None:
        """Refuse a model that goes by its first pass: a copy is asked another pass first, and then the fixed one."""
        made = self._make()
        if made is self._first():
            return
        first = self.first()
        answers = [self._ask(made, one.rows).cpu() for one in (other, first)]
        if not all(self._same(one.answers, found) for one, found in zip((other, first), answers)):
            raise ModelError(
                f"{self._name} goes by what it was asked first: a copy of it that was shown other rows before gives "
                "the same rows another answer. If something is set up in the first pass, evaluate it once before it "
                "is given; else keep it in local variables"
            )
        self._to_the_bit = _same_bits(first.answers, answers[-1])

    def _alike(self, expected: torch.Tensor, found: torch.Tensor) -> bool:
        return _same_bits(expected, found) or (not self._to_the_bit and self._same(expected, found))


def _same_bits(expected: torch.Tensor, found: torch.Tensor) -> bool:
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return False
    return torch.equal(*(one.contiguous().reshape(-1).view(torch.uint8) for one in (expected, found)))
