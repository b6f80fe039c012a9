"""Statements: what a run proves, in words that never say more than was proved."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from smoothcert.analysis.ceiling import at_most, radius_ceiling
from smoothcert.analysis.evidence import certain_count, certain_radii, learnt_from, printed_radii
from smoothcert.analysis.intervals import all_digits, percent_down, population_lower_bound
from smoothcert.analysis.metrics import certified_count, counted_radii
from smoothcert.analysis.off_grid import off_grid_in_words
from smoothcert.plain_text import norm_name
from smoothcert.rounding import down
from smoothcert.runs import Run
from smoothcert.runs.statement import PlanStatement

RHO = 0.01
"""Failure probability of a headline."""

_FIELD_STEP = 0.25
_FIELD_SIGMAS = (0.125, 2.0)


@dataclass(frozen=True)
class Headline:
    """``lead`` + ``figure`` + ``rest`` is the headline; ``notes`` say what it rests on or why it says so little."""

    lead: str
    figure: str
    rest: str
    notes: tuple[str, ...]
    proved: bool = False
    """Whether it promises something; else it only counts."""

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
    fixes, k ≥ 1, and gets ρ/(k(k+1)): over all multiples that sums to ρ, so the statement holds whichever is chosen.
    """

    value: float
    rho: float
    step: float | None = None

    @classmethod
    def fixed(cls, value: float) -> HeadlineRadius:
        """A radius that the reader asked for."""
        return cls(value, RHO)

    @classmethod
    def of(cls, run: Run) -> HeadlineRadius:
        """The median radius rounded down to a multiple of the step; the first multiple if that is 0."""
        step = _step(run.manifest.plan.sigma)
        k = 1
        if len(run.records):
            k = max(1, math.floor(float(np.median(counted_radii(run.records))) / step))
        return cls(float(k * Decimal(repr(step))), down(RHO / (k * (k + 1))), step)

    def for_run(self, run: Run) -> HeadlineRadius:
        """This radius if the run's plan has the same step, else one among the run's own multiples."""
        return (
            self
            if self.step is None or self.step == _step(run.manifest.plan.sigma)
            else HeadlineRadius.of(run)
        )


def headline(run: Run, radius: HeadlineRadius) -> Headline:
    """The run's statement at a radius; where nothing follows for other inputs, what is counted among its own."""
    if not len(run.records):
        return Headline("Nothing has been certified yet: ", "no figures", ".", ())
    certified, total = certified_count(run.records, radius.value), len(run.records)
    ball = f"{norm_name(run.norm)} norm below {all_digits(radius.value)}"
    if run.shortfall is not None:
        return Headline(
            "So far nothing is stated about other inputs: ",
            f"{certified} of {total}",
            f" inputs done are classified correctly and certified against changes of {ball}.",
            (
                f"It holds {run.shortfall}.",
                "Inputs that are decided quickly come first, so those done are no fair sample, and looking again and "
                "again finds a lucky moment: the statement waits until all are done.",
            ),
        )
    share = f"{percent_down(Fraction(certified, total))} %"
    at_radius = f"certified at radius {all_digits(radius.value)}"
    counted = f"{certified} of these {total} inputs ({share}) are right and {at_radius}"
    return _counted_alone(run, ball, share, counted) or _proved(run, radius, ball, counted)


