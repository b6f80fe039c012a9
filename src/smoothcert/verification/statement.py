"""A run's own statement, read from ``run.json`` without trusting it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from smoothcert.errors import DataError, RunError
from smoothcert.files import MOST_TEXT, parse_json, read_file
from smoothcert.verification.checksums import is_intact
from smoothcert.verification.class_bounds import BOUNDS, BoundKind, is_look
from smoothcert.verification.levels import Levels, parse_levels
from smoothcert.verification.noise import NORMS, Grid
from smoothcert.verification.votes import UnreadableError, number

MANIFEST = "run.json"
VOID = "void.json"
MOST_TIMES_N = 16
"""No input of a run that spreads a total gets more than this many times n votes."""
_MOST_LEVELS = 2**24
_MOST_INPUTS = 2**53
MOST_VOTES = 10**10
"""Sums over more would take minutes for each input."""
_LOOK_AT_ESTIMATION = ("decide", "grid", "gain", "abstain")
_RULES = (*_LOOK_AT_ESTIMATION, "wrong", "pilot", "total")


@dataclass(frozen=True)
class Plan:
    """The statistical statement."""

    noise: str
    sigma: float
    bound: str
    n0: int
    n: int
    alpha: Fraction
    seed: int
    rules: tuple[str, ...]
    fields: dict[str, Any]
    levels: Levels | None = None
    """Among which a chooser gives each point its σ."""

    @property
    def kind(self) -> BoundKind:
        """What the bound's name stands for."""
        return BOUNDS[self.bound]

    @property
    def diagonal(self) -> bool:
        """Whether the noise has a scale for each coordinate."""
        return self.noise.startswith("diagonal-")

    @property
    def search(self) -> str | None:
        """The search for each input's σ, if there was one."""
        return self.fields.get("sigma_search")

    @property
    def stateful(self) -> bool:
        """Whether the answers came out of a memory."""
        return bool(self.fields.get("stateful"))

    @property
    def sequential(self) -> bool:
        """Whether estimation votes ended the voting."""
        return any(rule in _LOOK_AT_ESTIMATION for rule in self.rules)

    @property
    def stream(self) -> int:
        """Version of the sampler: 1 adds floating-point noise, 2 noise on a grid."""
        version: int = self.fields.get("stream", 1)
        return version

    @property
    def _known_grid(self) -> bool:
        """Whether the sampler has such a grid: 64 steps to a σ at least, or 256 where inputs are rounded to it."""
        if (grid := self.grid()) is None:
            return True
        levels, cells = grid.levels, grid.cells
        return (levels, cells) == (255, 256) or (cells == 64 and levels <= _MOST_LEVELS)

    def contradictions(self) -> list[str]:
        """What the plan states that can't be true together."""
        found = []
        if self.fields.get("norm") != NORMS[self.noise]:
            found.append(
                f"{self.noise} noise certifies {NORMS[self.noise]}, the plan states {self.fields.get('norm')}"
            )
        if self.fields.get("votes") != self.kind.votes:
            found.append(
                f"the {self.bound} bound is about {self.kind.votes} votes, the plan states "
                f"{self.fields.get('votes')} ones"
            )
        if self.kind.looks and not is_look(self.n):
            found.append(f"n = {self.n} is none of the {self.bound} bound's looks")
        if self.sequential and not self.kind.anytime:
            found.append(
                f"voting stopped by looking at the votes, for which the {self.bound} bound doesn't hold"
            )
        if not self._known_grid:
            found.append(
                f"no votes are drawn on a grid of levels {self.fields.get('levels')} and cells_per_sigma "
                f"{self.fields.get('cells_per_sigma')}"
            )
        memory = self.fields.get("memory")
        if self.stateful and not (isinstance(memory, dict) and {"head", "results_sha256"} <= memory.keys()):
            found.append("the plan calls its answers a memory's and doesn't state which memory that was")
        if self.levels is not None:
            found += self.levels.contradictions(self.fields)
            if self.kind.votes == "soft" or "total" in self.rules:
                found.append(
                    f"sigma levels with {self.bound} and {', '.join(self.rules)}: no such plan is made"
                )
        unknown = [rule for rule in self.rules if rule not in _RULES]
        if unknown:
            found.append(
                f"the stopping rules {', '.join(unknown)} aren't known: numbers of votes can't be checked"
            )
        return found

    def grid(self) -> Grid | None:
        """How version 2 draws; None for version 1."""
        if self.stream == 1:
            return None
        return Grid(
            _count(self.fields, "levels"),
            _count(self.fields, "cells_per_sigma"),
            _count(self.fields, "dimension"),
        )


