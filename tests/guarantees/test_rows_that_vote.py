"""A model is checked on the noisy rows of the run itself: what goes by its batch is refused, in any units."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn

from smoothcert import SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DependentVotesError, RunError
from smoothcert.evaluation import Choice, certify_dataset
from smoothcert.evaluation.merging import merge
from smoothcert.runs import read_run
from smoothcert.runs.shards import Shard
from smoothcert.sampling import Execution, Numerics
from smoothcert.verification import verify_run

X, Y = load_digits(return_X_y=True)


def units(largest: int) -> np.ndarray:
    return np.round(X * largest / 16)


def centred(batch: np.ndarray) -> np.ndarray:
    return batch - batch.mean(axis=0)


def fitted(estimator: Any, largest: int, *steps: Any) -> Any:
    return make_pipeline(*steps, estimator).fit(units(largest)[::2], Y[::2])


class Clamped(nn.Module):
    def __init__(self, largest: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.largest = nn.Linear(64, 10), largest

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x.clamp(max=x.mean() + 3 * x.std()) / self.largest)
        return found


class Turning(Clamped):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x / self.largest)
        return found if x.mean() > 0.3 * self.largest else -found


class Ranked(Clamped):
    """Scaled by the largest of its batch."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(torch.relu(x) / x.max())
        return found


def labels_of(estimator: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda batch: estimator.predict(batch).astype(np.int64)


def of_batch() -> FunctionTransformer:
    return FunctionTransformer(centred)


def standardised() -> FunctionTransformer:
    return FunctionTransformer(lambda batch: (batch - batch.mean(0)) / (batch.std(0) + 1e-9))


DEPENDENT: dict[str, tuple[int, Callable[[], Any], dict[str, Any]]] = {
    "SVC 255": (255, lambda: fitted(SVC(), 255, of_batch()), {}),
    "NearestCentroid 255": (255, lambda: fitted(NearestCentroid(), 255, of_batch()), {}),
    "KNN 4095": (4095, lambda: fitted(KNeighborsClassifier(3), 4095, of_batch()), {}),
    "forest 4095": (4095, lambda: fitted(RandomForestClassifier(20, random_state=0), 4095, of_batch()), {}),
    "tree 4095": (4095, lambda: fitted(DecisionTreeClassifier(random_state=0), 4095, of_batch()), {}),
    "tree labels 65535": (
        65535,
        lambda: labels_of(fitted(DecisionTreeClassifier(random_state=0), 65535, of_batch())),
        {"outputs": "labels", "classes": 10},
    ),
    "probabilities 4095": (
        4095,
        lambda: fitted(LogisticRegression(max_iter=200), 4095, standardised()).predict_proba,
        {"outputs": "probabilities"},
    ),
    "soft votes 4095": (
        4095,
        lambda: fitted(LogisticRegression(max_iter=200), 4095, standardised()).predict_proba,
        {"outputs": "probabilities", "bound": "bernstein"},
    ),
    "clamped 255": (255, lambda: Clamped(255), {}),
    "clamped 65535": (65535, lambda: Clamped(65535), {}),
    "turning 255": (255, lambda: Turning(255), {}),
    "ranked 4095": (4095, lambda: Ranked(4095), {}),
}

HONEST: dict[str, tuple[int, Callable[[], Any], dict[str, Any]]] = {
    "SVC 255": (255, lambda: fitted(SVC(), 255, StandardScaler()), {}),
    "NearestCentroid 255": (255, lambda: fitted(NearestCentroid(), 255), {}),
    "KNN 4095": (4095, lambda: fitted(KNeighborsClassifier(3), 4095), {}),
    "forest 4095": (4095, lambda: fitted(RandomForestClassifier(20, random_state=0), 4095), {}),
    "tree 65535": (65535, lambda: fitted(DecisionTreeClassifier(random_state=0), 65535), {}),
    "bayes 255": (
        255,
        lambda: fitted(GaussianNB(var_smoothing=1e-3), 255).predict_proba,
        {"outputs": "probabilities"},
    ),
    "linear 255": (255, lambda: nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 10)), {}),
    "network 65535": (65535, lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)), {}),
}


def certified(largest: int, model: Any, **options: Any) -> Any:
    smoothed = SmoothedClassifier(model, sigma=largest / 8, n=200, seed=0, **options)
    return smoothed.certify(units(largest)[1:25:2])


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
@pytest.mark.parametrize("name", DEPENDENT)
def test_a_model_that_goes_by_its_batch_is_refused_in_any_units(name: str) -> None:
    largest, make, options = DEPENDENT[name]
    with pytest.raises(DependentVotesError):
        certified(largest, make(), **options)


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_model_is_not(name: str) -> None:
    largest, make, options = HONEST[name]
    assert len(certified(largest, make(), **options)) == 12


def test_the_refusal_names_the_input() -> None:
    smoothed = SmoothedClassifier(fitted(SVC(), 255, of_batch()), sigma=32, n=100, seed=0)
    with pytest.raises(DependentVotesError, match=r"\b700[0-8]\b"):
        smoothed.predict(units(255)[:9], 100, index=7000)


# ---------------------------------------------------------------------------------------------- while votes are cast


def sign(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > 100).astype(np.int64)


