"""What each search does where the answer is known; what all of them promise: test_contract.py."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri
from torch import nn

from smoothcert import CertifyPlan, Gaussian, SmoothedClassifier
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.smoothing.search.by_gradient import GradientSearch, PackageSearch
from smoothcert.smoothing.search.by_votes import GridSearch, LadderSearch, PaperGridSearch
from tests.guarantees.closed_forms import HalfSpace
from tests.guarantees.exact import hard_tally
from tests.smoothing.search.problems import Sure, labels, origin, problem


class BadSlope(nn.Module):
    """Its values are numbers and its gradients aren't."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        odd = torch.sqrt(0 * x[:, 0])
        return torch.stack([1 + odd, odd], 1)


def test_gradient_steps_are_the_papers():
    # Confident everywhere: both means are clamped, so each step adds lr/2 (Φ⁻¹(.98) − Φ⁻¹(.02)).
    (found,) = GradientSearch(steps=900, check_votes=16).search(problem(Sure()), origin(3))
    assert found.sigma == pytest.approx(0.5 + 900 * 1e-4 * ndtri(0.98), rel=1e-5)
    assert found.evaluations == 2 * 900 + 4 * 16
    (found,) = GradientSearch(steps=100, check_votes=16).search(problem(Sure(), noise="uniform"), origin(3))
    assert found.sigma == pytest.approx(0.5 + 100 * 1e-4 * 3**0.5, rel=1e-5)


class Disc(nn.Module):
    """Class 0 near the origin, class 1 around it, surer the farther from the edge at 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = 4 * (1 - (x**2).sum(1))
        return torch.stack([inside, -inside], 1)


def test_as_published_the_ascent_is_not_compared_with_the_start():
    (found,) = GradientSearch(steps=900, check_votes=0).search(problem(Sure()), origin(3))
    assert found.sigma == pytest.approx(0.5 + 900 * 1e-4 * ndtri(0.98), rel=1e-5)
    assert (found.reason, found.start_radius, found.radius) == ("unchecked", None, None)
    assert found.evaluations == GradientSearch(check_votes=0).evaluations == 2 * 900

    # A step too large ends where there is no majority: the comparison goes back, the papers' ascent doesn't.
    asked, ends = problem(Disc(), sigma=0.3), []
    for check_votes in (64, 0):
        (one,) = GradientSearch(steps=1, lr=0.4, check_votes=check_votes).search(asked, origin(0))
        ends.append((one.sigma, one.reason))
    (back, why), (there, _) = ends
    assert (back, why) == (0.3, "no gain")
    assert there > 0.8


def test_as_published_the_ascent_stays_at_the_end_of_the_range():
    (up,) = GradientSearch(steps=5, lr=10.0, check_votes=0).search(problem(Sure()), origin(0))
    assert (up.sigma, up.reason) == (2.0, "unchecked")
    (kept,) = GradientSearch(steps=5, check_votes=0).search(problem(BadSlope()), origin(0))
    assert (kept.sigma, kept.reason) == (0.5, "not finite")


class Doubtful(nn.Module):
    """Always class 0, with a probability that falls from 0.9 to ½ with the distance from the origin."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = 0.5 + 0.4 * torch.exp(-20 * (x**2).sum(1))
        return torch.stack([first, 1 - first], 1).log()


def test_the_published_grid_weighs_probabilities_over_its_whole_range():
    asked, where = problem(Doubtful(), (6,), sigma=0.05), origin(0, dimensions=6)
    published: dict[str, Any] = {"check_votes": 0, "soft": True, "whole": True}
    (hard,) = GridSearch(check_votes=0, whole=True, samples=10).search(asked, where)
    assert hard.sigma == 1.0  # every vote is for class 0: the larger σ, the better
    (soft,) = GridSearch(samples=10, **published).search(asked, where)
    assert soft.sigma < 0.3
    assert (soft.reason, soft.evaluations) == ("unchecked", 200)
    (near,) = GridSearch(samples=10, check_votes=0).search(asked, where)
    assert near.sigma == 0.2  # four times the start, and no farther


