"""A vote is on its own row, however many workers, threads and classifiers call a model.

Torch modules are captured, so their state is none (test_captured.py). This is about opaque models, which have one
caller at a time, and about the copies that gradients are computed on.
"""

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from smoothcert import SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.engine.backends.workers import WorkerSpec
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes
from smoothcert.engine.samples import GradientPasses
from smoothcert.errors import ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.smoothing.fits.fit import fit_into
from smoothcert.smoothing.fits.plan import FitPlan
from smoothcert.smoothing.search.base import SEARCHES
from smoothcert.threads import holding_the_lock, one_caller, worker_threads
from tests.guarantees.kills import ended
from tests.guarantees.toys import SECONDS, Kept, finished, scores

# ------------------------------------------------------------------------------------------------ one caller at a time


class Shared:
    """Functions that put their rows in one array; counts the most callers that were inside at once."""

    classes_ = np.array([0, 1])
    n_features_in_ = 2

    def __init__(self) -> None:
        self.rows = np.zeros((1 << 13, 2))
        self.inside = self.most = 0

    def scores(self, batch: np.ndarray, scale: float = 1.0) -> np.ndarray:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.rows[: len(batch)] = batch
        time.sleep(0.0005)
        answers = scale * scores(self.rows[: len(batch)])
        self.inside -= 1
        return answers

    def logits(self, batch: np.ndarray) -> np.ndarray:
        return self.scores(batch, 2.0)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return self.scores(batch)


class Estimator(Shared):
    def predict(self, batch: np.ndarray) -> np.ndarray:
        return self.scores(np.asarray(batch)).argmax(1)


class SharedModule(nn.Module):
    """All copies of it use one place."""

    rows: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        SharedModule.rows = x
        time.sleep(0.001)
        return torch.cat([SharedModule.rows[:, :1], -SharedModule.rows[:, :1]], 1)


def smoothed(model: Any, **options: Any) -> SmoothedClassifier:
    given: dict[str, Any] = {"sigma": 0.5, "n": 2000, "seed": 1, "input_shape": (2,)}
    return SmoothedClassifier(model, **(given | options))


PAIRS: dict[str, Callable[[Any], list[Any]]] = {
    "one classifier": lambda shared: [smoothed(shared.scores)] * 2,  # which each thread finds unprepared
    "one method": lambda shared: [smoothed(shared.scores), smoothed(shared.scores)],
    "two methods": lambda shared: [smoothed(shared.scores), smoothed(shared.logits)],
    "partials": lambda shared: [smoothed(functools.partial(shared.scores, scale=k)) for k in (1.0, 2.0)],
    "an object and its method": lambda shared: [smoothed(shared), smoothed(shared.scores)],
    "lambdas": lambda shared: [
        smoothed(lambda batch: shared.scores(batch)),
        smoothed(lambda batch: shared.logits(batch)),
    ],
    "an estimator": lambda shared: [smoothed(shared), smoothed(shared)],
    "an estimator with a held column": lambda shared: [smoothed(shared).holding([1]) for _ in range(2)],
}


@pytest.mark.parametrize("kind", PAIRS)
def test_models_that_share_something_have_one_caller_at_a_time(kind):
    """½ was certified as the class of −1: votes on one input were counted for the other."""
    shared = Estimator() if "estimator" in kind else Shared()
    classifiers = PAIRS[kind](shared)
    ready, together = threading.Barrier(2, timeout=SECONDS), {}

    def certify(classifier: Any, x: float) -> Any:
        return classifier.certify(np.array([x, 0.0])).estimation

    def at_once(classifier: Any, x: float) -> None:
        ready.wait()
        together[x] = certify(classifier, x)

    asked = list(zip(classifiers, (-1.0, 0.5)))
    finished([functools.partial(at_once, *pair) for pair in asked])
    assert together == {x: certify(classifier, x) for classifier, x in asked}
    assert shared.most <= 1


def test_workers_of_one_function_wait_for_one_another_unless_it_is_declared_thread_safe():
    shared = Shared()
    smoothed(shared.scores, execution=Execution(workers=4)).certify(np.zeros((8, 2)))
    assert shared.most == 1
    both = threading.Barrier(2, timeout=SECONDS)

    def meeting(batch: np.ndarray) -> np.ndarray:
        if len(batch) == 8:
            both.wait()
        return scores(batch)

    prepared = adapt(meeting, "hard", thread_safe=True).prepare(Numerics(chunk=16, block=16), (2,))
    finished([lambda: prepared.outputs(torch.zeros(8, 2))] * 2)


def test_answers_are_copied_before_the_lock_is_released(monkeypatch):
    """They may lie where the next caller's are put."""
    answers = np.zeros((4096, 2), np.float32)

    def into_one_place(batch: np.ndarray) -> np.ndarray:
        rows = answers[: len(batch)]
        rows[:, 0], rows[:, 1] = batch[:, 0], -batch[:, 0]
        return rows

    @contextmanager
    def before_the_next() -> Iterator[None]:
        yield
        answers.fill(7.0)

    base = adapt(into_one_place, "hard")
    prepared = base.prepare(Numerics(chunk=8, block=8), (2,))
    monkeypatch.setattr("smoothcert.models.base.one_caller", before_the_next)
    assert prepared.outputs(torch.ones(8, 2))[:, :2].tolist() == [[1.0, -1.0]] * 8
    philox = smoothed(base, n=64, numerics=Numerics(generator="philox"))
    assert philox.certify(np.array([5.0, 0.0])).estimation.counts[0] == 64


