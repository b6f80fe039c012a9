"""Recorded passes: on a CPU, where a recorder that keeps CUDA's rules stands in for CUDA's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock

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
def recorder(monkeypatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(graphs, "recorder_for", lambda device: made)
    return made


def tallies(
    route: str, workers: int = 1, generator: str = "auto", module: nn.Module | None = None
) -> list[tuple[int, ...]]:
    how = {
        "numerics": Numerics(route=route, chunk=64, generator=generator),
        "execution": Execution(workers=workers),
    }
    classifier = SmoothedClassifier(module or network(), sigma=1.0, n=2000, seed=0, **how)
    return [one.estimation.counts for one in classifier.certify(np.stack([X, X / 2]), index=0)]


@pytest.mark.parametrize("generator", ["sfc64", "philox"])
def test_what_is_replayed_votes_as_what_was_recorded(recorder, generator):
    plain = tallies("folded", generator=generator)
    assert tallies("graphs", generator=generator) == plain
    assert recorder.replays > 30, "passes were replayed"
    assert tallies("graphs", workers=2, generator=generator) == plain


def test_images_without_batch_norm_and_rows_are_recorded_too(recorder):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4))
    assert tallies("graphs", module=plain) == tallies("channels-last", module=plain)
    assert recorder.recorded


def test_answers_are_kept_apart_and_other_batches_are_not_replayed():
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


def test_a_model_that_can_not_be_recorded_is_refused_by_name_and_a_cpu_has_no_graphs(monkeypatch):
    with pytest.raises(ModelError, match=r"'graphs'.*CUDA.*\bcpu\b"):
        tallies("graphs")

    def refuse(step: Step) -> tuple[Callable[[], None], Tensor]:
        raise RuntimeError("capturing")

    monkeypatch.setattr(graphs, "recorder_for", lambda device: refuse)
    with pytest.raises(ModelError, match=r"'graphs'.*RuntimeError: capturing"):
        tallies("graphs")


def test_a_pass_is_recorded_on_a_stream_of_its_own_and_one_at_a_time(monkeypatch):
    """Never run on CUDA: torch's default for graphs is one stream for all threads, and its recording has one owner."""
    cuda, recording = MagicMock(), []

    @contextmanager
    def graph(made: Any, **options: Any) -> Iterator[None]:
        assert graphs._RECORDING.locked()
        recording.append((made, options["stream"], options["capture_error_mode"]))
        yield

    cuda.Stream.side_effect = lambda: MagicMock()
    cuda.CUDAGraph.side_effect = lambda: MagicMock()
    cuda.graph = graph
    monkeypatch.setattr(torch, "cuda", cuda)
    steps: list[int] = []

    def step() -> Tensor:
        steps.append(len(recording))
        return torch.zeros(1)

    (replay, held), (other, _) = (graphs.recorder_for(torch.device("cuda:1"))(step) for _ in range(2))
    (first, aside, mode), (second, beside, _) = recording
    assert held.tolist() == [0]
    assert (replay, other) == (first.replay, second.replay)
    assert (aside is not beside, mode) == (True, "thread_local")
    assert set(steps[:-1]) == {0, 1}, "warmed up before it is recorded"
    assert [call.args[0] for call in cuda.stream.call_args_list] == [aside, beside]
    assert not graphs._RECORDING.locked()
    assert {str(call.args[0]) for call in cuda.device.call_args_list} == {"cuda:1"}
