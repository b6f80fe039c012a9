"""Manifest: the statement a run was started with. A run never changes it; another statement is another run."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from importlib import import_module
from operator import ne
from pathlib import Path
from typing import Any, Literal

from smoothcert.databases import public_address
from smoothcert.errors import DataError, RunError
from smoothcert.extras import installed
from smoothcert.files import MOST_TEXT, checksum, is_sealed, parse_json, read_file, unsealed, write_sealed
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.statement import (
    DataStatement,
    ModelStatement,
    OriginStatement,
    PlanStatement,
    Statement,
    shown,
)

_FORMAT = 1
_REMEDY = "restore it from a copy or choose another directory"

_OPTIONS = {
    "data.planned": "data.planned (--max)",
    "data.skip": "data.skip (--every)",
    "data.first": "data.first (--range)",
}
"""Fields that are named unlike the options that set them."""

Subject = Literal["one classifier", "frozen sigma", "memory"]
"""One smoothed classifier for all inputs; for each input the one frozen at its own σ, of which an input nearby may get
another; or a memory, whose answers depend on what it was asked before."""


@dataclass(frozen=True)
class Manifest:
    """What was asked (plan), of which model and data (names and hashes), and with which versions.

    Parts of the plan are unknown for imported logs. Fields of ``identity`` must agree for a run to be continued; the
    rest is for the record: a run whose model has moved (``origin``) is still the same run.
    """

    kind: str
    plan: PlanStatement
    model: ModelStatement
    data: DataStatement
    versions: dict[str, str] = field(default_factory=dict)
    created: str = ""
    origin: OriginStatement = field(default_factory=OriginStatement)

    def __post_init__(self) -> None:
        # Where a memory is may be kept; how to get in may not, even in a run that others wrote.
        if (memory := self.origin.memory) is not None:
            object.__setattr__(self, "origin", self.origin.but(memory=public_address(memory)))

    @classmethod
    def of(
        cls,
        kind: str,
        plan: Mapping[str, Any],
        model: Mapping[str, Any],
        data: Mapping[str, Any],
        versions: dict[str, str] | None = None,
        created: str = "",
        origin: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """A manifest from plain values; ValueError names the field that can't be right."""
        if plan.get("sigma") == 0 and kind != "train":
            raise ValueError("plan.sigma can't be 0")
        parts = PlanStatement(plan), ModelStatement(model), DataStatement(data)
        return cls(kind, *parts, versions or {}, created, OriginStatement(origin))

    def made_now(self, **versions: str) -> Manifest:
        """The same, made by the versions of today, and of what else ``versions`` names."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return replace(self, versions=current_versions() | versions, created=now)

    def stating(self, **parts: Statement | Mapping[str, Any]) -> Manifest:
        """The same with whole parts stated anew."""
        plain = {
            name: part.as_json() if isinstance(part, Statement) else part for name, part in parts.items()
        }
        return type(self).of(**(self.as_json() | plain))

    @property
    def subject(self) -> Subject:
        """Which classifier the run's certificates speak of."""
        if self.plan.stateful:
            return "memory"
        return "frozen sigma" if self.plan.sigma_search else "one classifier"

    def identity(self) -> dict[str, Any]:
        """What fixes the results, flat: ``plan.n``, ``model.sha256``, …"""
        parts = (self.plan, self.model, self.data)
        return {"kind": self.kind} | {
            f"{part.part}.{key}": value for part in parts for key, value in part.as_json().items()
        }

    def as_json(self) -> dict[str, Any]:
        """Every field in plain values; the inverse of :meth:`from_json`."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: part.as_json() if isinstance(part, Statement) else part for name, part in parts.items()}

    @property
    def seal(self) -> str:
        """Checksum of the identity, which every record's own checksum takes in."""
        return checksum(self.identity())

    def save(self, directory: Path) -> None:
        """Write ``run.json`` in one step: it is there whole or not at all."""
        write_sealed(RunFiles(directory).statement, {"format": _FORMAT, **self.as_json()})

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Read a run's manifest; RunError if there is none or it can't be understood."""
        path = RunFiles(directory).statement
        RunFiles(directory).refuse_void()
        fields = _read(directory)
        if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
            raise RunError(f"{path} is not in format {_FORMAT}: another version of smoothcert wrote it")
        try:
            stated = unsealed(fields)
            del stated["format"]
            return cls.from_json(stated)
        except ValueError as error:
            raise RunError(f"{path} is damaged ({error}); {_REMEDY}") from None

    @classmethod
    def from_json(cls, stated: object) -> Manifest:
        """A manifest from plain values of any origin; ValueError names the field that can't be right."""
        known = {each.name for each in fields(cls)}
        if not isinstance(stated, dict) or not {"kind", "plan", "model", "data"} <= stated.keys() <= known:
            raise ValueError(f"it must have the fields {', '.join(sorted(known))} and no others")
        for name, value in stated.items():
            if not isinstance(value, str if name in ("kind", "created") else dict):
                raise ValueError(f"{name} is {type(value).__name__}")
        if not all(isinstance(value, str) for value in stated.get("versions", {}).values()):
            raise ValueError("versions must be texts")
        return cls.of(**stated)

    def differences(self, other: Manifest) -> list[str]:
        """Each field of identity in which two manifests disagree, in words."""
        mine, theirs = self.identity(), other.identity()
        # A run of an earlier version never said how many were asked for.
        if not self.data.has(DataStatement.planned):
            theirs.pop("data.planned", None)
        if not self.model.has(ModelStatement.declared):  # nor what was declared of its model: the hash knows
            theirs.pop("model.declared", None)
        told = []
        # Earlier versions stated no answers to the data's first rows.
        first, now = (identity.pop("model.answers", None) for identity in (mine, theirs))
        if first is not None and now is not None and (unlike := unlike_answers(first, now)):
            told.append(
                f"model.answers: {unlike} noisy rows of the data's first inputs get another class now. It isn't "
                "the model that the run was begun with, though its fingerprint may be the same"
            )
        pairs = ((_OPTIONS.get(key, key), mine.get(key), theirs.get(key)) for key in sorted(mine | theirs))
        unlike_fields = ((name, was, now) for name, was, now in pairs if was != now)
        return told + [
            f"{name}: the run has {shown(was)}, now {shown(now)}" for name, was, now in unlike_fields
        ]


def unlike_answers(first: Sequence[object], now: Sequence[object]) -> int:
    """How many answers to the same rows differ; 0 where another machine's rounding explains it: for one row in 50."""
    unlike = sum(map(ne, first, now)) if len(first) == len(now) else max(len(first), len(now))
    return unlike if 50 * unlike > len(first) else 0


def states_checksum(directory: Path) -> bool:
    """Whether ``run.json`` has a checksum, as it has in every run that was begun by this version."""
    try:
        return is_sealed(_read(directory))
    except RunError:
        return False


def _read(directory: Path) -> Any:
    path = RunFiles(directory).statement
    try:
        return parse_json(read_file(path, MOST_TEXT, links=False))
    except FileNotFoundError:
        raise RunError(f"{directory} is not a run: it has no {path.name}") from None
    except DataError as error:
        raise RunError(str(error)) from None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); {_REMEDY}") from None


def route_versions(route: str | None) -> dict[str, str]:
    """Versions of what a route alone depends on."""
    if route not in ("onnxruntime", "openvino"):
        return {}
    return {route: str(import_module(route).__version__)} if installed(route) else {}


def current_versions() -> dict[str, str]:
    """Versions of what can move a last bit, whatever the route."""
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