def test_gradients_of_modules_that_are_not_thread_safe_hold_the_lock():
    passes = GradientPasses(adapt(SharedModule(), "hard", thread_safe=False), Execution(workers=1))
    asked, inside, entered = threading.Event(), threading.Event(), list[bool]()

    def slope(_module: nn.Module, _task: int) -> bool:
        asked.set()
        return inside.wait(0.2)  # another caller has come in meanwhile

    def come_in() -> None:
        assert asked.wait(SECONDS)
        with one_caller():
            inside.set()

    def search() -> None:
        with passes.threads() as pool:
            entered.extend(passes.map(pool, slope, [0]))

    finished([search, come_in])
    assert entered == [False]


def test_a_function_may_ask_another_classifier_which_works_within_the_lock():
    """Workers of the inner one would wait for ever for the function that waits for them."""
    shared = Shared()
    inner = smoothed(shared.scores, sigma=0.1, n=50, n0=10, execution=Execution(workers=2))

    def asking(batch: np.ndarray) -> np.ndarray:
        flips = inner.base_class(np.array([1.0, 0.0])) + inner.predict(np.array([1.0, 0.0])).predicted
        return scores(batch) * (1 - flips)

    def twice(batch: np.ndarray) -> np.ndarray:
        return asking(batch) if smoothed(asking).base_class(batch[0]) >= 0 else batch

    votes: list[Any] = []

    def certify(model: Any = twice) -> None:
        votes.append(smoothed(model, n=100, n0=10).certify(np.array([2.0, 0.0])).estimation)

    finished([certify, certify])
    certify(scores)
    assert votes == votes[-1:] * 3
    assert shared.most == 1


