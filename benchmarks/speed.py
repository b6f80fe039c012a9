"""Votes a second on every route, beside the bare network, another checkout, and what people run without smoothcert.

``python -m benchmarks.speed`` takes turns between CERTIFY and the bare network on batches that are noisy already, round
by round over all routes; with ``--against CHECKOUT`` between this checkout and another, each in a process of its own
with one worker. Ratios of processor time are taken within a round; the table shows their medians with 95 % intervals
(sign test). Ctrl-C ends it early with what was measured.
``loops`` compares with the papers' loop and with adversarial-robustness-toolbox, ``memory`` measures peaks.
Weights are random, and preparing a model (probes, export, compilation) is not timed: neither matters to speed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.timing import (
    ROOT,
    Spread,
    command_line,
    cores_used,
    interleave,
    show,
    speedup,
    status_bytes,
    usable_cores,
)

# Another checkout answers this module's questions too: of smoothcert, only public names are imported outside `_bare`.
from smoothcert import Execution, Numerics, SmoothedClassifier, quantize
from smoothcert.architectures.spec import ModelSpec, initialise

ARCHITECTURES = {"lenet": "lenet", "resnet20": "cifar_resnet20", "function": None}
SHAPES = {"lenet": (1, 28, 28), "resnet20": (3, 32, 32), "function": (784,)}
TURN = {"lenet": 4096, "resnet20": 512, "function": 65536}
"""Votes of a turn in the comparison of routes: long enough for a clock of processors, short enough to interleave."""
VOTES = {"lenet": 30_000, "resnet20": 4_000}
MEMORY_VOTES = {"lenet": (10_000, 100_000), "resnet20": (2_000, 10_000)}
ROUTES = ("eager", "channels-last", "folded", "compiled", "onnxruntime", "openvino")
TYPES = ("float32", "bfloat16", "int8")
"""Arithmetics, each by the route that ``auto`` takes for it; int8 files by OpenVINO."""
CLASSES, SIGMA, N0, ALPHA = 10, 0.5, 100, 0.001
CUSTOMARY_BATCH, TOOLBOX_BATCH, LOOP_BATCHES = 1000, 32, (32, 64, 128, 256, 512)
Case = tuple[str, str]

app = command_line("speed", __doc__)


@app.default
def routes(
    *,
    against: Path | None = None,
    network: tuple[str, ...] = tuple(SHAPES),
    route: tuple[str, ...] = ROUTES + TYPES[1:],
    repeats: int = 20,
    share: float = 1.0,
) -> None:
    """Compare votes a second, route by route, with the bare network or with another checkout.

    Parameters
    ----------
    against:
        Root of another checkout.
    network:
        Of lenet, resnet20, and function: a numpy function that costs next to nothing.
    route:
        Of the networks; bfloat16 and int8: the fastest route in that arithmetic.
    repeats:
        Rounds.
    share:
        Of a turn's usual number of votes.
    """
    cases = [(name, way) for name in network for way in (route if name != "function" else ("auto",))]
    seconds: dict[Case, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    skipped = []
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        here = stack.enter_context(_child(ROOT))
        other = (
            (here, "bare") if against is None else (stack.enter_context(_child(against.resolve())), "certify")
        )
        for number in range(-1, repeats):
            for case in list(cases):
                turns = {"here": (here, "certify"), "other": other}
                taken = {
                    name: _asked(child, [*case, what, share])
                    for name, (child, what) in (turns.items() if number % 2 else reversed(turns.items()))
                }
                if failures := {name: reply for name, reply in taken.items() if isinstance(reply, str)}:
                    skipped.append(f"{' '.join(case)}: {failures}")
                    cases.remove(case)
                elif number >= 0:
                    for name, reply in taken.items():
                        seconds[case][name].append(float(reply))
    rows = []
    for case, took in seconds.items():
        votes = int(share * TURN[case[0]]) + N0
        rates = [f"{votes / statistics.median(took[name]):.0f}" for name in ("here", "other")]
        ratio = Spread.interval([b / a for a, b in zip(took["here"], took["other"], strict=True)])
        rows.append([*case, *rates, len(took["here"]), ratio])
    name = "bare network" if against is None else str(against)
    heads = ["network", "route", "votes a processor's second", name, "rounds", f"over {name}, 95 % interval"]
    show(heads, rows)
    for line in skipped:
        print(f"skipped: {line}")


@contextmanager
def _child(checkout: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-W", "ignore", "-m", "benchmarks.speed", "answer"]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _asked(process: subprocess.Popen[str], case: list[Any]) -> float | str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(case) + "\n")
    process.stdin.flush()
    reply: float | str = json.loads(process.stdout.readline())
    return reply


@app.command(show=False)
def answer() -> None:
    """Answer each case on standard input with the processor seconds of its turn, or with why there is none."""
    opened: dict[tuple[Any, ...], Callable[[], int]] = {}
    torch.set_num_threads(1)
    for line in sys.stdin:
        name, route, what, share = case = tuple(json.loads(line))
        reply: float | str
        try:
            if case not in opened:
                n = int(share * TURN[name])
                opened[case] = _certifying(name, n, route, 1) if what == "certify" else _bare(name, n, route)
            began = time.process_time()
            opened[case]()
            reply = time.process_time() - began
        except Exception as error:  # packages that are missing, routes that do not suit a network
            reply = str(error)
        print(json.dumps(reply), flush=True)


def first_columns(batch: Any) -> Any:
    return batch[:, :CLASSES]


def _model(name: str) -> Any:
    architecture = ARCHITECTURES[name]
    if architecture is None:
        return first_columns
    spec = ModelSpec(architecture, SHAPES[name], tuple(str(c) for c in range(CLASSES)))
    return initialise(spec, seed=0).eval().requires_grad_(False)


def _way(name: str, way: str) -> tuple[Any, Numerics]:
    """A network and its numerics: a route in float32, or the default route of a type."""
    if way == "int8":
        from smoothcert.models.onnx_file import OnnxClassifier

        return OnnxClassifier(_in_int8(name)), Numerics(route="openvino")
    return _model(name), Numerics(dtype=way) if way in TYPES else Numerics(route=way)


@lru_cache
def _in_int8(name: str) -> Path:
    """The network's quantised file, made once for this process."""
    made = quantize(_model(name), _images(name, 256), SIGMA, calibration=512, validation=16, votes=16)
    return made.save(Path(tempfile.mkdtemp(), name))


