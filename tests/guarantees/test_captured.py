"""The captured graph is f: modules with a state of any kind get the votes of a pure function, or are rejected.

Every module here votes by the sign of x₀ and does something else beside that. None is found out by a race of threads.
"""

import functools
import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert import SmoothedClassifier
from smoothcert.engine.backends import processes
from smoothcert.engine.execution import Execution
from smoothcert.errors import ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.capture import NotCapturedError, capture
from smoothcert.models.numerics import Numerics
from tests.guarantees.toys import SECONDS, Hooked, Kept, scores, votes

GLOBAL, BY_NAME, LOCAL = torch.zeros(64, 2), dict[str, Any](), threading.local()
CLOSED_OVER = torch.tensor([2.0])


def signed(x: Tensor) -> Tensor:
    return torch.cat([x[:, :1], -x[:, :1]], 1)


class Impure(nn.Module):
    """Whatever a kind needs, and its forward."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.passes = kind, 0
        self.register_buffer("buffer", torch.zeros(64, 2))
        self.register_buffer("mean", torch.zeros(2))
        self.parameter = nn.Parameter(torch.zeros(64, 2))
        self.held, self.kept, self.cache = torch.zeros(()), None, dict[Any, Any]()
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(2)

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self, self.kind)(x)


@torch.library.custom_op("smoothcert_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    """An operator that runs foreign code."""
    return 2 * x


twice.register_fake(torch.empty_like)


class Captured(Impure):
    """What is written and asked on the side vanishes from the graph: the votes are those of the pure function."""

    def counter(self, x: Tensor) -> Tensor:
        self.passes += 1
        return signed(x) * (1 if self.passes < 8 else -1)

    def tensor_attribute(self, x: Tensor) -> Tensor:
        self.held = self.held + 1
        return signed(x) + self.held

    def kept_on_self(self, x: Tensor) -> Tensor:
        self.kept = x[:, :1]
        return torch.cat([self.kept, -self.kept], 1)

    def through_a_global_name(self, x: Tensor) -> Tensor:
        BY_NAME["batch"] = x
        return signed(BY_NAME["batch"])

    def batch_before(self, x: Tensor) -> Tensor:
        before, self.kept = self.kept, x
        return signed(x if before is None else before)

    def cache_by_shape(self, x: Tensor) -> Tensor:
        if x.shape not in self.cache:
            self.cache[x.shape] = torch.ones(x.shape[1])
        return signed(x * self.cache[x.shape])

    def queue(self, x: Tensor) -> Tensor:
        waiting = self.cache.setdefault("queue", [])
        waiting.append(x)
        return signed(waiting.pop(0))

    def thread_local(self, x: Tensor) -> Tensor:
        return signed(x) * getattr(LOCAL, "sign", 1.0)

    def own_input(self, x: Tensor) -> Tensor:
        return signed(x.mul_(2.0))

    def first_layer_in_place(self, x: Tensor) -> Tensor:
        return signed(F.leaky_relu(x, 0.5, inplace=True))

    def own_results(self, x: Tensor) -> Tensor:
        found = torch.zeros_like(x)
        found[:, 0], found[:, 1] = x[:, 0], -x[:, 0]
        return found.mul_(2.0)

    def batches_it_kept(self, x: Tensor) -> Tensor:
        if self.kept is not None:
            self.kept.fill_(-7.0)
        self.kept = x
        return signed(x)

    def functional_dropout_in_eval_mode(self, x: Tensor) -> Tensor:
        return F.dropout(signed(x), 0.5, training=self.training)

    def seeded_without_a_draw(self, x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return signed(x)

    def branch_on_the_shape(self, x: Tensor) -> Tensor:
        return signed(x) if x.ndim == 2 and x.shape[0] > 1 else x

    def python_lists(self, x: Tensor) -> Tensor:
        return torch.tensor([[first, -first] for first in x[:, 0].tolist()])

    def gradients(self, x: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            rows = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad((rows**2).sum(), rows)
        return signed(slope)


class Opaque(Impure):
    """No graph can be made of these: they vote as they are, one caller at a time."""

    def lazy_buffer(self, x: Tensor) -> Tensor:
        if not hasattr(self, "ones"):
            self.register_buffer("ones", torch.ones(2))
        return signed(x * self.ones)

    def parameter_swapped(self, x: Tensor) -> Tensor:
        kept, self.parameter.data = self.parameter.data, x.clone()
        found = signed(self.parameter).clone()
        self.parameter.data = kept
        return found

    def branch_on_a_value(self, x: Tensor) -> Tensor:
        return signed(x) if float(x.abs().max()) < 1e6 else -signed(x)

    def branch_on_a_tensor(self, x: Tensor) -> Tensor:
        return signed(x) if x.abs().max() < 1e6 else -signed(x)

    def numpy_and_back(self, x: Tensor) -> Tensor:
        return torch.from_numpy(scores(x.numpy()))

    def custom_operator(self, x: Tensor) -> Tensor:
        return signed(twice(x))


class Rejected(Impure):
    """The graph writes, draws, or keeps its first batch; or rows depend on their batch."""

    def tensor_attribute_in_place(self, x: Tensor) -> Tensor:
        self.held += 1
        return signed(x) + self.held

    def batch_before_by_a_global_name(self, x: Tensor) -> Tensor:
        before, BY_NAME["before"] = BY_NAME.get("before"), x
        return signed(x if before is None else before)

    def first_batch(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = x.mean(0).clone()
        return signed(x - self.kept)

    def first_batch_in_a_cache(self, x: Tensor) -> Tensor:
        if "mean" not in self.cache:
            self.cache["mean"] = x.mean(0).detach().clone()
        return signed(x - self.cache["mean"])

    def first_batch_by_numpy(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = x.numpy().mean(0)
        return signed(x - torch.from_numpy(self.kept))

    def cache_by_address(self, x: Tensor) -> Tensor:
        if x.data_ptr() not in self.cache:
            self.cache[x.data_ptr()] = signed(x)
        return self.cache[x.data_ptr()]

    def buffer_in_place(self, x: Tensor) -> Tensor:
        self.mean.add_(1e-7)
        return signed(x + self.mean)

    def buffer_replaced(self, x: Tensor) -> Tensor:
        self.mean = self.mean + 1e-7
        return signed(x + self.mean)

    def scratch_buffer(self, x: Tensor) -> Tensor:
        rows = self.buffer[: len(x)]
        rows.copy_(x)
        found = signed(rows)
        rows.zero_()
        return found

    def scratch_parameter(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            rows = self.parameter[: len(x)]
            rows.copy_(x)
            return signed(rows)

    def parameter_data(self, x: Tensor) -> Tensor:
        self.parameter.data.add_(1.0)
        return signed(x) + self.parameter[: len(x)]

    def global_tensor(self, x: Tensor) -> Tensor:
        rows = GLOBAL[: len(x)]
        rows.copy_(x)
        return signed(rows)

    def statistics_in_training_mode(self, x: Tensor) -> Tensor:
        self.norm.train()
        return signed(self.norm(x))

    def random_like(self, x: Tensor) -> Tensor:
        return signed(x) + 1e-7 * torch.rand_like(x)

    def bernoulli(self, x: Tensor) -> Tensor:
        return signed(x) * torch.bernoulli(torch.full_like(x, 0.5))

    def functional_dropout(self, x: Tensor) -> Tensor:
        return F.dropout(signed(x), 0.5, training=True)

    def dropout_switched_on(self, x: Tensor) -> Tensor:
        return self.drop.train()(signed(x))

    def seeded_draw(self, x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return signed(x) + 1e-3 * torch.randn(())

    def own_generator(self, x: Tensor) -> Tensor:
        return signed(x) + torch.rand(len(x), 2, generator=torch.Generator().manual_seed(1))

    def python_random(self, x: Tensor) -> Tensor:
        return signed(x) * random.choice([1e-3, 1.0, 1e3])

    def numpy_random(self, x: Tensor) -> Tensor:
        return signed(x) + 10 * float(np.random.default_rng().random())

    def the_time(self, x: Tensor) -> Tensor:
        return signed(x) + time.perf_counter_ns() % 1_000_000

    def batch_mean(self, x: Tensor) -> Tensor:
        return signed(x - x.mean(0))

    def batch_norm_by_the_batch(self, x: Tensor) -> Tensor:
        return signed(F.batch_norm(x, None, None, training=True))

    def sorted_batch(self, x: Tensor) -> Tensor:
        return signed(x.sort(0).values)

    def largest_of_the_batch(self, x: Tensor) -> Tensor:
        return signed(x) + 9 * x.max().item()

    def both_branches(self, x: Tensor) -> Tensor:
        return torch.cond(x[0, 0] > 0, signed, lambda rows: signed(-rows), (x,))


FATES: dict[str, type[Impure]] = {
    name: fate for fate in (Captured, Opaque, Rejected) for name in vars(fate) if not name.startswith("__")
}


def impure(kind: str) -> Impure:
    return FATES[kind](kind)


def hooked(write: bool) -> nn.Module:
    module = impure("kept_on_self")
    module.register_forward_pre_hook(lambda _module, inputs: (2 * inputs[0],))
    if write:
        module.register_forward_hook(lambda module, _inputs, _output: module.mean.add_(1.0) and None)
    return module


MODULES: dict[str, tuple[Callable[[], nn.Module], type]] = {
    **{kind: (functools.partial(impure, kind), fate) for kind, fate in FATES.items()},
    "kept for a later layer": (Kept, Captured),
    "hooks with a closure": (Hooked, Captured),
    "a hook before": (functools.partial(hooked, False), Captured),
    "a hook that writes": (functools.partial(hooked, True), Rejected),
}
NUMERICS = Numerics(chunk=32, block=32)


def classifier_of(model: Any) -> SmoothedClassifier:
    return SmoothedClassifier(model, sigma=1.0, seed=0, n=400, numerics=NUMERICS)


def estimations(classifier: SmoothedClassifier, execution: Execution) -> list[Any]:
    points = np.array([[2.0, 0.0], [-2.0, 0.0], [0.3, 1.0]], dtype=np.float32)
    with classifier.on(execution) as placed:
        return [answer.evidence.estimation for answer in placed.certify(points, index=0)]


@functools.cache
def expected() -> list[Any]:
    """The votes of the pure function."""
    return estimations(classifier_of(scores), Execution(workers=1))


def check(name: str, *executions: Execution) -> None:
    """What is prepared once votes, or is rejected, wherever its votes are cast."""
    BY_NAME.clear()
    random.seed(0)
    make, fate = MODULES[name]
    smoothed = classifier_of(make())
    try:
        opened = smoothed.prepared((2,)).opened
    except ModelError:
        assert fate == Rejected
        return
    for execution in executions:
        if fate == Rejected:
            with pytest.raises(ModelError):
                estimations(smoothed, execution)
        else:
            assert bool(opened.opaque) == (fate == Opaque)
            assert estimations(smoothed, execution) == expected()


@pytest.mark.parametrize("name", MODULES)
def test_votes_are_those_of_the_pure_function_or_there_are_none(name):
    check(name, Execution(workers=1), Execution(workers=2))


class Lent:
    """Two processes that outlive the model whose votes they cast: starting them takes most of a test's time."""

    met: ClassVar[Any] = None

    def __init__(self, pool: ProcessPoolExecutor, spec: Any) -> None:
        self.pool = pool
        with processes.without_main():
            for begun in [pool.submit(Lent.begin, spec) for _ in range(2)]:
                begun.result(SECONDS)

    def submit(self, *work: Any) -> Future[Any]:
        return self.pool.submit(*work)

    def shutdown(self, **_: Any) -> None:
        pass

    @staticmethod
    def meet_at(barrier: Any) -> None:
        Lent.met = barrier

    @staticmethod
    def begin(spec: Any) -> None:
        """Once in each of the two."""
        processes._begin(spec)
        Lent.met.wait(SECONDS)


