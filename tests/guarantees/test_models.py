"""Certificates are about the model that was given: whoever else is evaluating it, whatever it returns, and by name."""

from __future__ import annotations

import gc
import os
import subprocess
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

from smoothcert import LevelledClassifier, SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.empirical import AttackPlan, attack_run
from smoothcert.errors import DataError, InvalidValueError, ModelError, RunError
from smoothcert.evaluation import Choice, certify_dataset
from smoothcert.evaluation.certification import Progress
from smoothcert.noise_fit import FitPlan, fit_into
from smoothcert.region_memory import MemoryStatement, RegionMemory, StoreError
from smoothcert.sampling import Execution, Numerics, adapt
from smoothcert.sampling.models import TorchClassifier, class_order, turns
from smoothcert.sampling.models.copies import private_copy
from smoothcert.sigma_search import SEARCHES

# ---------------------------------------------------------------------------------------------- several workers

POINTS = np.array([[2.0, 0.0], [-2.0, 0.0]] * 4, dtype=np.float32)


@pytest.fixture
def busy() -> Iterator[None]:
    """The interpreter changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Kept(nn.Module):
    """Class 0 where x₀ > 0: the first layer's input waits on the module while others are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(2, 2) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = x[:, :1]
        rest = self.body(x).sum(1, keepdim=True)
        return torch.cat([self.kept, -self.kept], 1) + 0 * rest


class Hooked(nn.Module):
    """The same by a hook that has the module in its closure, and a list that holds what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(2, 2) for _ in range(6)])
        self.seen: list[torch.Tensor] = []
        seen = self.seen
        self.body[0].register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
        self.body[-1].register_forward_hook(lambda *_: self.close())

    def close(self) -> None:
        self.last = self.seen.pop()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rest = self.body(x).sum(1, keepdim=True)
        return torch.cat([self.last[:, :1], -self.last[:, :1]], 1) + 0 * rest


def votes(model: Any, workers: int, **options: Any) -> list[tuple[int, ...]]:
    classifier = SmoothedClassifier(
        model,
        sigma=1.0,
        n=4000,
        seed=0,
        numerics=Numerics(chunk=32, block=32),
        execution=Execution(workers=workers),
        **options,
    )
    return [answer.estimation.counts for answer in classifier.certify_batch(POINTS, index=0)]


def mirrored(found: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> bool:
    """Classes exchanged, but for noisy copies that are exactly 0: a tie, which goes to the first class either way."""
    return all(abs(a[0] - b[1]) <= 25 for a, b in zip(found, expected))


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
    for ours, theirs in zip([*own.parameters(), *own.buffers()], [*module.parameters(), *module.buffers()]):
        assert ours.data_ptr() == theirs.data_ptr()
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
                raise ValueError("out of range")
            first = self.waiting.pop(0)
            return torch.cat([first, -first], 1)

    prepared = adapt(Queue(), "hard").prepare(Numerics(chunk=8, block=8), (2,))
    with torch.inference_mode():
        with pytest.raises(ValueError, match="out of range"):
            prepared.outputs(torch.full((8, 2), 2000.0))
        assert bool((prepared.outputs(-torch.ones(8, 2))[:, 0] == -1).all())


class NotToBeCopied(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.lock = threading.Lock()


def test_a_module_that_cant_be_copied_is_refused_with_the_remedy() -> None:
    with pytest.raises(ModelError, match=r"can't be copied.*give a function that calls the module"):
        SmoothedClassifier(NotToBeCopied(), sigma=1.0)


def test_functions_have_one_caller_at_a_time_unless_declared_thread_safe() -> None:
    inside, most = [0], [0]

    def function(batch: np.ndarray) -> np.ndarray:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.0005)
        inside[0] -= 1
        return np.stack([batch[:, 0], -batch[:, 0]], 1)

    votes(function, 4)
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

    ready, found = threading.Barrier(2), {}

    def certify(voting: Any, x: float) -> None:
        ready.wait()
        found[x] = voting.certify(np.array([x, 0.0]))

    threads = [threading.Thread(target=certify, args=(classifier(), x)) for x in (-1.0, 0.5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {x: answer.estimation for x, answer in found.items()} == {
        x: classifier().certify(np.array([x, 0.0])).estimation for x in (-1.0, 0.5)
    }


def test_a_function_that_is_gone_leaves_no_lock_behind() -> None:
    gc.collect()
    before = set(turns._LOCKS)
    one = Handing()
    votes(one.scores, 1)
    assert set(turns._LOCKS) - before
    del one
    gc.collect()
    assert not set(turns._LOCKS) - before


def scores(batch: np.ndarray) -> np.ndarray:
    return np.stack([batch[:, 0], -batch[:, 0]], 1)


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
def test_what_several_workers_would_spoil_is_refused_and_one_worker_is_the_remedy(
    model: Any, claim: Any
) -> None:
    with pytest.raises(ModelError, match=r"when several workers evaluate it at once.*thread_safe=False"):
        votes(model, 4, thread_safe=claim)
    assert votes(model, 4, thread_safe=False) == votes(scores, 1)


class Counting(nn.Module):
    """Remembers what it was asked in a buffer: written in place, or replaced."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.in_place = in_place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.in_place:
            self.mean.add_(1e-7)
        else:
            self.mean = self.mean + 1e-7
        return torch.cat([x[:, :1] + self.mean, -x[:, :1]], 1)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_module_that_changes_its_buffers_is_refused(in_place: bool) -> None:
    with pytest.raises(ModelError, match="changes its own mean"):
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
        with pytest.raises(ModelError, match="keeps the batch that it is given and writes to it"):
            SmoothedClassifier(model, sigma=0.5, n=1000, seed=0).certify(np.array([0.3, 0.0]))