@dataclass(frozen=True)
class Statement:
    """A run's kind, plan (None where a log stated none), and its statements about model and data."""

    kind: str
    plan: Plan | None
    model: dict[str, Any]
    data: dict[str, Any]
    fields: dict[str, Any]

    @property
    def positions(self) -> range | None:
        """The inputs that the data and the step allow; None where it isn't stated."""
        inputs, skip = self.data.get("inputs"), self.data.get("skip")
        if type(inputs) is not int or type(skip) is not int or not 1 <= inputs <= _MOST_INPUTS or skip < 1:
            return None
        return range(0, inputs, skip)

    @property
    def asked(self) -> range | None:
        """The inputs that were asked for; those that the data allow where a run of an earlier version doesn't say."""
        planned, allowed = self.data.get("planned"), self.positions
        asked = allowed if allowed is None or planned is None else allowed[:planned]
        if asked is None or (shard := self.shard) is None:
            return asked
        number, of = shard
        return asked[number - 1 :: of]

    @property
    def says_which(self) -> bool:
        """Whether it says how many inputs, or which part of them, were asked for."""
        stated = type(self.data.get("planned")) is int or self.shard is not None
        return stated and self.problem_of_planned is None

    @property
    def limited(self) -> bool:
        """Whether fewer were asked for than the data and the step allow, though not for being a shard (``shard``)."""
        planned, allowed = self.data.get("planned"), self.positions
        return self.says_which and type(planned) is int and allowed is not None and planned < len(allowed)

    @property
    def shard(self) -> tuple[int, int] | None:
        """(I, N) where the run is of every N-th input from the I-th on."""
        found = re.fullmatch(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})", str(self.data.get("shard")))
        return (int(found[1]), int(found[2])) if found and int(found[1]) <= int(found[2]) else None

    @property
    def problem_of_planned(self) -> str | None:
        """What is wrong with the stated number of inputs of a certification; logs may list theirs."""
        planned, allowed = self.data.get("planned"), self.positions
        if "shard" in self.data and self.shard is None:
            return f"run.json states the shard {self.data['shard']!r}, which is no I/N with I from 1 to N"
        if self.plan is None or "planned" not in self.data:
            return None
        if type(planned) is int and planned >= 1 and (allowed is None or planned <= len(allowed)):
            return None
        return (
            f"run.json states {planned!r} inputs asked for, which is no number that the data and --skip allow"
        )


