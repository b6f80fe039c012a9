"""What is tried on this machine: the same bits in any order, the noise's distribution, and the speed of votes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.engine.execution import Execution, usable_cores
from smoothcert.errors import SmoothcertError
from smoothcert.evaluation.planning import measured_rate
from smoothcert.models.base import Prepared
from smoothcert.models.numerics import PHILOX, Numerics
from smoothcert.perturb.base import NOISES
from smoothcert.perturb.grid import Grid, on_grid
from smoothcert.perturb.sampler import BITS
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.threads import worker_threads

CLASSES = 10
LEAST_P = 1e-6
"""Below this probability of a worse fit, noise isn't what it should be. Streams are fixed: no chance is in it."""

SIGMA = 0.5
ROUTES = ("eager", "channels-last", "folded", "graphs", "onnxruntime", "openvino")
"""That are tried; compiling takes longer than a check-up may."""

_READY_BATCHES = 4
_BINS = 16
_SHAPE = (4,)


@dataclass(frozen=True)
class RandomNetwork:
    """One network."""

    name: str
    architecture: str
    input_shape: tuple[int, int, int]

    def module(self) -> nn.Module:
        """The network in evaluation mode, the same in every process."""
        spec = ModelSpec(self.architecture, self.input_shape, tuple(str(c) for c in range(CLASSES)))
        return initialise(spec, seed=0).eval().requires_grad_(False)

    def images(self, count: int) -> NDArray[np.float32]:
        """Fixed inputs in [0, 1]."""
        return np.random.default_rng(0).random((count, *self.input_shape), dtype=np.float32)


LENET = RandomNetwork("LeNet", "lenet", (1, 28, 28))
RESNET20 = RandomNetwork("ResNet-20", "cifar_resnet20", (3, 32, 32))
RESNET50 = RandomNetwork("ResNet-50", "resnet50", (3, 224, 224))


@dataclass(frozen=True)
class SameBits:
    """Whether a network's votes on a route are the same for any batch, number of workers and order of inputs."""

    network: str
    device: str
    route: str
    same: bool


def same_bits(network: RandomNetwork, device: str, votes: int) -> tuple[list[SameBits], list[str]]:
    """For every route that works whether the votes are the same, and why the others don't work.

    Votes are soft: sums of probabilities, in units of 2⁻³², show a last bit that no class would.
    """

    def compare(classifier: SmoothedClassifier, route: str) -> SameBits:
        rows = classifier.prepare(network.input_shape).numerics.layout().rows
        ways = _ways(device, rows)
        digests = {
            _digest(classifier.on(way), network, votes, backwards=turn % 2 == 1)
            for turn, way in enumerate(ways)
        }
        return SameBits(network.name, device, route, len(digests) == 1)

    return _on_each_route(network, device, compare, bound="hoeffding")


def _ways(device: str, rows: int) -> list[Execution]:
    """To cast the same votes: in several batches, and on the CPU by several numbers of workers."""
    if not device.startswith("cpu"):  # whose worker is one
        return [Execution(device), Execution(device, batch=rows), Execution(device, batch=3 * rows)]
    cores = max(2, usable_cores())
    return [
        Execution(device, workers=1),
        Execution(device, workers=cores, batch=rows),
        Execution(device, workers=cores, batch=3 * rows),
    ]


def _digest(classifier: SmoothedClassifier, network: RandomNetwork, votes: int, *, backwards: bool) -> str:
    inputs = list(enumerate(network.images(3)))
    tallies = dict(classifier.cast_each(inputs[::-1] if backwards else inputs, votes))
    told = "|".join(f"{index} {tallies[index].counts} {tallies[index].sums}" for index in sorted(tallies))
    return hashlib.sha256(told.encode()).hexdigest()


@dataclass(frozen=True)
class NoiseFit:
    """How well drawn noise fits its distribution, as a model saw it."""

    noise: str
    what: str
    device: str
    votes: int
    chi2: float
    p: float

    @property
    def fits(self) -> bool:
        """Whether there is no reason to doubt it."""
        return self.p >= LEAST_P


class _Bins(nn.Module):
    """Votes for the bin that its first coordinate falls into, or its first two together."""

    def __init__(self, edges: NDArray[np.float64], pairs: bool) -> None:
        super().__init__()
        self.register_buffer("edges", torch.tensor(edges, dtype=torch.float64))
        self.pairs = pairs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        edges: torch.Tensor = self.edges.to(x.dtype)  # type: ignore[assignment]
        bins = torch.bucketize(x[:, :2].contiguous(), edges)
        one = bins[:, 0] * (len(edges) + 1) + bins[:, 1] if self.pairs else bins[:, 0]
        scores: torch.Tensor = nn.functional.one_hot(one, _BINS).to(x.dtype)
        return scores


