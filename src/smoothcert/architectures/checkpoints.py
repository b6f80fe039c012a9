"""The checkpoints that other projects publish: pickles of an ``arch`` and a ``state_dict``, read without being run."""

from __future__ import annotations

import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeGuard

import torch
from torch import Tensor, nn

from smoothcert.architectures.base import ARCHITECTURES, check_architecture
from smoothcert.architectures.spec import CIFAR10_MEAN, CIFAR10_STD, IMAGENET_MEAN, IMAGENET_STD, ModelSpec
from smoothcert.errors import ModelError, SmoothcertError
from smoothcert.files import ALWAYS_ADMITTED, opened_file

CHECKPOINT_SUFFIXES = (".pth", ".pt", ".tar")

Normalisation: TypeAlias = Literal["standard", "centre", "none"]
"""What a model's first layer does to a channel: (x − mean) / sd, x − mean, or nothing."""

# The image side that published weights of an architecture are for, and the mean and standard deviation its
# normalisation layer had where the checkpoint doesn't hold them. (LeNet: SmoothMix has an identity there.)
_PUBLISHED: dict[str, tuple[int, tuple[float, ...] | None, tuple[float, ...] | None]] = {
    "lenet": (28, None, None),
    "cifar_resnet18": (32, CIFAR10_MEAN, CIFAR10_STD),
    "cifar_resnet18_7x7": (32, CIFAR10_MEAN, CIFAR10_STD),
    "cifar_resnet20": (32, CIFAR10_MEAN, CIFAR10_STD),
    "cifar_resnet110": (32, CIFAR10_MEAN, CIFAR10_STD),
    "wide_resnet40_2": (32, CIFAR10_MEAN, CIFAR10_STD),
    "resnet50": (224, IMAGENET_MEAN, IMAGENET_STD),
}
_STATISTICS_NAMES = (("0.means", "0.sds"), ("0.mean", "0.std"))
_STATE_KEYS = ("state_dict", "net")

_ALWAYS_STATED = 2**24  # counters of steps and the like, which are no sizes
_LEADING_PICKLES = 5  # magic number, version, machine, the object, the names of its storages


def read_checkpoint(
    source: Path,
    architecture: str | None,
    input_shape: tuple[int, ...] | None,
    trust_pickle: bool,
    normalisation: Normalisation | None,
) -> tuple[ModelSpec, dict[str, Tensor]]:
    """The spec that a checkpoint implies, and its weights; ``load_model`` says what the arguments mean."""
    if not trust_pickle:
        _check_claims(source)
    payload = _unpickle(source, trust_pickle)
    state: object = payload.state_dict() if isinstance(payload, nn.Module) else payload
    if isinstance(payload, Mapping):
        architecture = architecture or payload.get("arch")
        state = next((payload[key] for key in _STATE_KEYS if key in payload), payload)
    if not _is_state(state):
        raise ModelError(f"{source} holds no weights: expected a state_dict, or one with 'arch'")
    # A tensor may repeat one number as often as it says, and becomes as large when it is used.
    claimed = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    most = max(ALWAYS_ADMITTED, 2 * source.stat().st_size)
    if claimed > most or any(tensor.layout != torch.strided for tensor in state.values()):
        raise ModelError(f"{source} claims {claimed} bytes of weights, more than it has: damaged or hostile")
    if not isinstance(architecture, str):
        raise ModelError(f"{source} names no architecture=: give one of {', '.join(ARCHITECTURES)}")
    if architecture not in ARCHITECTURES and architecture.lower() in ARCHITECTURES:
        architecture = architecture.lower()
    try:
        check_architecture(architecture)
    except SmoothcertError as error:
        raise ModelError(f"{source}: {error}") from error
    return _interpret_state(source, state, architecture, input_shape, normalisation)


def whole_module(source: Path) -> nn.Module | None:
    """The module of a trusted file that holds a whole one (``torch.save(model, …)``), in eval mode; None of weights."""
    payload = _unpickle(source, trust_pickle=True) if source.is_file() else None
    return payload.eval() if isinstance(payload, nn.Module) else None


def _is_state(value: object) -> TypeGuard[Mapping[str, Tensor]]:
    if not isinstance(value, Mapping) or not value:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items())


