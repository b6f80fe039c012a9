"""Whatever models share with others, with their copies or with their callers, a vote is on the row that it is for."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from smoothcert import SmoothedClassifier
from smoothcert.errors import ModelError
from smoothcert.sampling import Execution, Numerics, adapt
from smoothcert.sampling.backends.leases import WorkerSpec
from smoothcert.sampling.gradients import GradientPasses
from smoothcert.sampling.models.probes import probe_rows
from smoothcert.sampling.passes import Passes
from smoothcert.sampling.threads import worker_threads
from smoothcert.sampling.turns import turn
from smoothcert.sigma_search import SEARCHES
from tests.guarantees.toys import SECONDS, finished, scores


class Room:
    """Functions of one object that meet in its room; how many callers were there at once is counted."""

    def __init__(self) -> None:
        self.rows = np.zeros((1 << 13, 2))
        self.inside = self.most = 0

    def scores(self, batch: np.ndarray, scale: float = 1.0) -> np.ndarray:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.rows[: len(batch)] = batch
        time.sleep(0.0005)
        found = scale * scores(self.rows[: len(batch)])
        self.inside -= 1
        return found

    def logits(self, batch: np.ndarray) -> np.ndarray:
        return self.scores(batch, 2.0)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return self.scores(batch)


PAIRS: dict[str, Callable[[Room], list[Any]]] = {
    "two methods": lambda room: [room.scores, room.logits],
    "partials": lambda room: [functools.partial(room.scores, scale=each) for each in (1.0, 2.0)],
    "an object and its method": lambda room: [room, room.scores],
    "lambdas": lambda room: [lambda batch: room.scores(batch), lambda batch: room.logits(batch)],
}

ROOM: dict[str, torch.Tensor] = {}
ANSWERS = torch.zeros(4096, 2)


class ByRoom(nn.Module):
    """A module whose copies all put their rows in one place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ROOM["rows"] = x
        time.sleep(0.001)
        return torch.cat([ROOM["rows"][:, :1], -ROOM["rows"][:, :1]], 1)


class IntoRoom(nn.Module):
    """The same for its answers, of which it returns a view."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = ANSWERS[: len(x)]
        found[:, 0], found[:, 1] = x[:, 0], -x[:, 0]
        return found


def certified_together(models: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
    """The votes of −1 and of ½ by a model each, cast at the same time; and one after the other."""
    made = [
        SmoothedClassifier(each, sigma=0.5, n=4000, seed=1, input_shape=(2,), **options) for each in models
    ]
    for each in made:
        each.prepare((2,))
    ready, found = threading.Barrier(2, timeout=SECONDS), [None, None]

    def certify(which: int) -> Any:
        return made[which].certify(np.array([(-1.0, 0.5)[which], 0.0])).estimation

    def together(which: int) -> None:
        ready.wait()
        found[which] = certify(which)

    finished([lambda: together(0), lambda: together(1)])
    return found, [certify(0), certify(1)]


@pytest.mark.parametrize("kind", PAIRS)
def test_functions_that_meet_in_some_object_have_one_caller_at_a_time(kind: str) -> None:
    """½ was certified as the class of −1: turns went by the object that was given."""
    room = Room()
    together, alone = certified_together(PAIRS[kind](room))
    assert together == alone
    assert room.most == 1


def test_so_have_modules_whose_copies_meet() -> None:
    """Turns went by the module's class."""
    together, alone = certified_together([ByRoom(), nn.Sequential(ByRoom())], thread_safe=False)
    assert together == alone


def test_answers_are_taken_before_the_turn_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may lie where the next caller's are put."""
    base = adapt(IntoRoom(), "hard", thread_safe=False)
    prepared = base.prepare(Numerics(chunk=8, block=8), (2,))

    @contextmanager
    def before_the_next() -> Iterator[None]:
        yield
        ANSWERS.fill_(7.0)

    monkeypatch.setattr(base, "turn", before_the_next)
    assert prepared.outputs(torch.ones(8, 2))[:, :2].tolist() == [[1.0, -1.0]] * 8
    engine = SmoothedClassifier(base, sigma=0.5, n=64, seed=0, numerics=Numerics(generator="philox"))
    assert engine.certify(np.array([5.0, 0.0])).estimation.counts[0] == 64