def _images(name: str, count: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((count, *SHAPES[name]), dtype=np.float32)


def _certifying(
    name: str, n: int, route: str = "auto", workers: int | None = None, inputs: int = 1
) -> Callable[[], int]:
    """CERTIFY through the public interface; returns the votes cast."""
    model, numerics = _way(name, route)
    smoothed = SmoothedClassifier(
        model,
        sigma=SIGMA,
        n0=N0,
        n=n,
        alpha=ALPHA,
        seed=0,
        levels=255,
        input_shape=SHAPES[name],
        numerics=numerics,
        execution=Execution(workers=workers or usable_cores()),
    )
    smoothed.prepare(SHAPES[name])
    images = _images(name, inputs)

    def certify() -> int:
        smoothed.certify(images, index=0)
        return inputs * (N0 + n)

    return certify


def _bare(name: str, n: int, route: str, workers: int = 1) -> Callable[[], int]:
    """As many rows of the prepared model, in passes of the engine's shape that are noisy already."""
    from smoothcert.health.trials import bare_rows, noisy_batches
    from smoothcert.models.adapt import adapt

    model, numerics = _way(name, route)
    prepared = adapt(model, "hard").prepare(numerics, SHAPES[name])
    chunk = prepared.numerics.layout().chunk
    batches = noisy_batches(prepared, torch.from_numpy(_images(name, 2)), "cpu")
    return lambda: bare_rows(prepared, batches, -(-(N0 + n) // chunk), workers)


@app.command
def loops(
    *,
    network: tuple[str, ...] = tuple(VOTES),
    route: tuple[str, ...] = TYPES,
    n: int | None = None,
    inputs: int = 2,
    repeats: int = 5,
    processor_time: bool = False,
) -> None:
    """Compare with the papers' loop (OpenMP on all cores) and adversarial-robustness-toolbox, where it is installed.

    And with bare passes of the same compiled network, on batches that are noisy already.

    Parameters
    ----------
    route:
        Types, each by its default route, or routes in float32.
    n:
        Votes an input (default: the network's).
    processor_time:
        Count votes per second of processor time: for a machine that others use, with ``taskset -c 0``.
    """
    warnings.simplefilter("ignore")  # exporters and the toolbox warn about themselves
    rows = []
    for name in network:
        votes = n or VOTES[name]
        search = {str(batch): _plain_loop(name, max(1024, votes // 4), batch, 1) for batch in LOOP_BATCHES}
        tried = interleave(search, 3, processor_time=processor_time)
        best = max(LOOP_BATCHES, key=lambda batch: speedup(tried, str(batch), str(LOOP_BATCHES[0])).median)
        references = {
            f"loop at batch {CUSTOMARY_BATCH}": _plain_loop(name, votes, CUSTOMARY_BATCH, inputs),
            f"loop at its best batch, {best}": _plain_loop(name, votes, best, inputs),
        }
        try:
            for batch in (TOOLBOX_BATCH, CUSTOMARY_BATCH):
                references[f"ART at batch {batch}"] = _toolbox(name, votes, batch, inputs)
        except ImportError as error:
            print(
                f"without adversarial-robustness-toolbox ({error}): pip install -c constraints.txt -e '.[bench]'"
            )
        ours = {way: _certifying(name, votes, way, inputs=inputs) for way in route}
        bare = {f"bare passes, {way}": _bare(name, inputs * votes, way, usable_cores()) for way in route}
        rounds = interleave(ours | references | bare, repeats, processor_time=processor_time)
        for way, own in zip(route, bare):
            cores = f"{cores_used(rounds, way):.1f} of {usable_cores()}"
            rows += [[name, way, over, speedup(rounds, way, over), cores] for over in (*references, own)]
    show(["network", "route", "votes a second over", "median (range)", "cores"], rows)


def _plain_loop(name: str, n: int, batch: int, inputs: int) -> Callable[[], int]:
    """Repeat the input, add noise, take the top class, count in Python."""
    module, images = _model(name), torch.from_numpy(_images(name, inputs))

    @torch.no_grad()
    def run() -> int:
        torch.set_num_threads(usable_cores())
        counts = np.zeros(CLASSES, dtype=np.int64)
        for image in images:
            for votes in (N0, n):
                for start in range(0, votes, batch):
                    copies = image.repeat((min(batch, votes - start), 1, 1, 1))
                    for label in module(copies + torch.randn_like(copies) * SIGMA).argmax(1).numpy():
                        counts[label] += 1
        return int(counts.sum())

    return run


def _toolbox(name: str, n: int, batch: int, inputs: int) -> Callable[[], int]:
    """The toolbox's CERTIFY; raises ImportError where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about optional frameworks that it also supports
        from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing
    smoothed = PyTorchRandomizedSmoothing(
        _model(name),
        nn.CrossEntropyLoss(),
        SHAPES[name],
        CLASSES,
        device_type="cpu",
        sample_size=N0,
        scale=SIGMA,
        alpha=ALPHA,
    )
    images = _images(name, inputs)

    def run() -> int:
        torch.set_num_threads(usable_cores())
        smoothed.certify(images, n=n, batch_size=batch)
        return inputs * (N0 + n)

    return run


@app.command
def memory(*, network: tuple[str, ...] = tuple(VOTES), n: tuple[int, ...] = (), repeats: int = 3) -> None:
    """Measure peak memory above imports, model and one plain pass, each contender in a process of its own."""
    rows = []
    for name in network:
        for votes in n or MEMORY_VOTES[name]:
            for contender in (*TYPES, "loop", "toolbox"):
                words = [sys.executable, "-m", "benchmarks.speed", "peak", name, contender, str(votes)]
                done = [
                    subprocess.run(words, cwd=ROOT, capture_output=True, text=True) for _ in range(repeats)
                ]
                if failed := next((one for one in done if one.returncode), None):
                    print(f"skipped {name}, {contender}: {failed.stderr.strip().splitlines()[-1]}")
                    continue
                rows.append([name, contender, votes, Spread.range([float(one.stdout) for one in done])])
    show(["network", "contender", "votes", "MB, median (range)"], rows)


@app.command(show=False)
def peak(network: str, contender: str, votes: int) -> None:
    """Print the peak in MB of one contender in this process."""
    module = _model(network)
    if contender in TYPES:  # what preparing any model imports is not this one's use of memory
        tiny = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 26 * 26, 10))
        SmoothedClassifier(tiny, sigma=SIGMA, numerics=Numerics(route="openvino")).prepare((1, 28, 28))
        if contender == "int8":
            _in_int8(network)
    prepare: dict[str, Callable[[], Callable[[], int]]] = {
        "loop": lambda: _plain_loop(network, votes, CUSTOMARY_BATCH, 1),
        "toolbox": lambda: _toolbox(network, votes, TOOLBOX_BATCH, 1),
    }
    with torch.inference_mode():
        module(torch.zeros((64, *SHAPES[network])))
    before = status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    prepare.get(contender, lambda: _certifying(network, votes, contender))()()
    print((status_bytes("VmHWM") - before) / 1e6)


if __name__ == "__main__":
    app()
