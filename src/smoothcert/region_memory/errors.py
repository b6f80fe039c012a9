"""What can go wrong with a memory, in an operator's terms."""

from __future__ import annotations

from smoothcert.errors import SmoothcertError

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
