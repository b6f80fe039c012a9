"""Statements: what a run proves, in words that never say more than was proved."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.analysis import evidence
from smoothcert.analysis.intervals import all_digits, percent_down, population_lower_bound
from smoothcert.analysis.metrics import certified_count, counted_radii
from smoothcert.knobs import written
from smoothcert.perturb.base import DEFAULT_NOISE, PERTURBATIONS
from smoothcert.perturb.diagonal import DIAGONAL_NOISES
from smoothcert.perturb.grid import Grid
from smoothcert.plain_text import beside, command, norm_name, only_numbers, option
from smoothcert.rounding import decimal_down, down
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.run import Run
from smoothcert.runs.statement import OriginStatement, PlanStatement, is_count

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

    def text(self) -> str:
        """The headline as one sentence."""
        return self.lead + self.figure + self.rest


@dataclass(frozen=True)
class HeadlineRadius:
    """The radius of a headline, and the share of ρ that is spent on it.

    A radius fixed in advance gets all of ρ. One chosen after looking is the k-th multiple of a step that the plan
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
        step = _step(run)
        k = 1
        if len(run.records):
            k = max(1, math.floor(float(np.median(counted_radii(run.records))) / step))
        return cls(float(k * Decimal(repr(step))), down(RHO / (k * (k + 1))), step)

    def for_run(self, run: Run) -> HeadlineRadius:
        """This radius if the run's plan has the same step, else one among the run's own multiples."""
        return self if self.step is None or self.step == _step(run) else HeadlineRadius.of(run)


def headline(run: Run, radius: HeadlineRadius) -> Headline:
    """The run's statement at a radius; where nothing follows for other inputs, what is counted among its own."""
    if not len(run.records):
        return Headline("Nothing has been certified yet: ", "no figures", ".", ())
    certified, total = certified_count(run.records, radius.value), len(run.records)
    ball = (
        f"{norm_name(run.norm)} norm below {all_digits(radius.value)}{only_numbers(run.norm)}"
        f"{_units(run, radius.value)}"
    )
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


def _units(run: Run, radius: float) -> str:
    """The range of the inputs, and what the radius is if every number changes alike, cut off; empty if unknown."""
    span, size = run.manifest.origin.input_range, run.manifest.plan.dimension
    if span is None or run.norm not in ("l1", "l2"):
        return ""
    low, high = span
    units = f"inputs in [{low:g}, {high:g}]"
    if not isinstance(size, int) or size < 2 or not radius:
        return f" ({units})"
    each = radius / (size if run.norm == "l1" else math.sqrt(size))
    if (low, high) == (0.0, 1.0):
        shown = f"{decimal_down(255 * each, 2 if 255 * each < 1 else 1)}/255"
    else:
        shown = decimal_down(each, max(0, 2 - math.ceil(math.log10(each))))
    return f" ({units}; {all_digits(radius)} is each of {size} numbers by {shown})"


def audit(run: Run) -> dict[str, Any]:
    """What ``verify`` recomputes of a run, by which command, and what it cannot check."""
    replayed = run.manifest.kind == "certify"
    verified = [
        "every class, radius and abstention follows from its votes and the plan, by independent arithmetic"
    ]
    if run.manifest.subject == "memory":
        verified = ["votes, streams and hashes: which answers a memory gave is not recomputed from votes"]
    elif not replayed:
        verified = ["no radius is larger than the stated noise, votes and α allow: a log has no votes"]
    believed = [
        "the inputs are independent draws from what the classifier will meet",
        "seed and plan were chosen before the inputs were seen",
    ]
    if replayed:
        believed = ["the votes are the model's, unless some are cast again (--replay)", *believed]
    # Without --trust-pickle: whether to trust a file is not the run's to say.
    data = {field: run.manifest.origin.value(field) for field in ("dataset", "split", "data_dir")}
    options = {"replay": 20, "model": run.manifest.origin.model or "MODEL", **data}
    commands = [command("verify", run.path), *([command("verify", run.path, **options)] if replayed else [])]
    return {"commands": commands, "verified": verified, "believed": believed}


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
    elif evidence.learnt_from(run):
        lead, rest = of_these, f" are classified correctly and certified against changes of {ball}."
        why = (
            "What can't be said: they are of the train split, from which the model may have learnt, so nothing "
            "follows for other inputs. Certify the test split."
        )
    elif (ceiling := evidence.radius_ceiling(run)) is not None and (
        largest := float(evidence.certain_radii(run).max())
    ) > evidence.at_most(ceiling):
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
    share = population_lower_bound(evidence.certain_count(run, radius.value), total, alpha, radius.rho)
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
    if (printed := evidence.printed_radii(run)) is not None:
        notes.append(
            f"The log prints radii rounded to {printed.digits} digits: for the headline, half a unit of the last is "
            "subtracted."
        )
    if (lost := evidence.off_grid_in_words(run)) is not None:
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
        f"{norm}{only_numbers(run.norm) or ','} however that point is chosen; nothing is promised about the base "
        "classifier alone."
    )


def _complement(probability: float) -> str:
    """1 − a stated probability in percent, with all its digits: 0.001, whatever its binary value, leaves 99.9 %."""
    digits = -int(Decimal(repr(probability)).normalize().as_tuple().exponent) - 2
    return f"{percent_down(1 - Fraction(repr(probability)), max(0, digits))} %"


