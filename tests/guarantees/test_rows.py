"""Rows are scored on their own: a model that goes by its batch is refused, in any units and behind any mask.

The check is on the noisy rows of the run itself, before and while votes are cast.
"""

import itertools
import os
import random
import sys
from collections.abc import Callable
from hashlib import sha256
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
from smoothcert.engine.execution import Execution
from smoothcert.errors import DependentVotesError, RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.evaluation.merging import merge
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.models.outputs import answer_bytes, same_answers
from smoothcert.runs.run import read_run
from smoothcert.runs.statement import Choice, Shard
from smoothcert_verify import RunError as UnreadableRunError
from smoothcert_verify import verify_run
from tests.guarantees.toys import scores

# ------------------------------------------------------------------------------------------------ estimators, any units

X, Y = load_digits(return_X_y=True)


def units(largest: int) -> np.ndarray:
    return np.round(X * largest / 16)


def fitted(estimator: Any, largest: int, *steps: Any) -> Any:
    return make_pipeline(*steps, estimator).fit(units(largest)[::2], Y[::2])


def labels_of(estimator: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda batch: estimator.predict(batch).astype(np.int64)


class Scaled(nn.Module):
    """A linear model of inputs that ``scale`` changes by their batch."""

    def __init__(self, largest: int, scale: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.largest, self.scale = nn.Linear(64, 10), largest, scale

    def forward(self, x: Tensor) -> Tensor:
        scored: Tensor = self.body(self.scale(x, self.largest))
        return scored


def clamped(x: Tensor, largest: int) -> Tensor:
    return x.clamp(max=x.mean() + 3 * x.std()) / largest


def turned(x: Tensor, largest: int) -> Tensor:
    return x / largest * torch.where(x.mean() > 0.3 * largest, 1, -1)


def by_the_largest(x: Tensor, _largest: int) -> Tensor:
    return torch.relu(x) / x.max()


CENTRED = FunctionTransformer(lambda batch: batch - batch.mean(axis=0))
STANDARDISED = FunctionTransformer(lambda batch: (batch - batch.mean(0)) / (batch.std(0) + 1e-9))
LOGISTIC, TREE = LogisticRegression(max_iter=200), DecisionTreeClassifier(random_state=0)
FOREST = RandomForestClassifier(20, random_state=0)
PROBABILITIES = {"outputs": "probabilities"}

Case = tuple[int, Callable[[int], Any], dict[str, Any]]
DEPENDENT: dict[str, Case] = {
    "SVC": (255, lambda top: fitted(SVC(), top, CENTRED), {}),
    "centroid": (255, lambda top: fitted(NearestCentroid(), top, CENTRED), {}),
    "neighbours": (4095, lambda top: fitted(KNeighborsClassifier(3), top, CENTRED), {}),
    "forest": (4095, lambda top: fitted(FOREST, top, CENTRED), {}),
    "tree": (65535, lambda top: labels_of(fitted(TREE, top, CENTRED)), {"outputs": "labels", "classes": 10}),
    "probabilities": (4095, lambda top: fitted(LOGISTIC, top, STANDARDISED).predict_proba, PROBABILITIES),
    "soft votes": (
        4095,
        lambda top: fitted(LOGISTIC, top, STANDARDISED).predict_proba,
        PROBABILITIES | {"bound": "bernstein"},
    ),
    "clamped": (255, lambda top: Scaled(top, clamped), {}),
    "clamped, 16 bits": (65535, lambda top: Scaled(top, clamped), {}),
    "turned": (255, lambda top: Scaled(top, turned), {}),
    "by the largest": (4095, lambda top: Scaled(top, by_the_largest), {}),
}
HONEST: dict[str, Case] = {
    "SVC": (255, lambda top: fitted(SVC(), top, StandardScaler()), {}),
    "centroid": (255, lambda top: fitted(NearestCentroid(), top), {}),
    "neighbours": (4095, lambda top: fitted(KNeighborsClassifier(3), top), {}),
    "forest": (4095, lambda top: fitted(FOREST, top), {}),
    "tree": (65535, lambda top: fitted(TREE, top), {}),
    "bayes": (255, lambda top: fitted(GaussianNB(var_smoothing=1e-3), top).predict_proba, PROBABILITIES),
    "linear": (255, lambda _: nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 10)), {}),
    "network": (65535, lambda _: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)), {}),
}


def certified(case: Case) -> Any:
    largest, make, options = case
    smoothed = SmoothedClassifier(make(largest), sigma=largest / 8, n=200, seed=0, **options)
    return smoothed.certify(units(largest)[1:25:2])


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
@pytest.mark.parametrize("name", DEPENDENT)
def test_a_model_that_goes_by_its_batch_is_refused_in_any_units(name):
    with pytest.raises(DependentVotesError):
        certified(DEPENDENT[name])


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_model_is_not(name):
    assert len(certified(HONEST[name])) == 12


def test_the_refusal_names_the_input():
    smoothed = SmoothedClassifier(fitted(SVC(), 255, CENTRED), sigma=32, n=100, seed=0)
    with pytest.raises(DependentVotesError, match=r"\b700[0-8]\b"):
        smoothed.predict(units(255)[:9], 100, index=7000)