def noise_fits(device: str, votes: int) -> tuple[list[NoiseFit], list[str]]:
    """χ² of each noise, one coordinate in 16 bins and two in 4 × 4, through noise, model and counting as in certify.

    Edges of bins lie between the grid's points, where probabilities are known exactly.
    """
    fits = []
    for name in NOISES:
        for pairs in (False, True):
            noise = NOISES[name](1.0)
            steps = float(on_grid(noise, Grid.of(None), _SHAPE).steps_per_unit)
            ends = noise.thresholds(Fraction(steps)) / 2.0**BITS
            parts = round(_BINS**0.5) if pairs else _BINS
            places = ends.searchsorted(np.arange(1, parts) / parts)
            edges = np.asarray((places - len(ends) // 2 + 0.5) / steps, dtype=np.float64)
            shares = np.diff([0.0, *ends[places], 1.0])
            expected = np.outer(shares, shares).reshape(-1) if pairs else shares
            classifier = SmoothedClassifier(
                _Bins(edges, pairs), sigma=1.0, noise=name, seed=0, execution=Execution(device)
            )
            ((_, tally),) = classifier.cast_each([(0, np.zeros(_SHAPE))], votes)
            test = stats.chisquare(tally.counts, expected * votes)
            what = "two coordinates" if pairs else "one coordinate"
            fits.append(NoiseFit(name, what, device, votes, float(test.statistic), float(test.pvalue)))
    return fits, []


KNOWN = {
    "gaussian": (147, 105, 187, 218, 292, 328, 380, 429, 400, 365, 308, 263, 242, 153, 125, 154),
    "uniform": (0, 253, 320, 318, 288, 284, 294, 328, 314, 272, 283, 266, 289, 308, 279, 0),
}
"""Votes for each of 16 bins of the first coordinate: noise from counters is the same on every device."""

_KNOWN_VOTES = 4096


@dataclass(frozen=True)
class KnownAnswer:
    """Whether a device casts the votes that are known, by noise drawn where the model is."""

    noise: str
    device: str
    votes: tuple[int, ...]

    @property
    def right(self) -> bool:
        """Whether each bin has the number of votes it should."""
        return self.votes == KNOWN[self.noise]


def known_answers(device: str) -> tuple[list[KnownAnswer], list[str]]:
    """The votes of a model without rounding: only noise and counting are in them."""
    answers = []
    for name in KNOWN:
        classifier = SmoothedClassifier(
            _Bins(np.linspace(-1.75, 1.75, _BINS - 1), pairs=False),
            sigma=1.0,
            noise=name,
            seed=0,
            numerics=Numerics(route="eager", generator=PHILOX, chunk=64),
            execution=Execution(device),
        )
        ((_, tally),) = classifier.cast_each([(0, np.zeros(_SHAPE))], _KNOWN_VOTES)
        answers.append(KnownAnswer(name, device, tally.counts))
    return answers, []


MOST_UNLIKE = 0.01
"""The share of votes that may differ from the CPU's: a last bit decides between classes whose scores are alike."""


@dataclass(frozen=True)
class BesideCpu:
    """How many votes a route of a device casts for another class than the CPU does, on the same noise."""

    network: str
    device: str
    route: str
    votes: int
    unlike: int
    """At least so many: half the sum of differences between counts."""

    @property
    def alike(self) -> bool:
        """Whether no more differ than rounding explains."""
        return self.unlike <= MOST_UNLIKE * self.votes


def beside_cpu(network: RandomNetwork, device: str, votes: int) -> tuple[list[BesideCpu], list[str]]:
    """The votes of every route beside those of the CPU's eager route."""
    inputs = list(enumerate(network.images(3)))

    def counts(classifier: SmoothedClassifier) -> NDArray[np.int64]:
        return np.array([tally.counts for _, tally in sorted(classifier.cast_each(inputs, votes))])

    expected = counts(_classifier(network.module(), "eager", "cpu", generator=PHILOX))

    def compare(classifier: SmoothedClassifier, route: str) -> BesideCpu:
        unlike = int(np.abs(counts(classifier) - expected).sum()) // 2
        return BesideCpu(network.name, device, route, votes * len(inputs), unlike)

    return _on_each_route(network, device, compare, generator=PHILOX)


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
        and (route not in ("onnxruntime", "openvino") or device == "cpu")
        and (route != "graphs" or device.startswith("cuda"))
    ]


def measure(network: RandomNetwork, device: str, least: float) -> tuple[list[Rates], list[str]]:
    """The rates of a network on every route that works, and why the others don't."""
    unasked = _classifier(network.module(), "auto", device).prepare(network.input_shape).numerics.route

    def rate(classifier: SmoothedClassifier, route: str) -> Rates:
        votes, bare = _rates(classifier, network, least)
        return Rates(network.name, device, route, route == unasked, votes, bare)

    return _on_each_route(network, device, rate)


T = TypeVar("T")


def _on_each_route(
    network: RandomNetwork, device: str, examine: Callable[[SmoothedClassifier, str], T], **plan: Any
) -> tuple[list[T], list[str]]:
    results, failures, module = [], [], network.module()
    for route in routes_of(module, device):
        try:
            results.append(examine(_classifier(module, route, device, **plan), route))
        except SmoothcertError as error:
            failures.append(f"{network.name}, {device}, {route}: {error}")
    return results, failures


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
        with torch.inference_mode(), prepared.evaluating() as model:
            while (turn := next(turns)) < passes:
                model(batches[turn % len(batches)])

    with worker_threads(workers) as pool:
        for done in [pool.submit(work_off) for _ in range(workers)]:
            done.result()
    if batches[0].device.type == "cuda":
        torch.cuda.synchronize(batches[0].device)
    return passes * len(batches[0])


def _classifier(
    module: nn.Module, route: str, device: str, generator: str = "auto", **plan: Any
) -> SmoothedClassifier:
    return SmoothedClassifier(
        module,
        sigma=SIGMA,
        seed=0,
        levels=255,
        numerics=Numerics(route=route, generator=generator),
        execution=Execution(device),
        **plan,
    )
