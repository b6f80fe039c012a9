"""A run's own statement, read from ``run.json`` without trusting it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from smoothcert_verify.bounds import BOUNDS, BoundKind, is_look
from smoothcert_verify.noise import NORMS, Grid
from smoothcert_verify.reading import (
    RunError,
    UnreadableError,
    integer,
    parse_json,
    read_file,
    size,
)

MANIFEST = "run.json"
VOID = "void.json"
MOST_TIMES_N = 16
"""No input of a run that spreads a total gets more than this many times n votes."""
MOST_VOTES = 10**10
"""Sums over more would take minutes for each input."""
CHOOSER_PART = Fraction(1, 32)
"""The chooser's part of α."""
CHOOSER_BOUND = "mixture"
_MOST_GRID_LEVELS = 2**24
_MOST_SIGMA_LEVELS = 64
_MOST_INPUTS = 2**53
_LOOK_AT_ESTIMATION = ("decide", "grid", "gain", "abstain")
_RULES = (*_LOOK_AT_ESTIMATION, "wrong", "pilot", "total")


@dataclass(frozen=True)
class Chooser:
    """How a chooser votes: ``n0`` votes say which level is looked at first, at most ``n`` others bound the levels."""

    sigma: float
    n0: int
    n: int
    bound: object
    alpha: float


@dataclass(frozen=True)
class Levels:
    """σ₁ < … < σ_m with the chooser, or the level of every input where that is ``constant``."""

    sigmas: tuple[float, ...]
    chooser: Chooser | None
    constant: int | None

    @classmethod
    def parse(cls, plan: Mapping[str, Any]) -> Levels | None:
        """A plan's levels, None where it states none; UnreadableError where they make no sense."""
        sigmas, chooser = plan.get("sigma_levels"), plan.get("chooser")
        if sigmas is None and chooser is None:
            return None
        if not isinstance(sigmas, list) or not 1 <= len(sigmas) <= _MOST_SIGMA_LEVELS:
            raise UnreadableError(
                f"sigma_levels = {sigmas!r}, not a list of 1 to {_MOST_SIGMA_LEVELS} numbers"
            )
        sizes = tuple(size({"sigma_levels": sigma}, "sigma_levels") for sigma in sigmas)
        if not isinstance(chooser, dict):
            raise UnreadableError(f"sigma_levels, and chooser = {chooser!r}")
        if "constant" in chooser:
            return cls(sizes, None, integer(chooser, "constant"))
        n0, n = (integer(chooser, name) for name in ("n0", "n"))
        if not 1 <= min(n0, n) <= max(n0, n) <= MOST_VOTES:
            raise UnreadableError(f"a chooser with {n0} and {n} votes, where 1 to {MOST_VOTES} are possible")
        sigma, alpha = (size(chooser, name) for name in ("sigma", "alpha"))
        return cls(sizes, Chooser(sigma, n0, n, chooser.get("bound"), alpha), None)

    def level_alpha(self, alpha: Fraction) -> Fraction:
        """What the classes of each level have of α."""
        return alpha if self.chooser is None else alpha * (1 - CHOOSER_PART)

    def contradictions(self, plan: Mapping[str, Any]) -> Iterator[str]:
        """What can't be true together, or be true of any levels."""
        stated = ", ".join(f"{sigma:g}" for sigma in self.sigmas)
        if any(a >= b for a, b in pairwise(self.sigmas)):
            yield f"the plan's sigma levels, {stated}, don't ascend"
        if plan.get("sigma") != max(self.sigmas):
            yield f"the plan's sigma is {plan.get('sigma')}, its largest level {max(self.sigmas):g}"
        if str(plan.get("noise")).startswith("diagonal-") or plan.get("sigma_search") is not None:
            yield "the plan states sigma levels beside noise or a search that gives inputs their σ"
        if plan.get("stateful"):
            yield "the plan states sigma levels, which remember nothing, and a memory"
        if self.constant is not None and not 0 <= self.constant < len(self.sigmas):
            yield f"the chooser's constant level is {self.constant}, and there are levels {stated}"
        if self.chooser is None:
            return
        if self.chooser.bound != CHOOSER_BOUND:
            yield (
                f"the chooser's votes end when they are seen to reach far enough, for which the bound "
                f"{self.chooser.bound!r} isn't made: it is {CHOOSER_BOUND}"
            )
        share = Fraction(plan["alpha"]) * CHOOSER_PART
        if Fraction(self.chooser.alpha) != share:
            yield (
                f"the chooser's alpha is {self.chooser.alpha!r}, 1/{CHOOSER_PART.denominator} of α is {float(share)!r}"
            )


