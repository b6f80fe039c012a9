"""Models on disk: our own safetensors + JSON, and the checkpoints other projects publish.

Our own format is two files: ``model.safetensors`` with the weights, and ``model.json`` with the spec, a
format version and the SHA-256 of the weights, so that one file can't be swapped without the other, and a checksum of
itself: a flipped bit in either is noticed. Earlier versions wrote no checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from smoothcert.architectures.base import ARCHITECTURES
from smoothcert.architectures.lookup import check_architecture
from smoothcert.architectures.spec import ModelSpec, build, initialise
from smoothcert.architectures.statistics import CIFAR10_MEAN, CIFAR10_STD, IMAGENET_MEAN, IMAGENET_STD
from smoothcert.checksums import sealed, unsealed
from smoothcert.errors import DataError, ModelError, OutputError, SmoothcertError
from smoothcert.files import ALWAYS_ADMITTED, MOST_TEXT, opened_file, parse_json, read_file, write_atomically

FORMAT_VERSION = 1
WEIGHTS_NAME = "model.safetensors"
CHECKPOINT_SUFFIXES = (".pth", ".pt", ".tar")

# The image side that published weights of an architecture are for, and the mean and standard deviation its
# normalisation layer had where the checkpoint doesn't hold them. (LeNet: SmoothMix has an identity there.)
_PUBLISHED: dict[str, tuple[int, tuple[float, ...] | None, tuple[float, ...] | None]] = {
    "lenet": (28, None, None),
    "cifar_resnet18": (32, CIFAR10_MEAN, CIFAR10_STD),
    "cifar_resnet18_7x7": (32, CIFAR10_MEAN, CIFAR10_STD),
    "cifar_resnet20": (32, CIFAR10_MEAN, CIFAR10_STD),
    "cifar_resnet110": (32, CIFAR10_MEAN, CIFAR10_STD),
    "resnet50": (224, IMAGENET_MEAN, IMAGENET_STD),
}
_STATISTICS_NAMES = (("0.means", "0.sds"), ("0.mean", "0.std"))
_STATE_KEYS = ("state_dict", "net")

_MOST_WEIGHTS = 2**36
_ALWAYS_STATED = 2**24  # counters of steps and the like, which are no sizes
_LEADING_PICKLES = 5  # magic number, version, machine, the object, the names of its storages


def save_model(model: nn.Module, spec: ModelSpec, path: str | os.PathLike[str]) -> Path:
    """Write the weights and, beside them, the JSON file; returns where the weights are.

    ``path`` is a directory (made if need be) or a file name ending in .safetensors. Each file is replaced
    in one step; a crash between the two leaves a pair whose hashes differ, which ``load_model`` refuses.
    """
    target = Path(path)
    if target.suffix != ".safetensors":
        target = target / WEIGHTS_NAME
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    _check_state(_expected_state(spec), state, "the model to save", "save it with the spec it was built from")
    weights = safetensors.torch.save(state)
    description = {
        "format_version": FORMAT_VERSION,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "spec": spec.to_json(),
    }
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{target.parent} can't be made: {error.strerror or error}") from error
    write_atomically(target, weights)
    write_atomically(target.with_suffix(".json"), (json.dumps(sealed(description), indent=2) + "\n").encode())
    return target


def load_model(
    path: str | os.PathLike[str],
    *,
    architecture: str | None = None,
    input_shape: tuple[int, ...] | None = None,
    trust_pickle: bool = False,
) -> tuple[nn.Module, ModelSpec]:
    """The model at ``path``, in eval mode on the CPU, and its spec.

    ``path`` is a directory or .safetensors file that ``save_model`` wrote, or a published checkpoint
    (.pth, .pt, .tar) with an ``arch`` and a ``state_dict``. ``architecture`` and ``input_shape`` are for
    checkpoints that don't say or imply them. ``trust_pickle`` lets a checkpoint run code of its own.
    """
    source = Path(path)
    if source.is_dir():
        source = source / WEIGHTS_NAME
        if not source.is_file():
            raise ModelError(
                f"{source.parent} has no {WEIGHTS_NAME}: name a directory save_model wrote, or a file"
            )
    elif not source.is_file():
        raise ModelError(f"{source} doesn't exist: check the path")
    if source.suffix == ".safetensors":
        spec, state = _read_saved(source)
        _check_agreement(source, "architecture", spec.architecture, architecture)
        _check_agreement(source, "input_shape", spec.input_shape, input_shape)
    elif source.suffix in CHECKPOINT_SUFFIXES:
        spec, state = _read_checkpoint(source, architecture, input_shape, trust_pickle)
    else:
        raise ModelError(
            f"{source} is not a model file: expected .safetensors or {', '.join(CHECKPOINT_SUFFIXES)}"
        )
    remedy = "is it of another architecture or input shape?"
    try:
        # Before memory is taken for it: a description of a few bytes can ask for a network of any size.
        if spec.architecture in ARCHITECTURES:
            _check_state(_expected_state(spec), state, str(source), remedy)
        model = initialise(spec, seed=0)
        _check_state(model.state_dict(), state, str(source), remedy)
    except (SmoothcertError, RuntimeError, TypeError, ValueError, OverflowError) as error:
        text = str(error)
        raise ModelError(text if text.startswith(str(source)) else f"{source}: {text}") from error
    model.load_state_dict(state)
    return model.eval(), spec


def _expected_state(spec: ModelSpec) -> Mapping[str, Tensor]:
    """Names, shapes and types of the weights of the spec's model; their values mean nothing."""
    if spec.architecture in ARCHITECTURES:
        with torch.device("meta"):
            return build(spec).state_dict()
    # Other packages may look at values while they build, and on the meta device there are none.
    return initialise(spec, seed=0).state_dict()


