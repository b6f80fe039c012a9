"""Ways in which somebody tried to get a false or self-contradicting answer, from outside."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smoothcert import ConstantChooser, LevelledClassifier, SmoothedClassifier, StatisticChooser
from smoothcert.analysis.comparison import compare
from smoothcert.analysis.intervals import acr_interval, robust_radius_lower_bound, statement
from smoothcert.analysis.off_grid import lost_to_rounding, off_grid_in_words
from smoothcert.commands import main
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, InvalidValueError, RunError
from smoothcert.evaluation import certify_dataset
from smoothcert.noise import DiagonalGaussian, Gaussian, on_grid
from smoothcert.noise import Grid as NoiseGrid
from smoothcert.region_memory import MemoryStatement, RegionMemory
from smoothcert.region_memory.runs import remember
from smoothcert.regions import L2Ball
from smoothcert.report.statements import HeadlineRadius, headline
from smoothcert.runs import Run, read_run
from smoothcert.runs.columns import Records
from smoothcert.sampling import Execution, Numerics, adapt
from smoothcert.sigma_search import SEARCHES
from smoothcert.sigma_search.log import read_found
from smoothcert.smoothing import CertifyPlan, decide
from smoothcert.smoothing.inputs import content_index
from smoothcert.verification import verify_run
from smoothcert.verification.noise import Grid, Noise
from smoothcert.verification.replay import Replay
from tests.runs.sealing import without_checksums
from tests.verification.runs import bands, certified, dataset, edit_plan, edit_record


def always_first(batch: np.ndarray) -> np.ndarray:
    return np.zeros(len(batch), np.int64)


def classifier(model: Any = always_first, **fields: Any) -> SmoothedClassifier:
    settings: dict[str, Any] = {"sigma": 0.25, "n": 500, "n0": 20, "seed": 1} | fields
    return SmoothedClassifier(model, outputs="labels", classes=2, **settings)


# Inputs off the grid: how far the certificate is from them


@pytest.mark.parametrize(
    ("dtype", "offset", "sigma", "levels"),
    [
        (np.float16, 0.6, 0.25, 255),
        (np.float32, float(2**20), 100.0, 1),
        (np.float32, 0.6, 0.25, 255),
        (np.float64, 0.6, 0.25, 255),
    ],
)
def test_radius_off_grid_holds_for_every_type(
    dtype: type[np.floating], offset: float, sigma: float, levels: int
) -> None:
    """The next grid point of whatever is within ``radius_off_grid`` of the input lies in the region."""
    for share, more in product(np.linspace(-0.49, 0.49, 7), (1, 1.002, 1.004)):
        smoothed = classifier(sigma=sigma * more, levels=levels)
        step = 1 / float(on_grid(smoothed.plan.noise, smoothed.plan.grid, (1,)).steps_per_unit)
        x = np.array([(round(offset / step) + share) * step]).astype(dtype)
        answer = smoothed.certify(x, index=0)
        assert answer.region is not None
        first_outside = math.ceil(answer.radius / step)
        for sign in (-1, 1):
            rounded_there = answer.region.center[0] + sign * (first_outside - 0.5) * step
            assert abs(rounded_there - float(x[0])) >= answer.radius_off_grid * (1 - 1e-9)


def test_shift_is_said_where_a_coarse_type_hides_half_a_step() -> None:
    smoothed = classifier(levels=255)
    step = 1 / float(on_grid(smoothed.plan.noise, smoothed.plan.grid, (1,)).steps_per_unit)
    x = np.array([306.45 * step], np.float16)
    truth = abs(float(x[0]) - round(float(x[0]) / step) * step)
    assert truth > 0.3 * step
    assert smoothed.certify(x).shift >= truth


def test_whole_numbers_beyond_float64_are_shifted() -> None:
    smoothed = SmoothedClassifier(
        always_first,
        CertifyPlan(Gaussian(1e10), n=500, n0=20, levels=1, numerics=Numerics(dtype="float64")),
        outputs="labels",
        classes=2,
    )
    assert smoothed.certify(np.array([2**60 + 1], np.int64)).shift >= 1


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(np.float16, 100, 200), (np.float32, 2**21, 2**22), (np.float16, 0.5, 1)]
)
def test_coarse_types_do_not_make_any_number_a_level(dtype: type, low: float, high: float) -> None:
    values = np.random.default_rng(0).uniform(low, high, (50, 8)).astype(dtype)
    levels = Dataset("made-up", values, np.zeros(50, np.int64), ("a", "b")).levels
    assert levels is None or (values.astype(np.float64) * levels % 1 == 0).all()


def test_pictures_in_float16_keep_their_levels() -> None:
    pictures = (np.arange(256) / 255).astype(np.float16).reshape(32, 8)
    assert Dataset("made-up", pictures, np.zeros(32, np.int64), ("a", "b")).levels == 255


# One plan, one classifier


def test_a_plan_settled_for_other_inputs_is_refused() -> None:
    """Its sampler error would be too small, and its certificates centred off the grid."""
    settled = classifier().prepare((1,))
    with pytest.raises(InvalidValueError, match=r"dimension.*\b3\b"):
        SmoothedClassifier(always_first, settled, outputs="labels", classes=2).certify(np.full(3, 0.1))
    with pytest.raises(InvalidValueError, match=r"dimension.*\b3\b"):
        classifier(dimension=7).predict(np.full(3, 0.1))
    models = [adapt(always_first, "hard", "labels", 2) for _ in range(2)]
    options: dict[str, Any] = {"sigmas": (2.0, 4.0), "n": 100, "seed": 0}
    levels = LevelledClassifier(models, StatisticChooser("mean", (0.5,)), **options)
    settled = levels.prepare((2,))
    with pytest.raises(InvalidValueError, match=r"dimension.*\b3\b"):
        LevelledClassifier(models, StatisticChooser("mean", (0.5,)), settled).certify(np.full(3, 0.1))


def test_certifying_a_data_set_leaves_the_classifier_as_it_was(tmp_path: Path) -> None:
    """Another grid is another smoothed classifier, and seed 0 is known to everybody."""

    def on_sixteenths(batch: np.ndarray) -> np.ndarray:
        steps = batch[:, 0].astype(np.float64) * 16 * 256
        return (np.abs(steps - np.rint(steps)) > 1e-3).astype(np.int64)

    smoothed = classifier(on_sixteenths, seed=None)
    x = np.zeros(3, np.float32)
    before = smoothed.certify(x)
    fresh = classifier(on_sixteenths, seed=None)
    data = Dataset("made-up", np.array([[0, 1, 16]], np.uint8), np.zeros(1, np.int64), ("a", "b"), 1 / 16)
    for number, one in enumerate((smoothed, fresh)):
        certify_dataset(one, data, tmp_path / str(number))
    after = smoothed.certify(x)
    assert before.predicted == after.predicted
    assert fresh.certify(x).seed != 0


def test_a_searched_ellipsoid_states_the_noise_that_was_drawn(tmp_path: Path) -> None:
    """A sampler has 64 tables: more scales than that are rounded down, and those are what the certificate is about."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(100, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    inputs = np.random.default_rng(0).normal(size=(2, 100))
    with torch.no_grad():
        labels = net(torch.tensor(inputs).float()).argmax(1).numpy()
    data = Dataset("made-up", inputs, labels.astype(np.int64), ("a", "b", "c"))
    plan = CertifyPlan(Gaussian(0.1), n=2000, n0=50, search=SEARCHES["ellipsoid"]())
    run = certify_dataset(SmoothedClassifier(net, plan), data, tmp_path / "run")
    found = read_found(tmp_path / "run")
    assert any(one.noise is not None and len(np.unique(one.noise.sigmas)) > 1 for one in found.values())
    for record in run.records:
        assert found[record.index].sigma == record.sigma
    assert holds(tmp_path / "run")


