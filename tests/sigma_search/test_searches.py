"""What every search promises, and what each does where the answer is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri
from torch import nn

from smoothcert import CertifyPlan, Execution, Gaussian, SmoothedClassifier
from smoothcert.architectures.weights import load_model
from smoothcert.certificates import certificate_for
from smoothcert.datasets import load
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.sigma_search import (
    SEARCHES,
    EllipsoidSearch,
    GradientSearch,
    GridSearch,
    LadderSearch,
    SigmaSearch,
)
from tests.guarantees.closed_forms import HalfSpace
from tests.guarantees.coverage import hard_tally
from tests.sigma_search.problems import labels, origin, problem

QUICK: dict[str, SigmaSearch] = {
    "ellipsoid": EllipsoidSearch(steps=8, rows=8, check_votes=32),
    "gradient": GradientSearch(steps=8, lr=0.01, rows=8, check_votes=32),
    "grid": GridSearch(budget=64, samples=4, check_votes=32),
    "ladder": LadderSearch(votes=16, round_votes=48),
}


class Sure(nn.Module):
    """Always class 0, with full confidence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([10 + 0 * x[:, 0], -10 + 0 * x[:, 0]], 1)


class BadSlope(nn.Module):
    """Its values are numbers and its gradients aren't."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        odd = torch.sqrt(0 * x[:, 0])
        return torch.stack([1 + odd, odd], 1)


def test_every_search_is_tested() -> None:
    assert set(QUICK) == set(SEARCHES)


@pytest.mark.parametrize("name", SEARCHES.names())
class TestEverySearch:
    def test_is_a_frozen_dataclass_with_defaults(self, name: str) -> None:
        search = SEARCHES[name]()
        assert dataclasses.replace(search) == search
        with pytest.raises(dataclasses.FrozenInstanceError):
            search.factor = 2.0  # type: ignore[misc]
        stated = search.as_json()
        assert stated["sigma_search"] == name
        assert {f"sigma_search.{f.name}" for f in dataclasses.fields(search)} == set(stated) - {
            "sigma_search"
        }

    def test_the_batch_the_order_and_the_workers_change_nothing(self, name: str, digits_model: Path) -> None:
        module, _ = load_model(digits_model)
        data = load("digits", "test")
        inputs = [(i, data.input(i)) for i in range(0, 99, 3)]

        def sigmas(chosen: list[Any], workers: int = 1) -> dict[int, float]:
            asked = problem(
                module, data.input_shape, sigma=0.25, seed=2, execution=Execution(workers=workers)
            )
            return {found.index: found.sigma for found in QUICK[name].search(asked, chosen)}

        together = sigmas(inputs)
        assert len(set(together.values())) > 1
        assert sigmas(inputs[::-1], workers=2) == together
        assert {k: v for one in inputs[:4] for k, v in sigmas([one]).items()} == dict(
            list(together.items())[:4]
        )
        assert sigmas(inputs[5:9]) == dict(list(together.items())[5:9])

    def test_sigma_stays_in_range_and_improves_or_stays(self, name: str) -> None:
        asked = problem(Sure())
        for found in QUICK[name].search(asked, origin(*range(5))):
            assert 0.125 <= found.sigma <= 2
            assert (found.reason == "improved") == (found.sigma != 0.5)
            assert found.start_radius is not None
            assert found.radius is not None
            assert found.radius >= found.start_radius
            assert found.evaluations <= QUICK[name].evaluations

    @pytest.mark.parametrize("noise", ["gaussian", "uniform"])
    def test_both_noises(self, name: str, noise: str) -> None:
        (found,) = QUICK[name].search(problem(Sure(), noise=noise), origin(0))
        assert found.reason == "improved"
        assert found.sigma > 0.5

    def test_an_input_that_abstains_keeps_its_sigma(self, name: str) -> None:
        class Coin(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.stack([x[:, 0], -x[:, 0]], 1)

        # 20 votes would have to be unanimous, and votes of a coin aren't.
        found = QUICK[name].search(problem(Coin(), n=20), origin(*range(8)))
        assert {(one.reason, one.sigma) for one in found} == {("abstains", 0.5)}

    def test_a_factor_out_of_range_is_refused(self, name: str) -> None:
        for factor in (1.0, 0.0, -2.0, 65.0, float("nan"), float("inf")):
            with pytest.raises(InvalidValueError, match="factor must lie above 1"):
                SEARCHES[name](factor=factor)

    def test_the_number_of_evaluations_is_heard(self, name: str) -> None:
        heard: list[int] = []
        search = QUICK[name]
        classifier = SmoothedClassifier(Sure(), sigma=0.5, n0=10, n=100, search=search)
        list(classifier.certify_each([(i, np.zeros(2)) for i in range(3)], heard.append))
        assert sum(heard) == 3 * (search.evaluations + 110)


def test_gradient_steps_are_the_papers() -> None:
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


def test_as_published_the_ascent_is_not_compared_with_the_start() -> None:
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


def test_as_published_the_ascent_stays_at_the_end_of_the_range() -> None:
    (up,) = GradientSearch(steps=5, lr=10.0, check_votes=0).search(problem(Sure()), origin(0))
    assert (up.sigma, up.reason) == (2.0, "unchecked")
    (kept,) = GradientSearch(steps=5, check_votes=0).search(problem(BadSlope()), origin(0))
    assert (kept.sigma, kept.reason) == (0.5, "not finite")


class Doubtful(nn.Module):
    """Always class 0, with a probability that falls from 0.9 to ½ with the distance from the origin."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = 0.5 + 0.4 * torch.exp(-20 * (x**2).sum(1))
        return torch.stack([first, 1 - first], 1).log()


