"""Every byte that decides an ONNX model's answers: the file itself, and the weights that it keeps in others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from smoothcert.errors import ModelError
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
    try:
        model = onnx.ModelProto.FromString(content)
    except Exception as error:  # protobuf's exceptions share no base class with anything
        raise ModelError(f"{path.name}: not a model onnxruntime can open ({error})") from None
    elsewhere = [tensor for tensor in _tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if not elsewhere:
        return content, digest.hexdigest()
    files: dict[str, bytes] = {}
    for tensor in elsewhere:
        _take_in(path, tensor, files)
    for location in sorted(files):
        digest.update(hashlib.sha256(location.encode()).digest() + hashlib.sha256(files[location]).digest())
    if model.ByteSize() > _LARGEST_MESSAGE:
        raise ModelError(
            f"{path.name}: its weights take more than 2 GiB, which onnxruntime can't be given at once"
        )
    return model.SerializeToString(), digest.hexdigest()


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
            f"{path.name}: takes weights from {location!r}, a link that leaves its directory; copy the file"
        )
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path.name}: its weights in {location} can't be read ({error.strerror}); keep that file beside the model"
        ) from None


def _tensors(message: Any) -> Iterator[Any]:
    """Every tensor of a model, wherever it is: initializers, attributes, subgraphs, functions."""
    import onnx

    for field, value in message.ListFields():
        if field.message_type is None:  # numbers and text
            continue
        for one in [value] if hasattr(value, "ListFields") else list(value):
            if isinstance(one, onnx.TensorProto):
                yield one
            else:
                yield from _tensors(one)
