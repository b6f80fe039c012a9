"""σ levels and their chooser as a plan states them, and the lines with their votes, read without trusting either."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from smoothcert.verification.reading import parsed_lines
from smoothcert.verification.votes import UnreadableError, Votes, integer, number, optional_votes, parse_votes

CHOOSER_PART = Fraction(1, 32)
"""The chooser's part of α."""
CHOOSER_BOUND = "mixture"
LEVELS = "levels.jsonl"
_MOST_LEVELS = 64


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

    def level_alpha(self, alpha: Fraction) -> Fraction:
        """What the classes of each level have of α."""
        return alpha if self.chooser is None else alpha * (1 - CHOOSER_PART)

    def contradictions(self, plan: Mapping[str, Any]) -> list[str]:
        """What can't be true together, or be true of any levels."""
        found = []
        stated = ", ".join(f"{sigma:g}" for sigma in self.sigmas)
        if any(a >= b for a, b in pairwise(self.sigmas)):
            found.append(f"the plan's sigma levels, {stated}, don't ascend")
        if plan.get("sigma") != max(self.sigmas):
            found.append(f"the plan's sigma is {plan.get('sigma')}, its largest level {max(self.sigmas):g}")
        if str(plan.get("noise")).startswith("diagonal-") or plan.get("sigma_search") is not None:
            found.append("the plan states sigma levels beside noise or a search that gives inputs their σ")
        if plan.get("stateful"):
            found.append("the plan states sigma levels, which remember nothing, and a memory")
        if self.constant is not None and not 0 <= self.constant < len(self.sigmas):
            found.append(f"the chooser's constant level is {self.constant}, and there are levels {stated}")
        if self.chooser is None:
            return found
        if self.chooser.bound != CHOOSER_BOUND:
            found.append(
                f"the chooser's votes end when they are seen to reach far enough, for which the bound "
                f"{self.chooser.bound!r} isn't made: it is {CHOOSER_BOUND}"
            )
        share = Fraction(plan["alpha"]) * CHOOSER_PART
        if Fraction(self.chooser.alpha) != share:
            found.append(
                f"the chooser's alpha is {self.chooser.alpha!r}, 1/{CHOOSER_PART.denominator} of α is {float(share)!r}"
            )
        return found


@dataclass(frozen=True)
class LevelVotes:
    """The votes at one level."""

    level: int
    selection: Votes
    estimation: Votes
    stopped: str | None


@dataclass(frozen=True)
class LevelLine:
    """What stands in ``levels.jsonl`` of one input: the home level's votes are the first of ``votes``."""

    home: int
    chosen: Votes | None
    chooser: Votes | None
    votes: tuple[LevelVotes, ...]


def parse_levels(plan: Mapping[str, Any]) -> Levels | None:
    """A plan's levels, None where it states none; UnreadableError where they make no sense."""
    sigmas, chooser = plan.get("sigma_levels"), plan.get("chooser")
    if sigmas is None and chooser is None:
        return None
    if not isinstance(sigmas, list) or not 1 <= len(sigmas) <= _MOST_LEVELS:
        raise UnreadableError(f"sigma_levels = {sigmas!r}, which is no list of 1 to {_MOST_LEVELS} numbers")
    found = tuple(_size({"sigma_levels": sigma}, "sigma_levels") for sigma in sigmas)
    if not isinstance(chooser, dict):
        raise UnreadableError(f"sigma_levels, and chooser = {chooser!r}")
    if "constant" in chooser:
        return Levels(found, None, integer(chooser, "constant"))
    n0, n = (integer(chooser, name) for name in ("n0", "n"))
    if min(n0, n) < 1:
        raise UnreadableError(f"a chooser with {n0} and {n} votes")
    sigma, alpha = (_size(chooser, name) for name in ("sigma", "alpha"))
    return Levels(found, Chooser(sigma, n0, n, chooser.get("bound"), alpha), None)


def read_levels(directory: Path) -> dict[int, LevelLine]:
    """The lines of ``levels.jsonl`` by index, the last of each."""
    return parsed_lines(directory / LEVELS, _line)


def stage_seed(seed: int, stage: str) -> int:
    """The seed of a stage's streams: of SHAKE-128 of its name and the plan's, the first eight bytes without a bit."""
    name = f"smoothcert stage {stage}|{seed}"
    first = hashlib.shake_128(name.encode()).digest(8)
    return sum(byte << 8 * place for place, byte in enumerate(first)) // 2


def median(chosen: Votes) -> int | None:
    """The smallest level that at least half of the votes don't exceed; None without votes, or where counts can't be."""
    if chosen.n < 1 or min(chosen.counts) < 0:
        return None
    return next(
        level for level in range(len(chosen.counts)) if 2 * sum(chosen.counts[: level + 1]) >= chosen.n
    )


def _line(fields: dict[str, Any]) -> LevelLine:
    votes = fields.get("votes")
    if not isinstance(votes, list) or not votes or not all(isinstance(one, dict) for one in votes):
        raise UnreadableError("no votes at any level")
    chosen, chooser = (optional_votes(fields.get(name)) for name in ("chosen", "chooser"))
    at_levels = (
        LevelVotes(
            integer(one, "level"),
            parse_votes(one.get("selection")),
            parse_votes(one.get("estimation")),
            one.get("stopped"),
        )
        for one in votes
    )
    return LevelLine(integer(fields, "home"), chosen, chooser, tuple(at_levels))


def _size(fields: dict[str, Any], name: str) -> float:
    value = number(fields, name)
    if not (math.isfinite(value) and value > 0):
        raise UnreadableError(f"{name} = {value!r}, which isn't positive and finite")
    return value