# Memories


def nearly_undecided() -> tuple[SmoothedClassifier, Dataset]:
    """A classifier whose certificate for an input off the grid is smaller than the input's distance from the grid."""
    size = 4000
    direction = np.ones(size) / math.sqrt(size)

    def above(batch: np.ndarray) -> np.ndarray:
        return (batch.astype(np.float64) @ direction > 0).astype(np.int64)

    x = np.random.default_rng(0).uniform(-1, 1, size)
    x += direction * (0.03 - x @ direction)
    for seed in range(50):
        smoothed = classifier(above, n=2000, n0=100, seed=seed, input_shape=(size,))
        answer = smoothed.certify(x, index=0)
        if 0 < answer.radius < answer.shift:
            return smoothed, Dataset("made-up", x[np.newaxis], np.ones(1, np.int64), ("a", "b"))
    raise AssertionError("no seed gives so small a radius")


def test_a_memory_abstains_where_rounding_leaves_nothing_of_a_region(tmp_path: Path) -> None:
    smoothed, data = nearly_undecided()
    x = data.input(0)
    answer = smoothed.certify(x, index=0)
    with RegionMemory.open(tmp_path / "memory", MemoryStatement.of(smoothed, x.shape)) as memory:
        assert memory.answer(x, lambda _: answer).abstained
        with pytest.raises(InvalidValueError):
            memory.answer(x + 1, lambda _: answer)


