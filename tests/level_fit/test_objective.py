"""What choosers are fitted to: the radius of the whole classifier, with a gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smoothcert.bounds import Bound, ClassBounds
from smoothcert.level_fit.objective import LEAST_SHARE, combined_radii, expected_radius
from smoothcert.noise import NOISES
from smoothcert.sigma_levels import median_level, reaches
from smoothcert.sigma_levels.median import combined_radius
from smoothcert.tally import Phase, Stream, Tally


def _share(tally: Tally, chosen: int, _alpha: float) -> ClassBounds:
    share = min(tally.counts[chosen] / tally.n, 1 - LEAST_SHARE)
    return ClassBounds(share, 1 - share)


SHARES = Bound("shares", "hard", False, "", _share)


@pytest.mark.parametrize("kind", ["gaussian", "uniform"])
@pytest.mark.parametrize("levels", [2, 3, 5])
def test_it_is_the_radius_that_certificates_combine_to(kind: str, levels: int) -> None:
    random, noise = np.random.default_rng(levels), NOISES[kind](0.7)
    for _ in range(60):
        counts = random.multinomial(1000, random.dirichlet(np.full(levels, 0.5)))
        radii = np.where(random.random(levels) < 0.3, 0.0, random.random(levels))
        votes = Tally(Stream(0, 0, Phase.PILOT), 0, 1000, tuple(counts.tolist()))
        reached = reaches(votes, median_level(votes), noise, SHARES, 0.5, 0.0)
        soft = combined_radii(torch.from_numpy(counts / 1000)[None], torch.from_numpy(radii)[None], noise)
        assert float(soft) == pytest.approx(combined_radius(reached, radii.tolist()), abs=1e-9)


def test_where_votes_limit_the_radius_they_are_drawn_apart() -> None:
    shares = torch.tensor([[0.2, 0.8]], requires_grad=True)
    combined_radii(shares, torch.tensor([[0.0, 5.0]]), NOISES["gaussian"](1.0)).sum().backward()
    assert shares.grad is not None
    assert shares.grad[0, 0] < 0  # the rest of a share counts as the other level's


def test_sure_votes_have_a_finite_gradient() -> None:
    shares = torch.tensor([[0.0, 1.0]], requires_grad=True)
    found = combined_radii(shares, torch.tensor([[0.0, 9.0]]), NOISES["gaussian"](1.0))
    found.sum().backward()
    assert torch.isfinite(found).all()
    assert shares.grad is not None
    assert torch.isfinite(shares.grad).all()


def test_the_expected_radius() -> None:
    found = expected_radius(torch.tensor([[0.25, 0.75]]), torch.tensor([[1.0, 2.0]]))
    assert float(found) == 1.75
