"""Recorded passes: on a CPU, where a recorder that keeps CUDA's rules stands in for CUDA's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothcert import SmoothedClassifier
from smoothcert.engine.execution import Execution
from smoothcert.errors import ModelError
from smoothcert.models import routes as graphs
from smoothcert.models.numerics import Numerics
from smoothcert.models.routes import Step, replayed
from tests.models.test_routes import SHAPE, network

X = np.random.default_rng(0).random(SHAPE)


class Recorder:
    """Replays overwrite the one tensor that was held when the step was recorded, as a graph's do."""

    def __init__(self) -> None:
        self.recorded = self.replays = 0

    def __call__(self, step: Step) -> tuple[Callable[[], None], Tensor]:
        self.recorded += 1
        held = step().clone()

        def replay() -> None:
            self.replays += 1
            held.copy_(step())

        return replay, held


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(graphs, "recorder_for", lambda device: made)
    return made


def tallies(
    route: str, workers: int = 1, generator: str = "auto", module: nn.Module | None = None
) -> list[tuple[int, ...]]:
    classifier = SmoothedClassifier(
        module or network(),
        sigma=1.0,
        n=2000,
        seed=0,
        numerics=Numerics(route=route, chunk=64, generator=generator),
        execution=Execution(workers=workers),
    )
    return [one.estimation.counts for one in classifier.certify(np.stack([X, X / 2]), index=0)]


@pytest.mark.parametrize("generator", ["sfc64", "philox"])
def test_what_is_replayed_votes_as_what_was_recorded(recorder: Recorder, generator: str) -> None:
    plain = tallies("folded", generator=generator)
    assert tallies("graphs", generator=generator) == plain
    assert recorder.replays > 30, "passes were replayed"
    assert tallies("graphs", workers=2, generator=generator) == plain


def test_images_without_batch_norm_and_rows_are_recorded_too(recorder: Recorder) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4))
    assert tallies("graphs", module=plain) == tallies("channels-last", module=plain)
    assert recorder.recorded


def test_answers_are_kept_apart_and_other_batches_are_not_replayed() -> None:
    recorder = Recorder()
    call = replayed(lambda batch: batch * 2, torch.zeros(3, 2), recorder)
    first = call(torch.ones(3, 2))
    second = call(torch.full((3, 2), 5.0))
    assert first.eq(2).all(), "the second replay left it alone"
    assert second.eq(10).all()
    assert recorder.replays == 2
    assert call(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
    assert call(torch.ones(3, 2, dtype=torch.float64)).dtype == torch.float64
    assert recorder.replays == 2


def test_a_model_that_can_not_be_recorded_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(step: Step) -> tuple[Callable[[], None], Tensor]:
        raise RuntimeError("capturing")

    monkeypatch.setattr(graphs, "recorder_for", lambda device: refuse)
    with pytest.raises(ModelError, match=r"'graphs'.*RuntimeError: capturing"):
        tallies("graphs")


def test_a_cpu_has_no_graphs() -> None:
    with pytest.raises(ModelError, match=r"'graphs'.*CUDA.*\bcpu\b"):
        tallies("graphs")
