"""What a run's figures are about: data set and split, σ, votes, and what it says of its model's training.

The training is copied when a model is certified: no path that a run names is opened.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, RunError
from smoothcert.files import MOST_TEXT, read_file, read_lines
from smoothcert.perturb.base import DEFAULT_NOISE, NOISES
from smoothcert.perturb.diagonal import DIAGONAL_NOISES
from smoothcert.plain_text import shown_name
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run
from smoothcert.runs.side_files import read_epochs
from smoothcert.runs.statement import OriginStatement, PlanStatement
from smoothcert.sigma_levels import class_alpha
from smoothcert.smoothing.stopping.base import Budget, Stop, budget_among, parse_stops

Per = Literal["input", "coordinate", "level"]
"""What has a σ of its own. By levels σ is one function of the input, and the same classifier everywhere."""


def dataset_of(run: Run) -> str | None:
    """The data set the run states; None for a log imported without one."""
    name = run.manifest.data.name
    return shown_name(name) if isinstance(name, str) and name else None


def split_of(run: Run) -> str | None:
    """The split of the data set, where the run states it; logs don't."""
    split = run.manifest.origin.split
    return shown_name(split) if split else None


def data_in_words(dataset: str | None, split: str | None) -> str | None:
    """``digits, test split``; None where neither is known."""
    return ", ".join(part for part in (dataset, None if split is None else f"{split} split") if part) or None


def search_of(run: Run) -> str | None:
    """The search that chose each input's σ, by name; None where none did."""
    search = run.manifest.plan.sigma_search
    return shown_name(search) if search else None


def sigma_per(run: Run) -> Per | None:
    """Whether each input or each coordinate has a σ of its own; None where all have the same.

    A log may have a σ for each input without saying how it was found.
    """
    if levels_of(run) is not None:
        return "level"
    if search_of(run) is not None or len(set(run.records.sigma.tolist())) > 1:
        return "input"
    return "coordinate" if run.manifest.plan.noise in DIAGONAL_NOISES else None


def levels_of(run: Run) -> tuple[float, ...] | None:
    """The σ among which a chooser gives each point its own, ascending; None where there are no such levels."""
    levels = run.manifest.plan.sigma_levels
    return None if levels is None else tuple(map(float, levels))


def chooser_of(run: Run) -> str | None:
    """What the chooser among levels is called: ``constant:1`` where it is that; None where there are no levels."""
    chooser = run.manifest.plan.chooser
    if levels_of(run) is None or chooser is None:
        return None
    if "constant" in chooser:
        return f"constant:{shown_name(str(chooser['constant']))}"
    return shown_name(str(chooser.get("name") or "unnamed"))


def alpha_of_class(plan: PlanStatement) -> float:
    """The α that the bound of an input's class has: the plan's, less a chooser's part."""
    alpha = plan.known(PlanStatement.alpha)
    if plan.sigma_levels is None or plan.chooser is None:
        return alpha
    return class_alpha(alpha, "constant" in plan.chooser)


def own_sigmas(sigmas: NDArray[np.float64] | Sequence[float]) -> str | None:
    """``0.05 to 0.31, median 0.12``, for runs and logs that have a σ for each input; None where all have the same."""
    if len(set(map(float, sigmas))) <= 1:
        return None
    return f"{np.min(sigmas):.4g} to {np.max(sigmas):.4g}, median {np.median(sigmas):.4g}"


def sigma_mark(search: str | None, per: Per | None, levels: Sequence[float] | None = None) -> str:
    """What stands behind a σ that isn't simply the noise's; else nothing.

    `` (ladder search)``, `` (per input)``, or `` (largest of 3 levels)``.
    """
    if levels is not None:
        return f" (largest of {len(levels)} levels)"
    if search is not None:
        return f" ({search} search)"
    return "" if per is None else f" (per {per})"


@dataclass(frozen=True)
class VotesUsed:
    """``total`` votes, those that chose classes and pilots included; ``share`` of what n for every input would take.

    ``reasons`` counts why voting ended, the commonest first; ``asked`` names the rule that wanted certain radii only.
    """

    total: int
    inputs: int
    mean: float
    share: float
    reasons: tuple[tuple[str, int], ...]
    asked: str | None = None

    def in_words(self) -> str:
        """One sentence."""
        why = ", ".join(f"{count} {reason}" for reason, count in self.reasons)
        return (
            f"{self.total:,} votes in all, {self.mean:,.0f} for an input on average: {100 * self.share:.1f} % of the "
            f"fixed protocol's; ended by: {why}"
            + (
                ""
                if self.asked is None
                else f". Only {self.asked} was asked: other radii, and the ACR, stay lower"
            )
        )


