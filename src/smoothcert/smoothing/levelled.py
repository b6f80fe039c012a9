"""LevelledClassifier: one classifier with a σ for each input, PREDICT and CERTIFY for it, and no memory."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.noise import DEFAULT_NOISE, NOISES, Noise
from smoothcert.sampling import BaseClassifier, Execution, Prepared, adapt
from smoothcert.sampling.models import FunctionClassifier
from smoothcert.sigma_levels import ConstantChooser, LevelEvidence, SigmaLevels, StatisticChooser
from smoothcert.sigma_levels.statement import level_names
from smoothcert.smoothing.adaptive import CertifyState, Piloted
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.array_interface import Inputs, Labels, OnVotes
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.holding import HoldingClassifier
from smoothcert.smoothing.inputs import as_numpy
from smoothcert.smoothing.level_plans import chooser_plan, decide_levels, levels_of
from smoothcert.smoothing.level_stages import Stages, Underway, agreed
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.planned_model import PlannedModel
from smoothcert.tally import Tally

_TOGETHER = 16
"""Inputs that go from stage to stage together; it doesn't change what is found."""


class LevelledClassifier(SmoothedClassifier):
    """G(x) = what the classifier smoothed with σ_H answers, H the median level that a chooser gives x + noise.

    One classifier, with no memory, whose σ follows the input. ``chooser`` is any model of levels 0, 1, …: a torch
    module or function with a score for each level, a :class:`ConstantChooser` or a :class:`StatisticChooser`.
    ``model`` is one model for all levels, or a list with one for each. Pass a ``plan`` with ``sigma_levels``, or
    ``sigmas`` and the fields of the plan.

    CERTIFY votes with the chooser, then at the likeliest level; other levels are voted on only where the chooser might
    come to them within that level's radius, and only until they reach it.
    """

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
                n if chooser_n is None else chooser_n,
                chooser.level if isinstance(chooser, ConstantChooser) else None,
            )
            plan = CertifyPlan(NOISES[noise](levels.sigmas[-1]), sigma_levels=levels, **plan_fields)
        else:
            own = {"chooser_sigma": chooser_sigma, "chooser_n": chooser_n}
            if given := [*plan_fields, *(name for name, value in own.items() if value is not None)]:
                raise InvalidValueError(f"{', '.join(given)} belong in the plan when a plan is given")
        levels = levels_of(plan)
        models = list(model) if isinstance(model, list | tuple) else [model]
        if len(models) not in (1, len(levels.sigmas)):
            raise InvalidValueError(
                f"give one model for all levels or one for each of {len(levels.sigmas)}, got {len(models)}"
            )
        self.bases: list[BaseClassifier] = [adapt(one, "hard") for one in models]
        names = [base.class_names for base in self.bases]
        if any(one != names[0] for one in names):  # or class 0 of one level would be class 1 of another
            raise InvalidValueError(
                f"the models of the levels call their classes {', '.join(map(str, names))}"
            )
        PlannedModel.__init__(self, self.bases[-1], plan, execution, input_shape)
        self.chooser = self._adapted_chooser(chooser, levels)
        self._stages: tuple[tuple[CertifyPlan, tuple[int, ...], Execution], Stages] | None = None

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
            stated = "no constant" if levels.constant is None else f"the constant {levels.constant}"
            raise InvalidValueError(f"the plan's chooser is {stated}, got {chooser!r}")
        if constant is not None:
            return None
        if isinstance(chooser, StatisticChooser):
            if chooser.levels != len(levels.sigmas):
                raise InvalidValueError(
                    f"{chooser.text} has {len(chooser.edges)} edges, which make {chooser.levels} levels, and there are "
                    f"{len(levels.sigmas)}"
                )
            # Its name is a part of its hash: edges that lie close to each other answer probes alike.
            return FunctionClassifier(chooser, "labels", chooser.levels, chooser.text, thread_safe=True)
        adapted = adapt(chooser, "hard")
        numbers, sigmas = tuple(range(len(levels.sigmas))), level_names(levels.sigmas)
        # Or its class 0 might mean another level than the first.
        if adapted.class_names not in (None, numbers, sigmas):
            raise InvalidValueError(
                f"{adapted.name} calls its classes {adapted.class_names}: a chooser's are the numbers of the levels, "
                f"{numbers}, or their names, {sigmas}"
            )
        return adapted

    def in_order(self, order: tuple[int, ...] | None) -> LevelledClassifier:
        """The same classifier with classes numbered otherwise."""
        numbered = copy.copy(self)
        if order is not None:
            numbered._order, numbered._prepared, numbered._stages = order, None, None
        return numbered

    def of(self, base: BaseClassifier) -> Self:
        """Refused: a level's model is one of several, beside its chooser."""
        raise InvalidValueError(f"make a new LevelledClassifier for {base.name}")

    def holding(self, columns: ArrayLike | Sequence[str]) -> HoldingClassifier:
        """Refused: levels are certified for whole inputs."""
        raise InvalidValueError(f"sigma levels are for whole inputs: {columns!r} can't be held")

    def certify_stream(self, *_: Any, **__: Any) -> Iterator[CertifyState]:
        """Refused: a radius that grows vote by vote is that of one σ."""
        raise InvalidValueError(
            "certify_stream is for one sigma: a radius at several levels is known at the end"
        )

    def pilot_each(self, *_: Any, **__: Any) -> Iterator[tuple[int, Piloted]]:
        """Refused: a total of votes is spread at one σ."""
        raise InvalidValueError("a total of votes is spread over inputs at one sigma: leave the levels out")

    def certify_allocated(self, *_: Any, **__: Any) -> Iterator[Certification]:
        """Refused: a total of votes is spread at one σ."""
        raise InvalidValueError("a total of votes is spread over inputs at one sigma: leave the levels out")

    def fingerprint(self, input_shape: tuple[int, ...]) -> str:
        """A hash of all levels' models; of one model its own. The chooser's is in the plan."""
        prints = [base.fingerprint(input_shape) for base in self.bases]
        return prints[0] if len(prints) == 1 else hashlib.sha256("|".join(prints).encode()).hexdigest()

    def prepare(self, input_shape: tuple[int, ...]) -> CertifyPlan:
        """Settle what the plan left open for inputs of this shape, the chooser's part included."""
        return self._stages_for(tuple(input_shape)).plan

    def voters(self, input_shape: tuple[int, ...]) -> list[tuple[Prepared, Noise]]:
        """The model of each level at its σ."""
        prepared = self._stages_for(tuple(input_shape)).prepared
        noises = [NOISES[self.plan.noise.name](sigma) for sigma in levels_of(self.plan).sigmas]
        return [(prepared[min(level, len(prepared) - 1)], noise) for level, noise in enumerate(noises)]

    def noises(self) -> list[Noise]:
        """Everything that is added to inputs."""
        return [NOISES[self.plan.noise.name](sigma) for sigma in levels_of(self.plan).all_sigmas]

    def certify_each(
        self, inputs: Inputs, on_votes: OnVotes | None = None, labels: Labels | None = None
    ) -> Iterator[Certification]:
        """Certify (index, input) pairs; answers come as they are ready, not in order."""
        self.settle_seed()
        self._check_rules(labels is not None)
        self.plan.warn_if_hopeless()
        for stages, together in self._windows(inputs, on_votes, labels):
            stages.certify(together)
            for one in together:
                answer = decide_levels(one.x, stages.plan, one.evidence())
                yield self._named(replace(answer, seconds=one.seconds))

    def predict_each(
        self,
        inputs: Inputs,
        n: int = 1000,
        alpha: float | None = None,
        on_votes: OnVotes | None = None,
        until_decided: int | None = None,
    ) -> Iterator[Prediction]:
        """PREDICT for (index, input) pairs: G's class with probability at least 1−alpha, or an abstention.

        n votes of the chooser leave the levels that may be the median; n votes at each of them must give one class.
        Only the true median level's test can be wrong about G, so that levels don't share alpha.
        """
        if until_decided is not None:
            raise InvalidValueError(
                "with sigma levels, votes are cast level by level, n at each: give n, and leave until_decided out"
            )
        alpha = self._settle_prediction(n, alpha)
        for stages, together in self._windows(inputs, on_votes):
            stages.predict(together, n, alpha)
            for one in together:
                answer = replace(agreed(one.answers), seconds=one.seconds, plan_seed=self.plan.seed)
                yield self._named(answer)

    def chosen_again(
        self, index: int, x: NDArray[Any], evidence: LevelEvidence
    ) -> Iterator[tuple[str, Tally, Tally]]:
        """The votes that chose an input's level and its classes: whose they are, as they were and as they are now."""
        stages = self._stages_for(x.shape)
        return stages.chosen_again(stages.enter(index, x), evidence)

    def _windows(
        self, inputs: Inputs, on_votes: OnVotes | None, labels: Labels | None = None
    ) -> Iterator[tuple[Stages, list[Underway]]]:
        """Inputs that go through the stages together; each is entered when it is taken, as its array may change."""
        remaining = ((index, as_numpy(x)) for index, x in inputs)
        for index, x in remaining:
            stages = replace(self._stages_for(x.shape), on_votes=on_votes)
            together = [stages.enter(index, x, None if labels is None else labels(index))]
            for i, other in itertools.islice(remaining, _TOGETHER - 1):
                together.append(stages.enter(i, other, None if labels is None else labels(i)))
            yield stages, together

    def _stages_for(self, shape: tuple[int, ...]) -> Stages:
        """What each stage needs for inputs of this shape, made once for a plan."""
        settled_for = (self.plan, tuple(shape), self.execution)
        if self._stages is None or self._stages[0] != settled_for:
            self._stages = settled_for, self._made_stages(tuple(shape))
        return self._stages[1]

    def _made_stages(self, shape: tuple[int, ...]) -> Stages:
        if self.execution.backend != "threads":
            raise InvalidValueError(
                f"sigma levels are voted on stage by stage, by threads: leave backend={self.execution.backend!r} "
                "(--backend) out; shards (--shard) use several processes or machines"
            )
        self.plan.check_shape(shape)
        several = len(self.bases) > 1
        prepared = (
            [self._made_ready(base, shape) for base in self.bases] if several else [self.prepared(shape)]
        )
        self._prepared = prepared[-1]
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
        chooser = None
        if self.chooser is not None:
            chooser = self._prepared_chooser(self.chooser, shape)
            levels = replace(
                levels,
                chooser_name=self.chooser.name,
                chooser_sha256=self.chooser.fingerprint(shape),
                chooser_numerics=chooser.numerics,
            )
        plan = replace(self.plan, numerics=prepared[0].numerics, sigma_levels=levels).for_shape(shape)
        return Stages(plan, prepared, chooser, self.execution)

    def _prepared_chooser(self, chooser: BaseClassifier, shape: tuple[int, ...]) -> Prepared:
        prepared = chooser.prepare(chooser_plan(self.plan).numerics, shape, self.execution.main_device)
        levels = levels_of(self.plan).sigmas
        if prepared.classes != len(levels):
            raise InvalidValueError(
                f"{chooser.name} tells {prepared.classes} levels apart, and there are {len(levels)} sigma levels"
            )
        return prepared
