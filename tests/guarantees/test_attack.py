"""“No attack inside the radius changes the answer”: a gradient attack on a trained model tries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert import SmoothedClassifier
from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load

SIGMA, STEPS, COPIES = 0.25, 20, 32


def strongest_found(module: torch.nn.Module, x: np.ndarray, label: int, radius: float) -> np.ndarray:
    """Projected gradient ascent on −log of the mean softmax of ``label`` over noisy copies (SmoothAdv's attack)."""
    generator = torch.Generator().manual_seed(label)
    clean = torch.from_numpy(x)
    moved = clean.clone()
    for _ in range(STEPS):
        moved.requires_grad_(True)
        noise = torch.randn((COPIES, *x.shape), generator=generator) * SIGMA
        loss = -torch.log(torch.softmax(module(moved + noise), 1)[:, label].mean())
        (gradient,) = torch.autograd.grad(loss, moved)
        step = moved.detach() + 2.5 * radius / STEPS * gradient / (gradient.norm() + 1e-12)
        offset = step - clean
        moved = clean + offset * min(1.0, radius / float(offset.norm()))
    return moved.detach().numpy()


@pytest.mark.parametrize("inputs", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_no_attack_inside_certified_radii_succeeds(digits_model: Path, inputs: int) -> None:
    module, _ = load_model(digits_model)
    data = load("digits")
    classifier = SmoothedClassifier(module, sigma=SIGMA, n=5000, seed=0)
    answers = [a for a in classifier.certify_batch(data.inputs(slice(0, inputs)), index=0) if not a.abstained]
    assert len(answers) > 0.75 * inputs
    attacked = [strongest_found(module, data.input(a.index), a.predicted, 0.999 * a.radius) for a in answers]
    for answer, x in zip(answers, attacked):
        assert answer.region is not None
        assert answer.region.contains(x)
    found = classifier.predict(np.stack(attacked), n=5000)
    assert isinstance(found, list)
    changed = [f for a, f in zip(answers, found) if not f.abstained and f.predicted != a.predicted]
    assert not changed


def test_the_attack_is_a_real_one(digits_model: Path) -> None:
    """Four times as far, the same attack does change answers: its silence inside the radius means something."""
    module, _ = load_model(digits_model)
    data = load("digits")
    classifier = SmoothedClassifier(module, sigma=SIGMA, n=1000, seed=0)
    answers = [a for a in classifier.certify_batch(data.inputs(slice(0, 12)), index=0) if not a.abstained]
    attacked = [strongest_found(module, data.input(a.index), a.predicted, 4 * a.radius) for a in answers]
    found = classifier.predict(np.stack(attacked))
    assert isinstance(found, list)
    assert sum(f.predicted not in (a.predicted, -1) for a, f in zip(answers, found)) >= len(answers) // 2
