from __future__ import annotations

import struct
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from smoothcert.datasets.mat5 import read_mat5
from smoothcert.errors import DataError


def saved(tmp_path: Path, compressed: bool, **variables: object) -> Path:
    path = tmp_path / "file.mat"
    savemat(path, variables, do_compression=compressed)
    return path


@pytest.mark.parametrize("compressed", [True, False])
def test_what_scipy_writes_is_read(tmp_path: Path, compressed: bool) -> None:
    dtypes = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]
    for dtype, shape in product(dtypes, [(3, 1), (1, 1), (2, 3), (2, 3, 4, 5), (0, 3)]):
        array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
        read = read_mat5(saved(tmp_path, compressed, X=array, a_longer_name=array + 1))
        assert list(read) == ["X", "a_longer_name"], (dtype, shape)
        for name, expected in (("X", array), ("a_longer_name", array + 1)):
            values = read[name]
            assert values is not None, (dtype, shape)
            assert values.dtype == expected.dtype, (dtype, shape)
            np.testing.assert_array_equal(values, expected, f"{dtype} {shape}")


def test_numbers_kept_in_fewer_bytes_than_their_class(tmp_path: Path) -> None:
    """As MATLAB keeps a double that is a small integer."""
    path = saved(tmp_path, False, y=np.array([[7]], np.uint8))
    content = bytearray(path.read_bytes())
    assert content[144] == 9
    content[144] = 6
    path.write_bytes(content)
    values = read_mat5(path)["y"]
    assert values is not None
    assert (values.dtype, values.tolist()) == (np.float64, [[7.0]])


@pytest.mark.parametrize("other", ["text", {"field": 1}, np.array([[1 + 2j]]), [["a", 1]]], ids=str)
def test_other_variables_are_only_listed(tmp_path: Path, other: object) -> None:
    read = read_mat5(saved(tmp_path, True, other=other, y=np.ones((1, 1))))
    assert read["other"] is None
    assert read["y"] is not None


@pytest.mark.parametrize(
    "content", [b"", b"short", b"<html>" * 50, b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM", bytes(500)]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"file\.mat: .*\b{len(content)}\b.*0001494d"):
        read_mat5(path)


def small_file(tmp_path: Path, compressed: bool) -> Path:
    return saved(tmp_path, compressed, X=np.arange(24, dtype=np.uint8).reshape(2, 3, 4), y=np.ones((4, 1)))


@pytest.mark.parametrize("compressed", [True, False])
def test_truncation_is_told_at_every_length(tmp_path: Path, compressed: bool) -> None:
    path = small_file(tmp_path, compressed)
    content = path.read_bytes()
    path.write_bytes(content[:128])
    assert read_mat5(path) == {}
    (_, size) = struct.unpack("<II", content[128:136])
    between = 136 + size
    path.write_bytes(content[:between])
    assert list(read_mat5(path)) == ["X"], "a cut between variables leaves one out, which the caller sees"
    for length in set(range(len(content))) - {128, between}:
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"file\.mat: "):
            read_mat5(path)


@pytest.mark.parametrize("compressed", [True, False])
def test_flipped_bytes_never_escape_as_another_exception(tmp_path: Path, compressed: bool) -> None:
    path = small_file(tmp_path, compressed)
    content = path.read_bytes()
    refused = 0
    for position in range(len(content)):
        for flip in (0x01, 0x10, 0x80, 0xFF):
            damaged = bytearray(content)
            damaged[position] ^= flip
            path.write_bytes(damaged)
            try:
                read_mat5(path)
            except DataError:
                refused += 1
    assert refused > len(content)