LABELS: dict[str, Any] = {"outputs": "labels", "classes": 2, "sigma": 30.0, "seed": 0}


def pictures(count: int) -> Dataset:
    rows = np.stack([np.linspace(20, 180, count), np.zeros(count)], axis=1)
    return Dataset("points", rows, (rows[:, 0] > 100).astype(np.int64), ("left", "right"))


def test_what_goes_wrong_after_many_passes_marks_the_run(tmp_path: Path) -> None:
    """Answers were stored by then: every reader refuses them."""
    passes = itertools.count()

    def tired(batch: np.ndarray) -> np.ndarray:
        return sign(batch) if next(passes) < 150 else 1 - sign(batch)

    smoothed = SmoothedClassifier(tired, n=1000, numerics=Numerics(chunk=64, block=64), **LABELS)
    with pytest.raises(DependentVotesError):
        certify_dataset(smoothed, pictures(40), tmp_path / "run")
    for read in (read_run, verify_run):
        with pytest.raises(RunError, match=r"void\.json"):
            read(tmp_path / "run")
    with pytest.raises(RunError, match=r"void\.json"):
        certify_dataset(
            SmoothedClassifier(sign, n=1000, numerics=Numerics(chunk=64, block=64), **LABELS),
            pictures(40),
            tmp_path / "run",
        )


def test_the_check_goes_on_where_one_input_gets_all_votes() -> None:
    passes = itertools.count()

    def tired(batch: np.ndarray) -> np.ndarray:
        return sign(batch) if next(passes) < 2500 else 1 - sign(batch)

    numerics = Numerics(chunk=64, block=64)
    smoothed = SmoothedClassifier(tired, n=200_000, numerics=numerics, **LABELS)
    with pytest.raises(DependentVotesError):
        smoothed.certify(np.array([90.0, 0.0]))


def test_a_scratch_array_that_threads_share_is_found_in_raw_units() -> None:
    paper = np.empty((512, 64))

    def through_paper(batch: np.ndarray) -> np.ndarray:
        for row, one in enumerate(batch):
            paper[row] = one
        return (paper[: len(batch)].sum(1) > 64 * 100).astype(np.int64)

    smoothed = SmoothedClassifier(
        through_paper,
        n=4000,
        thread_safe=True,
        execution=Execution(workers=2),
        numerics=Numerics(chunk=512, block=64),
        **LABELS,
    )
    with pytest.raises(DependentVotesError):
        smoothed.certify(np.repeat(np.linspace(20, 180, 10)[:, None], 64, axis=1))


def test_no_vote_changes_for_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pictures(20).input(7)
    votes = [SmoothedClassifier(sign, n=500, **LABELS).certify(x, index=3).estimation]
    monkeypatch.setattr("smoothcert.sampling.checking.RowCheck.open", lambda *_: None)
    votes.append(SmoothedClassifier(sign, n=500, **LABELS).certify(x, index=3).estimation)
    assert votes[0] == votes[1]


SETTING = """
import numpy as np
BORDER = 0.0

def model(batch):
    return (batch[:, 0] > BORDER).astype(np.int64)
"""


@pytest.mark.system
def test_processes_with_another_setting_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """They import the module anew, and have its default: class 1 was certified where the caller's function says 0."""
    request.addfinalizer(lambda: sys.modules.pop("changed_setting", None))
    (tmp_path / "changed_setting.py").write_text(SETTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    import changed_setting

    changed_setting.BORDER = 100.0
    execution = Execution(workers=2, backend="processes")
    smoothed = SmoothedClassifier(changed_setting.model, n=2000, execution=execution, **LABELS)
    with pytest.raises(DependentVotesError):
        smoothed.certify(np.array([[50.0, 0.0], [60.0, 0.0]]))
    changed_setting.BORDER = 0.0
    assert len(smoothed.certify(np.array([[50.0, 0.0], [60.0, 0.0]]))) == 2


def test_shards_of_two_functions_with_equal_fingerprints_are_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They differ where the data lie, and not on the fixed rows that a fingerprint is of."""

    def model(batch: np.ndarray) -> np.ndarray:
        return (batch[:, 0] > float(os.environ["BORDER"])).astype(np.int64)

    for number, border in ((1, "120"), (2, "160")):
        monkeypatch.setenv("BORDER", border)
        smoothed = SmoothedClassifier(model, n=200, **LABELS)
        certify_dataset(smoothed, pictures(8), tmp_path / str(number), Choice(shard=Shard(number, 2)))
    runs = [read_run(tmp_path / name) for name in ("1", "2")]
    assert runs[0].manifest.model.sha256 == runs[1].manifest.model.sha256
    with pytest.raises(RunError, match=r"model\.answers"):
        merge([tmp_path / "1", tmp_path / "2"], tmp_path / "whole")


def test_other_workers_state_the_same_answers(tmp_path: Path) -> None:
    for name, workers in (("one", 1), ("two", 2)):
        smoothed = SmoothedClassifier(sign, n=200, execution=Execution(workers=workers), **LABELS)
        certify_dataset(smoothed, pictures(8), tmp_path / name)
    one, two = (read_run(tmp_path / name) for name in ("one", "two"))
    assert one.manifest.model.answers == two.manifest.model.answers
    assert len(one.manifest.model.answers or ()) == 64
