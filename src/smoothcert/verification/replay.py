"""Votes of some inputs, cast again by the engine: the one part of verification that uses the library's machinery."""

from __future__ import annotations

import math
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import DATASETS, PATH_FORMS, Dataset
from smoothcert.errors import DataError, ModelError, RunError
from smoothcert.noise import DIAGONAL_NOISES, NOISES
from smoothcert.noise import Noise as LibraryNoise
from smoothcert.runs.manifest import current_versions, route_versions
from smoothcert.runs.statement import PlanStatement
from smoothcert.sampling import BaseClassifier, Execution, Numerics
from smoothcert.sampling.models import class_order
from smoothcert.sampling.models.declared import difference
from smoothcert.smoothing import Certification, CertifyPlan, SmoothedClassifier
from smoothcert.smoothing.holding import HoldingClassifier
from smoothcert.tally import Tally
from smoothcert.verification.beliefs import believed
from smoothcert.verification.noise import Noise
from smoothcert.verification.reading import StatedRecord, read_found
from smoothcert.verification.records import Judge
from smoothcert.verification.report import Report
from smoothcert.verification.statement import Plan, Statement
from smoothcert.verification.votes import UnreadableError, Votes

OnVotes = Callable[[int], None]

A_LOOK = 100
"""A number of votes that is permitted to every bound."""


def chosen_records(records: Sequence[StatedRecord], count: int, seed: int) -> list[StatedRecord]:
    """``count`` of the records that keep votes, drawn by ``seed``.

    No choice is made that a run's maker could know: votes that are made up would leave just those alone.
    """
    with_votes = [
        record for record in records if record.selection is not None and record.estimation is not None
    ]
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
        _check_data(statement, dataset)
        self._check_model()
        self.held = _held(statement, dataset.input_shape)
        self._other_labels: int | None = None

    def votes_of(self, records: Sequence[StatedRecord]) -> int:
        """How many votes of these records there are to cast again."""
        return sum(record.votes for record in records)

    def check_names(self, spec: str, split: str, report: Report) -> None:
        """Compare what the run calls its data with what they are: the ``split`` of the data set ``spec``.

        A path says nothing elsewhere, and data that were given by one have no name: then it is left to be believed.
        """
        origin: Any = self.statement.fields.get("origin")
        origin = origin if isinstance(origin, dict) else {}
        stated = {
            str(name) for name in (self.statement.data.get("name"), origin.get("dataset")) if name is not None
        }
        paths = tuple(f"{form}:" for form in PATH_FORMS)
        others = [name for name in sorted(stated - {spec, self.dataset.name}) if not name.startswith(paths)]
        other_split = origin.get("split") not in (None, split)
        if spec not in DATASETS:
            report.data_known = not others and not other_split
            return
        for name in others:
            report.problem(None, f"run.json calls its data {name!r}, and they are {spec}")
        if other_split:
            report.problem(
                None,
                f"run.json states the {origin['split']!r} split, and these are the inputs of {spec}'s {split!r}",
            )
        report.data_known = True

    def check_labels(self, records: Sequence[StatedRecord], report: Report) -> None:
        """Compare all labels, their number, and which grid the inputs are said to lie on, with the data."""
        data = self.statement.data
        stated = data.get("inputs")
        if stated != len(self.dataset):
            report.problem(None, f"run.json states {stated} inputs, the data have {len(self.dataset)}")
        if "levels" in data and data["levels"] != self.dataset.levels:
            report.problem(
                None,
                f"run.json states inputs of levels {data['levels']!r}, those of the data are {self.dataset.levels!r}",
            )
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
            report.verified.append(
                f"the votes of {cast} inputs, cast again with the model and the data given"
            )
        if self._other_labels is not None:
            others = f": {self._other_labels} are others" if self._other_labels else ""
            report.verified.append(f"all labels, held against the data{others}")
        report.believed = believed(self.statement, report)
        here = self.execution.device_kind
        if self._versions_differ() or self.plan.fields.get("device", here) != here:
            report.notes.append(
                "the run was made with other versions or on another machine or device, which may round differently: "
                "single votes can differ for that reason alone"
            )

    def _cast_again(self, records: Sequence[StatedRecord], report: Report, on_votes: OnVotes | None) -> int:
        """How many of the records could be compared; inputs of the same noise and number of votes go together."""
        groups: dict[tuple[Noise, int], list[StatedRecord]] = defaultdict(list)
        for record in records:
            assert record.estimation is not None
            try:
                groups[self._judge.noise_of(record), record.estimation.n or A_LOOK].append(record)
            except UnreadableError:
                report.notes.append(f"input {record.index} wasn't cast again: its noise isn't known")
        for (noise, n), alike in groups.items():
            self._check_alike(noise, n, alike, report, on_votes)
        return sum(len(alike) for alike in groups.values())

    def _check_alike(
        self,
        noise: Noise,
        n: int,
        records: Sequence[StatedRecord],
        report: Report,
        on_votes: OnVotes | None,
    ) -> None:
        smoothed = SmoothedClassifier(self.base, self._plan(noise, n), execution=self.execution).in_order(
            class_order(self.base, self.dataset)
        )
        classifier = smoothed if self.held is None else smoothed.holding(self.held)
        self._check_settled(classifier.prepare(self.dataset.input_shape))
        by_index = {record.index: record for record in records}
        inputs = self.dataset.each(by_index)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few votes can't succeed: expected here
            for answer in classifier.certify_each(inputs, on_votes):
                record = by_index[answer.index]
                compare(record.index, (record.selection, record.estimation), answer, report)
                self._compare_base(record, classifier, report)

    def _plan(self, noise: Noise, n: int) -> CertifyPlan:
        """The run's plan at one input's noise and number of votes, which are known beforehand now."""
        return replace(
            self._stated_plan(),
            noise=self._library_noise(noise),
            n=n,
            numerics=self.numerics,
            search=None,
            stop=(),
            dimension=None,
        )

    def _check_model(self) -> None:
        """Refuse another model than the one that was certified."""
        here, stated = self.base.fingerprint(self.dataset.input_shape), self.statement.model
        if here != stated.get("sha256"):
            other = difference(stated.get("declared"), self.base.declared)
            raise other_model(self.base.name, "model", here, stated.get("sha256"), other)

    def _stated_plan(self) -> CertifyPlan:
        try:
            return CertifyPlan.from_statement(PlanStatement(self.plan.fields), self.directory)
        except (RunError, ValueError) as error:
            raise RunError(f"{self.directory}: {error}, so its votes can't be cast again") from None

    def _compare_base(
        self, record: StatedRecord, classifier: SmoothedClassifier | HoldingClassifier, report: Report
    ) -> None:
        """Hold what the model itself says of an input against the record."""
        base = classifier.base_class(self.dataset.input(record.index))
        if record.base is not None and record.base != base:
            report.problem(record.index, f"base class {record.base}, asked again the model says {base}")

    def _stated_numerics(self) -> Numerics:
        names = [one.name for one in fields_of(Numerics) if one.name != "generator"]  # sfc64 isn't stated
        if missing := [name for name in names if name not in self.plan.fields]:
            raise RunError(
                f"{self.directory} doesn't state {', '.join(missing)}: its votes can't be cast again"
            )
        return Numerics.from_json(self.plan.fields)

    def _library_noise(self, noise: Noise) -> LibraryNoise:
        if noise.diagonal:
            return DIAGONAL_NOISES[noise.kind](np.array(noise.scales).reshape(self.dataset.input_shape))
        return NOISES[noise.kind](noise.scales[0])

    def _check_settled(self, plan: CertifyPlan, numerics: Numerics | None = None) -> None:
        """Refuse to compare votes that would be cast in another way."""
        now = {"stream": plan.as_json().get("stream"), **asdict(plan.numerics)}
        stated = {"stream": self.plan.fields.get("stream"), **asdict(numerics or self.numerics)}
        for name, value in now.items():
            if value != stated[name]:
                raise RunError(
                    f"{self.directory} was cast with {name} {stated[name]}, here it would be {value}: its votes can't "
                    "be cast again by this version"
                )

    def _versions_differ(self) -> bool:
        stated: Any = self.statement.fields.get("versions")
        return not isinstance(stated, dict) or any(
            stated.get(name) != version
            for name, version in (current_versions() | route_versions(self.numerics.route)).items()
            if name != "smoothcert"
        )


