"""What the engine costs beside the model: back ends, the device path, the row check, cheap models, noise.

``python -m benchmarks.engine backends`` (tasks, device, check, cheap, noise). Contenders take turns in one process, and
preparing a model is not timed.
"""

from __future__ import annotations

import math
import pickle
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import torch
from torch import nn

from benchmarks.timing import Spread, command_line, interleave, show, speedup
from smoothcert import Execution, Numerics, SmoothedClassifier
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.engine import checking
from smoothcert.engine.backends import ray as ray_workers
from smoothcert.engine.backends.workers import Cast, WorkerSpec
from smoothcert.engine.engine import Engine
from smoothcert.engine.passes import NoisyModel
from smoothcert.engine.schedule import Draw, Task, blocks_of, one_draw
from smoothcert.models.adapt import adapt
from smoothcert.perturb.base import Noise
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.perturb.grid import Grid, on_grid
from smoothcert.perturb.uniform import Uniform
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.tally import Phase

SHAPES: dict[str, tuple[int, ...]] = {
    "python": (64,),
    "forest": (64,),
    "lenet": (1, 28, 28),
    "lenet-compiled": (1, 28, 28),
    "cifar_resnet20": (3, 32, 32),
    "resnet50": (3, 224, 224),
}
VOTES = {
    "python": 25_000,
    "forest": 15_000,
    "lenet": 15_000,
    "lenet-compiled": 15_000,
    "cifar_resnet20": 1_500,
}
INPUTS = 4

app = command_line("engine", __doc__)


@app.command
def backends(
    *,
    models: tuple[str, ...] = tuple(VOTES),
    backends: tuple[str, ...] = ("threads", "processes"),
    repeats: int = 3,
    share: float = 1.0,
) -> None:
    """Compare one worker and two of every back end with one thread.

    The first quarter of the votes is not counted, so that starting processes is not either; seconds to the first votes
    are the last column. On a busy machine, votes per second of the processors' time (of this process and all that it
    started) say what a back end itself costs: two undisturbed workers are then as fast as twice that ratio.
    """
    torch.set_num_threads(1)
    plans = dict.fromkeys(
        [("threads", 1), *((backend, workers) for backend in backends for workers in (1, 2))]
    )
    rows = []
    for name in models:
        model = _model(name)
        turns = [{plan: _backend_turn(model, name, share, *plan) for plan in plans} for _ in range(repeats)]
        for plan in plans:
            by_clock, by_processor = (
                Spread.range([turn[plan][k] / turn["threads", 1][k] for turn in turns]) for k in (0, 1)
            )
            start = min(turn[plan][2] for turn in turns)
            rows.append([name, *plan, by_clock, by_processor, f"{start:.1f}"])
    heads = ["votes a second / one thread", "votes a processor's second / one thread", "seconds to start"]
    show(["model", "back end", "workers", *heads], rows)


