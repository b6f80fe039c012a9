"""Whether a run that is continued is continued by the model that began it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.errors import RunError
from smoothcert.runs import Record
from smoothcert.runs.columns import Records
from smoothcert.sampling import Draw, Execution, Job, one_draw
from smoothcert.sigma_levels import LevelEvidence
from smoothcert.sigma_search import SearchResult
from smoothcert.smoothing import SmoothedClassifier
from smoothcert.smoothing.holding import HoldingClassifier
from smoothcert.smoothing.levelled import LevelledClassifier
from smoothcert.smoothing.voting import engine_for
from smoothcert.tally import Phase, Tally

LOOKED_AT = 64
"""Records done, of which the least certain are asked about again."""

_ASKED = 2
_ROUNDED = 50  # one vote in so many may change with another machine's rounding


def check_same_model(
    classifier: SmoothedClassifier | HoldingClassifier,
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
    whole = classifier.classifier if isinstance(classifier, HoldingClassifier) else classifier

    def sureness(record: Record) -> float:
        return min(map(_share_of_first, _votes_that_chose(record, evidence.get(record.index))))

    voted = [record for record in records if record.selection is not None]
    for record in sorted(voted, key=sureness)[:_ASKED]:
        x = dataset.input(record.index)
        if record.base is not None and (base := whole.base_class(x)) != record.base:
            raise _refusal(out, record, "the model", f"class {record.base} without noise", str(base))
        index = record.index
        for whose, stated, again in _chosen_again(
            classifier, record, x, evidence.get(index), found.get(index)
        ):
            if _moved(stated, again) > max(1, stated.n // _ROUNDED):
                raise _refusal(out, record, whose, f"the votes {stated.counts}", str(again.counts))


def _votes_that_chose(record: Record, evidence: LevelEvidence | None) -> list[Tally]:
    found = [record.selection]
    if evidence is not None:
        found += [evidence.chosen, *(one.selection for one in evidence.votes)]
    return [tally for tally in found if tally is not None]


def _share_of_first(votes: Tally) -> float:
    return max(votes.counts) / max(1, votes.n)


def _chosen_again(
    classifier: SmoothedClassifier | HoldingClassifier,
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
        classifier, x, _ = classifier.free_part(record.index, x)
    plan, draw = classifier.plan, Draw(Phase.SELECTION, classifier.plan.n0)
    noise = plan.noise if found is None else found.noise_like(plan.noise)
    here = Execution(classifier.execution.device, classifier.execution.workers)
    engine = engine_for(plan, classifier.prepared(x.shape), here)
    (again,) = engine.run([Job(record.index, x, noise, one_draw(draw))])
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
