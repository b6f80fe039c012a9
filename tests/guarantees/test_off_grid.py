"""Inputs off the grid: a certificate is of the next grid point, and every statement says how far that is."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smoothcert import LevelledClassifier, SmoothedClassifier, StatisticChooser
from smoothcert.analysis.comparison import compare
from smoothcert.analysis.evidence import lost_to_rounding, off_grid_in_words
from smoothcert.analysis.intervals import acr_interval, robust_radius_lower_bound, statement
from smoothcert.analysis.report.statements import HeadlineRadius, headline
from smoothcert.cli import main
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.evaluation.remembering import remember
from smoothcert.models.adapt import adapt
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.perturb.grid import Grid, on_grid
from smoothcert.runs.records import Records
from smoothcert.runs.run import Run
from smoothcert.runs.side_files import read_searches
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.search.base import SEARCHES
from smoothcert_verify import verify_run
from tests.guarantees.toys import always_first, labelled


def test_radius_off_grid_holds_for_every_type():
    """The next grid point of whatever is within ``radius_off_grid`` of the input lies in the region."""
    for dtype, offset, sigma, levels in [
        (np.float16, 0.6, 0.25, 255),
        (np.float32, float(2**20), 100.0, 1),
        (np.float32, 0.6, 0.25, 255),
        (np.float64, 0.6, 0.25, 255),
    ]:
        for share, more in product(np.linspace(-0.49, 0.49, 7), (1, 1.002, 1.004)):
            smoothed = labelled(sigma=sigma * more, levels=levels)
            step = 1 / float(on_grid(smoothed.plan.noise, smoothed.plan.grid, (1,)).steps_per_unit)
            x = np.array([(round(offset / step) + share) * step]).astype(dtype)
            answer = smoothed.certify(x, index=0)
            first_outside = math.ceil(answer.radius / step)
            for sign in (-1, 1):
                rounded_there = answer.region.center[0] + sign * (first_outside - 0.5) * step
                assert abs(rounded_there - float(x[0])) >= answer.radius_off_grid * (1 - 1e-9)


def test_shift_is_said_where_a_coarse_type_hides_half_a_step():
    smoothed = labelled(levels=255)
    step = 1 / float(on_grid(smoothed.plan.noise, smoothed.plan.grid, (1,)).steps_per_unit)
    x = np.array([306.45 * step], np.float16)
    truth = abs(float(x[0]) - round(float(x[0]) / step) * step)
    assert truth > 0.3 * step
    assert smoothed.certify(x).shift >= truth


@pytest.mark.parametrize("far", [2.0**47, 2.0**49, 2.0**51])
def test_what_float64_rounds_is_a_part_of_the_way_to_the_grid(far):
    noise = on_grid(Gaussian(0.7), Grid.of(None), (1,))
    step = 1 / float(np.max(noise.steps_per_unit))
    value = far * step
    worst = 0.0
    for k in range(400):
        x = np.nextafter(value, np.inf) + k * np.spacing(value)
        steps = float(noise.point(np.array([x])).steps[0])
        exact = Fraction(x) - Fraction(steps) / Fraction(float(np.max(noise.steps_per_unit)))
        worst = max(worst, abs(float(exact)))
    assert worst <= noise.half_diagonal(value * (1 + 1e-9))


def test_coarse_types_do_not_make_any_number_a_level():
    for values, levels in [
        (np.random.default_rng(0).uniform(100, 200, (32, 8)).astype(np.float16), None),
        (np.random.default_rng(0).uniform(2**21, 2**22, (32, 8)).astype(np.float32), None),
        (np.random.default_rng(0).uniform(0.5, 1, (32, 8)).astype(np.float16), None),
        ((np.arange(256) / 255).astype(np.float16).reshape(32, 8), 255),
    ]:
        stated = Dataset("made-up", values, np.zeros(32, np.int64), ("a", "b")).levels
        assert stated == levels or (values.astype(np.float64) * stated % 1 == 0).all()


def test_a_plan_settled_for_other_inputs_is_refused():
    """Its sampler error would be too small, and its certificates centred off the grid."""
    settled = labelled().prepare((1,))
    with pytest.raises(InvalidValueError, match=r"dimension.*\b3\b"):
        SmoothedClassifier(always_first, settled, outputs="labels", classes=2).certify(np.full(3, 0.1))
    with pytest.raises(InvalidValueError, match=r"dimension.*\b3\b"):
        SmoothedClassifier(always_first, replace(settled, dimension=7), outputs="labels", classes=2).predict(
            np.full((1, 3), 0.1)
        )
    models = [adapt(always_first, "hard", "labels", 2) for _ in range(2)]
    options: dict[str, Any] = {"sigmas": (2.0, 4.0), "n": 100, "seed": 0}
    levels = LevelledClassifier(models, StatisticChooser("mean", (0.5,)), **options)
    settled = levels.prepare((2,))
    with pytest.raises(InvalidValueError, match=r"dimension.*\b3\b"):
        LevelledClassifier(models, StatisticChooser("mean", (0.5,)), settled).certify(np.full(3, 0.1))


def test_certifying_a_data_set_leaves_the_classifier_as_it_was(tmp_path):
    """Another grid is another smoothed classifier, and seed 0 is known to everybody."""

    def on_sixteenths(batch: np.ndarray) -> np.ndarray:
        steps = batch[:, 0].astype(np.float64) * 16 * 256
        return (np.abs(steps - np.rint(steps)) > 1e-3).astype(np.int64)

    smoothed = labelled(on_sixteenths, seed=None)
    x = np.zeros(3, np.float32)
    before = smoothed.certify(x)
    fresh = labelled(on_sixteenths, seed=None)
    data = Dataset("made-up", np.array([[0, 1, 16]], np.uint8), np.zeros(1, np.int64), ("a", "b"), 1 / 16)
    for number, one in enumerate((smoothed, fresh)):
        certify_dataset(one, data, tmp_path / str(number))
    after = smoothed.certify(x)
    assert before.predicted == after.predicted
    assert fresh.certify(x).seed != 0


@pytest.mark.slow
def test_a_searched_ellipsoid_states_the_noise_that_was_drawn(tmp_path):
    """A sampler has 64 tables: more scales than that are rounded down, and those are what the certificate is about."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(100, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    inputs = np.random.default_rng(0).normal(size=(2, 100))
    with torch.no_grad():
        labels = net(torch.tensor(inputs).float()).argmax(1).numpy()
    data = Dataset("made-up", inputs, labels.astype(np.int64), ("a", "b", "c"))
    plan = CertifyPlan(Gaussian(0.1), n=2000, n0=50, search=SEARCHES["ellipsoid"]())
    run = certify_dataset(SmoothedClassifier(net, plan), data, tmp_path / "run")
    found = read_searches(tmp_path / "run")
    assert any(one.noise is not None and len(np.unique(one.noise.sigmas)) > 1 for one in found.values())
    for record in run.records:
        assert found[record.index].sigma == record.sigma
    assert verify_run(tmp_path / "run").report.holds


