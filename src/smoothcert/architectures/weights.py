"""Models on disk: our own safetensors + JSON, and the checkpoints other projects publish.

Our own format is two files: ``model.safetensors`` with the weights, and ``model.json`` with the spec, a
format version and the SHA-256 of the weights, so that one file can't be swapped without the other, and a checksum of
itself: a flipped bit in either is noticed. Earlier versions wrote no checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from smoothcert.architectures.base import ARCHITECTURES, WEIGHTS_NAME
from smoothcert.architectures.checkpoints import CHECKPOINT_SUFFIXES, Normalisation, read_checkpoint
from smoothcert.architectures.spec import ModelSpec, build, initialise
from smoothcert.errors import DataError, ModelError, OutputError, SmoothcertError
from smoothcert.files import MOST_TEXT, parse_json, read_file, sealed, unsealed, write_atomically

FORMAT_VERSION = 1

_MOST_WEIGHTS = 2**36


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
    normalisation: Normalisation | None = None,
) -> tuple[nn.Module, ModelSpec]:
    """The model at ``path``, in eval mode on the CPU, and its spec.

    ``path`` is a directory or .safetensors file that ``save_model`` wrote, or a published checkpoint
    (.pth, .pt, .tar) with an ``arch`` and a ``state_dict``. ``architecture`` and ``input_shape`` are for
    checkpoints that don't say or imply them. ``trust_pickle`` lets a checkpoint run code of its own. ``normalisation``
    is what a checkpoint's first layer did where the file doesn't hold it: by default (x − mean) / sd, as in Cohen et
    al.'s models, and nothing where the network stands alone; "centre" is Salman et al.'s.
    """
    source = Path(path)
    if source.is_dir():
        source = source / WEIGHTS_NAME
        if not source.is_file():
            raise _no_weights(source.parent)
    elif not source.is_file():
        raise ModelError(f"{source} doesn't exist: check the path")
    if source.suffix == ".safetensors":
        spec, state = _read_saved(source)
        _check_agreement(source, "architecture", spec.architecture, architecture)
        _check_agreement(source, "input_shape", spec.input_shape, input_shape)
        if normalisation is not None:
            raise ModelError(f"{source} says how it normalises: leave normalisation out")
    elif source.suffix in CHECKPOINT_SUFFIXES:
        spec, state = read_checkpoint(source, architecture, input_shape, trust_pickle, normalisation)
    else:
        raise ModelError(f"{source} isn't a model: expected .safetensors, {', '.join(CHECKPOINT_SUFFIXES)}")
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


def _no_weights(directory: Path) -> ModelError:
    """Why there is nothing to load: by the statement of a run, which says of which kind it is."""
    kind = next(filter(None, map(_kind_of, sorted(directory.glob("*.json")))), None)
    if kind == "train":
        # Training ends by writing weights and description: where this one is left, those were lost.
        lost = (directory / WEIGHTS_NAME).with_suffix(".json").exists()
        unfinished = f"that isn't finished: it has no {WEIGHTS_NAME} yet"
        state = f"whose {WEIGHTS_NAME} is missing" if lost else unfinished
        return ModelError(
            f"{directory} is a training {state}; give its train command again, which goes on from the last checkpoint"
        )
    if kind in ("certify", "import"):
        return ModelError(f"{directory} is a certified run and no model: name the model itself")
    return ModelError(f"{directory} has no {WEIGHTS_NAME}: name a directory save_model wrote, or a file")


def _kind_of(path: Path) -> str | None:
    try:
        stated = parse_json(read_file(path, MOST_TEXT, links=False))
    except (OSError, DataError, ValueError):
        return None
    kind = stated.get("kind") if isinstance(stated, dict) and "plan" in stated else None
    return kind if isinstance(kind, str) else None


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
        raise ModelError(f"{weights_path} has no {json_path.name} beside it: copy both files of save_model")
    try:
        description = parse_json(_read(json_path))
    except ValueError as error:
        raise ModelError(f"{json_path} is not JSON ({error}): copy it or save the model again") from error
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
        raise ModelError(f"{weights_path} is not safetensors ({error}): save the model again") from error


def _check_agreement(source: Path, name: str, stated: object, asked: object) -> None:
    if asked is not None and asked != stated:
        raise ModelError(f"{source} has {name} {stated!r}, not {asked!r}: leave {name} out")


def _check_state(expected: Mapping[str, Tensor], given: Mapping[str, Tensor], what: str, remedy: str) -> None:
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