def test_gradients_of_such_modules_take_turns_with_votes() -> None:
    base = adapt(ByRoom(), "hard", thread_safe=False)
    assert isinstance(base.turn(), type(turn(thread_safe=False)))
    passes = GradientPasses(base, Execution(workers=1))  # type: ignore[arg-type]
    asked, inside = threading.Event(), threading.Event()

    def slope(_module: nn.Module, _task: int) -> bool:
        asked.set()
        return inside.wait(0.2)  # someone else has come in meanwhile

    def come_in() -> None:
        assert asked.wait(SECONDS)
        with turn(thread_safe=False):
            inside.set()

    found: list[bool] = []

    def search() -> None:
        with passes.threads() as pool:
            found.extend(passes.map(pool, slope, [0]))

    finished([search, come_in])
    assert found == [False]


def test_a_function_may_ask_another_classifier_which_has_its_turn_within() -> None:
    """Workers of the inner one would wait for ever for the turn of the function that waits for them."""
    room = Room()
    inner = SmoothedClassifier(room.scores, sigma=0.1, n=50, n0=10, seed=0, execution=Execution(workers=2))

    def asking(batch: np.ndarray) -> np.ndarray:
        flips = inner.base_class(np.array([1.0, 0.0])) + inner.predict(np.array([1.0, 0.0])).predicted
        return scores(batch) * (1 - flips)

    def twice(batch: np.ndarray) -> np.ndarray:
        return asking(batch) if SmoothedClassifier(asking, sigma=0.1).base_class(batch[0]) >= 0 else batch

    found: list[Any] = []

    def certify() -> None:
        made = SmoothedClassifier(twice, sigma=0.5, n=100, n0=10, seed=1)
        found.append(made.certify(np.array([2.0, 0.0])).estimation)

    finished([certify, certify])
    alone = SmoothedClassifier(scores, sigma=0.5, n=100, n0=10, seed=1)
    assert found == [alone.certify(np.array([2.0, 0.0])).estimation] * 2
    assert room.most == 1


