"""Named families: noises, bounds, stop rules, data sets, plots, … A new member is a new file of its family's folder."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules
from typing import Generic, ParamSpec, TypeVar

from smoothcert.errors import InvalidValueError, UnknownOptionError
from smoothcert.extras import load_plugins

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

_LISTED = 30  # more names than that hide the message


def closest(name: str, known: Sequence[str], most: int = 3) -> list[str]:
    """The names that may be meant, the likeliest first; a name may be written in part (``cloper``)."""
    if close := difflib.get_close_matches(name, known, n=most):
        return close
    whole: dict[str, str] = {}
    for each in known:
        for part in (each[: len(name)], *each.split("-")):
            whole.setdefault(part, each)
    parts = difflib.get_close_matches(name, list(whole), n=most, cutoff=0.7)
    return list(dict.fromkeys(whole[part] for part in parts))


def unknown_name(kind: str, name: str, known: list[str]) -> InvalidValueError:
    """The error for a name that isn't there: it lists the names there are and guesses the one meant."""
    close = closest(name, known)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if len(known) > _LISTED:
        known = [*(close or known[:3]), f"… ({len(known)} in all)"]
    return InvalidValueError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}")


_ELSEWHERE = {
    **dict.fromkeys(("device", "workers", "batch", "batch_size", "backend"), "execution=Execution({name}=…)"),
    **dict.fromkeys(("route", "chunk", "block", "generator"), "numerics=Numerics({name}=…)"),
}


def suggesting(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a keyword that the function does not take is an error that names the one that may be meant."""
    accepted = signature(function).parameters
    known = [name for name, each in accepted.items() if each.kind is each.KEYWORD_ONLY] or list(accepted)[1:]

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs.keys() - accepted.keys():
            close = closest(name, known, most=1)
            hint = _ELSEWHERE[name].format(name=name) if name in _ELSEWHERE else "".join(close)
            what = function.__qualname__.removesuffix(".__init__")
            raise UnknownOptionError(
                f"{what} has no option {name!r}. {f'Did you mean {hint}?' if hint else 'Known: ' + ', '.join(known)}"
            )
        return function(*args, **kwargs)

    return called


def suggesting_fields(cls: type[T]) -> type[T]:
    """Decorator of a dataclass: the same for its fields."""
    type.__setattr__(cls, "__init__", suggesting(cls.__init__))
    return cls


def check_name(kind: str, name: object, known: Iterable[str]) -> None:
    """Refuse a name that isn't among those known."""
    names = list(known)
    if name not in names:
        raise unknown_name(kind, str(name), names)


class Registry(Generic[T]):
    """A read-mostly map from names to members of one kind.

    ``package`` is the folder whose files register the members. They are imported when a member is first asked for, so
    that no list of files has to be kept, and an unused file costs nothing. So are plugins (:mod:`smoothcert.extras`).
    """

    def __init__(self, kind: str, package: str | None = None) -> None:
        self.kind = kind
        self._package = package
        self._members: dict[str, T] = {}
        self._loading = threading.RLock()

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: file ``member`` under ``name``; a name can be taken once."""

        def add(member: T) -> T:
            if name in self._members:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._members[name] = member
            return member

        return add

    def load(self) -> dict[str, T]:
        """Import every file of the package, once; all members by name."""
        with self._loading:
            package, self._package = self._package, None
            if package is not None:
                try:
                    for module in iter_modules(import_module(package).__path__):
                        import_module(f"{package}.{module.name}")
                except BaseException:
                    self._package = package  # the next one to ask is told as well
                    raise
            load_plugins()
            return self._members

    def __getitem__(self, name: str) -> T:
        members = self.load()
        check_name(self.kind, name, self.names())
        return members[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.load()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.load())

    def names(self) -> list[str]:
        """Every registered name, sorted."""
        return sorted(self.load())

    def name_of(self, member: T) -> str | None:
        """The name that a member is registered under, None if it isn't."""
        return next((name for name, known in self.load().items() if known is member), None)
