"""Certificates are about the model that was given, however many workers, threads and classifiers ask it at once."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.errors import ModelError
from smoothcert.noise_fit import FitPlan, fit_into
from smoothcert.sampling import Execution, Numerics, adapt
from smoothcert.sampling.models.copies import private_copy
from smoothcert.sigma_search import SEARCHES
from tests.guarantees.toys import POINTS, SECONDS, Hooked, Kept, finished, scores, smoothed, votes


@pytest.fixture
def busy() -> Iterator[None]:
    """The interpreter changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("make", [Kept, Hooked])
def test_workers_never_see_one_anothers_passes(make: Callable[[], nn.Module]) -> None:
    """P[N(2, 1) > 0] = .977: rows of the other sign's inputs would show at once."""
    alone = votes(make(), 1)
    assert votes(make(), 4) == alone
    assert all(max(counts) > 0.96 * 4000 for counts in alone)
    assert [int(np.argmax(counts)) for counts in alone] == [0, 1] * 4


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("search", ["gradient", "ellipsoid"])
def test_neither_do_those_of_a_gradient_search(search: str) -> None:
    def found(workers: int) -> list[float]:
        classifier = SmoothedClassifier(
            Kept(),
            sigma=1.0,
            n=200,
            seed=0,
            search=SEARCHES[search](steps=20, samples=4, rows=4),  # type: ignore[call-arg]
            execution=Execution(workers=workers),
        )
        points = np.random.default_rng(0).normal(size=(16, 2)).astype(np.float32) * 3
        return [answer.sigma for answer in classifier.certify_batch(points, index=0)]

    assert found(4) == found(1)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("route", ["gradient", "votes"])
def test_nor_do_those_of_a_fit(tmp_path: Path, route: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(24, 2)).astype(np.float32) * 2
    data = Dataset("points", values, (values[:, 0] <= 0).astype(np.int64), ("0", "1"))
    plan = FitPlan(
        init=0.5,
        route=route,
        sub_epochs=3,
        n0=256,  # so many that a step's inputs are several shards
        validation=4,
        votes=16,
        validation_n0=20,
        validation_n=100,
    )

    def fitted(workers: int) -> np.ndarray:
        out = tmp_path / str(workers)
        fit = fit_into(out, adapt(Kept(), "hard"), data, plan, execution=Execution(workers=workers))
        assert fit.noise is not None
        return fit.noise.sigmas

    torch.manual_seed(0)
    alone = fitted(1)
    torch.manual_seed(0)
    assert np.array_equal(fitted(4), alone)


def test_copies_share_the_weights_and_nothing_else() -> None:
    module = Hooked().eval()
    module.register_buffer("scale", torch.ones(2))
    module(torch.zeros(3, 2))
    own = private_copy(module, sharing_weights=True)
    assert [one.data_ptr() for one in own.parameters()] == [one.data_ptr() for one in module.parameters()]
    assert [one.data_ptr() for one in own.buffers()] != [one.data_ptr() for one in module.buffers()]
    with torch.inference_mode():
        own(torch.ones(3, 2))
    assert own.last[0, 0] == 1
    assert module.last[0, 0] == 0
    assert own.seen is not module.seen


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_copies_of_scripted_modules_share_their_weights_too() -> None:
    module = torch.jit.script(nn.Sequential(nn.Linear(2, 3)).eval())
    own = private_copy(module, sharing_weights=True)
    assert [p.data_ptr() for p in own.parameters()] == [p.data_ptr() for p in module.parameters()]
    assert votes(module, 2) == votes(module, 1)


def test_a_module_that_was_given_is_not_the_one_that_is_evaluated() -> None:
    """A replaced ``forward`` has the module in its closure, which copy.deepcopy would leave there."""
    module = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.eye(2))
    module.forward = lambda x: x @ module.weight.T  # type: ignore[method-assign]
    classifier = SmoothedClassifier(module, sigma=0.1, n=100, seed=0)
    with torch.no_grad():
        module.weight.neg_()
    answer = classifier.certify_batch(np.array([[1.0, 0.0]]), index=0)[0]
    assert answer.predicted == 0


