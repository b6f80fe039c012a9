"""The stages of PREDICT and CERTIFY with σ levels: which votes an input gets, of the chooser and at which levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import BOUNDS
from smoothcert.sampling import Draw, Execution, Job, Prepared, Procedure, one_draw
from smoothcert.sampling.passes import checked_input
from smoothcert.sigma_levels import CHOOSER_BOUND, LevelEvidence, LevelVotes, median_level
from smoothcert.smoothing.adaptive import stopping_procedure
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.array_interface import OnVotes
from smoothcert.smoothing.level_plans import (
    chooser_plan,
    home_plan,
    levels_of,
    other_plan,
    reaches_of,
)
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import predict_procedure
from smoothcert.smoothing.voting import engine_for
from smoothcert.stopping import looks
from smoothcert.tally import ABSTAIN, Phase, Tally

R = TypeVar("R")


@dataclass
class Underway:
    """An input between two stages, and what is known of it so far."""

    index: int
    x: NDArray[Any]
    point: NDArray[np.float64]
    label: int | None = None
    home: int = 0
    chosen: Tally | None = None
    chooser: Tally | None = None
    votes: list[LevelVotes] = field(default_factory=list)
    candidate: int = ABSTAIN
    radius: float = 0.0
    reaches: list[float] = field(default_factory=list)
    answers: list[Prediction] = field(default_factory=list)
    seconds: float = 0.0

    def evidence(self) -> LevelEvidence:
        """Every vote that was cast on it."""
        return LevelEvidence(self.index, self.home, self.chosen, self.chooser, tuple(self.votes))


@dataclass(frozen=True)
class Stages:
    """The models ready to vote. Inputs go through the stages together, and don't influence each other."""

    plan: CertifyPlan
    prepared: list[Prepared]
    """One for all levels, or one for each."""
    chooser: Prepared | None
    """None where it is constant."""
    execution: Execution
    on_votes: OnVotes | None = None

    @property
    def levels(self) -> range:
        """By number."""
        return range(len(levels_of(self.plan).sigmas))

    def enter(self, index: int, x: NDArray[Any], label: int | None = None) -> Underway:
        """An input as it is now, whatever its caller does with the array later, at the grid point of all stages."""
        own = np.array(checked_input(index, x, self.prepared[0].input_shape))
        return Underway(index, own, self.plan.point(own), label)

    def certify(self, together: list[Underway]) -> None:
        """Chooser, home level, chooser again, other levels: each input gets the votes that its answer needs."""
        self._choose(together)
        for level in self.levels:
            self._certify_home(level, [one for one in together if one.home == level])
        certified = [one for one in together if one.radius > 0]
        self._bound_levels(self.plan, certified, self._reaching)
        for level in self.levels:
            near = [one for one in certified if level != one.home and one.reaches[level] < one.radius]
            self._certify_other(level, near)

    def predict(self, together: list[Underway], n: int, alpha: float) -> None:
        """Chooser, then every level that may be the median."""
        plan = replace(self.plan, alpha=alpha)
        self._choose(together)
        self._bound_levels(plan, together, lambda _: one_draw(Draw(Phase.ESTIMATION, n)))
        for level in self.levels:
            own = home_plan(plan, level)

            def test(_: Underway, own: CertifyPlan = own) -> Procedure[Prediction]:
                return predict_procedure(n, own.alpha, own.sampler_error)

            possible = [one for one in together if not one.reaches[level] > 0]
            for one, answer in self._ask(level, possible, test):
                one.answers.append(answer)

    def chosen_again(self, one: Underway, evidence: LevelEvidence) -> Iterator[tuple[str, Tally, Tally]]:
        """The votes that chose an input's level and its classes: whose they are, as they were and as they are now."""
        if evidence.chosen is not None and self.chooser is not None:
            draw = Draw(Phase.SELECTION, levels_of(self.plan).chooser_n0)
            ((_, tally),) = self._ask_chooser([one], lambda _: one_draw(draw))
            yield "its chooser", evidence.chosen, tally
        draw = Draw(Phase.SELECTION, self.plan.n0)
        for votes in evidence.votes:
            if votes.level in self.levels:
                ((_, tally),) = self._ask(votes.level, [one], lambda _: one_draw(draw))
                yield f"the model of level {votes.level}", votes.selection, tally

    def _choose(self, together: list[Underway]) -> None:
        """The likeliest level of each input, by votes that prove nothing."""
        levels = levels_of(self.plan)
        if levels.constant is not None:
            for one in together:
                one.home = levels.constant
            return
        first = Draw(Phase.SELECTION, levels.chooser_n0)
        for one, tally in self._ask_chooser(together, lambda _: one_draw(first)):
            one.chosen, one.home = tally, median_level(tally)

    def _certify_home(self, level: int, together: list[Underway]) -> None:
        """CERTIFY at the likeliest level, as the plan says."""
        own = home_plan(self.plan, level)

        def procedure(one: Underway) -> Procedure[Certification]:
            return stopping_procedure(one.point, own, label=one.label)

        for one, answer in self._ask(level, together, procedure):
            one.candidate, one.radius = answer.candidate, answer.radius
            one.votes.append(_votes_of(level, answer))

    def _bound_levels(
        self, plan: CertifyPlan, together: list[Underway], procedure: Callable[[Underway], Procedure[Tally]]
    ) -> None:
        """How far away the median can't become each level; a constant chooser isn't asked."""
        asked: Iterable[tuple[Underway, Tally | None]] = (
            ((one, None) for one in together)
            if self.chooser is None
            else self._ask_chooser(together, procedure)
        )
        for one, tally in asked:
            one.chooser, one.reaches = tally, reaches_of(plan, tally, one.home)

    def _reaching(self, one: Underway) -> Procedure[Tally]:
        """Votes of the chooser until every other level is out of the home radius's reach, or there are no more."""
        own = chooser_plan(self.plan)
        votes: Tally | None = None
        for look in looks(BOUNDS[CHOOSER_BOUND], own.n, own.numerics.layout().block):
            more = yield Draw(Phase.ESTIMATION, look - (0 if votes is None else votes.n))
            votes = more if votes is None else votes + more
            reached = reaches_of(self.plan, votes, one.home)
            if all(reach >= one.radius for level, reach in enumerate(reached) if level != one.home):
                break
        assert votes is not None  # there is at least one look
        return votes

    def _certify_other(self, level: int, together: list[Underway]) -> None:
        """CERTIFY at a level that the chooser may come to, until it reaches as far as the others do."""

        def procedure(one: Underway) -> Procedure[Certification]:
            own = other_plan(self.plan, level, one.radius, one.reaches[level])
            return stopping_procedure(one.point, own, label=one.candidate)

        for one, answer in self._ask(level, together, procedure):
            there = answer.radius if answer.predicted == one.candidate else 0.0
            one.radius = min(one.radius, max(one.reaches[level], there))
            one.votes.append(_votes_of(level, answer))

    def _ask_chooser(
        self, together: list[Underway], procedure: Callable[[Underway], Procedure[Tally]]
    ) -> Iterator[tuple[Underway, Tally]]:
        assert self.chooser is not None  # a constant one isn't asked
        return self._each(chooser_plan(self.plan), self.chooser, together, procedure)

    def _ask(
        self, level: int, together: list[Underway], procedure: Callable[[Underway], Procedure[R]]
    ) -> Iterator[tuple[Underway, R]]:
        prepared = self.prepared[level if len(self.prepared) > 1 else 0]
        return self._each(home_plan(self.plan, level), prepared, together, procedure)

    def _each(
        self,
        plan: CertifyPlan,
        prepared: Prepared,
        together: list[Underway],
        procedure: Callable[[Underway], Procedure[R]],
    ) -> Iterator[tuple[Underway, R]]:
        """Every input with what its procedure found by a plan's streams."""
        if not together:
            return
        jobs = [Job(one.index, one.point, plan.noise, procedure(one)) for one in together]
        of_job = {id(job): one for job, one in zip(jobs, together)}  # equal inputs have equal numbers
        for done in engine_for(plan, prepared, self.execution).run(jobs, self.on_votes):
            one = of_job[id(done.job)]
            one.seconds += done.seconds
            yield one, done.answer


def agreed(answers: list[Prediction]) -> Prediction:
    """The answer of all levels that may be the median, or an abstention; its p-value is the largest."""
    first = max(answers, key=lambda answer: answer.p_value)
    same = len({answer.predicted for answer in answers}) == 1
    return first if same else replace(first, predicted=ABSTAIN, p_value=1.0)


def _votes_of(level: int, answer: Certification) -> LevelVotes:
    return LevelVotes(level, answer.selection, answer.estimation, answer.stopped)