def stops_of(plan: PlanStatement) -> tuple[Stop, ...]:
    """The stop rules and the budget that a run's plan states."""
    return parse_stops(plan.stops)


def votes_used(run: Run) -> VotesUsed | None:
    """What the run's votes came to; None where every input had the same number, or the votes are unknown.

    Of runs with σ levels, whose records keep a part of them, :func:`~smoothcert.analysis.overview.levels_used` says it.
    """
    plan = run.manifest.plan
    stops = stops_of(plan)
    if plan.sigma_levels is not None or not stops or not run.records or not run.records.has_votes():
        return None
    if plan.n0 is None or plan.n is None:
        return None
    total = sum(record_votes(record, budget_among(stops)) for record in run.records)
    inputs = len(run.records)
    reasons = Counter((stopped or "budget").partition(":")[0] for stopped in run.records.stopped)
    share = total / (inputs * (plan.n0 + plan.n))
    return VotesUsed(total, inputs, total / inputs, share, tuple(reasons.most_common()), asked_only(plan))


def asked_only(plan: PlanStatement) -> str | None:
    """The rule that wanted certain radii only, if the plan has one."""
    return next((rule.text for rule in stops_of(plan) if rule.goal == "decision"), None)


def votes_in_words(run: Run) -> str:
    """The plan's n as a caption says it: ``n = 100000``, or ``n ≤ 100000`` where voting may end early."""
    plan = run.manifest.plan
    return f"n ≤ {most_votes(plan)}" if stops_of(plan) else f"n = {plan.n}"


def most_votes(plan: PlanStatement) -> int:
    """The most estimation votes that the plan can give one input."""
    return budget_among(stops_of(plan)).most_votes(plan.known(PlanStatement.n))


def spreads_a_total(plan: PlanStatement) -> bool:
    """Whether one total of votes was spread over the inputs: then their results depend on one another."""
    return budget_among(stops_of(plan)).spreads


def inputs_depend(manifest: Manifest) -> bool:
    """Whether one input's result depends on the others': then no interval over the choice of inputs holds."""
    return manifest.subject == "memory" or spreads_a_total(manifest.plan)


def record_votes(record: Record, budget: Budget) -> int:
    """Votes of one input; a pilot's, which no record keeps, are known from the budget."""
    tallies = sum(tally.n for tally in (record.selection, record.estimation) if tally is not None)
    wrong = record.stopped is not None and record.stopped.startswith("wrong")
    return tallies + (0 if wrong else budget.pilot_votes)


Fact: TypeAlias = str | int | float | bool

TRAINED = OriginStatement.trained.name
"""Where a run's origin keeps it."""

SECONDS = "seconds"
_SEED = "seed"
_FAR = 0.5  # of its width that a range may move before it is another: test inputs aren't the training inputs
_ABOUT = ("source", "published_acr", "start", "name", "inputs", "dataset", "architecture", "normalise")


def read_recipe_file(path: Path) -> dict[str, Any]:
    """A training run's recipe as its file has it; nothing where ``path`` is not a training run."""
    try:
        return tomllib.loads(read_file(RunFiles(path).recipe, MOST_TEXT, links=False).decode())
    except (OSError, DataError, ValueError, RecursionError):
        return {}


def training_facts(path: Path) -> dict[str, Fact]:
    """The plan of a training run field by field (``epochs``, ``objective.lam``, …) and the seconds it took."""
    recipe = read_recipe_file(path)
    if not recipe:
        return {}
    objective = recipe.pop("objective", {})
    flat = {name: value for name, value in recipe.items() if name not in _ABOUT}
    flat |= {f"objective.{name}": value for name, value in objective.items() if name != "name"}
    facts: dict[str, Fact] = {
        name: value if isinstance(value, Fact) else json.dumps(value) for name, value in flat.items()
    }
    facts["objective"] = str(objective.get("name", "gaussian"))
    if (seconds := _seconds(path)) is not None:
        facts[SECONDS] = seconds
    return facts


def trained_range(path: Path) -> tuple[float, float] | None:
    """The range of the inputs that a training run's model saw; None where nothing states it."""
    try:
        stated = Manifest.load(path).origin.input_range
    except (OSError, RunError):
        return None
    return None if stated is None else (float(stated[0]), float(stated[1]))