def _read(path: Path, most: int = MOST_TEXT) -> bytes:
    try:
        return read_file(path, most)
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror or error}") from error
    except DataError as error:
        raise ModelError(str(error)) from None


def _read_saved(weights_path: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    json_path = weights_path.with_suffix(".json")
    if not json_path.is_file():
        raise ModelError(
            f"{weights_path} has no {json_path.name} beside it: copy both files that save_model wrote"
        )
    try:
        description = parse_json(_read(json_path))
    except ValueError as error:
        raise ModelError(
            f"{json_path} is not JSON ({error}): copy it again or save the model again"
        ) from error
    if not isinstance(description, dict) or not isinstance(description.get("spec"), dict):
        raise ModelError(f"{json_path} doesn't describe a model: save the model again with save_model")
    if description.get("format_version") != FORMAT_VERSION:
        raise ModelError(
            f"{json_path} has format_version {description.get('format_version')!r}, this smoothcert reads "
            f"{FORMAT_VERSION}: install the version that wrote it, or save the model again"
        )
    try:
        unsealed(description)
    except ValueError as error:
        raise ModelError(f"{json_path} is damaged ({error}): copy it again or save the model again") from None
    weights = _read(weights_path, _MOST_WEIGHTS)
    digest = hashlib.sha256(weights).hexdigest()
    if digest != description.get("weights_sha256"):
        raise ModelError(
            f"{weights_path} has SHA-256 {digest} but {json_path.name} says "
            f"{description.get('weights_sha256')}: it is cut short, damaged or another's; copy both again"
        )
    try:
        return ModelSpec.from_json(description["spec"]), safetensors.torch.load(weights)
    except SmoothcertError as error:
        raise ModelError(f"{json_path}: {error}") from error
    except safetensors.SafetensorError as error:
        raise ModelError(
            f"{weights_path} is not a safetensors file ({error}): save the model again"
        ) from error


def _check_agreement(source: Path, name: str, found: object, asked: object) -> None:
    if asked is not None and asked != found:
        raise ModelError(f"{source} has {name} {found!r}, not {asked!r}: leave {name} out, the file knows it")


def _check_state(expected: Mapping[str, Tensor], given: Mapping[str, Tensor], what: str, remedy: str) -> None:
    """Refuse weights whose names, shapes or types aren't the model's, naming the first few."""
    # PyTorch before 0.4.1 kept no batch counters; they only matter to training without momentum.
    missing = [n for n in expected if n not in given and not n.endswith("num_batches_tracked")]
    different = [
        f"{name} is {_form(given[name])} where the model has {_form(tensor)}"
        for name, tensor in expected.items()
        if name in given and _form(given[name]) != _form(tensor)
    ]
    problems = [f"missing {name}" for name in missing] + different
    problems += [f"unexpected {name}" for name in given if name not in expected]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise ModelError(f"{what} has the wrong weights ({'; '.join(problems[:3])}{more}): {remedy}")


def _form(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _read_checkpoint(
    source: Path, architecture: str | None, input_shape: tuple[int, ...] | None, trust_pickle: bool
) -> tuple[ModelSpec, dict[str, Tensor]]:
    if not trust_pickle:
        _check_claims(source)
    payload = _unpickle(source, trust_pickle)
    state: object = payload.state_dict() if isinstance(payload, nn.Module) else payload
    if isinstance(payload, Mapping):
        architecture = architecture or payload.get("arch")
        state = next((payload[key] for key in _STATE_KEYS if key in payload), payload)
    if not _is_state(state):
        raise ModelError(
            f"{source} holds no weights: expected a state_dict, or a dict with 'arch' and 'state_dict'"
        )
    # A tensor may repeat one number as often as it says, and becomes as large when it is used.
    claimed = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    if any(tensor.layout != torch.strided for tensor in state.values()) or claimed > max(
        ALWAYS_ADMITTED, 2 * source.stat().st_size
    ):
        raise ModelError(
            f"{source} claims {claimed} bytes of weights, far more than it holds: it is damaged or hostile"
        )
    if not isinstance(architecture, str):
        raise ModelError(
            f"{source} doesn't name its architecture: give architecture=, one of {', '.join(ARCHITECTURES)}"
        )
    if architecture not in ARCHITECTURES and architecture.lower() in ARCHITECTURES:
        architecture = architecture.lower()
    try:
        check_architecture(architecture)
    except SmoothcertError as error:
        raise ModelError(f"{source}: {error}") from error
    return _interpret_state(source, state, architecture, input_shape)


def _is_state(value: object) -> TypeGuard[Mapping[str, Tensor]]:
    if not isinstance(value, Mapping) or not value:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items())


def _interpret_state(
    source: Path, published: Mapping[str, Tensor], architecture: str, input_shape: tuple[int, ...] | None
) -> tuple[ModelSpec, dict[str, Tensor]]:
    """The spec that published weights imply, and the weights under the names ``build`` gives them."""
    state = {
        # DataParallel adds a "module" wherever it wraps; training in half precision saves half precision.
        ".".join(part for part in name.split(".") if part != "module"): (
            tensor.float() if tensor.is_floating_point() else tensor
        )
        for name, tensor in published.items()
    }
    side, mean, std = _PUBLISHED.get(architecture, (None, None, None))
    if any(name.startswith("1.") for name in state):
        for mean_name, std_name in _STATISTICS_NAMES:
            if mean_name in state and std_name in state:
                mean = tuple(state.pop(mean_name).flatten().tolist())
                std = tuple(state.pop(std_name).flatten().tolist())
    else:
        # A network by itself, not Sequential(normalisation, network): nothing was normalised in the model.
        state, mean, std = {f"1.{name}": tensor for name, tensor in state.items()}, None, None
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
        return ModelSpec(architecture, input_shape, classes, mean, std), state
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
                claimed = sum(one.file_size for one in archive.infolist())
                packed = any(one.compress_type != zipfile.ZIP_STORED for one in archive.infolist())
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