@dataclass(frozen=True)
class Plan:
    """The statistical statement; noise and bound may be ones that aren't known here."""

    noise: str
    sigma: float
    bound: str
    n0: int
    n: int
    alpha: Fraction
    seed: int
    rules: tuple[str, ...]
    stream: int
    """Version of the sampler: 1 adds floating-point noise, 2 noise on a grid."""
    search: str | None
    """The search for each input's σ, if there was one."""
    levels: Levels | None
    """Among which a chooser gives each point its σ."""
    fields: dict[str, Any]

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Plan:
        """UnreadableError says which field makes no sense."""
        noise, bound = str(fields.get("noise")), str(fields.get("bound"))
        sigma = math.nan if noise not in NORMS and "sigma" not in fields else size(fields, "sigma")
        alpha = size(fields, "alpha")
        if not alpha < 1:
            raise UnreadableError(f"alpha = {alpha}, which isn't between 0 and 1")
        n0, n, seed = (_count(fields, name, least) for name, least in (("n0", 1), ("n", 1), ("seed", 0)))
        if max(n0, n) > MOST_VOTES:
            raise UnreadableError(f"{max(n0, n)} votes, where {MOST_VOTES} are the most")
        rules = fields.get("stop", [])
        if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
            raise UnreadableError(f"stop = {rules!r}, which is not a list of rules")
        version = fields.get("stream", 1)
        if version not in (1, 2) or isinstance(version, bool):
            raise UnreadableError(f"stream = {version!r}, and known are 1 and 2: a newer smoothcert made it")
        search = fields.get("sigma_search")
        if search is not None and (not isinstance(search, str) or not search):
            raise UnreadableError(f"sigma_search = {search!r}, which names no search")
        names = tuple(rule.partition(":")[0].strip() for rule in rules)
        levels = Levels.parse(fields)
        plan = cls(noise, sigma, bound, n0, n, Fraction(alpha), seed, names, version, search, levels, fields)
        plan.grid()
        return plan

    @property
    def kind(self) -> BoundKind:
        """What the bound's name stands for; of one that isn't known, as much as the plan says."""
        if self.bound in BOUNDS:
            return BOUNDS[self.bound]
        return BoundKind("soft" if self.fields.get("votes") == "soft" else "hard", anytime=True)

    @property
    def unknown(self) -> str | None:
        """Why no theorem is known here that would turn the votes into radii."""
        for name, value, known in (("noise", self.noise, NORMS), ("bound", self.bound, BOUNDS)):
            if value not in known:
                return f"the plan's {name} is {value!r}, and known are {', '.join(known)}"
        return None

    @property
    def diagonal(self) -> bool:
        """Whether the noise has a scale for each coordinate."""
        return self.noise.startswith("diagonal-")

    @property
    def stateful(self) -> bool:
        """Whether the answers came out of a memory."""
        return bool(self.fields.get("stateful"))

    @property
    def sequential(self) -> bool:
        """Whether estimation votes ended the voting."""
        return any(rule in _LOOK_AT_ESTIMATION for rule in self.rules)

    def grid(self) -> Grid | None:
        """How version 2 draws; None for version 1, and for noise that isn't known here."""
        if self.stream == 1 or self.noise not in NORMS:
            return None
        return Grid(*(_count(self.fields, name) for name in ("levels", "cells_per_sigma", "dimension")))

    def contradictions(self) -> Iterator[str]:
        """What the plan states that can't be true together."""
        norm, votes = self.fields.get("norm"), self.fields.get("votes")
        if norm != NORMS.get(self.noise, norm):
            yield f"{self.noise} noise certifies {NORMS[self.noise]}, the plan states {norm}"
        if votes != self.kind.votes and self.bound in BOUNDS:
            yield f"the {self.bound} bound is about {self.kind.votes} votes, the plan states {votes} ones"
        if self.kind.looks and not is_look(self.n):
            yield f"n = {self.n} is none of the {self.bound} bound's looks"
        if self.sequential and not self.kind.anytime:
            yield f"voting stopped by looking at the votes, for which the {self.bound} bound doesn't hold"
        # The sampler has 64 steps to a σ at least, or 256 where inputs are rounded to its grid.
        grid = self.grid() or Grid(255, 256, 1)
        if (grid.levels, grid.cells) != (255, 256) and (grid.cells != 64 or grid.levels > _MOST_GRID_LEVELS):
            yield f"no votes are drawn on a grid of levels {grid.levels} and cells_per_sigma {grid.cells}"
        memory = self.fields.get("memory")
        if self.stateful and not (isinstance(memory, dict) and {"head", "results_sha256"} <= memory.keys()):
            yield "the plan calls its answers a memory's and doesn't state which memory that was"
        if self.levels is not None:
            yield from self.levels.contradictions(self.fields)
            if self.kind.votes == "soft" or "total" in self.rules:
                yield f"sigma levels with {self.bound} and {', '.join(self.rules)}: no such plan is made"
        unknown = [rule for rule in self.rules if rule not in _RULES]
        if unknown:
            yield f"the stopping rules {', '.join(unknown)} aren't known: numbers of votes can't be checked"