def test_the_published_grid_weighs_probabilities_over_its_whole_range() -> None:
    asked, where = problem(Doubtful(), (6,), sigma=0.05), origin(0, dimensions=6)
    published: dict[str, Any] = {"check_votes": 0, "soft": True, "whole": True}
    (hard,) = GridSearch(check_votes=0, whole=True, samples=10).search(asked, where)
    assert hard.sigma == 1.0  # every vote is for class 0: the larger σ, the better
    (soft,) = GridSearch(samples=10, **published).search(asked, where)
    assert soft.sigma < 0.3
    assert (soft.reason, soft.evaluations) == ("unchecked", 200)
    (near,) = GridSearch(samples=10, check_votes=0).search(asked, where)
    assert near.sigma == 0.2  # four times the start, and no farther


def test_a_sigma_that_explodes_or_vanishes_is_given_up() -> None:
    (up,) = GradientSearch(steps=5, lr=10.0).search(problem(Sure()), origin(0))
    assert (up.sigma, up.reason, up.radius) == (0.5, "out of range", None)


def test_a_gradient_that_is_no_number_is_given_up() -> None:
    (found,) = GradientSearch(steps=5).search(problem(BadSlope()), origin(0))
    assert (found.sigma, found.reason) == (0.5, "not finite")


def test_a_module_without_a_graph_is_refused_with_a_remedy() -> None:
    class Detached(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x[:, 0], -x[:, 0]], 1).detach()

    with pytest.raises(ModelError, match=r"can't be differentiated.*'ladder' or 'grid'"):
        GradientSearch(steps=2).search(problem(Detached()), origin(0))


def test_gradients_are_refused_where_there_are_none() -> None:
    with pytest.raises(InvalidValueError, match=r"needs the gradients of a torch module.*'ladder' or 'grid'"):
        SmoothedClassifier(HalfSpace(0.4), sigma=0.5, search=GradientSearch(), **labels())


def test_the_ladder_comes_close_to_the_best_sigma_of_a_half_space() -> None:
    edge, n = 0.8, 10_000
    asked = problem(HalfSpace(edge), n=n, **labels())

    def certified(sigma: float) -> float:
        count = int(n * ndtr(edge / sigma))
        bounds = asked.bound(hard_tally([count, n - count]), 0, asked.alpha)
        return certificate_for(Gaussian(sigma)).radius(bounds)

    best = max(certified(float(s)) for s in np.geomspace(0.125, 2, 41))
    found = LadderSearch().search(asked, origin(*range(20)))
    reached = np.mean([certified(one.sigma) for one in found])
    assert reached > 0.97 * best
    assert reached > certified(0.125) * 1.2


def test_the_ladder_stops_early_when_nothing_moves() -> None:
    found = LadderSearch(rounds=6).search(problem(Sure()), origin(*range(4)))
    assert {one.sigma for one in found} == {2.0}
    assert all(one.evaluations < LadderSearch(rounds=6).evaluations for one in found)


def test_abstentions_can_be_rescued() -> None:
    def middle(batch: np.ndarray) -> np.ndarray:
        return np.where(np.abs(batch[:, 0]) > 0.3, 1 + (batch[:, 0] > 0), 0)

    options: dict[str, Any] = {"outputs": "labels", "classes": 3, "sigma": 0.6}
    (kept,) = LadderSearch().search(problem(middle, **options), origin(0))
    (moved,) = LadderSearch(rescue=True).search(problem(middle, **options), origin(0))
    assert (kept.reason, kept.sigma) == ("abstains", 0.6)
    assert moved.reason == "improved"
    assert moved.sigma < 0.3


def test_knobs_out_of_range_are_named() -> None:
    for make, words in (
        (lambda: GradientSearch(steps=0), "steps must be"),
        (lambda: GradientSearch(lr=0.0), "lr must be positive"),
        (lambda: GradientSearch(check_votes=-1), "check_votes must be"),
        (lambda: GridSearch(top=-1.0), "top must be positive"),
        (lambda: LadderSearch(rungs=2), "rungs must be an integer of at least 3"),
        (lambda: LadderSearch(round_votes=2), "round_votes must be"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            make()


def test_certification_uses_the_sigma_found() -> None:
    classifier = SmoothedClassifier(Sure(), sigma=0.5, n=1000, search=QUICK["ladder"])
    answer = classifier.certify(np.zeros(2))
    assert not isinstance(answer, list)
    assert answer.search is not None
    assert answer.sigma == answer.search.sigma == 2.0
    assert answer.radius == pytest.approx(certificate_for(Gaussian(2.0)).radius(answer.bounds))
    plain = SmoothedClassifier(Sure(), sigma=0.5, n=1000).certify(np.zeros(2))
    assert not isinstance(plain, list)
    assert (plain.sigma, plain.search) == (0.5, None)


def test_predict_refuses_a_search() -> None:
    classifier = SmoothedClassifier(Sure(), sigma=0.5, search=LadderSearch())
    with pytest.raises(InvalidValueError, match="PREDICT is about one sigma"):
        classifier.predict(np.zeros(2))


def test_the_plan_states_the_search_and_is_silent_without_one() -> None:
    assert not any("search" in key or key == "stateful" for key in CertifyPlan(Gaussian(0.5)).as_json())
    stated = CertifyPlan(Gaussian(0.5), search=LadderSearch(rounds=3)).as_json()
    assert (stated["sigma_search"], stated["sigma_search.rounds"], stated["stateful"]) == ("ladder", 3, False)