def test_workers_that_outlive_the_call_they_were_started_in_take_the_lock_again():
    """A function may keep an iterator of answers, and ask it for more in another call."""
    with one_caller():
        pool = worker_threads(1)
        inline = pool.__enter__()
        assert inline.submit(threading.get_ident).result() == threading.get_ident()
        assert inline.submit(holding_the_lock).result()
    assert not inline.submit(holding_the_lock).result()
    pool.__exit__(None, None, None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_waits_for_no_thread_that_it_does_not_have():
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with one_caller():
            held.set()
            done.wait(SECONDS)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(SECONDS)
    child = os.fork()
    if child == 0:
        threading.Timer(SECONDS, os._exit, (1,)).start()
        with one_caller():
            os._exit(0)
    done.set()
    holder.join(SECONDS)
    assert ended(child) == 0


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go elsewhere")
@pytest.mark.parametrize("dropped", [False, True], ids=["", "the first one dropped"])
def test_an_interrupt_ends_a_preparation_at_once_and_releases_the_lock(dropped):
    asked, workers, answered = threading.Event(), list[threading.Thread](), threading.Event()

    def wait() -> None:
        for _ in range(round(100 * SECONDS)):
            time.sleep(0.01)

    def slow(batch: np.ndarray) -> np.ndarray:
        workers.append(threading.current_thread())
        with suppress(KeyboardInterrupt) if dropped else nullcontext():  # as in a finalizer
            asked.set()  # from here on it may be interrupted
            wait()
        wait()
        answered.set()
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
    workers[0].join(SECONDS / 2)  # half of what it would take to answer
    assert not workers[0].is_alive()
    assert not answered.is_set()

    def free() -> None:
        with one_caller():
            pass

    finished([free])


# ------------------------------------------------------------------------------------------- copies, batches, contexts


@pytest.fixture
def busy() -> Iterator[None]:
    """The interpreter changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("search", ["gradient", "ellipsoid"])
def test_workers_of_a_gradient_search_have_a_copy_each(search):
    def sigmas(workers: int) -> list[float]:
        how = SEARCHES[search](steps=20, samples=4, rows=4)
        classifier = smoothed(Kept(), sigma=1.0, n=200, search=how, execution=Execution(workers=workers))
        points = np.random.default_rng(0).normal(size=(16, 2)).astype(np.float32) * 3
        return [answer.sigma for answer in classifier.certify(points, index=0)]

    assert sigmas(4) == sigmas(1)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("route", ["gradient", "votes"])
def test_so_have_workers_of_a_fit(tmp_path, route):
    values = np.random.default_rng(0).normal(size=(24, 2)).astype(np.float32) * 2
    data = Dataset("points", values, (values[:, 0] <= 0).astype(np.int64), ("0", "1"))
    few = {"sub_epochs": 3, "validation": 4, "votes": 16, "validation_n0": 20, "validation_n": 100}
    plan = FitPlan(init=0.5, route=route, n0=256, **few)  # so many that a step's inputs are several shards

    def fitted(workers: int) -> np.ndarray:
        torch.manual_seed(0)
        execution = Execution(workers=workers)
        fit = fit_into(tmp_path / str(workers), adapt(Kept(), "hard"), data, plan, execution=execution)
        return fit.noise.sigmas

    assert np.array_equal(fitted(4), fitted(1))


def test_a_module_that_was_given_is_not_the_one_that_is_evaluated():
    """A replaced ``forward`` has the module in its closure, which copy.deepcopy would leave there."""
    module = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.eye(2))
    module.forward = lambda x: x @ module.weight.T
    classifier = smoothed(module, sigma=0.1, n=100)
    with torch.no_grad():
        module.weight.neg_()
    with pytest.warns(UserWarning, match="Linear"):
        assert classifier.certify(np.array([1.0, 0.0])).predicted == 0


def test_a_module_that_cant_be_copied_is_refused_and_works_as_a_function():
    class NotToBeCopied(nn.Linear):
        lock = property(lambda self: self.__dict__["_lock"])

    module = NotToBeCopied(2, 2)
    module.__dict__["_lock"] = threading.Lock()
    with pytest.raises(ModelError, match="NotToBeCopied"):
        smoothed(module)
    answer = smoothed(lambda batch: module(torch.from_numpy(batch)).numpy(), n=100).certify(np.zeros(2))
    assert answer.estimation.n == 100


class Clearing:
    """Keeps the batches that it is given, and clears each of them some passes later."""

    def __init__(self, later: int) -> None:
        self.kept: list[np.ndarray] = []
        self.later = later

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.kept.append(batch)
        if len(self.kept) > self.later:
            self.kept.pop(0)[:] = -5.0
        return scores(batch)


@pytest.mark.parametrize(
    ("chunk", "generator", "search"),
    [
        *((chunk, generator, None) for chunk in (32, 8) for generator in ("sfc64", "philox")),
        (32, "sfc64", "ladder"),
        (8, "philox", "ladder"),
    ],
)
def test_batches_that_a_function_keeps_stay_its_own(chunk, generator, search):
    """Votes to come were drawn into them: .6 was certified to 1.57 as the class of −5."""

    def answers(later: int) -> list[Any]:
        numerics = Numerics(chunk=chunk, block=32, generator=generator)
        how = {"search": search and SEARCHES[search](), "execution": Execution(workers=1)}
        classifier = smoothed(Clearing(later), n=320, numerics=numerics, **how)
        points = np.array([[0.6, 0.0], [0.2, 0.0], [-1.0, 0.0]])
        return [(answer.sigma, answer.estimation) for answer in classifier.certify(points, index=0)]

    honest = answers(1 << 30)
    assert [answers(later) for later in (2, 3, 5)] == [honest] * 3
    with pytest.raises(ModelError, match="Clearing"):
        answers(1)  # while they are compared with another pass


SIGN, LOCAL = ContextVar("SIGN", default=1.0), threading.local()


def by_context(batch: np.ndarray) -> np.ndarray:
    return SIGN.get() * getattr(LOCAL, "sign", 1.0) * scores(batch)


class Negating(TorchFunctionMode):
    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        return -result if function is nn.functional.linear else result


def linear() -> nn.Linear:
    net = nn.Linear(2, 2, bias=False)
    net.weight.data = torch.tensor([[1.001, 0.0], [-1.002, 0.0]])  # no bfloat16 numbers
    return net


@contextmanager
def variable() -> Iterator[None]:
    before = SIGN.set(-1.0)
    yield
    SIGN.reset(before)


@contextmanager
def local() -> Iterator[None]:
    LOCAL.sign = -1.0
    yield
    del LOCAL.sign


@pytest.mark.parametrize(
    ("context", "model", "options"),
    [
        (variable, by_context, {}),
        (variable, by_context, {"thread_safe": True}),
        (local, by_context, {}),
        (Negating, linear(), {}),
        (Negating, linear(), {"thread_safe": False}),
        (lambda: torch.autocast("cpu", torch.bfloat16), linear(), {"bound": "hoeffding"}),
    ],
)
def test_the_callers_context_is_no_part_of_the_model(context, model, options):
    """It was in probes, fingerprint and base class, and not in the votes: two functions under one certificate."""
    points = np.array([[1.0, 0.0], [-1.0, 0.0]])

    def answers() -> tuple[Any, ...]:
        classifier = smoothed(model, n=200, **options)
        about = classifier.fingerprint((2,)), [classifier.base_class(x) for x in points]
        certified = classifier.certify(points, index=0)
        return *about, certified.predicted.tolist(), [answer.estimation for answer in certified]

    outside = answers()
    assert outside[1] == outside[2] == [0, 1]
    with context():
        assert answers() == outside


def test_nor_where_processes_cast_the_votes():
    """Where the work is begun, the answers that theirs must equal are those of a worker."""
    with variable():
        prepared = adapt(by_context, "hard").prepare(Numerics(chunk=8, block=8), (2,))
        passes = Passes(prepared, "hard", Execution())
        inside = WorkerSpec.of(passes, "cpu")
        assert inside.open().prepared.name == "by_context"
    assert WorkerSpec.of(passes, "cpu").answers == inside.answers