# --------------------------------------------------------------------------------------- what else the scores may hold


class Company(nn.Module):
    """Every vote is decided by the batch, by ``margin`` of a score; further classes have a fixed score."""

    def __init__(self, margin: float, others: int = 0, score: float = 0.0, border: float = 0.3) -> None:
        super().__init__()
        self.margin, self.others, self.score, self.border = margin, others, score, border

    def forward(self, x: Tensor) -> Tensor:
        size = 1 + x[:, :1].abs()
        moved = size * (1 + self.margin * torch.sign(x.mean() - self.border))
        return torch.cat([size, moved, x.new_full((len(x), self.others), self.score)], 1)


class Undefined(Company):
    """The same, and no number where ``inside`` is negative."""

    def __init__(self, inside: Callable[[Tensor], Tensor], border: float) -> None:
        super().__init__(2.0, border=border)
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0 * torch.log(self.inside(x[:, :1]))


class Neighbours(nn.Module):
    """Scores of some size, in which every row but the first depends on the one before."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        before = x.roll(1, 0)
        before[0] = 0
        return self.size * torch.cat([x[:, :1] + before[:, :1], -x[:, :1]], 1)


class Random(nn.Module):
    def __init__(self, masked: int) -> None:
        super().__init__()
        self.masked = masked

    def forward(self, x: Tensor) -> Tensor:
        score = x.new_full((len(x), 1), random.gauss(0, 1))
        return torch.cat([-score, score, x.new_full((len(x), self.masked), -torch.inf)], 1)


def certify(module: nn.Module, at: float = 0.5, dtype: str = "auto") -> None:
    numerics = Numerics(dtype)
    SmoothedClassifier(module, sigma=0.5, n=100, seed=0, numerics=numerics).certify(np.full(16, at))


@pytest.mark.parametrize("score", [-1e9, -np.inf, -1e4, -1000.0, -50.0, 1e-3])
def test_a_mask_hides_no_batch(score):
    for margin, others in ((2.0, 1), (0.02, 3), (2.0, 998), (0.02, 998)):
        with pytest.raises(DependentVotesError):
            certify(Company(margin, others, score))


def test_nor_does_anything_else():
    for module, at, dtype in [
        # Margins below float32's rounding are seen in float64.
        *((Company(margin), 0.5, "auto") for margin in (5e-3, 1.9e-4, 1e-5)),
        # Rounding to 16 bits is allowed for, and with it a batch that decided every vote was.
        *((Company(5e-3), 0.25, dtype) for dtype in ("bfloat16", "float16", "autocast-bfloat16")),
        # Neighbours differ in size.
        *((Company(2.0, border=border), 0.5, "auto") for border in (3.0, 50.0)),
        *((Neighbours(size), 0.5, "auto") for size in (1.0, 1e-6)),
        # Rows without a number leave the others compared.
        (Undefined(lambda x: 0.9 - x, 0.3), 0.5, "auto"),
        (Undefined(lambda x: 0.2 - x, -1.0), -0.5, "auto"),
        (Undefined(lambda x: x - 0.99, 150.0), 1.5, "auto"),
        (Undefined(lambda x: x - 2, 300.0), 2.5, "auto"),
        (Undefined(lambda x: x - 100, 300.0), 100.5, "auto"),
        *((Random(masked), 0.5, "auto") for masked in (0, 1, 3)),
    ]:
        with pytest.raises(DependentVotesError):
            certify(module, at, dtype)


class Rounded(nn.Module):
    """A network whose scores round otherwise in other places, with most of its classes masked, or none."""

    def __init__(self, masked: int, value: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        self.masked, self.value = masked, value

    def forward(self, x: Tensor) -> Tensor:
        scored: Tensor = self.body(100 * x)
        # Some last bits by the place of a row: what other kernels do at the edge of a batch.
        scored[1::2] *= 1 + 8 * torch.finfo(x.dtype).eps
        return scored.masked_fill(torch.arange(10) >= 10 - self.masked, self.value)


@pytest.mark.parametrize(("masked", "value"), [(0, 0.0), (6, -1e9), (8, -np.inf), (6, 1e-30)])
def test_rounding_is_no_dependence(masked, value):
    certify(Rounded(masked, value), 0.2)


def test_scores_far_below_do_not_widen_what_rounding_may_do():
    one = torch.tensor([[0.5, -0.5, *[-1e9] * 8]]).repeat(4, 1)
    swapped = one.clone()
    swapped[0, :2] = torch.tensor([-0.5, 0.5])
    for changed, same in ((one.clone(), True), (swapped, False), (one * 1.000001, True), (one * 1.01, False)):
        assert same_answers(one, changed, "scores", torch.finfo(torch.float32).eps) == same


@pytest.mark.parametrize("value", [-1e9, -np.inf, -50.0, 0.0])
def test_a_fingerprint_sees_the_classes_beside_a_mask(value):
    def masked(sign: float) -> Any:
        return lambda batch: np.column_stack([sign * scores(batch), np.full(len(batch), value)])

    one, other, again = (adapt(masked(sign), "hard").answers((2,)) for sign in (1.0, -1.0, 1.0))
    assert one == again != other


def test_fingerprints_of_scores_without_a_mask_stay_what_they_were():
    """Runs that were made before are continued and verified by them."""
    scored = torch.linspace(-3, 5, 40, dtype=torch.float64).reshape(4, 10)
    scored[0, 0] = -90.0  # within a thousand times what leads
    coarse, fine = (sha256(answer_bytes(scored, "scores", fine=fine)).hexdigest() for fine in (False, True))
    assert coarse == "5be8c56eb5d693f89a520deb09aba661c5cdf8888f4a4ef399576383896dd972"
    assert fine == "3456faecf04a68db5a36d8a4f5f4679cd4e1b9f54dea757f132db5e8d408a625"


# ---------------------------------------------------------------------------------------------- while votes are cast


def sign(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > 100).astype(np.int64)


def labelled(model: Any, **options: Any) -> SmoothedClassifier:
    return SmoothedClassifier(model, sigma=30.0, seed=0, outputs="labels", classes=2, **options)


def tired(after: int, n: int) -> SmoothedClassifier:
    """Answers otherwise after so many passes."""
    passes = itertools.count()

    def model(batch: np.ndarray) -> np.ndarray:
        return sign(batch) if next(passes) < after else 1 - sign(batch)

    return labelled(model, n=n, numerics=Numerics(chunk=64, block=64))


def points(count: int) -> Dataset:
    rows = np.stack([np.linspace(20, 180, count), np.zeros(count)], axis=1)
    return Dataset("points", rows, (rows[:, 0] > 100).astype(np.int64), ("left", "right"))


def test_what_goes_wrong_after_many_passes_marks_the_run(tmp_path):
    """Answers were stored by then: every reader refuses them."""
    with pytest.raises(DependentVotesError):
        certify_dataset(tired(150, n=1000), points(40), tmp_path / "run")
    for read in (read_run, verify_run):
        with pytest.raises((RunError, UnreadableRunError), match=r"void\.json"):
            read(tmp_path / "run")
    honest = labelled(sign, n=1000, numerics=Numerics(chunk=64, block=64))
    with pytest.raises(RunError, match=r"void\.json"):
        certify_dataset(honest, points(40), tmp_path / "run")


def test_the_check_goes_on_where_one_input_gets_all_votes():
    with pytest.raises(DependentVotesError):
        tired(2500, n=200_000).certify(np.array([90.0, 0.0]))


def test_no_vote_changes_for_the_check(monkeypatch):
    x = points(20).input(7)
    checked = labelled(sign, n=500).certify(x, index=3).estimation
    monkeypatch.setattr("smoothcert.engine.checking.RowCheck.open", lambda *_: None)
    assert labelled(sign, n=500).certify(x, index=3).estimation == checked


SETTING = """
import numpy as np
BORDER = 0.0