@pytest.fixture(scope="module")
def two_processes() -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context, Lent.meet_at, (context.Barrier(2),)) as pool:
        yield pool


@pytest.mark.system
@pytest.mark.parametrize("name", FATES)
def test_so_are_those_that_processes_cast(name, two_processes, monkeypatch):
    pytest.importorskip("cloudpickle")
    monkeypatch.setattr(processes.ProcessVoters, "_start", lambda voters: Lent(two_processes, voters._spec))
    check(name, Execution(workers=2, backend="processes"))


@pytest.mark.parametrize(
    ("kind", "declared", "workers"),
    [("numpy_and_back", None, 1), ("numpy_and_back", True, 4), ("counter", None, 4), ("counter", False, 1)],
)
def test_an_opaque_module_has_one_caller(kind, declared, workers):
    prepared = adapt(impure(kind), "hard", thread_safe=declared).prepare(Numerics(), (2,))
    assert prepared.workers(4) == workers


# ------------------------------------------------------------------------------------------------------- the capture


def test_the_graph_shares_nothing_with_the_module_or_what_it_closes_over():
    shift = torch.tensor([0.5])

    class Closing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * CLOSED_OVER + shift

    module = Closing(2, 2).eval()
    graph = capture("Closing", module, torch.rand(8, 2))
    rows = torch.rand(8, 2)
    with torch.inference_mode():
        before = graph(rows)
        assert torch.equal(before, module(rows))
    with torch.no_grad():
        for tensor in (module.weight, CLOSED_OVER, shift):
            tensor.add_(1.0)
    try:
        assert torch.equal(graph(rows), before)
    finally:
        CLOSED_OVER.sub_(1.0)


