"""LevelledClassifier: one classifier with a σ for each input, PREDICT and CERTIFY for it, and no memory."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds import BOUNDS
from smoothcert.errors import InvalidValueError, check_count, check_probability
from smoothcert.noise import DEFAULT_NOISE, NOISES, Noise
from smoothcert.sampling import BaseClassifier, Draw, Execution, Job, Prepared, Procedure, adapt, one_draw
from smoothcert.sampling.passes import checked_input
from smoothcert.sigma_levels import (
    CHOOSER_BOUND,
    ConstantChooser,
    LevelEvidence,
    LevelVotes,
    SigmaLevels,
    StatisticChooser,
    median_level,
)
from smoothcert.smoothing.adaptive import CertifyState, stopping_procedure
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.holding import HoldingClassifier
from smoothcert.smoothing.level_plans import (
    chooser_plan,
    common_point,
    decide_levels,
    home_plan,
    levels_of,
    other_plan,
    reaches_of,
)
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import predict_procedure
from smoothcert.stopping import looks
from smoothcert.tally import ABSTAIN, Phase, Tally

Labels = Callable[[int], int]
OnVotes = Callable[[int], None]

_TOGETHER = 16
"""Inputs that go from stage to stage together; it doesn't change what is found."""


@dataclass
class _Underway:
    """An input between two stages."""

    index: int
    x: NDArray[Any]
    point: NDArray[np.float64]
    label: int | None
    home: int = 0
    chosen: Tally | None = None
    chooser: Tally | None = None
    votes: list[LevelVotes] = field(default_factory=list)
    candidate: int = ABSTAIN
    radius: float = 0.0
    reaches: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def evidence(self) -> LevelEvidence:
        """Every vote that was cast on it."""
        return LevelEvidence(self.index, self.home, self.chosen, self.chooser, tuple(self.votes))


