"""The check-up: surroundings, promises and speed step by step, and what to change by fixed rules."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import smoothcert
from smoothcert.databases import Mount, mount_of
from smoothcert.engine.execution import Execution, usable_cores
from smoothcert.extras import EXTRAS
from smoothcert.health import trials
from smoothcert.models.numerics import check_device

_REQUIRED = ("torch", "numpy", "scipy", "safetensors")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_DRIVER = Path("/proc/driver/nvidia/version")

_FASTER = 1.15
"""How much faster another route must be to be worth a word."""
_SLOW = 0.8
"""The share of the bare network's speed below which something is wrong."""


@dataclass(frozen=True)
class Environment:
    """What was found."""

    versions: dict[str, str]
    machine: str
    devices: tuple[str, ...]
    """Devices that torch can compute on, the CPU first."""
    cores: int
    """That this process may use."""
    all_cores: int
    quota: float | None
    """Cores' worth of time that a container allows; None for no limit, or none that is known."""
    load: float
    """Processes that want to run, on average over the last minute."""
    missing: dict[str, str]
    """Extras that aren't installed: their name, and the command that installs them."""
    directory: str
    file_system: str
    variables: dict[str, str]
    driver: bool
    """Whether an NVIDIA driver is there."""

    @property
    def network_file_system(self) -> bool:
        """Whether the directory lies on another machine."""
        return Mount(Path(self.directory), self.file_system).is_network


def look_around(directory: Path) -> Environment:
    """The environment of this process, and of a directory."""
    mount = mount_of(directory)
    return Environment(
        versions=_versions(),
        machine=f"{platform.system()} {platform.machine()}",
        devices=devices(),
        cores=usable_cores(),
        all_cores=os.cpu_count() or 1,
        quota=_quota(_QUOTA),
        load=os.getloadavg()[0],
        missing=_missing(),
        directory=str(directory),
        file_system="unknown" if mount is None else mount.kind,
        variables={
            name: value
            for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
            if (value := os.environ.get(name)) is not None
        },
        driver=_DRIVER.exists(),
    )


def devices() -> tuple[str, ...]:
    """Devices that a pass can be evaluated on."""
    cards = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ("cpu", *cards, *(["mps"] if torch.backends.mps.is_available() else []))


def _quota(file: Path) -> float | None:
    try:
        allowed, period = file.read_text(encoding="ascii").split()
        return float(allowed) / float(period)
    except (OSError, ValueError):  # no file, no limit ("max"), or something unheard of
        return None


def _versions() -> dict[str, str]:
    versions = {"smoothcert": smoothcert.__version__, "python": platform.python_version()}
    packages = dict.fromkeys([*_REQUIRED, *(extra.package for extra in EXTRAS.values())])
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _missing() -> dict[str, str]:
    # Looked for and not imported, which would take seconds.
    names = {extra.name for module, extra in EXTRAS.items() if find_spec(module) is None}
    return {name: f"pip install 'smoothcert[{name}]'" for name in sorted(names)}


def advise(here: Environment, rates: Sequence[trials.Rates]) -> list[str]:
    """A sentence for each thing to change; none where all is well."""
    said = _about_machine(here)
    # While others compete for the cores, a ratio of two measurements is theirs as much as ours.
    return said if here.load > here.cores else said + _about_speed(rates)


def _about_machine(here: Environment) -> list[str]:
    said = []
    if here.quota is not None and here.quota < here.cores:
        workers = max(1, int(here.quota))
        said.append(f"this container may use {here.quota:g} of {here.cores} cores: --workers {workers}")
    if here.cores < here.all_cores:
        said.append(f"this process may use {here.cores} of {here.all_cores} cores, the default of --workers")
    if here.load > here.cores:
        said.append(
            f"others use this machine (load {here.load:.1f} for {here.cores} cores): figures here are lower than "
            "they could be"
        )
    for name, value in here.variables.items():
        if value != "1":
            said.append(
                f"{name}={value}: workers that evaluate networks have one thread whatever it says, but Python "
                f"functions and scikit-learn obey it; set {name}=1 for --backend processes"
            )
    if here.network_file_system:
        said.append(
            f"{here.directory} lies on {here.file_system}, a network file system: certify on a local disk and copy "
            "the run when it is finished (docs/scaling.md)"
        )
    if "onnx" in here.missing and "cpu" in here.devices:
        said.append(f"networks with batch norm vote faster with onnxruntime: {here.missing['onnx']}")
    if "images" in here.missing:
        said.append(f"folders of images and ImageNet need Pillow: {here.missing['images']}")
    if here.driver and not any(device.startswith("cuda") for device in here.devices):
        said.append(
            f"an NVIDIA driver is here, but torch {here.versions['torch']} sees no card: install a build of torch for "
            "CUDA (pytorch.org/get-started)"
        )
    return said


