"""Every objective against its formula written out in numpy."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.errors import InvalidValueError
from smoothcert.objectives import BatchNoise, draw_noise
from smoothcert.objectives.consistency import Consistency
from smoothcert.objectives.gaussian import GaussianAugmentation
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.objectives.stability import Stability
from smoothcert.perturb.uniform import Uniform
from tests.objectives import by_hand


@pytest.fixture
def model():
    return initialise(ModelSpec("small-cnn", (1, 8, 8), ("a", "b", "c")), seed=0).double()


X = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 1, 0])


@pytest.mark.parametrize("sigma", [0.25, [0.0, 0.1, 0.5, 1.0, 2.0]])
def test_loss_is_cross_entropy_at_the_noisy_inputs(model, sigma):
    scale = np.reshape(sigma, (-1, 1, 1, 1))
    noisy = torch.from_numpy(X.numpy() + scale * by_hand.unit_noise(X, 1)[0][0])
    expected = by_hand.cross_entropy(model(noisy).detach().numpy(), Y.numpy())
    given = sigma if isinstance(sigma, float) else torch.tensor(sigma, dtype=torch.float64)
    loss = GaussianAugmentation().loss(model, X, Y, BatchNoise(given), by_hand.stream())
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


def test_stability_by_hand():
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    (noise,), _ = by_hand.unit_noise(x, 1)
    clean, noisy = linear.logits(x.numpy()), linear.logits(x.numpy() + 0.5 * noise)
    towards = -(by_hand.softmax(clean) * np.log(by_hand.softmax(noisy))).sum(axis=1).mean()
    expected = by_hand.cross_entropy(clean, y.numpy()) + 3 * towards
    loss = Stability(lam=3.0).loss(linear.torch(), x, y, BatchNoise(0.5), by_hand.stream())
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_clean_and_noisy_rows_are_batches_of_their_own():
    """As released: the statistics of the clean rows are those of the clean rows alone."""
    x, y = by_hand.inputs()
    seen = []
    model = nn.Sequential(nn.BatchNorm1d(x.shape[1], dtype=x.dtype), nn.Linear(x.shape[1], 3, dtype=x.dtype))
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    Stability().loss(model, x, y, BatchNoise(5.0), by_hand.stream())
    assert model[0].num_batches_tracked == 2
    for output in seen:
        assert output.mean(0).abs().max() < 1e-9
        assert (output.var(0, unbiased=False) - 1).abs().max() < 1e-2


def test_consistency_by_hand():
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    noise, _ = by_hand.unit_noise(x, 3)
    logits = linear.logits(x.numpy() + 0.5 * noise)
    probs = by_hand.softmax(logits)
    mean = probs.mean(axis=0)
    divergence = (mean * (np.log(mean) - np.log(probs))).sum(axis=2).mean()
    entropy = -(mean * np.log(mean)).sum(axis=1).mean()
    expected = by_hand.cross_entropy(logits, y.numpy()) + 10 * divergence + 0.7 * entropy
    loss = Consistency(lam=10.0, eta=0.7, copies=3).loss(
        linear.torch(), x, y, BatchNoise(0.5), by_hand.stream()
    )
    assert loss.item() == pytest.approx(expected, rel=1e-12)


KNOBS = {"lam": 6.0, "gamma": 2.0, "beta": 1.5, "copies": 5}


def by_formula(linear, x, y, sigma):
    noise, _ = by_hand.unit_noise(x, KNOBS["copies"])
    labels, rows = y.numpy(), np.arange(len(y))
    logits = linear.logits(x.numpy() + sigma.reshape(-1, 1) * noise)
    classification = -np.log(by_hand.softmax(logits).mean(axis=0)[rows, labels])
    sharp = by_hand.softmax(KNOBS["beta"] * logits).mean(axis=0)
    rivals = sharp.copy()
    rivals[rows, labels] = 0
    gap = norm.ppf(sharp[rows, labels]) - norm.ppf(rivals.max(axis=1))
    right = sharp.argmax(axis=1) == labels
    hinge = np.maximum(KNOBS["gamma"] - gap, 0) * right
    return classification.mean(), (KNOBS["lam"] * sigma / 2 * hinge).mean(), right, hinge > 0


@pytest.mark.parametrize("sigma", [0.5, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]])
def test_macer_by_hand(sigma):
    x, _ = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    y = torch.from_numpy(linear.logits(x.numpy()).argmax(axis=1))
    y[0] = (y[0] + 1) % 3
    classification, robustness, right, active = by_formula(linear, x, y, np.broadcast_to(sigma, 6))
    # The example is worth something only if it has inputs of all three kinds.
    assert not right.all()
    assert (right & active).any()
    assert (right & ~active).any()
    given = sigma if isinstance(sigma, float) else torch.tensor(sigma)
    objective = Macer(**KNOBS)
    loss = objective.loss(linear.torch(), x, y, BatchNoise(given), by_hand.stream())
    # float32 for the per-example sigma: 1e-7.
    assert loss.item() == pytest.approx(classification + robustness, rel=1e-12 if given is sigma else 1e-6)
    plain = dataclasses.replace(objective, lam=0.0)
    loss = plain.loss(linear.torch(), x, y, BatchNoise(given), by_hand.stream())
    assert loss.item() == pytest.approx(classification, rel=1e-12 if given is sigma else 1e-6)


class Scores(torch.nn.Module):
    """The same logits for every input."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits))

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def hinge_and_gradient(lead, dtype, gamma=8.0):
    scores = Scores([lead, 0.0]).to(dtype)
    x, y = torch.zeros(1, 2, dtype=dtype), torch.tensor([0])
    objective = Macer(lam=1.0, gamma=gamma, beta=1.0, copies=1)
    whole = objective.loss(scores, x, y, BatchNoise(1.0), by_hand.stream())
    plain = dataclasses.replace(objective, lam=0.0).loss(scores, x, y, BatchNoise(1.0), by_hand.stream())
    (gradient,) = torch.autograd.grad(whole - plain, scores.logits)
    return (whole - plain).item(), gradient[0].item()


