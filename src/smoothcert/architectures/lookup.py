"""From an architecture's name to its builder: ours by registered name, other packages' as PACKAGE:NAME."""

from __future__ import annotations

from smoothcert.architectures.base import ARCHITECTURES, Builder
from smoothcert.architectures.packages import PACKAGES, package_builder, split_name
from smoothcert.registry import unknown_name


def check_architecture(name: str) -> None:
    """Refuse what can't name an architecture, without importing the package that PACKAGE:NAME names."""
    if name not in ARCHITECTURES and split_name(name) is None:
        forms = [f"{package}:NAME" for package in PACKAGES]
        raise unknown_name("architecture", name, [*ARCHITECTURES.names(), *forms])


def builder(name: str) -> Builder:
    """The builder for a name; a PACKAGE:NAME that its package can't provide is refused here already."""
    check_architecture(name)
    elsewhere = split_name(name)
    return ARCHITECTURES[name] if elsewhere is None else package_builder(*elsewhere)
