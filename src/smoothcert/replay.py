"""Votes of some inputs of a run, cast again by the engine with a model and data that the caller names.

The recomputation from votes is :mod:`smoothcert_verify`'s, which needs nothing but Python; this part needs the library.
"""

from __future__ import annotations

import math
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import DATASETS, PATH_FORMS, Dataset
from smoothcert.engine.execution import Execution
from smoothcert.errors import ModelError, RunError
from smoothcert.experimental.levels.choosers import ConstantChooser
from smoothcert.experimental.levels.classifier import LevelledClassifier
from smoothcert.experimental.levels.procedures import chooser_plan, home_plan, levels_of
from smoothcert.models.adapt import class_order, difference
from smoothcert.models.base import BaseClassifier
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.base import NOISES, PERTURBATIONS, Perturbation
from smoothcert.perturb.diagonal import DIAGONAL_NOISES
from smoothcert.runs.manifest import current_versions, route_versions
from smoothcert.runs.statement import BY_VALUES, PlanStatement
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.holding import HoldingClassifier
from smoothcert.smoothing.inputs import content_index
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert_verify.levels import LevelJudge
from smoothcert_verify.noise import Noise
from smoothcert_verify.reading import UnreadableError
from smoothcert_verify.records import Judge
from smoothcert_verify.report import Report, believed
from smoothcert_verify.statement import Plan, Statement
from smoothcert_verify.votes import StatedRecord, Votes, read_found, read_levels

OnVotes = Callable[[int], None]

_A_LOOK = 100
"""A number of votes that is permitted to every bound."""


def chosen_records(records: Sequence[StatedRecord], count: int, seed: int) -> list[StatedRecord]:
    """``count`` of the records that keep votes, drawn by ``seed``.

    No choice is made that a run's maker could know: invented votes would leave just those alone.
    """
    with_votes = [each for each in records if each.selection is not None and each.estimation is not None]
    if count >= len(with_votes):
        return with_votes
    return sorted(random.Random(seed).sample(with_votes, count), key=lambda record: record.index)


