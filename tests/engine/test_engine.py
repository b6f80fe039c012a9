"""The engine: the same votes however they are scheduled, and clear errors when a model fails."""

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.engine.engine import Engine
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import NoisyModel
from smoothcert.engine.schedule import BlockBits, Draw, Finished, Job, Procedure
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.base import Prepared
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.perturb.grid import Grid, on_grid
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


def voting(
    model: object = None,
    workers: int = 1,
    seed: int = 7,
    votes: str = "hard",
    batch: int | None = None,
    **fields: Any,
) -> NoisyModel:
    """A model on an engine of its own; ``fields`` are of its numerics."""
    if not isinstance(model, Prepared):
        model = adapt(model or network(), "hard").prepare(Numerics(**fields), SHAPE)
    engine = Engine(Execution(workers=workers, batch=batch))
    return NoisyModel(engine, model, votes, seed, GRID)  # type: ignore[arg-type]


def answers(
    noisy: NoisyModel,
    inputs: Mapping[int, np.ndarray] | np.ndarray,
    procedure: Callable[[], Procedure[Any]] = lambda: two_draws(30, 500),
) -> dict[int, Any]:
    """What the procedures return, by input."""
    numbered = dict(enumerate(inputs)) if isinstance(inputs, np.ndarray) else inputs
    jobs = (noisy.job(i, x, Gaussian(0.5), procedure()) for i, x in numbered.items())
    with noisy.engine:
        return {done.job.index: done.answer for done in noisy.run(jobs)}


def flat(batch: np.ndarray) -> np.ndarray:
    return batch.reshape(len(batch), -1)


@pytest.fixture(scope="module")
def inputs() -> np.ndarray:
    return np.random.default_rng(0).random((13, *SHAPE)).astype(np.float32)


@pytest.mark.parametrize(("votes", "chunk"), [("hard", None), ("soft", 64), ("hard", 24), ("soft", 24)])
def test_tallies_do_not_depend_on_batch_workers_or_order(inputs, votes, chunk):
    base = adapt(network(), "hard").prepare(Numerics(chunk=chunk), SHAPE)
    expected = answers(voting(base, votes=votes), inputs)
    shuffled = list(range(len(inputs)))
    random.Random(3).shuffle(shuffled)
    for order, workers, batch in (
        (shuffled, 1, 1),
        (shuffled, 2, None),
        (range(len(inputs)), 3, 37),
        ([5, 2], 3, 37),
        (shuffled, 2, 100_000),
    ):
        found = answers(voting(base, workers, votes=votes, batch=batch), {i: inputs[i] for i in order})
        assert found == {i: expected[i] for i in order}


def test_votes_are_the_models_answers_to_the_streams_noise(inputs):
    """An independent count: draw each block by hand, ask the network, compare."""
    module = network().eval()
    (_, estimation) = answers(voting(module, route="eager", chunk=32, block=16), inputs[:4])[3]
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


def test_a_stream_goes_on_where_the_last_draw_stopped(inputs):
    def in_pieces() -> Procedure[Tally]:
        tally = yield Draw(Phase.ESTIMATION, 10)
        for votes in (1, 53, 64, 372):
            tally = tally + (yield Draw(Phase.ESTIMATION, votes))
        return tally

    (_, whole) = answers(voting(), inputs[:1])[0]
    assert answers(voting(workers=2), inputs[:1], in_pieces) == {0: whole}


@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_of_several_passes_go_on_anywhere_and_ask_the_model_for_what_is_wanted(inputs, workers):
    """Votes that begin amid a block are those of the whole, and passes that hold none of them aren't shown."""
    pieces = (40, 1, 23, 64, 372)  # ends at 40, 41, 64, 128 and 500

    def drawing(*votes: int) -> Procedure[Tally]:
        tally = yield Draw(Phase.ESTIMATION, votes[0])
        for more in votes[1:]:
            tally = tally + (yield Draw(Phase.ESTIMATION, more))
        return tally

    rows: list[int] = []
    module = network()

    def model(batch: np.ndarray) -> np.ndarray:
        rows.append(len(batch))
        return module(torch.from_numpy(batch)).detach().numpy()

    def counted(*votes: int) -> tuple[Tally, int]:
        noisy = voting(model, workers, chunk=16, block=64)
        answers(noisy, inputs[:1], lambda: drawing(1))  # the model is checked on the first input
        rows.clear()
        found = answers(noisy, inputs[:1], lambda: drawing(*votes))
        assert set(rows) == {16}
        return found[0], len(rows)

    whole, passes = counted(500)
    assert passes == 32
    in_pieces, passes = counted(*pieces)
    assert in_pieces == whole
    # Passes of 16 that hold votes 0–39; 40; 41–63; 64–127; 128–499.
    assert passes == 3 + 1 + 2 + 4 + 24


def test_inputs_are_admitted_only_as_needed(inputs):
    admitted = []

    def jobs() -> object:
        for i in range(1000):
            admitted.append(i)
            yield noisy.job(i, inputs[i % 13], Gaussian(0.5), two_draws(10, 50_000))

    noisy = voting(workers=2, chunk=64)
    next(iter(noisy.run(jobs())))  # type: ignore[arg-type]
    assert len(admitted) <= 20  # 16 short selection draws fill the workers' queues at the start


def test_small_draws_of_several_inputs_share_a_pass(inputs):
    passes = []

    def model(batch: np.ndarray) -> np.ndarray:
        passes.append(len(batch))
        return flat(batch)[:, :5]

    noisy = voting(model, batch=1024, chunk=1024, block=64)
    answers(noisy, inputs[:1], lambda: two_draws(1, 1))  # the model is checked on the first input
    passes.clear()
    assert len(answers(noisy, np.repeat(inputs[:1], 160, axis=0), lambda: two_draws(64, 64))) == 160
    # 320 blocks at 16 a pass make 20 full passes; a few more are the starting and closing ones.
    assert len(passes) <= 32
    assert set(passes) == {1024}


