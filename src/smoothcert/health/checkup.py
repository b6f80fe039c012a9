"""The check-up: one step after another, and none that fails keeps the others from being taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from smoothcert.health.advice import advise
from smoothcert.health.environment import Environment, look_around
from smoothcert.health.networks import LENET, RESNET20, RESNET50, RandomNetwork
from smoothcert.health.promises import NoiseFit, SameBits, noise_fits, same_bits
from smoothcert.health.speed import Rates, measure


@dataclass(frozen=True)
class Thoroughness:
    """How much a check-up does."""

    bits: tuple[tuple[RandomNetwork, int], ...]
    """Networks, and votes on each of three inputs."""
    noise_votes: int
    speed: tuple[RandomNetwork, ...]
    least_seconds: float


QUICK = Thoroughness(((LENET, 128),), 20_000, (LENET,), 0.1)
FULL = Thoroughness(((LENET, 640), (RESNET20, 160)), 200_000, (LENET, RESNET20, RESNET50), 0.5)


@dataclass
class Checkup:
    """What was found so far."""

    environment: Environment | None = None
    bits: list[SameBits] = field(default_factory=list)
    noise: list[NoiseFit] = field(default_factory=list)
    rates: list[Rates] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Steps that couldn't be taken, and routes that don't work here: no promise is broken by them."""

    def check_bits(self, network: RandomNetwork, device: str, votes: int) -> None:
        """Cast the same votes in several ways."""
        found, failures = same_bits(network, device, votes)
        self.bits += found
        self.failures += failures

    def check_noise(self, device: str, votes: int) -> None:
        """Hold drawn noise against its distribution."""
        self.noise += noise_fits(device, votes)

    def check_speed(self, network: RandomNetwork, device: str, least: float) -> None:
        """Measure votes beside the bare network."""
        found, failures = measure(network, device, least)
        self.rates += found
        self.failures += failures

    @property
    def broken(self) -> list[str]:
        """Promises that don't hold on this machine."""
        return [
            f"{one.network} on {one.device}, {one.route}: votes depend on the batch, the workers or the order"
            for one in self.bits
            if not one.same
        ] + [
            f"{one.noise} noise on {one.device}, {one.what}: χ² = {one.chi2:.1f}, p = {one.p:.1g}"
            for one in self.noise
            if not one.fits
        ]

    @property
    def advice(self) -> list[str]:
        """What to change."""
        return [] if self.environment is None else advise(self.environment, self.rates)

    def as_json(self) -> dict[str, Any]:
        """Everything in plain values."""
        return {
            "healthy": not self.broken,
            "environment": None if self.environment is None else asdict(self.environment),
            "same_bits": [asdict(one) for one in self.bits],
            "noise": [asdict(one) | {"fits": one.fits} for one in self.noise],
            "speed": [asdict(one) | {"ratio": one.ratio} for one in self.rates],
            "failures": self.failures,
            "broken": self.broken,
            "advice": self.advice,
        }


def _steps(
    found: Checkup, devices: tuple[str, ...], how: Thoroughness
) -> Iterator[tuple[str, Callable[[], None]]]:
    """What each is called, and how it is taken: promises first, then speed, device by device."""
    for device in devices:
        for network, votes in how.bits:
            taken = partial(found.check_bits, network, device, votes)
            yield f"same bits, {network.name} on {device}", taken
        yield f"noise on {device}", partial(found.check_noise, device, how.noise_votes)
    for device in devices:
        for network in how.speed:
            taken = partial(found.check_speed, network, device, how.least_seconds)
            yield f"speed, {network.name} on {device}", taken


def check_up(
    directory: Path, *, quick: bool, on_step: Callable[[str, int, int], None] | None = None
) -> Checkup:
    """Everything about this machine that a user can't see; ``on_step`` hears of each step before it is taken.

    What goes wrong in a step is noted and the next one taken.
    """
    found, how = Checkup(), QUICK if quick else FULL

    @contextmanager
    def noted(words: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever it was, the other steps may say why
            found.failures.append(f"{words}: {type(error).__name__}: {error}")

    with noted("surroundings"):
        found.environment = look_around(directory)
    planned = list(_steps(found, found.environment.devices if found.environment else ("cpu",), how))
    for number, (words, take) in enumerate(planned):
        if on_step is not None:
            on_step(words, number, len(planned))
        with noted(words):
            take()
    return found