def test_a_run_with_such_an_input_is_remembered(tmp_path: Path) -> None:
    smoothed, data = nearly_undecided()
    run = certify_dataset(smoothed, data, tmp_path / "run")
    remembered, _ = remember(run, data, tmp_path / "memory", tmp_path / "out")
    assert [record.abstained for record in remembered.records] == [True]


# Forged runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return certified(tmp_path / "run")


def edit_data(run: Path, **fields: Any) -> None:
    content = json.loads((run / "run.json").read_text())
    content["data"] |= fields
    (run / "run.json").write_text(json.dumps(content))


def holds(run: Path) -> bool:
    try:
        return verify_run(run).report.holds
    except RunError:
        return False


@pytest.mark.parametrize("search", ["", 0, False, [], {}, 0.0, ["x"], True, 3])
def test_a_search_that_is_none_excuses_no_sigma(run: Path, search: Any) -> None:
    """Readers of runs took it for no search at all, verification for one: radii a thousand times too large passed."""
    records = read_run(run).records
    edit_plan(run, sigma_search=search)
    lines = []
    for record in records:
        edit_record(run, record.index, sigma=500.0, radius=record.radius * 1000 * (1 - 1e-9))
        lines.append(json.dumps({"index": record.index, "sigma": 500.0}))
    (run / "sigma_search.jsonl").write_text("\n".join(lines))
    assert not holds(run)


def test_a_dimension_that_is_not_the_inputs_is_found_by_casting_again(run: Path) -> None:
    plan = CertifyPlan.from_statement(read_run(run).manifest.plan.but(dimension=1), run)
    edit_plan(run, dimension=1, sampler_error=plan.sampler_error)
    for record in read_run(run).records:
        assert record.selection is not None
        assert record.estimation is not None
        answer = decide(np.zeros(1), plan, record.selection, record.estimation)
        edit_record(run, record.index, radius=answer.radius)
    checked = verify_run(run, keep_records=True)
    model = adapt(bands, "hard", "labels", 3)
    replay = Replay(run, checked.statement, model, dataset(), Execution())
    replay.check(checked.records, checked.report)
    assert not checked.report.holds


