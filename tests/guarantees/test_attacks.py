"""Attacks contradict wrong certificates and no right ones, and call nothing broken that may be whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

from smoothcert import SmoothedClassifier
from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load
from smoothcert.empirical.attacker import attack_run, strongest_rival
from smoothcert.empirical.results import ATTACKS, AttackPlan
from tests.empirical.test_empirical import SIGMA, at_distances, certified, half_space

DISTANCES = [0.3, 0.5, 0.7, 0.9]


@pytest.mark.parametrize("attack", ATTACKS.names())
def test_a_sound_run_is_not_contradicted(tmp_path, attack):
    data = at_distances(DISTANCES)
    run = certified(tmp_path, data)
    radii = [record.radius for record in run.records]
    assert min(radii) > 0
    report = attack_run(run, half_space(), data, radii, AttackPlan(attack, n=5000))
    assert report.contradictions() == ()
    assert report.chance_of_contradictions() == 1.0


def test_doubled_radii_are_contradicted(tmp_path):
    """A half-space is the worst case of the theorem: twice the certified radius is beyond its boundary."""
    data = at_distances(DISTANCES)
    run = certified(tmp_path, data)
    doubled = replace(run, records=tuple(replace(record, radius=2 * record.radius) for record in run.records))
    radii = [record.radius for record in doubled.records]
    report = attack_run(doubled, half_space(), data, radii, AttackPlan(n=5000))
    assert len(report.contradictions()) == len(DISTANCES)
    for one, distance in zip(report.contradictions(), DISTANCES):
        assert distance < one.broken.distance < one.broken.radius <= one.certified_radius
    assert report.chance_of_contradictions() == pytest.approx(binom.sf(3, 4, 0.002))
    assert report.chance_of_contradictions() < 1e-10


def test_what_contradicts_is_the_distance_found(tmp_path):
    """A certificate is of the open ball: any break closer than its radius contradicts it, whatever the budget."""
    data = at_distances([0.3])
    run = certified(tmp_path, data)
    (found,) = attack_run(run, half_space(), data, [1.0]).inputs
    distance = found.broken.distance
    assert 0.3 < distance < 1.0
    for radius, contradicted in ((1.0, 1), (np.nextafter(distance, 1), 1), (distance, 0)):
        claimed = replace(run, records=(replace(run.records[0], radius=float(radius)),))
        report = attack_run(claimed, half_space(), data, [1.0])
        assert report.broken() == (1,)
        assert len(report.contradictions()) == contradicted


@pytest.mark.parametrize("stop", [(), ("decide:0.5",)])
def test_inputs_that_are_right_are_not_called_wrong(tmp_path, stop):
    """All inputs are right by the least of margins: the plurality of the run's votes is wrong on many of them."""
    count, alpha = 120, 0.01
    data = at_distances([0.001] * count)
    run = certified(tmp_path, data, n=500, stop=stop)
    votes = [record.estimation.counts for record in run.records if record.estimation is not None]
    assert sum(for_0 > for_1 for for_0, for_1 in votes) > 0.3 * count
    report = attack_run(run, half_space(), data, [1e-4], AttackPlan(steps=1, copies=1, n=400, alpha=alpha))
    assert report.wrong <= binom.ppf(0.9999, count, alpha)
    assert report.empirical_accuracy()[0] > 0.95


@pytest.mark.slow
def test_the_doubt_benefits_the_label(tmp_path):
    """At the boundary itself, where votes are even, inputs are called broken no more often than α allows."""
    count, alpha = 300, 0.05
    data = at_distances([0.5] * count)
    run = certified(tmp_path, data, n=500)
    right = sum(record.correct for record in run.records)
    assert right == count
    # The adversary sits a hair before the boundary: the label is right there, by one vote in 100 000.
    report = attack_run(run, half_space(), data, [0.5], AttackPlan(steps=2, copies=2, n=400, alpha=alpha))
    (broken,) = report.broken()
    assert 0 < broken <= binom.ppf(0.9999, count, alpha)
    beyond = attack_run(run, half_space(), data, [0.5 + 0.02 * SIGMA], AttackPlan(steps=2, copies=2, n=400))
    assert beyond.empirical_accuracy()[0] > 0.95


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_many_rivals_are_not_many_chances(classes):
    """The strongest of many equal rivals is chosen by the votes that test it; the level allows for that."""
    alpha, trials, radii = 0.05, 2000, 1
    level = AttackPlan(alpha=alpha).level(radii, classes)
    votes = np.random.default_rng(0).multinomial(1000, [1 / classes] * classes, size=trials)
    p_values = np.array([strongest_rival(row.tolist(), 0)[1] for row in votes])
    assert (p_values <= level).sum() <= binom.ppf(0.9999, trials, alpha)
    if classes > 2:
        assert (p_values <= alpha).sum() > binom.ppf(0.9999, trials, alpha)


SIGMA_OF_MODEL, STEPS, COPIES = 0.25, 20, 32


def strongest_found(module: torch.nn.Module, x: np.ndarray, label: int, radius: float) -> np.ndarray:
    """Projected gradient ascent on −log of the mean softmax of ``label`` over noisy copies (SmoothAdv's attack)."""
    generator = torch.Generator().manual_seed(label)
    clean = torch.from_numpy(x)
    moved = clean.clone()
    for _ in range(STEPS):
        moved.requires_grad_(True)
        noise = torch.randn((COPIES, *x.shape), generator=generator) * SIGMA_OF_MODEL
        loss = -torch.log(torch.softmax(module(moved + noise), 1)[:, label].mean())
        (gradient,) = torch.autograd.grad(loss, moved)
        step = moved.detach() + 2.5 * radius / STEPS * gradient / (gradient.norm() + 1e-12)
        offset = step - clean
        moved = clean + offset * min(1.0, radius / float(offset.norm()))
    return moved.detach().numpy()


def attacked(digits_model: Path, inputs: int, n: int, scale: float) -> tuple[list[Any], list[Any]]:
    """Certificates of digits, and predictions at what the attack finds within ``scale`` times their radii."""
    module, _ = load_model(digits_model)
    data = load("digits")
    classifier = SmoothedClassifier(module, sigma=SIGMA_OF_MODEL, n=n, seed=0)
    answers = [a for a in classifier.certify(data.inputs(slice(0, inputs)), index=0) if not a.abstained]
    points = [strongest_found(module, data.input(a.index), a.predicted, scale * a.radius) for a in answers]
    assert all(a.region.contains(x) for a, x in zip(answers, points)) == (scale < 1)
    return answers, classifier.predict(np.stack(points), n=n)


@pytest.mark.parametrize("inputs", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_no_attack_inside_certified_radii_succeeds(digits_model, inputs):
    answers, found = attacked(digits_model, inputs, 5000, 0.999)
    assert len(answers) > 0.75 * inputs
    assert not [f for a, f in zip(answers, found) if not f.abstained and f.predicted != a.predicted]


def test_the_attack_is_a_real_one(digits_model):
    """Four times as far, the same attack does change answers: its silence inside the radius means something."""
    answers, found = attacked(digits_model, 8, 1000, 4)
    assert sum(f.predicted not in (a.predicted, -1) for a, f in zip(answers, found)) >= len(answers) // 2
