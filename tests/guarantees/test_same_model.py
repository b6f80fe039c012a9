"""A run, and a memory, is of one model: what tells two apart, and what a run that is continued asks again."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import LevelledClassifier, SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution
from smoothcert.errors import RunError
from smoothcert.evaluation.certification import Progress, certify_dataset
from smoothcert.models.adapt import adapt
from smoothcert.runs.run import read_run
from smoothcert.runs.statement import Choice
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.search.base import SEARCHES
from smoothcert.smoothing.stores.base import StoreError
from tests.guarantees.toys import POINTS, Hooked, Kept, Signed, scores

pytestmark = pytest.mark.filterwarnings("ignore::smoothcert.smoothing.inputs.SmallNoiseWarning")


def points(count: int = 6) -> Dataset:
    values = np.random.default_rng(1).normal(size=(count, 2)).astype(np.float32)
    return Dataset("points", values, (values[:, 0] <= 0).astype(np.int64), ("0", "1"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Signed(1.0), Signed(-1.0)),
        (Signed(1.0), Signed(1.001)),
        (lambda b: scores(b), lambda b: -scores(b)),
        (lambda b: scores(b), lambda b: 3 * scores(b)),
    ],
)
def test_a_run_or_a_memory_of_one_model_is_never_continued_with_another(one, other, tmp_path):
    def classifier(model: Any) -> SmoothedClassifier:
        return SmoothedClassifier(model, sigma=0.5, n0=20, n=100, seed=0, alpha=0.05)

    certify_dataset(classifier(one), points(), tmp_path / "run", Choice(most=3))
    with pytest.raises(RunError, match=r"model\.sha256"):
        certify_dataset(classifier(other), points(), tmp_path / "run")
    RegionMemory.open(tmp_path / "memory", MemoryStatement.of(classifier(one), (2,))).close()
    with pytest.raises(StoreError, match="model_sha256"):
        RegionMemory.open(tmp_path / "memory", MemoryStatement.of(classifier(other), (2,)))


def far_away(border: float) -> Callable[[np.ndarray], np.ndarray]:
    """Labels that all probes get are the same, wherever the border is."""

    def labels(batch: np.ndarray) -> np.ndarray:
        return (batch[:, 0] > border).astype(np.int64)

    return labels


def begun(classifier: Any, data: Dataset, out: Path) -> Path:
    """A run that was interrupted after two inputs."""

    def stop(record: Any) -> None:
        if record.index >= 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify_dataset(classifier, data, out, progress=Progress(record=stop))
    return out


def check_continued(
    classifier: Callable[[float], Any], data: Dataset, folder: Path, moved: float, whose: str = ""
) -> None:
    """What was begun with classifier(0) goes on with it, to the bits of a whole run, and not with classifier(moved)."""
    out = begun(classifier(0.0), data, folder / "changed")
    before = read_run(out).records.digest
    with pytest.raises(RunError, match=rf"model\.answers|{whose}.*--out"):
        certify_dataset(classifier(moved), data, out)
    assert read_run(out).records.digest == before
    run = certify_dataset(classifier(0.0), data, begun(classifier(0.0), data, folder / "same"))
    assert run.records.digest == certify_dataset(classifier(0.0), data, folder / "whole").records.digest


NEAR = [[1e6 - 3, 0], [1e6 + 0.3, 0], [1e6 + 5, 0], [1e6 - 0.2, 0]]
HELD = [[1e6 + 0.3, 0], [1e6 - 0.3, 0], [1e6 + 0.3, 0.1], [1e6 - 0.3, 1]]


@pytest.mark.parametrize(
    ("way", "values", "moved"),
    [
        *((way, NEAR, 0.5) for way in ("plain", "search", "held")),
        # Changed under noise alone: without noise the inputs that are done have the class they had.
        ("search", [[1e6 + 0.3, 0], [1e6 - 0.3, 0], [1e6 + 5, 0], [1e6 - 5, 0]], 0.25),
        ("held", HELD, 0.25),
    ],
)
def test_a_run_whose_model_changed_where_no_probe_looks_is_not_continued(tmp_path, way, values, moved):
    labels = np.array([int(x > 1e6) for x, _ in values])
    data = Dataset("far", np.array(values), labels, ("a", "b"))

    def model(border: float) -> Any:
        return adapt(far_away(1e6 + border), "hard", "labels", 2)

    def classifier(border: float) -> Any:
        search = SEARCHES["ladder"]() if way == "search" else None
        smoothed = SmoothedClassifier(model(border), sigma=1.0, n0=50, n=200, seed=0, search=search)
        return smoothed.holding([1]) if way == "held" else smoothed

    assert model(0.0).fingerprint((2,)) == model(moved).fingerprint((2,))
    check_continued(classifier, data, tmp_path, moved)


class Bordered(nn.Module):
    """Far from all probes the border moves with a plain attribute."""

    def __init__(self, border: float) -> None:
        super().__init__()
        self.border = border

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        off = x[:, :1] - 3000
        margin = off - torch.where(off.abs() < 100, self.border, 0.0) + 0.3 * x[:, 1:2]
        return torch.cat([-margin, margin], 1)


@pytest.mark.slow
def test_nor_is_one_with_searched_ellipsoids_whose_model_changed_under_noise_alone(tmp_path):
    values = np.array([[3000.9, 0], [2999.1, 0], [3000.9, 0.2], [2999.1, 0.2]])
    data = Dataset("far", values, np.array([1, 0, 1, 0]), ("a", "b"))

    def classifier(border: float) -> SmoothedClassifier:
        search = SEARCHES["ellipsoid"]()
        return SmoothedClassifier(Bordered(border), sigma=1.0, n0=50, n=1000, seed=0, search=search)

    check_continued(classifier, data, tmp_path, 0.5)
    assert any(record.volume_radius is not None for record in read_run(tmp_path / "whole").records)


@pytest.mark.parametrize("changed", ["chooser", "lower"])
def test_nor_is_one_with_levels_whose_chooser_or_lower_model_changed(tmp_path, changed):
    """Of levels only the largest one's model was asked, and that without noise: two choosers made one run."""
    # All near the border: whichever inputs are done when the run is interrupted tell the functions apart.
    values = np.array([[1e6 - 0.3, 0], [1e6 + 0.3, 0], [1e6 + 0.25, 0], [1e6 - 0.2, 0]])
    data = Dataset("far", values, np.array([0, 1, 1, 0]), ("a", "b"))

    def classifier(moved: float) -> LevelledClassifier:
        lower, chooser = (moved, 0.0) if changed == "lower" else (0.0, moved)
        models = [adapt(far_away(1e6 + border), "hard", "labels", 2) for border in (lower, 0.0)]
        # Near enough to both levels for either to be looked at.
        choosing = adapt(far_away(1e6 + chooser), "hard", "labels", 2)
        return LevelledClassifier(models, choosing, sigmas=(0.5, 1.0), n0=50, n=200, seed=0)

    whose = {"chooser": r"\bchooser\b", "lower": r"\b0\b"}[changed]
    check_continued(classifier, data, tmp_path, 0.5, whose)


