"""Reads pickles of plain data and numpy arrays of bytes; refuses any other before it can run anything.

Nothing of numpy itself is handed to the unpickler: the state of a dtype or an array can be forged so that
numpy reads bytes as pointers. Stand-ins take their place and only ever look at bytes and a shape.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError
from smoothcert.files import read_file

# What pickles of dicts, lists, numbers, texts and arrays are made of, in any protocol.
_PLAIN = frozenset(
    """
    PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE
    BINUNICODE8 EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS
    GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL REDUCE BUILD
    """.split()  # noqa: SIM905 - quotes around every word would hide them
)
_TUPLES = frozenset({"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"})
_MOST_TUPLES = 1000  # hashing deeper nests of them than the stack holds would end the process
_MOST_BYTES = 2**28


class PickledArray:
    """Stands for a uint8 array in what was read; ``values`` is the array."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: NDArray[np.uint8] = np.empty(0, np.uint8)

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple(shape), _PickledByteType(), fortran, bytes() | bytearray() as content):
                sides = [side for side in shape if isinstance(side, int)]
                order: Literal["C", "F"] = "F" if fortran else "C"
                self.values = np.frombuffer(content, np.uint8).reshape(sides, order=order)
            case _:
                raise ValueError("an array in it has no plain shape and content")


def load_byte_pickle(path: Path) -> object:
    """What ``path`` holds, if made of dicts, lists, numbers, bytes, text and uint8 arrays (``PickledArray``).

    Text from Python 2, which didn't tell it from bytes, comes back as bytes.
    """
    content = read_file(path, _MOST_BYTES)
    try:
        _check_opcodes(content)
        return _ByteUnpickler(content, path).load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly any exception
        raise DataError(
            f"{path}: expected a pickle of uint8 arrays, found one that is damaged or of another kind "
            f"({error}); fetch it again or use the binary version"
        ) from error


def _check_opcodes(content: bytes) -> None:
    """ValueError for a pickle that isn't of the plain kind, or that would take memory it has no bytes for.

    The unpickler trusts a stated length before it has read that much, and allocates up to the largest memo index: nine
    bytes are enough for gigabytes.
    """
    tuples = 0
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content), start=1):
        if opcode.name not in _PLAIN:
            raise ValueError(f"it uses {opcode.name}")
        if opcode.name.endswith("PUT") and isinstance(argument, int) and argument > number:
            raise ValueError(f"its {number}. step puts a value under the number {argument}")
        tuples += opcode.name in _TUPLES
        if tuples > _MOST_TUPLES:
            raise ValueError(f"it has more than {_MOST_TUPLES} tuples")


class _ByteUnpickler(pickle.Unpickler):
    def __init__(self, content: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._path = path
        self._left = 4 * len(content)  # bytes that may be made of others: a value may be used again and again

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _Admitted(self._latin1_bytes)
        admitted = _ADMITTED.get((module, name))
        if admitted is None:
            raise DataError(
                f"{self._path}: the pickle was refused: it asks for {module}.{name} and may run code; "
                "expected arrays, lists, dicts, bytes and numbers only. Use the binary version instead"
            )
        return admitted

    def _latin1_bytes(self, text: object, encoding: object) -> bytes:
        # Protocols 0 to 2 write bytes as a call of codecs.encode; other codecs could unpack a zip bomb.
        if encoding not in ("latin1", b"latin1") or not isinstance(text, str):
            raise ValueError(f"bytes in it are in codec {encoding!r}")
        self._left -= len(text)
        if self._left < 0:
            raise ValueError("it makes more bytes than it has")
        return text.encode("latin1")


class _Admitted:
    """A callable the pickle may use but, unlike a function, not set attributes of."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., object]) -> None:
        self._make = make

    def __call__(self, *args: object) -> object:
        return self._make(*args)

    def __setstate__(self, state: object) -> None:
        raise ValueError("it changes what it is read with")


class _PickledByteType:
    """Stands for the dtype uint8, whose state has nothing to tell."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


def _byte_type(code: object, *_flags: object) -> _PickledByteType:
    if code not in ("u1", b"u1"):
        raise ValueError(f"an array in it has dtype {code!r}")
    return _PickledByteType()


def _empty_array(*_ignored: object) -> PickledArray:
    return PickledArray()


def _filled_array(content: object, dtype: object, shape: object, order: object) -> PickledArray:
    array = PickledArray()
    array.__setstate__((1, shape, dtype, order == "F", content))
    return array


def _no_call(*_ignored: object) -> object:
    raise ValueError("it makes an array in an unusual way")


# numpy.core is what numpy 1 writes, numpy._core what numpy 2 does.
_ADMITTED: dict[tuple[str, str], _Admitted] = {
    ("numpy", "ndarray"): _Admitted(_no_call),
    ("numpy", "dtype"): _Admitted(_byte_type),
    ("numpy.core.multiarray", "_reconstruct"): _Admitted(_empty_array),
    ("numpy._core.multiarray", "_reconstruct"): _Admitted(_empty_array),
    ("numpy.core.numeric", "_frombuffer"): _Admitted(_filled_array),
    ("numpy._core.numeric", "_frombuffer"): _Admitted(_filled_array),
}
