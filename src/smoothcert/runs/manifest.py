"""Manifest: the statement a run was started with. A run never changes it; another statement is another run."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeGuard

from smoothcert.checksums import checksum, is_sealed, sealed, unsealed
from smoothcert.databases import public_address
from smoothcert.errors import DataError, RunError
from smoothcert.files import MOST_TEXT, parse_json, read_file, write_atomically

FILE_NAME = "run.json"
_FORMAT = 1
_MOST = 2**53  # of votes, inputs and numbers of an input
_LARGEST_SIGMA = 1e50
_REMEDY = "restore it from a copy or choose another directory"

_OPTIONS = {"data.planned": "data.planned (--max)", "data.skip": "data.skip (--skip)"}
"""Fields that are named unlike the options that set them."""

Subject = Literal["one classifier", "frozen sigma", "memory"]
"""One smoothed classifier for all inputs; for each input the one frozen at its own σ, of which an input nearby may get
another; or a memory, whose answers depend on what it was asked before."""


@dataclass(frozen=True)
class Manifest:
    """What was asked (plan), of which model and data (names and hashes), and with which versions.

    ``plan`` is None in parts that are unknown for imported logs. Fields of ``identity`` must agree for a run to
    be continued; the rest is for the record. ``origin`` is where model and data were found, as the user named
    them: it helps to find them again, and a run whose model has moved is still the same run.
    """

    kind: str
    plan: dict[str, Any]
    model: dict[str, Any]
    data: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    created: str = ""
    origin: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Where a memory is may be kept; how to get in may not, whoever wrote the run.
        if isinstance(memory := self.origin.get("memory"), str):
            object.__setattr__(self, "origin", self.origin | {"memory": public_address(memory)})

    @property
    def subject(self) -> Subject:
        """Which classifier the run's certificates speak of."""
        if self.plan.get("stateful"):
            return "memory"
        return "frozen sigma" if self.plan.get("sigma_search") else "one classifier"

    @property
    def planned(self) -> Sequence[int] | None:
        """The inputs that were asked for, ascending: ``data`` has their number (of every ``skip``-th) or lists them.

        None where it says neither, as runs of earlier versions and logs that were cut off don't.
        """
        stated = self.data.get("planned")
        if isinstance(stated, list) and all(_is_count(index) for index in stated):
            return tuple(sorted(stated))
        skip, size = self.data.get("skip", 1), self.data.get("inputs")
        if not (_is_count(stated) and _is_count(skip) and skip > 0):
            return None
        asked = range(0, stated * skip, skip)
        return asked if not _is_count(size) or asked == asked[: len(range(0, size, skip))] else None

    @property
    def allowed(self) -> Sequence[int] | None:
        """Every ``skip``-th input of the data, the most that could have been asked for; None where it isn't stated."""
        skip, size = self.data.get("skip", 1), self.data.get("inputs")
        return range(0, size, skip) if _is_count(size) and _is_count(skip) and skip > 0 else None

    def identity(self) -> dict[str, Any]:
        """What fixes the results, flat: ``plan.n``, ``model.sha256``, …"""
        parts = {"kind": {"": self.kind}, "plan": self.plan, "model": self.model, "data": self.data}
        return {
            f"{part}.{key}".rstrip("."): value
            for part, fields in parts.items()
            for key, value in fields.items()
        }

    @property
    def seal(self) -> str:
        """Checksum of the identity, which every record's own checksum takes in."""
        return checksum(self.identity())

    def save(self, directory: Path) -> None:
        """Write ``run.json`` in one step: it is there whole or not at all."""
        text = json.dumps(sealed({"format": _FORMAT, **asdict(self)}), indent=2, ensure_ascii=False)
        write_atomically(directory / FILE_NAME, (text + "\n").encode())

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Read a run's manifest; RunError if there is none or it can't be understood."""
        path = directory / FILE_NAME
        fields = _read(directory)
        if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
            raise RunError(
                f"{path} is not in format {_FORMAT}: it was written by another version of smoothcert"
            )
        try:
            stated = unsealed(fields)
            del stated["format"]
            return cls.from_json(stated)
        except ValueError as error:
            raise RunError(f"{path} is damaged ({error}); {_REMEDY}") from None

    @classmethod
    def from_json(cls, stated: object) -> Manifest:
        """A manifest from plain values that may be anybody's; ValueError names the field that can't be right."""
        known = {each.name for each in fields(cls)}
        if not isinstance(stated, dict) or not {"kind", "plan", "model", "data"} <= stated.keys() <= known:
            raise ValueError(f"it must have the fields {', '.join(sorted(known))} and no others")
        for name, value in stated.items():
            if not isinstance(value, str if name in ("kind", "created") else dict):
                raise ValueError(f"{name} is {type(value).__name__}")
        for part, checks in _CHECKS.items():
            _check_fields(part, stated.get(part, {}), checks)
        plan = stated["plan"]
        if plan.get("stop") and plan.get("n") is None:
            raise ValueError("plan.stop is stated without n, the most votes it can end")
        if not all(isinstance(value, str) for value in stated.get("versions", {}).values()):
            raise ValueError("versions must be texts")
        return cls(**stated)

    def differences(self, other: Manifest) -> list[str]:
        """Each field of identity in which two manifests disagree, in words."""
        mine, theirs = self.identity(), other.identity()
        # A run of an earlier version never said how many were asked for.
        if "planned" not in self.data:
            theirs.pop("data.planned", None)
        return [
            f"{_OPTIONS.get(key, key)}: the run has {_shown(mine.get(key))}, now {_shown(theirs.get(key))}"
            for key in sorted(mine | theirs)
            if mine.get(key) != theirs.get(key)
        ]


def states_checksum(directory: Path) -> bool:
    """Whether ``run.json`` has a checksum, as it has in every run that was begun by this version."""
    try:
        return is_sealed(_read(directory))
    except RunError:
        return False


def _read(directory: Path) -> Any:
    path = directory / FILE_NAME
    try:
        return parse_json(read_file(path, MOST_TEXT, links=False))
    except FileNotFoundError:
        raise RunError(f"{directory} is not a run: it has no {FILE_NAME}") from None
    except DataError as error:
        raise RunError(str(error)) from None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); {_REMEDY}") from None


def _text(value: object) -> bool:
    return isinstance(value, str)


def _whole(least: int, most: int | None = _MOST) -> Callable[[object], bool]:
    return lambda value: type(value) is int and least <= value and (most is None or value <= most)


def _size(value: object) -> bool:
    return type(value) in (int, float) and 0 < value <= _LARGEST_SIGMA  # type: ignore[operator]


def _probability(value: object) -> bool:
    return type(value) is float and 0 < value < 1


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, value))


_Checks = Mapping[str, Callable[[object], bool]]
_CHECKS: dict[str, _Checks] = {
    "plan": {
        **dict.fromkeys(("noise", "norm", "bound", "sigma_search", "sigmas_sha256", "device"), _text),
        **dict.fromkeys(("sigma", "least_sigma", "init"), _size),
        **dict.fromkeys(("n0", "n", "dimension", "stream", "levels", "cells_per_sigma"), _whole(1)),
        "votes": lambda value: (
            _text(value) or _whole(1)(value)
        ),  # a kind in certify's plans, a number in fits'
        "alpha": _probability,
        "seed": _whole(0, None),
        "stop": _texts,
    },
    "model": {"name": _text, "sha256": _text},
    "data": {
        **dict.fromkeys(("name", "sha256", "log", "log_sha256"), _text),
        "inputs": _whole(0),
        "skip": _whole(1),
    },
    "origin": {
        **dict.fromkeys(("model", "architecture", "dataset", "split", "data_dir", "method", "memory"), _text),
        "feature_names": _texts,
    },
}
"""What code that reads a run takes for granted of what is stated; None is unknown, other fields are as they are."""


def _check_fields(part: str, stated: Mapping[str, object], checks: _Checks) -> None:
    for name, fits in checks.items():
        value = stated.get(name)
        if value is not None and not fits(value):
            raise ValueError(f"{part}.{name} can't be {_shown(value)}")
    for name, value in stated.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{part}.{name} is {value}")


def current_versions() -> dict[str, str]:
    """Versions of what can move a last bit."""
    import numpy
    import scipy
    import torch

    import smoothcert

    return {
        "smoothcert": smoothcert.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "machine": platform.machine(),
    }


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 24 else f"{text[:18]}…{text[-4:]}"