def _about_speed(rates: Sequence[trials.Rates]) -> list[str]:
    said = []
    for rate in rates:
        if rate.auto and rate.ratio < _SLOW:
            said.append(
                f"{rate.network} on {rate.device} votes at {100 * rate.ratio:.0f} % of the bare network's speed "
                f"({rate.route}): is something else running? If not, please report it"
            )
        alike = [rival for rival in rates if (rival.network, rival.device) == (rate.network, rate.device)]
        fastest = max(alike, key=lambda rival: rival.votes)
        if rate.auto and fastest.votes > _FASTER * rate.votes:
            said.append(
                f"for networks like {rate.network}, --route {fastest.route} casts {fastest.votes / rate.votes:.1f} "
                f"times as many votes a second on {rate.device} as {rate.route}, the default"
            )
    return said


@dataclass(frozen=True)
class Thoroughness:
    """How much a check-up does."""

    bits: tuple[tuple[trials.RandomNetwork, int], ...]
    """Networks, and votes on each of three inputs."""
    noise_votes: int
    speed: tuple[trials.RandomNetwork, ...]
    least_seconds: float


QUICK = Thoroughness(((trials.LENET, 128),), 20_000, (trials.LENET,), 0.1)
FULL = Thoroughness(
    ((trials.LENET, 640), (trials.RESNET20, 160)),
    200_000,
    (trials.LENET, trials.RESNET20, trials.RESNET50),
    0.5,
)


