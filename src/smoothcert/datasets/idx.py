"""Strict reader of idx files of unsigned bytes, the format MNIST is published in, gzipped or plain."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError
from smoothcert.files import check_expansion, opened_file

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08
_CHUNK = 1 << 20

MOST_VALUES = 2**30
"""A million images of MNIST's size: more than any published file of the format has."""


def read_idx(path: Path, dimensions: int, most: int = MOST_VALUES) -> NDArray[np.uint8]:
    """The array in ``path``, which must hold unsigned bytes in exactly ``dimensions`` dimensions, ``most`` at most.

    The first bytes tell whether the file is gzipped, since browsers unpack downloads and keep the name.
    """
    try:
        with opened_file(path) as raw:
            zipped = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            if not zipped:
                return _parse(raw, path, dimensions, most)
            with gzip.open(raw) as unzipped:
                return _parse(cast(BinaryIO, unzipped), path, dimensions, most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: expected a whole gzip file, found a truncated or damaged one ({error}); fetch it again"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror or error})") from error


def _parse(stream: BinaryIO, path: Path, dimensions: int, most: int) -> NDArray[np.uint8]:
    expected_magic = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    magic = _read_at_most(stream, 4)
    if magic != expected_magic:
        raise DataError(
            f"{path}: expected an idx file of unsigned bytes in {dimensions} dimension(s) "
            f"(first bytes {expected_magic.hex()}), found first bytes {magic.hex() or 'none'}"
        )
    header = _read_at_most(stream, 4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DataError(f"{path}: expected a header of {4 + 4 * dimensions} bytes, found {4 + len(header)}")
    shape = struct.unpack(f">{dimensions}I", header)
    expected = math.prod(shape)
    if expected > most:
        raise DataError(
            f"{path}: its header claims {expected} values of shape {shape}, where {most} are the most"
        )
    check_expansion(str(path), expected, path.stat().st_size)
    body = _read_at_most(stream, expected + 1)
    if len(body) != expected:
        found = "more" if len(body) > expected else str(len(body))
        raise DataError(f"{path}: expected {expected} bytes of values for shape {shape}, found {found}")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _read_at_most(stream: BinaryIO, limit: int) -> bytes:
    # In chunks, because one read() reserves all it is asked for, and a damaged header may ask for terabytes.
    parts: list[bytes] = []
    while limit > 0 and (part := stream.read(min(limit, _CHUNK))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)