def other_model(name: str, kind: str, here: str, stated: object, difference: str = "") -> ModelError:
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


def _check_data(statement: Statement, dataset: Dataset) -> None:
    here, there = dataset.fingerprint(), statement.data.get("sha256")
    if here != there:
        raise DataError(
            f"{dataset.name} doesn't hold the inputs that the run states: its SHA-256 is {here[:12]}…, the run's is "
            f"{str(there)[:12]}…; give the data set, split and folder with --dataset, --split and --data-dir"
        )


def compare(
    index: int,
    stated: tuple[Votes | None, Votes | None],
    answer: Certification,
    report: Report,
    stage: str = "",
) -> None:
    """Report votes that are others when they are cast again."""
    for votes, cast in zip(stated, (answer.selection, answer.estimation)):
        if votes is not None and votes.n and not _same(votes, cast):
            report.problem(
                index,
                f"{stage}{votes.phase} votes {_shown(votes.counts)}; cast again they are {_shown(cast.counts)}",
            )


def _same(stated: Votes, cast: Tally) -> bool:
    soft = stated.sums is None or (stated.sums == cast.sums and stated.squares == cast.squares)
    return stated.counts == cast.counts and soft


def _shown(counts: Sequence[int]) -> str:
    """The classes with votes, most votes first."""
    voted = sorted((c for c, count in enumerate(counts) if count), key=lambda c: -counts[c])
    return ", ".join(f"{counts[c]} for class {c}" for c in voted[:3]) + (", …" if len(voted) > 3 else "")
