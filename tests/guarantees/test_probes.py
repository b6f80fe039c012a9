"""Probes see what a batch does to a row, whatever else the scores hold: masks, NaN, large or small numbers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from hashlib import sha256

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert import SmoothedClassifier
from smoothcert.errors import DependentVotesError
from smoothcert.sampling import Numerics, adapt
from smoothcert.sampling.models.probes import answer_bytes, same_answers

SHAPE = (16,)


class Company(nn.Module):
    """Every vote is decided by the batch, by ``margin`` of a score; further classes have a fixed score."""

    def __init__(self, margin: float, others: int = 0, score: float = 0.0, border: float = 0.3) -> None:
        super().__init__()
        self.margin, self.others, self.score, self.border = margin, others, score, border

    def forward(self, x: Tensor) -> Tensor:
        size = 1 + x[:, :1].abs()
        moved = size * (1 + self.margin * torch.sign(x.mean() - self.border))
        return torch.cat([size, moved, x.new_full((len(x), self.others), self.score)], 1)


def prepare(module: nn.Module, **numerics: str) -> None:
    adapt(module, "hard").prepare(Numerics(**numerics), SHAPE)  # type: ignore[arg-type]


def check_refused(module: nn.Module, *case: object) -> None:
    try:
        prepare(module)
    except DependentVotesError:
        return
    pytest.fail(f"{type(module).__name__}{case} was not refused")


@pytest.mark.parametrize("score", [-1e9, -np.inf, -1e4, -1000.0, -50.0, 1e-3])
def test_a_mask_hides_no_batch(score: float) -> None:
    for case in itertools.product((2.0, 0.02), (1, 3, 998)):
        check_refused(Company(*case, score), *case)


def test_a_margin_below_float32s_rounding_is_seen_in_float64() -> None:
    for margin in (5e-3, 1.9e-4, 1e-5):
        check_refused(Company(margin), margin)


def test_neighbours_differ_in_size() -> None:
    for border in (0.3, 3.0, 50.0):
        check_refused(Company(2.0, border=border), border)


class Undefined(Company):
    """The same, and no number where ``inside`` is negative."""

    def __init__(self, inside: Callable[[Tensor], Tensor], border: float) -> None:
        super().__init__(2.0, border=border)
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0 * torch.log(self.inside(x[:, :1]))


@pytest.mark.parametrize(
    ("inside", "border"),
    [
        (lambda x: 0.9 - x, 0.3),
        (lambda x: 0.2 - x, -1.0),  # most rows between 0 and 1 have no number: others are asked
        (lambda x: x - 0.99, 300.0),
        (lambda x: x - 2, 300.0),
        (lambda x: x - 100, 300.0),
    ],
)
def test_rows_without_a_number_leave_the_others_compared(
    inside: Callable[[Tensor], Tensor], border: float
) -> None:
    with pytest.raises(DependentVotesError):
        prepare(Undefined(inside, border))


@pytest.mark.parametrize("masked", [0, 1, 3])
def test_random_answers_behind_a_mask(masked: int) -> None:
    class Random(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            score = x.new_full((len(x), 1), random.gauss(0, 1))
            return torch.cat([-score, score, x.new_full((len(x), masked), -torch.inf)], 1)

    with pytest.raises(DependentVotesError):
        prepare(Random())


class Honest(nn.Module):
    """A network whose scores round otherwise in other places, with most of its classes masked, or none."""

    def __init__(self, masked: int, value: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        self.masked, self.value = masked, value

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.body(100 * x)
        # Some last bits by the place of a row: what other kernels do at the edge of a batch.
        scores[1::2] *= 1 + 8 * torch.finfo(x.dtype).eps
        return scores.masked_fill(torch.arange(10) >= 10 - self.masked, self.value)


@pytest.mark.parametrize(("masked", "value"), [(0, 0.0), (6, -1e9), (8, -np.inf), (6, 1e-30)])
def test_rounding_is_no_dependence(masked: int, value: float) -> None:
    prepare(Honest(masked, value))
    SmoothedClassifier(Honest(masked, value), sigma=0.5, n=100, seed=0).certify(np.full(16, 0.2))


def test_scores_far_below_do_not_widen_what_rounding_may_do() -> None:
    one = torch.tensor([[0.5, -0.5, *[-1e9] * 8]]).repeat(4, 1)
    other = one.clone()
    other[0, :2] = torch.tensor([-0.5, 0.5])
    eps = torch.finfo(torch.float32).eps
    assert same_answers(one, one.clone(), "scores", eps)
    assert not same_answers(one, other, "scores", eps)
    assert same_answers(one, one * (1 + 1e-6), "scores", eps)
    assert not same_answers(one, one * (1 + 1e-2), "scores", eps)


def swapped(sign: float, value: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    return lambda batch: np.stack(
        [sign * batch[:, 0], -sign * batch[:, 0], np.full(len(batch), value)], axis=1
    )


@pytest.mark.parametrize("value", [-1e9, -np.inf, -50.0, 0.0])
def test_a_fingerprint_sees_the_classes_beside_a_mask(value: float) -> None:
    one, other = (adapt(swapped(sign, value), "hard").answers((2,)) for sign in (1.0, -1.0))
    assert one != other
    assert one == adapt(swapped(1.0, value), "hard").answers((2,))


def test_fingerprints_of_scores_without_a_mask_stay_what_they_were() -> None:
    """Runs that were made before are continued and verified by them."""
    scores = torch.linspace(-3, 5, 40, dtype=torch.float64).reshape(4, 10)
    scores[0, 0] = -90.0  # within a thousand times what leads
    coarse, fine = (sha256(answer_bytes(scores, "scores", fine=fine)).hexdigest() for fine in (False, True))
    assert coarse == "5be8c56eb5d693f89a520deb09aba661c5cdf8888f4a4ef399576383896dd972"
    assert fine == "3456faecf04a68db5a36d8a4f5f4679cd4e1b9f54dea757f132db5e8d408a625"
