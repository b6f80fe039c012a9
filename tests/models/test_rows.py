"""Rows of a pass on an accelerator: doubled while that helps, halved where memory is short, never a crash."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.datasets.base import Dataset
from smoothcert.errors import ModelError
from smoothcert.evaluation import certification
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.models import torch_module
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.models.torch_module import MOST_ROWS, TorchGauge, fastest_rows, measured
from smoothcert.smoothing.classifier import SmoothedClassifier


class Fake:
    """A device with a clock and a memory of its own."""

    def __init__(
        self, seconds: Callable[[int], float], memory: int | None = None, bytes_per_row: int = 1
    ) -> None:
        self._seconds, self._memory, self._each = seconds, memory, bytes_per_row
        self.asked: list[int] = []
        self._taken = 0

    def seconds(self, rows: int) -> float | None:
        self.asked.append(rows)
        if self._memory is not None and rows * self._each > self._memory:
            return None
        self._taken = max(self._taken, rows * self._each)
        return self._seconds(rows)

    def free(self) -> int | None:
        return None if self._memory is None else self._memory - self._taken


def test_rows_are_doubled_until_they_bring_no_more():
    for at in (64, 256, 1024):  # rows that a device works on at once
        assert fastest_rows(Fake(lambda rows, at=at: float(-(-rows // at)))) == at
    for gain, expected in ((1.04, 64), (1.06, 128)):  # four percent is no gain, and six is
        assert fastest_rows(Fake(lambda rows, g=gain: rows / (g if rows == 128 else 1.0))) == expected
    assert fastest_rows(Fake(lambda rows: 1.0)) == MOST_ROWS


def test_memory_ends_the_doubling_before_it_is_full():
    device = Fake(lambda rows: 1.0, memory=1000)
    assert fastest_rows(device) == 512
    assert max(device.asked) == 512  # 1024 wasn't tried
    for memory, expected in ((64, 64), (63, 32), (17, 16), (1, 1)):  # a pass that does not fit is halved
        assert fastest_rows(Fake(lambda rows: 1.0, memory)) == expected
    with pytest.raises(ModelError, match="--device cpu"):
        fastest_rows(Fake(lambda rows: 1.0, memory=0))

    class Liar(Fake):
        """It fails though it was told to be there."""

        def free(self) -> int | None:
            return None

    assert fastest_rows(Liar(lambda rows: 1.0, memory=200)) == 128


def test_a_module_is_timed_and_short_memory_is_no_crash():
    gauge = TorchGauge(nn.Linear(4, 2), torch.zeros(1, 4))
    assert gauge.seconds(64) > 0
    assert gauge.free() is None

    class Hungry(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 32:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().forward(x)

    with torch.inference_mode():
        assert fastest_rows(TorchGauge(Hungry(4, 2), torch.zeros(1, 4))) == 32

    class Fails(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("many")

    with pytest.raises(ModelError, match=r"\b64\b.*ValueError: many.*--chunk"):
        TorchGauge(Fails(4, 2), torch.zeros(1, 4)).seconds(64)


def test_the_cpu_keeps_its_rule_and_others_are_measured():
    assert not measured("cpu")
    assert measured("cuda")
    assert measured("cuda:1")


def test_the_plan_states_what_was_measured_and_a_run_that_is_continued_keeps_it(tmp_path, monkeypatch):
    """Measured again the rows might be others, and the run would refuse to go on."""
    found = iter([256, 512])
    monkeypatch.setattr(torch_module, "measured", lambda device: True)
    monkeypatch.setattr(torch_module, "fastest_rows", lambda gauge: next(found))
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    assert adapt(model, "hard").prepare(Numerics(chunk=24), (4,)).numerics.chunk == 24  # as asked for
    x = np.random.default_rng(0).random((4, 4)).astype(np.float32)
    data = Dataset("points", x, np.zeros(4, dtype=np.int64), ("a", "b"))

    class KilledError(Exception):
        pass

    def after_two(record: object, seen: list[object] = []) -> None:  # noqa: B006
        seen.append(record)
        if len(seen) == 2:
            raise KilledError

    classifier = SmoothedClassifier(model, sigma=0.5, n=300, n0=20, seed=0)
    with pytest.raises(KilledError):
        certify_dataset(classifier, data, tmp_path / "run", progress=certification.Progress(record=after_two))
    run = certify_dataset(SmoothedClassifier(model, sigma=0.5, n=300, n0=20, seed=0), data, tmp_path / "run")
    assert run.manifest.plan.chunk == 256
    assert len(run.records) == 4


def test_rows_are_measured_once_where_columns_are_held(monkeypatch):
    """All inputs share one prepared model."""
    found = iter([128, 256, 512, 1024])
    monkeypatch.setattr(torch_module, "measured", lambda device: True)
    monkeypatch.setattr(torch_module, "fastest_rows", lambda gauge: next(found))
    torch.manual_seed(0)
    smoothed = SmoothedClassifier(nn.Linear(4, 2), sigma=0.5, n=300, n0=20, seed=0)
    smoothed.holding([1]).certify(np.random.default_rng(0).random((3, 4)))
    assert next(found) == 256


class Full(nn.Linear):
    """A device's memory is full with more rows than ``most``."""

    most = 32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(x)


@pytest.mark.parametrize("route", ["auto", "eager"])
def test_measured_rows_are_halved_where_the_route_needs_more_memory(route, monkeypatch):
    monkeypatch.setattr(torch_module, "measured", lambda device: True)
    monkeypatch.setattr(torch_module, "fastest_rows", lambda gauge: 256)
    assert adapt(Full(4, 2), "hard").prepare(Numerics(route=route), (4,)).numerics.chunk == 32


def test_stated_rows_that_do_not_fit_are_refused_with_a_number_to_give():
    """Halved they would be another plan; while votes are cast, too."""
    with pytest.raises(ModelError, match=r"64 rows.*--chunk 32"):
        adapt(Full(4, 2), "hard").prepare(Numerics(chunk=64), (4,))
    calls = iter(range(100))

    class Fills(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_exporting():
                raise ValueError("can't be captured")
            if next(calls) > 20:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().forward(x)

    numerics = Numerics(chunk=64, route="eager")
    smoothed = SmoothedClassifier(Fills(4, 2), sigma=0.5, n=30_000, n0=20, seed=0, numerics=numerics)
    with pytest.raises(ModelError, match=r"input 0.*64 rows.*--chunk 32"):
        smoothed.certify(np.zeros((1, 4)))