def test_single_precision_keeps_the_digits_of_confident_predictions():
    # At a lead of 9.5 the probability is 1 − 7.5e-5: in float32, ẑ_y knows 1 − ẑ_y to no better than a per mille.
    for lead in (1.0, 5.0, 9.5):
        for single, double in zip(
            hinge_and_gradient(lead, torch.float32), hinge_and_gradient(lead, torch.float64)
        ):
            assert single == pytest.approx(double, rel=2e-5)


def test_hinge_is_right_far_beyond_the_published_margin():
    lead = 50.0
    expected = (20 - 2 * norm.isf(1 / (1 + np.exp(lead)))) / 2
    value, gradient = hinge_and_gradient(lead, torch.float32, gamma=20.0)
    assert value == pytest.approx(expected, rel=1e-4)
    assert gradient == pytest.approx(hinge_and_gradient(lead, torch.float64, gamma=20.0)[1], rel=1e-4)


@pytest.mark.parametrize("lead", [-1e4, -200.0, -16.0, 0.0, 16.0, 200.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gamma", [8.0, 100.0])
def test_no_lead_gives_a_gradient_that_is_not_finite(lead, dtype, gamma):
    assert np.isfinite(hinge_and_gradient(lead, dtype, gamma)).all()


def test_smoothadv_by_hand():
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    noise = 0.5 * by_hand.unit_noise(x, 3)[0]
    point = x.numpy()
    for _ in range(4):
        point = point + 0.4 / 4 * 2 * linear.attack_direction(point, y.numpy(), noise)
        point = by_hand.project(np.clip(point, 0, 1), x.numpy(), 0.4)
    expected = by_hand.cross_entropy(linear.logits(point + noise), y.numpy())
    objective = SmoothAdv(epsilon=0.4, steps=4, copies=3)
    loss = objective.loss(linear.torch(), x, y, BatchNoise(0.5), by_hand.stream())
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("attack", ["pgd", "ddn", "gradient-free"])
def test_without_a_radius_it_is_gaussian_training_with_copies(attack):
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    noise = 0.5 * by_hand.unit_noise(x, 4)[0]
    loss = SmoothAdv(attack=attack, epsilon=0.0).loss(linear.torch(), x, y, BatchNoise(0.5), by_hand.stream())
    assert loss.item() == pytest.approx(
        by_hand.cross_entropy(linear.logits(x.numpy() + noise), y.numpy()), rel=1e-12
    )


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_adversaries_are_harder(attack):
    x, _ = by_hand.inputs()
    model = by_hand.two_layers()
    # DDN leaves inputs alone that are wrong already, so let none be.
    y = model(x).argmax(1)
    plain, attacked = (
        SmoothAdv(attack=attack, epsilon=epsilon).loss(model, x, y, BatchNoise(0.25), by_hand.stream())
        for epsilon in (0.0, 0.5)
    )
    assert attacked > plain + 0.05


def by_algorithm(linear, x, y, sigma, objective):
    noise, generator = by_hand.unit_noise(x, objective.copies)
    noise = sigma * noise
    ratio = torch.rand(len(x), generator=generator, dtype=torch.float64).numpy()[:, None] / 2
    x, y = x.numpy(), y.numpy()

    def feasible(point, norm):
        point = np.clip(point, 0, 1) if objective.clip else point
        return point if norm is None else by_hand.project(point, x, norm)

    points = [x]
    for _ in range(objective.steps):
        step = objective.alpha * linear.attack_direction(points[-1], y, noise)
        points.append(feasible(points[-1] + step, objective.max_norm))
    start = x
    if objective.one_step:
        norm = objective.alpha if objective.one_step_norm is None else objective.one_step_norm
        start = feasible(points[1], norm)
    smoothed = linear.smoothed(start, noise)
    mixed = (1 - ratio) * start + ratio * points[-1]
    target = (1 - ratio) * smoothed + ratio / smoothed.shape[1]
    divergence = (target * np.log(target / by_hand.softmax(linear.logits(mixed + noise)))).sum(axis=2)
    right = smoothed.argmax(axis=1) == y
    if objective.only_correct:
        divergence = divergence * right
    natural = by_hand.cross_entropy(linear.logits(start + noise), y)
    return natural + objective.eta * divergence.mean(), right


def test_smoothmix_by_hand():
    for knobs in [
        {},
        {"only_correct": False},
        {"clip": False},
        {"max_norm": 0.6},
        {"one_step": True},
        {"one_step": True, "one_step_norm": 0.1},
        {"one_step": True, "steps": 1, "alpha": 8.0, "max_norm": 1.0},
    ]:
        x, _ = by_hand.inputs()
        linear = by_hand.LinearSoftmax()
        y = torch.from_numpy(linear.logits(x.numpy()).argmax(axis=1))
        y[0] = (y[0] + 1) % 3
        objective = SmoothMix(**{"eta": 2.0, "steps": 3, "alpha": 0.3, "copies": 3} | knobs)
        expected, right = by_algorithm(linear, x, y, 0.25, objective)
        assert not right.all()
        loss = objective.loss(linear.torch(), x, y, BatchNoise(0.25), by_hand.stream())
        assert loss.item() == pytest.approx(expected, rel=1e-10)


def test_bad_knobs_are_named():
    for objective, knobs, named in [
        (Stability, {"lam": -1}, r"\blam\b.*-1"),
        (Consistency, {"lam": -1.0}, r"\blam\b.*-1"),
        (Consistency, {"eta": float("nan")}, r"\beta\b.*\bnan\b"),
        (Consistency, {"copies": 1}, r"\bcopies\b.*\b1\b"),
        (Macer, {"lam": -1.0}, r"\blam\b.*-1"),
        (Macer, {"gamma": 0.0}, r"\bgamma\b.*\b0\b"),
        (Macer, {"beta": -2.0}, r"\bbeta\b.*-2"),
        (Macer, {"copies": 0}, r"\bcopies\b.*\b0\b"),
        (SmoothAdv, {"attack": "pdg"}, "attack.*'pdg'.*'pgd'"),
        (SmoothAdv, {"epsilon": -1.0}, r"\bepsilon\b.*-1"),
        (SmoothAdv, {"steps": 0}, r"\bsteps\b.*\b0\b"),
        (SmoothAdv, {"copies": 0}, r"\bcopies\b.*\b0\b"),
        (SmoothAdv, {"attack": "gradient-free", "copies": 1}, r"\bcopies\b.*\b2\b.*\b1\b"),
        (SmoothAdv, {"ddn_gamma": 1.0}, r"\bddn_gamma\b.*\b1\.0"),
        (SmoothAdv, {"ddn_start_norm": 0.0}, r"\bddn_start_norm\b.*\b0\b"),
        (SmoothMix, {"eta": -1.0}, r"\beta\b.*-1"),
        (SmoothMix, {"steps": 0}, r"\bsteps\b.*\b0\b"),
        (SmoothMix, {"alpha": 0.0}, r"\balpha\b.*\b0\b"),
        (SmoothMix, {"copies": 0}, r"\bcopies\b.*\b0\b"),
        (SmoothMix, {"one_step_norm": -1.0}, r"\bone_step_norm\b.*-1"),
        (SmoothMix, {"max_norm": 0.0}, r"\bmax_norm\b.*\b0\b"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            objective(**knobs)