def test_capturing_leaves_the_module_the_generator_and_the_output_as_they_were(capfd):
    rows, state = torch.rand(8, 2), torch.get_rng_state()
    kinds = [
        "seeded_without_a_draw",
        "seeded_draw",
        "buffer_in_place",
        "branch_on_a_tensor",
        "parameter_data",
    ]
    for kind in kinds:
        module = impure(kind).eval()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        with suppress(ModelError, NotCapturedError):
            capture(kind, module, rows)
        assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
        assert module.passes == 0
    assert torch.equal(state, torch.get_rng_state())
    assert capfd.readouterr() == ("", "")


def test_a_rejection_names_the_operator_and_the_line():
    for kind, operator, line in [
        ("functional_dropout", "aten.dropout", "return getattr"),
        ("buffer_in_place", "mean.*aten.add_", "return getattr"),
        ("scratch_parameter", "parameter.*aten.copy_", "return getattr"),
    ]:
        source = Path(__file__).read_text(encoding="utf-8").splitlines()
        number = next(number for number, text in enumerate(source, 1) if line in text)
        with pytest.raises(ModelError, match=rf"Rejected.*{operator}.*test_captured\.py:{number}\b"):
            adapt(impure(kind), "hard").prepare(NUMERICS, (2,))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_networks_of_many_kinds_are_captured():
    class Last(nn.Module):
        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body, self.head = body, nn.LazyLinear(3)

        def forward(self, x: Tensor) -> Tensor:
            found = self.body(x)
            return self.head((found[0] if isinstance(found, tuple) else found).flatten(1))

    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    bodies = [
        nn.LSTM(8, 6, 2, batch_first=True, dropout=0.3),
        nn.GRU(8, 6, batch_first=True),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Sequential(
            nn.InstanceNorm1d(5), nn.ReLU6(inplace=True), nn.AlphaDropout(), nn.RReLU(inplace=True)
        ),
        nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3)),
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)),
    ]
    for body in bodies:
        torch.manual_seed(0)
        module, rows = Last(body).eval(), torch.randn(16, 5, 8)
        with torch.inference_mode():
            expected = module(rows.clone())
            found = capture("Last", module, rows)(rows.clone())
        assert torch.allclose(found, expected, atol=1e-6)


