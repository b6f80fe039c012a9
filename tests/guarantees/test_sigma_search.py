"""“σ may be chosen by looking, as long as the votes that certify weren't looked at.”"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri
from torch import nn

from smoothcert import CertifyPlan, Gaussian, SmoothedClassifier
from smoothcert.bounds import clopper_pearson_lower
from smoothcert.errors import InvalidValueError
from smoothcert.regions import Ellipsoid
from smoothcert.sampling.streams import stream_words
from smoothcert.sigma_search import EllipsoidSearch, GradientSearch, GridSearch, LadderSearch, SigmaSearch
from smoothcert.smoothing import decide
from smoothcert.tally import Phase, Stream, Tally
from tests.guarantees.closed_forms import HalfSpace
from tests.guarantees.coverage import assert_rate_within
from tests.sigma_search.problems import problem

ALPHA = 0.1
TRIALS = 600

SMALL_LADDER = LadderSearch(rungs=5, votes=8, rounds=1, round_votes=12)
SMALL_GRID = GridSearch(budget=24, samples=4, top=2.0, check_votes=8)


class Linear(nn.Module):
    """Class 0 where the first coordinate is below ``edge``, with logits that grow with the distance."""

    def __init__(self, edge: float) -> None:
        super().__init__()
        self.edge = nn.Parameter(torch.tensor(edge))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = 2 * (self.edge - x[:, 0])
        return torch.stack([score, -score], 1)


def false_certificates(
    model: Any, edge: float, search: SigmaSearch, **options: Any
) -> tuple[int, set[float]]:
    """How many certificates of the origin claim more than the true margin, and the σ they were given at."""
    plan: dict[str, Any] = {
        "sigma": 0.5,
        "n0": 10,
        "n": 60,
        "alpha": ALPHA,
        "search": search,
        "input_shape": (2,),
    }
    classifier = SmoothedClassifier(model, **(plan | options))
    answers = list(classifier.certify_each((i, np.zeros(2)) for i in range(TRIALS)))
    assert len(answers) == TRIALS
    return sum(a.radius > edge for a in answers), {a.sigma for a in answers}


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
@pytest.mark.parametrize("search", [SMALL_LADDER, SMALL_GRID], ids=["ladder", "grid"])
def test_certificates_hold_at_a_sigma_chosen_by_votes(search: SigmaSearch, noise: str) -> None:
    # A half-space under symmetric noise has the margin `edge` whatever σ is: choosing σ can't make a claim true.
    false, sigmas = false_certificates(HalfSpace(0.4), 0.4, search, noise=noise, outputs="labels", classes=2)
    assert len(sigmas) > 3, "the search must have chosen, or nothing was tested"
    assert_rate_within(false, TRIALS, ALPHA)


def test_certificates_hold_at_a_sigma_found_by_gradients() -> None:
    search = GradientSearch(steps=10, lr=0.05, check_votes=8)
    false, sigmas = false_certificates(Linear(0.4), 0.4, search)
    assert len(sigmas) > 3
    assert_rate_within(false, TRIALS, ALPHA)


@pytest.mark.parametrize(
    "search",
    [
        pytest.param(
            GradientSearch(steps=10, lr=0.05, check_votes=0), marks=[pytest.mark.slow, pytest.mark.campaign]
        ),
        GridSearch(budget=24, samples=4, top=2.0, check_votes=0, soft=True, whole=True),
    ],
    ids=["ascent", "grid"],
)
def test_certificates_hold_where_the_published_search_ends(search: SigmaSearch) -> None:
    """Without a comparison with σ₀ the search is worse, and the certificate as true."""
    false, sigmas = false_certificates(Linear(0.4), 0.4, search)
    assert len(sigmas) > 3
    assert_rate_within(false, TRIALS, ALPHA)


def test_certifying_the_votes_that_chose_sigma_would_not_hold() -> None:
    """The check has teeth: the forbidden short cut fails it."""
    rng, n, edge = np.random.default_rng(0), 60, 0.4
    sigmas = 0.5 * 2.0 ** np.arange(-2, 3)
    counts = rng.binomial(n, ndtr(edge / sigmas), size=(TRIALS, len(sigmas)))
    claimed = [
        max(s * ndtri(clopper_pearson_lower(int(k), n, ALPHA)) for k, s in zip(row, sigmas)) for row in counts
    ]
    with pytest.raises(AssertionError, match="more than alpha"):
        assert_rate_within(sum(radius > edge for radius in claimed), TRIALS, ALPHA)


def test_search_votes_can_not_certify() -> None:
    selection = Tally(Stream(0, 0, Phase.SELECTION), 0, 10, (10, 0))
    searched = Tally(Stream(0, 0, Phase.SEARCH), 0, 10, (10, 0))
    plan = CertifyPlan(Gaussian(1.0))
    for first, second in ((selection, searched), (searched, Tally(selection.stream, 0, 10, (10, 0)))):
        with pytest.raises(InvalidValueError, match="votes of its own stream"):
            decide(np.zeros(2), plan, first, second)


def test_streams_of_the_search_are_its_own() -> None:
    blocks = [*range(50), *(1 << 40 | step for step in range(50))]
    states = {
        stream_words(Stream(0, index, phase), block).tobytes()
        for index in range(10)
        for phase in Phase
        for block in blocks
    }
    assert len(states) == 10 * len(Phase) * len(blocks)


@pytest.mark.parametrize("search", [SMALL_LADDER, SMALL_GRID], ids=["ladder", "grid"])
def test_no_draw_of_the_search_certifies(search: SigmaSearch) -> None:
    seen: list[np.ndarray] = []

    def model(batch: np.ndarray) -> np.ndarray:
        first = np.where(batch[:, :1] == 0, 1.0, batch[:, :1])
        seen.append(np.unique(batch / first, axis=0))  # directions: the same whatever σ multiplies
        return (batch[:, 0] >= 0.4).astype(np.int64)

    options: dict[str, Any] = {"sigma": 1.0, "outputs": "labels", "classes": 2, "n0": 64, "n": 128}
    asked = problem(model, (6,), **options)
    classifier = SmoothedClassifier(model, **options)
    classifier.prepare((6,))

    def directions() -> set[tuple[float, ...]]:
        found = {tuple(row) for batch in seen for row in batch.round(4)[:, 1:].tolist()}
        seen.clear()
        return found

    directions()
    search.search(asked, [(3, np.zeros(6))])
    searched = directions()
    classifier.certify_batch(np.zeros((1, 6)), index=3)
    certified = directions()
    assert len(searched) >= 8
    assert len(certified) >= 192
    assert not searched & certified


class Tilted(nn.Module):
    """Class 0 where w·x < edge: an ellipsoid {‖δ ⊘ a‖ < 1} stays inside if and only if ‖a⊙w‖ ≤ edge."""

    def __init__(self, w: list[float], edge: float) -> None:
        super().__init__()
        self.w, self.edge = nn.Parameter(torch.tensor(w)), edge

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = 4 * (self.edge - x @ self.w)
        return torch.stack([score, -score], 1)


@pytest.mark.slow
def test_ellipsoids_hold_at_scales_found_by_gradients() -> None:
    trials = TRIALS // 2  # each finds scales of its own, whose tables take as long as its votes
    w, edge = np.array([1.0, 0.2]), 0.4
    search = EllipsoidSearch(steps=15, lr=0.1, check_votes=8)
    classifier = SmoothedClassifier(
        Tilted([1.0, 0.2], edge),
        sigma=0.5,
        n0=10,
        n=60,
        alpha=ALPHA,
        seed=0,
        search=search,
        input_shape=(2,),
    )
    answers = list(classifier.certify_each((i, np.zeros(2)) for i in range(trials)))
    regions = [answer.region for answer in answers if isinstance(answer.region, Ellipsoid)]
    assert len(regions) > trials // 4, "the search must have stretched, or nothing was tested"
    # 1e-6: the model's weights are float32.
    false = sum(float(np.linalg.norm(region.semi_axes * w)) > edge * (1 + 1e-6) for region in regions)
    balls = [a.radius for a in answers if a.region is not None and not isinstance(a.region, Ellipsoid)]
    false += sum(radius * float(np.linalg.norm(w)) > edge * (1 + 1e-6) for radius in balls)
    assert_rate_within(false, trials, ALPHA)


def test_the_ellipsoid_s_comparison_sees_samples_that_its_ladder_has_not() -> None:
    from smoothcert.sigma_search import ellipsoid

    most = LadderSearch().votes + LadderSearch().rounds * LadderSearch().round_votes
    assert most < ellipsoid._FRESH
    # Samples share a random state in blocks; the steps of the ascent draw blocks beyond all of them.
    assert ellipsoid._FRESH + 10**9 < ellipsoid._STEPS_FROM