@dataclass(frozen=True)
class Departures:
    """What a model is asked that may differ from what it was trained with; None is unknown, and says nothing."""

    noise: str | None
    sigma: float | None
    input_range: Sequence[float] | None
    trained: Mapping[str, Fact]
    trained_range: Sequence[float] | None

    @classmethod
    def of(cls, manifest: Manifest) -> Departures:
        """What a run states."""
        plan, origin = manifest.plan, manifest.origin
        one_sigma = plan.sigma if plan.sigma_levels is None else None
        return cls(plan.noise, one_sigma, origin.input_range, stated_training(origin), origin.trained_range)

    def in_words(self) -> list[str]:
        """A sentence for each that differs. Certificates hold all the same: they are about the model as it is."""
        return [sentence for sentence in (self._noise(), self._range()) if sentence is not None]

    def _noise(self) -> str | None:
        kind, sigma = self.trained.get("noise", DEFAULT_NOISE), self.trained.get("sigma")
        # Fitted noise has a σ for each coordinate, which isn't to be compared with one σ.
        if self.noise not in NOISES or kind not in NOISES or self.sigma is None:
            return None
        if not isinstance(sigma, int | float) or (kind == self.noise and math.isclose(sigma, self.sigma)):
            return None
        names = ("", "") if kind == self.noise else (f"{self.noise} noise of ", f"{kind} noise of ")
        return (
            f"the model was trained with {names[1]}σ = {sigma:g}, and is used with {names[0]}σ = {self.sigma:g}: "
            "certificates hold, but radii and accuracy are mostly best at the noise of the training"
        )

    def _range(self) -> str | None:
        if self.input_range is None or self.trained_range is None:
            return None
        (low, high), (least, greatest) = self.input_range, self.trained_range
        moved = max(abs(low - least), abs(high - greatest))
        if moved == 0 or moved < _FAR * (greatest - least):
            return None
        return (
            f"the model was trained on inputs in [{least:g}, {greatest:g}], and these lie in [{low:g}, {high:g}]: "
            "certificates hold, but the inputs may be scaled otherwise than the model expects"
        )


_FEW_ANSWERS = 10  # of fewer inputs nothing is said


def near_chance(accuracy: float, classes: int) -> bool:
    """Whether a share of right answers is hardly more than guessing gives."""
    guessed = 1 / classes
    return accuracy < min(2 * guessed, guessed + 0.1 * (1 - guessed))


def guessing(path: Path, classes: int) -> str | None:
    """In words, that a training run ended near chance; None where it did not, or is not a training run."""
    try:
        accuracy = read_epochs(path)[-1].accuracy
    except RunError:
        return None
    if not near_chance(accuracy, classes):
        return None
    return (
        f"the base classifier is right on {100 * accuracy:.1f} % of noisy inputs, and guessing gives "
        f"{100 / classes:.3g} %: it has learned little, and its certificates say nothing of the data. Train for more "
        "epochs, at another learning rate, or with less noise"
    )


def uninformative(predicted: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> str | None:
    """In words, that certified answers are all one class, or hardly more often right than guesses; else None."""
    answered = predicted[predicted >= 0]
    if len(predicted) < _FEW_ANSWERS or not len(answered):
        return None
    remedy = "is the model trained under noise of this σ, and are inputs in the units that it was trained in?"
    if len(set(answered.tolist())) == 1 < len(set(labels.tolist())):
        return f"all {len(answered)} answers are class {answered[0]}: {remedy}"
    share = float((predicted == labels).mean())
    if near_chance(share, classes):
        return f"{100 * share:.1f} % of the answers are right, and guessing gives {100 / classes:.3g} %: {remedy}"
    return None


def _seconds(path: Path) -> float | None:
    try:
        each = [float(json.loads(line)["seconds"]) for line in read_lines(RunFiles(path).metrics)]
    except (OSError, DataError, ValueError, TypeError, KeyError, RecursionError):
        return None
    total = math.fsum(each)
    return total if each and math.isfinite(total) else None


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number with hundreds of digits
        return False


def training_seed(origin: OriginStatement) -> Fact | None:
    """The seed that a run's model was trained from, where its origin states it."""
    return stated_training(origin).get(_SEED)


def training_difference(one: OriginStatement, other: OriginStatement, but: Sequence[str] = ()) -> str | None:
    """How the models of two runs were trained otherwise, by more than their seed, in words; None if not known to be.

    ``but``: fields that may differ as well. What took how long, and on how many shards, may always.
    """
    first, second = stated_training(one), stated_training(other)
    if not first or not second:
        return None
    names = (first.keys() | second.keys()) - {_SEED, SECONDS, "shards", "threads", *but}
    differ = [
        f"{name}: {first.get(name)}, {second.get(name)}"
        for name in sorted(names)
        if first.get(name) != second.get(name)
    ]
    more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
    return "; ".join(differ[:3]) + more if differ else None


def stated_training(origin: OriginStatement) -> dict[str, Fact]:
    """What a run's origin states of its model's training, plain values only; its origin may be unknown."""
    stated = origin.trained
    if not isinstance(stated, Mapping):
        return {}
    return {
        name: value
        for name, value in stated.items()
        if isinstance(name, str) and isinstance(value, Fact) and (isinstance(value, str) or _is_finite(value))
    }
