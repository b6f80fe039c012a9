from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from smoothcert.datasets.idx import read_idx
from smoothcert.errors import DataError

from .files import idx_bytes

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("name", ["images", "images.gz"])
@pytest.mark.parametrize("gzipped", [True, False])
def test_reads_plain_and_gzipped_whatever_the_name(tmp_path: Path, name: str, gzipped: bool) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(idx_bytes(IMAGES)) if gzipped else idx_bytes(IMAGES))
    np.testing.assert_array_equal(read_idx(path, dimensions=3), IMAGES)


@pytest.mark.parametrize("gzipped", [True, False])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "first bytes 00000803.*found first bytes none"),
        (idx_bytes(IMAGES[0]), "first bytes 00000803.*found first bytes 00000802"),
        (b"\0\0\x0d\x03" + idx_bytes(IMAGES)[4:], "found first bytes 00000d03"),
        (b"<html>not found</html>", "found first bytes 3c68746d"),
        (idx_bytes(IMAGES)[:9], "expected a header of 16 bytes, found 9"),
        (idx_bytes(IMAGES)[:-1], r"expected 24 bytes of values for shape \(2, 3, 4\), found 23"),
        (idx_bytes(IMAGES) + b"\0", "expected 24 bytes .* found more"),
        (b"\0\0\x08\x03" + struct.pack(">3I", *[2**32 - 1] * 3) + b"\0", "are the most"),
    ],
)
def test_wrong_contents_are_named(tmp_path: Path, content: bytes, message: str, gzipped: bool) -> None:
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(content) if gzipped else content)
    with pytest.raises(DataError, match=f"images: .*{message}"):
        read_idx(path, dimensions=3)


@pytest.mark.parametrize("kept", [2, 5, 15, 40, -8, -1])
def test_truncated_gzip_is_refused(tmp_path: Path, kept: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx_bytes(noise))[:kept])
    with pytest.raises(DataError, match=r"images\.gz: expected a whole gzip file, found a truncated"):
        read_idx(path, dimensions=3)


@pytest.mark.parametrize("position", [2, 15, -6])
def test_damaged_gzip_is_refused(tmp_path: Path, position: int) -> None:
    content = bytearray(gzip.compress(idx_bytes(IMAGES)))
    content[position % len(content)] ^= 0xFF
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"images\.gz: "):
        read_idx(path, dimensions=3)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent: can't be read"):
        read_idx(tmp_path / "absent", dimensions=1)
