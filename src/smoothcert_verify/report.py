"""What a verification found, what it had to take on trust, and how both are printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from smoothcert_verify.intervals import Interval
from smoothcert_verify.statement import Levels, Plan, Statement

DOESNT_FOLLOW, NOT_RECOMPUTED = 4, 5
"""Exit codes."""
_SHOWN = 20
_IN_JSON = (
    *("run", "holds", "records", "recomputed", "replayed", "expected", "finished", "inputs_with_problems"),
    *("problems", "verified", "believed", "notes", "results_sha256"),
)


@dataclass(frozen=True)
class Problem:
    """Something that doesn't follow; ``index`` is the input's, None for the run as a whole."""

    index: int | None
    message: str


@dataclass
class Report:
    """The outcome for one run."""

    run: str
    records: int = 0
    recomputed: int = 0
    """Records whose answer was compared with the input's own votes."""
    expected: int | None = None
    verified: list[str] = field(default_factory=list)
    believed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    results_sha256: str | None = None
    replayed: int = 0
    unknown: str | None = None
    """Why no theorem is known here that would turn the votes into radii."""
    data_known: bool = False
    """Whether the data were available, and are called what the run calls them."""

    @property
    def exit_code(self) -> int:
        """0 if everything was recomputed and follows."""
        return DOESNT_FOLLOW if not self.holds else NOT_RECOMPUTED if self.rests_on_trust else 0

    @property
    def holds(self) -> bool:
        """Whether everything that could be checked follows."""
        return not self.problems

    @property
    def rests_on_trust(self) -> bool:
        """Whether there are answers that couldn't be recomputed from votes: a memory's, an imported log's, or none.

        So are those of a theorem that isn't known here.
        """
        return self.recomputed < self.records or not self.records

    @property
    def finished(self) -> bool | None:
        """Whether every input that the data allow has its record; None where a log doesn't say how many there are."""
        return None if self.expected is None else self.records >= self.expected

    @property
    def inputs(self) -> list[int]:
        """The inputs with problems."""
        return sorted({problem.index for problem in self.problems if problem.index is not None})

    def problem(self, index: int | None, message: str) -> None:
        """Something doesn't follow."""
        self.problems.append(Problem(index, message))

    def as_json(self) -> str:
        """One object on one line, with every problem."""
        fields = asdict(self) | {"holds": self.holds, "finished": self.finished}
        fields["inputs_with_problems"] = self.inputs
        return seen(json.dumps({name: fields[name] for name in _IN_JSON}, ensure_ascii=False))

    def as_text(self, quiet: bool = False) -> list[tuple[str, str]]:
        """Lines to print, each with its style; if ``quiet``, only what doesn't follow or couldn't be recomputed."""
        if quiet and self.exit_code == 0:
            return []
        of = "" if self.finished in (None, True) else f" of {self.expected}"
        lines = [
            (f"{self.run}: {self.records}{of} inputs, {self._verdict}", "" if self.holds else "bold red"),
            *_listed("What doesn't follow", self._problems_in_words()),
        ]
        if not quiet:
            lines += _listed("Verified" if self.holds else "Checked", self.verified)
            lines += _listed("Believed, because a run can't show it", self.believed)
            lines += _listed("Note", self.notes)
            lines.append((f"results SHA-256 {self.results_sha256}", ""))
        return [(seen(text), style) for text, style in lines]

    @property
    def _verdict(self) -> str:
        if not self.holds:
            inputs = f" for {len(self.inputs)} of them" if self.inputs else ""
            return f"the results don't follow{inputs}"
        if not self.recomputed:
            why = "" if self.unknown is None else f": {self.unknown}"
            return f"nothing is wrong, and nothing could be recomputed (exit code {NOT_RECOMPUTED}){why}"
        if self.recomputed < self.records:
            return f"{self.recomputed} verified, the others rest on a memory"
        return "verified"

    def _problems_in_words(self) -> list[str]:
        told = ((problem.index, problem.message) for problem in self.problems)
        words = [text if index is None else f"input {index}: {text}" for index, text in told]
        if len(words) > _SHOWN:
            more, inputs = len(words) - _SHOWN, ", ".join(map(str, self.inputs[:500]))
            words[_SHOWN:] = [f"and {more} more (--json has them all); inputs with problems: {inputs}"]
        return words


