"""Search votes: the same samples at every σ, in the same place whoever the neighbours are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smoothcert import Execution
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.noise import Gaussian, Grid, draw_unit
from smoothcert.sampling import Numerics
from smoothcert.sampling.streams import BlockBits
from smoothcert.sigma_search.problem import places, slot_of
from smoothcert.sigma_search.votes import Booth, Request
from smoothcert.tally import Phase, Stream
from tests.guarantees.closed_forms import HalfSpace
from tests.sigma_search.problems import labels, problem


def by_hand(index: int, sigma: float, samples: int) -> np.ndarray:
    bits, rows = BlockBits(), []
    for block in range(-(-samples // 32)):
        unit = torch.empty((32, 2))
        draw_unit(Gaussian(1.0), unit, bits.seek(Stream(0, index, Phase.SEARCH), block))
        rows.append(unit)
    steps = Grid.of(None).steps_per_unit(sigma)
    return HalfSpace(0.4)((torch.round(sigma * torch.cat(rows)[:samples] * steps) / steps).numpy())


@pytest.mark.parametrize("chunk", [None, 1, 7, 16, 64])
def test_votes_are_those_of_the_stream_at_each_sigma(chunk: int | None) -> None:
    booth = Booth(problem(HalfSpace(0.4), numerics=Numerics(chunk=chunk), **labels()))
    requests = [Request.product(index, np.zeros(2), [0.3, 0.9], 0, 50) for index in (0, 5, 11)]
    for request, ballots in zip(requests, booth.cast(requests)):
        expected = [by_hand(request.index, sigma, 50) for sigma in (0.3, 0.9)]
        assert np.array_equal(ballots.labels, np.concatenate(expected))


def test_evaluations_are_counted() -> None:
    heard: list[int] = []
    booth = Booth(problem(HalfSpace(0.4), execution=Execution(workers=1), **labels()), heard.append)
    booth.cast([Request.product(i, np.zeros(2), [0.3, 0.9, 1.0], 0, 50) for i in range(4)])
    assert sum(heard) == 4 * 150


@given(st.lists(st.integers(0, 2**63), unique=True, max_size=40), st.integers(1, 33))
def test_an_inputs_slot_is_its_own_affair(indices: list[int], slots: int) -> None:
    waves = places(indices, slots)
    assert sorted(p for wave in waves for p in wave if p >= 0) == list(range(len(indices)))
    for wave in waves:
        assert len(wave) == slots
        assert all(position < 0 or slot_of(indices[position], slots) == s for s, position in enumerate(wave))


@pytest.mark.parametrize("skip", [1, 2, 3, 10, 16, 20, 64, 100])
def test_evenly_spaced_inputs_fill_their_passes(skip: int) -> None:
    waves = places(list(range(0, 128 * skip, skip)), 32)
    assert len(waves) <= 10  # 4 if no slot were ever empty


def test_bad_inputs_are_named() -> None:
    booth = Booth(problem(HalfSpace(0.4), **labels()))
    with pytest.raises(InvalidValueError, match=r"input 7 has shape \(3,\)"):
        booth.cast([Request.product(7, np.zeros(3), [0.5], 0, 4)])
    with pytest.raises(InvalidValueError, match="input 7 holds nan at position"):
        booth.cast([Request.product(7, np.array([0.0, np.nan]), [0.5], 0, 4)])


def test_a_failing_model_is_reported_with_its_inputs() -> None:
    unlucky = []

    def model(batch: np.ndarray) -> np.ndarray:
        if unlucky:
            raise RuntimeError("out of luck")
        return np.zeros(len(batch), dtype=np.int64)

    booth = Booth(problem(model, **labels()))
    unlucky.append(True)
    with pytest.raises(ModelError, match=r"searching sigma for inputs \[4\]: RuntimeError: out of luck"):
        booth.cast([Request.product(4, np.zeros(2), [0.5], 0, 4)])
