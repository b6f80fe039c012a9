"""From an architecture's name to its builder: ours by registered name, torchvision's and timm's as PACKAGE:NAME.

Neither package is imported before one of its networks is asked for, and no pretrained weights are fetched.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any, Protocol, cast

from smoothcert.errors import InvalidValueError, ModelError, check_count
from smoothcert.registry import Registry, unknown_name

if TYPE_CHECKING:
    from torch import nn


class Builder(Protocol):
    """Makes a freshly initialised network that maps a batch of inputs to one logit per class."""

    def __call__(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build for one input's shape and a number of classes."""


ARCHITECTURES: Registry[Builder] = Registry("architecture", __package__)
WEIGHTS_NAME = "model.safetensors"
"""In a training run."""


def image_shape(
    architecture: str, input_shape: tuple[int, ...], classes: int, least_side: int
) -> tuple[int, int, int]:
    """The checked (channels, height, width) of an image network's input."""
    check_count("classes", classes)
    fits = (
        len(input_shape) == 3
        and all(isinstance(size, int) and not isinstance(size, bool) for size in input_shape)
        and input_shape[0] >= 1
        and min(input_shape[1:]) >= least_side
    )
    if not fits:
        raise InvalidValueError(
            f"{architecture} takes inputs of shape (channels, height, width) with sides of at least "
            f"{least_side}, got {input_shape}"
        )
    channels, height, width = input_shape
    return channels, height, width


_LISTINGS = {
    "timm": "timm.list_models()",
    # Without module= detectors and segmenters would be listed too, which don't give one logit per class.
    "torchvision": "torchvision.models.list_models(module=torchvision.models)",
}
"""The packages whose networks are named PACKAGE:NAME, and how each lists them."""


def _package_builder(package: str, name: str) -> Builder:
    architecture = f"{package}:{name}"
    module = _imported(package, architecture)
    known = list(module.list_models() if package == "timm" else module.list_models(module=module))
    if name not in known:
        # timm's names with weights end in a tag, NAME.TAG, of which only the first part is the network.
        close = difflib.get_close_matches(name.partition(".")[0], known, n=3)
        hint = f" Did you mean {' or '.join(f'{package}:{guess}' for guess in close)}?" if close else ""
        raise InvalidValueError(
            f"unknown architecture {architecture!r}: {package} has no image classifier {name!r}.{hint} "
            f"{_LISTINGS[package]} lists them all"
        )

    def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, _ = image_shape(architecture, input_shape, classes, least_side=1)
        if package == "torchvision" and channels != 3:
            raise InvalidValueError(
                f"{architecture} takes 3 channels, got {channels}: give colour images, or use timm:NAME, whose "
                "networks take any number"
            )
        try:
            if package == "torchvision":
                network = module.get_model(name, weights=None, num_classes=classes)
            else:
                network = module.create_model(name, pretrained=False, num_classes=classes, in_chans=channels)
        except Exception as error:  # another project's networks raise anything
            raise ModelError(
                f"{architecture} can't be built for input_shape {input_shape} and {classes} classes "
                f"({_reason(error)}): choose another architecture"
            ) from error
        _check_logits(architecture, network, input_shape, classes)
        return cast("nn.Module", network)

    return build


def _imported(package: str, architecture: str) -> Any:
    try:
        importlib.import_module(package)
        return importlib.import_module("timm" if package == "timm" else "torchvision.models")
    # A torchvision that was built for another torch raises RuntimeError, or whatever its first call into C++ does.
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            raise ModelError(f"{architecture} needs {package}: pip install {package}") from error
        import torch

        raise ModelError(
            f"{architecture} needs {package}, which is installed but can't be imported ({_reason(error)}): install "
            f"versions of {package} and what it uses that are made for torch {torch.__version__}, from where torch came"
        ) from error


def _reason(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def _check_logits(architecture: str, network: Any, input_shape: tuple[int, ...], classes: int) -> None:
    """Show the network one input: many of them take images of certain sides only, and say so only then."""
    import torch

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
    actual = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if actual != (1, classes):
        raise ModelError(
            f"{architecture} gives {actual} for one input instead of (1, {classes}), one logit per class: "
            "choose another architecture"
        )


def check_architecture(name: str) -> None:
    """Refuse what can't name an architecture, without importing the package that PACKAGE:NAME names."""
    package, _, network = name.partition(":")
    if name not in ARCHITECTURES and not (package in _LISTINGS and network):
        forms = [f"{package}:NAME" for package in _LISTINGS]
        raise unknown_name("architecture", name, [*ARCHITECTURES.names(), *forms])


def builder(name: str) -> Builder:
    """The builder for a name; a PACKAGE:NAME that its package can't provide is refused here already."""
    check_architecture(name)
    package, _, network = name.partition(":")
    return _package_builder(package, network) if network else ARCHITECTURES[name]