def nearly_undecided() -> tuple[SmoothedClassifier, Dataset]:
    """A classifier whose certificate for an input off the grid is smaller than the input's distance from the grid."""
    size = 4000
    direction = np.ones(size) / math.sqrt(size)

    def above(batch: np.ndarray) -> np.ndarray:
        return (batch.astype(np.float64) @ direction > 0).astype(np.int64)

    x = np.random.default_rng(0).uniform(-1, 1, size)
    x += direction * (0.03 - x @ direction)
    for seed in range(50):
        smoothed = labelled(above, n=2000, n0=100, seed=seed, input_shape=(size,))
        answer = smoothed.certify(x, index=0)
        if 0 < answer.radius < answer.shift:
            return smoothed, Dataset("made-up", x[np.newaxis], np.ones(1, np.int64), ("a", "b"))
    raise AssertionError("no seed gives so small a radius")


def test_a_memory_abstains_where_rounding_leaves_nothing_of_a_region(tmp_path):
    smoothed, data = nearly_undecided()
    x = data.input(0)
    answer = smoothed.certify(x, index=0)
    with RegionMemory.open(tmp_path / "memory", MemoryStatement.of(smoothed, x.shape)) as memory:
        assert memory.answer(x, lambda _: answer).abstained
        with pytest.raises(InvalidValueError):
            memory.answer(x + 1, lambda _: answer)
    run = certify_dataset(smoothed, data, tmp_path / "run")
    remembered, _ = remember(run, data, tmp_path / "runs-memory", tmp_path / "out")
    assert [record.abstained for record in remembered.records] == [True]


def test_rounding_makes_no_run_the_better_one(tmp_path):
    """Grids that cost 1e-13 and 1e-12 made one of two equal runs that of the larger ACR (p = .004)."""
    data = Dataset("made-up", np.zeros((12, 3), np.uint8), np.zeros(12, np.int64), ("a", "b"))
    runs = [certify_dataset(labelled(levels=levels), data, tmp_path / str(levels)) for levels in (16, 2**12)]
    assert runs[0].records[0].radius != runs[1].records[0].radius
    assert compare(*runs, radii=[0.25]).acr.p_value == 1.0


