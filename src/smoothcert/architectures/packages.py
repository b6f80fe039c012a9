"""Networks that torchvision and timm build, where they are installed: ``torchvision:NAME`` and ``timm:NAME``.

Neither package is imported before one of its networks is asked for, and no pretrained weights are fetched.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from smoothcert.architectures.base import Builder, image_shape
from smoothcert.errors import InvalidValueError, ModelError


def _torchvision_network(models: Any, name: str, channels: int, classes: int) -> Any:
    if channels != 3:
        raise InvalidValueError(
            f"torchvision:{name} takes 3 channels, got {channels}: give colour images, or use timm:NAME, "
            "whose networks take any number"
        )
    return models.get_model(name, weights=None, num_classes=classes)


def _timm_network(timm: Any, name: str, channels: int, classes: int) -> Any:
    return timm.create_model(name, pretrained=False, num_classes=classes, in_chans=channels)


@dataclass(frozen=True)
class Package:
    """How to list and make one package's networks."""

    name: str
    module: str
    listing: str
    names: Callable[[Any], Iterable[str]]
    network: Callable[[Any, str, int, int], Any]


PACKAGES = {
    package.name: package
    for package in (
        Package("timm", "timm", "timm.list_models()", lambda timm: timm.list_models(), _timm_network),
        Package(
            "torchvision",
            "torchvision.models",
            "torchvision.models.list_models(module=torchvision.models)",
            # Without module= detectors and segmenters would be listed too, which don't give one logit per class.
            lambda models: models.list_models(module=models),
            _torchvision_network,
        ),
    )
}


def split_name(architecture: str) -> tuple[Package, str] | None:
    """The package and the name in it, or None if ``architecture`` is not of the form PACKAGE:NAME."""
    prefix, _, name = architecture.partition(":")
    return (PACKAGES[prefix], name) if prefix in PACKAGES and name else None


def package_builder(package: Package, name: str) -> Builder:
    """The builder of one of the package's networks; imports the package and refuses names it doesn't know."""
    architecture = f"{package.name}:{name}"
    module = _imported(package, architecture)
    known = list(package.names(module))
    if name not in known:
        raise _unknown(package, name, known)

    def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, _ = image_shape(architecture, input_shape, classes, least_side=1)
        try:
            network = package.network(module, name, channels, classes)
        except InvalidValueError:
            raise
        # What the networks of another project raise can't be told beforehand.
        except Exception as error:
            raise ModelError(
                f"{architecture} can't be built for input_shape {input_shape} and {classes} classes "
                f"({_reason(error)}): choose another architecture"
            ) from error
        _check_logits(architecture, network, input_shape, classes)
        built: nn.Module = network
        return built

    return build


def _imported(package: Package, architecture: str) -> Any:
    try:
        importlib.import_module(package.name)
        return importlib.import_module(package.module)
    # A torchvision that was built for another torch raises RuntimeError, or whatever its first call into C++ does.
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package.name:
            raise ModelError(
                f"{architecture} needs {package.name}, which isn't installed: pip install {package.name}"
            ) from error
        raise ModelError(
            f"{architecture} needs {package.name}, which is installed but can't be imported "
            f"({_reason(error)}): install versions of {package.name} and what it uses that are made for torch "
            f"{torch.__version__}, from where torch came"
        ) from error


def _reason(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def _unknown(package: Package, name: str, known: list[str]) -> InvalidValueError:
    # timm's names with weights end in a tag, NAME.TAG, of which only the first part is the network.
    close = difflib.get_close_matches(name.partition(".")[0], known, n=3)
    hint = f" Did you mean {' or '.join(f'{package.name}:{guess}' for guess in close)}?" if close else ""
    return InvalidValueError(
        f"unknown architecture '{package.name}:{name}': {package.name} has no image classifier {name!r}.{hint} "
        f"{package.listing} lists them all"
    )


def _check_logits(architecture: str, network: Any, input_shape: tuple[int, ...], classes: int) -> None:
    """Show the network one input: many of them take images of certain sides only, and say so only then."""
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            logits = network(torch.zeros(1, *input_shape))
    except Exception as error:
        raise ModelError(
            f"{architecture} doesn't take inputs of shape {input_shape} ({_reason(error)}): resize the images "
            "or choose another architecture"
        ) from error
    finally:
        network.train(training)
    found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if found != (1, classes):
        raise ModelError(
            f"{architecture} gives {found} for one input instead of (1, {classes}), one logit per class: "
            "choose another architecture"
        )
