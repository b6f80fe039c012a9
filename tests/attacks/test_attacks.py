"""PGD and DDN on the soft-smoothed classifier: right by hand, inside their ball, and no trace on the model."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.attacks import ddn, noisy_logits, pgd, pgd_path, smoothed_log_probs
from smoothcert.errors import InvalidValueError
from tests.objectives import by_hand


def gradient_free(*args, **knobs):
    return pgd(*args, gradient_free=True, **knobs)


ATTACKS = [pgd, ddn, gradient_free]


def noise_for(x, copies=3, sigma=0.25):
    return sigma * torch.randn(copies, *x.shape, generator=by_hand.stream(), dtype=x.dtype)


def attacked_loss(model, x, y, noise):
    with torch.no_grad():
        return -smoothed_log_probs(noisy_logits(model, x, noise)).gather(1, y[:, None])[:, 0]


def rightly_labelled(model, x, noise):
    with torch.no_grad():
        return smoothed_log_probs(noisy_logits(model, x, noise)).argmax(1)


def image_model(dtype=torch.float32):
    return initialise(ModelSpec("small-cnn", (1, 8, 8), ("a", "b", "c", "d")), seed=1).to(dtype)


def images(n=40, dtype=torch.float32):
    return torch.rand(n, 1, 8, 8, generator=by_hand.stream(3), dtype=dtype)


@pytest.mark.parametrize("clip", [True, False])
def test_pgd_path_by_hand(clip):
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    noise = noise_for(x)
    path = pgd_path(linear.torch(), x, y, noise, steps=4, step_size=0.3, max_norm=0.5, clip=clip)
    point = x.numpy()
    assert len(path) == 4
    for found in path:
        point = point + 0.3 * linear.attack_direction(point, y.numpy(), noise.numpy())
        point = by_hand.project(np.clip(point, 0, 1) if clip else point, x.numpy(), 0.5)
        np.testing.assert_allclose(found, point, rtol=1e-12, atol=1e-14)
    last = pgd(linear.torch(), x, y, noise, epsilon=0.5, steps=4, step_size=0.3, clip=clip)
    assert torch.equal(last, path[-1])


def test_gradient_free_step_by_hand():
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    noise = noise_for(x, copies=5)
    (found,) = pgd_path(linear.torch(), x, y, noise, steps=1, step_size=0.3, clip=False, gradient_free=True)
    probs = by_hand.softmax(linear.logits(x.numpy() + noise.numpy()))[:, np.arange(len(y)), y.numpy()]
    direction = -(probs[..., None] * noise.numpy()).mean(axis=0)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    np.testing.assert_allclose(found, x.numpy() + 0.3 * direction, rtol=1e-12)


def test_gradient_free_direction_nears_the_gradient_with_many_copies():
    x, _ = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    noise = noise_for(x, copies=40_000)
    y = torch.zeros(len(x), dtype=torch.long)
    knobs = {"steps": 1, "step_size": 1.0, "clip": False}
    (estimated,) = pgd_path(linear.torch(), x, y, noise, gradient_free=True, **knobs)
    (exact,) = pgd_path(linear.torch(), x, y, noise, **knobs)
    assert ((estimated - x) * (exact - x)).sum(1).min() > 0.98


@pytest.mark.parametrize("clip", [True, False])
def test_ddn_by_hand(clip):
    x, y = by_hand.inputs(20)
    linear = by_hand.LinearSoftmax(seed=1)
    noise = noise_for(x)
    steps, gamma, epsilon, start = 7, 0.2, 0.45, 0.3
    knobs = {"epsilon": epsilon, "steps": steps, "gamma": gamma, "start_norm": start, "clip": clip}
    found = ddn(linear.torch(), x, y, noise, **knobs)
    kinds = set()
    for i in range(len(x)):
        one, label, copies = x.numpy()[i : i + 1], y.numpy()[i : i + 1], noise.numpy()[:, i : i + 1]
        point, norm, best = one, start, None
        for step in range(steps):
            fooled = linear.smoothed(point, copies).argmax() != label[0]
            size = np.linalg.norm(point - one)
            if fooled and (best is None or size < np.linalg.norm(best - one)):
                best = point
            norm = min(norm * (1 - gamma if fooled else 1 + gamma), epsilon)
            rate = 0.01 + 0.99 * (1 + math.cos(math.pi * step / steps)) / 2
            delta = point - one + rate * linear.attack_direction(point, label, copies)
            point = one + delta * norm / np.linalg.norm(delta)
            point = by_hand.project(np.clip(point, 0, 1) if clip else point, one, epsilon)
        kinds.add("never" if best is None else "at once" if best is one else "later")
        np.testing.assert_allclose(found[i], (point if best is None else best)[0], rtol=1e-10)
    assert kinds == {"never", "at once", "later"}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 4.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [True, False])
def test_adversaries_stay_inside_the_ball_and_the_box(attack, epsilon, dtype, clip):
    model, x = image_model(dtype), images(dtype=dtype)
    noise = noise_for(x)
    y = rightly_labelled(model, x, noise)
    found = attack(model, x, y, noise, epsilon=epsilon, steps=5, clip=clip)
    assert not torch.equal(found, x)
    assert (found.double() - x.double()).flatten(1).norm(dim=1).max() <= epsilon
    if clip:
        assert found.min() >= 0
        assert found.max() <= 1


@pytest.mark.parametrize("attack", [pgd, ddn])
def test_attacks_raise_the_loss_they_attack(attack):
    model, x = image_model(), images()
    noise = noise_for(x)
    y = rightly_labelled(model, x, noise)
    found = attack(model, x, y, noise, epsilon=0.5, steps=8)
    assert (attacked_loss(model, found, y, noise) > attacked_loss(model, x, y, noise)).all()


def test_gradient_free_attack_raises_the_loss_on_the_whole():
    model, x = image_model(), images()
    noise = noise_for(x, copies=64, sigma=0.5)
    y = rightly_labelled(model, x, noise)
    found = gradient_free(model, x, y, noise, epsilon=0.5, steps=8)
    assert attacked_loss(model, found, y, noise).mean() > attacked_loss(model, x, y, noise).mean()


def test_ddn_needs_less_than_pgd_to_fool():
    model, x = image_model(), images()
    noise = noise_for(x)
    y = rightly_labelled(model, x, noise)
    small, large = (attack(model, x, y, noise, epsilon=2.0, steps=20) for attack in (ddn, pgd))
    fooled = [rightly_labelled(model, found, noise) != y for found in (small, large)]
    both = fooled[0] & fooled[1]
    assert both.any()
    assert ((small - x)[both].flatten(1).norm(dim=1) < (large - x)[both].flatten(1).norm(dim=1)).all()


class Flat(nn.Module):
    """Logits that depend on the input but don't change with it."""

    def forward(self, x):
        return torch.sign(x[:, :3])