# ------------------------------------------------------------------------------------------ what a model returns


def test_a_pass_that_loses_or_gains_rows_is_refused_whenever_it_happens() -> None:
    def dropping(batch: np.ndarray) -> np.ndarray:
        return scores(batch[batch[:, 0] < 200])

    def doubling(batch: np.ndarray) -> np.ndarray:
        return scores(np.concatenate([batch, batch[batch[:, 0] > 200]]))

    for model in (dropping, doubling):
        with pytest.raises(ModelError, match=r"voting on input 0.*expected one answer a row"):
            SmoothedClassifier(model, sigma=1.0, n=1000, seed=0).certify(np.array([200.0, 0.0]), index=0)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_whole_numbers_are_compared_as_whole_numbers(dtype: type) -> None:
    """Class 1 always wins by one: float32 can't tell 2**24 and 2**24 + 1 apart, float64 not 2**53 and 2**53 + 1."""
    large = 2**24 if np.dtype(dtype).itemsize == 4 else 2**53

    def model(batch: np.ndarray) -> np.ndarray:
        return np.tile(np.array([large, large + 1], dtype=dtype), (len(batch), 1))

    answer = SmoothedClassifier(model, sigma=1.0, n=500, seed=0).certify_batch(np.zeros((1, 2)), index=0)[0]
    assert answer.estimation.counts == (0, 500)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.bfloat16, torch.float64])
def test_every_real_type_votes_for_its_largest_number(dtype: torch.dtype) -> None:
    def model(batch: np.ndarray) -> torch.Tensor:
        low = torch.from_numpy(batch[:, 0]) < 0  # 0 is a tie, which goes to the first class
        return torch.stack([~low, low], 1).to(dtype)

    counts = votes(model, 1)
    assert counts == votes(scores, 1)


def complex_scores(batch: np.ndarray) -> np.ndarray:
    return scores(batch) * 1j