def _counted_alone(run: Run, ball: str, share: str, counted: str) -> Headline | None:
    """What a run says that proves nothing about other inputs, and why; None for one that does."""
    total = len(run.records)
    of_these = f"Of these {total} inputs, "
    said = f" are said to be classified correctly with no possible change of {ball} altering that."
    in_memory = run.manifest.subject == "memory"
    if run.manifest.plan.alpha is None:
        lead, rest = f"Of the {total} inputs of this log, ", said
        why = (
            "What can't be said: the run states no failure probability α, so no probability belongs to this "
            "figure, and nothing follows from it for other inputs. If you know α, import the log with --alpha."
        )
    elif in_memory:
        lead = of_these
        rest = (
            f" are answered correctly by this memory, which from now on answers every point within {ball} of them "
            "alike."
        )
        why = (
            "Stateful: it holds for questions asked of the memory afterwards, while it is complete, and another "
            "order of questions could have given other answers. Nothing follows for other inputs."
        )
    elif learnt_from(run):
        lead, rest = of_these, f" are classified correctly and certified against changes of {ball}."
        why = (
            "What can't be said: they are of the train split, from which the model may have learnt, so nothing "
            "follows for other inputs. Certify the test split."
        )
    elif (ceiling := radius_ceiling(run)) is not None and (
        largest := float(certain_radii(run).max())
    ) > at_most(ceiling):
        lead, rest = f"Of the {total} inputs of this run, ", said
        why = (
            f"What can't be said: radii up to {largest:g} are more than the noise, n, α and bound it states allow "
            f"({ceiling:.6g}), so it was made with others or altered, and no probability belongs to this figure."
        )
    else:
        return None
    return Headline(lead, share, rest, (f"{counted}.", why), proved=in_memory)


def _proved(run: Run, radius: HeadlineRadius, ball: str, counted: str) -> Headline:
    """What follows for the inputs that the run's were drawn from."""
    total, alpha = len(run.records), run.manifest.plan.known(PlanStatement.alpha)
    share = population_lower_bound(certain_count(run, radius.value), total, alpha, radius.rho)
    notes = [
        f"{counted}; the headline is lower because other inputs are drawn, and because each certificate may fail with "
        f"probability {all_digits(alpha)}.",
        f"It takes the {total} inputs to be independent draws from what the classifier will meet, and the seed to be "
        "chosen without looking.",
    ]
    if radius.step is not None:
        notes.append(
            f"The radius was chosen after looking, among multiples of {all_digits(radius.step)}; the probability pays "
            "for that choice."
        )
    if run.manifest.plan.recertified_from:
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
    if (printed := printed_radii(run)) is not None:
        notes.append(
            f"The log prints radii rounded to {printed.digits} digits: for the headline, half a unit of the last is "
            "subtracted."
        )
    if (lost := off_grid_in_words(run)) is not None:
        notes.append(
            f"Certificates are about the point of the noise's grid nearest to an input: for the headline, {lost} is "
            "subtracted from each radius, so that it holds for the inputs as they are and any change of them."
        )
    return Headline(
        "Of the inputs this test set was drawn from, at least ",
        f"{percent_down(share)} %",
        f" are classified correctly by the smoothed classifier{whose}, and no change of {ball} can alter that: with "
        f"probability {_complement(RHO)}.",
        tuple(notes),
        proved=True,
    )


def guarantee(run: Run) -> str:
    """What one certificate of the run promises, in one sentence."""
    norm = norm_name(run.norm)
    if run.manifest.plan.alpha is None:
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
    if run.manifest.plan.sigma_levels is not None:
        frozen = ", one classifier whose σ follows the input by levels,"
    return (
        f"For each input, with probability at least {_complement(run.manifest.plan.alpha)} over the noise "
        f"drawn, the smoothed classifier{frozen} gives the certified class to every point closer than the radius in "
        f"{norm}, whoever chooses that point; nothing is promised about the base classifier alone."
    )


def _complement(probability: float) -> str:
    """1 − a stated probability in percent, with all its digits: 0.001, whatever its binary value, leaves 99.9 %."""
    digits = -int(Decimal(repr(probability)).normalize().as_tuple().exponent) - 2
    return f"{percent_down(1 - Fraction(repr(probability)), max(0, digits))} %"


def _step(sigma: float | None) -> float:
    """The field's 0.25 where σ is of that size, else σ to one digit: known before any vote."""
    low, high = _FIELD_SIGMAS
    if sigma is None or low <= sigma <= high:
        return _FIELD_STEP
    return float(f"{sigma:.1g}")
