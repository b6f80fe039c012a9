"""A linear softmax classifier in numpy with its gradients written out, and helpers the objective tests share."""

import numpy as np
import torch
from torch import nn


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def cross_entropy(logits, labels):
    """Mean over all leading dimensions; labels match the last of them."""
    probs = softmax(logits)
    return -np.log(probs[..., np.arange(len(labels)), labels]).mean()


class LinearSoftmax:
    """softmax(Wx + b), in numpy and as the torch model with the same numbers."""

    def __init__(self, features=4, classes=3, seed=0, scale=2.0):
        rng = np.random.default_rng(seed)
        self.W = scale * rng.normal(size=(classes, features))
        self.b = rng.normal(size=classes)

    def logits(self, x):
        return x @ self.W.T + self.b

    def smoothed(self, x, noise):
        return softmax(self.logits(x + noise)).mean(axis=0)

    def attacked_loss(self, x, y, noise):
        return -np.log(self.smoothed(x, noise)[np.arange(len(y)), y])

    def attack_direction(self, x, y, noise):
        """The unit gradient of −log((1/m) Σ F_y(x+δ_i)) for each input."""
        probs = softmax(self.logits(x + noise))
        of_label = probs[:, np.arange(len(y)), y][..., None]
        gradient = -(of_label * (self.W[y] - probs @ self.W)).mean(axis=0) / of_label.mean(axis=0)
        return gradient / np.linalg.norm(gradient, axis=1, keepdims=True)

    def torch(self):
        model = nn.Linear(self.W.shape[1], self.W.shape[0]).double()
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(self.W))
            model.bias.copy_(torch.from_numpy(self.b))
        return model


def project(point, x, radius):
    delta = point - x
    size = np.linalg.norm(delta, axis=1, keepdims=True)
    return x + delta * np.minimum(1, radius / np.maximum(size, 1e-300))


def inputs(n=6, features=4, seed=11):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, features, generator=generator, dtype=torch.float64), torch.arange(n) % 3


def stream(seed=7):
    return torch.Generator().manual_seed(seed)


def unit_noise(x, copies, seed=7):
    """What an objective draws from `stream(seed)`, before scaling by sigma; and the generator after it."""
    generator = stream(seed)
    draws = [torch.randn(x.shape, generator=generator, dtype=torch.float64).numpy() for _ in range(copies)]
    return np.stack(draws), generator


def two_layers(features=4, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(features, 5), nn.Tanh(), nn.Linear(5, classes)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def assert_gradient_is_the_slope(model, loss, tolerance=1e-6):
    """Central differences of `loss()` in every weight against backward()."""
    model.zero_grad()
    loss().backward()
    step = 1e-5
    for parameter in model.parameters():
        flat = parameter.data.view(-1)
        for i in range(len(flat)):
            kept = flat[i].item()
            flat[i] = kept + step
            above = loss().item()
            flat[i] = kept - step
            below = loss().item()
            flat[i] = kept
            slope = (above - below) / (2 * step)
            assert abs(parameter.grad.view(-1)[i].item() - slope) < tolerance * (1 + abs(slope))


class Passes:
    """Counts passes through a model: (rows, weights need gradients) of each forward, and each backward."""

    def __init__(self, model):
        self.forward = []
        self.backward = []
        weight = next(model.parameters())

        def hook(module, args, output):
            seen = (len(args[0]), weight.requires_grad)
            self.forward.append(seen)
            if output.requires_grad:
                output.register_hook(lambda gradient: self.backward.append(seen))

        model.register_forward_hook(hook)


def noisy_network():
    """Batch norm and dropout, which behave differently in training."""
    return nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
    ).double()


class Saturated(nn.Module):
    """Logits of ±10,000 from one weight, by the sign of the first features."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1e4))

    def forward(self, x):
        return self.weight * torch.sign(x[:, :3] - 0.5)