class Replay:
    """Casts a run's votes again with a model and data that the caller names, and compares."""

    def __init__(
        self,
        directory: Path,
        statement: Statement,
        base: BaseClassifier,
        dataset: Dataset,
        execution: Execution,
    ) -> None:
        if statement.plan is None:
            raise RunError(f"{directory} was imported from a log: it keeps no votes that could be cast again")
        self.plan: Plan = statement.plan
        self.directory, self.statement, self.base = directory, statement, base
        self.dataset, self.execution = dataset, execution
        self._judge = Judge(directory, self.plan, read_found(directory) if self.plan.search else {})
        self.numerics = self._stated_numerics()
        dataset.check_contents(statement.data.get("sha256"), str(directory))
        self._check_model()
        self.held = _held(statement, dataset.input_shape)
        self._other_labels: int | None = None

    def votes_of(self, records: Sequence[StatedRecord]) -> int:
        """How many votes of these records there are to cast again."""
        cast = (votes for record in records for _, *both in self._stages(record) for votes in both)
        return sum(votes.n for votes in cast if votes is not None)

    def check_names(self, spec: str, split: str, report: Report) -> None:
        """Compare what the run calls its data with what they are: the ``split`` of the data set ``spec``.

        A path says nothing elsewhere, and data that were given by one have no name: then it is left to be believed.
        """
        origin: Any = self.statement.fields.get("origin")
        origin = origin if isinstance(origin, dict) else {}
        names = self.statement.data.get("name"), origin.get("dataset")
        stated = {str(name) for name in names if name is not None}
        paths = tuple(f"{form}:" for form in PATH_FORMS)
        others = [name for name in sorted(stated - {spec, self.dataset.name}) if not name.startswith(paths)]
        other_split = origin.get("split") not in (None, split)
        if spec not in DATASETS:
            report.data_known = not others and not other_split
            return
        for name in others:
            report.problem(None, f"run.json calls its data {name!r}, and they are {spec}")
        if other_split:
            words = f"states the {origin['split']!r} split, and these are the inputs of {spec}'s {split!r}"
            report.problem(None, f"run.json {words}")
        report.data_known = True

    def check_labels(self, records: Sequence[StatedRecord], report: Report) -> None:
        """Compare all labels, their number, and which grid the inputs are said to lie on, with the data."""
        data = self.statement.data
        stated = data.get("inputs")
        if stated != len(self.dataset):
            report.problem(None, f"run.json states {stated} inputs, the data have {len(self.dataset)}")
        if "levels" in data and data["levels"] != self.dataset.levels:
            words = f"inputs of levels {data['levels']!r}, those of the data are {self.dataset.levels!r}"
            report.problem(None, f"run.json states {words}")
        self._other_labels = 0 if records else None
        for record in records:
            if not 0 <= record.index < len(self.dataset):
                continue  # reported already
            label = int(self.dataset.labels[record.index])
            if record.label != label:
                self._other_labels = (self._other_labels or 0) + 1
                report.problem(record.index, f"label {record.label}, in the data it is {label}")

    def check(self, records: Sequence[StatedRecord], report: Report, on_votes: OnVotes | None = None) -> None:
        """Cast the votes of these records again."""
        held = 0 if self.held is None else int(self.held.sum())
        stated, size = self.plan.fields.get("dimension"), math.prod(self.dataset.input_shape) - held
        if self.plan.stream != 1 and stated != size:
            # But for what is held.
            report.problem(None, f"the plan's dimension is {stated}, inputs of the data have {size}")
        cast = self._cast_again(records, report, on_votes)
        report.replayed = cast
        if cast:
            report.verified.append(f"the votes of {cast} inputs, cast again with the given model and data")
        if self._other_labels is not None:
            others = f": {self._other_labels} are others" if self._other_labels else ""
            report.verified.append(f"all labels, compared with the data{others}")
        report.believed = list(believed(self.statement, report))
        here = self.execution.device_kind
        if self._versions_differ() or self.plan.fields.get("device", here) != here:
            report.notes.append(
                "the run was made with other versions or on another machine or device, which may round differently: "
                "single votes can differ for that reason alone"
            )

    def _cast_again(self, records: Sequence[StatedRecord], report: Report, on_votes: OnVotes | None) -> int:
        """How many of the records could be compared; votes of the same stage and number go together."""
        groups: dict[tuple[Any, int], dict[int, tuple[Votes | None, Votes | None]]] = defaultdict(dict)
        known = []
        for record in records:
            stages = list(self._stages(record))
            if not stages:
                report.notes.append(f"input {record.index} wasn't cast again: its noise or votes are unknown")
                continue
            known.append(record)
            for stage, selection, estimation in stages:
                n = _A_LOOK if estimation is None else estimation.n or _A_LOOK
                groups[stage, n][record.index] = selection, estimation
        for (stage, n), stated in groups.items():
            plan, voter, words = self._voter(stage, n)
            self._check_settled(voter.prepare(self.dataset.input_shape), plan)
            numbers = {self._stream_of(index): index for index in stated}
            inputs = ((number, self._input(index)) for number, index in numbers.items())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few votes can't succeed: expected here
                for answer in voter.certify_each(inputs, on_votes):
                    index = numbers[answer.index]
                    _compare(index, stated[index], answer, report, words)
        stated_bases = [record for record in known if record.base is not None]
        if stated_bases:
            _, whole, _ = self._voter(self._stage_of_base(), _A_LOOK)
            for record in stated_bases:
                base = whole.base_class(self.dataset.input(record.index))
                if record.base != base:
                    report.problem(record.index, f"base class {record.base}, asked again it is {base}")
        return len(known)

    def _stages(self, record: StatedRecord) -> Iterator[tuple[Any, Votes | None, Votes | None]]:
        """What each of a record's votes were cast under; here the noise alone."""
        with suppress(UnreadableError):
            yield self._judge.noise_of(record), record.selection, record.estimation

    def _stage_of_base(self) -> Any:
        """A stage whose votes the certified model itself casts."""
        return self._judge.plan_noise

    def _voter(self, stage: Any, n: int) -> tuple[CertifyPlan, SmoothedClassifier | HoldingClassifier, str]:
        """The plan and the classifier that cast a stage's votes, and what a problem with them begins with.

        The number of votes, and a searched noise, are known in advance now.
        """
        noise = self._library_noise(stage)
        plan = replace(self._stated_plan(), noise=noise, n=n, numerics=self.numerics)
        plan = replace(plan, search=None, stop=(), dimension=None)
        classifier = self._ordered(self.base, plan)
        return plan, classifier if self.held is None else HoldingClassifier(classifier, self.held), ""

    def _ordered(self, model: BaseClassifier, plan: CertifyPlan) -> SmoothedClassifier:
        classifier = SmoothedClassifier(model, plan, execution=self.execution)
        return classifier.in_order(class_order(self.base, self.dataset))

    def _input(self, index: int) -> NDArray[Any]:
        return self.dataset.input(index)

    def _stream_of(self, index: int) -> int:
        """The number of an input's random streams; streams of other inputs are problems of their votes."""
        by_values = self.statement.data.get("streams") == BY_VALUES
        return content_index(self.dataset.input(index)) if by_values else index

    def _check_model(self) -> None:
        here, stated = self.base.fingerprint(self.dataset.input_shape), self.statement.model
        if here != stated.get("sha256"):
            other = difference(stated.get("declared"), self.base.declared)
            raise _other_model(self.base.name, "model", here, stated.get("sha256"), other)

    def _stated_plan(self) -> CertifyPlan:
        try:
            return CertifyPlan.from_statement(PlanStatement(self.plan.fields), self.directory)
        except (RunError, ValueError) as error:
            raise RunError(f"{self.directory}: {error}, so its votes can't be cast again") from None

    def _stated_numerics(self) -> Numerics:
        names = [one.name for one in fields_of(Numerics) if one.name != "generator"]  # sfc64 isn't stated
        if missing := [name for name in names if name not in self.plan.fields]:
            raise RunError(f"{self.directory} lacks {', '.join(missing)}: its votes can't be cast again")
        return Numerics.from_json(self.plan.fields)

    def _library_noise(self, noise: Noise) -> Perturbation:
        if noise.kind in PERTURBATIONS:
            return self._stated_plan().noise
        if noise.diagonal:
            shape = self.dataset.input_shape if self.held is None else (len(noise.scales),)
            return DIAGONAL_NOISES[noise.kind](np.array(noise.scales).reshape(shape))
        return NOISES[noise.kind](noise.scales[0])

    def _check_settled(self, settled: CertifyPlan, plan: CertifyPlan) -> None:
        stream = self.plan.fields.get("stream")
        for name, value in {"stream": settled.as_json().get("stream"), **asdict(settled.numerics)}.items():
            stated = stream if name == "stream" else getattr(plan.numerics, name)
            if value != stated:
                raise RunError(
                    f"{self.directory} was cast with {name} {stated}, here it would be {value}: its votes can't be "
                    "cast again by this version"
                )

    def _versions_differ(self) -> bool:
        stated: Any = self.statement.fields.get("versions")
        return not isinstance(stated, dict) or any(
            stated.get(name) != version
            for name, version in (current_versions() | route_versions(self.numerics.route)).items()
            if name != "smoothcert"
        )


