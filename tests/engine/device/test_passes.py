"""Passes on the device: one read a task, nothing else waited for, what is wrong told with the inputs."""

import re
from dataclasses import replace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.engine import drawing
from smoothcert.engine.drawing import Arrival
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes
from smoothcert.engine.schedule import Block, Round
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.base import Opened, Prepared
from smoothcert.models.numerics import Numerics
from smoothcert.models.outputs import read_ballots
from smoothcert.models.wrappers import two_columns
from smoothcert.perturb.base import Noise
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.perturb.grid import Grid, NoisyCopies, on_grid
from smoothcert.perturb.uniform import DiagonalUniform
from smoothcert.tally import Phase, Stream
from tests.engine.device.by_hand import noisy_rows

SHAPE = (1, 3, 3)
GRID = Grid.of(255)
INPUTS = np.random.default_rng(0).integers(0, 256, (4, *SHAPE)) / 255
SCALES = np.linspace(0.2, 1.0, 9).reshape(SHAPE)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5))


def prepared(chunk: int, block: int, model: object = None, votes: str = "hard", **words: object) -> Prepared:
    numerics = Numerics("float32", "eager", chunk, block, "philox")
    return adapt(model or network(), votes, **words).prepare(numerics, SHAPE)  # type: ignore[arg-type]


def passes_of(model: Prepared, votes: str) -> Passes:
    return Passes(model, votes, Execution(workers=1))  # type: ignore[arg-type]


def block(index: int, number: int, first: int, last: int, noise: Noise | None = None) -> Block:
    noise = noise or Gaussian(0.5)
    on = on_grid(noise, GRID, SHAPE)
    steps = torch.from_numpy(on.point(INPUTS[index]).steps).float()
    return Block(NoisyCopies(on, steps), Stream(3, index, Phase.ESTIMATION), number, first, last)


def task(slots: int, size: int) -> list[Round]:
    """Rounds with an empty slot, a block that is wanted in part, and inputs of several noises."""
    diagonal = DiagonalUniform(SCALES)
    one = [block(0, 0, 0, size), block(1, 0, 1, size - 1, diagonal), block(2, 5, 0, 1)]
    two = [block(3, 2, 0, size), None, block(1, 1, 0, size, diagonal)]
    return [[each] for each in (*one, two[0])] if slots == 1 else [one, two]


