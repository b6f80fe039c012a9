"""“Selection and estimation never share votes”, nor do searches, pilots and fits: streams differ, mixing is refused."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from smoothcert import CertifyPlan, Gaussian, SmoothedClassifier
from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load
from smoothcert.engine.execution import Execution
from smoothcert.engine.schedule import BlockBits, stream_words
from smoothcert.errors import InvalidValueError
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.perturb.gaussian import DiagonalGaussian
from smoothcert.perturb.grid import Grid, on_grid
from smoothcert.smoothing.fits.fit import validate
from smoothcert.smoothing.fits.plan import FitPlan
from smoothcert.smoothing.procedures import decide
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch
from smoothcert.smoothing.search.by_votes import LadderSearch
from smoothcert.tally import Phase, Stream, Tally
from tests.guarantees.test_sigma_search import ASCENT, PUBLISHED_GRID, SMALL_GRID, SMALL_LADDER, Linear
from tests.smoothing.search.problems import problem

PLAN = CertifyPlan(Gaussian(1.0), n0=10, n=100, seed=3)


def votes(phase: Phase, counts: tuple[int, ...], index: int = 0, seed: int = 3, start: int = 0) -> Tally:
    return Tally(Stream(seed, index, phase), start, start + sum(counts), counts)


def test_votes_that_were_not_asked_for_are_refused():
    for selection, estimation, values in [
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (53, 0)), "100.*53"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (101, 0)), "100.*101"),
        (votes(Phase.SELECTION, (9, 0)), votes(Phase.ESTIMATION, (100, 0)), "10.*9"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (100, 0), seed=4), "4"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (100, 0), start=5), "5 to 105"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (100, 0), index=1), "0.*1"),
        (votes(Phase.SELECTION, (10, 0, 0)), votes(Phase.ESTIMATION, (100, 0)), "3"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (0, 0)), "0"),
        (votes(Phase.ESTIMATION, (10, 0)), votes(Phase.ESTIMATION, (100, 0)), "selection.*estimation"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.SELECTION, (100, 0)), "estimation.*selection"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.PILOT, (100, 0)), "estimation.*pilot"),
        (votes(Phase.PREDICTION, (10, 0)), votes(Phase.ESTIMATION, (100, 0)), "selection.*prediction"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.PREDICTION, (100, 0)), "estimation.*prediction"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.SEARCH, (100, 0)), "estimation.*search"),
        (votes(Phase.SEARCH, (10, 0)), votes(Phase.ESTIMATION, (100, 0)), "selection.*search"),
    ]:
        with pytest.raises(InvalidValueError, match=values):
            decide(np.zeros(2), PLAN, selection, estimation)


def test_every_block_has_a_state_of_its_own():
    blocks = [*range(40), *(1 << 40 | step for step in range(10))]  # those that a search draws, too
    states = {
        stream_words(Stream(seed, index, phase), block).tobytes()
        for seed in range(3)
        for index in range(40)
        for phase in Phase
        for block in blocks
    }
    assert len(states) == 3 * 40 * len(Phase) * len(blocks)


def test_certify_draws_its_two_tallies_from_different_noise():
    seen: list[np.ndarray] = []

    def model(batch: np.ndarray) -> np.ndarray:
        seen.append(batch.copy())
        return np.zeros(len(batch), dtype=np.int64)

    classifier = SmoothedClassifier(model, sigma=1.0, n0=64, n=64, outputs="labels", classes=2)
    classifier.prepare((4,))
    seen.clear()
    answer = classifier.certify(np.zeros((1, 4)))[0]
    assert answer.selection.stream != answer.estimation.stream
    selection, estimation = (batch[:64] for batch in seen[-2:])  # after the check of the first inputs
    assert not {row.tobytes() for row in selection} & {row.tobytes() for row in estimation}


def test_blocks_are_independent_normals():
    bits, noise = BlockBits(), on_grid(Gaussian(1.0), Grid.of(None), (16,))
    steps = np.empty((2000, 16))
    for block, row in enumerate(steps):
        noise.sampler.draw(row, bits.seek(Stream(0, 0, Phase.ESTIMATION), block))
    values = (steps + np.random.default_rng(0).uniform(-0.5, 0.5, steps.shape)) / noise.steps_per_unit
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-4
    neighbours = np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1]
    assert abs(neighbours) < 5 / np.sqrt(values.size)


@pytest.mark.parametrize(
    "search",
    [SMALL_LADDER, SMALL_GRID, ASCENT, PUBLISHED_GRID, EllipsoidSearch(steps=3, lr=0.1, check_votes=8)],
    ids=["ladder", "grid", "ascent", "published grid", "ellipsoid"],
)
def test_a_search_draws_from_streams_of_its_own_alone(search, monkeypatch):
    drawn: set[Phase] = set()
    seek = BlockBits.seek

    def noting(self: BlockBits, stream: Stream, block: int) -> Any:
        drawn.add(stream.phase)
        return seek(self, stream, block)

    asked = problem(Linear(0.4), (2,), n0=10, n=60)
    monkeypatch.setattr(BlockBits, "seek", noting)
    search.search(asked, [(3, np.zeros(2))])
    assert drawn == {Phase.SEARCH}


def test_the_ellipsoid_s_comparison_sees_samples_that_its_ladder_has_not():
    from smoothcert.smoothing.search import by_gradient

    most = LadderSearch().votes + LadderSearch().rounds * LadderSearch().round_votes
    assert most < by_gradient._FRESH
    # Samples share a random state in blocks; the steps of the ascent draw blocks beyond all of them.
    assert by_gradient._FRESH + 10**9 < by_gradient._SHAPE_STEPS


@pytest.mark.parametrize("seed", [0, 7])
def test_validation_draws_no_vote_that_certify_draws(digits_model, monkeypatch, seed):
    module, _ = load_model(digits_model)
    data, sigmas = load("digits", "test"), np.full((1, 8, 8), 0.25)
    seen: list[Any] = []
    certify_each = SmoothedClassifier.certify_each

    def spying(self: SmoothedClassifier, *words: Any, **options: Any) -> Any:
        for answer in certify_each(self, *words, **options):
            seen.append(answer)
            yield answer

    monkeypatch.setattr(SmoothedClassifier, "certify_each", spying)
    plan = FitPlan(init=0.25, seed=seed, validation_n0=32, validation_n=256)
    validate(TorchClassifier(module, "m"), data, np.arange(6), sigmas, plan, Execution(workers=1))
    validated, seen = seen, []
    monkeypatch.setattr(SmoothedClassifier, "certify_each", certify_each)
    statement = CertifyPlan(DiagonalGaussian(sigmas), bound="clopper-pearson", n0=32, n=256, seed=seed)
    certified = SmoothedClassifier(module, statement).certify_each((i, data.input(i)) for i in range(6))
    streams = {tally.stream for answer in certified for tally in (answer.selection, answer.estimation)}
    fitted = {tally.stream for answer in validated for tally in (answer.selection, answer.estimation)}
    assert len(fitted) == len(streams) == 12
    assert not fitted & streams