@dataclass(frozen=True)
class Statement:
    """A run's kind, plan (None where a log stated none), and its statements about model and data."""

    kind: str
    plan: Plan | None
    model: dict[str, Any]
    data: dict[str, Any]
    fields: dict[str, Any]

    @cached_property
    def positions(self) -> range | None:
        """The inputs that the data and the step allow; None where it isn't stated."""
        inputs, skip = self.data.get("inputs"), self.data.get("skip")
        if type(inputs) is not int or type(skip) is not int or not 1 <= inputs <= _MOST_INPUTS or skip < 1:
            return None
        return range(0, inputs, skip)

    @cached_property
    def asked(self) -> range | None:
        """The inputs that were asked for; None where it isn't said, or can't be right."""
        planned, asked = self.data.get("planned"), self.positions
        if asked is None or self.problem_of_planned is not None:
            return None
        if type(planned) is int:
            asked = asked[:planned]
        elif self.shard is None:
            return None
        return asked if self.shard is None else asked[self.shard[0] - 1 :: self.shard[1]]

    @cached_property
    def limits(self) -> list[str]:
        """The options by which fewer inputs were asked for than the data and the step allow."""
        planned, allowed = self.data.get("planned"), self.positions
        if self.asked is None or allowed is None:
            return []
        limits = ["--max"] if type(planned) is int and planned < len(allowed) else []
        return limits if self.shard is None else [*limits, f"--shard {'/'.join(map(str, self.shard))}"]

    @cached_property
    def shard(self) -> tuple[int, int] | None:
        """(I, N) where the run is of every N-th input from the I-th on."""
        found = re.fullmatch(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})", str(self.data.get("shard")))
        return (int(found[1]), int(found[2])) if found and int(found[1]) <= int(found[2]) else None

    @cached_property
    def problem_of_planned(self) -> str | None:
        """What is wrong with the stated number of inputs of a certification; logs may list theirs."""
        planned, allowed = self.data.get("planned"), self.positions
        if "shard" in self.data and self.shard is None:
            return f"run.json states the shard {self.data['shard']!r}, which is not I/N with I from 1 to N"
        if self.plan is None or "planned" not in self.data:
            return None
        if type(planned) is int and planned >= 1 and (allowed is None or planned <= len(allowed)):
            return None
        return f"run.json states {planned!r} inputs asked for, which is not a number that the data and --every allow"


def read_statement(directory: Path) -> Statement:
    """Read ``run.json``; RunError where it can't be understood."""
    path = directory / MANIFEST
    if not directory.is_dir():
        remedy = "; unpack it with `smoothcert run import` first" if directory.is_file() else ""
        raise RunError(f"{directory} is not a run: no such directory{remedy}")
    if (directory / VOID).is_symlink() or (directory / VOID).exists():
        raise RunError(f"{directory} is void ({VOID}): its model failed a check, and none of it counts")
    try:
        fields = parse_json(read_file(path))
    except FileNotFoundError:
        raise RunError(f"{directory} is not a run: it has no {MANIFEST}") from None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); get the run again") from None
    if not isinstance(fields, dict) or fields.get("format") != 1:
        raise RunError(f"{path} is not in format 1: it was written by another version of smoothcert")
    plan, model, data = (fields.get(name) for name in ("plan", "model", "data"))
    if not (isinstance(plan, dict) and isinstance(model, dict) and isinstance(data, dict)):
        raise RunError(f"{path} doesn't state plan, model and data; get the run again")
    kind = fields.get("kind")
    if kind not in ("certify", "import"):
        raise RunError(
            f"{directory} is of kind {kind!r}: verify a run of certify, recertify, remember or import"
        )
    try:
        return Statement(kind, Plan.parse(plan) if kind == "certify" else None, model, data, fields)
    except UnreadableError as error:
        raise RunError(f"{path}: the plan states {error}; get the run again") from None


def _count(fields: dict[str, Any], name: str, least: int = 1) -> int:
    value = integer(fields, name)
    if value < least:
        raise UnreadableError(f"{name} = {value}, which is below {least}")
    return value