def test_a_copy_that_failed_in_the_middle_is_not_used_again() -> None:
    class Queue(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.waiting: list[torch.Tensor] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.waiting.append(x[:, :1])
            if float(x.max()) > 1000:
                raise ArithmeticError
            first = self.waiting.pop(0)
            return torch.cat([first, -first], 1)

    prepared = adapt(Queue(), "hard").prepare(Numerics(chunk=8, block=8), (2,))
    with torch.inference_mode():
        with pytest.raises(ArithmeticError):
            prepared.outputs(torch.full((8, 2), 2000.0))
        assert bool((prepared.outputs(-torch.ones(8, 2))[:, 0] == -1).all())


class NotToBeCopied(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.lock = threading.Lock()


def test_a_module_that_cant_be_copied_is_refused_with_the_remedy() -> None:
    module = NotToBeCopied()
    with pytest.raises(ModelError, match="NotToBeCopied"):
        SmoothedClassifier(module, sigma=1.0)

    def calling(batch: np.ndarray) -> np.ndarray:
        return module(torch.from_numpy(batch)).numpy()

    assert SmoothedClassifier(calling, sigma=1.0, n=100, seed=0).certify(np.zeros(2)).estimation.n == 100


def test_functions_have_one_caller_at_a_time_unless_declared_thread_safe() -> None:
    inside, most = [0], [0]

    def function(batch: np.ndarray) -> np.ndarray:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.0005)
        inside[0] -= 1
        return np.stack([batch[:, 0], -batch[:, 0]], 1)

    votes(function, 4, n=400)
    assert most[0] == 1
    base = adapt(function, "hard")
    assert base.prepare(Numerics(), (2,)).workers(4) == 1
    assert adapt(scores, "hard", thread_safe=True).prepare(Numerics(), (2,)).workers(4) == 4
    assert adapt(Kept(), "hard").prepare(Numerics(), (2,)).workers(4) == 4
    assert adapt(Kept(), "hard", thread_safe=False).prepare(Numerics(), (2,)).workers(4) == 1


class Handing:
    """A model as a method of something: another object whenever it is looked up."""

    def __init__(self) -> None:
        self.room = np.zeros((1 << 13, 2))

    def scores(self, batch: np.ndarray) -> np.ndarray:
        """What the room holds when it is looked at again."""
        self.room[: len(batch)] = batch
        time.sleep(0.0005)
        return np.stack([self.room[: len(batch), 0], -self.room[: len(batch), 0]], 1)


class HandingEstimator(Handing):
    classes_ = np.array([0, 1])
    n_features_in_ = 2

    def predict(self, batch: np.ndarray) -> np.ndarray:
        """By the same room."""
        return self.scores(batch).argmax(1)


@pytest.mark.parametrize("kind", ["method", "estimator", "held estimator", "one classifier", "unsafe module"])
def test_so_they_have_when_several_classifiers_and_threads_use_them(kind: str) -> None:
    """Votes on one input were counted for the other: −1 was certified to be of the class of ½."""
    given: Any = Handing() if kind in ("method", "one classifier") else HandingEstimator()
    made = SmoothedClassifier(given.scores, sigma=0.5, n=1000, seed=1, input_shape=(2,))

    def classifier() -> Any:
        if kind == "one classifier":  # which each thread finds unprepared
            return made
        unsafe = kind == "unsafe module"
        model = ThroughAGlobal(2, 2) if unsafe else given.scores if kind == "method" else given
        options: dict[str, Any] = {"thread_safe": False} if unsafe else {}
        smoothed = SmoothedClassifier(model, sigma=0.5, n=1000, seed=1, input_shape=(2,), **options)
        if kind.startswith("held"):
            return smoothed.holding([1])
        smoothed.prepare((2,))
        return smoothed

    ready, found = threading.Barrier(2, timeout=SECONDS), {}

    def certify(voting: Any, x: float) -> None:
        ready.wait()
        found[x] = voting.certify(np.array([x, 0.0]))

    finished([functools.partial(certify, classifier(), x) for x in (-1.0, 0.5)])
    assert {x: answer.estimation for x, answer in found.items()} == {
        x: classifier().certify(np.array([x, 0.0])).estimation for x in (-1.0, 0.5)
    }


LAST: dict[str, Any] = {}


def through_a_global(batch: np.ndarray) -> np.ndarray:
    LAST["batch"] = batch
    time.sleep(0.002)
    return scores(LAST["batch"])


class ThroughAGlobal(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        LAST["batch"] = x
        time.sleep(0.002)
        return torch.cat([LAST["batch"][:, :1], -LAST["batch"][:, :1]], 1)


@pytest.mark.parametrize(("model", "claim"), [(through_a_global, True), (ThroughAGlobal(2, 2), None)])
def test_what_several_workers_would_spoil_is_refused_before_any_answer_and_one_worker_is_the_remedy(
    model: Any, claim: Any
) -> None:
    """In every run; which of the probes meets the other worker's pass first is up to the threads."""
    for _ in range(4):
        answers = iter(smoothed(model, 4, thread_safe=claim).certify_each(enumerate(POINTS)))
        with pytest.raises(ModelError):
            next(answers)
    assert votes(model, 4, n=400, thread_safe=False) == votes(scores, 1, n=400)


class Counting(nn.Module):
    """Remembers what it was asked in a buffer: written in place, or replaced."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.register_buffer("passes_seen", torch.zeros(()))
        self.in_place = in_place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.in_place:
            self.passes_seen.add_(1e-7)
        else:
            self.passes_seen = self.passes_seen + 1e-7
        return torch.cat([x[:, :1] + self.passes_seen, -x[:, :1]], 1)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_module_that_changes_its_buffers_is_refused(in_place: bool) -> None:
    with pytest.raises(ModelError, match="passes_seen"):
        votes(Counting(in_place), 1)


def test_answers_that_live_in_the_model_are_taken_before_it_is_asked_again() -> None:
    class Reusing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = torch.empty(32, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) != 32:
                return torch.cat([x[:, :1], -x[:, :1]], 1)
            self.out[:, :1], self.out[:, 1:] = x[:, :1], -x[:, :1]
            return self.out

    prepared = adapt(Reusing(), "hard").prepare(Numerics(chunk=32, block=32), (2,))
    with torch.inference_mode():
        first = prepared.outputs(torch.ones(32, 2))
        prepared.outputs(-torch.ones(32, 2))
    assert bool((first[:, 0] == 1).all())


class Scrubbing(nn.Module):
    """Wipes the batch before last, which it takes for its own by then."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.last is not None:
            self.last.fill_(7)
        self.last = x
        return torch.cat([x[:, :1], -x[:, :1]], 1)


def test_a_model_that_writes_to_the_batches_it_kept_is_refused() -> None:
    """Passes are cast in the same memory: it wiped the votes to come, and .3 was certified to 1.2."""
    kept: list[np.ndarray] = []

    def scrubbing(batch: np.ndarray) -> np.ndarray:
        for one in kept:
            one[:] = 7
        kept[:] = [batch]
        return scores(batch)

    for model in (Scrubbing(), scrubbing):
        with pytest.raises(ModelError, match=r"(?i)\bscrubbing\b"):
            SmoothedClassifier(model, sigma=0.5, n=1000, seed=0).certify(np.array([0.3, 0.0]))


def test_the_callers_autocast_is_no_part_of_the_model() -> None:
    """Votes, the class without noise and the fingerprint are those of the plan's type, inside and outside of it."""

    def found() -> tuple[Any, ...]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3)).eval()
        classifier = SmoothedClassifier(model, sigma=0.05, n=1000, seed=0)
        x = np.random.default_rng(0).random((1, 8, 8))
        answer = classifier.certify(x, index=0)
        known = classifier.base_class(x), classifier.base.fingerprint(x.shape)
        return answer.predicted, answer.radius, *known

    outside = found()
    with torch.autocast("cpu", torch.bfloat16):
        inside = found()
        assert torch.is_autocast_enabled("cpu")
    assert inside == outside