def verified(statement: Statement, report: Report, extent: Interval | None) -> Iterator[str]:
    """What was recomputed; ``extent`` is how many σ the radii of a log can reach, where that is known."""
    plan = statement.plan
    if not report.records:
        yield "run.json alone: there is no record yet, and nothing was recomputed"
        return
    if plan is None:
        yield (
            "that class, radius and abstention of each input can be together (there are no votes to recompute them "
            "from)"
        )
        if extent is not None:
            yield (
                "that no radius is larger than noise, n, α and bound allow, as they are stated: "
                f"{extent.high:.6g} σ, but for how radii are printed"
            )
        return
    number = f"as many as {' and '.join(plan.rules)} allow (n = {plan.n})" if plan.rules else f"{plan.n}"
    yield (
        f"votes: {plan.n0} to choose the class and {number} others to certify it, each from the first vote of "
        f"the input's own stream (seed {plan.seed})"
    )
    if plan.unknown is not None:
        return
    if plan.levels is not None:
        yield from _of_levels(plan, plan.levels)
    elif plan.stateful:
        yield (
            f"{report.recomputed} answers claim no more than the input's own votes support "
            f"({plan.bound} bound, α = {float(plan.alpha):g})"
        )
    else:
        yield (
            f"classes, abstentions and radii, recomputed from the votes ({plan.bound} bound, α = "
            f"{float(plan.alpha):g}, {plan.noise} noise) in whole numbers and 60-digit intervals"
        )
    if plan.diagonal:
        yield "sigmas.npy is the vector that the plan states"
    if plan.search is not None and not plan.stateful:
        yield "each input's σ is the one that its search's line states"
    if "total" in plan.rules:
        yield "each input's number of votes is the one in allocation.json, and they add up"
    if statement.model.get("held") is not None:
        yield (
            "radii are about changes of the coordinates that aren't held: of inputs whose held ones differ they say "
            "nothing"
        )
    if plan.stream == 2:
        yield "what sampling on a grid costs (sampler_error) is paid for in every bound"


def believed(statement: Statement, report: Report) -> Iterator[str]:
    """What had to be taken on trust."""
    plan, again = statement.plan, report.replayed
    if plan is None:
        yield "every radius: the log it was imported from keeps no votes, and doesn't prove how it was made"
        yield from _data_name(statement, report)
        return
    if plan.unknown is not None:
        yield (
            f"every class, abstention and radius: {plan.unknown}. Votes were checked; the theorem that turns them into "
            "radii isn't known here. Use the version or plugin of smoothcert that made the run, or read its proof"
        )
    if again:
        yield f"that the votes of the other {report.records - again} inputs are the model's, too"
    else:
        yield ("that the votes are the model's, cast on these inputs with this noise (--replay checks some)")
    yield (
        "that the seed was chosen before the inputs were, and the plan before the votes; and that no better run "
        "was preferred"
    )
    yield f"that the model and the data are the ones meant by {_hash(statement.model)} and {_hash(statement.data)}"
    yield f"{'' if again else 'labels, and '}the base classifier's answers without noise"
    yield from _data_name(statement, report)
    if statement.data.get("streams") == "values" and not again:
        yield "that the number of each input's random streams follows from its values (--replay computes it)"
    if plan.stream == 1:
        yield (
            "the arithmetic of x + noise: votes of this version were cast with floating-point noise, which the theorem "
            "takes for real numbers, and its rounding can be exploited (Voráček & Hein 2023)"
        )
    else:
        yield "that votes were drawn on the grid that the plan states, from random bits worthy of the name"
    if plan.search is not None:
        yield (
            "that each σ was found without looking at the votes that certify; a certificate is about the classifier "
            "frozen at that σ"
        )
    if plan.levels is not None and plan.levels.chooser is not None:
        yield (
            f"that the chooser is the one meant by {_hash(plan.fields['chooser'])}: one chooser for all inputs, chosen "
            "before them"
        )
    if "pilot" in plan.rules:
        yield "that numbers of votes were chosen by pilots alone, which aren't kept"
    if "total" in plan.rules:
        yield "that allocation.json was written before the first certifying vote, by the pilots alone"
    if "recertified_from" in plan.fields:
        yield "that α and bound were chosen without looking at the votes, which were there already"
    if plan.stateful:
        yield (
            f"the memory: {report.records - report.recomputed} answers rest on regions that it alone keeps, and all "
            "hold for questions asked of that memory only"
        )


def _data_name(statement: Statement, report: Report) -> Iterator[str]:
    """What a run calls its data, unless they were available and are called that."""
    name, origin = statement.data.get("name"), statement.fields.get("origin")
    if not report.data_known and isinstance(name, str):
        split = origin.get("split") if isinstance(origin, dict) else None
        yield f"that the data are {name!r}{f', {split!r} split' if split else ''}, as run.json calls them"


def _of_levels(plan: Plan, levels: Levels) -> Iterator[str]:
    if levels.chooser is None:
        yield f"level {levels.constant} for every input, as the plan states"
    else:
        yield (
            "each input's level is the median of its chooser's selection votes, and the distance within which the "
            f"median can't become another level was recomputed from others (α = {levels.chooser.alpha:g})"
        )
    yield (
        f"the class and radius at every level that was looked at ({plan.bound} bound at the input's own, an anytime "
        f"one at the others, α = {float(levels.level_alpha(plan.alpha)):g}, {plan.noise} noise), and from them and the "
        "distances the radius of the whole, in whole numbers and 60-digit intervals"
    )


def _hash(part: dict[str, object]) -> str:
    stated = part.get("sha256")
    return f"SHA-256 {stated[:12]}…" if isinstance(stated, str) else "no hash at all"


def _listed(title: str, sentences: list[str]) -> list[tuple[str, str]]:
    return [(title, "bold"), *((f"  - {sentence}", "") for sentence in sentences)] if sentences else []


def seen(text: str) -> str:
    r"""``text`` with control characters as ``\u001b``, also in JSON: names in a run are untrusted."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