def test_who_was_let_in_by_a_turn_that_is_over_waits_for_the_next() -> None:
    """Workers may outlive the turn they were started in: a function may keep an iterator of answers."""
    begin, ends = threading.Event(), threading.Event()
    order: list[str] = []

    def late() -> None:
        assert begin.wait(SECONDS)
        with turn(thread_safe=False):
            order.append("late")

    with turn(thread_safe=False):
        pool = worker_threads(1)
        waiting = pool.__enter__().submit(late)

    def holding() -> None:
        with turn(thread_safe=False):
            begin.set()
            ends.wait(0.2)
            order.append("holding")

    finished([holding])
    waiting.result(SECONDS)
    pool.__exit__(None, None, None)
    assert order == ["holding", "late"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_waits_for_no_thread_that_it_does_not_have() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with turn(thread_safe=False):
            held.set()
            done.wait(SECONDS)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(SECONDS)
    child = os.fork()
    if child == 0:
        threading.Timer(SECONDS, os._exit, (1,)).start()
        with turn(thread_safe=False):
            os._exit(0)
    done.set()
    holder.join(SECONDS)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_is_thread_safe_takes_no_turns() -> None:
    both = threading.Barrier(2, timeout=SECONDS)

    def meeting() -> None:
        with turn(thread_safe=True):
            both.wait()

    finished([meeting, meeting])
    assert adapt(scores, "hard", thread_safe=True).prepare(Numerics(), (2,)).workers(4) == 4


class Clearing:
    """Keeps the batches that it is given, and clears each of them some passes later."""

    def __init__(self, later: int) -> None:
        self.kept: list[Any] = []
        self.later = later

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.clear(batch)
        return scores(batch)

    def clear(self, batch: Any) -> None:
        self.kept.append(batch)
        if len(self.kept) > self.later:
            self.kept.pop(0)[:] = -5.0


class ClearingModule(nn.Module):
    def __init__(self, later: int) -> None:
        super().__init__()
        self.clearing = Clearing(later)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.clearing.clear(x)
        return torch.cat([x[:, :1], -x[:, :1]], 1)


@pytest.mark.parametrize("make", [Clearing, ClearingModule])
@pytest.mark.parametrize(("chunk", "generator"), [(32, "sfc64"), (8, "sfc64"), (32, "philox"), (8, "philox")])
def test_batches_that_a_model_keeps_stay_its_own(
    make: Callable[[int], Any], chunk: int, generator: str
) -> None:
    """Votes to come were drawn into them: .6 was certified to 1.57 as the class of −5."""

    def counts(model: Any) -> Any:
        numerics = Numerics(chunk=chunk, block=32, generator=generator)
        options: dict[str, Any] = {"numerics": numerics, "execution": Execution(workers=1)}
        made = SmoothedClassifier(model, sigma=0.5, n=640, seed=0, **options)
        return made.certify(np.array([0.6, 0.0]), index=0).estimation.counts

    honest = counts(make(1 << 30))
    assert [counts(make(later)) for later in (2, 3, 5)] == [honest] * 3


@pytest.mark.parametrize("make", [Clearing, ClearingModule])
def test_so_do_those_of_a_search(make: Callable[[int], Any]) -> None:
    def sigmas(model: Any) -> list[float]:
        options: dict[str, Any] = {"search": SEARCHES["ladder"](), "numerics": Numerics(chunk=8, block=8)}
        made = SmoothedClassifier(model, sigma=0.5, n=100, seed=0, execution=Execution(workers=1), **options)
        points = np.array([[0.6, 0.0], [0.2, 0.0], [-1.0, 0.0]])
        return [answer.sigma for answer in made.certify_batch(points, index=0)]

    honest = sigmas(make(1 << 30))
    assert [sigmas(make(later)) for later in (2, 3)] == [honest] * 2


class FirstBatch(nn.Module):
    """Centres rows by the mean of the first batch that it was shown, which it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mean is None:
            self.mean = x.mean(0, keepdim=True).clone()
        rows = (x - self.mean)[:, :1]
        return torch.cat([rows, -rows], 1)


@pytest.mark.parametrize("options", [{}, {"thread_safe": False}])
def test_a_model_that_goes_by_its_first_pass_is_refused(options: dict[str, Any]) -> None:
    """Copies that were made while votes were cast went by noisy rows; whether it was noticed was a matter of luck."""
    for _ in range(4):
        with pytest.raises(ModelError, match="FirstBatch"):
            adapt(FirstBatch(), "hard", **options).prepare(Numerics(chunk=8, block=8), (2,))
    used = FirstBatch()
    used(torch.zeros(4, 2))
    adapt(used, "hard", **options).prepare(Numerics(chunk=8, block=8), (2,))


def test_every_copy_is_asked_the_same_pass_first() -> None:
    """Also those made in other processes, and those that take the place of one that failed."""

    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.first = x.clone() if self.first is None else self.first
            return torch.cat([x[:, :1], -x[:, :1]], 1)

    prepared = adapt(Remembering(), "hard").prepare(Numerics(chunk=8, block=8), (2,))
    expected = probe_rows(8, (2,), torch.float32)
    elsewhere = prepared.reopened("cpu").lending
    for each in [*borrowed(prepared.lending, 3), *borrowed(elsewhere, 1)]:
        assert torch.equal(each.forward.module.first, expected)


def borrowed(lending: Any, count: int) -> list[Any]:
    """So many copies at once."""
    with ExitStack() as stack:
        return [stack.enter_context(lending.borrowed()) for _ in range(count)]


COPIES = {"made": 0, "honest": 1 << 30}


class Counted(nn.Module):
    """Its copies know how many were made before them, and only so many answer alike."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Counted:
        COPIES["made"] += 1
        made = Counted()
        made.number = COPIES["made"]
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, :1], -x[:, :1]], 1) * (1 + 1e-6 * (self.number > COPIES["honest"]))