def _python(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A model that is a loop of the interpreter."""
    sums = np.zeros((len(batch), 2))
    for place, row in enumerate(batch.tolist()):
        total = 0.0
        for value in row:
            total += value
        sums[place] = total, -total
    return sums


def _model(name: str) -> Any:
    if name == "python":
        return _python
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        x = np.random.default_rng(0).random((500, 64))
        return RandomForestClassifier(50, random_state=0, n_jobs=1).fit(x, (x.sum(1) > 32).astype(int))
    spec = ModelSpec(name.removesuffix("-compiled"), SHAPES[name], tuple("0123456789"))
    return initialise(spec, seed=0)


def _backend_turn(
    model: Any, name: str, share: float, backend: str, workers: int
) -> tuple[float, float, float]:
    """Votes a second by the clock and by the processors' time, and seconds to the first."""
    votes = max(1000, int(VOTES[name] * share))
    classifier = SmoothedClassifier(
        model,
        sigma=0.25,
        n=votes,
        seed=0,
        levels=255,
        execution=Execution(workers=workers, backend=backend),
        numerics=Numerics(route="compiled" if name.endswith("compiled") else "auto"),
    )
    classifier.prepare(SHAPES[name])
    total, done = INPUTS * (votes + classifier.plan.n0), 0
    marks: list[tuple[float, float, int]] = []
    first: list[float] = []

    def note(votes: int) -> None:
        nonlocal done
        done += votes
        first.append(time.perf_counter())
        if (not marks and done >= total / 4) or done == total:
            marks.append((time.perf_counter(), _processor_seconds(), done))

    began = time.perf_counter()
    inputs = ((index, np.full(SHAPES[name], 0.5, np.float32)) for index in range(INPUTS))
    with classifier:
        for _ in classifier.certify_each(inputs, note):
            pass
    (clock, used, counted), (clock_after, used_after, all_counted) = marks[0], marks[-1]
    votes = all_counted - counted
    return votes / (clock_after - clock), votes / (used_after - used), first[0] - began


def _processor_seconds() -> float:
    """Of this process and of all that it started and that still run."""
    seconds = time.process_time()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = child.cpu_times()
            seconds += times.user + times.system
    return seconds


@app.command
def tasks(*, count: int = 400, batch: int | None = None) -> None:
    """Votes and bytes of a task for Ray's workers, and the driver's processor time for it: made, sent and counted.

    Workers answer at once: no noise is drawn. ``count`` tasks of one input for each shape.
    """
    # Rows are checked by another thread, which nothing waits for.
    rows, checking._EVERY = [], 1 << 60
    setattr(ray_workers, "_cast", _at_once)  # noqa: B010  (without the errors that the real one may return)
    for name, shape in (("MNIST", (1, 28, 28)), ("CIFAR-10", (3, 32, 32)), ("ImageNet", (3, 224, 224))):
        prepared = adapt(_first_ten, "hard").prepare(Numerics(chunk=64), shape)
        x = np.random.default_rng(0).random(shape)
        for kind in ("cpu", "cuda"):
            told = Execution(kind, backend="ray", batch=batch)
            size = 64 * told.rounds_per_task(64, math.prod(shape), far=True)
            with Engine(Execution(workers=2, backend="ray", batch=size)) as engine:
                noisy = NoisyModel(engine, prepared, "hard", 0, Grid.of(None))
                for times in (4, count):  # workers start
                    job = noisy.job(0, x, Gaussian(0.5), one_draw(Draw(Phase.ESTIMATION, times * size)))
                    sent, used = len(pickle.dumps(job.voters[0].copies)), time.process_time()
                    list(noisy.run([job]))
                    took = (time.process_time() - used) / times
            rows.append((name, kind, size, f"{sent / 1e3:.1f} kB", f"{1e3 * took:.2f} ms"))
    show(["inputs", "workers on", "votes in a task", "its input", "driver's processor time"], rows)


def _at_once(_key: str, _spec: WorkerSpec, task: Task) -> list[Cast]:
    return [(np.array([[block.votes] + 9 * [0]]), 0.0) for block in blocks_of(task)]


def _first_ten(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    scores: np.ndarray[Any, Any] = batch.reshape(len(batch), -1)[:, :10]
    return scores


@app.command
def device(
    *,
    device: str = "cpu",
    networks: tuple[str, ...] = ("lenet", "cifar_resnet20"),
    n: int = 4000,
    repeats: int = 3,
) -> None:
    """Votes a second where noise is drawn and counted beside the model.

    On the CPU, where that path is forced, they are compared with the ordinary path: the price of integer operations
    there, which says nothing about an accelerator. On an accelerator they are compared with the bare forward: the same
    network, route and rows, on batches that are there already.
    """
    torch.set_num_threads(1)
    on_cpu = device.startswith("cpu")
    rows = []
    for name in networks:
        shape, module = SHAPES[name], _model(name)
        execution = Execution(device, 1 if on_cpu else None)
        plan = CertifyPlan(Gaussian(0.25), n=n, seed=0, levels=255)

        path = SmoothedClassifier(
            module, replace(plan, numerics=Numerics(generator="philox")), execution=execution
        )
        settled = path.prepare(shape).numerics
        if on_cpu:
            ordinary = replace(plan, numerics=replace(settled, generator="sfc64"))
            reference = _certify_each(SmoothedClassifier(module, ordinary, execution=execution), shape, n)
        else:
            reference = _bare_on_devices(module, settled, shape, execution)
        rounds = interleave({"path": _certify_each(path, shape, n), "reference": reference}, repeats)
        rate = max(turn.rate for turn in rounds["path"])
        row = [
            name,
            settled.route,
            settled.layout().chunk,
            speedup(rounds, "path", "reference"),
            f"{rate:.0f}",
        ]
        rows.append(row)
    over = "ordinary path" if on_cpu else "bare forward"
    show(["network", "route", "rows", f"votes a second / {over}", "votes a second"], rows)


def _certify_each(smoothed: SmoothedClassifier, shape: tuple[int, ...], n: int) -> Callable[[], int]:
    inputs = [(index, np.full(shape, 0.5, np.float32)) for index in range(INPUTS)]

    def certify() -> int:
        for _ in smoothed.certify_each(inputs):
            pass
        return INPUTS * (n + smoothed.plan.n0)

    return certify


def _bare_on_devices(
    module: nn.Module, numerics: Numerics, shape: tuple[int, ...], execution: Execution
) -> Callable[[], int]:
    """The network alone, on all devices."""
    devices, chunk, passes = execution.devices(), numerics.layout().chunk, 20
    models = [adapt(module, "hard").prepare(numerics, shape, name) for name in devices]
    batches = [torch.rand((chunk, *shape), device=name) for name in devices]

    @torch.inference_mode()
    def bare() -> int:
        for prepared, batch in zip(models, batches, strict=True):
            with prepared.evaluating() as model:
                for _ in range(passes):
                    model(batch)
        for name in devices:
            torch.accelerator.synchronize(name)
        return passes * chunk * len(devices)

    return bare


@app.command
def check(*, inputs: int = 40, n: tuple[int, ...] = (1_000, 10_000)) -> None:
    """Rows that the model evaluates for a vote, counted exactly: above 1 are the check of rows, and padding."""
    shape, seen = (1, 28, 28), [0]
    images = np.random.default_rng(0).random((inputs, *shape)).astype(np.float32)

    def counting(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        seen[0] += len(batch)
        scores: np.ndarray[Any, Any] = batch.reshape(len(batch), 28, 28)[:, :10].sum(2)
        return scores

    rows = []
    for votes in n:
        smoothed = SmoothedClassifier(
            counting, sigma=0.5, n=votes, seed=0, execution=Execution(workers=1), input_shape=shape
        )
        chunk = smoothed.prepare(shape).numerics.layout().chunk
        seen[0] = 0
        smoothed.certify(images)
        rows.append([inputs, votes, chunk, f"{seen[0] / (inputs * (votes + smoothed.plan.n0)):.4f}"])
    show(["inputs", "votes an input", "rows a pass", "rows a vote"], rows)


@app.command
def cheap(*, models: tuple[str, ...] = (), n: int = 100_000, inputs: int = 4, repeats: int = 5) -> None:
    """CERTIFY with models that cost next to nothing, over a bare ``predict`` on batches that are noisy already.

    The second ratio is to what no smoothing can be faster than: ``normal_`` into the same memory and then ``predict``,
    with nothing counted. The target of the first is 0.8 for models that take 50 µs a row or more, and 0.6 for others.
    Processor time, one thread.
    """
    from sklearn.datasets import load_digits, load_wine
    from sklearn.preprocessing import StandardScaler

    torch.set_num_threads(1)
    wine, digits = load_wine(return_X_y=True), load_digits(return_X_y=True)
    tables = {
        "wine, 13 numbers": (StandardScaler().fit_transform(wine[0]), wine[1]),
        "digits, 64 numbers": (digits[0] / 16, digits[1]),
    }
    rows = []
    for data, (x, y) in tables.items():
        for name, estimator in _estimators().items():
            if models and name not in models:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of fits that are cut short
                estimator.fit(x, y)
            rows.append([data, name, *_cheap_row(estimator, x[:inputs].astype(np.float32), n, repeats)])
    heads = ["rows a pass", "predict, µs a row", "certify / predict", "certify / (noise, predict)"]
    show(["data", "model", *heads], rows)


def _estimators() -> dict[str, Any]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier

    return {
        "LinearSVC": LinearSVC(),
        "scaled LinearSVC": make_pipeline(StandardScaler(), LinearSVC()),
        "MLP": MLPClassifier(max_iter=20, random_state=0),
        "GaussianNB": GaussianNB(),
        "tree": DecisionTreeClassifier(random_state=0),
        "forest of 20": RandomForestClassifier(20, random_state=0),
        "forest of 500": RandomForestClassifier(500, random_state=0),
    }


def _cheap_row(estimator: Any, rows: np.ndarray[Any, Any], n: int, repeats: int) -> Iterable[Any]:
    smoothed = SmoothedClassifier(
        estimator, sigma=0.5, n=n, seed=0, input_shape=rows.shape[1:], execution=Execution(workers=1)
    )
    chunk = smoothed.prepare(rows.shape[1:]).numerics.layout().chunk
    passes = -(-n // chunk) * len(rows)
    noise, generator = torch.empty((chunk, *rows.shape[1:])), torch.Generator().manual_seed(0)
    noisy = (rows[0] + np.random.default_rng(0).normal(scale=0.5, size=noise.shape)).astype(np.float32)
    first = torch.from_numpy(rows[0])

    def certify() -> int:
        smoothed.certify(rows, index=0)
        return len(rows) * (n + smoothed.plan.n0)

    def predict() -> int:
        for _ in range(passes):
            estimator.predict(noisy)
        return passes * chunk

    def noise_and_predict() -> int:
        for _ in range(passes):
            estimator.predict(noise.normal_(0, 0.5, generator=generator).add_(first).numpy())
        return passes * chunk

    turns = {"certify": certify, "predict": predict, "both": noise_and_predict}
    rounds = interleave(turns, repeats, processor_time=True)
    cost = 1e6 / Spread.range([turn.rate for turn in rounds["predict"]]).median
    return chunk, f"{cost:.3f}", speedup(rounds, "certify", "predict"), speedup(rounds, "certify", "both")


@app.command
def noise(*, repeats: int = 9) -> None:
    """Numbers a second of noise on the grid over noise drawn and added in floating point, into the same buffer.

    Processor time; the second column is for drawing and adding.
    """
    torch.set_num_threads(1)
    cases: list[tuple[str, Noise, int]] = [
        *((f"gaussian σ={sigma}, MNIST", Gaussian(sigma), 784) for sigma in (0.25, 0.5, 1.0)),
        ("gaussian σ=0.25, CIFAR-10", Gaussian(0.25), 3072),
        ("uniform σ=0.5, MNIST", Uniform(0.5), 784),
        ("64 scales, MNIST", DiagonalGaussian(np.geomspace(0.2, 0.49, 64)[np.arange(784) % 64]), 784),
    ]
    rows = []
    for name, law, size in cases:
        turns = {"grid": _on_grid(law, size), "float": _in_floats(law, size)}
        rounds = interleave(turns, repeats, processor_time=True)
        cost = Spread.range([784e6 / turn.rate for turn in rounds["grid"]])
        rows.append([name, cost, speedup(rounds, "grid", "float")])
    show(["noise", "µs for 784 numbers", "numbers a second, grid / floating point"], rows)


def _on_grid(law: Noise, size: int) -> Callable[[], int]:
    grid, bits = on_grid(law, Grid.of(255), (size,)), np.random.SFC64(0)
    out, x, divisor = torch.empty((256, size)), torch.ones(size), grid.divisor(torch.float32)

    def draw() -> int:
        for _ in range(20):
            grid.sampler.draw(out.numpy(), bits)
            out.add_(x).div_(divisor)
        return 20 * out.numel()

    return draw


def _in_floats(law: Noise, size: int) -> Callable[[], int]:
    out, x, generator = torch.empty((256, size)), torch.ones(size), torch.Generator().manual_seed(0)
    scales = torch.from_numpy(np.array(law.scales())).float()

    def draw() -> int:
        for _ in range(20):
            if isinstance(law, Uniform):
                width = 3.0**0.5 * law.sigma
                out.uniform_(-width, width, generator=generator)
            else:
                out.normal_(generator=generator).mul_(scales)
            out.add_(x)
        return 20 * out.numel()

    return draw


if __name__ == "__main__":
    app()
