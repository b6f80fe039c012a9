"""Named families (data sets, architectures, objectives, bounds): importing a file registers its members."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from smoothcert.errors import InvalidValueError

T = TypeVar("T")

_LISTED = 30  # more names than that hide the message


def unknown_name(kind: str, name: str, known: list[str]) -> InvalidValueError:
    """The error for a name that isn't there: it lists the names there are and guesses the one meant."""
    close = difflib.get_close_matches(name, known, n=3)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if len(known) > _LISTED:
        known = [*(close or known[:3]), f"… ({len(known)} in all)"]
    return InvalidValueError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}")


class Registry(Generic[T]):
    """A read-mostly map from names to members of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._members: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: file ``member`` under ``name``; a name can be taken once."""

        def add(member: T) -> T:
            if name in self._members:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._members[name] = member
            return member

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._members:
            raise unknown_name(self.kind, name, self.names())
        return self._members[name]

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._members)

    def names(self) -> list[str]:
        """Every registered name, sorted."""
        return sorted(self._members)
