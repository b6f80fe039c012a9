"""Reading ONNX files: every byte that decides an answer, weights in other files included, and only harmless operators.

Operators that draw random numbers or scale a row by its batch are rejected by name.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from smoothcert.errors import DependentVotesError, ModelError
from smoothcert.extras import require

_LARGEST_MESSAGE = (1 << 31) - 1  # bytes of a protobuf


def read_model(path: Path) -> tuple[bytes, str]:
    """The model with all of its weights inside, and the SHA-256 of everything that was read for it.

    Weights in other files are looked for beside the model, never elsewhere, and are part of what is returned: whatever
    happens to the files afterwards, the hash is of the function that is evaluated.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: can't be read ({error.strerror})") from None
    digest = hashlib.sha256(content)
    if b"location" not in content:  # the key without which no weight is elsewhere
        return content, digest.hexdigest()
    onnx = require("onnx", "reading ONNX models with weights in other files")
    model = _parsed(path.name, content)
    elsewhere = [tensor for tensor in _tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if not elsewhere:
        return content, digest.hexdigest()
    files: dict[str, bytes] = {}
    for tensor in elsewhere:
        _take_in(path, tensor, files)
    for location in sorted(files):
        digest.update(hashlib.sha256(location.encode()).digest() + hashlib.sha256(files[location]).digest())
    if model.ByteSize() > _LARGEST_MESSAGE:
        raise ModelError(f"{path.name}: its weights take over 2 GiB, more than onnxruntime takes at once")
    return model.SerializeToString(), digest.hexdigest()


def _parsed(name: str, content: bytes) -> Any:
    onnx = require("onnx", "looking into ONNX models")
    try:
        return onnx.ModelProto.FromString(content)
    except Exception as error:  # protobuf's exceptions share no base class with anything
        raise ModelError(f"{name}: not a model onnxruntime can open ({error})") from None


def _take_in(path: Path, tensor: Any, files: dict[str, bytes]) -> None:
    """Replace a reference to another file by the bytes there."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if location not in files:
        files[location] = _read_beside(path, location)
    whole = files[location]
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else len(whole) - offset
    except ValueError:
        raise ModelError(f"{path.name}: weight {tensor.name} has a damaged reference to {location}") from None
    if not (0 <= offset <= offset + length <= len(whole)):
        raise ModelError(
            f"{path.name}: weight {tensor.name} is at bytes {offset} to {offset + length} of {location}, which has "
            f"{len(whole)}: the files don't belong together"
        )
    tensor.raw_data = whole[offset : offset + length]
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _read_beside(path: Path, location: str) -> bytes:
    """A file beside the model; a link may lead to where the model itself lies, and nowhere else."""
    absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor
    if not location or absolute or ".." in (*PurePosixPath(location).parts, *PureWindowsPath(location).parts):
        raise ModelError(
            f"{path.name}: takes weights from {location!r}, outside its directory, which is refused; save it with its "
            "weights inside or beside it"
        )
    file = path.parent / location
    real = file.resolve()
    if not any(real.is_relative_to(folder) for folder in (path.parent.resolve(), path.resolve().parent)):
        raise ModelError(
            f"{path.name}: its weights {location!r} are a link that leaves its directory; copy the file"
        )
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path.name}: its weights in {location} can't be read ({error.strerror}); keep that file beside the model"
        ) from None


def _tensors(message: Any) -> Iterator[Any]:
    import onnx

    for field, value in message.ListFields():
        if field.message_type is None:  # numbers and text
            continue
        for one in [value] if hasattr(value, "ListFields") else list(value):
            if isinstance(one, onnx.TensorProto):
                yield one
            else:
                yield from _tensors(one)


_STANDARD = ("", "ai.onnx")
_MICROSOFT = "com.microsoft"
_RANDOM = {
    **dict.fromkeys(_STANDARD, ("Bernoulli", "Multinomial", "RandomNormal", "RandomUniform")),
    _MICROSOFT: ("BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", "Sampling"),
}
_BY_BATCH = dict.fromkeys((*_STANDARD, _MICROSOFT), ("DynamicQuantize",))

_MOST_NODES = 1 << 20
"""Of a graph whose local functions are written out: a small file may nest them to any size."""

Operator = tuple[str, str]
"""Domain and name."""


def check_operators(model: bytes, name: str) -> set[Operator]:
    """The operators of a model; one whose operators make a row's answer depend on chance or on other rows is rejected.

    Every graph and local function is looked at once, however often it is used.
    """
    proto = _parsed(name, model)
    opsets = {one.domain: one.version for one in proto.opset_import}
    opset = next((opsets[domain] for domain in _STANDARD if domain in opsets), 0)
    bodies = {
        (function.domain, function.name): _called(name, opset, function.node, {})
        for function in proto.functions
    }
    main = _called(name, opset, proto.graph.node, _initializers(proto.graph))
    _check_size(name, main, bodies)
    return {*main, *chain.from_iterable(bodies.values())}


def _called(name: str, opset: int, nodes: Sequence[Any], constants: dict[str, bool]) -> Counter[Operator]:
    """How often each operator occurs in nodes and the graphs inside of them, once each is known to be harmless.

    ``constants``: whether tensors hold anything but zeros, by name. Messages are nested a hundred deep at most.
    """
    constants = constants | {
        node.output[0]: _truth(attribute.t)
        for node in nodes
        if node.domain in _STANDARD and node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    found: Counter[Operator] = Counter()
    for node in nodes:
        found[node.domain, node.op_type] += 1
        _check(name, opset, node, constants)
        for attribute in node.attribute:
            for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                found += _called(name, opset, graph.node, constants | _initializers(graph))
    return found


def _check(name: str, opset: int, node: Any, constants: dict[str, bool]) -> None:
    operator, standard = node.op_type, node.domain in _STANDARD
    flag = node.input[2] if standard and operator == "Dropout" and len(node.input) > 2 else ""
    if operator.startswith(_RANDOM.get(node.domain, ())) or (flag and constants.get(flag, True)):
        raise DependentVotesError(
            f"{name}: its operator {operator} draws random numbers, and votes must be functions of their rows. Export "
            "the model in eval mode (model.eval())"
        )
    if operator.startswith(_BY_BATCH.get(node.domain, ())):
        raise DependentVotesError(
            f"{name}: its operator {operator} scales a row by the whole batch, and votes must be independent. Quantise "
            "the model statically (smoothcert fit int8)"
        )
    if standard and operator == "BatchNormalization":
        training = any(one.name == "training_mode" and one.i for one in node.attribute)
        if training or (opset < 14 and sum(map(bool, node.output)) > 1):
            raise DependentVotesError(
                f"{name}: its operator {operator} is in training mode and normalises by the batch, and votes must be "
                "independent. Export the model in eval mode (model.eval())"
            )


def _check_size(name: str, main: Counter[Operator], bodies: dict[Operator, Counter[Operator]]) -> None:
    """onnxruntime writes local functions out wherever they are used: reject what that would never finish with."""
    sizes: dict[Operator, int] = {}
    waiting = set(bodies)
    while waiting:
        ready = {one for one in waiting if not waiting & bodies[one].keys()}
        if not ready:
            raise ModelError(f"{name}: its local functions call one another without end")
        for one in ready:
            sizes[one] = sum(times * sizes.get(called, 1) for called, times in bodies[one].items())
        waiting -= ready
    size = sum(times * sizes.get(called, 1) for called, times in main.items())
    if size > _MOST_NODES:
        raise ModelError(
            f"{name}: with its local functions written out it has {size:.1e} nodes, and at most {_MOST_NODES} are "
            "opened: export it without nested functions"
        )


def _initializers(graph: Any) -> dict[str, bool]:
    return {tensor.name: _truth(tensor) for tensor in graph.initializer}


def _truth(tensor: Any) -> bool:
    """Whether a tensor holds anything but zeros, as far as flags are kept: in raw_data or int32_data."""
    held = [*tensor.raw_data, *tensor.int32_data] if len(tensor.raw_data) < 64 else [1]
    return not held or any(held)
