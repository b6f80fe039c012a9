"""A σ may be chosen by a fit's figures and certified afterwards: no vote of the one is a vote of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load
from smoothcert.noise import DiagonalGaussian
from smoothcert.noise_fit.plan import FitPlan
from smoothcert.noise_fit.validation import validate
from smoothcert.sampling import Execution
from smoothcert.sampling.models import TorchClassifier
from smoothcert.smoothing import CertifyPlan, SmoothedClassifier


@pytest.mark.parametrize("seed", [0, 7])
def test_validation_draws_no_vote_that_certify_draws(
    digits_model: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    module, _ = load_model(digits_model)
    assert isinstance(module, torch.nn.Module)
    data, sigmas = load("digits", "test"), np.full((1, 8, 8), 0.25)
    seen: list[Any] = []
    certify_each = SmoothedClassifier.certify_each

    def spying(self: SmoothedClassifier, *words: Any, **options: Any) -> Any:
        for answer in certify_each(self, *words, **options):
            seen.append(answer)
            yield answer

    monkeypatch.setattr(SmoothedClassifier, "certify_each", spying)
    plan = FitPlan(init=0.25, seed=seed, validation_n0=32, validation_n=256)
    validate(TorchClassifier(module, "m"), data, np.arange(6), sigmas, plan, Execution(workers=1))
    validated, seen = seen, []
    monkeypatch.setattr(SmoothedClassifier, "certify_each", certify_each)
    statement = CertifyPlan(DiagonalGaussian(sigmas), bound="clopper-pearson", n0=32, n=256, seed=seed)
    certified = SmoothedClassifier(module, statement).certify_each((i, data.input(i)) for i in range(6))
    streams = {tally.stream for answer in certified for tally in (answer.selection, answer.estimation)}
    fitted = {tally.stream for answer in validated for tally in (answer.selection, answer.estimation)}
    assert len(fitted) == len(streams) == 12
    assert not fitted & streams