def test_two_fits_of_one_estimator_differ():
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = np.random.default_rng(0).normal(size=(200, 2))

    def fitted(strength: float) -> str:
        estimator = linear_model.LogisticRegression(C=strength).fit(x, x[:, 0] > 0)
        return adapt(estimator, "hard").fingerprint((2,))

    assert fitted(1.0) == fitted(1.0)
    assert fitted(1.0) != fitted(1.01)


def test_a_model_may_refuse_what_is_out_of_its_range():
    def bounded(batch: np.ndarray) -> np.ndarray:
        if np.abs(batch).max() > 4:
            raise ValueError("out of range")
        return scores(batch)

    class Bounded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype != torch.float32 or float(x.abs().max()) > 4:
                raise ValueError("out of range")
            return torch.cat([x[:, :1], -x[:, :1]], 1)

    for model in (bounded, Bounded()):
        answer = SmoothedClassifier(model, sigma=0.1, n=200, seed=0).certify(np.ones((1, 2)), index=0)[0]
        assert answer.predicted == 0
        assert len(adapt(model, "hard").fingerprint((2,))) == 64
    assert adapt(bounded, "hard").fingerprint((2,)) != adapt(scores, "hard").fingerprint((2,))


@pytest.mark.parametrize("model", [Signed(1.0), Kept(), Hooked(), scores])
def test_a_fingerprint_is_the_same_before_and_after_use(model):
    base = adapt(model, "hard")
    before = base.fingerprint((2,))
    classifier = SmoothedClassifier(base, sigma=1.0, n=500, seed=0, execution=Execution(workers=4))
    classifier.certify(POINTS, index=0)
    assert base.fingerprint((2,)) == before
    assert adapt(model, "hard").fingerprint((2,)) == before


FINGERPRINTS = """
import torch
from torch import nn
from smoothcert.models.adapt import adapt
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4))
net.extra_repr = lambda: repr(object())  # an address
function = lambda batch: batch[:, 0, 0, :3]
found = [adapt(model, "hard").fingerprint((2, 8, 8)) for model in (net, function)]
"""


def fingerprints() -> list[str]:
    here: dict[str, Any] = {}
    exec(FINGERPRINTS, here)
    return here["found"]


def test_a_fingerprint_is_the_same_with_other_threads():
    expected = fingerprints()
    torch.set_num_threads(2)
    try:
        assert fingerprints() == expected
    finally:
        torch.set_num_threads(1)


@pytest.mark.system
def test_a_fingerprint_is_the_same_in_another_process():
    there = subprocess.run(
        [sys.executable, "-c", FINGERPRINTS + "print(*found)"],
        env=os.environ | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert there.stdout.split() == fingerprints()


def test_a_last_bit_doesnt_change_a_fingerprint():
    """Functions may be evaluated by other machines, which round differently."""

    def shaken(batch: np.ndarray) -> np.ndarray:
        return scores(batch) * (1 + 2e-16)

    base, other = adapt(lambda b: scores(b).astype(np.float64), "hard"), adapt(shaken, "hard")
    base.name = other.name = "same"
    assert base.fingerprint((2,)) == other.fingerprint((2,))
