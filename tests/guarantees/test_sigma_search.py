"""“σ may be chosen by looking, as long as the votes that certify weren't looked at.”"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri
from torch import nn

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.bounds.fixed import clopper_pearson_lower
from smoothcert.perturb.base import NOISES
from smoothcert.smoothing.procedures import certify_procedure
from smoothcert.smoothing.search.base import SigmaSearch
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch, GradientSearch
from smoothcert.smoothing.search.by_votes import GridSearch, LadderSearch
from tests.guarantees.closed_forms import HalfSpace
from tests.guarantees.exact import TooOftenError, assert_rate_within, exact_answers, probability

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


def chosen_sigmas(model: Any, search: SigmaSearch, **options: Any) -> set[float]:
    """The σ that searches for 24 inputs, all of them the origin, end at."""
    plan: dict[str, Any] = {
        "sigma": 0.5,
        "n0": 10,
        "n": 60,
        "alpha": ALPHA,
        "search": search,
        "input_shape": (2,),
    }
    classifier = SmoothedClassifier(model, **(plan | options))
    return {answer.sigma for answer in classifier.certify_each((i, np.zeros(2)) for i in range(24))}


ASCENT = GradientSearch(steps=10, lr=0.05, check_votes=8)
PUBLISHED_ASCENT = GradientSearch(steps=10, lr=0.05, check_votes=0)
PUBLISHED_GRID = GridSearch(budget=24, samples=4, top=2.0, check_votes=0, soft=True, whole=True)
BY_VOTES = [
    pytest.param(search, noise, id=f"{name}-{noise}")
    for name, search in (("ladder", SMALL_LADDER), ("grid", SMALL_GRID))
    for noise in ("gaussian", "uniform")
]
BY_SCORES = pytest.mark.parametrize(
    "search", [ASCENT, PUBLISHED_ASCENT, PUBLISHED_GRID], ids=["ascent", "published ascent", "published grid"]
)


def false_rate_at(sigma: float, noise: str, edge: float) -> float:
    """P[a certificate at this σ claims more than the margin], over fresh votes, whichever class was chosen."""
    p = float(ndtr(edge / sigma) if noise == "gaussian" else min(1.0, (1 + edge / (np.sqrt(3) * sigma)) / 2))
    plan = CertifyPlan(NOISES[noise](sigma), n0=10, n=60, alpha=ALPHA)

    def rate(selected: int) -> float:
        answers = exact_answers(lambda: certify_procedure(np.zeros(2), plan), p, selected=selected)
        return probability(answers, lambda a: not a.abstained and (a.predicted != 0 or a.radius > edge))

    return max(rate(0), rate(1))


def check_certificates(model: Any, search: SigmaSearch, **options: Any) -> None:
    """At every σ that the search ends at. That no vote of the search certifies is a test of its own."""
    sigmas = chosen_sigmas(model, search, **options)
    assert len(sigmas) > 1, "the search must have chosen, or nothing was tested"
    assert max(false_rate_at(sigma, options.get("noise", "gaussian"), 0.4) for sigma in sigmas) <= ALPHA


@pytest.mark.parametrize(("search", "noise"), BY_VOTES)
def test_certificates_hold_at_a_sigma_chosen_by_votes(search, noise):
    # A half-space under symmetric noise has the margin `edge` whatever σ is: choosing σ can't make a claim true.
    check_certificates(HalfSpace(0.4), search, noise=noise, outputs="labels", classes=2)


@BY_SCORES
def test_certificates_hold_at_a_sigma_found_by_scores(search):
    """Without a comparison with σ₀, as published, the search is worse, and the certificate as true."""
    check_certificates(Linear(0.4), search)


def test_certifying_the_votes_that_chose_sigma_would_not_hold():
    """The check has teeth: the forbidden short cut fails it."""
    rng, n, edge = np.random.default_rng(0), 60, 0.4
    sigmas = 0.5 * 2.0 ** np.arange(-2, 3)
    counts = rng.binomial(n, ndtr(edge / sigmas), size=(TRIALS, len(sigmas)))
    claimed = [
        max(s * ndtri(clopper_pearson_lower(int(k), n, ALPHA)) for k, s in zip(row, sigmas)) for row in counts
    ]
    with pytest.raises(TooOftenError):
        assert_rate_within(sum(radius > edge for radius in claimed), TRIALS, ALPHA)


class Tilted(nn.Module):
    """Class 0 where w·x < edge: an ellipsoid {‖δ ⊘ a‖ < 1} stays inside if and only if ‖a⊙w‖ ≤ edge."""

    def __init__(self, w: list[float], edge: float) -> None:
        super().__init__()
        self.w, self.edge = nn.Parameter(torch.tensor(w)), edge

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = 4 * (self.edge - x @ self.w)
        return torch.stack([score, -score], 1)


WEIGHTS = np.array([1.0, 0.2])


def certified_ellipsoids(inputs: int) -> list[Any]:
    """Answers about the origin, each at scales that a search of its own ended at."""
    classifier = SmoothedClassifier(
        Tilted(WEIGHTS.tolist(), 0.4),
        sigma=0.5,
        n0=10,
        n=60,
        alpha=ALPHA,
        seed=0,
        search=EllipsoidSearch(steps=15, lr=0.1, check_votes=8),
        input_shape=(2,),
    )
    return list(classifier.certify_each((i, np.zeros(2)) for i in range(inputs)))


def crosses(answer: Any, edge: float = 0.4) -> bool:
    """Whether a region holds a point of the other class. 1e-6: the model's weights are float32."""
    if answer.region is None:
        return False
    semi_axes = getattr(answer.region, "semi_axes", answer.radius)
    return bool(np.linalg.norm(semi_axes * WEIGHTS) > edge * (1 + 1e-6))


def test_ellipsoids_hold_at_scales_found_by_gradients():
    """Exactly, at every vector of scales that the search of twelve inputs ended at."""
    noises = [answer.search.noise for answer in certified_ellipsoids(12) if answer.search.noise is not None]
    assert len(noises) > 3, "the search must have stretched, or nothing was tested"
    for noise in noises:
        p = float(ndtr(0.4 / np.linalg.norm(noise.sigmas * WEIGHTS)))
        plan = CertifyPlan(noise, n0=10, n=60, alpha=ALPHA)
        found = exact_answers(lambda plan=plan: certify_procedure(np.zeros(2), plan), p, selected=0)
        assert probability(found, crosses) <= ALPHA
