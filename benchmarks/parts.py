"""The four parts of the comparison: the engine's cost, the plain loop, the toolbox, and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.contenders import bare_forward, smoothcert_certify
from benchmarks.figures import Figure
from benchmarks.interleave import Ratio, Rounds, cores_used, interleave, speedup
from benchmarks.memory import peak_megabytes
from benchmarks.networks import Network
from benchmarks.reference_loops import (
    CUSTOMARY_BATCH,
    INSTALL_TOOLBOX,
    TOOLBOX_BATCH,
    plain_loop,
    toolbox_certify,
)
from benchmarks.workload import Workload, workers
from smoothcert.errors import MissingExtraError, ModelError

ENGINE_ROUTES = ("eager", "channels-last", "onnxruntime")
FAST_ROUTES = ("folded", "onnxruntime", "compiled")
LOOP_BATCHES = (32, 64, 128, 256, 512)
BEST_LOOP_TARGETS = {"lenet": 1.5, "resnet20": 1.8}
TOOLBOX_TARGETS = {"lenet": 2.5, "resnet20": 1.5}
MEMORY_TARGET = 100.0


@dataclass(frozen=True)
class Scale:
    """How much to measure."""

    n: int | None = None
    inputs: int = 2
    repeats: int = 5
    patience: float = 0.0
    quick: bool = False
    processor_time: bool = False

    def rounds(self, contenders: Mapping[str, Callable[[], int]], repeats: int | None = None) -> Rounds:
        """Rounds of the contenders, as many as asked for."""
        return interleave(
            contenders, repeats or self.repeats, self.patience, processor_time=self.processor_time
        )

    def workload(self, network: Network) -> Workload:
        """What the contenders of the timed parts are given."""
        return Workload.of(
            network, self.n or (network.votes // 10 if self.quick else network.votes), self.inputs
        )


Say = Callable[[str], None]


def engine_cost(network: Network, scale: Scale, say: Say) -> Iterator[Figure]:
    """(a) Votes a second of the engine over rows a second of the bare network, route by route."""
    work = scale.workload(network)
    for route in ENGINE_ROUTES:
        ours = _opened(work, route, say)
        if ours is None:
            continue
        contenders = {"engine": ours, "bare": bare_forward(work, route)}
        rounds = scale.rounds(contenders)
        what = f"engine / bare forward, {route}"
        note = _busy_note(rounds, "bare")
        yield Figure("a", network.name, what, speedup(rounds, "engine", "bare"), target=0.95, note=note)


def plain_loops(network: Network, scale: Scale, say: Say) -> Iterator[Figure]:
    """(b) Against the papers' loop, at its customary batch and at the batch that suits it best."""
    work = scale.workload(network)
    best = _best_batch(work, scale)
    say(f"{network.name}: the plain loop is fastest at batch {best}")
    contenders = {"default": smoothcert_certify(work)}
    for route in FAST_ROUTES:
        if scale.quick and route == "compiled":
            continue
        if (ours := _opened(work, route, say)) is not None:
            contenders[route] = ours
    contenders["customary"] = plain_loop(work, CUSTOMARY_BATCH)
    contenders["best"] = plain_loop(work, best)
    rounds = scale.rounds(contenders)
    note = _busy_note(rounds, "default")
    over = f"loop at batch {CUSTOMARY_BATCH}"
    yield Figure(
        "b",
        network.name,
        f"default route / {over}",
        speedup(rounds, "default", "customary"),
        target=2.5,
        note=note,
    )
    yield Figure(
        "b",
        network.name,
        f"default route / loop at its best batch, {best}",
        speedup(rounds, "default", "best"),
        target=BEST_LOOP_TARGETS[network.name],
        note=note,
    )
    ratios = {
        name: speedup(rounds, name, "customary") for name in contenders if name not in ("customary", "best")
    }
    fastest = max(ratios, key=lambda name: ratios[name].median)
    for name, ratio in ratios.items():
        if name == fastest:
            yield Figure("b", network.name, f"fastest route, {name} / {over}", ratio, target=3.0, note=note)
            at_best = speedup(rounds, name, "best")
            what = f"fastest route, {name} / loop at its best batch, {best}"
            yield Figure("b", network.name, what, at_best, note=note)
        elif name != "default":
            yield Figure("b", network.name, f"{name} / {over}", ratio, note=note)


def toolbox(network: Network, scale: Scale, say: Say) -> Iterator[Figure]:
    """(c) Against adversarial-robustness-toolbox at its default batch and at the plain loop's."""
    work = scale.workload(network)
    try:
        contenders = {
            "default": smoothcert_certify(work),
            "toolbox": toolbox_certify(work),
            "toolbox, large": toolbox_certify(work, CUSTOMARY_BATCH),
        }
    except ImportError as error:
        say(f"skipped (c), adversarial-robustness-toolbox isn't there ({error}): {INSTALL_TOOLBOX}")
        return
    rounds = scale.rounds(contenders)
    note = _busy_note(rounds, "default")
    for name, batch in (("toolbox", TOOLBOX_BATCH), ("toolbox, large", CUSTOMARY_BATCH)):
        yield Figure(
            "c",
            network.name,
            f"default route / ART at batch {batch}{' (its default)' if batch == TOOLBOX_BATCH else ''}",
            speedup(rounds, "default", name),
            target=TOOLBOX_TARGETS[network.name],
            note=note,
        )


def memory(network: Network, scale: Scale, say: Say) -> Iterator[Figure]:
    """(d) Peak memory above model and runtime, each in a process of its own."""
    for n in (1_000,) if scale.quick else network.memory_votes:
        for contender in ("smoothcert", "smoothcert-onnxruntime", "loop", "toolbox"):
            repeats = min(3, scale.repeats) if contender.startswith("smoothcert") else 1
            try:
                peaks = [peak_megabytes(network.name, contender, n) for _ in range(repeats)]
            except RuntimeError as error:
                say(f"skipped: {error}")
                continue
            yield Figure(
                "d",
                network.name,
                f"peak of {contender}, n = {n:,}",
                Ratio.of(peaks),
                "MB",
                MEMORY_TARGET if contender.startswith("smoothcert") else None,
                at_most=True,
            )


PARTS: dict[str, Callable[[Network, Scale, Say], Iterator[Figure]]] = {
    "a": engine_cost,
    "b": plain_loops,
    "c": toolbox,
    "d": memory,
}


def _best_batch(work: Workload, scale: Scale) -> int:
    search = work.resized(max(LOOP_BATCHES) if scale.quick else max(1024, work.n // 4))
    rounds = scale.rounds({str(b): plain_loop(search, b) for b in LOOP_BATCHES}, 1 if scale.quick else 3)
    return max(LOOP_BATCHES, key=lambda b: speedup(rounds, str(b), str(LOOP_BATCHES[0])).median)


def _opened(work: Workload, route: str, say: Say) -> Callable[[], int] | None:
    try:
        return smoothcert_certify(work, route)
    except (MissingExtraError, ModelError) as error:
        say(f"skipped route {route}: {error}")
        return None


def _busy_note(rounds: Rounds, contender: str) -> str:
    """Says so when a contender that keeps every core busy didn't get them."""
    cores = cores_used(rounds, contender)
    return f"busy machine: {cores:.1f} of {workers()} cores" if cores < 0.9 * workers() else ""
