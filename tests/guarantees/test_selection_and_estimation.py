"""“Selection and estimation never share votes”: streams are distinct, and the code refuses to mix them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from smoothcert import CertifyPlan, Gaussian, SmoothedClassifier
from smoothcert.errors import InvalidValueError
from smoothcert.noise import Grid, on_grid
from smoothcert.sampling.streams import BlockBits, stream_words
from smoothcert.smoothing import decide
from smoothcert.tally import Phase, Stream, Tally


def tally(phase: Phase, index: int = 0) -> Tally:
    return Tally(Stream(0, index, phase), 0, 10, (10, 0))


@pytest.mark.parametrize(
    ("selection", "estimation"),
    [
        (tally(Phase.ESTIMATION), tally(Phase.ESTIMATION)),
        (tally(Phase.SELECTION), tally(Phase.SELECTION)),
        (tally(Phase.SELECTION), tally(Phase.PREDICTION)),
        (tally(Phase.SELECTION, 1), tally(Phase.ESTIMATION, 2)),
    ],
)
def test_votes_used_twice_are_refused(selection: Tally, estimation: Tally) -> None:
    with pytest.raises(InvalidValueError):
        decide(np.zeros(2), CertifyPlan(Gaussian(1.0)), selection, estimation)


def test_every_block_has_a_state_of_its_own() -> None:
    states = {
        stream_words(Stream(seed, index, phase), block).tobytes()
        for seed in range(3)
        for index in range(40)
        for phase in Phase
        for block in range(40)
    }
    assert len(states) == 3 * 40 * len(Phase) * 40


def test_certify_draws_its_two_tallies_from_different_noise() -> None:
    seen: list[np.ndarray] = []

    def model(batch: np.ndarray) -> np.ndarray:
        seen.append(batch.copy())
        return np.zeros(len(batch), dtype=np.int64)

    classifier = SmoothedClassifier(model, sigma=1.0, n0=64, n=64, outputs="labels", classes=2)
    classifier.prepare((4,))
    seen.clear()
    answer = classifier.certify_batch(np.zeros((1, 4)))[0]
    assert answer.selection.stream != answer.estimation.stream
    selection, estimation = (batch[:64] for batch in seen[-2:])  # after the check of the first inputs
    assert not {row.tobytes() for row in selection} & {row.tobytes() for row in estimation}


def test_blocks_are_independent_normals() -> None:
    bits, noise = BlockBits(), on_grid(Gaussian(1.0), Grid.of(None), (16,))
    steps = np.empty((2000, 16))
    for block, row in enumerate(steps):
        noise.sampler.draw(row, bits.seek(Stream(0, 0, Phase.ESTIMATION), block))
    values = (steps + np.random.default_rng(0).uniform(-0.5, 0.5, steps.shape)) / noise.steps_per_unit
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-4
    neighbours = np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1]
    assert abs(neighbours) < 5 / np.sqrt(values.size)
