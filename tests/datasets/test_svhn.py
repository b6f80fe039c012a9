from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from smoothcert.datasets import load
from smoothcert.errors import DataError


@pytest.fixture(autouse=True)
def no_data_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)


def write_svhn(path: Path, **changes: object) -> np.ndarray:
    """The published layout, compressed as published; returns the images as (n, height, width, channel)."""
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    labels = np.array([[1], [9], [10], [2]], np.uint8)
    fields = {"X": images.transpose(1, 2, 3, 0), "y": labels} | changes
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {name: value for name, value in fields.items() if value is not None}, do_compression=True)
    return images


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("subfolder", [".", "svhn", "SVHN"])
def test_images_and_labels(tmp_path: Path, split: str, subfolder: str) -> None:
    images = write_svhn(tmp_path / subfolder / f"{split}_32x32.mat")
    dataset = load("svhn", split, tmp_path)
    assert dataset.name == "svhn"
    assert dataset.classes == tuple("0123456789")
    assert dataset.labels.tolist() == [1, 9, 0, 2], "the label 10 stands for the digit 0"
    assert dataset.input_shape == (3, 32, 32)
    for channel in range(3):
        np.testing.assert_array_equal(dataset.stored[2, channel], images[2, :, :, channel])
    assert dataset.input(1)[2, 5, 7] == pytest.approx(images[1, 5, 7, 2] / 255)
    low, high = dataset.value_range()
    assert (low, high) == pytest.approx((images.min() / 255, images.max() / 255))


@pytest.mark.parametrize("dtype", [np.int16, np.float64])
def test_labels_may_be_of_any_number_type(tmp_path: Path, dtype: type) -> None:
    write_svhn(tmp_path / "test_32x32.mat", y=np.array([[10], [1], [2], [3]], dtype))
    assert load("svhn", "test", tmp_path).labels.tolist() == [0, 1, 2, 3]


def test_a_single_image(tmp_path: Path) -> None:
    write_svhn(tmp_path / "test_32x32.mat", X=np.zeros((32, 32, 3, 1), np.uint8), y=np.array([[7]], np.uint8))
    assert len(load("svhn", "test", tmp_path)) == 1


def test_fingerprint_is_of_pixels_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "test_32x32.mat"
    images = write_svhn(path).transpose(1, 2, 3, 0).copy()
    original = load("svhn", "test", tmp_path).fingerprint()
    assert load("svhn", "test", tmp_path).fingerprint() == original
    write_svhn(path, y=np.array([[1], [9], [10], [3]], np.uint8))
    other_label = load("svhn", "test", tmp_path).fingerprint()
    images[0, 0, 0, 0] ^= 1
    write_svhn(path, X=images)
    assert len({original, other_label, load("svhn", "test", tmp_path).fingerprint()}) == 3


def test_missing_file_is_explained(tmp_path: Path) -> None:
    write_svhn(tmp_path / "train_32x32.mat")
    with pytest.raises(DataError, match=rf"svhn: .*test_32x32\.mat.*{tmp_path / 'svhn'}.*--data-dir"):
        load("svhn", "test", tmp_path)
    with pytest.raises(DataError, match=r"svhn: .*test_32x32\.mat.*SMOOTHCERT_DATA"):
        load("svhn")


@pytest.mark.parametrize("kept", [0, 3, 100, 130, 300, 5000, -1])
def test_truncated_file_is_named(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "test_32x32.mat"
    write_svhn(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"test_32x32\.mat: "):
        load("svhn", "test", tmp_path)


@pytest.mark.parametrize("content", [b"<html>not found</html>" * 20, bytes(1000), b"\x89HDF\r\n\x1a\n" * 100])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "test_32x32.mat").write_bytes(content)
    with pytest.raises(DataError, match=rf"test_32x32\.mat: .*\b{len(content)}\b"):
        load("svhn", "test", tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"y": None}, r"\bX\b.*\by\b.*\bX\b"),
        ({"X": None, "y": None}, r"\bX\b.*\by\b"),
        ({"X": np.zeros((4, 32, 32, 3), np.uint8)}, r"\bX\b.*uint8.*\(4, 32, 32, 3\)"),
        ({"X": np.zeros((32, 32, 3, 4))}, r"\bX\b.*uint8.*float64"),
        ({"X": np.zeros((32, 32), np.uint8)}, r"\bX\b.*uint8.*\(32, 32\)"),
        ({"X": "text"}, r"\bX\b.*uint8.*\(32, 32, 3, "),
        ({"y": np.ones((3, 1), np.uint8)}, r"\by\b.*\(4, 1\).*\(3, 1\)"),
        ({"y": np.ones((1, 4), np.uint8)}, r"\by\b.*\(4, 1\).*\(1, 4\)"),
        ({"y": "text"}, r"\by\b.*\(4, 1\)"),
        ({"y": np.array([[1], [0], [2], [3]], np.uint8)}, r"1\.\.10.*\b0\b.*\b1\b"),
        ({"y": np.array([[1], [2], [11], [3]], np.uint8)}, r"1\.\.10.*\b11\b.*\b2\b"),
        ({"y": np.array([[1], [2], [3], [1.5]])}, r"1\.\.10.*1\.5.*\b3\b"),
        ({"y": np.array([[np.nan], [2], [3], [4]])}, r"1\.\.10.*nan.*\b0\b"),
    ],
)
def test_wrong_contents_are_explained(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    write_svhn(tmp_path / "test_32x32.mat", **changes)
    with pytest.raises(DataError, match=rf"test_32x32\.mat: .*{named}"):
        load("svhn", "test", tmp_path)
