"""The engine: the same votes however they are scheduled, and clear errors when a model fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.noise import Gaussian, Grid, on_grid
from smoothcert.sampling import (
    BaseClassifier,
    Draw,
    Engine,
    Execution,
    Finished,
    Job,
    Numerics,
    Prepared,
    Procedure,
    adapt,
)
from smoothcert.sampling.streams import BlockBits
from smoothcert.tally import Phase, Stream, Tally

SHAPE = (1, 6, 6)
GRID = Grid.of(None)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))


def two_draws(n0: int, n: int) -> Procedure[tuple[Tally, Tally]]:
    first = yield Draw(Phase.SELECTION, n0)
    second = yield Draw(Phase.ESTIMATION, n)
    return first, second


def run(
    base: BaseClassifier | Prepared,
    inputs: np.ndarray,
    order: list[int] | None = None,
    execution: Execution | None = None,
    numerics: Numerics | None = None,
    votes: str = "hard",
    n0: int = 30,
    n: int = 500,
) -> dict[int, tuple[Tally, Tally]]:
    prepared = base if isinstance(base, Prepared) else base.prepare(numerics or Numerics(), SHAPE)
    engine = Engine(prepared, votes, 7, execution or Execution(workers=1), GRID)  # type: ignore[arg-type]
    order = list(range(len(inputs))) if order is None else order
    jobs = (Job(i, inputs[i], Gaussian(0.5), two_draws(n0, n)) for i in order)
    return {done.job.index: done.answer for done in engine.run(jobs)}


@pytest.fixture(scope="module")
def inputs() -> np.ndarray:
    return np.random.default_rng(0).random((13, *SHAPE)).astype(np.float32)


@pytest.mark.parametrize("votes", ["hard", "soft"])
@pytest.mark.parametrize("chunk", [None, 64, 24])
def test_tallies_do_not_depend_on_batch_workers_or_order(
    inputs: np.ndarray, votes: str, chunk: int | None
) -> None:
    base = adapt(network(), "hard").prepare(Numerics(chunk=chunk), SHAPE)
    expected = run(base, inputs, votes=votes)
    shuffled = list(range(len(inputs)))
    random.Random(3).shuffle(shuffled)
    for order in (None, shuffled, [5, 2]):
        for execution in (
            Execution(workers=1, batch=1),
            Execution(workers=2),
            Execution(workers=3, batch=37),
            Execution(workers=2, batch=100_000),
        ):
            found = run(base, inputs, order, execution, votes=votes)
            assert found == {i: expected[i] for i in found}
            assert len(found) == len(order or inputs)


def test_votes_are_the_models_answers_to_the_streams_noise(inputs: np.ndarray) -> None:
    """An independent count: draw each block by hand, ask the network, compare."""
    module = network().eval()
    numerics = Numerics(route="eager", chunk=32, block=16)
    (_, estimation) = run(adapt(module, "hard"), inputs[:4], numerics=numerics)[3]
    bits, counts = BlockBits(), np.zeros(5, dtype=int)
    noise = on_grid(Gaussian(0.5), GRID, SHAPE)
    steps = np.rint(inputs[3].astype(np.float64) * noise.steps_per_unit)
    for block in range(32):
        drawn = np.empty((16, *SHAPE), np.float64)
        noise.sampler.draw(drawn, bits.seek(Stream(7, 3, Phase.ESTIMATION), block))
        with torch.no_grad():
            labels = (
                module(torch.from_numpy((drawn + steps) / noise.steps_per_unit).float()).argmax(1).numpy()
            )
        counts += np.bincount(labels[: 500 - 16 * block], minlength=5)
    assert estimation.counts == tuple(counts)


def test_a_stream_goes_on_where_the_last_draw_stopped(inputs: np.ndarray) -> None:
    def in_pieces() -> Procedure[Tally]:
        tally = yield Draw(Phase.ESTIMATION, 10)
        for votes in (1, 53, 64, 372):
            tally = tally + (yield Draw(Phase.ESTIMATION, votes))
        return tally

    base = adapt(network(), "hard")
    whole = run(base, inputs[:1])[0][1]
    engine = Engine(base.prepare(Numerics(), SHAPE), "hard", 7, Execution(workers=2), GRID)
    (done,) = engine.run([Job(0, inputs[0], Gaussian(0.5), in_pieces())])
    assert done.answer == whole


@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_of_several_passes_go_on_anywhere_and_ask_the_model_for_what_is_wanted(
    inputs: np.ndarray, workers: int
) -> None:
    """Votes that begin amid a block are those of the whole, and passes that hold none of them aren't shown."""
    pieces = (40, 1, 23, 64, 372)  # ends at 40, 41, 64, 128 and 500

    def drawing(*votes: int) -> Procedure[Tally]:
        tally = yield Draw(Phase.ESTIMATION, votes[0])
        for more in votes[1:]:
            tally = tally + (yield Draw(Phase.ESTIMATION, more))
        return tally

    rows: list[int] = []
    module = network()
    numerics = Numerics(chunk=16, block=64)

    def model(batch: np.ndarray) -> np.ndarray:
        rows.append(len(batch))
        return module(torch.from_numpy(batch)).detach().numpy()

    def counted(*votes: int) -> tuple[Tally, int]:
        prepared = adapt(model, "hard", outputs="scores").prepare(numerics, SHAPE)
        engine = Engine(prepared, "hard", 7, Execution(workers=workers), GRID)
        list(
            engine.run([Job(0, inputs[0], Gaussian(0.5), drawing(1))])
        )  # the model is checked on the first input
        rows.clear()
        (done,) = engine.run([Job(0, inputs[0], Gaussian(0.5), drawing(*votes))])
        assert set(rows) == {16}
        return done.answer, len(rows)

    whole, passes = counted(500)
    assert passes == 32
    in_pieces, passes = counted(*pieces)
    assert in_pieces == whole
    # Passes of 16 that hold votes 0–39; 40; 41–63; 64–127; 128–499.
    assert passes == 3 + 1 + 2 + 4 + 24


