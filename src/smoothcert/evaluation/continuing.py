"""Whether a run that is continued is continued by the model that began it."""

from __future__ import annotations

from pathlib import Path

from smoothcert.datasets.base import Dataset
from smoothcert.errors import RunError
from smoothcert.runs import Record
from smoothcert.runs.columns import Records
from smoothcert.sampling import Draw, Execution, Job, one_draw
from smoothcert.smoothing import SmoothedClassifier
from smoothcert.smoothing.voting import engine_for
from smoothcert.tally import Phase, Tally

LOOKED_AT = 64
"""Records done, of which the least certain are asked about again."""

_ASKED = 2
_ROUNDED = 50  # one vote in so many may change with another machine's rounding


def check_same_model(
    classifier: SmoothedClassifier, dataset: Dataset, records: Records, out: Path, *, cast: bool
) -> None:
    """Ask again about the least certain of the inputs that are done; refuse a model that answers otherwise.

    A fingerprint is of answers to fixed probes: at the scale of the data, a function may be another one. ``cast``:
    whether the votes that chose the class can be cast again, at the plan's own noise; else the model is asked without.
    """
    voted = [record for record in records if record.selection is not None]
    for record in sorted(voted, key=_sureness)[:_ASKED]:
        x = dataset.input(record.index)
        if record.base is not None and classifier.base_class(x) != record.base:
            raise _refusal(out, record, f"class {record.base} without noise", str(classifier.base_class(x)))
        if not cast:
            continue
        plan, draw = classifier.plan, Draw(Phase.SELECTION, classifier.plan.n0)
        here = Execution(classifier.execution.device, classifier.execution.workers)
        engine = engine_for(plan, classifier.prepared(x.shape), here)
        (again,) = engine.run([Job(record.index, x, plan.noise, one_draw(draw))])
        stated, found = record.selection, again.answer
        assert stated is not None
        if _moved(stated, found) > max(1, stated.n // _ROUNDED):
            raise _refusal(out, record, f"the votes {stated.counts}", str(found.counts))


def _sureness(record: Record) -> float:
    assert record.selection is not None
    return max(record.selection.counts) / max(1, record.selection.n)


def _moved(stated: Tally, found: Tally) -> float:
    if len(stated.counts) != len(found.counts) or stated.n != found.n:
        return float("inf")
    return sum(abs(a - b) for a, b in zip(stated.counts, found.counts)) / 2


def _refusal(out: Path, record: Record, stated: str, found: str) -> RunError:
    return RunError(
        f"{out} can't be continued: asked again about input {record.index}, the model gives {found}, where the run has "
        f"{stated}. It isn't the model that the run was begun with, though its fingerprint is the same; choose another "
        "--out, or give that model"
    )