class LevelReplay(Replay):
    """Casts every stage's votes again: those of the chooser, and those at each level that was looked at."""

    _judge: LevelJudge

    def __init__(
        self,
        directory: Path,
        statement: Statement,
        models: Sequence[BaseClassifier],
        chooser: Any,
        dataset: Dataset,
        execution: Execution,
    ) -> None:
        """``chooser`` may be None where the plan's is constant."""
        self._models, self._chooser = list(models), chooser
        super().__init__(directory, statement, models[-1], dataset, execution)
        self._judge = LevelJudge(directory, self.plan, {}, lines=read_levels(directory))

    def _check_model(self) -> None:
        stated, shape = self._stated_plan(), self.dataset.input_shape
        constant = levels_of(stated).constant
        if constant is None and (self._chooser is None or isinstance(self._chooser, ConstantChooser)):
            raise ModelError(f"{self.directory} was certified with a chooser of levels: give --chooser")
        chooser = self._chooser
        if chooser is None and constant is not None:
            chooser = ConstantChooser(constant)
        self._classifier = LevelledClassifier(self._models, chooser, stated, execution=self.execution)
        here, model = self._classifier.fingerprint(shape), self.statement.model
        if here != model.get("sha256"):
            other = difference(model.get("declared"), self.base.declared)
            names = ", ".join(one.name for one in self._models)
            raise _other_model(names, "model", here, model.get("sha256"), other)
        if self._classifier.chooser is not None:
            base, stated_chooser = self._classifier.chooser, self.plan.fields["chooser"]
            if (print_of := base.fingerprint(shape)) != stated_chooser.get("sha256"):
                raise _other_model(base.name, "chooser", print_of, stated_chooser.get("sha256"))

    def _stages(self, record: StatedRecord) -> Iterator[tuple[Any, Votes | None, Votes | None]]:
        """The levels that were looked at, and None for the chooser."""
        line = self._judge.lines.get(record.index)
        if line is None:
            return
        if line.chosen is not None:
            yield None, line.chosen, line.chooser
        for one in line.votes:
            if 0 <= one.level < len(self._judge.levels.sigmas):
                yield one.level, one.selection, one.estimation

    def _stage_of_base(self) -> int:
        return len(self._judge.levels.sigmas) - 1

    def _voter(self, stage: Any, n: int) -> tuple[CertifyPlan, SmoothedClassifier, str]:
        """A stage has its own streams, noise and, where there are several, its own model."""
        stated = self._stated_plan()
        own = chooser_plan(stated) if stage is None else home_plan(stated, stage)
        numerics = own.numerics if stage is None else self.numerics
        plan = replace(own, bound="clopper-pearson", n=n, numerics=numerics, stop=(), dimension=None)
        if stage is not None:
            model = self._models[stage if len(self._models) > 1 else 0]
            return plan, self._ordered(model, plan), f"level {stage}: "
        assert self._classifier.chooser is not None  # its votes were read because the plan has one
        chooser = SmoothedClassifier(self._classifier.chooser, plan, execution=self.execution)
        return plan, chooser, "chooser: "

    def _input(self, index: int) -> NDArray[Any]:
        return self._stated_plan().point(self.dataset.input(index))


