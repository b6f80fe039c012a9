"""The Gaussian objective against cross-entropy written out in numpy."""

import numpy as np
import pytest
import torch

from smoothcert.architectures import ModelSpec, initialise
from smoothcert.noise import Uniform
from smoothcert.objectives import BatchNoise, draw_noise
from smoothcert.objectives.gaussian import Gaussian


@pytest.fixture
def model():
    return initialise(ModelSpec("small-cnn", (1, 8, 8), ("a", "b", "c")), seed=0).double()


X = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 1, 0])


def unit_noise(seed):
    return torch.randn(X.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).numpy()


def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -log_softmax[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("sigma", [0.25, [0.0, 0.1, 0.5, 1.0, 2.0]])
def test_loss_is_cross_entropy_at_the_noisy_inputs(model, sigma):
    scale = np.reshape(sigma, (-1, 1, 1, 1))
    noisy = torch.from_numpy(X.numpy() + scale * unit_noise(7))
    expected = cross_entropy(model(noisy).detach().numpy(), Y.numpy())
    given = sigma if isinstance(sigma, float) else torch.tensor(sigma, dtype=torch.float64)
    loss = Gaussian().loss(model, X, Y, BatchNoise(given), torch.Generator().manual_seed(7))
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_noise_has_the_asked_for_spread_per_example():
    x = torch.zeros(3, 1, 100, 100)
    noise = draw_noise(x, BatchNoise(torch.tensor([0.0, 0.5, 2.0])), torch.Generator().manual_seed(0))
    # Standard error of the spread over 10,000 draws: σ/√20000 = 0.7 % of σ; five of those.
    np.testing.assert_allclose(noise.std(dim=(1, 2, 3)), [0.0, 0.5, 2.0], rtol=0.036)


def test_noise_takes_the_type_of_the_inputs_not_of_sigma():
    sigma = torch.tensor([0.5], dtype=torch.float64)
    assert draw_noise(torch.zeros(1, 4), BatchNoise(sigma), torch.Generator()).dtype == torch.float32


@pytest.mark.parametrize("sigma", [0.5, [0.1, 0.5, 2.0]])
def test_uniform_noise_has_the_same_spread_and_hard_edges(sigma):
    given = sigma if isinstance(sigma, float) else torch.tensor(sigma)
    noise = draw_noise(
        torch.zeros(3, 1, 100, 100), BatchNoise(given, Uniform), torch.Generator().manual_seed(0)
    )
    scale = np.broadcast_to(sigma, 3)
    # The fourth moment of a uniform variable is 9σ⁴/5: the spread's standard error is below that of a Gaussian.
    np.testing.assert_allclose(noise.std(dim=(1, 2, 3)), scale, rtol=0.03)
    np.testing.assert_allclose(noise.abs().amax(dim=(1, 2, 3)), np.sqrt(3) * scale, rtol=0.01)
    assert (noise.abs().amax(dim=(1, 2, 3)).numpy() <= np.float32(np.sqrt(3) * scale)).all()