def _step(run: Run) -> float:
    """The field's 0.25 where σ is of that size, or the unit; else σ to one digit: known before any vote.

    Changed values are counted by one.
    """
    if run.norm == "l0":
        return 1.0
    low, high = _FIELD_SIGMAS
    sigma = None if run.norm == "l2/sigma" else run.manifest.plan.sigma
    if sigma is None or low <= sigma <= high:
        return _FIELD_STEP
    return float(f"{sigma:.1g}")


_ORIGIN_OPTIONS = (
    "dataset",
    "split",
    "data_dir",
    "architecture",
    "normalisation",
    "outputs",
    "output",
    "classes",
    "input_dtype",
    "constants",
    "thread_safe",
    "sharpen",
    "trust_pickle",
    "hold",
    "chooser",
    "level_models",
)
_PLAN_OPTIONS = ("n0", "n", "alpha", "bound", "seed", "dtype", "route", "chunk", "generator", "device")


def provenance_json(run: Run) -> dict[str, Any]:
    """Tables of names and values, as text."""
    manifest, statement = run.manifest, RunFiles(run.path).statement
    digest = hashlib.sha256(statement.read_bytes()).hexdigest() if statement.is_file() else None
    hashes = [
        ("results", run.records.digest),
        (f"statement ({statement.name})", digest),
        ("model", manifest.model.sha256),
        ("data", manifest.data.sha256),
        ("log", manifest.data.log_sha256),
    ]
    stated = [("made", manifest.created), ("kind", manifest.kind), ("model", manifest.model.name)]
    data = [(f"data {name}", value) for name, value in manifest.data.items() if "sha256" not in name]
    return {
        "plan": _rows([*stated, *data, *manifest.plan.items()]),
        "hashes": _rows([(name, value) for name, value in hashes if value]),
        "versions": _rows(list(manifest.versions.items())),
        "command": certify_command(run),
    }


def certify_command(run: Run) -> str | None:
    """The command that certifies the same again, from the folder that the page was made in.

    None where there is none: for imported logs, whose maker isn't smoothcert, and for runs made in Python, which don't
    say where model and data are. It names the run's own file of scales, where its noise has one.
    """
    manifest = run.manifest
    origin, plan = manifest.origin, manifest.plan
    if manifest.kind != "certify" or origin.model is None or origin.dataset is None:
        return None
    words = [origin.model, *_origin_words(origin), *_noise_words(plan, run.path)]
    data = manifest.data
    if plan.levels not in (None, data.levels) and plan.cells_per_sigma != Grid.of(None).cells:
        words += _option("levels", plan.levels)
    for field in _PLAN_OPTIONS:
        words += _option(field, plan.value(field))
    words += _search_words(plan) + _stop_words(plan.stops)
    words += _option("skip", data.skip or 1)
    words += _option("range", f"{data.first}:{data.inputs}" if data.first else None)
    asked = data.planned if is_count(data.planned) else len(data.asked_for or run.records)
    if data.allowed is not None and asked < len(data.allowed):
        words += _option("max", asked)
    return command("certify", *words, *_option("shard", data.shard), out=beside(run.path, "again"))


def _option(name: str, *values: object) -> list[str]:
    return [] if values == (None,) else [option(name), *map(str, values)]


def _origin_words(origin: OriginStatement) -> list[str]:
    words = []
    for field in _ORIGIN_OPTIONS:
        given = origin.value(field)
        if isinstance(given, bool):
            words.append(option(field) if given else f"--no-{field.replace('_', '-')}")
        else:
            words += _option(field, *(given if isinstance(given, list) else [given]))
    return words


def _noise_words(plan: PlanStatement, directory: Path) -> list[str]:
    name = str(plan.noise)
    if name in DIAGONAL_NOISES:
        kind = DIAGONAL_NOISES[name].kind
        prefix = "" if kind == DEFAULT_NOISE else f"{kind}:"
        return _option("noise", f"{prefix}{RunFiles(directory).sigmas}")
    if name in PERTURBATIONS:
        return _option("noise", plan.noise_in(directory).spelled())
    sigma = plan.value("sigma") if plan.sigma_levels is None else None
    return _option("sigma", sigma) + _option("noise", plan.value("noise"))


def _search_words(plan: PlanStatement) -> list[str]:
    """The search and its options; the levels, and how the chooser votes: which one it is, the origin says."""
    words = []
    if plan.sigma_search is not None:
        knobs = {knob: value for knob, value in plan.search_options.items() if value is not None}
        words += _option("sigma-search", written(str(plan.sigma_search), knobs))
    if plan.sigma_levels is not None:
        words += _option("sigma-levels", *(float(sigma) for sigma in plan.sigma_levels))
        for field in ("sigma", "n0", "n"):
            words += _option(f"chooser-{field}", (plan.chooser or {}).get(field))
    return words


def _stop_words(rules: Sequence[str]) -> list[str]:
    """Each rule; a plain total as the option made for it, which stands for a last rule."""
    words = []
    for position, rule in enumerate(rules):
        name, _, argument = rule.partition(":")
        if name == "total" and argument.isdigit() and position == len(rules) - 1:
            words += _option("total-votes", argument)
        else:
            words += _option("stop", rule)
    return words


def _rows(pairs: list[tuple[str, Any]]) -> list[list[str]]:
    return [[name, _text(value)] for name, value in pairs]


def _text(value: Any) -> str:
    if value is None or value == "":
        return "not stated"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