@pytest.mark.parametrize(("levels", "cells"), [(1, 1), (255, 7), (2**25, 64), (16, 256)])
def test_a_grid_that_no_votes_are_drawn_on(run: Path, levels: int, cells: int) -> None:
    distance = float(Grid(levels, cells, 3).distance(Noise("gaussian", (0.5,))))
    edit_plan(run, levels=levels, cells_per_sigma=cells, sampler_error=distance * (1 + 1e-9))
    assert not holds(run)


def test_inputs_chosen_by_their_radii(run: Path) -> None:
    """No certification lists the inputs it was asked for; a list made afterwards would call the run complete."""
    connection = sqlite3.connect(without_checksums(run) / "journal.sqlite")
    connection.execute("DELETE FROM records WHERE radius < 0.3")
    connection.commit()
    connection.close()
    edit_data(run, planned=[record.index for record in read_run(run).records])
    assert read_run(run).complete
    assert not holds(run)


@pytest.mark.parametrize("planned", [3, "all", -1, 2.0, True])
def test_records_of_inputs_that_were_not_asked_for(run: Path, planned: Any) -> None:
    edit_data(run, planned=planned)
    assert not holds(run)


# Comparisons


def test_rounding_makes_no_run_the_better_one(tmp_path: Path) -> None:
    """Grids that cost 1e-13 and 1e-12 made one of two equal runs that of the larger ACR (p = .004)."""
    data = Dataset("made-up", np.zeros((12, 3), np.uint8), np.zeros(12, np.int64), ("a", "b"))
    runs = [
        certify_dataset(classifier(levels=levels), data, tmp_path / str(levels)) for levels in (16, 2**12)
    ]
    assert runs[0].records[0].radius != runs[1].records[0].radius
    assert compare(*runs, radii=[0.25]).acr.p_value == 1.0


# Numbers too large to be added, or to be told apart


@pytest.mark.parametrize(
    "stored",
    [
        np.array([[2**53 + 1]]),
        np.array([[-(2**60) - 1]]),
        np.array([[2**64 - 1]], np.uint64),
        np.array([[1.5]], np.longdouble),
    ],
)
def test_data_that_float64_would_round_are_refused(stored: np.ndarray) -> None:
    """Inputs would be moved before anything is said of where they are."""
    if stored.dtype.itemsize == 8 and stored.dtype.kind == "f":
        pytest.skip("hardware: long doubles are float64 here")
    with pytest.raises(DataError, match=rf"2\^53|{stored.dtype}"):
        Dataset("made-up", stored, np.zeros(1, np.int64), ("a", "b"))


def test_soft_votes_that_64_bits_cannot_add_are_refused() -> None:
    """Unanimous probabilities in units of 2**-32: 2**31 of them are 2**63, a negative number."""

    def sure(batch: np.ndarray) -> np.ndarray:
        return np.tile(np.array([1.0, 0.0]), (len(batch), 1))

    smoothed = SmoothedClassifier(
        sure, sigma=1.0, n0=20, n=2**31, seed=0, bound="hoeffding", outputs="probabilities"
    )
    with pytest.raises(InvalidValueError, match=rf"\b{2**31}\b"):
        smoothed.certify(np.zeros(1))
    with pytest.raises(InvalidValueError, match=rf"\b{2**31}\b"):
        smoothed.predict(np.zeros(1), n=2**31)


# Inputs of any make


def test_bfloat16_tensors_are_inputs() -> None:
    x = torch.tensor([0.5, 0.25], dtype=torch.bfloat16)
    assert classifier().certify(x).predicted == 0


def test_masks_are_seen_wherever_they_are() -> None:
    """NumPy drops them from arrays in a list, and pairs of index and input were taken as they came."""
    masked = np.ma.masked_array([0.5, 1.0, 0.0], mask=[True, False, False])
    plain = np.asarray(masked.data)
    smoothed = classifier()
    model = adapt(always_first, "hard", "labels", 2)
    levelled = LevelledClassifier(model, ConstantChooser(0), sigmas=(0.5,), n=100, seed=0)
    for ask in (
        lambda x: smoothed.certify([x]),
        lambda x: smoothed.predict([[x]]),
        lambda x: list(smoothed.certify_each([(0, x)])),
        lambda x: list(smoothed.predict_each([(0, x)])),
        lambda x: list(levelled.certify_each([(0, x)])),
        lambda x: list(smoothed.holding([1]).certify_each([(0, x)])),
    ):
        assert ask(plain)
        with pytest.raises(InvalidValueError):
            ask(masked)