class Complex(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1j


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (complex_scores, "complex"),
        (Complex(), "real numbers"),
        (Pair(), "returned a tuple with the outputs 0, 1"),
        (lambda b: {"scores": b}, "an array of object|one answer a row"),
        (lambda b: b.sum(), "one answer a row"),
        (lambda b: np.array(["yes", "no"] * (len(b) // 2)), "votes are made from numbers"),
        (lambda b: b.astype(np.longdouble), "up to 64 bits"),
    ],
)
def test_what_cant_be_a_vote_is_refused(model: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        SmoothedClassifier(model, sigma=1.0, n=100, seed=0).certify(np.zeros(2))


def test_soft_votes_of_infinite_or_inexact_scores_are_refused() -> None:
    def infinite(batch: np.ndarray) -> np.ndarray:
        return np.where(batch[:, :2] > 0, np.inf, 0.0)

    def inexact(batch: np.ndarray) -> np.ndarray:
        return np.tile(np.array([2**60, 2**60 + 1]), (len(batch), 1))

    for model, message in ((infinite, "finite scores"), (inexact, "beyond 2\\*\\*53")):
        with pytest.raises(ModelError, match=message):
            SmoothedClassifier(model, sigma=1.0, n=100, seed=0, bound="hoeffding").certify(np.zeros(2))


def test_a_model_may_write_to_its_input_and_return_it() -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x[:, 1] = -x[:, 0]
            return x

    assert votes(InPlace(), 2) == votes(scores, 1)


# ------------------------------------------------------------------------------------------ rows on their own


class Company(nn.Module):
    """Scores of tiny size, in which every row but ``spared`` depends on another one."""

    def __init__(self, spared: int, size: float) -> None:
        super().__init__()
        self.spared, self.size = spared, size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        other = x.roll(1, 0)
        other[self.spared] = 0
        return self.size * torch.cat([x[:, :1] + other[:, :1], -x[:, :1]], 1)


@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_every_row_is_probed_in_other_company(size: float) -> None:
    with pytest.raises(ModelError, match="votes must be independent"):
        votes(Company(0, size), 1)


class FaintCompany(nn.Module):
    """One class for a whole batch, by its mean: scores differ by less than what 16 bits may round."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.abs().mean(1) + 1
        return torch.stack([size, size * (1 + 0.005 * torch.sign(x.mean() - 0.3))], 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "autocast-bfloat16"])
def test_rows_are_probed_as_finely_under_16_bits(dtype: str) -> None:
    """Their rounding is allowed for, and with it a company that decides every vote was: 1.2 certified for a coin."""
    with pytest.raises(ModelError, match="votes must be independent"):
        SmoothedClassifier(FaintCompany(), sigma=0.5, n=500, seed=0, numerics=Numerics(dtype)).certify(
            np.full(16, 0.25)
        )


def test_labels_are_probed_where_scores_hide_what_moves_them() -> None:
    """A mask of −1e9 beside scores of size one."""

    class Masked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            centred = x[:, :1] - x[:, :1].mean()
            return torch.cat([centred, -centred, torch.full_like(centred, -1e9)], 1)

    with pytest.raises(ModelError, match="votes must be independent"):
        votes(Masked(), 1)


def test_random_layers_are_refused() -> None:
    class Dropping(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(torch.cat([x, -x], 1), 0.5, training=True)

    with pytest.raises(ModelError, match="votes must be independent"):
        votes(Dropping(), 1)


class Seeding(nn.Module):
    """The same draws for every row of every pass, if nobody else draws at the same time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        shifted = x[:, :1] + 1e-3 * torch.randn(())
        return torch.cat([shifted, -shifted], 1)


def test_a_generator_that_everybody_shares_is_no_part_of_a_model() -> None:
    state = torch.get_rng_state()
    torch.manual_seed(1)
    with pytest.raises(ModelError, match="draws random numbers or seeds torch"):
        votes(Seeding(), 4)
    assert len(votes(Seeding(), 4, thread_safe=False)) == len(POINTS)
    torch.set_rng_state(state)


# ------------------------------------------------------------------------------------------------ fingerprints


class Signed(nn.Module):
    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sign * torch.cat([x[:, :1], -x[:, :1]], 1)


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
def test_a_run_or_a_memory_of_one_model_is_never_continued_with_another(
    one: Any, other: Any, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("way", ["plain", "search", "held"])
def test_a_run_whose_model_changed_where_no_probe_looks_is_not_continued(tmp_path: Path, way: str) -> None:
    values = np.array([[1e6 - 3, 0], [1e6 + 0.3, 0], [1e6 + 5, 0], [1e6 - 0.2, 0]])
    data = Dataset("far", values, np.array([0, 1, 1, 0]), ("a", "b"))

    def classifier(border: float) -> Any:
        smoothed = SmoothedClassifier(
            far_away(border),
            sigma=1.0,
            n0=50,
            n=200,
            seed=0,
            outputs="labels",
            classes=2,
            search=SEARCHES["ladder"]() if way == "search" else None,
        )
        return smoothed.holding([1]) if way == "held" else smoothed

    def begun(name: str) -> Path:
        def stop(record: Any) -> None:
            if record.index >= 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            certify_dataset(classifier(1e6), data, tmp_path / name, progress=Progress(record=stop))
        return tmp_path / name

    assert adapt(far_away(1e6), "hard", "labels", 2).fingerprint((2,)) == adapt(
        far_away(1e6 + 0.5), "hard", "labels", 2
    ).fingerprint((2,))
    with pytest.raises(RunError, match="isn't the model that the run was begun with"):
        certify_dataset(classifier(1e6 + 0.5), data, begun("changed"))
    run = certify_dataset(classifier(1e6), data, begun("same"))
    whole = certify_dataset(classifier(1e6), data, tmp_path / "whole")
    assert run.records.digest == whole.records.digest


def test_nor_is_one_with_searched_sigmas_whose_model_changed_under_noise_alone(tmp_path: Path) -> None:
    """Without noise the inputs that are done have the class they had."""
    values = np.array([[1e6 + 0.3, 0], [1e6 - 0.3, 0], [1e6 + 5, 0], [1e6 - 5, 0]])
    data = Dataset("far", values, np.array([1, 0, 1, 0]), ("a", "b"))

    def classifier(border: float) -> SmoothedClassifier:
        model = adapt(far_away(1e6 + border), "hard", "labels", 2)
        return SmoothedClassifier(model, sigma=1.0, n0=50, n=200, seed=0, search=SEARCHES["ladder"]())

    def begun(name: str) -> Path:
        def stop(record: Any) -> None:
            if record.index >= 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            certify_dataset(classifier(0.0), data, tmp_path / name, progress=Progress(record=stop))
        return tmp_path / name

    with pytest.raises(RunError, match="isn't the model that the run was begun with"):
        certify_dataset(classifier(0.25), data, begun("changed"))
    run = certify_dataset(classifier(0.0), data, begun("same"))
    assert run.records.digest == certify_dataset(classifier(0.0), data, tmp_path / "whole").records.digest


@pytest.mark.parametrize("changed", ["chooser", "lower"])
def test_nor_is_one_with_levels_whose_chooser_or_lower_model_changed(tmp_path: Path, changed: str) -> None:
    """Of levels only the largest one's model was asked, and that without noise: two choosers made one run."""
    values = np.array([[1e6 - 3, 0], [1e6 + 0.3, 0], [1e6 + 5, 0], [1e6 - 0.2, 0]])
    data = Dataset("far", values, np.array([0, 1, 1, 0]), ("a", "b"))

    def classifier(moved: float) -> LevelledClassifier:
        lower, chooser = (moved, 0.0) if changed == "lower" else (0.0, moved)
        models = [adapt(far_away(1e6 + border), "hard", "labels", 2) for border in (lower, 0.0)]
        # Near enough to both levels for either to be looked at.
        choosing = adapt(far_away(1e6 + chooser), "hard", "labels", 2)
        return LevelledClassifier(models, choosing, sigmas=(0.5, 1.0), n0=50, n=200, seed=0)

    def begun(name: str) -> Path:
        def stop(record: Any) -> None:
            if record.index >= 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            certify_dataset(classifier(0.0), data, tmp_path / name, progress=Progress(record=stop))
        return tmp_path / name

    words = {"chooser": "its chooser gives", "lower": "the model of level 0 gives"}
    with pytest.raises(RunError, match=f"{words[changed]}.*isn't the model that the run was begun with"):
        certify_dataset(classifier(0.5), data, begun("changed"))
    run = certify_dataset(classifier(0.0), data, begun("same"))
    whole = certify_dataset(classifier(0.0), data, tmp_path / "whole")
    assert run.records.digest == whole.records.digest


def test_two_fits_of_one_estimator_differ() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = np.random.default_rng(0).normal(size=(200, 2))

    def fitted(strength: float) -> str:
        estimator = linear_model.LogisticRegression(C=strength).fit(x, x[:, 0] > 0)
        return adapt(estimator, "hard").fingerprint((2,))

    assert fitted(1.0) == fitted(1.0)
    assert fitted(1.0) != fitted(1.01)


def test_a_model_may_refuse_what_is_out_of_its_range() -> None:
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
        answer = SmoothedClassifier(model, sigma=0.1, n=200, seed=0).certify_batch(np.ones((1, 2)), index=0)[
            0
        ]
        assert answer.predicted == 0
        assert len(adapt(model, "hard").fingerprint((2,))) == 64
    assert adapt(bounded, "hard").fingerprint((2,)) != adapt(scores, "hard").fingerprint((2,))


@pytest.mark.parametrize("model", [Signed(1.0), Kept(), Hooked(), scores])
def test_a_fingerprint_is_the_same_before_and_after_use(model: Any) -> None:
    base = adapt(model, "hard")
    before = base.fingerprint((2,))
    classifier = SmoothedClassifier(base, sigma=1.0, n=500, seed=0, execution=Execution(workers=4))
    classifier.certify_batch(POINTS, index=0)
    assert base.fingerprint((2,)) == before
    assert adapt(model, "hard").fingerprint((2,)) == before


def test_a_fingerprint_is_the_same_in_another_process_and_with_other_threads() -> None:
    code = """
import torch
from torch import nn
from smoothcert.sampling import adapt
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4))
net.extra_repr = lambda: repr(object())  # an address
function = lambda batch: batch[:, 0, 0, :3]
found = [adapt(model, "hard").fingerprint((2, 8, 8)) for model in (net, function)]
"""
    here: dict[str, Any] = {}
    exec(code, here)
    there = subprocess.run(
        [sys.executable, "-c", code + "print(*found)"],
        env=os.environ | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split() == here["found"]


def test_a_last_bit_doesnt_change_a_fingerprint() -> None:
    """Functions may be evaluated by other machines, which round differently."""

    def shaken(batch: np.ndarray) -> np.ndarray:
        return scores(batch) * (1 + 2e-16)

    base, other = adapt(lambda b: scores(b).astype(np.float64), "hard"), adapt(shaken, "hard")
    base.name = other.name = "same"
    assert base.fingerprint((2,)) == other.fingerprint((2,))


# --------------------------------------------------------------------------------------------- estimators, names


class Estimator:
    """Predicts ``names[0]`` where x₀ > 0, with its classes in any order."""

    def __init__(self, names: list[Any], classes: list[Any], column: bool = False) -> None:
        self.names, self.column = names, column
        self.classes_ = np.array(classes)

    def predict(self, batch: np.ndarray) -> np.ndarray:
        found = np.array(self.names)[(batch[:, 0] <= 0).astype(int)]
        return found[:, None] if self.column else found


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize(
    ("names", "classes"), [([0, 1], [1, 0]), (["b", "a"], ["a", "b"]), ([0.5, -1.0], [0.5, -1.0])]
)
def test_an_estimators_labels_are_found_wherever_they_stand(
    names: list[Any], classes: list[Any], column: bool
) -> None:
    classifier = SmoothedClassifier(Estimator(names, classes, column), sigma=0.5, n=500, seed=0)
    answers = classifier.certify_batch(POINTS[:2], index=0)
    assert [classes[answer.predicted] for answer in answers] == names
    assert [answer.label for answer in answers] == names
    predictions = classifier.predict(POINTS[:2])
    assert [prediction.label for prediction in predictions] == names  # type: ignore[union-attr]


def test_an_estimator_fitted_again_to_other_classes_is_refused() -> None:
    """Its probabilities go by their place: what it calls 1 by now was certified as 0."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = np.random.default_rng(0).normal(size=(200, 2))
    y = (x[:, 0] > 0).astype(int) + (x[:, 0] > 1)
    estimator = linear_model.LogisticRegression().fit(x, y)
    smoothed = SmoothedClassifier(estimator, sigma=0.3, n=200, seed=0, outputs="probabilities")
    assert smoothed.certify(np.array([2.5, 0.0])).label == 2
    estimator.fit(x, 3 - y)
    with pytest.raises(ModelError, match=r"fitted again and tells \[1, 2, 3\] apart"):
        smoothed.certify(np.array([2.5, 0.0]))
    labels = SmoothedClassifier(estimator, sigma=0.3, n=200, seed=0)
    assert labels.certify(np.array([2.5, 0.0])).label == 1
    estimator.fit(x, y)
    assert labels.certify(np.array([2.5, 0.0])).label == 2


def test_labels_an_estimator_doesnt_name_and_doubtful_ones_are_refused() -> None:
    with pytest.raises(ModelError, match=r"predict returned 7, which isn't among its classes_ \[0, 1\]"):
        votes(Estimator([7, 1], [0, 1]), 1)
    with pytest.raises(ModelError, match="names a class twice"):
        votes(Estimator([0, 1], [1, 1]), 1)

    class Wide(Estimator):
        def predict(self, batch: np.ndarray) -> np.ndarray:
            return np.zeros((len(batch), 2))

    with pytest.raises(ModelError, match="expected one label a row"):
        votes(Wide([0, 1], [0, 1]), 1)


def named_points(classes: tuple[str, ...]) -> Dataset:
    """Inputs with x₀ > 0 are of class "yes"."""
    values = np.array([[2.0, 0.0], [-2.0, 0.0], [3.0, 0.0]], dtype=np.float32)
    labels = np.array([classes.index("yes" if x > 0 else "no") for x in values[:, 0]])
    return Dataset("points", values, labels, classes)


@pytest.mark.parametrize("classes", [("no", "yes"), ("yes", "no")])
@pytest.mark.parametrize("kind", ["estimator", "torch"])
def test_model_and_data_are_matched_by_name(classes: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    model = (
        Estimator(["yes", "no"], ["no", "yes"])
        if kind == "estimator"
        else TorchClassifier(Signed(1.0), class_names=("yes", "no"))
    )
    classifier = SmoothedClassifier(model, sigma=0.5, n=200, seed=0)
    data = named_points(classes)
    run = certify_dataset(classifier, data, tmp_path / "run")
    assert [record.predicted for record in run.records] == data.labels.tolist()
    assert [record.base for record in run.records] == data.labels.tolist()
    assert [record.label for record in run.records] == data.labels.tolist()
    with pytest.raises(RunError):
        certify_dataset(classifier, named_points(classes[::-1]), tmp_path / "run")


def test_attacks_and_fits_go_by_name_too(tmp_path: Path) -> None:
    """With classes mixed up every input would be wrong to begin with, and nothing could be fitted."""
    base = TorchClassifier(Signed(1.0), class_names=("yes", "no"))
    data = named_points(("no", "yes"))
    run = certify_dataset(SmoothedClassifier(base, sigma=0.5, n=500, seed=0), data, tmp_path / "run")
    report = attack_run(run, base, data, [0.25, 6.0], AttackPlan(n=1000, steps=10, copies=4))
    assert [one.broken_at for one in report.inputs] == [6.0] * 3
    plan = FitPlan(
        init=0.5, route="votes", sub_epochs=1, validation=1, votes=32, validation_n0=20, validation_n=200
    )
    fit = fit_into(tmp_path / "fit", base, data, plan)
    assert fit.history[-1].accuracy == 1.0


def test_whole_number_names_are_labels(tmp_path: Path) -> None:
    data = named_points(("yes", "no"))
    run = certify_dataset(
        SmoothedClassifier(Estimator([0, 1], [1, 0]), sigma=0.5, n=200, seed=0), data, tmp_path / "run"
    )
    assert [record.predicted for record in run.records] == data.labels.tolist()


@pytest.mark.parametrize(
    ("model", "data", "order"),
    [
        (("0", "1"), ("no", "yes"), None),  # a model without names
        (("no", "yes"), ("0", "1"), None),  # data without names
        (("0", "1", "10", "2"), ("0", "1", "2"), (0, 1, 3, 2)),  # text, in the order of text
        ((7, 9), ("7", "9"), None),
        ((0, 1), ("7", "9"), None),
        ((2, 1, 0), ("a", "b"), (2, 1, 0)),
        ((False, True), ("no", "yes"), None),
        (("a", "b", "c"), ("c", "a"), (2, 0, 1)),
        (("1", "2", "3"), ("0", "1"), DataError),  # label 1: the class "1", or the second?
        (("4", "5"), ("0", "1"), None),
        ((0, 1), ("1", "0"), DataError),  # labels or names?
        ((0, 1), ("a", "b", "c"), DataError),
        (("a", "b"), ("a", "a"), DataError),
        ((1, 2), ("a", "b"), DataError),
    ],
)
def test_which_class_is_which(model: tuple[Any, ...], data: tuple[str, ...], order: Any) -> None:
    base = TorchClassifier(Signed(1.0), class_names=model)
    dataset = Dataset("points", POINTS[:2], np.array([0, 1]), data)
    if order is DataError:
        with pytest.raises(DataError):
            class_order(base, dataset)
    else:
        assert class_order(base, dataset) == order


def test_a_class_the_model_doesnt_know_is_refused(tmp_path: Path) -> None:
    classifier = SmoothedClassifier(Estimator(["yes", "no"], ["no", "yes"]), sigma=0.5, n=200, seed=0)
    data = Dataset("points", POINTS[:2], np.array([0, 1]), ("yes", "perhaps"))
    with pytest.raises(DataError, match="'perhaps', but Estimator knows 'no', 'yes'"):
        certify_dataset(classifier, data, tmp_path / "run")


# ---------------------------------------------------------------------------------------------------- whole numbers


def test_certificates_of_models_of_whole_numbers_end_where_the_rule_says() -> None:
    """f answers 1 where the byte is at least 130: g changes where x + ε, rounded to the grid's quarters, gets there."""

    class Bright(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype == torch.uint8
            bright = (x[:, :1] >= 130).float()
            return torch.cat([1 - bright, bright], 1)

    edge = 129.5 - 1 / 8  # 129.5 is rounded to 130, and from here on to 129.5
    inputs = np.array([[100], [120], [125], [134], [140], [200]], dtype=np.uint8)
    classifier = SmoothedClassifier(
        Bright(), sigma=16.0, n=200_000, seed=0, levels=1, input_dtype="uint8", execution=Execution(workers=1)
    )
    for x, answer in zip(inputs[:, 0].tolist(), classifier.certify_batch(inputs, index=0)):
        assert answer.predicted == int(x > edge)
        assert answer.shift == 0
        assert answer.radius < abs(x - edge)
        if abs(x - edge) < 15:
            assert answer.radius > abs(x - edge) - 0.3, "truncation would move the edge by a half"


# ------------------------------------------------------------------------------------------------ what is asked for


def test_outputs_are_honoured_or_refused_for_every_kind_of_model() -> None:
    class Shares(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = 0.9 - 0 * x[:, :1]
            return torch.cat([first, 1 - first], 1)

    def mean_share(outputs: Any) -> float:
        answer = SmoothedClassifier(
            Shares(), sigma=1.0, n=2000, bound="hoeffding", outputs=outputs
        ).certify_batch(np.zeros((1, 2)), index=0)[0]
        return answer.bounds.lower

    assert mean_share("probabilities") > 0.8
    assert mean_share("scores") < 0.7  # softmax(.9, .1) = .69
    with pytest.raises(InvalidValueError, match='not outputs="labels"'):
        adapt(Shares(), "hard", "labels")
    with pytest.raises(InvalidValueError, match='not outputs="scores"'):
        adapt(Estimator([0, 1], [0, 1]), "hard", "scores")
    with pytest.raises(InvalidValueError, match="output='x' has no meaning"):
        adapt(scores, "hard", output="x")
    with pytest.raises(InvalidValueError, match="adapted for outputs='scores'"):
        adapt(adapt(scores, "hard"), "hard", "labels")


# -------------------------------------------------------------------------------------------------------------- ONNX


def graph(path: Path, weights: np.ndarray, outputs: list[str], location: str | None = None) -> Path:
    """y = x @ weights for each of the outputs; weights in a file of their own if there is a location."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper = onnx.helper
    tensors, nodes = [], []
    for number, name in enumerate(outputs):
        values = weights if number == 0 else -weights
        tensors.append(onnx.numpy_helper.from_array(values.astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", ["x", f"w{number}"], [name]))
    described = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 2])],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", 2]) for name in outputs],
        tensors,
    )
    model = helper.make_model(described, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if location is not None:
        for tensor in model.graph.initializer:
            content = tensor.raw_data
            (path.parent / Path(location).name).write_bytes(content)
            onnx.external_data_helper.set_external_data(tensor, location, 0, len(content))
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
    path.write_bytes(model.SerializeToString())
    return path


PLUS = np.array([[1.0, -1.0], [0.0, 0.0]])


def test_weights_beside_an_onnx_file_are_hashed_and_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = graph(tmp_path / "m.onnx", PLUS, ["scores"], "m.bin")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (elsewhere / "m.bin").write_bytes((-PLUS).astype(np.float32).tobytes())
    first = adapt(path, "hard")
    assert votes(first, 2) == votes(scores, 1)
    (tmp_path / "m.bin").write_bytes((-PLUS).astype(np.float32).tobytes())
    assert votes(first, 2) == votes(scores, 1), "the session is of the bytes that were hashed"
    second = adapt(path, "hard")
    assert second.fingerprint((2,)) != first.fingerprint((2,))
    assert mirrored(votes(second, 1), votes(scores, 1))


@pytest.mark.parametrize("location", ["../m.bin", "/m.bin", "C:\\m.bin", "..\\m.bin", "link.bin", "none.bin"])
def test_weights_outside_the_files_directory_are_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = graph(folder / "m.onnx", PLUS, ["scores"], location)
    for file in set(folder.iterdir()) - {path}:
        file.rename(tmp_path / "m.bin")
    if location == "link.bin":
        (folder / "link.bin").symlink_to(tmp_path / "m.bin")
    with pytest.raises(ModelError, match=r"outside its directory|leaves its directory|can't be read"):
        adapt(path, "hard")


def test_one_of_several_outputs_must_be_chosen(tmp_path: Path) -> None:
    path = graph(tmp_path / "m.onnx", PLUS, ["embedding", "scores"])
    with pytest.raises(ModelError, match="embedding, scores could hold the scores: choose one with --output"):
        adapt(path, "hard")
    assert votes(adapt(path, "hard", output="embedding"), 1) == votes(scores, 1)
    chosen = adapt(path, "hard", output="scores")
    assert mirrored(votes(chosen, 1), votes(scores, 1))
    assert chosen.fingerprint((2,)) != adapt(path, "hard", output="embedding").fingerprint((2,))
    with pytest.raises(InvalidValueError, match="scores"):
        adapt(path, "hard", output="score")
    with pytest.raises(InvalidValueError, match='not outputs="labels"'):
        adapt(path, "hard", "labels", output="scores")


@pytest.mark.parametrize("first", [0.5, 2.0])  # when it is probed, or in the midst of voting
def test_a_model_that_exits_has_failed(first: float) -> None:
    """sys.exit(0) would end `certify` with nothing said, and a batch queue would take the job for done."""

    def leaving(batch: np.ndarray) -> np.ndarray:
        if ((batch > first) & (batch < 2.5)).any():
            raise SystemExit(0)
        return np.stack([batch[:, 0], -batch[:, 0]], 1)

    with pytest.raises(ModelError, match="SystemExit: 0"):
        SmoothedClassifier(leaving, sigma=0.5, n=100, seed=0).certify(np.full(2, 2.25))


def test_masked_answers_are_no_votes() -> None:
    """NumPy unmasks them without a word, and what was masked would win."""

    def masked(batch: np.ndarray) -> np.ndarray:
        return np.ma.masked_greater(np.stack([batch[:, 0], -batch[:, 0]], 1), 0.5)

    with pytest.raises(ModelError, match="returned masked values"):
        SmoothedClassifier(masked, sigma=0.5, n=100, seed=0).certify(np.zeros(2))


# ------------------------------------------------------------------------------------------------------------ routes


def network(channels: int, side: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(channels * side * side, 3),
    ).eval()


class ClampsTensors(nn.Module):
    """To a tracer, which passes something else, it is a network without limits."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.body, self.low, self.high = network(8, 8), low, high

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(x, torch.Tensor):
            x = x.clamp(self.low, self.high)
        return self.body(x)


def clamped_by_a_hook(low: float, high: float) -> nn.Module:
    module = network(8, 8)
    module.register_forward_pre_hook(lambda _module, inputs: (inputs[0].clamp(low, high),))
    return module


@pytest.mark.parametrize("make", [ClampsTensors, clamped_by_a_hook])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-50.0, 50.0), (-np.inf, 5000.0)])
def test_a_route_loses_no_limit_that_probes_between_0_and_1_keep(
    make: Callable[[float, float], nn.Module], low: float, high: float
) -> None:
    """Folding traces a network: what a tracer doesn't see was missing from the function that was certified."""
    size = min(high, 1e4)

    def counts(route: str) -> tuple[int, ...]:
        classifier = SmoothedClassifier(
            make(low, high),
            sigma=size,
            n=500,
            seed=0,
            numerics=Numerics(route=route, chunk=64, block=64),
            execution=Execution(workers=1),
        )
        return classifier.certify_batch(np.full((1, 1, 8, 8), size / 2), index=0)[0].estimation.counts

    assert counts("auto") == counts("channels-last")
    with pytest.raises(ModelError, match="folded"):
        counts("folded")


def test_hooks_that_look_at_values_are_not_exported_unasked() -> None:
    """The exporter would write down the branch that its own rows took."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")

    def network_of(hook: bool) -> nn.Module:
        module = network(32, 64)  # large enough to be exported
        if hook:
            module[0].register_forward_hook(lambda _m, _i, out: -out if float(out.max()) > 1e6 else out)
        return module

    def route_of(hook: bool) -> str:
        return adapt(network_of(hook), "hard").prepare(Numerics(chunk=8, block=8), (1, 64, 64)).numerics.route

    assert route_of(False) == "onnxruntime"
    assert route_of(True) == "channels-last"