@dataclass
class Checkup:
    """What was found so far."""

    environment: Environment | None = None
    known: list[trials.KnownAnswer] = field(default_factory=list)
    beside: list[trials.BesideCpu] = field(default_factory=list)
    bits: list[trials.SameBits] = field(default_factory=list)
    noise: list[trials.NoiseFit] = field(default_factory=list)
    rates: list[trials.Rates] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Steps that couldn't be taken, and routes that don't work here: no promise is broken by them."""

    def note(self, step: str, error: Exception) -> None:
        """A step that couldn't be taken."""
        self.failures.append(f"{step}: {type(error).__name__}: {error}")

    @property
    def broken(self) -> list[str]:
        """Promises that don't hold on this machine."""
        bits = [
            f"{trial.network} on {trial.device}, {trial.route}: votes depend on the batch, the workers or the order"
            for trial in self.bits
            if not trial.same
        ]
        noise = [
            f"{trial.noise} noise on {trial.device}, {trial.what}: χ² = {trial.chi2:.1f}, p = {trial.p:.1g}"
            for trial in self.noise
            if not trial.fits
        ]
        known = [
            f"{trial.noise} noise on {trial.device}: votes {trial.votes}, known are {trials.KNOWN[trial.noise]}"
            for trial in self.known
            if not trial.right
        ]
        beside = [
            f"{trial.network} on {trial.device}, {trial.route}: {trial.unlike} of {trial.votes} votes differ"
            for trial in self.beside
            if not trial.alike
        ]
        return bits + noise + known + beside

    @property
    def advice(self) -> list[str]:
        """What to change."""
        return [] if self.environment is None else advise(self.environment, self.rates)

    def as_json(self) -> dict[str, Any]:
        """Everything in plain values."""
        return {
            "healthy": not self.broken,
            "environment": None if self.environment is None else asdict(self.environment),
            "same_bits": [asdict(trial) for trial in self.bits],
            "known": [asdict(trial) | {"right": trial.right} for trial in self.known],
            "beside_cpu": [asdict(trial) | {"alike": trial.alike} for trial in self.beside],
            "noise": [asdict(trial) | {"fits": trial.fits} for trial in self.noise],
            "speed": [asdict(trial) | {"ratio": trial.ratio} for trial in self.rates],
            "failures": self.failures,
            "broken": self.broken,
            "advice": self.advice,
        }

    def markdown(self) -> str:
        """What an issue about a device needs, as Markdown."""
        here, bits = self.environment, {(one.network, one.route): one.same for one in self.bits}
        beside = {(votes.network, votes.route): votes for votes in self.beside}
        rates = {(rate.network, rate.route): rate for rate in self.rates}
        lines = []
        if here is not None:
            versions = ", ".join(f"{name} {version}" for name, version in here.versions.items())
            lines += [
                f"{here.machine}; devices {', '.join(here.devices)}; load {here.load:.1f}; {versions}",
                "",
            ]
        lines += [
            "| network | route | same bits | votes unlike the CPU's | votes/s | bare rows/s | ratio |",
            "|---|---|---|---|---|---|---|",
        ]
        for where in dict.fromkeys([*bits, *beside, *rates]):
            cells = [where[0], where[1], "", "", "", "", ""]
            if where in bits:
                cells[2] = "yes" if bits[where] else "NO"
            if where in beside:
                cells[3] = f"{beside[where].unlike} of {beside[where].votes}"
            if (rate := rates.get(where)) is not None:
                cells[1] += " (default)" if rate.auto else ""
                cells[4:] = f"{rate.votes:.4g}", f"{rate.bare:.4g}", f"{rate.ratio:.2f}"
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
        lines += [f"- known votes, {each.noise}: {'yes' if each.right else 'NO'}" for each in self.known]
        lines += [f"- {each.noise} noise, {each.what}: p = {each.p:.2g}" for each in self.noise]
        lines += [f"- broken: {text}" for text in self.broken]
        lines += [f"- not tried: {text}" for text in self.failures]
        return "\n".join(lines)


def check_up(
    directory: Path,
    *,
    quick: bool,
    device: str | None = None,
    on_step: Callable[[str, int, int], None] | None = None,
) -> Checkup:
    """Everything about this machine that a user can't see; ``on_step`` hears of each step before it is taken.

    What goes wrong in a step is noted and the next one taken. One ``device`` alone is also compared with the CPU.
    """
    if device is not None:
        device = Execution(device).main_device  # one card: its speed stands beside the bare network's on it
        check_device(device)
    checkup, how = Checkup(), QUICK if quick else FULL
    try:
        checkup.environment = look_around(directory)
        devices = checkup.environment.devices
    except Exception as error:
        checkup.note("surroundings", error)
        devices = ("cpu",)
    steps: list[tuple[str, list[Any], Callable[[], tuple[list[Any], list[str]]]]] = []
    if device is not None:
        devices = (device,)
        steps.append((f"known votes on {device}", checkup.known, partial(trials.known_answers, device)))
        for network, votes in how.bits:
            beside = partial(trials.beside_cpu, network, device, votes)
            steps.append((f"votes beside the CPU's, {network.name} on {device}", checkup.beside, beside))
    for name in devices:
        for network, votes in how.bits:
            same = partial(trials.same_bits, network, name, votes)
            steps.append((f"same bits, {network.name} on {name}", checkup.bits, same))
        steps.append((f"noise on {name}", checkup.noise, partial(trials.noise_fits, name, how.noise_votes)))
    for name in devices:
        for network in how.speed:
            speed = partial(trials.measure, network, name, how.least_seconds)
            steps.append((f"speed, {network.name} on {name}", checkup.rates, speed))
    for number, (words, results, trial) in enumerate(steps):
        if on_step is not None:
            on_step(words, number, len(steps))
        try:
            new, failures = trial()
            results += new
            checkup.failures += failures
        except Exception as error:  # whatever it was, the other steps may say why
            checkup.note(words, error)
    return checkup