def _other_model(name: str, kind: str, here: str, stated: object, difference: str = "") -> ModelError:
    """The refusal of a model or chooser that isn't the one a run states."""
    return ModelError(
        f"{name} isn't the {kind} that the run states: its SHA-256 is {here[:12]}…, the run's is "
        f"{str(stated)[:12]}…{difference}; give the {kind} that was certified"
    )


def _held(statement: Statement, input_shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """Where the run states that inputs have no noise."""
    stated, size = statement.model.get("held"), math.prod(input_shape)
    if stated is None:
        return None
    if not isinstance(stated, list) or not all(type(k) is int and 0 <= k < size for k in stated):
        raise RunError(f"run.json states held coordinates that inputs of shape {input_shape} don't have")
    mask = np.zeros(size, dtype=bool)
    mask[stated] = True
    return mask.reshape(input_shape)


def _compare(
    index: int,
    stated: tuple[Votes | None, Votes | None],
    answer: Certification,
    report: Report,
    stage: str = "",
) -> None:
    for votes, cast in zip(stated, (answer.evidence.selection, answer.evidence.estimation)):
        if votes is None or not votes.n:
            continue
        soft = votes.sums is None or (votes.sums == cast.sums and votes.squares == cast.squares)
        if votes.counts != cast.counts or not soft:
            again = f"cast again they are {_shown(cast.counts)}"
            report.problem(index, f"{stage}{votes.phase} votes {_shown(votes.counts)}; {again}")


def _shown(counts: Sequence[int]) -> str:
    """The classes with votes, most votes first."""
    voted = sorted((c for c, count in enumerate(counts) if count), key=lambda c: -counts[c])
    return ", ".join(f"{counts[c]} for class {c}" for c in voted[:3]) + (", …" if len(voted) > 3 else "")
