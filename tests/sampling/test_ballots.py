"""Outputs become votes, or a clear error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smoothcert.errors import ModelError
from smoothcert.sampling.ballots import read_ballots
from smoothcert.tally import SOFT_UNIT


def test_scores_vote_by_argmax() -> None:
    ballots = read_ballots(torch.tensor([[0.1, 2.0], [3.0, -1.0]]), "scores", 2, "hard")
    assert ballots.labels.tolist() == [1, 0]
    assert ballots.probabilities is None


def test_soft_scores_are_softmaxed_in_float64_and_rounded_to_the_safe_side() -> None:
    logits = torch.tensor([[0.3, -1.2, 2.0]])
    ballots = read_ballots(logits, "scores", 3, "soft")
    exact = np.exp(logits.double().numpy()) / np.exp(logits.double().numpy()).sum()
    assert ballots.probabilities is not None
    assert ballots.squares is not None
    low, square = ballots.probabilities / SOFT_UNIT, ballots.squares / SOFT_UNIT
    assert np.all((low <= exact + 1e-15) & (low > exact - 3e-10))
    assert np.all((square >= exact**2 - 1e-15) & (square < exact**2 + 3e-10))
    assert ballots.probabilities.sum() <= SOFT_UNIT


def test_probabilities_are_taken_as_they_are() -> None:
    ballots = read_ballots(torch.tensor([[0.25, 0.75]], dtype=torch.float64), "probabilities", 2, "soft")
    assert ballots.probabilities is not None
    assert ballots.probabilities.tolist() == [[SOFT_UNIT // 4, 3 * SOFT_UNIT // 4]]


@pytest.mark.parametrize(
    ("outputs", "kind", "message"),
    [
        (torch.tensor([[float("nan"), 1.0]]), "scores", "NaN"),
        (torch.tensor([[0.5, 0.2, 0.3]]), "scores", r"\b2\b.*\(1, 3\)"),
        (torch.tensor([[0.9, 0.9]]), "probabilities", "probabilities"),
        (torch.tensor([[-0.5, 1.5]]), "probabilities", "probabilities"),
        (torch.tensor([2]), "labels", r"\b2\.\.2\b.*\b0\.\.1\b"),
        (torch.tensor([-1]), "labels", r"-1\.\.-1\b.*\b0\.\.1\b"),
        (torch.tensor([0.5]), "labels", r"float32.*\(1,\)"),
    ],
)
def test_what_cannot_be_a_vote_is_refused(outputs: torch.Tensor, kind: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_ballots(outputs, kind, 2, "soft")  # type: ignore[arg-type]