@pytest.mark.parametrize("votes", ["hard", "soft"])
@pytest.mark.parametrize(("chunk", "size"), [(12, 4), (4, 12), (8, 8)])
def test_counts_are_those_of_votes_cast_by_hand(chunk, size, votes):
    model = prepared(chunk, size, votes=votes)
    own = passes_of(model, votes)
    cast = own.launch(work := task(chunk // size or 1, size)).collect()
    module = network().eval()
    for one, (sums, seconds) in zip([each for row in work for each in row if each is not None], cast):
        numbers = range(one.number * size + one.first, one.number * size + one.last)
        seen = noisy_rows(one.copies.noise.noise, GRID, INPUTS[one.index], one.stream, numbers)
        with torch.inference_mode():
            ballots = read_ballots(module(seen), "scores", 5, votes)  # type: ignore[arg-type]
        assert np.array_equal(sums[0], np.bincount(ballots.labels, minlength=5))
        if votes == "soft":  # passes of other shapes may round a last bit otherwise
            assert ballots.probabilities is not None
            assert ballots.squares is not None
            by_hand = [ballots.probabilities.sum(0), ballots.squares.sum(0)]
            assert np.allclose(sums[1:], by_hand, rtol=1e-5, atol=8)
        assert seconds > 0


@pytest.mark.parametrize("together", [1, 9, 40, 1 << 15])
def test_what_is_drawn_together_changes_nothing(together, monkeypatch):
    expected = passes_of(prepared(12, 4), "hard").launch(task(3, 4)).collect()
    monkeypatch.setitem(drawing._TOGETHER, "cpu", together)
    found = passes_of(prepared(12, 4), "hard").launch(task(3, 4)).collect()
    assert all(np.array_equal(a, b) for (a, _), (b, _) in zip(expected, found))


class Unread:
    """Stands for a device's transfers where there are no numbers."""

    reads = 0

    def fetch(self, numbers: torch.Tensor) -> Arrival:
        assert numbers.device.type == "meta"
        self.reads += 1
        return Arrival(numbers)


@pytest.mark.parametrize(("chunk", "size", "votes"), [(12, 4, "soft"), (4, 12, "hard")])
def test_nothing_is_read_from_the_device_but_the_counts_of_a_task(chunk, size, votes, monkeypatch):
    """On torch's device without numbers whatever looks at one fails: ``.item()``, ``if tensor``, a copy to the host."""
    monkeypatch.setattr(drawing, "check_known_answers", lambda device: None)
    model = prepared(chunk, size, votes=votes)
    module = network().eval().to("meta")
    elsewhere = replace(model, device="meta", opened=Opened(model.numerics, module), order=(4, 3, 2, 1, 0))
    own = passes_of(elsewhere, votes)
    own.transfers = Unread()  # type: ignore[assignment]
    for _ in range(3):
        own.launch(task(chunk // size or 1, size))
    assert own.transfers.reads == 3
    # The foil: a model that looks at its scores is noticed.
    looking = replace(elsewhere, opened=Opened(model.numerics, lambda batch: batch * int(batch.sum() > 0)))
    with pytest.raises(ModelError, match="meta"):
        passes_of(looking, votes).launch(task(chunk // size or 1, size))


def test_a_read_on_cuda_waits_without_a_core(monkeypatch):
    """Never run there: pinned memory, a copy that does not wait, and an event that blocks instead of spinning."""
    cuda, made = MagicMock(), MagicMock()
    numbers = MagicMock(device=torch.device("cuda:1"), shape=(2,), dtype=torch.int64)
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch, "empty", made)
    arrival = drawing.Transfers().fetch(numbers)
    made.assert_called_once_with((2,), dtype=torch.int64, pin_memory=True)
    arrival.host.copy_.assert_called_once_with(numbers, non_blocking=True)  # type: ignore[attr-defined]
    cuda.Event.assert_called_once_with(blocking=True)
    arrival.event.record.assert_called_once_with(cuda.current_stream(numbers.device))  # type: ignore[union-attr]
    arrival.event.synchronize.assert_not_called()  # type: ignore[union-attr]
    assert arrival.wait() is made().numpy()
    arrival.event.synchronize.assert_called_once_with()  # type: ignore[union-attr]


@pytest.mark.parametrize(("chunk", "size"), [(12, 4), (4, 12), (8, 8)])
def test_one_read_a_task_whatever_its_passes(chunk, size):
    own = passes_of(prepared(chunk, size), "hard")
    for tasks in range(1, 4):
        own.launch(task(chunk // size or 1, size) * tasks).collect()
        assert own.transfers.reads == tasks


def scored(batch: np.ndarray) -> np.ndarray:
    total = batch.reshape(len(batch), -1).sum(1)
    return np.stack([total, -total], 1)


def test_functions_are_shown_the_same_rows():
    """A model that isn't torch's casts the same votes on this path, on the CPU."""
    seen: list[np.ndarray] = []

    def model(batch: np.ndarray) -> np.ndarray:
        seen.append(batch.copy())
        return scored(batch)

    own = passes_of(prepared(4, 4, model), "hard")
    seen.clear()
    own.launch([[block(1, 3, 0, 4)]]).collect()
    expected = noisy_rows(Gaussian(0.5), GRID, INPUTS[1], Stream(3, 1, Phase.ESTIMATION), range(12, 16))
    assert np.array_equal(np.concatenate(seen), expected.numpy())


BAD = {
    "NaN": (lambda batch: np.where(batch.max() > 500, np.nan, scored(batch)), "NaN", {}),
    "rows": (lambda batch: scored(batch)[: -1 if batch.max() > 500 else None], r"\(11, 2\).*\b12\b", {}),
    "classes": (lambda batch: scored(batch)[:, : 1 if batch.max() > 500 else 2], r"\b2\b.*\(12, 1\)", {}),
    "labels": (
        lambda batch: np.where(batch.reshape(len(batch), -1).max(1) > 500, 7, 0),
        r"\b0\.\.7\b.*\b0\.\.2\b",
        {"outputs": "labels", "classes": 3},
    ),
    "an error": (lambda batch: scored(batch) + 1 // int(batch.max() <= 500), "ZeroDivisionError", {}),
}


@pytest.mark.parametrize("name", BAD)
def test_odd_models_are_refused_with_the_inputs(name):
    model, reason, told = BAD[name]
    own = passes_of(prepared(12, 4, model, **told), "hard")
    far = block(2, 0, 0, 4)
    object.__setattr__(far.copies, "steps", far.copies.steps + 600 * far.copies.divisor)
    one = [block(0, 0, 0, 4), far, None]
    with pytest.raises(ModelError, match=reason) as error, np.errstate(all="ignore"):
        own.launch([one]).collect()
    # Where the rows tell, the input is named; else all that were in the pass.
    named = re.findall(r"\d+", str(error.value).split(":")[0])
    assert named == (["2"] if name == "labels" else ["0", "2"])


def test_the_plans_generator_decides_the_path():
    for generator in ("sfc64", "auto"):
        model = adapt(network(), "hard").prepare(Numerics(chunk=8, generator=generator), SHAPE)
        assert model.numerics.generator == "sfc64"
        assert Passes(model, "hard", Execution(workers=1)).on_device is False
    assert Passes(prepared(8, 8), "hard", Execution(workers=1)).on_device is True


def test_votes_that_have_no_number_are_refused():
    own = passes_of(prepared(8, 8), "hard")
    own.launch([[block(0, 2**29 - 1, 0, 8)]]).collect()
    with pytest.raises(InvalidValueError, match=r"\b4294967297\b.*--generator sfc64"):
        own.launch([[block(0, 2**29, 0, 1)]])


def test_a_probability_that_is_none_is_noticed_without_looking_at_it():
    """Elsewhere than on the CPU looking would mean waiting: it becomes NaN, which is refused with the counts."""
    assert two_columns(torch.empty(6, device="meta"), "probabilities").shape == (6, 2)
    with pytest.raises(ModelError, match='outputs="probabilities"'):
        two_columns(torch.tensor([0.5, 1.5]), "probabilities")
