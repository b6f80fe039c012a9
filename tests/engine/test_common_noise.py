"""Search votes: the same samples at every σ, in the same place whoever the neighbours are."""

import numpy as np
import pytest
import torch

from smoothcert import Execution
from smoothcert.engine.samples import VoteRequest, votes_at_sigmas
from smoothcert.engine.schedule import BlockBits
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.perturb.grid import Grid, draw_unit
from smoothcert.tally import Phase, Stream
from tests.guarantees.closed_forms import HalfSpace
from tests.smoothing.search.problems import labels, problem


def by_hand(index: int, sigma: float, samples: int) -> np.ndarray:
    bits, rows = BlockBits(), []
    for block in range(-(-samples // 32)):
        unit = torch.empty((32, 2))
        draw_unit(Gaussian, unit.numpy(), bits.seek(Stream(0, index, Phase.SEARCH), block))
        rows.append(unit)
    steps = Grid.of(None).steps_per_unit(sigma)
    return HalfSpace(0.4)((torch.round(sigma * torch.cat(rows)[:samples] * steps) / steps).numpy())


@pytest.mark.parametrize("chunk", [None, 1, 7, 16, 64])
def test_votes_are_those_of_the_stream_at_each_sigma(chunk):
    asked = problem(HalfSpace(0.4), numerics=Numerics(chunk=chunk), **labels())
    requests = [VoteRequest.product(index, np.zeros(2), [0.3, 0.9], 0, 50) for index in (0, 5, 11)]
    cast = votes_at_sigmas(asked._passes(), asked.noise, asked.seed, asked.grid, requests)
    for request, ballots in zip(requests, cast):
        expected = [by_hand(request.index, sigma, 50) for sigma in (0.3, 0.9)]
        assert np.array_equal(ballots.labels, np.concatenate(expected))


def test_evaluations_are_counted():
    heard: list[int] = []
    asked = problem(HalfSpace(0.4), execution=Execution(workers=1), **labels())
    requests = [VoteRequest.product(i, np.zeros(2), [0.3, 0.9, 1.0], 0, 50) for i in range(4)]
    asked.count(requests, heard.append)
    assert sum(heard) == 4 * 150


def test_bad_inputs_are_named():
    """As by certification: see test_passes."""
    with pytest.raises(InvalidValueError, match=r"\b7\b.*\(3,\)"):
        problem(HalfSpace(0.4), **labels()).count([VoteRequest.product(7, np.zeros(3), [0.5], 0, 4)])


def test_a_failing_model_is_reported_with_its_inputs():
    unlucky = []

    def model(batch: np.ndarray) -> np.ndarray:
        if unlucky:
            raise RuntimeError("unlucky")
        return np.zeros(len(batch), dtype=np.int64)

    asked = problem(model, **labels())
    unlucky.append(True)
    with pytest.raises(ModelError, match=r"\b4\b.*RuntimeError: unlucky"):
        asked.count([VoteRequest.product(4, np.zeros(2), [0.5], 0, 4)])
