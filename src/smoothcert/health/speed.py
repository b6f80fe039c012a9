"""Votes a second beside rows a second of the bare network, on the same route and with as many threads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from smoothcert.errors import SmoothcertError
from smoothcert.evaluation.planning import measured_rate
from smoothcert.health.networks import RandomNetwork
from smoothcert.sampling import Execution, Numerics, Prepared
from smoothcert.sampling.threads import worker_threads
from smoothcert.smoothing import SmoothedClassifier

SIGMA = 0.5
ROUTES = ("eager", "channels-last", "folded", "graphs", "onnxruntime")
"""That are measured; compiling takes longer than a check-up may."""
_READY_BATCHES = 4


@dataclass(frozen=True)
class Rates:
    """What a network does on a route of a device."""

    network: str
    device: str
    route: str
    auto: bool
    """Whether it is the route that is taken unasked."""
    votes: float
    """A second, through the engine."""
    bare: float
    """Rows a second of the network alone."""

    @property
    def ratio(self) -> float:
        """How much of the network's speed is left."""
        return self.votes / self.bare


def routes_of(module: nn.Module, device: str) -> list[str]:
    """Routes that make a difference for a network on a device, as far as can be told without trying them."""
    normalised = any(isinstance(part, nn.BatchNorm2d) for part in module.modules())
    return [
        route
        for route in ROUTES
        if (route != "folded" or normalised)
        and (route != "onnxruntime" or device == "cpu")
        and (route != "graphs" or device.startswith("cuda"))
    ]


def measure(network: RandomNetwork, device: str, least: float) -> tuple[list[Rates], list[str]]:
    """The rates of a network on every route that works, and why others don't."""
    module = network.module()
    unasked = _classifier(module, "auto", device)
    taken = unasked.prepare(network.input_shape).numerics.route
    found, failures = [], []
    for route in routes_of(module, device):
        try:
            classifier = unasked if route == taken else _classifier(module, route, device)
            votes, bare = _rates(classifier, network, least)
        except SmoothcertError as error:
            failures.append(f"{network.name}, {device}, {route}: {error}")
            continue
        found.append(Rates(network.name, device, route, route == taken, votes, bare))
    return found, failures


def _rates(classifier: SmoothedClassifier, network: RandomNetwork, least: float) -> tuple[float, float]:
    """Votes a second, and rows a second of the bare network."""
    inputs, workers = list(enumerate(network.images(2))), classifier.execution.worker_count()
    prepared = classifier.prepared(network.input_shape)
    layout = prepared.numerics.layout()

    def cast(votes: int) -> float:
        return sum(tally.n for _, tally in classifier.cast_each(inputs, votes))

    images = torch.from_numpy(network.images(2))
    batches = noisy_batches(prepared, images, classifier.execution.main_device)

    def compute(rows: int) -> float:
        return bare_rows(prepared, batches, -(-rows // layout.chunk), workers)

    # A pass for each worker: large networks take seconds for more.
    first = layout.chunk * -(-workers // len(inputs))
    return measured_rate(cast, first, least=least), measured_rate(
        compute, layout.chunk * workers, least=least
    )


def noisy_batches(prepared: Prepared, images: torch.Tensor, device: str) -> list[torch.Tensor]:
    """Batches of the engine's shape and distribution: some kernels' time depends on values."""
    rows, generator = prepared.numerics.layout().chunk, torch.Generator().manual_seed(0)
    return [
        (image + SIGMA * torch.randn((rows, *image.shape), generator=generator)).to(device)
        for image in (images[i % len(images)] for i in range(_READY_BATCHES))
    ]


def bare_rows(prepared: Prepared, batches: Sequence[torch.Tensor], passes: int, workers: int) -> int:
    """Passes of the prepared network over batches that are noisy already, by threads like the engine's; its rows.

    No noise is drawn, nothing is counted and the threads share no more than a counter: what is left is the network.
    """
    turns = itertools.count()

    def work_off() -> None:
        with torch.inference_mode(), prepared.lending.borrowed() as model:
            while (turn := next(turns)) < passes:
                model(batches[turn % len(batches)])

    with worker_threads(workers) as pool:
        for done in [pool.submit(work_off) for _ in range(workers)]:
            done.result()
    if batches[0].device.type == "cuda":
        torch.cuda.synchronize()
    return passes * len(batches[0])


def _classifier(module: nn.Module, route: str, device: str) -> SmoothedClassifier:
    return SmoothedClassifier(
        module, sigma=SIGMA, seed=0, levels=255, numerics=Numerics(route=route), execution=Execution(device)
    )