def test_a_region_covers_no_point_that_it_would_have_to_round_or_to_cut() -> None:
    """Imaginary parts were dropped, and whole numbers that float64 doesn't hold were taken for their neighbours."""
    answer = classifier().certify(np.array([1.0, 1.0, 1.0]))
    assert answer.covers([1, 1, 1])
    for point in (np.array([1 + 5j, 1, 1]), np.array(["1", "1", "1"])):
        with pytest.raises(InvalidValueError, match=str(point.dtype)):
            answer.covers(point)
    center = float(2**53)
    ball = L2Ball(np.array([center]), 0.9)
    assert ball.contains(np.array([2**53]))
    for point in (np.array([2**53 + 1]), np.array([2**53 + 1], np.uint64)):
        assert not ball.contains(point)
        assert ball.distance(point) > 0


@pytest.mark.parametrize("seed", [3, None])
def test_answers_state_the_seed_that_gives_them_again(seed: int | None) -> None:
    """With σ levels it was that of a stage, which no plan gives; predictions stated none."""
    options: dict[str, Any] = {"sigmas": (0.25, 0.5), "n": 200, "n0": 20}
    model, chooser = adapt(always_first, "hard", "labels", 2), StatisticChooser("mean", (0.5,))
    x = np.full(3, 0.4)
    first = LevelledClassifier(model, chooser, seed=seed, **options)
    answer, prediction = first.certify(x), first.predict(x)
    assert answer.seed == prediction.seed == first.plan.seed
    again = LevelledClassifier(model, chooser, seed=answer.seed, **options)
    assert again.certify(x).levels == answer.levels
    assert again.predict(x).tally == prediction.tally
    plain = classifier(seed=seed)
    assert plain.certify(x).seed == plain.predict(x).seed == plain.plan.seed


def test_tensors_that_are_no_array_yet_are_refused() -> None:
    for x in ([torch.ones(3, requires_grad=True)], torch._neg_view(torch.ones(3))):
        with pytest.raises(InvalidValueError, match=type(x).__name__):
            classifier().certify(x)


def test_inputs_without_numbers_are_refused() -> None:
    with pytest.raises(InvalidValueError):
        classifier().certify(np.zeros((2, 0)))


def test_a_run_off_the_grid_says_what_to_subtract_for_its_inputs_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = 4000
    direction = np.ones(size) / math.sqrt(size)

    def below(batch: np.ndarray) -> np.ndarray:
        return (batch.astype(np.float64) @ direction < 0.15).astype(np.int64)

    smoothed = classifier(below, n=20_000, bound="clopper-pearson", input_shape=(size,))
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
    assert told is not None
    assert lost <= float(told) <= 1.01 * lost
    main(["show", str(run.path)])
    assert f" {told} " in " ".join(capsys.readouterr().out.split())


def test_one_input_has_one_stream_however_it_is_written() -> None:
    """A choice among several streams of an input would be a choice among certificates."""
    classifier = SmoothedClassifier(lambda b: np.stack([b[:, 0], b[:, 1]], 1), sigma=0.5, n=200, seed=0)
    written: list[Any] = [
        np.array([0.0, 1.0]),
        np.array([-0.0, 1.0]),
        np.array([0.0, 1.0], dtype=">f8"),
        np.array([0.0, 1.0], dtype=np.float32),
        np.array([0, 1], dtype=np.uint8),
        np.array([False, True]),
        torch.tensor([0.0, 1.0], dtype=torch.bfloat16),
        [0, 1],
    ]
    indices = {classifier.certify(x).index for x in written}  # type: ignore[union-attr]
    assert len(indices) == 1
    others = [
        [0.0, np.nextafter(1.0, 2.0)],
        [1.0, 0.0],
        [2**53, 0],
        [2**53 + 1, 0],
        [np.float32(0.1), 0.0],
        [0.1, 0.0],
    ]
    assert len({content_index(np.array(x)) for x in others} | indices) == len(others) + 1