class LevelledClassifier(SmoothedClassifier):
    """G(x) = what the classifier smoothed with σ_H answers, H the median level that a chooser gives x + noise.

    One classifier, with no memory, whose σ follows the input. ``chooser`` is any model of levels 0, 1, …: a torch module
    or function with a score for each level, a function that returns levels, a :class:`ConstantChooser` or
    :class:`StatisticChooser`. ``model`` is one model for all levels, or a list with one for each. Pass a ``plan`` with
    ``sigma_levels``, or ``sigmas`` and the fields of the plan.

    CERTIFY votes with the chooser, then at the likeliest level; other levels are voted on only where the chooser might
    come to them within that level's radius, and only until they reach it.
    """

    takes_levels = True

    def __init__(
        self,
        model: Any,
        chooser: Any,
        plan: CertifyPlan | None = None,
        *,
        sigmas: Sequence[float] | None = None,
        chooser_sigma: float | None = None,
        chooser_n0: int = 100,
        chooser_n: int | None = None,
        noise: str = DEFAULT_NOISE,
        execution: Execution | None = None,
        input_shape: tuple[int, ...] | None = None,
        **plan_fields: Any,
    ) -> None:
        if (plan is None) == (sigmas is None):
            raise InvalidValueError("give either a plan with sigma levels or sigmas=, the levels")
        if plan is None:
            assert sigmas is not None
            n = plan_fields.get("n", CertifyPlan.n)
            levels = SigmaLevels(
                tuple(sigmas),
                None if isinstance(chooser, ConstantChooser) else chooser_sigma,
                chooser_n0,
                max(1, n // 4) if chooser_n is None else chooser_n,
                chooser.level if isinstance(chooser, ConstantChooser) else None,
            )
            plan = CertifyPlan(NOISES[noise](levels.sigmas[-1]), sigma_levels=levels, **plan_fields)
        elif plan_fields:
            raise InvalidValueError(f"{', '.join(plan_fields)} belong in the plan when a plan is given")
        levels = levels_of(plan)
        models = list(model) if isinstance(model, list | tuple) else [model]
        if len(models) not in (1, len(levels.sigmas)):
            raise InvalidValueError(
                f"give one model for all levels or one for each of {len(levels.sigmas)}, got {len(models)}"
            )
        self.bases: list[BaseClassifier] = [adapt(one, "hard") for one in models]
        super().__init__(self.bases[-1], plan, execution=execution, input_shape=input_shape)
        self.chooser = self._adapted_chooser(chooser, levels)
        self._stages: _Stages | None = None

    def __repr__(self) -> str:
        """The models' name and the plan."""
        return f"LevelledClassifier({self.base.name}, {self.plan!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what was made ready to vote."""
        return super().__getstate__() | {"_stages": None}

    @staticmethod
    def _adapted_chooser(chooser: Any, levels: SigmaLevels) -> BaseClassifier | None:
        """The chooser as a model of levels; None where it is constant, as the plan must say."""
        constant = chooser.level if isinstance(chooser, ConstantChooser) else None
        if constant != levels.constant:
            raise InvalidValueError(
                f"the plan states {'no constant chooser' if levels.constant is None else f'level {levels.constant} everywhere'}, "
                f"got {chooser!r}"
            )
        if constant is not None:
            return None
        if isinstance(chooser, StatisticChooser):
            return adapt(chooser, "hard", "labels", len(levels.sigmas))
        return adapt(chooser, "hard")

    def in_order(self, order: tuple[int, ...] | None) -> LevelledClassifier:
        """The same classifier with classes numbered otherwise."""
        numbered = copy.copy(self)
        if order is not None:
            numbered._order, numbered._prepared, numbered._stages = order, None, None
        return numbered

    def holding(self, columns: ArrayLike | Sequence[str]) -> HoldingClassifier:
        """Refused: levels are certified for whole inputs."""
        raise InvalidValueError(f"sigma levels are for whole inputs: {columns!r} can't be held")

    def certify_stream(self, x: ArrayLike, index: int | None = None, label: Any = None) -> Iterator[CertifyState]:
        """Refused: a radius that grows vote by vote is that of one σ."""
        raise InvalidValueError("certify_stream is for one sigma: a radius at several levels is known at the end")

    def fingerprint(self, input_shape: tuple[int, ...]) -> str:
        """A hash of all levels' models; of one model its own. The chooser's is in the plan."""
        prints = [base.fingerprint(input_shape) for base in self.bases]
        return prints[0] if len(prints) == 1 else hashlib.sha256("|".join(prints).encode()).hexdigest()

    def prepare(self, input_shape: tuple[int, ...]) -> CertifyPlan:
        """Settle what the plan left open for inputs of this shape, the chooser's part included."""
        return self._staged(tuple(input_shape)).plan

    def noises(self) -> list[Noise]:
        """Everything that is added to inputs."""
        levels = levels_of(self.plan)
        sigmas = [*levels.sigmas, *([] if levels.constant is not None else [levels.noise_sigma])]
        return [NOISES[self.plan.noise.name](sigma) for sigma in sigmas]

    def certify_each(
        self,
        inputs: Iterable[tuple[int, NDArray[Any]]],
        on_votes: OnVotes | None = None,
        labels: Labels | None = None,
    ) -> Iterator[Certification]:
        """Certify (index, input) pairs; answers come as they are ready, not in order."""
        self.settle_seed()
        self._check_rules(labels is not None)
        self.plan.warn_if_hopeless()
        remaining = iter(inputs)
        while window := list(itertools.islice(remaining, _TOGETHER)):
            stages = self._staged(window[0][1].shape)
            together = [
                _Underway(i, x, stages.point(i, x), None if labels is None else labels(i)) for i, x in window
            ]
            stages.certify(together, on_votes)
            for one in together:
                answer = decide_levels(one.x, stages.plan, one.evidence())
                yield self._named(replace(answer, seconds=one.seconds))

    def predict_each(
        self,
        inputs: Iterable[tuple[int, NDArray[Any]]],
        n: int = 1000,
        alpha: float | None = None,
        on_votes: OnVotes | None = None,
    ) -> Iterator[Prediction]:
        """PREDICT for (index, input) pairs: G's class with probability at least 1−alpha, or an abstention.

        n votes of the chooser leave the levels that may be the median; n votes at each of them must give one class.
        Only the true median level's test can be wrong about G, so that levels don't share alpha.
        """
        self.settle_seed()
        alpha = self.plan.alpha if alpha is None else alpha
        check_count("n", n)
        check_probability("alpha", alpha)
        remaining = iter(inputs)
        while window := list(itertools.islice(remaining, _TOGETHER)):
            stages = self._staged(window[0][1].shape)
            yield from map(self._named, stages.predict(window, n, alpha, on_votes))

    def _staged(self, shape: tuple[int, ...]) -> _Stages:
        """What each stage needs for inputs of this shape, made once for a plan."""
        settled_for = (self.plan, shape, self.execution)
        if self._stages is None or self._stages.settled_for != settled_for:
            prepared = [self.prepared(shape)]
            if len(self.bases) > 1:
                prepared = [self._prepare(base, shape) for base in self.bases]
            if any(one.numerics != prepared[0].numerics for one in prepared):
                raise InvalidValueError(
                    "the models of the levels don't settle on the same type, route and rows: "
                    + "; ".join(str(one.numerics) for one in prepared)
                    + ". Give them in the plan"
                )
            if len({one.classes for one in prepared}) > 1:
                raise InvalidValueError(
                    f"the models of the levels tell {', '.join(str(one.classes) for one in prepared)} classes apart"
                )
            levels = levels_of(self.plan)
            chooser = None if self.chooser is None else self._prepared_chooser(self.chooser, shape)
            if chooser is not None:
                assert self.chooser is not None
                levels = replace(
                    levels,
                    chooser_name=self.chooser.name,
                    chooser_sha256=self.chooser.fingerprint(shape),
                    chooser_numerics=chooser.numerics,
                )
            plan = replace(self.plan, numerics=prepared[0].numerics, sigma_levels=levels).for_shape(shape)
            self._stages = _Stages(plan, prepared, chooser, settled_for)
        return self._stages

    def _prepare(self, base: BaseClassifier, shape: tuple[int, ...]) -> Prepared:
        prepared = base.prepare(self.plan.numerics, shape, self.execution.main_device)
        return replace(prepared, order=self._order)

    def _prepared_chooser(self, chooser: BaseClassifier, shape: tuple[int, ...]) -> Prepared:
        prepared = chooser.prepare(chooser_plan(self.plan).numerics, shape, self.execution.main_device)
        levels = levels_of(self.plan).sigmas
        if prepared.classes != len(levels):
            raise InvalidValueError(
                f"{chooser.name} tells {prepared.classes} levels apart, and there are {len(levels)} sigma levels"
            )
        return prepared


@dataclass
class _Stages:
    """The models ready to vote, and the stages that inputs go through together."""

    plan: CertifyPlan
    prepared: list[Prepared]
    chooser: Prepared | None
    settled_for: tuple[CertifyPlan, tuple[int, ...], Execution]

    @property
    def execution(self) -> Execution:
        """Who casts the votes."""
        return self.settled_for[-1]

    def point(self, index: int, x: NDArray[Any]) -> NDArray[np.float64]:
        """The grid point that all stages are about, of an input that was checked."""
        return common_point(checked_input(index, x, self.prepared[0].input_shape), self.plan)

    def certify(self, together: list[_Underway], on_votes: OnVotes | None) -> None:
        """Chooser, home level, chooser again, other levels: each input gets the votes that its answer needs."""
        self._choose(together, on_votes)
        for level in range(len(self._sigmas)):
            at_home = [one for one in together if one.home == level]
            self._vote(level, at_home, lambda one: home_plan(self.plan, one.home), None, on_votes)
        certified = [one for one in together if one.radius > 0]
        self._bound_levels(certified, on_votes)
        for level in range(len(self._sigmas)):
            near = [one for one in certified if level != one.home and one.reaches[level] < one.radius]
            self._vote(level, near, lambda one, k=level: other_plan(self.plan, k, one.radius), level, on_votes)

    @property
    def _sigmas(self) -> tuple[float, ...]:
        return levels_of(self.plan).sigmas

    def _choose(self, together: list[_Underway], on_votes: OnVotes | None) -> None:
        """The likeliest level of each input, by votes that prove nothing."""
        levels = levels_of(self.plan)
        if levels.constant is not None:
            for one in together:
                one.home = levels.constant
            return
        for one, tally in self._ask_chooser(
            together, lambda _: one_draw(Draw(Phase.SELECTION, levels.chooser_n0)), on_votes
        ):
            one.chosen, one.home = tally, median_level(tally)

    def _bound_levels(self, certified: list[_Underway], on_votes: OnVotes | None) -> None:
        """How far away the median can't become each level, by votes that end once that is beyond the home radius."""
        if self.chooser is None:
            for one in certified:
                one.reaches = reaches_of(self.plan, None, one.home)
            return
        for one, tally in self._ask_chooser(certified, self._reaching, on_votes):
            one.chooser, one.reaches = tally, reaches_of(self.plan, tally, one.home)

    def _reaching(self, one: _Underway) -> Procedure[Tally]:
        """Votes of the chooser until every other level is out of reach, or there are no more."""
        own = chooser_plan(self.plan)
        block = own.numerics.layout().block
        votes: Tally | None = None
        for look in looks(BOUNDS[CHOOSER_BOUND], own.n, block):
            more = yield Draw(Phase.ESTIMATION, look - (0 if votes is None else votes.n))
            votes = more if votes is None else votes + more
            reached = reaches_of(self.plan, votes, one.home)
            if all(reach >= one.radius for level, reach in enumerate(reached) if level != one.home):
                break
        assert votes is not None
        return votes

    def _vote(
        self,
        level: int,
        together: list[_Underway],
        plan_of: Callable[[_Underway], CertifyPlan],
        other: int | None,
        on_votes: OnVotes | None,
    ) -> None:
        """CERTIFY at one level, where its class may be another's: then it certifies nothing there."""
        if not together:
            return
        classifier = self._classifier(level)

        def procedure(one: _Underway) -> Procedure[Certification]:
            label = one.label if other is None else one.candidate
            return stopping_procedure(one.point, plan_of(one), label=label)

        for one, answer, seconds in _each(classifier, together, procedure, on_votes):
            one.seconds += seconds
            one.votes.append(LevelVotes(level, answer.selection, answer.estimation, answer.stopped))
            if other is None:
                one.candidate, one.radius = answer.candidate, answer.radius
            else:
                there = answer.radius if answer.predicted == one.candidate else 0.0
                one.radius = min(one.radius, max(one.reaches[level], there))

    def predict(
        self, window: list[tuple[int, NDArray[Any]]], n: int, alpha: float, on_votes: OnVotes | None
    ) -> Iterator[Prediction]:
        """PREDICT in two stages."""
        plan = replace(self.plan, alpha=alpha)
        together = [_Underway(i, x, self.point(i, x), None) for i, x in window]
        home = levels_of(plan).constant
        for one in together:
            one.home = home or 0
            one.reaches = reaches_of(plan, None, one.home)
        if self.chooser is not None:
            self._choose(together, on_votes)
            for one, tally in self._ask_chooser(
                together, lambda _: one_draw(Draw(Phase.ESTIMATION, n)), on_votes
            ):
                one.reaches = reaches_of(plan, tally, one.home)
        answers: dict[int, list[Prediction]] = {id(one): [] for one in together}
        level_alpha = levels_of(plan).level_alpha(alpha)
        for level in range(len(self._sigmas)):
            asked = [one for one in together if not one.reaches[level] > 0]
            classifier = self._classifier(level)
            error = classifier.plan.sampler_error
            for one, answer, seconds in _each(
                classifier, asked, lambda _: predict_procedure(n, level_alpha, error), on_votes
            ):
                one.seconds += seconds
                answers[id(one)].append(answer)
        for one in together:
            yield replace(_agreed(answers[id(one)]), seconds=one.seconds)

    def _ask_chooser(
        self,
        together: list[_Underway],
        procedure: Callable[[_Underway], Procedure[Tally]],
        on_votes: OnVotes | None,
    ) -> Iterator[tuple[_Underway, Tally]]:
        assert self.chooser is not None
        classifier = _prepared_classifier(chooser_plan(self.plan), self.chooser, self.execution)
        for one, tally, seconds in _each(classifier, together, procedure, on_votes):
            one.seconds += seconds
            yield one, tally

    def _classifier(self, level: int) -> SmoothedClassifier:
        prepared = self.prepared[level if len(self.prepared) > 1 else 0]
        return _prepared_classifier(home_plan(self.plan, level), prepared, self.execution)


def _prepared_classifier(plan: CertifyPlan, prepared: Prepared, execution: Execution) -> SmoothedClassifier:
    classifier = SmoothedClassifier(prepared.base, plan, execution=execution)
    classifier.take_prepared(prepared)
    return classifier


def _each(
    classifier: SmoothedClassifier,
    together: list[_Underway],
    procedure: Callable[[_Underway], Procedure[Any]],
    on_votes: OnVotes | None,
) -> Iterator[tuple[_Underway, Any, float]]:
    """Every input with what its procedure found, and the time it took."""
    jobs = [Job(one.index, one.point, classifier.plan.noise, procedure(one)) for one in together]
    of_job = {id(job): one for job, one in zip(jobs, together)}  # equal inputs have equal numbers
    for done in classifier.run_jobs(iter(jobs), "hard", on_votes):
        yield of_job[id(done.job)], done.answer, done.seconds


def _agreed(answers: list[Prediction]) -> Prediction:
    """The answer of all levels that may be the median, or an abstention; its p-value is the largest."""
    first = max(answers, key=lambda answer: answer.p_value)
    same = len({answer.predicted for answer in answers}) == 1
    return first if same else replace(first, predicted=ABSTAIN, p_value=1.0)
