"""Inputs as a request brings them, as JSON or an .npy file; nothing is unpickled, opened or believed."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError, SmoothcertError
from smoothcert.files import parse_json
from smoothcert.npy import read_npy
from smoothcert.perturb.columns import Columns
from smoothcert.service.pictures import TooLargeError

JSON = "application/json"
NPY = ("application/x-npy", "application/octet-stream")
PICTURES = ("image/png", "image/jpeg", "image/bmp", "image/webp", "image/tiff", "image/x-portable-pixmap")


class UnknownTypeError(SmoothcertError):
    """A body of a kind that isn't read."""


def read_body(
    content: bytes,
    kind: str,
    shape: tuple[int, ...],
    most: int,
    names: Sequence[str] = (),
    columns: Columns | None = None,
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    """The inputs of a body, each of ``shape``, and what a JSON body says beside them under these names.

    Rows of a table, which has ``columns``, may be objects.
    """
    options: dict[str, Any] = {}
    if kind == JSON:
        inputs, options = _from_json(content, shape, most, names, columns)
    elif kind in NPY:
        inputs = _from_array(_npy(content), shape)
    else:
        known = ", ".join((JSON, *NPY, *PICTURES))
        raise UnknownTypeError(f"a body may be {known}; it says that it is {kind[:80] or 'nothing'!r}")
    if not inputs:
        raise InvalidValueError("there is no input in the request")
    if len(inputs) > most:
        raise TooLargeError(f"{len(inputs)} inputs in a request, where {most} are the most")
    return inputs, options


def _from_json(
    content: bytes, shape: tuple[int, ...], most: int, names: Sequence[str], columns: Columns | None
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    _check_counts(content, shape, most, len(names), objects=1 if columns is None else 1 + most)
    try:
        body = parse_json(content.decode("utf-8"))
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)[:120]
        raise InvalidValueError(f"the body isn't JSON: {reason}") from None
    if not isinstance(body, Mapping) or "inputs" not in body:
        raise InvalidValueError('the body must be an object with "inputs", a list of arrays')
    check_names(body, ("inputs", *names))
    given = body["inputs"]
    if not isinstance(given, list):
        raise InvalidValueError('"inputs" must be a list of arrays')
    if len(given) > most:
        raise TooLargeError(f"{len(given)} inputs in a request, where {most} are the most")
    inputs = [
        _numbers(values, shape, f"input {place}")
        if columns is None or not isinstance(values, Mapping)
        else _row(values, columns, f"input {place}")
        for place, values in enumerate(given)
    ]
    return inputs, {name: body[name] for name in names if name in body}


def check_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse what isn't known, and what is given twice: nothing that a caller says is passed over in silence."""
    seen: set[str] = set()
    for name in given:
        if name not in known:
            raise InvalidValueError(f"unknown field {name[:40]!r}; there are {', '.join(known)}")
        if name in seen:
            raise InvalidValueError(f"{name} is given twice")
        seen.add(name)


def _row(given: Mapping[str, Any], columns: Columns, which: str) -> NDArray[np.float64]:
    """A row of a table by the names of its columns: every one of them, and no other."""
    check_names(given, columns.names)
    for name, value in given.items():
        if isinstance(value, list | Mapping):
            raise InvalidValueError(f"{which}: column {name!r} must hold one value")
    row = columns.rows(given)
    return np.asarray(row, dtype=np.float64)


def _check_counts(content: bytes, shape: tuple[int, ...], most: int, options: int, *, objects: int) -> None:
    """Refuse far more brackets and commas than ``most`` inputs have: parsed, an empty list takes 25 times its text."""
    lists = 1 + most * sum(math.prod(shape[:depth]) for depth in range(len(shape)))
    if content.count(b"[") > 2 * lists or content.count(b"{") > objects:
        raise InvalidValueError(
            f"the body has more lists or objects in it than {most} inputs of shape {list(shape)} have"
        )
    if content.count(b",") > 2 * most * math.prod(shape) + options:
        raise TooLargeError(
            f"the body has more numbers than {most} inputs, the most in a request, of shape {list(shape)} have"
        )


def _numbers(given: Any, shape: tuple[int, ...], which: str) -> NDArray[np.float64]:
    """Nested lists as an array, checked level by level: NumPy's own guesses (texts, objects) are never asked for."""
    flat = [given]
    for size in shape:
        if any(not isinstance(values, list) or len(values) != size for values in flat):
            raise InvalidValueError(f"{which} must be nested lists of shape {list(shape)}")
        flat = [value for values in flat for value in values]
    for number in flat:
        if type(number) not in (int, float):
            raise InvalidValueError(f"{which} must hold numbers, it has {json.dumps(number)[:40]}")
    try:
        return np.array(flat, dtype=np.float64).reshape(shape)
    except OverflowError:
        raise InvalidValueError(f"{which} holds a whole number beyond all floating-point ones") from None


def _npy(content: bytes) -> NDArray[Any]:
    try:
        array = read_npy(io.BytesIO(content), len(content))
    except ValueError as error:
        raise InvalidValueError(f"the body is not an .npy file that can be read: {error}") from None
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InvalidValueError(f"the .npy file must hold numbers of up to 64 bits, it has {array.dtype}")
    return array.astype(array.dtype.newbyteorder("="))


def _from_array(array: NDArray[Any], shape: tuple[int, ...]) -> list[NDArray[Any]]:
    if array.shape == shape:
        return [array]
    if array.ndim == len(shape) + 1 and array.shape[1:] == shape:
        return list(array)
    raise InvalidValueError(
        f"the array has shape {list(array.shape)}: inputs have {list(shape)}, and several of them one dimension more"
    )
