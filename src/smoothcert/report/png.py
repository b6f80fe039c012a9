"""PNG: grey and colour pictures as data URIs, without a package."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 3: 2}


def encode_png(picture: NDArray[np.uint8]) -> bytes:
    """An H×W (grey) or H×W×3 (colour) picture of bytes as a PNG file."""
    pixels = picture[:, :, np.newaxis] if picture.ndim == 2 else picture
    if (
        pixels.dtype != np.uint8
        or pixels.ndim != 3
        or pixels.shape[2] not in _COLOUR_TYPES
        or not pixels.size
    ):
        raise InvalidValueError(
            f"a PNG is made of H×W or H×W×3 bytes, got {picture.dtype} of shape {picture.shape}"
        )
    height, width, channels = pixels.shape
    # Every row begins with the number of its filter; 0 is none.
    rows = np.zeros((height, 1 + width * channels), dtype=np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)


def png_uri(picture: NDArray[np.uint8]) -> str:
    """The picture as a ``data:`` address."""
    return "data:image/png;base64," + base64.b64encode(encode_png(picture)).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