def model(batch):
    return (batch[:, 0] > BORDER).astype(np.int64)
"""


@pytest.mark.system
def test_processes_with_another_setting_are_refused(tmp_path, monkeypatch, request):
    """They import the module anew, and have its default: class 1 was certified where the caller's function says 0."""
    request.addfinalizer(lambda: sys.modules.pop("changed_setting", None))
    (tmp_path / "changed_setting.py").write_text(SETTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    import changed_setting

    smoothed = labelled(changed_setting.model, n=2000, execution=Execution(workers=2, backend="processes"))
    x = np.array([[50.0, 0.0], [60.0, 0.0]])
    for border, refused in (
        (100.0, True),
        (0.0, False),
        (100.0, True),
    ):  # kept workers have their first setting
        changed_setting.BORDER = border
        if refused:
            with pytest.raises(DependentVotesError):
                smoothed.certify(x)
        else:
            assert len(smoothed.certify(x)) == 2


def test_shards_of_two_functions_with_equal_fingerprints_are_not_merged(tmp_path, monkeypatch):
    """They differ where the data lie, and not on the fixed rows that a fingerprint is of."""

    def model(batch: np.ndarray) -> np.ndarray:
        return (batch[:, 0] > float(os.environ["BORDER"])).astype(np.int64)

    for number, border in ((1, "120"), (2, "160")):
        monkeypatch.setenv("BORDER", border)
        shard = Choice(shard=Shard(number, 2))
        certify_dataset(labelled(model, n=200), points(8), tmp_path / str(number), shard)
    runs = [read_run(tmp_path / name) for name in ("1", "2")]
    assert runs[0].manifest.model.sha256 == runs[1].manifest.model.sha256
    with pytest.raises(RunError, match=r"model\.answers"):
        merge([tmp_path / "1", tmp_path / "2"], tmp_path / "whole")


def test_any_number_of_workers_states_the_same_answers(tmp_path):
    for name, workers in (("one", 1), ("two", 2)):
        smoothed = labelled(sign, n=200, execution=Execution(workers=workers))
        certify_dataset(smoothed, points(8), tmp_path / name)
    one, two = (read_run(tmp_path / name).manifest.model.answers for name in ("one", "two"))
    assert one == two
    assert len(one or ()) == 64