def test_an_abandoned_iterator_leaves_no_thread_behind(inputs):
    before = set(threading.enumerate())
    noisy = voting(workers=2)
    threads = torch.get_num_threads()
    with noisy.engine:
        jobs = (noisy.job(i, inputs[0], Gaussian(0.5), two_draws(10, 1000)) for i in range(100))
        found = noisy.run(jobs)
        next(found)
        found.close()  # type: ignore[attr-defined]
        assert torch.get_num_threads() == threads
    assert not set(threading.enumerate()) - before


def test_bad_inputs_are_named():
    with pytest.raises(InvalidValueError, match=r"\b4\b.*\bnan\b.*\(0, 0, 0\)"):
        answers(voting(), {4: np.full(SHAPE, np.nan)})


def test_a_model_that_fails_is_named_with_its_input(inputs):
    def nan(batch: np.ndarray) -> np.ndarray:
        far = np.abs(flat(batch)).max(1, keepdims=True) > 50
        return np.where(far, np.nan, flat(batch)[:, :3])

    def full(batch: np.ndarray) -> np.ndarray:
        if np.abs(batch).max() > 50:
            raise MemoryError("full")
        return flat(batch)[:, :3]

    for model, workers, message in ((nan, 2, r"\b9\b.*NaN"), (full, 1, r"\b9\b.*MemoryError: full")):
        with pytest.raises(ModelError, match=message):
            answers(voting(model, workers, chunk=8), {9: inputs[0] + 100})


def test_soft_votes_of_labels_are_refused():
    base = adapt(lambda b: np.zeros(len(b), dtype=np.int64), "hard", "labels", 2)
    with pytest.raises(InvalidValueError, match="labels"):
        NoisyModel(Engine(Execution()), base.prepare(Numerics(), SHAPE), "soft", 0, GRID)


def test_votes_heard_add_up(inputs):
    heard: list[int] = []
    noisy = voting(workers=2)
    list(
        noisy.run(
            [noisy.job(i, x, Gaussian(0.5), two_draws(30, 500)) for i, x in enumerate(inputs)], heard.append
        )
    )
    assert sum(heard) == 13 * 530


def test_rows_nobody_asked_about_cannot_fail_the_model(inputs):
    def model(batch: np.ndarray) -> np.ndarray:
        untouched = np.abs(flat(batch)).max(1, keepdims=True) == 0  # as a buffer's rows would be
        return np.where(untouched, np.nan, flat(batch)[:, :3])

    assert answers(voting(model), inputs[:1], lambda: two_draws(10, 70))[0][1].n == 70


def test_runs_of_one_engine_may_overlap(inputs):
    noisy = voting(workers=2)

    def started() -> Iterator[Finished[tuple[Tally, Tally]]]:
        return noisy.run(noisy.job(i, x, Gaussian(0.5), two_draws(30, 500)) for i, x in enumerate(inputs[:4]))

    expected = answers(voting(), inputs[:4])
    for pair in zip(started(), started(), strict=True):
        assert all(done.answer == expected[done.job.index] for done in pair)


def test_a_run_goes_on_when_jobs_pause(inputs):
    """While votes are under way jobs may end and go on later, as a server's do, and stay in one run."""

    class Pausing:
        def __init__(self) -> None:
            self._coming = iter([job for i in range(8) for job in (i, None)])

        def __iter__(self) -> Iterator[Job[tuple[Tally, Tally]]]:
            return self

        def __next__(self) -> Job[tuple[Tally, Tally]]:
            if (i := next(self._coming, None)) is None:
                raise StopIteration
            return noisy.job(i, inputs[i], Gaussian(0.5), two_draws(30, 500))

    noisy = voting()
    with noisy.engine:
        found = {done.job.index: done.answer for done in noisy.run(Pausing())}
    assert found == answers(voting(), inputs[:8])


def test_workers_are_kept_between_runs(inputs):
    where: list[int] = []

    def model(batch: np.ndarray) -> np.ndarray:
        where.append(threading.get_ident())
        return flat(batch)[:, :5]

    noisy = voting(model)
    with noisy.engine:
        for _ in range(4):
            list(noisy.run([noisy.job(0, inputs[0], Gaussian(0.5), two_draws(10, 50))]))
            if _ == 0:
                where.clear()  # the model was checked
    assert len(set(where)) == 1


def test_a_job_may_ask_several_models(inputs):
    def both(first: int, second: int) -> Procedure[tuple[Tally, Tally, Tally]]:
        one = yield Draw(Phase.SELECTION, 30, first)
        other = yield Draw(Phase.ESTIMATION, 500, second)
        again = yield Draw(Phase.ESTIMATION, 100, first)
        return one, other, again

    bases = [adapt(network(), "hard"), adapt(lambda batch: flat(batch)[:, :3], "hard")]
    expected = [answers(voting(base), inputs[:3]) for base in bases]
    with Engine(Execution(workers=2)) as engine:
        models = [NoisyModel(engine, base.prepare(Numerics(), SHAPE), "hard", 7, GRID) for base in bases]
        jobs = (
            Job(tuple(model.voter(i, x, Gaussian(0.5)) for model in models), both(i % 2, 1 - i % 2))
            for i, x in enumerate(inputs[:3])
        )
        for done in engine.run(jobs):
            i = done.job.index
            one, other, again = done.answer
            assert one == expected[i % 2][i][0]
            assert other == expected[1 - i % 2][i][1]
            assert (again.start, again.n, len(again.counts)) == (0, 100, len(one.counts))