def _interpret_state(
    source: Path,
    published: Mapping[str, Tensor],
    architecture: str,
    input_shape: tuple[int, ...] | None,
    normalisation: Normalisation | None,
) -> tuple[ModelSpec, dict[str, Tensor]]:
    """The spec that published weights imply, and the weights under the names ``build`` gives them."""
    # DataParallel adds a "module" wherever it wraps; training in half precision saves half precision.
    state = {
        ".".join(part for part in name.split(".") if part != "module"): tensor
        for name, tensor in published.items()
    }
    state = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    alone = not any(name.startswith("1.") for name in state)
    if alone:  # a network by itself, not Sequential(normalisation, network)
        state = {f"1.{name}": tensor for name, tensor in state.items()}
    side, mean, std = _PUBLISHED.get(architecture, (None, None, None))
    held = next((names for names in _STATISTICS_NAMES if all(name in state for name in names)), None)
    assumed = None
    if held is not None:
        if normalisation is not None:
            raise ModelError(f"{source} holds its mean and standard deviation: leave normalisation out")
        mean, std = (tuple(state.pop(name).flatten().tolist()) for name in held)
    elif (wanted := normalisation or ("none" if alone else "standard")) == "none":
        mean = std = None  # so in a network that stands alone, unless the caller knows better
    elif wanted == "centre":
        if mean is None:
            raise ModelError(f"{source}: {architecture} has no customary mean for normalisation 'centre'")
        std = (1.0,) * len(mean)
    else:
        if normalisation is None and mean is not None:
            assumed = (
                f"{source} doesn't say how its first layer normalises: (x − mean) / sd was assumed, with mean {mean} "
                f"and sd {std}. Salman et al.'s models subtract the mean only: --normalisation centre"
            )
    linear = [tensor for tensor in state.values() if tensor.ndim == 2]
    if not linear:
        raise ModelError(f"{source} doesn't hold weights of {architecture}: is it of another architecture?")
    if input_shape is None:
        first = state.get("1.conv1.weight")
        if side is None or first is None or first.ndim != 4:
            raise ModelError(
                f"{source} doesn't show the shape of {architecture}'s inputs: give "
                "input_shape=(channels, height, width), or the right architecture"
            )
        input_shape = (first.shape[1], side, side)
    classes = tuple(str(label) for label in range(len(linear[-1])))
    try:
        return ModelSpec(architecture, input_shape, classes, mean, std, assumed), state
    except SmoothcertError as error:
        raise ModelError(f"{source}: {error}") from error


def load_tensors(path: Path) -> Any:
    """What a checkpoint in our own format holds, trusted or not: tensors and plain values. No code in it is run."""
    with opened_file(path, links=False):
        _check_claims(path)
        return torch.load(path, map_location="cpu", weights_only=True)


def _check_claims(source: Path) -> None:
    """Refuse a checkpoint that claims more bytes than it has, before room is made for them."""
    size = source.stat().st_size
    try:
        if zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as archive:
                claimed = sum(member.file_size for member in archive.infolist())
                packed = any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist())
        else:
            claimed, packed = _largest_number(source), False
    except (ValueError, OSError, zipfile.BadZipFile, NotImplementedError):
        return  # whatever it is, the loader says so
    if packed or claimed > max(size, _ALWAYS_STATED):
        raise ModelError(
            f"{source} claims {claimed} bytes of weights but has {size}, or packs them as no checkpoint does: it is "
            "cut short, damaged or hostile; fetch it again"
        )


def _largest_number(source: Path) -> int:
    """Of the pickles that a checkpoint of PyTorch before 1.6 begins with: the sizes of its tensors are among them."""
    largest = 0
    with source.open("rb") as file:
        for place in range(_LEADING_PICKLES):
            for _, argument, _ in pickletools.genops(file):
                if isinstance(argument, int) and place:  # the first is a magic number, and large
                    largest = max(largest, argument)
    return largest


def _unpickle(source: Path, trust_pickle: bool) -> object:
    try:
        with warnings.catch_warnings():
            # About old pickle protocols; what matters of them becomes an error below.
            warnings.simplefilter("ignore")
            return torch.load(source, map_location="cpu", weights_only=not trust_pickle)
    # A damaged or hostile pickle can raise anything at all.
    except Exception as error:
        if trust_pickle and isinstance(error, ImportError | AttributeError):
            raise ModelError(
                f"{source} needs a class that can't be imported ({error}): run from the folder that holds its module; "
                "a class of a script (__main__) must move into a module, and the file be saved again"
            ) from error
        forbidden = re.search(r"GLOBAL (\S+)", str(error))
        refused = not trust_pickle and isinstance(error, pickle.UnpicklingError)
        if refused and (forbidden or zipfile.is_zipfile(source)):
            reason = f"it holds {forbidden[1]}" if forbidden else "its pickle is not of the plain kind"
            raise ModelError(
                f"{source} can only be loaded by running code that the file chooses ({reason}), "
                "so it was not loaded. If you trust where it comes from: trust_pickle=True, or "
                "--trust-pickle on the command line"
            ) from error
        raise ModelError(
            f"{source} can't be read as a checkpoint, it is cut short, damaged or something else "
            f"({type(error).__name__}): fetch it again"
        ) from error