def test_inputs_are_admitted_only_as_needed(inputs: np.ndarray) -> None:
    admitted = []

    def jobs() -> object:
        for i in range(1000):
            admitted.append(i)
            yield Job(i, inputs[i % 13], Gaussian(0.5), two_draws(10, 50_000))

    engine = Engine(
        adapt(network(), "hard").prepare(Numerics(chunk=64), SHAPE), "hard", 0, Execution(workers=2), GRID
    )
    next(iter(engine.run(jobs())))  # type: ignore[arg-type]
    assert len(admitted) <= 20  # 16 short selection draws fill the workers' queues at the start


def test_small_draws_of_several_inputs_share_a_pass(inputs: np.ndarray) -> None:
    passes = []

    def model(batch: np.ndarray) -> np.ndarray:
        passes.append(len(batch))
        return batch.reshape(len(batch), -1)[:, :5]

    base = adapt(model, "hard")
    prepared = base.prepare(Numerics(chunk=1024, block=64), SHAPE)
    engine = Engine(prepared, "hard", 0, Execution(workers=1, batch=1024), GRID)
    list(
        engine.run([Job(0, inputs[0], Gaussian(0.5), two_draws(1, 1))])
    )  # the model is checked on the first input
    passes.clear()
    many = np.repeat(inputs[:1], 160, axis=0)
    jobs = (Job(i, x, Gaussian(0.5), two_draws(64, 64)) for i, x in enumerate(many))
    assert len(list(engine.run(jobs))) == 160
    # 320 blocks at 16 a pass make 20 full passes; a few more are the starting and closing ones.
    assert len(passes) <= 32
    assert set(passes) == {1024}


