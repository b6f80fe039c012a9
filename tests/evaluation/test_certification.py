"""Certifying a data set into a run: choice of inputs, resume, refusal of another model or data set."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import CertifyPlan, Execution, SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, InvalidValueError, ModelError, RunError
from smoothcert.evaluation.certification import Progress, certify_dataset
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.diagonal import load_sigmas
from smoothcert.perturb.gaussian import DiagonalGaussian
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.records import Record, results_digest
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.statement import Choice
from smoothcert.smoothing.plan import former_default
from tests.analysis.texts import numbers
from tests.datasets.test_lazy_images import Slow, reading_threads
from tests.guarantees.damages import KINDS, _classifier, certified, points
from tests.runs.sealing import without_checksums
from tests.runs.unfinished import forget

LABELLED = (np.zeros(20, np.int64), ("a", "b"), 1 / 255)


def dataset(size: int = 30, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 3))
    return Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("left", "right"))


def half_space(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > 0).astype(np.int64)


def smoothed(model: Any = half_space, **options: Any) -> SmoothedClassifier:
    return SmoothedClassifier(
        model, **({"sigma": 0.5, "n": 300, "outputs": "labels", "classes": 2} | options)
    )


def test_choices():
    for choice, size, indices in (
        (Choice(), 4, [0, 1, 2, 3]),
        (Choice(skip=2), 5, [0, 2, 4]),
        (Choice(skip=2, most=2), 100, [0, 2]),
        (Choice(most=9), 4, [0, 1, 2, 3]),
    ):
        assert list(choice.indices(size)) == indices
    for field, shown in (("skip", "skip"), ("most", "max")):
        with pytest.raises(InvalidValueError, match=rf"\b{shown}\b.*\b0\b"):
            Choice(**{field: 0})


def test_a_run_holds_one_full_record_per_chosen_input(tmp_path):
    data = dataset()
    run = certify_dataset(smoothed(), data, tmp_path / "run", Choice(skip=3, most=5))
    assert [record.index for record in run.records] == [0, 3, 6, 9, 12]
    for record in run.records:
        assert record.label == data.labels[record.index]
        assert (record.selection.n, record.estimation.n) == (100, 300)
        assert record.sigma == 0.5
        assert record.seconds > 0
    plan = run.manifest.plan
    assert (plan.n, plan.bound, plan.chunk, plan.device) == (300, "top-two", 1024, "cpu")
    assert run.manifest.data.sha256 == data.fingerprint()


class StopAfter:
    """Raises in the middle of a run, as a kill would come: between two records."""

    def __init__(self, records: int) -> None:
        self.left = records

    def __call__(self, _: Record) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_an_interrupted_run_ends_bit_identical(tmp_path):
    whole = certify_dataset(smoothed(), dataset(), tmp_path / "whole")
    for stop in (1, 7, 3):
        with pytest.raises(KeyboardInterrupt):
            certify_dataset(
                smoothed(), dataset(), tmp_path / "cut", progress=Progress(record=StopAfter(stop))
            )
    before = len(read_run(tmp_path / "cut").records)
    assert before >= 11
    cut = certify_dataset(smoothed(execution=Execution(workers=3, batch=64)), dataset(), tmp_path / "cut")
    assert results_digest(cut.records) == results_digest(whole.records)


def test_a_run_keeps_its_route_and_rows_where_today_auto_would_take_others(tmp_path):
    rng = np.random.default_rng(0)
    data = Dataset("pictures", rng.random((4, 1, 6, 6)), np.zeros(4, np.int64), ("a", "b"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(48, 2))

    def certify(out: str, progress: Progress | None = None, **numerics: Any) -> Run:
        classifier = SmoothedClassifier(model, sigma=0.5, n=300, numerics=Numerics(**numerics))
        return certify_dataset(classifier, data, tmp_path / out, progress=progress)

    assert certify("today").manifest.plan.route == "channels-last"
    whole = certify("whole", route="eager", chunk=64)
    with pytest.raises(KeyboardInterrupt):
        certify("run", Progress(record=StopAfter(2)), route="eager", chunk=64)
    run = certify("run")
    assert (run.manifest.plan.route, run.manifest.plan.chunk) == ("eager", 64)
    assert run.records.digest == whole.records.digest
    with pytest.raises(RunError, match=r'plan\.route.*"eager".*"channels-last"'):
        certify("run", route="channels-last")


def test_inputs_read_ahead_from_disk_are_certified_to_the_same_bits_and_read_once(tmp_path):
    def first_pixel(batch: np.ndarray) -> np.ndarray:
        return (batch[:, 0, 0, 0] > 0.04).astype(np.int64)

    stored = Slow()
    kept = Dataset("pictures", np.concatenate([Slow()[slice(i, i + 1)] for i in range(20)]), *LABELLED)
    whole = certify_dataset(smoothed(first_pixel), kept, tmp_path / "kept")
    run = certify_dataset(smoothed(first_pixel), Dataset("pictures", stored, *LABELLED), tmp_path / "lazy")
    assert run.records.digest == whole.records.digest
    # The run's statement has answers of the first eight.
    assert sorted(stored.asked) == sorted([*range(20), *range(8)])


def test_a_torn_picture_ends_the_run_at_its_own_index_and_no_thread_stays(tmp_path):
    with pytest.raises(OSError, match="13"):
        certify_dataset(
            smoothed(
                lambda batch: (batch[:, 0, 0, 0] > 0.04).astype(np.int64), execution=Execution(workers=1)
            ),
            Dataset("pictures", Slow(torn=13), *LABELLED),
            tmp_path / "run",
        )
    assert reading_threads() == []
    assert all(record.index < 13 for record in read_run(tmp_path / "run").records)


def test_a_finished_run_is_not_done_again_and_more_than_there_are_is_all_of_them(tmp_path):
    begun: list[tuple[int, int]] = []
    progress = Progress(begin=lambda votes, done: begun.append((votes, done)))
    for _ in range(2):
        run = certify_dataset(smoothed(), dataset(), tmp_path / "run", Choice(most=4), progress)
    assert begun == [(1600, 0), (0, 4)]
    assert run.complete
    certify_dataset(smoothed(), dataset(), tmp_path / "all", Choice(10, 99))
    assert certify_dataset(smoothed(), dataset(), tmp_path / "all", Choice(10)).complete


def test_a_run_knows_which_inputs_were_asked_for(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        certify_dataset(smoothed(), dataset(), tmp_path, Choice(3, 5), progress=Progress(record=StopAfter(2)))
    begun = read_run(tmp_path)
    assert list(begun.planned or ()) == [0, 3, 6, 9, 12]
    assert not begun.complete
    assert numbers(begun.shortfall or "") == [str(len(begun.records)), "5"]
    done = certify_dataset(smoothed(), dataset(), tmp_path, Choice(3, 5))
    assert done.complete
    assert done.shortfall is None


def test_inputs_can_be_a_range_of_the_data_set(tmp_path):
    run = certify_dataset(smoothed(), dataset(), tmp_path / "range", Choice(3, first=10, end=20))
    assert list(run.planned or ()) == [record.index for record in run.records] == [10, 13, 16, 19]
    assert run.complete
    whole = certify_dataset(smoothed(), dataset(), tmp_path / "whole", Choice())
    votes = [(record.selection, record.estimation) for record in whole.records]
    assert [(record.selection, record.estimation) for record in run.records] == votes[10:20:3]
    with pytest.raises(RunError, match=r"data\.first.*--range"):
        certify_dataset(smoothed(), dataset(), tmp_path / "range", Choice(3, first=9, end=20))
    with pytest.raises(InvalidValueError, match=r"range.*20:10"):
        Choice(first=20, end=10)


def test_another_choice_of_inputs_is_refused(tmp_path):
    certify_dataset(smoothed(), dataset(), tmp_path, Choice(most=4))
    for choice, differs in (
        (Choice(most=6), r"data\.planned.*--max.*\b4\b.*\b6\b"),
        (Choice(most=3), r"data\.planned.*--max.*\b4\b.*\b3\b"),
        (Choice(2, 4), r"data\.skip.*--every.*\b1\b.*\b2\b"),
        (Choice(), r"data\.planned.*--max.*\b4\b.*\b30\b"),
    ):
        with pytest.raises(RunError, match=differs):
            certify_dataset(smoothed(), dataset(), tmp_path, choice)
        assert read_run(tmp_path).complete


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_any_kind_goes_on_to_the_same_bits(kind, tmp_path):
    whole = certified(kind, tmp_path / "run", most=6)
    again = certify_dataset(_classifier(kind), points(), tmp_path / "run")
    assert again.records.digest == whole.records.digest


def test_a_run_of_an_earlier_version_goes_on_and_is_complete_when_nothing_is_left(tmp_path):
    run = certify_dataset(smoothed(), dataset(), tmp_path, Choice(10, 2))
    data = {key: value for key, value in run.manifest.data.items() if key != "planned"}
    run.manifest.stating(data=data).save(tmp_path)
    old = read_run(without_checksums(tmp_path))
    assert old.planned is None
    assert not old.complete
    assert numbers(old.shortfall or "") == ["2", "3"]
    assert certify_dataset(smoothed(), dataset(), tmp_path, Choice(10)).complete


def test_another_plan_model_or_data_is_refused(tmp_path):
    certify_dataset(smoothed(), dataset(), tmp_path, Choice(most=2))
    for options, data, differs in (
        ({"n": 301}, dataset(), "plan.n"),
        ({"alpha": 0.01}, dataset(), "plan.alpha"),
        ({"seed": 1}, dataset(), "plan.seed"),
        ({"bound": "clopper-pearson"}, dataset(), "plan.bound"),
        ({"sigma": 0.6}, dataset(), "plan.sigma"),
        ({"noise": "uniform"}, dataset(), "plan.noise"),
        ({"model": lambda b: 1 - half_space(b)}, dataset(), "model.sha256"),
        ({}, dataset(seed=1), "data.sha256"),
        ({}, dataset(size=31), "data.inputs"),
        ({}, replace(dataset(), scale=2.0), "data.sha256"),
    ):
        with pytest.raises(RunError, match=rf"\b{re.escape(differs)}\b"):
            certify_dataset(smoothed(**options), data, tmp_path, Choice(most=2))


def test_what_does_not_fit_the_data_is_refused_before_anything_is_written(tmp_path):
    wide = replace(dataset(), classes=("a", "b", "c"))
    holding = smoothed(stop=("total:5000",)).holding([0])
    for classifier, data, error, named in (
        (smoothed(), wide, DataError, r"made-up.*\b3\b.*half_space.*\b2\b"),
        (SmoothedClassifier(nn.Linear(4, 2), sigma=1.0), dataset(), ModelError, r"Linear.*\(1, 3\)"),
        (diagonal([0.5, 1.0]), dataset(), InvalidValueError, r"sigmas.*\(2,\).*\(3,\)"),
        (holding, dataset(), InvalidValueError, "total"),
    ):
        with pytest.raises(error, match=named):
            certify_dataset(classifier, data, tmp_path / "run")
        assert not (tmp_path / "run").exists()


def diagonal(sigmas: list[float]) -> SmoothedClassifier:
    plan = CertifyPlan(DiagonalGaussian(np.array(sigmas)), n=300)
    return SmoothedClassifier(half_space, plan, outputs="labels", classes=2)


def test_a_run_keeps_the_scale_of_each_dimension(tmp_path):
    out = tmp_path / "run"
    run = certify_dataset(diagonal([0.5, 1.0, 2.0]), dataset(), out, Choice(most=4))
    assert load_sigmas(RunFiles(out).sigmas).tolist() == [0.5, 1.0, 2.0]
    assert run.manifest.plan.least_sigma == 0.5
    for record in run.records:
        assert record.sigma == 1.0
        assert record.volume_radius == pytest.approx(record.radius * 2)
    assert any(record.radius > 0 for record in run.records)
    plain = certify_dataset(smoothed(), dataset(), tmp_path / "plain", Choice(most=4))
    assert all(record.volume_radius is None for record in plain.records)
    assert not (RunFiles(tmp_path / "plain").sigmas).exists()


def test_only_the_same_vector_continues_a_run(tmp_path):
    out = tmp_path / "run"
    certify_dataset(diagonal([0.5, 1.0, 2.0]), dataset(), out, Choice(most=2))
    with pytest.raises(RunError, match=r"plan\.sigmas_sha256"):
        certify_dataset(diagonal([0.5, 2.0, 1.0]), dataset(), out, Choice(most=2))
    np.save(RunFiles(out).sigmas, np.ones(3))
    with pytest.raises(RunError, match=r"sigmas\.npy"):
        certify_dataset(diagonal([0.5, 1.0, 2.0]), dataset(), out, Choice(most=2))
    # Killed between the statement and the vector: it is written when the run goes on.
    (RunFiles(out).sigmas).unlink()
    run = certify_dataset(diagonal([0.5, 1.0, 2.0]), dataset(), out, Choice(most=2))
    assert len(run.records) == 2
    assert (RunFiles(out).sigmas).exists()


def test_a_classifier_that_holds_columns_states_them_and_goes_on(tmp_path):
    holding = smoothed().holding([0])
    whole = certify_dataset(holding, dataset(), tmp_path / "whole", Choice(most=4))
    assert whole.manifest.model.held == [0]
    assert whole.norm == "l2 (held: 0)"
    assert whole.manifest.plan.dimension == 2
    halfway = certify_dataset(holding, dataset(), tmp_path / "halfway", Choice(most=4))
    forget(halfway.path, {2, 3})
    again = certify_dataset(holding, dataset(), tmp_path / "halfway", Choice(most=4))
    assert again.records.digest == whole.records.digest
    with pytest.raises(RunError, match=r"model\.held.*\[0\].*\[1\]"):
        certify_dataset(smoothed().holding([1]), dataset(), tmp_path / "whole", Choice(most=4))
    with pytest.raises(RunError, match=r"model\.held.*\[0\].*null"):
        certify_dataset(smoothed(), dataset(), tmp_path / "whole", Choice(most=4))


def test_a_run_begun_with_a_former_default_bound_is_known(tmp_path):
    for bound, expected in (("two-class", "two-class"), ("top-two", None), ("clopper-pearson", None)):
        certify_dataset(smoothed(bound=bound), dataset(2), tmp_path / bound)
        assert former_default(tmp_path / bound) == expected
    assert former_default(tmp_path / "none") is None
