"""MNIST and Fashion-MNIST, and the idx files that they are kept in."""

import gzip
import struct

import numpy as np
import pytest

from smoothcert.datasets import load, published
from smoothcert.datasets.small_images import read_idx
from smoothcert.errors import DataError

from .files import idx_bytes, shared_data, write_mnist


@pytest.mark.parametrize(
    ("name", "subfolder"),
    [
        ("mnist", "."),
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "."),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
    ],
)
@pytest.mark.parametrize("by_variable", [True, False])
def test_found_in_every_documented_place(tmp_path, monkeypatch, name, subfolder, by_variable):
    images, labels = write_mnist(tmp_path / subfolder)
    if by_variable:
        monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path))
    dataset = load(name, root=None if by_variable else tmp_path)
    assert dataset.name == name
    assert dataset.input_shape == (1, 28, 28)
    assert dataset.scale == 1 / 255
    assert len(dataset.classes) == 10
    np.testing.assert_array_equal(dataset.stored[:, 0], images)
    np.testing.assert_array_equal(dataset.labels, labels)
    assert dataset.labels.dtype == np.int64


def test_splits_are_different_files(tmp_path):
    train, _ = write_mnist(tmp_path, "train", count=5, seed=1, gzipped=False)
    test, _ = write_mnist(tmp_path, "test", count=3, seed=2)
    np.testing.assert_array_equal(load("mnist", "train", tmp_path).stored[:, 0], train)
    np.testing.assert_array_equal(load("mnist", "test", tmp_path).stored[:, 0], test)


def test_fashion_mnist_falls_back_on_the_debian_package(tmp_path, monkeypatch):
    images, _ = write_mnist(tmp_path / "debian")
    np.testing.assert_array_equal(load("fashion-mnist").stored[:, 0], images)
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path / "empty"))
    np.testing.assert_array_equal(load("fashion-mnist").stored[:, 0], images)
    with pytest.raises(DataError, match="t10k-images"):
        load("fashion-mnist", root=tmp_path / "empty")


def test_missing_files_list_the_places_and_the_remedy(tmp_path):
    with pytest.raises(DataError) as caught:
        load("mnist", root=tmp_path)
    for part in [tmp_path, tmp_path / "mnist", tmp_path / "MNIST/raw", "--data-dir", "SMOOTHCERT_DATA"]:
        assert str(part) in str(caught.value)
    with pytest.raises(DataError, match=r"mnist.*SMOOTHCERT_DATA.*--data-dir"):
        load("mnist")


def test_files_that_are_no_mnist_are_refused(tmp_path):
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    for count, side, kept, named in (
        (6, 27, np.zeros(6), r"t10k-images.*28, 28.*27, 27"),
        (6, 28, np.zeros(5), r"t10k-labels.*\b6\b.*\b5\b"),
        (2, 28, np.array([3, 10]), r"mnist.*label.*\b10\b.*\b1\b.*0\.\.9"),
        (0, 28, np.zeros(0), "mnist"),
    ):
        write_mnist(tmp_path, count=count, side=side)
        labels.write_bytes(gzip.compress(idx_bytes(kept)))
        with pytest.raises(DataError, match=named):
            load("mnist", root=tmp_path)
    write_mnist(tmp_path)
    labels.unlink()
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte"):
        load("mnist", root=tmp_path)


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path):
    write_mnist(tmp_path, count=10)
    first_labels_of_mnist = np.array([7, 2, 1, 0, 4, 1, 4, 9, 5, 9])
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(first_labels_of_mnist)))
    assert len(load("mnist", root=tmp_path)) == 10
    with pytest.raises(DataError, match=r"t10k-labels.*fashion-mnist.* mnist\b.*--data-dir"):
        load("fashion-mnist", root=tmp_path)


def test_real_files(monkeypatch):
    firsts = {"train": (60000, [5, 0, 4, 1, 9]), "test": (10000, [7, 2, 1, 0, 4])}
    for split, (count, first_labels) in firsts.items():
        dataset = load("mnist", split, shared_data())
        assert (len(dataset), dataset.labels[:5].tolist()) == (count, first_labels)
        assert dataset.input(0).max() == 1
    monkeypatch.undo()
    if not published.DEBIAN_PLACE.is_dir():
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    firsts = {"train": (60000, [9, 0, 0, 3, 0]), "test": (10000, [9, 2, 1, 1, 6])}
    for split, (count, first_labels) in firsts.items():
        dataset = load("fashion-mnist", split)
        assert (len(dataset), dataset.labels[:5].tolist()) == (count, first_labels)


IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_reads_plain_and_gzipped_whatever_the_name(tmp_path):
    for content in (gzip.compress(idx_bytes(IMAGES)), idx_bytes(IMAGES)):
        for name in ("images", "images.gz"):
            (tmp_path / name).write_bytes(content)
            np.testing.assert_array_equal(read_idx(tmp_path / name, dimensions=3), IMAGES)
    with pytest.raises(DataError, match="absent: "):
        read_idx(tmp_path / "absent", dimensions=1)


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
def test_wrong_contents_are_named(tmp_path, content, named):
    path = tmp_path / "images"
    for written in (content, gzip.compress(content)):
        path.write_bytes(written)
        with pytest.raises(DataError, match=f"images: .*{named}"):
            read_idx(path, dimensions=3)


def test_truncated_or_damaged_gzip_is_refused(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    whole, small = gzip.compress(idx_bytes(noise)), gzip.compress(idx_bytes(IMAGES))
    damaged = []
    for position in (2, 15, len(small) - 6):
        damaged.append(bytearray(small))
        damaged[-1][position] ^= 0xFF
    path = tmp_path / "images.gz"
    for content in (*(whole[:kept] for kept in (2, 5, 15, 40, -8, -1)), *damaged):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"images\.gz: .*gzip"):
            read_idx(path, dimensions=3)