def test_a_memory_keeps_no_certificate_that_holds_coordinates(tmp_path: Path) -> None:
    """It would answer inputs whose held coordinates differ, of which the certificate says nothing."""

    def both_widths(batch: np.ndarray) -> np.ndarray:
        kind = batch[:, 2] if batch.shape[1] == 3 else 1.0
        return np.stack([batch[:, 0] * kind, -batch[:, 0] * kind], 1)

    classifier = SmoothedClassifier(both_widths, sigma=0.5, n=200, seed=0)
    statement = MemoryStatement.of(classifier, input_shape=(2,), preprocessing="none")
    held = classifier.holding([2]).certify(np.array([1.0, 0.0, 1.0]))
    other = classifier.holding([2]).certify(np.array([1.0, 0.0, -1.0]))
    assert held.predicted != other.predicted  # type: ignore[union-attr]
    with RegionMemory.open(tmp_path / "memory.sqlite", statement) as memory:
        with pytest.raises(InvalidValueError):
            memory.answer(np.array([1.0, 0.0]), lambda _: held)  # type: ignore[arg-type,return-value]
        assert not list(memory.answers())
        free = replace(held, held=None)  # type: ignore[type-var]
        assert memory.answer(np.array([1.0, 0.0]), lambda _: free).predicted == free.predicted  # type: ignore[union-attr]


# Arrays that change, types that change, and several threads


def above_two(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > 2.5).astype(np.int64)


def test_an_array_that_is_filled_again_moves_no_region() -> None:
    """A loop that reads inputs into one buffer: votes were on each of them, regions around the last."""

    def read() -> Iterator[tuple[int, np.ndarray]]:
        buffer = np.empty(1)
        for index in range(8):
            buffer[:] = index
            yield index, buffer

    for answer in classifier(above_two, execution=Execution(workers=1)).certify_each(read()):
        assert answer.region is not None
        assert answer.region.center[0] == pytest.approx(answer.index, abs=1e-6)
        assert answer.predicted == int(answer.index > 2)


def test_an_input_that_changes_between_two_states_of_a_stream_moves_no_region() -> None:
    x = np.zeros(1)
    for state in classifier(above_two, bound="mixture", n=2000).certify_stream(x):
        x += 10
        last = state.certification
    assert last is not None
    assert last.region is not None
    assert last.region.center[0] == 0
    assert last.predicted == 0


def test_passes_that_answer_in_several_types_are_compared_in_their_own() -> None:
    """Joined in float32, 2**24 and 2**24 + 1 are a tie, which class 0 would win; class 1 always wins."""
    asked = itertools.count()

    def model(batch: np.ndarray) -> np.ndarray:
        answer = np.tile(np.array([2**24, 2**24 + 1]), (len(batch), 1))
        return answer if next(asked) % 4 or len(batch) != 32 else (answer - 2**24).astype(np.float32)

    smoothed = SmoothedClassifier(model, sigma=1.0, n=512, seed=0, numerics=Numerics(chunk=32, block=128))
    with pytest.MonkeyPatch.context() as patch:  # probes would see the types change
        for probe in ("check_again", "check_kept"):
            patch.setattr(f"smoothcert.sampling.models.base.{probe}", lambda *_: None)
        patch.setattr("smoothcert.sampling.models.base.check_rows", lambda *probed: (probed[2], True))
        patch.setattr("smoothcert.sampling.checking.RowCheck.open", lambda *_: None)
        assert smoothed.certify(np.zeros(2)).estimation.counts == (0, 512)