def test_a_grid_coarser_than_the_inputs_is_not_called_theirs():
    """Steps are as long as a σ needs: whole numbers at σ = 5000 are rounded to multiples of 64."""
    for levels, sigma, off in ((1, 5000.0, True), (16, 1000.0, True), (1, 2000.0, False), (255, 0.5, False)):
        plan = CertifyPlan(Gaussian(sigma), levels=levels).for_shape((4,))
        grid = on_grid(plan.noise, plan.grid, (4,))
        moved = max(grid.point(np.full(4, k / levels)).distance for k in range(200))
        assert (plan.rounding_of(levels) > 0) == off
        assert (moved > 1e-9) == off
        assert moved <= plan.rounding_of(levels) / 2 + 1e-9
    uneven = CertifyPlan(DiagonalGaussian(np.array([0.5, 5000.0])), levels=1)
    step = 1 / on_grid(uneven.noise, uneven.grid, (2,)).steps_per_unit
    assert uneven.rounding_of(1) == pytest.approx(step[1])
    assert uneven.rounding_of(None) == pytest.approx(math.hypot(*step))


def test_a_run_off_the_grid_says_what_to_subtract_for_its_inputs_themselves(tmp_path, capsys):
    size = 4000
    direction = np.ones(size) / math.sqrt(size)

    def below(batch: np.ndarray) -> np.ndarray:
        return (batch.astype(np.float64) @ direction < 0.15).astype(np.int64)

    smoothed = labelled(below, n=20_000, bound="clopper-pearson", input_shape=(size,))
    step = 1 / float(on_grid(smoothed.plan.noise, smoothed.plan.grid, (size,)).steps_per_unit)
    x = np.full(size, 0.49 * step)
    data = Dataset("made-up", x[np.newaxis], np.ones(1, np.int64), ("a", "b"))
    run = certify_dataset(smoothed, data, tmp_path / "run")
    (record,) = run.records
    assert record.predicted == 1
    plan = CertifyPlan.from_statement(run.manifest.plan, run.path)
    assert record.radius > 0.15 - x @ direction  # it is about the grid point, here 0
    assert record.radius <= 0.15
    lost = plan.rounding_of(run.manifest.data.levels)
    assert record.radius - lost <= 0.15 - x @ direction
    assert plan.rounding_of(255) == plan.rounding_of(1) == 0.0
    told = off_grid_in_words(run)
    assert lost <= float(told) <= 1.01 * lost
    main(["show", str(run.path)])
    assert f" {told} " in " ".join(capsys.readouterr().out.split())


def barely(tmp_path: Path, **fields: Any) -> tuple[Run, float]:
    """A run of 40 inputs off the grid, certified by a half-space, and what its radii must give up."""
    size = 400
    direction = np.ones(size) / math.sqrt(size)

    def below(batch: np.ndarray) -> np.ndarray:
        return (batch.astype(np.float64) @ direction < 0.2).astype(np.int64)

    x = np.random.default_rng(0).uniform(-1e-3, 1e-3, (40, size))
    data = Dataset("made-up", x, np.ones(40, np.int64), ("a", "b"))
    smoothed = labelled(below, input_shape=(size,), **{"bound": "clopper-pearson"} | fields)
    run = certify_dataset(smoothed, data, tmp_path / "run")
    assert run.records.correct.all()
    plan = CertifyPlan.from_statement(run.manifest.plan, run.path)
    return run, plan.rounding_of(None)


def test_statements_are_about_the_inputs_themselves(tmp_path):
    run, lost = barely(tmp_path)
    least = float(run.records.radius.min())
    run = replace(run, records=Records.of(replace(record, radius=least) for record in run.records))
    assert 0 < lost < least
    for radius, proved in ((least - 1.01 * lost, True), (least, False)):
        told = headline(run, HeadlineRadius.fixed(radius))
        assert (" 0.0 %" in statement(run, radius)) != proved
        assert (told.figure == "0.0 %") != proved
        assert any(f" {off_grid_in_words(run)} " in note for note in told.notes)
    exact = replace(run, manifest=run.manifest.stating(data=run.manifest.data.but(levels=255)))
    assert " 0.0 %" not in statement(exact, least)
    assert robust_radius_lower_bound(run, 0.01) <= robust_radius_lower_bound(exact, 0.01) - lost / 2
    assert acr_interval(run) == acr_interval(exact)  # of what is certified, around whatever points
    unsaid = {key: value for key, value in run.manifest.data.items() if key != "levels"}
    silent = replace(run, manifest=run.manifest.stating(data=unsaid))
    assert statement(silent, least) == statement(run, least)


def test_a_searched_sigma_has_a_grid_of_its_own(tmp_path):
    """The steps of a larger σ are longer than those of the σ that the search began with."""
    run, before = barely(tmp_path, sigma=0.05, search=SEARCHES["ladder"]())
    lost = lost_to_rounding(run)
    assert run.records.sigma.max() > 0.1
    for record, own in zip(run.records, lost):
        noise = Gaussian(record.sigma)
        assert own == pytest.approx(2 * on_grid(noise, Grid.of(None), (400,)).half_diagonal())
    assert lost.max() > before
