"""A σ for each coordinate of each input: what it finds where the answer is known, and when it keeps the ball."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load
from smoothcert.errors import InvalidValueError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.gaussian import DiagonalGaussian
from smoothcert.regions.bodies import Ellipsoid
from smoothcert.runs.side_files import SearchResult, append_search, read_searches
from smoothcert.runs.statement import Choice
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch
from tests.smoothing.search.problems import problem

WEIGHTS = np.array([1.0, 0.25, 0.25, 0.25])


class Linear(nn.Module):
    """Class 0 where w·x > 0, with a logit that grows with the distance."""

    def __init__(self, weights: np.ndarray = WEIGHTS) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(weights, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = 10 * (x @ self.w)
        return torch.stack([score, -score], 1)


def points(count: int) -> list[tuple[int, np.ndarray]]:
    return [(index, np.full(4, 1.0 + 0.1 * index)) for index in range(count)]


def test_a_linear_classifier_gets_noise_where_it_does_not_look():
    asked = problem(Linear(), (4,), sigma=0.5, n=10_000)
    found = EllipsoidSearch(samples=16).search(asked, points(8))
    for one in found:
        assert one.reason == "improved"
        assert one.sigma == one.noise.sigma
        steep, *others = one.noise.sigmas
        assert min(others) > 1.5 * steep
        # With many votes the ball reaches w·x/‖w‖ and a shape s of geometric mean 1 a volume radius of w·x/‖s⊙w‖, at
        # best (s_i|w_i| equal) 1.54 times as much.
        best = np.linalg.norm(WEIGHTS) / (2 * np.exp(np.log(WEIGHTS).mean()))
        gain = np.linalg.norm(WEIGHTS) / np.linalg.norm(one.noise.sigmas / one.sigma * WEIGHTS)
        assert best == pytest.approx(1.541, abs=0.001)
        assert 1.35 < gain <= best


def test_a_direction_that_no_axis_helps_keeps_the_ball():
    """With equal weights the ball is best: an ellipsoid is taken only where luck promises more."""
    asked = problem(Linear(np.full(4, 0.5)), (4,), sigma=0.5, n=10_000)
    found = EllipsoidSearch(steps=20).search(asked, points(12))
    for one in found:
        if one.noise is not None:
            assert one.noise.largest_sigma / one.noise.smallest_sigma < 1.5


def test_which_ellipsoids_are_taken():
    plain, weighted = EllipsoidSearch(), EllipsoidSearch(kappa=1.0)
    assert plain._better(1.1, 0.2, 1.0)
    assert not plain._better(1.0, 0.9, 1.0)
    assert not weighted._better(1.1, 0.2, 1.0)
    assert weighted._better(1.5, 0.6, 1.0)
    covering = EllipsoidSearch(cover=True)
    assert not covering._better(1.5, 0.99, 1.0)
    assert covering._better(1.5, 1.0, 1.0)
    asked = problem(Linear(), (4,), sigma=0.5, n=10_000)
    shapes = []
    for kappa in (0.0, 4.0):
        (ball,) = EllipsoidSearch()._ball_search.search(asked, points(1))
        search = EllipsoidSearch(samples=8, kappa=kappa, steps=60)
        (one,) = search._shapes(asked, points(1), [ball.sigma])
        shapes.append(one.max() / one.min())
    assert shapes[1] < shapes[0]


@pytest.mark.slow
def test_a_run_keeps_every_vector_and_its_regions_follow_from_them(digits_model, tmp_path):
    module, _ = load_model(digits_model)
    data = load("digits", "test")
    search = EllipsoidSearch(steps=30, check_votes=32)
    classifier = SmoothedClassifier(module, sigma=0.25, n=500, search=search, seed=0)
    classifier.settle_for(data.levels, data.largest)
    run = certify_dataset(classifier, data, tmp_path / "run", Choice(most=3))
    found = read_searches(tmp_path / "run")
    stretched = {index for index, one in found.items() if one.noise is not None}
    assert stretched
    assert {int(path.stem) for path in (tmp_path / "run/sigmas").iterdir()} == stretched
    for record in run.records:
        noise = found[record.index].noise
        assert record.sigma == found[record.index].sigma
        if noise is None:
            assert record.volume_radius is None
        elif not record.abstained:
            assert record.volume_radius is not None
            gap = record.radius / noise.smallest_sigma
            region = Ellipsoid(np.zeros((1, 8, 8)), gap * noise.sigmas)
            assert record.volume_radius == pytest.approx(region.volume_radius, rel=1e-9)
    # The same bits from the kept vector alone: certified with that noise and no search.
    index = min(stretched)
    kept = found[index].noise
    plan = replace(classifier.plan, noise=kept, search=None)
    again = SmoothedClassifier(module, plan).certify_one(data.input(index), index=index)
    recorded = next(record for record in run.records if record.index == index)
    assert (again.radius, again.evidence.volume_radius) == (recorded.radius, recorded.volume_radius)


def test_a_vector_that_was_exchanged_is_noticed(tmp_path):
    noise = DiagonalGaussian(np.array([0.1, 0.4]))
    one = SearchResult(3, noise.sigma, "improved", 0.1, 0.2, 10, noise)
    append_search(tmp_path, one)
    append_search(tmp_path, SearchResult(4, 0.5, "no gain", 0.1, 0.1, 10))
    assert read_searches(tmp_path) == {3: one, 4: SearchResult(4, 0.5, "no gain", 0.1, 0.1, 10)}
    np.save(tmp_path / "sigmas/3.npy", np.array([0.1, 0.5]))
    assert read_searches(tmp_path) == {
        4: SearchResult(4, 0.5, "no gain", 0.1, 0.1, 10)
    }  # 3 is searched again


def test_gradients_that_are_no_numbers_keep_the_ball():
    class Bad(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            odd = torch.sqrt(0 * x[:, 0])
            return torch.stack([1 + odd, odd], 1)

    (one,) = EllipsoidSearch(steps=2).search(problem(Bad(), (4,)), points(1))
    assert one.noise is None
    for knob, value in (("kappa", -1.0), ("steps", 0), ("lr", 0.0)):
        with pytest.raises(InvalidValueError, match=rf"\b{knob}\b.*{value}"):
            EllipsoidSearch(**{knob: value})


def test_models_in_float64_and_uniform_noise():
    asked = problem(Linear(), (4,), sigma=0.5, n=10_000, numerics=Numerics("float64"))
    found = EllipsoidSearch(samples=16).search(asked, points(4))
    assert all(one.noise is not None for one in found)
    asked = problem(Linear(), (4,), sigma=0.5, n=10_000, noise="uniform")
    found = EllipsoidSearch(samples=8).search(asked, points(4))
    taken = [one.noise for one in found if one.noise is not None]
    assert taken
    assert all(noise.name == "diagonal-uniform" for noise in taken)
