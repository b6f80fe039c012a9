"""Statements: what a run proves, in words that never say more than was proved."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import numpy as np

from smoothcert.analysis.intervals import population_lower_bound
from smoothcert.report.condensed import Condensed
from smoothcert.rounding import decimal_down

RHO = 0.01
"""Failure probability of a headline."""

_NORM_NAMES = {"l1": "ℓ1", "l2": "ℓ2"}
_FIELD_STEP = 0.25
_FIELD_SIGMAS = (0.125, 2.0)


@dataclass(frozen=True)
class Statement:
    """``lead`` + ``figure`` + ``rest`` is the headline; ``notes`` say what it rests on or why it says so little."""

    lead: str
    figure: str
    rest: str
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """In plain values."""
        return asdict(self)

    def text(self) -> str:
        """The headline as one sentence."""
        return self.lead + self.figure + self.rest


@dataclass(frozen=True)
class HeadlineRadius:
    """The radius of a headline, and the share of ρ that is spent on it.

    A radius fixed beforehand gets all of ρ. One chosen after looking is the k-th multiple of a step that the plan
    fixes, and gets ρ/((k+1)(k+2)): over all multiples that sums to ρ, so the statement holds whichever is chosen.
    """

    value: float
    rho: float
    step: float | None = None

    @classmethod
    def fixed(cls, value: float) -> HeadlineRadius:
        """A radius that the reader asked for."""
        return cls(value, RHO)

    @classmethod
    def of(cls, run: Condensed) -> HeadlineRadius:
        """The median radius rounded down to a multiple of the step; the first multiple if that is 0."""
        step = _step(run.stated_sigma)
        radii = np.where(run.correct, run.radius, 0.0)
        k = max(1, math.floor(float(np.median(radii)) / step)) if len(run) else 1
        return cls(k * step, RHO / ((k + 1) * (k + 2)), step)

    def for_run(self, run: Condensed) -> HeadlineRadius:
        """This radius if the run's plan has the same step, else one among the run's own multiples."""
        return self if self.step is None or self.step == _step(run.stated_sigma) else HeadlineRadius.of(run)


def headline(run: Condensed, radius: HeadlineRadius) -> Statement:
    """The run's statement at a radius."""
    if not len(run):
        return Statement("Nothing has been certified yet: ", "no figures", ".", ())
    certified, total = run.certified(radius.value), len(run)
    ball = f"{norm_name(run.norm)} norm below {radius.value:g}"
    counted = (
        f"{certified} of these {total} inputs ({percent_down(certified / total)}) are right and certified"
    )
    if run.alpha is None:
        return Statement(
            f"Of the {total} inputs of this log, ",
            percent_down(certified / total),
            f" are said to be classified rightly with no possible change of {ball} altering that.",
            (
                f"{counted} at radius {radius.value:g}.",
                "What can't be said: the run states no failure probability α, so no probability belongs to this "
                "figure, and nothing follows from it for other inputs. If you know α, import the log with --alpha.",
            ),
        )
    if run.manifest.subject == "memory":
        return Statement(
            f"Of these {total} inputs, ",
            percent_down(certified / total),
            f" are answered rightly by this memory, which from now on answers every point within {ball} of them alike.",
            (
                f"{counted} at radius {radius.value:g}.",
                "Stateful: it holds for questions asked of the memory afterwards, while it is complete, and another "
                "order of questions could have given other answers. Nothing follows for other inputs.",
            ),
        )
    share = population_lower_bound(certified, total, run.alpha, radius.rho)
    notes = [
        f"{counted} at radius {radius.value:g}; the headline is lower because other inputs are drawn, and because "
        f"each certificate may fail with probability {run.alpha:g}.",
        f"It takes the {total} inputs to be independent draws from what the classifier will meet, and the seed to be "
        "chosen without looking.",
    ]
    if radius.step is not None:
        notes.append(
            f"The radius was chosen after looking, among multiples of {radius.step:g}; the probability pays for that "
            "choice."
        )
    if run.manifest.plan.get("recertified_from"):
        notes.append(
            "The run was recertified from another's votes: it holds if α and bound were chosen without looking at them."
        )
    whose = ""
    if run.manifest.subject == "frozen sigma":
        whose = " frozen at their own σ"
        notes.append(
            "Each input has its own σ, and its certificate is about the classifier frozen at it: an input nearby may "
            "get another σ and another answer. Only a region memory rules that out."
        )
    if run.manifest.kind == "import":
        notes.append("The figures are another program's; smoothcert didn't check how they were made.")
    return Statement(
        "Of the inputs this test set was drawn from, at least ",
        percent_down(share),
        f" are classified rightly by the smoothed classifier{whose}, and no change of {ball} can alter that: with "
        f"probability {percent_down(1 - RHO, 0)}.",
        tuple(notes),
    )


def guarantee(run: Condensed) -> str:
    """What one certificate of the run promises, in one sentence."""
    norm = norm_name(run.norm)
    if run.alpha is None:
        return (
            f"A certificate of this log is meant to say that the smoothed classifier gives the same answer to every "
            f"point closer than the radius in {norm}; with what probability, the log doesn't state."
        )
    if run.manifest.subject == "memory":
        return (
            f"Every question asked of the memory after an answer, at any point closer than the radius in {norm}, is "
            "answered with the same class, as long as the memory is complete; which class depends on the order of "
            "questions."
        )
    frozen = " frozen at its σ" if run.manifest.subject == "frozen sigma" else ""
    return (
        f"For each input, with probability at least {percent_down(1 - run.alpha, _digits(run.alpha))} over the noise "
        f"drawn, the smoothed classifier{frozen} gives the certified class to every point closer than the radius in "
        f"{norm}, whoever chooses that point; nothing is promised about the base classifier alone."
    )


def norm_name(norm: str) -> str:
    """ℓ1, ℓ2, or the norm's own name."""
    return _NORM_NAMES.get(norm, norm)


def percent_down(share: float, digits: int = 1) -> str:
    """``0.61298`` as ``61.2 %``: cut off, never rounded up."""
    # In decimals from the shortest text: 1 − 0.001 is 99.9 %, though its binary value lies below.
    return f"{decimal_down(float(Decimal(repr(share)) * 100), digits)} %"


def percent_up(share: float, digits: int = 1) -> str:
    """``0.61212`` as ``61.3 %``: never rounded down."""
    scale = Decimal(10) ** digits
    scaled = -(-(Decimal(repr(share)) * 100 * scale)).to_integral_value(ROUND_FLOOR)
    return f"{scaled / scale:.{digits}f} %"


def _digits(alpha: float) -> int:
    """Decimals that show 1 − α in percent."""
    return max(0, -int(Decimal(repr(alpha)).normalize().as_tuple().exponent) - 2)


def _step(sigma: float | None) -> float:
    """The field's 0.25 where σ is of that size, else σ to one digit: known before any vote."""
    low, high = _FIELD_SIGMAS
    if sigma is None or low <= sigma <= high:
        return _FIELD_STEP
    return float(f"{sigma:.1g}")
