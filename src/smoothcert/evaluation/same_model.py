"""Whether a run is continued by the model that began it.

A run states the classes of noisy rows of its data set's first inputs: the same rows in every shard and whenever it is
continued, so that functions are compared where the users' data lie. A run that is continued asks again about inputs
that are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.engine.checking import noisy_rows
from smoothcert.engine.passes import Voter
from smoothcert.engine.schedule import Draw, Job, one_draw
from smoothcert.errors import RunError, SmoothcertError
from smoothcert.experimental.levels.classifier import LevelledClassifier
from smoothcert.models.outputs import read_ballots
from smoothcert.perturb.base import real_noise
from smoothcert.runs.records import Record, Records
from smoothcert.runs.side_files import LevelEvidence, SearchResult
from smoothcert.smoothing.classifier import ModelClassifier
from smoothcert.smoothing.holding import HoldingClassifier
from smoothcert.smoothing.planned_model import noisy_model
from smoothcert.tally import Phase, Tally
from smoothcert.threads import in_a_worker

_INPUTS, _ROWS = 8, 8
_HELD_INPUTS = 2  # as many as runs with held columns have always stated
_NONE = -1  # the class of rows that the model fails on, which is said when votes are cast on them


def first_answers(classifier: ModelClassifier | HoldingClassifier, dataset: Dataset) -> list[int]:
    """The classes of a few noisy rows of each of the first inputs, by every model that votes."""
    held = isinstance(classifier, HoldingClassifier)
    found = []
    for index in range(min(_HELD_INPUTS if held else _INPUTS, len(dataset))):
        try:
            x: NDArray[Any] = dataset.input(index)
        except (OSError, SmoothcertError):
            found.append(_NONE)
            continue
        for voter in _voters(classifier, index, x):
            found += _classes(voter)
    return found


def _voters(
    classifier: ModelClassifier | HoldingClassifier, index: int, x: NDArray[Any]
) -> Iterator[Voter | None]:
    """Every model's voter on an input; None where it can't have one, which is said when votes are cast on it."""
    if isinstance(classifier, HoldingClassifier):
        asked = [partial(classifier.voter, index, x)]
    else:
        asked = [
            partial(noisy_model(classifier.plan, prepared, classifier.engine).voter, index, x, noise)
            for prepared, noise in classifier.voters(x.shape)
        ]
    for ask in asked:
        try:
            yield ask()
        except SmoothcertError:
            yield None


def _classes(voter: Voter | None) -> list[int]:
    if voter is None:
        return [_NONE] * _ROWS
    passes, prepared = voter.passes, voter.passes.prepared
    try:
        rows = noisy_rows(voter, 0, _ROWS)
        answers = in_a_worker(lambda: prepared.outputs_of(rows[: passes.layout.chunk]))
        labels = read_ballots(answers, prepared.kind, prepared.classes, "hard").labels
        return [int(label) for label in labels]
    except Exception:  # foreign code
        return [_NONE] * _ROWS


LOOKED_AT = 64
"""Records done, of which the least certain are asked about again."""

_ASKED = 2
_ROUNDED = 50  # one vote in so many may change with another machine's rounding


def check_same_model(
    classifier: ModelClassifier | HoldingClassifier,
    dataset: Dataset,
    records: Records,
    out: Path,
    evidence: Mapping[int, LevelEvidence],
    found: Mapping[int, SearchResult],
) -> None:
    """Ask again about the least certain of the inputs that are done; refuse a model that answers otherwise.

    A fingerprint is of answers to fixed probes: at the scale of the data, a function may be another one. The model is
    asked without noise, and the votes that chose the class are cast again: at the noise that a search ``found``, where
    there was one, and on the coordinates that aren't held, where some are.
    ``evidence``: with σ levels, the votes of the chooser and of every level, each perhaps of a model of its own.
    """

    def sureness(record: Record) -> float:
        """The smallest share that the class or level ahead has of votes that chose it."""
        levels, tallies = evidence.get(record.index), [record.selection]
        if levels is not None:
            tallies += [levels.chosen, *(votes.selection for votes in levels.votes)]
        return min(max(tally.counts) / max(1, tally.n) for tally in tallies if tally is not None)

    voted = [record for record in records if record.selection is not None]
    for record in sorted(voted, key=sureness)[:_ASKED]:
        x = dataset.input(record.index)
        if record.base is not None and (base := classifier.whole.base_class(x)) != record.base:
            raise _refusal(out, record, "the model", f"class {record.base} without noise", str(base))
        evidence_of, found_of = evidence.get(record.index), found.get(record.index)
        for whose, stated, again in _chosen_again(classifier, record, x, evidence_of, found_of):
            if _moved(stated, again) > max(1, stated.n // _ROUNDED):
                raise _refusal(out, record, whose, f"the votes {stated.counts}", str(again.counts))


def _chosen_again(
    classifier: ModelClassifier | HoldingClassifier,
    record: Record,
    x: NDArray[Any],
    evidence: LevelEvidence | None,
    found: SearchResult | None,
) -> Iterator[tuple[str, Tally, Tally]]:
    """Whose votes they are, as the run has them, and as they are cast here."""
    if isinstance(classifier, LevelledClassifier):
        if evidence is not None:
            yield from classifier.chosen_again(record.index, x, evidence)
        return
    if isinstance(classifier, HoldingClassifier):
        voter = classifier.voter(record.index, x)
    else:
        plan = classifier.plan
        noise = None if found is None else found.noise_like(real_noise(plan.noise, "a search"))
        voter = classifier.voter(record.index, x, noise)
    draw = Draw(Phase.SELECTION, classifier.whole.plan.n0)
    (again,) = classifier.whole.engine.run([Job((voter,), one_draw(draw))])
    assert record.selection is not None
    yield "the model", record.selection, again.answer


def _moved(stated: Tally, found: Tally) -> float:
    if len(stated.counts) != len(found.counts) or stated.n != found.n:
        return float("inf")
    return sum(abs(a - b) for a, b in zip(stated.counts, found.counts)) / 2


def _refusal(out: Path, record: Record, whose: str, stated: str, found: str) -> RunError:
    return RunError(
        f"{out} can't be continued: asked again about input {record.index}, {whose} gives {found}, where the run has "
        f"{stated}. It isn't the model that the run was begun with, though its fingerprint is the same; choose another "
        "--out, or give that model"
    )