def test_whole_numbers_that_float64_rounds_have_one_stream_too() -> None:
    large = 2**53 + 1
    written = [np.array([large, 3]), np.array([large, 3], ">i8"), np.array([large, 3], np.uint64)]
    if np.finfo(np.longdouble).nmant >= 63:
        written.append(np.array([large, 3], np.longdouble))
    assert len({content_index(x) for x in written}) == 1
    assert content_index(np.array([2**60])) == content_index(np.array([2.0**60]))
    assert content_index(np.array([large, 3])) != content_index(np.array([large - 1, 3]))


def test_threads_that_ask_first_get_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seeds would be two streams of one input: a choice among certificates."""
    smoothed = classifier(seed=None)
    both = threading.Barrier(2, timeout=0.2)

    def slow(bits: int) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait()  # met by both threads only if both draw
        return random.getrandbits(bits)

    monkeypatch.setattr("smoothcert.smoothing.planned_model.secrets.randbits", slow)
    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(lambda _: smoothed.settle_seed(), range(2), timeout=60))) == 1


# What is said of inputs off the grid


def test_a_grid_coarser_than_the_inputs_is_not_called_theirs() -> None:
    """Steps are as long as a σ needs: whole numbers at σ = 5000 are rounded to multiples of 64."""
    for levels, sigma, off in ((1, 5000.0, True), (16, 1000.0, True), (1, 2000.0, False), (255, 0.5, False)):
        plan = CertifyPlan(Gaussian(sigma), levels=levels).for_shape((4,))
        grid = on_grid(plan.noise, plan.grid, (4,))
        moved = max(grid.point(np.full(4, k / levels)).distance["l2"] for k in range(200))
        assert (plan.rounding_of(levels) > 0) == off
        assert (moved > 1e-9) == off
        assert moved <= plan.rounding_of(levels) / 2 + 1e-9
    uneven = CertifyPlan(DiagonalGaussian(np.array([0.5, 5000.0])), levels=1)
    step = 1 / on_grid(uneven.noise, uneven.grid, (2,)).steps_per_unit
    assert uneven.rounding_of(1) == pytest.approx(step[1])
    assert uneven.rounding_of(None) == pytest.approx(math.hypot(*step))


def barely(tmp_path: Path, **fields: Any) -> tuple[Run, float]:
    """A run of 40 inputs off the grid, certified by a half-space, and what its radii must give up."""
    size = 400
    direction = np.ones(size) / math.sqrt(size)

    def below(batch: np.ndarray) -> np.ndarray:
        return (batch.astype(np.float64) @ direction < 0.2).astype(np.int64)

    x = np.random.default_rng(0).uniform(-1e-3, 1e-3, (40, size))
    data = Dataset("made-up", x, np.ones(40, np.int64), ("a", "b"))
    smoothed = classifier(below, input_shape=(size,), **{"bound": "clopper-pearson"} | fields)
    run = certify_dataset(smoothed, data, tmp_path / "run")
    assert run.records.correct.all()
    plan = CertifyPlan.from_statement(run.manifest.plan, run.path)
    return run, plan.rounding_of(None)


def test_statements_are_about_the_inputs_themselves(tmp_path: Path) -> None:
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


def test_a_searched_sigma_has_a_grid_of_its_own(tmp_path: Path) -> None:
    """The steps of a larger σ are longer than those of the σ that the search began with."""
    run, before = barely(tmp_path, sigma=0.05, search=SEARCHES["ladder"]())
    lost = lost_to_rounding(run)
    assert run.records.sigma.max() > 0.1
    for record, own in zip(run.records, lost):
        noise = Gaussian(record.sigma)
        assert own == pytest.approx(2 * on_grid(noise, NoiseGrid.of(None), (400,)).half_diagonal("l2"))
    assert lost.max() > before
