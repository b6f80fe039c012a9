"""What a machine has: versions, devices, cores, extras, the file system of a directory. Nothing is measured or sent."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import torch

import smoothcert
from smoothcert.extras import EXTRAS
from smoothcert.mounts import Mount, mount_of
from smoothcert.sampling.execution import usable_cores

_REQUIRED = ("torch", "numpy", "scipy", "safetensors")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_DRIVER = Path("/proc/driver/nvidia/version")


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
    found = {"smoothcert": smoothcert.__version__, "python": platform.python_version()}
    packages = dict.fromkeys([*_REQUIRED, *(extra.package for extra in EXTRAS.values())])
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _missing() -> dict[str, str]:
    # Looked for and not imported, which would take seconds.
    names = {extra.name for module, extra in EXTRAS.items() if find_spec(module) is None}
    return {name: f"pip install 'smoothcert[{name}]'" for name in sorted(names)}
