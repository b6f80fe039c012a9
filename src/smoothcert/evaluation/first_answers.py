"""What a run states of its model on its own data: classes of noisy rows of the data set's first inputs.

The same rows in every shard and whenever a run is continued, so that functions are compared where the users' data lie.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.errors import SmoothcertError
from smoothcert.noise import Noise
from smoothcert.sampling import Prepared
from smoothcert.sampling.ballots import read_ballots
from smoothcert.sampling.checking import CheckedInput, noisy_rows
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.threads import in_a_worker
from smoothcert.smoothing import SmoothedClassifier
from smoothcert.smoothing.holding import HoldingClassifier
from smoothcert.smoothing.voting import engine_for

_INPUTS, _ROWS = 8, 8
_HELD_INPUTS = 2  # each has a model of its own to be made ready
_NONE = -1  # the class of rows that the model fails on, which is said when votes are cast on them


def first_answers(classifier: SmoothedClassifier | HoldingClassifier, dataset: Dataset) -> list[int]:
    """The classes of a few noisy rows of each of the first inputs, by every model that votes."""
    held = isinstance(classifier, HoldingClassifier)
    found = []
    for index in range(min(_HELD_INPUTS if held else _INPUTS, len(dataset))):
        try:
            x: NDArray[Any] = dataset.input(index)
        except (OSError, SmoothcertError):
            found.append(_NONE)
            continue
        voting = classifier
        if isinstance(classifier, HoldingClassifier):
            voting, x, _ = classifier.free_part(index, x)
        assert isinstance(voting, SmoothedClassifier)
        for prepared, noise in voting.voters(x.shape):
            found += _classes(voting, prepared, noise, index, x)
    return found


def _classes(
    voting: SmoothedClassifier, prepared: Prepared, noise: Noise, index: int, x: NDArray[Any]
) -> list[int]:
    engine = engine_for(voting.plan, prepared, Execution(voting.execution.device))
    try:
        rows = noisy_rows(
            engine.passes, engine.seed, CheckedInput(index, engine.copies(index, x, noise)), 0, _ROWS
        )
        answers = in_a_worker(lambda: prepared.outputs_of(rows[: engine.passes.layout.chunk]))
        labels = read_ballots(answers, prepared.kind, prepared.classes, "hard").labels
        return [int(label) for label in labels]
    except Exception:  # foreign code
        return [_NONE] * _ROWS
