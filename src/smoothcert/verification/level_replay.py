"""Votes of a chooser and of σ levels, cast again by the engine: as :mod:`replay`, with the library's machinery."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smoothcert.datasets.base import Dataset
from smoothcert.errors import ModelError
from smoothcert.sampling import BaseClassifier, Execution
from smoothcert.sampling.models import class_order
from smoothcert.sampling.models.declared import difference
from smoothcert.sigma_levels import ConstantChooser
from smoothcert.smoothing import CertifyPlan, SmoothedClassifier
from smoothcert.smoothing.level_plans import chooser_plan, home_plan, levels_of
from smoothcert.smoothing.levelled import LevelledClassifier
from smoothcert.verification.level_records import LevelJudge
from smoothcert.verification.levels import read_levels
from smoothcert.verification.reading import StatedRecord
from smoothcert.verification.replay import A_LOOK, OnVotes, Replay, compare, other_model
from smoothcert.verification.report import Report
from smoothcert.verification.statement import Statement
from smoothcert.verification.votes import Votes

_CHOOSER = "chooser"

Stage = int | None
"""The level that votes are of; None: they are the chooser's."""


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

    def votes_of(self, records: Sequence[StatedRecord]) -> int:
        """How many votes of these records there are to cast again, on all stages."""
        cast = (votes for record in records for _, *both in self._stages(record) for votes in both)
        return sum(votes.n for votes in cast if votes is not None)

    def _check_model(self) -> None:
        stated, shape = self._stated_plan(), self.dataset.input_shape
        constant = levels_of(stated).constant
        if constant is None and (self._chooser is None or isinstance(self._chooser, ConstantChooser)):
            raise ModelError(
                f"{self.directory} was certified with a chooser of levels: give it with --chooser, too"
            )
        chooser = (
            self._chooser if self._chooser is not None or constant is None else ConstantChooser(constant)
        )
        self._classifier = LevelledClassifier(self._models, chooser, stated, execution=self.execution)
        here, model = self._classifier.fingerprint(shape), self.statement.model
        if here != model.get("sha256"):
            other = difference(model.get("declared"), self.base.declared)
            names = ", ".join(one.name for one in self._models)
            raise other_model(names, "model", here, model.get("sha256"), other)
        if self._classifier.chooser is not None:
            base, stated_chooser = self._classifier.chooser, self.plan.fields["chooser"]
            if (print_of := base.fingerprint(shape)) != stated_chooser.get("sha256"):
                raise other_model(base.name, _CHOOSER, print_of, stated_chooser.get("sha256"))

    def _cast_again(self, records: Sequence[StatedRecord], report: Report, on_votes: OnVotes | None) -> int:
        groups: dict[tuple[Stage, int], dict[int, tuple[Votes | None, Votes | None]]] = defaultdict(dict)
        known = []
        for record in records:
            stages = list(self._stages(record))
            if not stages:
                report.notes.append(f"input {record.index} wasn't cast again: its votes aren't known")
                continue
            known.append(record)
            for stage, selection, estimation in stages:
                n = A_LOOK if estimation is None else estimation.n or A_LOOK
                groups[stage, n][record.index] = selection, estimation
        for (stage, n), stated in groups.items():
            self._check_stage(stage, n, stated, report, on_votes)
        whole = self._ordered(SmoothedClassifier(self.base, self._plan_of(0, A_LOOK)))
        for record in known:
            self._compare_base(record, whole, report)
        return len(known)

    def _stages(self, record: StatedRecord) -> Iterator[tuple[Stage, Votes | None, Votes | None]]:
        line = self._judge.lines.get(record.index)
        if line is None:
            return
        if line.chosen is not None:
            yield None, line.chosen, line.chooser
        for one in line.votes:
            if 0 <= one.level < len(self._judge.levels.sigmas):
                yield one.level, one.selection, one.estimation

    def _check_stage(
        self,
        stage: Stage,
        n: int,
        stated: Mapping[int, tuple[Votes | None, Votes | None]],
        report: Report,
        on_votes: OnVotes | None,
    ) -> None:
        plan, several = self._plan_of(stage, n), len(self._models) > 1
        if stage is None:
            assert self._classifier.chooser is not None  # its votes were read because the plan has one
            voter = SmoothedClassifier(self._classifier.chooser, plan, execution=self.execution)
        else:
            model = self._models[stage if several else 0]
            voter = self._ordered(SmoothedClassifier(model, plan, execution=self.execution))
        self._check_settled(voter.prepare(self.dataset.input_shape), plan.numerics)
        about = self._stated_plan()
        points = ((index, about.point(x)) for index, x in self.dataset.each(stated))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few votes can't succeed: expected here
            for answer in voter.certify_each(points, on_votes):
                words = f"{_CHOOSER}: " if stage is None else f"level {stage}: "
                compare(answer.index, stated[answer.index], answer, report, words)

    def _plan_of(self, stage: Stage, n: int) -> CertifyPlan:
        """The stage's own streams and noise, with a number of votes that is known beforehand now."""
        plan = self._stated_plan()
        own = chooser_plan(plan) if stage is None else home_plan(plan, stage)
        numerics = own.numerics if stage is None else self.numerics
        return replace(own, bound="clopper-pearson", n=n, numerics=numerics, stop=(), dimension=None)

    def _ordered(self, classifier: SmoothedClassifier) -> SmoothedClassifier:
        return classifier.in_order(class_order(self.base, self.dataset))