class Turning(nn.Module):
    """Class 0 near the origin; farther out class 1, with more confidence than class 0 ever had."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near = (x**2).sum(1) < 0.25
        return torch.where(near[:, None], torch.tensor([0.8, 0.2]), torch.tensor([0.02, 0.98])).log()


def test_the_papers_grid_is_about_one_class_at_every_sigma():
    asked, where = problem(Turning(), sigma=0.1), origin(0)
    (free,) = GridSearch(samples=10, check_votes=0, soft=True, whole=True).search(asked, where)
    (fixed,) = PaperGridSearch(samples=10).search(asked, where)
    assert free.sigma > 0.6  # the largest radius is another class's
    assert fixed.sigma < 0.3  # Eq. 4: the class at σ₀ has none there
    assert (fixed.reason, fixed.evaluations) == ("unchecked", PaperGridSearch(samples=10).evaluations)
    assert PaperGridSearch(samples=10).evaluations == 200 + 100


def test_the_packages_defaults_are_those_of_its_release():
    search = PackageSearch()
    assert (search.steps, search.lr, search.samples, search.check_votes) == (900, 0.04, 100, 0)
    # Confident everywhere: both means are clamped at .001 and .999, the papers at .02 and .98.
    (found,) = PackageSearch(steps=1, samples=1).search(problem(Sure()), origin(0))
    assert found.sigma == pytest.approx(0.5 + 0.04 * ndtri(0.999), rel=1e-5)


def test_an_ascent_without_numbers_or_range_is_given_up():
    (up,) = GradientSearch(steps=5, lr=10.0).search(problem(Sure()), origin(0))
    assert (up.sigma, up.reason, up.radius) == (0.5, "out of range", None)
    (found,) = GradientSearch(steps=5).search(problem(BadSlope()), origin(0))
    assert (found.sigma, found.reason) == (0.5, "not finite")


def test_gradients_are_refused_where_there_are_none():
    class Detached(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x[:, 0], -x[:, 0]], 1).detach()

    with pytest.raises(ModelError, match=r"Detached.*'ladder'.*'grid'"):
        GradientSearch(steps=2).search(problem(Detached()), origin(0))
    with pytest.raises(InvalidValueError, match=r"HalfSpace.*'ladder'.*'grid'"):
        SmoothedClassifier(HalfSpace(0.4), sigma=0.5, search=GradientSearch(), **labels())


def test_the_ladder_comes_close_to_the_best_sigma_of_a_half_space():
    edge, n = 0.8, 10_000
    asked = problem(HalfSpace(edge), n=n, **labels())

    def certified(sigma: float) -> float:
        count = int(n * ndtr(edge / sigma))
        bounds = asked.bound(hard_tally([count, n - count]), 0, asked.alpha)
        return Gaussian(sigma).certificate.radius(bounds)

    best = max(certified(float(s)) for s in np.geomspace(0.125, 2, 41))
    found = LadderSearch().search(asked, origin(*range(20)))
    reached = np.mean([certified(one.sigma) for one in found])
    assert reached > 0.97 * best
    assert reached > certified(0.125) * 1.2


def test_the_ladder_stops_early_when_nothing_moves():
    found = LadderSearch(rounds=6).search(problem(Sure()), origin(*range(4)))
    assert {one.sigma for one in found} == {2.0}
    assert all(one.evaluations < LadderSearch(rounds=6).evaluations for one in found)


def test_abstentions_can_be_rescued():
    def middle(batch: np.ndarray) -> np.ndarray:
        return np.where(np.abs(batch[:, 0]) > 0.3, 1 + (batch[:, 0] > 0), 0)

    options: dict[str, Any] = {"outputs": "labels", "classes": 3, "sigma": 0.6}
    (kept,) = LadderSearch().search(problem(middle, **options), origin(0))
    (moved,) = LadderSearch(rescue=True).search(problem(middle, **options), origin(0))
    assert (kept.reason, kept.sigma) == ("abstains", 0.6)
    assert moved.reason == "improved"
    assert moved.sigma < 0.3


def test_knobs_out_of_range_are_named():
    wrong: tuple[tuple[Any, str, float], ...] = (
        (GradientSearch, "steps", 0),
        (GradientSearch, "lr", 0.0),
        (GradientSearch, "check_votes", -1),
        (GridSearch, "top", -1.0),
        (LadderSearch, "rungs", 2),
        (LadderSearch, "round_votes", 2),
    )
    for search, knob, value in wrong:
        with pytest.raises(InvalidValueError, match=rf"\b{knob}\b.*{value}"):
            search(**{knob: value})


def test_certification_uses_the_sigma_found_and_states_the_search():
    classifier = SmoothedClassifier(Sure(), sigma=0.5, n=1000, search=LadderSearch(votes=16, round_votes=48))
    answer = classifier.certify(np.zeros(2))
    assert answer.sigma == answer.search.sigma == 2.0
    assert answer.radius == pytest.approx(Gaussian(2.0).certificate.radius(answer.bounds))
    plain = SmoothedClassifier(Sure(), sigma=0.5, n=1000).certify(np.zeros(2))
    assert (plain.sigma, plain.search) == (0.5, None)
    classifier = SmoothedClassifier(Sure(), sigma=0.5, search=LadderSearch())
    with pytest.raises(InvalidValueError, match="search"):
        classifier.predict(np.zeros(2))
    assert not any("search" in key or key == "stateful" for key in CertifyPlan(Gaussian(0.5)).as_json())
    stated = CertifyPlan(Gaussian(0.5), search=LadderSearch(rounds=3)).as_json()
    assert (stated["sigma_search"], stated["sigma_search.rounds"], stated["stateful"]) == ("ladder", 3, False)