def test_an_abandoned_iterator_leaves_no_thread_behind(inputs: np.ndarray) -> None:
    before = threading.active_count()
    prepared = adapt(network(), "hard").prepare(Numerics(), SHAPE)
    threads = torch.get_num_threads()
    answers = Engine(prepared, "hard", 0, Execution(workers=2), GRID).run(
        Job(i, inputs[0], Gaussian(0.5), two_draws(10, 1000)) for i in range(100)
    )
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.full(SHAPE, np.nan), r"\b4\b.*\bnan\b.*\(0, 0, 0\)"),
        (np.full(SHAPE, np.inf), r"\b4\b.*\binf\b"),
        (np.zeros((1, 6, 5)), r"\b4\b.*\(1, 6, 5\)"),
        (np.full(SHAPE, "a"), r"\b4\b.*<U1"),
        (np.zeros(SHAPE, dtype=complex), r"\b4\b.*complex128"),
    ],
)
def test_bad_inputs_are_named(x: np.ndarray, message: str) -> None:
    engine = Engine(adapt(network(), "hard").prepare(Numerics(), SHAPE), "hard", 0, Execution(), GRID)
    with pytest.raises(InvalidValueError, match=message):
        list(engine.run([Job(4, x, Gaussian(0.5), two_draws(1, 1))]))


def test_a_model_that_turns_to_nan_is_named_with_its_input(inputs: np.ndarray) -> None:
    def model(batch: np.ndarray) -> np.ndarray:
        scores = batch.reshape(len(batch), -1)[:, :3].copy()
        scores[np.abs(batch).reshape(len(batch), -1).max(1) > 50] = np.nan
        return scores

    engine = Engine(
        adapt(model, "hard").prepare(Numerics(chunk=8), SHAPE), "hard", 0, Execution(workers=2), GRID
    )
    with pytest.raises(ModelError, match=r"\b9\b.*NaN"):
        list(engine.run([Job(9, inputs[0] + 100, Gaussian(0.5), two_draws(1, 100))]))


def test_a_model_that_raises_is_named_with_its_input(inputs: np.ndarray) -> None:
    full = []

    def model(batch: np.ndarray) -> np.ndarray:
        if full:
            raise MemoryError("full")
        return batch.reshape(len(batch), -1)[:, :3]

    engine = Engine(
        adapt(model, "hard").prepare(Numerics(chunk=8), SHAPE), "hard", 0, Execution(workers=1), GRID
    )
    full.append(True)
    with pytest.raises(ModelError, match=r"\b0\b.*MemoryError: full"):
        list(engine.run([Job(0, inputs[0], Gaussian(0.5), two_draws(1, 1000))]))


def test_soft_votes_of_labels_are_refused() -> None:
    base = adapt(lambda b: np.zeros(len(b), dtype=np.int64), "hard", "labels", 2)
    with pytest.raises(InvalidValueError, match="labels"):
        Engine(base.prepare(Numerics(), SHAPE), "soft", 0, Execution(), GRID)


def test_votes_heard_add_up(inputs: np.ndarray) -> None:
    heard: list[int] = []
    engine = Engine(
        adapt(network(), "hard").prepare(Numerics(), SHAPE), "hard", 0, Execution(workers=2), GRID
    )
    jobs = [Job(i, x, Gaussian(0.5), two_draws(30, 500)) for i, x in enumerate(inputs)]
    list(engine.run(jobs, heard.append))
    assert sum(heard) == 13 * 530


def test_rows_nobody_asked_about_cannot_fail_the_model(inputs: np.ndarray) -> None:
    def model(batch: np.ndarray) -> np.ndarray:
        flat = batch.reshape(len(batch), -1)
        scores = flat[:, :3].copy()
        scores[np.abs(flat).max(1) == 0] = np.nan  # an untouched buffer would trip this
        return scores

    engine = Engine(adapt(model, "hard").prepare(Numerics(), SHAPE), "hard", 0, Execution(workers=1), GRID)
    (done,) = engine.run([Job(0, inputs[0], Gaussian(0.5), two_draws(10, 70))])
    assert done.answer[1].n == 70


def test_runs_of_one_engine_may_overlap(inputs: np.ndarray) -> None:
    engine = Engine(
        adapt(network(), "hard").prepare(Numerics(), SHAPE), "hard", 7, Execution(workers=2), GRID
    )

    def started() -> Iterator[Finished[tuple[Tally, Tally]]]:
        return engine.run(Job(i, x, Gaussian(0.5), two_draws(30, 500)) for i, x in enumerate(inputs[:4]))

    expected = run(adapt(network(), "hard"), inputs[:4])
    for pair in zip(started(), started(), strict=True):
        assert all(done.answer == expected[done.job.index] for done in pair)