def read_statement(directory: Path) -> Statement:
    """Read ``run.json``; RunError where it can't be understood."""
    path = directory / MANIFEST
    if not directory.is_dir():
        remedy = "; unpack it with import-log first" if directory.is_file() else ""
        raise RunError(f"{directory} is not a run: no such directory{remedy}")
    if (directory / VOID).is_symlink() or (directory / VOID).exists():
        raise RunError(
            f"{directory} is void ({VOID}): its model failed a check while it was certified; none of it counts"
        )
    try:
        fields = parse_json(read_file(path, MOST_TEXT, links=False))
    except FileNotFoundError:
        raise RunError(f"{directory} is not a run: it has no {MANIFEST}") from None
    except DataError as error:
        raise RunError(str(error)) from None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); get the run again") from None
    if not isinstance(fields, dict) or fields.get("format") != 1:
        raise RunError(f"{path} is not in format 1: it was written by another version of smoothcert")
    if not is_intact(fields):
        raise RunError(f"{path} is damaged (its checksum doesn't match): it was edited; get the run again")
    parts = [fields.get(name) for name in ("plan", "model", "data")]
    if not all(isinstance(part, dict) for part in parts):
        raise RunError(f"{path} doesn't state plan, model and data; get the run again")
    plan, model, data = ({} if part is None else part for part in parts)
    kind = fields.get("kind")
    if kind not in ("certify", "import"):
        raise RunError(
            f"{directory} is of kind {kind!r}: verify a run made by certify, recertify, remember or import-log"
        )
    try:
        stated = _plan(plan) if kind == "certify" else None
        if stated is not None:
            stated.grid()
    except _PlanError as error:
        raise RunError(f"{path}: {error}; get the run again") from None
    except _TheoremError as error:
        raise UnknownTheoremError(
            f"{path}: {error}: nothing of it can be recomputed here. Use the version of smoothcert that made it"
        ) from None
    return Statement(kind, stated, model, data, fields)


class UnknownTheoremError(RunError):
    """A run whose certificates rest on a theorem that this verifier doesn't have."""


class _TheoremError(Exception):
    """Noise or a bound that isn't known here."""


class _PlanError(ValueError):
    """A field of the plan that makes no sense."""


def _plan(fields: dict[str, Any]) -> Plan:
    noise, bound = fields.get("noise"), fields.get("bound")
    if not isinstance(noise, str) or noise not in NORMS:
        raise _TheoremError(f"the plan's noise is {noise!r}, and known are {', '.join(NORMS)}")
    if not isinstance(bound, str) or bound not in BOUNDS:
        raise _TheoremError(f"the plan's bound is {bound!r}, and known are {', '.join(BOUNDS)}")
    sigma, alpha = (_number(fields, name) for name in ("sigma", "alpha"))
    if not alpha < 1:
        raise _PlanError(f"the plan's alpha must lie between 0 and 1, got {alpha}")
    n0, n = (_count(fields, name) for name in ("n0", "n"))
    if max(n0, n) > MOST_VOTES:
        raise _PlanError(f"the plan's numbers of votes must be at most {MOST_VOTES}, got {max(n0, n)}")
    rules = fields.get("stop", [])
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        raise _PlanError(f"the plan's stop must be a list of rules, got {rules!r}")
    version = fields.get("stream", 1)
    if version not in (1, 2) or isinstance(version, bool):
        raise _PlanError(
            f"the plan's stream is {version!r}, and known are versions 1 and 2: a newer smoothcert made it"
        )
    search = fields.get("sigma_search")
    if search is not None and (not isinstance(search, str) or not search):
        raise _PlanError(f"the plan's sigma_search is {search!r}, which names no search")
    names = tuple(rule.partition(":")[0].strip() for rule in rules)
    seed = _count(fields, "seed", least=0)
    try:
        levels = parse_levels(fields)
    except UnreadableError as error:
        raise _PlanError(f"the plan states {error}") from None
    if levels is not None and levels.chooser is not None:
        most = max(levels.chooser.n0, levels.chooser.n)
        if most > MOST_VOTES:
            raise _PlanError(f"the chooser's numbers of votes must be at most {MOST_VOTES}, got {most}")
    return Plan(noise, sigma, bound, n0, n, Fraction(alpha), seed, names, fields, levels)


def _number(fields: dict[str, Any], name: str) -> float:
    try:
        value = number(fields, name)
    except UnreadableError as error:
        raise _PlanError(f"the plan states {error}") from None
    if not (math.isfinite(value) and value > 0):
        raise _PlanError(f"the plan's {name} must be positive and finite, got {value!r}")
    return value


def _count(fields: dict[str, Any], name: str, least: int = 1) -> int:
    value = fields.get(name)
    if type(value) is not int or value < least:
        raise _PlanError(f"the plan's {name} must be a whole number of at least {least}, got {value!r}")
    return value
