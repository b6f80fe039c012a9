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
    ("content", "named"),
    [
        (b"", "00000803"),
        (idx_bytes(IMAGES[0]), "00000803.*00000802"),
        (b"\0\0\x0d\x03" + idx_bytes(IMAGES)[4:], "00000803.*00000d03"),
        (b"<html>not found</html>", "00000803.*3c68746d"),
        (idx_bytes(IMAGES)[:9], r"\b16\b.*\b9\b"),
        (idx_bytes(IMAGES)[:-1], r"\b24\b.*\(2, 3, 4\).*\b23\b"),
        (idx_bytes(IMAGES) + b"\0", r"\b24\b.*\(2, 3, 4\)"),
        (b"\0\0\x08\x03" + struct.pack(">3I", *[2**32 - 1] * 3) + b"\0", rf"{(2**32 - 1) ** 3}.*{2**30}"),
    ],
    ids=["empty", "dimensions", "type", "page", "header", "too short", "too long", "too large"],
)
def test_wrong_contents_are_named(tmp_path: Path, content: bytes, named: str, gzipped: bool) -> None:
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(content) if gzipped else content)
    with pytest.raises(DataError, match=f"images: .*{named}"):
        read_idx(path, dimensions=3)


@pytest.mark.parametrize("kept", [2, 5, 15, 40, -8, -1])
def test_truncated_gzip_is_refused(tmp_path: Path, kept: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx_bytes(noise))[:kept])
    with pytest.raises(DataError, match=r"images\.gz: .*gzip"):
        read_idx(path, dimensions=3)


@pytest.mark.parametrize("position", [2, 15, -6])
def test_damaged_gzip_is_refused(tmp_path: Path, position: int) -> None:
    content = bytearray(gzip.compress(idx_bytes(IMAGES)))
    content[position % len(content)] ^= 0xFF
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"images\.gz: .*gzip"):
        read_idx(path, dimensions=3)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent: "):
        read_idx(tmp_path / "absent", dimensions=1)