def test_no_gradient_means_no_step():
    x, y = by_hand.inputs()
    for attack in (pgd, ddn):
        assert torch.equal(attack(Flat(), x, y, noise_for(x), epsilon=1.0, steps=3), x)
    silent = torch.zeros(2, *x.shape)  # without noise the one without gradients has none to go by
    assert torch.equal(gradient_free(by_hand.two_layers(), x, y, silent, epsilon=1.0, steps=3), x)


def test_gradients_too_small_to_square_still_point_somewhere():
    x, y = by_hand.inputs()
    model = by_hand.LinearSoftmax(scale=1e-30).torch().float()
    (found,) = pgd_path(model, x.float(), y, noise_for(x.float()), steps=1, step_size=0.5, clip=False)
    np.testing.assert_allclose((found - x.float()).norm(dim=1), 0.5, rtol=1e-5)


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_model_is_left_as_it_was(attack):
    x, y = by_hand.inputs()
    model = by_hand.noisy_network()
    model[1].eval()
    model[0].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flags = [module.training for module in model.modules()], [p.requires_grad for p in model.parameters()]
    random = torch.get_rng_state()
    attack(model, x, y, noise_for(x), epsilon=0.5, steps=3)
    assert flags == (
        [module.training for module in model.modules()],
        [p.requires_grad for p in model.parameters()],
    )
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_the_model_is_left_as_it_was_after_an_error():
    model = by_hand.noisy_network()
    x, y = by_hand.inputs(features=5)
    with pytest.raises(RuntimeError):
        pgd(model, x, y, noise_for(x), epsilon=0.5, steps=3)
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("attack", ATTACKS)
def test_works_where_gradients_are_off_and_keeps_inputs(attack):
    x, y = by_hand.inputs()
    kept = x.clone()
    model = by_hand.two_layers()
    with torch.no_grad():
        found = attack(model, x, y, noise_for(x), epsilon=0.5, steps=3)
    assert torch.equal(found, attack(model, x, y, noise_for(x), epsilon=0.5, steps=3))
    assert torch.equal(x, kept)
    assert not found.requires_grad
    assert not x.requires_grad


@pytest.mark.parametrize("attack", ATTACKS)
def test_bad_knobs_and_inputs_outside_the_box_are_named(attack):
    x, y = by_hand.inputs()
    for knobs, named in (
        ({"epsilon": -1.0}, r"\bepsilon\b.*-1"),
        ({"epsilon": float("nan")}, r"\bepsilon\b.*\bnan\b"),
        ({"steps": 0}, r"\bsteps\b.*\b0\b"),
    ):
        with pytest.raises(InvalidValueError, match=named):
            attack(by_hand.two_layers(), x, y, noise_for(x), **{"epsilon": 1.0, "steps": 2} | knobs)
    with pytest.raises(InvalidValueError, match="clip=False"):
        attack(by_hand.two_layers(), x + 1, y, noise_for(x), epsilon=1.0, steps=2)


def test_bad_ddn_knobs_and_noise_of_another_shape_are_named():
    x, y = by_hand.inputs()
    for knobs, named in (
        ({"gamma": 1.0}, r"\bgamma\b.*\b1\.0"),
        ({"start_norm": 0.0}, r"\bstart_norm\b.*\b0\b"),
    ):
        with pytest.raises(InvalidValueError, match=named):
            ddn(by_hand.two_layers(), x, y, noise_for(x), epsilon=1.0, steps=2, **knobs)
    with pytest.raises(InvalidValueError, match=r"noise.*\(6, 4\).*\(6, 4\)"):
        pgd(by_hand.two_layers(), x, y, torch.zeros(x.shape), epsilon=1.0, steps=2)


def test_smoothed_log_probs_of_saturated_logits():
    logits = torch.tensor([[[1e4, -1e4]], [[-1e4, 1e4]], [[1e4, -1e4]]])
    expected = np.log([[2 / 3, 1 / 3]])
    np.testing.assert_allclose(smoothed_log_probs(logits), expected, rtol=1e-6)