def test_code_that_loops_over_numbers_is_not_captured_for_ever():
    with pytest.raises(NotCapturedError):
        capture("lists", impure("python_lists").eval(), torch.rand(300, 2))


def test_a_module_inside_of_another_classifiers_model_is_cast_in_its_thread():
    """Its workers would wait for the lock that the function around it holds."""
    inner = SmoothedClassifier(
        impure("numpy_and_back"), sigma=0.1, n=50, seed=0, execution=Execution(workers=2)
    )

    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return signed(x) * (1 - 2 * inner.predict(np.array([1.0, 0.0])).predicted)

    def asking(batch: np.ndarray) -> np.ndarray:
        return scores(batch) * (1 - 2 * inner.predict(np.array([1.0, 0.0])).predicted)

    expected = votes(scores, 1, n=100)
    assert votes(asking, 2, n=100) == expected
    assert votes(Asking(), 2, n=100) == expected


def test_training_that_goes_on_is_told(recwarn):
    """The certificates stay those of the weights that were given."""
    network = nn.Sequential(nn.Linear(1, 2))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        network[0].bias.zero_()
    smoothed = SmoothedClassifier(network, sigma=0.5, n=500, seed=0)
    x = np.array([0.75], dtype=np.float32)
    before = smoothed.certify_one(x)
    assert not recwarn
    optimizer = torch.optim.SGD(network.parameters(), lr=10.0)
    network(torch.tensor([[1.0]]))[0, 0].backward()
    optimizer.step()
    with pytest.warns(UserWarning, match="Sequential"):
        after = smoothed.certify_one(x)
    assert (after.predicted, after.radius) == (before.predicted, before.radius)
    assert SmoothedClassifier(network, sigma=0.5, n=500, seed=0).certify_one(x).predicted != before.predicted
