"""Errors a user can cause, each saying what was wrong, with which value, and what to do about it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class SmoothcertError(Exception):
    """Base of every error the caller can fix; the command line prints it without a traceback."""

    finished: Sequence[Any] = ()
    """The answers that were ready when a batch failed."""


class InvalidValueError(SmoothcertError, ValueError):
    """An argument outside its range."""


class UnknownOptionError(InvalidValueError, TypeError):
    """A keyword that a function does not take."""


class DataError(SmoothcertError):
    """A data set, log or input that can't be read or makes no sense."""


class ModelError(SmoothcertError):
    """A model that can't be loaded, or whose output can't be a vote."""


class UnreachableModelError(ModelError):
    """A model that asks something over a connection, which failed: nothing is known of the model itself."""


class DependentVotesError(ModelError):
    """A model that was seen to answer a row by more than the row: its certificates, given before or not, are void."""


class RunError(SmoothcertError):
    """A run directory that can't be written, read or continued; ``fault`` says why alone, where it was given apart."""

    fault: str | None = None

    @classmethod
    def of(cls, path: Path, fault: str, remedy: str) -> RunError:
        """``PATH FAULT REMEDY`` as the message; the remedy begins with its punctuation."""
        error = cls(f"{path} {fault}{remedy}")
        error.fault = f"the run {fault}"
        return error


class OutputError(SmoothcertError):
    """A file that can't be written."""


class PlatformError(SmoothcertError):
    """An operating system that smoothcert doesn't run on."""

    def __init__(self) -> None:
        super().__init__(
            "smoothcert needs Linux or macOS: this Python has no fcntl, the POSIX file locks that keep two processes "
            "from writing one run. On Windows, use it inside WSL (wsl --install)"
        )


class MissingExtraError(SmoothcertError, ImportError):
    """A feature whose optional package isn't installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'smoothcert[{extra}]'")


def warn_deprecated(old: str, new: str, stacklevel: int = 3) -> None:
    """Say that an old form works until 2.0, and what to write instead."""
    warnings.warn(f"{old} is deprecated, goes with 2.0: use {new}", DeprecationWarning, stacklevel=stacklevel)


def _is_finite(value: object) -> bool:
    """Whether it is a number at all: text that spells one isn't."""
    return hasattr(value, "__float__") and math.isfinite(value)


# Each gives the number back as Python's float: beside one of a coarser type, NumPy and scipy compute in that type.


def check_positive(name: str, value: float) -> float:
    """Refuse anything but a finite number above zero."""
    if not (_is_finite(value) and value > 0):
        raise InvalidValueError(f"{name} must be positive and finite, got {value}")
    return float(value)


def check_not_negative(name: str, value: float) -> float:
    """Refuse anything but a finite number of at least zero."""
    if not (_is_finite(value) and value >= 0):
        raise InvalidValueError(f"{name} must be finite and not negative, got {value}")
    return float(value)


def check_probability(name: str, value: Any) -> float:
    """Refuse anything outside the open interval (0, 1)."""
    if not (_is_finite(value) and 0 < value < 1):
        shown = repr(value) if isinstance(value, str) else value
        raise InvalidValueError(f"{name} must lie strictly between 0 and 1, got {shown}")
    return float(value)


def plain_int(value: Any) -> Any:
    """NumPy's integers as Python's, which every format can hold; anything else as it is."""
    return int(value) if hasattr(value, "dtype") and hasattr(value, "__index__") else value


def check_count(name: str, value: int, least: int = 1) -> None:
    """Refuse anything but an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidValueError(f"{name} must be an integer of at least {least}, got {value!r}")
