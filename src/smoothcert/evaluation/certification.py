"""Certifying a data set into a run: resumable, one record per input, the same bits however it was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, DependentVotesError, InvalidValueError
from smoothcert.evaluation.same_model import LOOKED_AT, check_same_model, first_answers
from smoothcert.models.adapt import class_order
from smoothcert.perturb.base import Isotropic
from smoothcert.runs import side_files
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, open_run, read_run
from smoothcert.runs.statement import Choice, save_sigmas
from smoothcert.smoothing.answers import Certification, record_of
from smoothcert.smoothing.classifier import ModelClassifier, SmoothedClassifier
from smoothcert.smoothing.holding import HoldingClassifier, held_finely
from smoothcert.smoothing.inputs import as_numpy, is_loader, warn_if_small
from smoothcert.smoothing.plan import stated_numerics
from smoothcert.smoothing.procedures import shares_of
from smoothcert.smoothing.saving import certified_manifest, labelled_inputs
from smoothcert.smoothing.stopping.forecasts import allocate


@dataclass(frozen=True)
class Progress:
    """Progress callbacks, all optional."""

    begin: Callable[[int | None, int], None] | None = None
    """(votes to cast, None where the votes themselves will tell; inputs done before)"""
    votes: Callable[[int], None] | None = None
    """(votes just counted)"""
    record: Callable[[Record], None] | None = None


def certify_dataset(
    classifier: ModelClassifier | HoldingClassifier,
    dataset: Dataset | ArrayLike,
    out: str | Path,
    choice: Choice | None = None,
    progress: Progress | None = None,
    origin: dict[str, Any] | None = None,
    *,
    labels: ArrayLike | None = None,
    name: str = "data",
) -> Run:
    """Certify the chosen inputs of a data set into the run ``out``, continuing what is there already.

    ``dataset`` is a :class:`~smoothcert.Dataset`, or an array or table of inputs with ``labels`` (numbers, or as the
    model calls its classes) and a ``name`` for tables, or a torch ``DataLoader`` of inputs and targets.

    A record is on disk before its input counts as done. The run refuses another plan, model, data set or choice: what
    is stated of a run holds for inputs chosen before the first was looked at. ``origin``, where model and data were
    found, is kept for the record of a new run and takes no part in that. Where the plan searches for each input's σ,
    its record has that σ and ``sigma_search.jsonl`` says how it was found. Noise with a scale for each dimension is
    kept in ``sigmas.npy``. Where it spreads a total, ``allocation.json`` holds each input's number of votes before any
    of them is cast. Columns that are held have no noise, and the run states which: its certificates are about the
    others. What a plan leaves open of its numerics (the route, say) stays what a run that is continued has settled.
    """
    if not isinstance(choice, Choice | None):
        raise InvalidValueError(f"choice must be a Choice, got {type(choice).__name__}: labels go by labels=")
    choice, progress, out = choice or Choice(), progress or Progress(), Path(out)
    classifier, dataset = _labelled(classifier.voting, dataset, labels, name)
    if isinstance(classifier.whole.plan.noise, Isotropic) and classifier is classifier.whole:
        warn_if_small(classifier.whole.plan.noise.sigma, *dataset.value_range())
    held = classifier.mask(dataset.input_shape) if isinstance(classifier, HoldingClassifier) else None
    if held is not None and classifier.whole.plan.budget.spreads:
        raise InvalidValueError(
            f"while columns are held, each input has the plan's votes: leave {classifier.whole.plan.budget.text} out "
            "(--stop)"
        )
    # A copy: what is settled for this data set must not change the caller's classifier.
    classifier = copy(classifier.whole)
    classifier.settle_numerics(stated_numerics(out))
    fine = held is not None and held_finely(dataset, held)
    classifier.settle_for(dataset.levels, dataset.largest, fine=fine)
    order = class_order(classifier.base, dataset)
    classifier = classifier.in_order(order)
    if choice.shard is not None and classifier.plan.budget.spreads:
        raise InvalidValueError(
            f"shard {choice.shard} can't know its part of a total: --stop {classifier.plan.budget.text} spreads votes "
            "over all inputs. Certify them in one run, or leave --stop out"
        )
    voting = classifier if held is None else HoldingClassifier(classifier, held)
    classifier.plan.budget.check_inputs(len(choice.indices(len(dataset))), classifier.plan.n0)
    manifest = _manifest(voting, held, dataset, choice, origin or {}, order)
    with classifier, open_run(out, manifest) as journal:
        save_sigmas(out, classifier.plan.noise)
        done = journal.indices()
        # A record whose search or levels are damaged can't be told from one that others made: both are done again.
        evidence = side_files.read_evidence(out) if classifier.plan.sigma_levels is not None else {}
        found = side_files.read_searches(out) if classifier.plan.search is not None else {}
        if classifier.plan.search is not None or classifier.plan.sigma_levels is not None:
            journal.drop(lost := done - (found or evidence).keys())
            done -= lost
        indices = choice.indices(len(dataset))
        missing = [index for index in indices if index not in done]
        if done and missing:
            records = journal.some(LOOKED_AT)
            check_same_model(voting, dataset, records, out, evidence, found)
        del evidence, found  # of every input: not to be held while the others are certified
        if progress.begin is not None:
            plan, planned = classifier.plan, None
            if not plan.stops and plan.sigma_levels is None:
                searched = 0 if plan.search is None else plan.search.evaluations
                planned = len(missing) * (plan.n0 + plan.n + searched)
            progress.begin(planned, len(indices) - len(missing))
        taken: dict[int, NDArray[Any]] = {}
        answers = _answers(voting, dataset, out, indices, missing, taken, progress)
        for answer in _void_if_dependent(out, answers):
            base = voting.base_class(taken.pop(answer.index))
            label = int(dataset.labels[answer.index])
            if answer.evidence.search is not None:
                side_files.append_search(out, answer.evidence.search)
            if answer.evidence.levels is not None:
                side_files.append_evidence(out, answer.evidence.levels)
            record = record_of(answer, answer.index, label, base)
            journal.append(record)
            if progress.record is not None:
                progress.record(record)
    return read_run(out)


def _labelled(
    classifier: ModelClassifier | HoldingClassifier, data: Any, labels: ArrayLike | None, name: str
) -> tuple[ModelClassifier | HoldingClassifier, Dataset]:
    """A data set of what a caller has, and the classifier that knows what stands for the values of its columns."""
    if isinstance(data, Dataset):
        if labels is not None:
            raise InvalidValueError(f"{data.name} has labels, and labels= was given: leave it out")
        return classifier, data
    if is_loader(data) and labels is None:
        labels = np.concatenate([np.atleast_1d(as_numpy(batch[1])) for batch in data])
    if labels is None:
        raise InvalidValueError("a run needs labels=, one for each input")
    voting, inputs = classifier.for_inputs(data)
    assert isinstance(voting, ModelClassifier | HoldingClassifier)
    rows, _ = classifier.whole.split(inputs)
    return voting, labelled_inputs(rows, labels, classifier.whole.class_names, None, name)


def _void_if_dependent(out: Path, answers: Iterator[Certification]) -> Iterator[Certification]:
    """The answers; where the model fails its check, those stored before are marked as void."""
    try:
        yield from answers
    except DependentVotesError as error:
        RunFiles(out).mark_void(str(error))
        raise


def _answers(
    classifier: ModelClassifier | HoldingClassifier,
    dataset: Dataset,
    out: Path,
    indices: range,
    missing: list[int],
    taken: dict[int, NDArray[Any]],
    progress: Progress,
) -> Iterator[Certification]:
    """Certifications of the missing inputs, after pilots and an allocation where the plan spreads a total.

    Inputs under way are in ``taken``, so that they aren't read a second time.
    """

    def label_of(index: int) -> int:
        return int(dataset.labels[index])

    def inputs() -> Generator[tuple[int, NDArray[Any]]]:
        with closing(dataset.each(missing)) as read:
            for index, x in read:
                taken[index] = x
                yield index, x

    total = classifier.whole.plan.budget.shared_votes
    if not isinstance(classifier, SmoothedClassifier) or total is None:
        with closing(inputs()) as given:
            yield from classifier.certify_each(given, progress.votes, label_of)
        return
    votes = side_files.read_allocation(out, indices)
    piloted = {index: one for index, one in side_files.read_pilots(out).items() if index in indices}
    unknown = [index for index in indices if index not in piloted]
    for index, one in classifier.pilot_each(dataset.each(unknown), label_of, progress.votes):
        side_files.append_pilot(out, index, one)
        piloted[index] = one
    if votes is None:
        plan, spent = classifier.prepare(dataset.input_shape), sum(one.n for one in piloted.values())
        votes = dict.fromkeys(indices, 0) | allocate(shares_of(plan, piloted), total - spent)
        side_files.write_allocation(out, total, spent, votes)
    with closing(inputs()) as given:
        yield from classifier.certify_allocated(given, piloted, votes, label_of, progress.votes)


def _manifest(
    voting: ModelClassifier | HoldingClassifier,
    held: NDArray[np.bool_] | None,
    dataset: Dataset,
    choice: Choice,
    origin: dict[str, Any],
    order: tuple[int, ...] | None,
) -> Manifest:
    classifier = voting.whole
    some = (dataset.input(0),) if isinstance(voting, HoldingClassifier) else ()
    plan = voting.prepare(dataset.input_shape, *some)
    if classifier.classes < len(dataset.classes):
        raise DataError(
            f"{dataset.name} has {len(dataset.classes)} classes but {classifier.base.name} knows "
            f"{classifier.classes}: they don't belong together"
        )
    sha256, answers = classifier.fingerprint(dataset.input_shape), first_answers(voting, dataset)
    place = classifier.execution.device_kind, order, held
    return certified_manifest(
        plan, classifier.base, sha256, dataset, *place, choice, answers=answers, origin=origin
    )
