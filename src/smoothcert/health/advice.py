"""What to change, by fixed rules from what was found."""

from __future__ import annotations

from collections.abc import Sequence

from smoothcert.health.environment import Environment
from smoothcert.health.speed import Rates

_FASTER = 1.15
"""How much faster another route must be to be worth a word."""
_SLOW = 0.8
"""The share of the bare network's speed below which something is wrong."""


def advise(found: Environment, rates: Sequence[Rates]) -> list[str]:
    """A sentence for each thing to change; none where all is well."""
    said = [*_about_machine(found), *_about_packages(found)]
    # While others compete for the cores, a ratio of two measurements is theirs as much as ours.
    return said if found.load > found.cores else said + _about_speed(rates)


def _about_machine(found: Environment) -> list[str]:
    said = []
    if found.quota is not None and found.quota < found.cores:
        workers = max(1, int(found.quota))
        said.append(
            f"this container may use {found.quota:g} of the {found.cores} cores it sees: --workers {workers}"
        )
    if found.cores < found.all_cores:
        said.append(
            f"this process may use {found.cores} of {found.all_cores} cores: that many workers are the default"
        )
    if found.load > found.cores:
        said.append(
            f"others use this machine (load {found.load:.1f} for {found.cores} cores): figures here are lower than "
            "they could be"
        )
    for name, value in found.variables.items():
        if value != "1":
            said.append(
                f"{name}={value}: workers that evaluate networks have one thread whatever it says, but Python "
                f"functions and scikit-learn obey it; set {name}=1 for --backend processes"
            )
    if found.network_file_system:
        said.append(
            f"{found.directory} lies on {found.file_system}, a network file system: certify on a local disk and copy "
            "the run when it is finished (docs/scaling.md)"
        )
    return said


def _about_packages(found: Environment) -> list[str]:
    said = []
    if "onnx" in found.missing and "cpu" in found.devices:
        said.append(f"networks with batch norm vote faster with onnxruntime: {found.missing['onnx']}")
    if "images" in found.missing:
        said.append(f"folders of images and ImageNet need Pillow: {found.missing['images']}")
    if found.driver and not any(device.startswith("cuda") for device in found.devices):
        said.append(
            f"an NVIDIA driver is here, but torch {found.versions['torch']} sees no card: install a build of torch for "
            "CUDA (pytorch.org/get-started)"
        )
    return said


def _about_speed(rates: Sequence[Rates]) -> list[str]:
    said = []
    for one in rates:
        if one.auto and one.ratio < _SLOW:
            said.append(
                f"{one.network} on {one.device} votes at {100 * one.ratio:.0f} % of the bare network's speed "
                f"({one.route}): is something else running? If not, please report it"
            )
        alike = [other for other in rates if (other.network, other.device) == (one.network, one.device)]
        fastest = max(alike, key=lambda other: other.votes)
        if one.auto and fastest.votes > _FASTER * one.votes:
            said.append(
                f"for networks like {one.network}, --route {fastest.route} casts {fastest.votes / one.votes:.1f} times "
                f"as many votes a second on {one.device} as {one.route}, the default"
            )
    return said
