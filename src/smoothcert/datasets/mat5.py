"""Strict reader of the plain numbers in a MATLAB file of version 5, compressed or not.

scipy has a reader too, but a damaged file can crash the interpreter in it instead of raising an error.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError
from smoothcert.files import check_expansion, read_file

_HEADER = 128
_VERSION_AND_ORDER = b"\x00\x01IM"  # version 1.0 of the format, little-endian
_MATRIX, _COMPRESSED = 14, 15
_INT8, _INT32, _UINT32 = 1, 5, 6
_COMPLEX = 0x0800

MOST_BYTES = 2**29
"""Of a file, and of a variable in it: 170 thousand images of SVHN's size, where its train split has 73 thousand."""

_STORED_AS = {
    1: "<i1",
    2: "<u1",
    3: "<i2",
    4: "<u2",
    5: "<i4",
    6: "<u4",
    7: "<f4",
    9: "<f8",
    12: "<i8",
    13: "<u8",
}
_CLASSES = {
    6: np.float64,
    7: np.float32,
    8: np.int8,
    9: np.uint8,
    10: np.int16,
    11: np.uint16,
    12: np.int32,
    13: np.uint32,
    14: np.int64,
    15: np.uint64,
}


class _Element(NamedTuple):
    kind: int
    content: memoryview


class _DamagedError(ValueError):
    pass


def read_mat5(path: Path) -> dict[str, NDArray[Any] | None]:
    """The variables of ``path`` by name; None for those that aren't arrays of real numbers."""
    content = memoryview(read_file(path, MOST_BYTES))
    if len(content) < _HEADER or content[124:_HEADER] != _VERSION_AND_ORDER:
        raise DataError(
            f"{path}: expected a little-endian MATLAB file of version 5, found a file of {len(content)} bytes "
            f"whose header ends in {content[124:_HEADER].hex() or 'nothing'}, "
            f"not {_VERSION_AND_ORDER.hex()}; fetch it again, or save it with -v7"
        )
    try:
        return dict(_variable(element) for element in _elements(content[_HEADER:]))
    except (_DamagedError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: expected a whole MATLAB file of version 5, found a truncated or damaged one ({error}); "
            "fetch it again"
        ) from error


def _elements(content: memoryview) -> Iterator[_Element]:
    while content:
        if len(content) < 8:
            raise _DamagedError(f"{len(content)} bytes where the next element should begin")
        kind, size = struct.unpack("<II", content[:8])
        start = 8
        if kind >> 16:  # a small element: its size and up to four bytes of content lie within the tag
            kind, size, start = kind & 0xFFFF, kind >> 16, 4
        # A compressed element is the only one that isn't padded.
        end = start + size if kind == _COMPRESSED else (start + size + 7) // 8 * 8
        if end > len(content) or (start == 4 and size > 4):
            raise _DamagedError(f"an element of {size} bytes where {len(content) - start} are left")
        yield _Element(kind, content[start : start + size])
        content = content[end:]


def _variable(element: _Element) -> tuple[str, NDArray[Any] | None]:
    if element.kind == _COMPRESSED:
        inflated = _inflated(element.content)
        inner = list(_elements(memoryview(inflated)))
        if len(inner) != 1:
            raise _DamagedError(f"{len(inner)} variables in one compressed element")
        element = inner[0]
    if element.kind != _MATRIX:
        raise _DamagedError(f"an element of type {element.kind} in place of a variable")
    parts = _elements(element.content)
    flags, shape, name = (_part(parts, kind) for kind in (_UINT32, _INT32, _INT8))
    if len(flags) != 8 or len(shape) % 4:
        raise _DamagedError("a variable without its type and shape")
    array_class = flags[0]
    (bits,) = struct.unpack("<I", flags[:4])
    text = bytes(name).decode("ascii")
    if array_class not in _CLASSES or bits & _COMPLEX:
        return text, None
    return text, _array(parts, np.frombuffer(shape, "<i4").tolist()).astype(_CLASSES[array_class], copy=False)


def _inflated(content: memoryview) -> bytes:
    """What the first eight bytes of a compressed element say is in it, and no more: it may expand a thousandfold."""
    inflater = zlib.decompressobj()  # its checksum covers the content
    tag = inflater.decompress(content, 8)
    if len(tag) < 8:
        raise _DamagedError("a compressed element without its end")
    kind, size = struct.unpack("<II", tag)
    if kind != _MATRIX or size > MOST_BYTES:
        raise _DamagedError(
            f"a compressed element of type {kind} that claims {size} bytes, where {MOST_BYTES} are the most"
        )
    check_expansion("a variable of the MATLAB file", size, len(content))
    rest = inflater.decompress(inflater.unconsumed_tail, size + 8)
    if not inflater.eof and not inflater.decompress(inflater.unconsumed_tail, 1) and not inflater.eof:
        raise _DamagedError("a compressed element without its end")
    return tag + rest


def _part(parts: Iterator[_Element], kind: int) -> memoryview:
    element = next(parts, None)
    if element is None or element.kind != kind:
        found = "none" if element is None else f"type {element.kind}"
        raise _DamagedError(f"{found} in place of a part of type {kind} of a variable")
    return element.content


def _array(parts: Iterator[_Element], shape: list[int]) -> NDArray[Any]:
    values = next(parts, None)
    if values is None or values.kind not in _STORED_AS:
        raise _DamagedError("a variable without its values")
    dtype = np.dtype(_STORED_AS[values.kind])
    if min(shape, default=-1) < 0 or math.prod(shape) * dtype.itemsize != len(values.content):
        raise _DamagedError(f"{len(values.content)} bytes of values for {dtype} of shape {tuple(shape)}")
    return np.frombuffer(values.content, dtype).reshape(shape, order="F")