def test_a_copy_that_answers_otherwise_by_a_bit_casts_no_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    lending = adapt(Counted(), "hard").prepare(Numerics(chunk=8, block=8), (2,)).lending
    monkeypatch.setitem(COPIES, "honest", COPIES["made"])
    with pytest.raises(ModelError, match="Counted"):
        borrowed(lending, 1 + len(lending.idle))


SIGN = ContextVar("SIGN", default=1.0)
LOCAL = threading.local()


def by_context(batch: np.ndarray) -> np.ndarray:
    return SIGN.get() * scores(batch)


def by_thread(batch: np.ndarray) -> np.ndarray:
    return getattr(LOCAL, "sign", 1.0) * scores(batch)


class Negating(TorchFunctionMode):
    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        return -found if function is nn.functional.linear else found


def linear() -> nn.Linear:
    net = nn.Linear(2, 2, bias=False)
    net.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    return net


@contextmanager
def negated() -> Iterator[None]:
    before = SIGN.set(-1.0)
    LOCAL.sign = -1.0
    try:
        with Negating():
            yield
    finally:
        SIGN.reset(before)
        del LOCAL.sign


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (by_context, {}),
        (by_context, {"thread_safe": True}),
        (by_thread, {}),
        (linear(), {}),
        (linear(), {"thread_safe": False}),
    ],
)
def test_the_callers_context_is_no_part_of_the_model(model: Any, options: dict[str, Any]) -> None:
    """It was in probes, fingerprint and base class, and not in the votes: two functions under one certificate."""
    points = np.array([[1.0, 0.0], [-1.0, 0.0]])

    def found() -> tuple[Any, ...]:
        made = SmoothedClassifier(model, sigma=0.5, n=200, seed=0, **options)
        told = made.fingerprint((2,)), [made.base_class(x) for x in points]
        return *told, made.certify(points).predicted.tolist()

    outside = found()
    assert outside[1] == outside[2] == [0, 1]
    with negated():
        assert found() == outside


def test_nor_where_processes_cast_the_votes() -> None:
    """Where the work is begun, the answers that theirs must equal are those of a worker."""
    with negated():
        passes = Passes(
            adapt(by_context, "hard").prepare(Numerics(chunk=8, block=8), (2,)), "hard", Execution()
        )
        inside = WorkerSpec.of(passes, "cpu")
        assert inside.open().prepared.name == "by_context"
    assert WorkerSpec.of(passes, "cpu").answers == inside.answers


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go elsewhere")
def test_an_interrupt_ends_a_preparation_at_once_and_leaves_no_turn_behind() -> None:
    asked, ended, answered = threading.Event(), threading.Event(), threading.Event()

    def slow(batch: np.ndarray) -> np.ndarray:
        asked.set()
        try:
            for _ in range(round(100 * SECONDS)):
                time.sleep(0.01)
            answered.set()
        finally:
            ended.set()
        return scores(batch)

    def interrupt() -> None:
        assert asked.wait(SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupting = threading.Thread(target=interrupt, daemon=True)
    try:
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            adapt(slow, "hard").prepare(Numerics(), (2,))
    finally:
        interrupting.join(SECONDS)
        signal.signal(signal.SIGINT, before)
    assert ended.wait(SECONDS)
    assert not answered.is_set()

    def free() -> None:
        with turn(thread_safe=False):
            pass

    finished([free])
