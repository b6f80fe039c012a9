"""LevelledClassifier: one classifier with a σ for each input, PREDICT and CERTIFY for it, and no memory."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import checked_input
from smoothcert.engine.schedule import Finished, Job, Procedure
from smoothcert.errors import InvalidValueError
from smoothcert.experimental.levels.choosers import ConstantChooser, StatisticChooser, level_names
from smoothcert.experimental.levels.procedures import (
    certify_levels,
    choose_again,
    chooser_plan,
    decide_levels,
    home_plan,
    levels_of,
    predict_levels,
)
from smoothcert.models.adapt import adapt
from smoothcert.models.base import BaseClassifier, Prepared
from smoothcert.models.function import FunctionClassifier
from smoothcert.perturb.base import DEFAULT_NOISE, NOISES, Perturbation
from smoothcert.runs.side_files import LevelEvidence
from smoothcert.sigma_levels import SigmaLevels
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.classifier import Inputs, ModelClassifier, OnVotes, PredictionOf
from smoothcert.smoothing.inputs import Labels, as_numpy
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.planned_model import noisy_model
from smoothcert.tally import Tally

R = TypeVar("R")


@dataclass(frozen=True)
class LevelModels:
    """The models ready to vote. Voter k of an input is the model of level k, and the last one is the chooser."""

    plan: CertifyPlan
    prepared: list[Prepared]
    """One for all levels, or one for each."""
    chooser: Prepared | None
    """None where it is constant."""

    def of_level(self, level: int) -> Prepared:
        """The model that votes at a level."""
        return self.prepared[min(level, len(self.prepared) - 1)]

    def point(self, index: int, x: NDArray[Any]) -> NDArray[np.float64]:
        """The grid point of all stages, once the input is known to be one."""
        return self.plan.point(checked_input(index, x, self.prepared[0].input_shape))


class LevelledClassifier(ModelClassifier):
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
            n = plan_fields.get("n", CertifyPlan.n) if chooser_n is None else chooser_n
            constant = chooser.level if isinstance(chooser, ConstantChooser) else None
            sigma = chooser_sigma if constant is None else None
            levels = SigmaLevels(tuple(sigmas), sigma, chooser_n0, n, constant)
            plan = CertifyPlan(NOISES[noise](levels.sigmas[-1]), sigma_levels=levels, **plan_fields)
        else:
            own = {"chooser_sigma": chooser_sigma, "chooser_n": chooser_n}
            if given := [*plan_fields, *(name for name, value in own.items() if value is not None)]:
                raise InvalidValueError(f"{', '.join(given)} belong in the plan when a plan is given")
        levels = levels_of(plan)
        models = list(model) if isinstance(model, list | tuple) else [model]
        if len(models) not in (1, len(levels.sigmas)):
            raise InvalidValueError(
                f"give one model or one for each of {len(levels.sigmas)} levels, got {len(models)}"
            )
        self.bases: list[BaseClassifier] = [adapt(one, "hard") for one in models]
        names = [base.class_names for base in self.bases]
        if any(one != names[0] for one in names):  # or class 0 of one level would be class 1 of another
            raise InvalidValueError(f"the levels' models call their classes {', '.join(map(str, names))}")
        super().__init__(self.bases[-1], plan, execution, input_shape)
        self.chooser = self._adapted_chooser(chooser, levels)
        self._models: tuple[Any, LevelModels] | None = None
        """Made ready to vote, beside what it is ready for."""

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what was made ready to vote."""
        return super().__getstate__() | {"_models": None}

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

    def fingerprint(self, input_shape: tuple[int, ...]) -> str:
        """A hash of all levels' models; of one model its own. The chooser's is in the plan."""
        prints = [base.fingerprint(input_shape) for base in self.bases]
        return prints[0] if len(prints) == 1 else hashlib.sha256("|".join(prints).encode()).hexdigest()

    def prepare(self, input_shape: tuple[int, ...]) -> CertifyPlan:
        """Settle what the plan left open for inputs of this shape, the chooser's part included."""
        return self._models_for(tuple(input_shape)).plan

    def voters(self, input_shape: tuple[int, ...]) -> list[tuple[Prepared, Perturbation]]:
        """The model of each level at its σ."""
        models, noise = self._models_for(tuple(input_shape)), NOISES[self.plan.noise.name]
        return [(models.of_level(k), noise(sigma)) for k, sigma in enumerate(levels_of(self.plan).sigmas)]

    def noises(self) -> list[Perturbation]:
        """Everything that is added to inputs."""
        return [NOISES[self.plan.noise.name](sigma) for sigma in levels_of(self.plan).all_sigmas]

    def _certified(
        self, inputs: Inputs, on_votes: OnVotes | None, labels: Labels | None
    ) -> Iterator[Finished[Certification]]:
        def procedure(
            models: LevelModels, index: int, x: NDArray[Any], point: NDArray[np.float64]
        ) -> Procedure[Certification]:
            label = None if labels is None else labels(index)
            evidence = yield from certify_levels(models.plan, index, point, label)
            return decide_levels(x, models.plan, evidence)

        return self._ask(inputs, procedure, on_votes)

    def predict_procedure(self, n: int, alpha: float | None, until_decided: int | None) -> PredictionOf:
        """G's class with probability at least 1−alpha, or an abstention.

        n votes of the chooser leave the levels that may be the median; n votes at each of them must give one class.
        Only the true median level's test can be wrong about G, so that levels don't share alpha.
        """
        if until_decided is not None:
            raise InvalidValueError(
                "with sigma levels, votes are cast level by level, n at each: give n, and leave until_decided out"
            )
        level = self._settle_prediction(n, alpha)
        return lambda plan: predict_levels(plan, n, level)

    def _predicted(
        self, inputs: Inputs, on_votes: OnVotes | None, procedure: PredictionOf
    ) -> Iterator[Finished[Prediction]]:
        return self._ask(inputs, lambda models, *_: procedure(models.plan), on_votes)

    def chosen_again(
        self, index: int, x: NDArray[Any], evidence: LevelEvidence
    ) -> list[tuple[str, Tally, Tally]]:
        """The votes that chose an input's level and its classes: whose they are, as they were and as they are now."""
        (done,) = self._ask([(index, x)], lambda models, *_: choose_again(models.plan, evidence), None)
        return done.answer

    def _ask(
        self,
        inputs: Inputs,
        procedure: Callable[[LevelModels, int, NDArray[Any], NDArray[np.float64]], Procedure[R]],
        on_votes: OnVotes | None,
    ) -> Iterator[Finished[R]]:
        """What a procedure finds for each input; its array may change once it is taken."""
        waiting = ((index, as_numpy(x)) for index, x in inputs)
        first = next(waiting, None)
        if first is None:
            return
        models = self._models_for(first[1].shape)
        levels = range(len(levels_of(models.plan).sigmas))
        stages = [(home_plan(models.plan, level), models.of_level(level)) for level in levels]
        if models.chooser is not None:
            stages.append((chooser_plan(models.plan), models.chooser))

        def job(index: int, x: NDArray[Any]) -> Job[R]:
            point = models.point(index, x)
            voters = (
                noisy_model(plan, prepared, self.engine).voter(index, point, plan.noise)
                for plan, prepared in stages
            )
            return Job(tuple(voters), procedure(models, index, np.array(x), point))

        yield from self.engine.run((job(*one) for one in itertools.chain([first], waiting)), on_votes)

    def _models_for(self, shape: tuple[int, ...]) -> LevelModels:
        """What each stage needs for inputs of this shape, made once for a plan."""
        settled_for = (self.plan, tuple(shape), self.execution, self._order)
        if self._models is None or self._models[0] != settled_for:
            self._models = settled_for, self._made_models(tuple(shape))
        return self._models[1]

    def _made_models(self, shape: tuple[int, ...]) -> LevelModels:
        self.plan.check_shape(shape)
        if len(self.bases) > 1:
            prepared = [self._made_ready(base, shape) for base in self.bases]
        else:
            prepared = [self.prepared(shape)]
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
        levels, chooser = levels_of(self.plan), None
        if self.chooser is not None:
            numerics = chooser_plan(self.plan).numerics
            chooser = self.chooser.prepare(numerics, shape, self.execution.main_device)
            if chooser.classes != len(levels.sigmas):
                raise InvalidValueError(
                    f"{self.chooser.name} tells {chooser.classes} levels apart, and there are {len(levels.sigmas)} "
                    "sigma levels"
                )
            levels = replace(
                levels,
                chooser_name=self.chooser.name,
                chooser_sha256=self.chooser.fingerprint(shape),
                chooser_numerics=chooser.numerics,
            )
        plan = replace(self.plan, numerics=prepared[0].numerics, sigma_levels=levels).for_shape(shape)
        return LevelModels(plan, prepared, chooser)
