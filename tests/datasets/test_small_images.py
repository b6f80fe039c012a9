import hashlib
import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from smoothcert.datasets import load, published, small_images
from smoothcert.datasets.published import CIFAR10_PICKLES, SVHN, PublishedFile
from smoothcert.errors import DataError

from .files import cifar_batch, shared_data, write_cifar_binary


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch byte for byte as Python 2 and numpy 1 wrote it, which no pickler of today does."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + number(-1) + number(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + number(len(pixels)) + number(3072) + b"\x86" + dtype + b"\x89"
    array += b"T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    entries = text(b"batch_label") + text(b"training batch 1 of 5")
    entries += text(b"labels") + b"](" + b"".join(number(label) for label in labels) + b"e"
    entries += text(b"data") + array
    return b"\x80\x02}(" + entries + b"u."


def write_svhn(path: Path, monkeypatch: pytest.MonkeyPatch, last_label: int = 2) -> np.ndarray:
    """A small file in the published layout, which counts as published; the images as (n, height, width, channel)."""
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    labels = np.array([[1], [9], [10], [last_label]], np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": labels}, do_compression=True)
    content = path.read_bytes()
    file = PublishedFile(path.name, len(content), hashlib.sha256(content).hexdigest())
    others = tuple(each for each in published.SVHN.files if each.name != path.name)
    monkeypatch.setattr(published, "SVHN", replace(SVHN, files=(file, *others)))
    return images


# CIFAR-10.


@pytest.mark.parametrize("subfolder", [".", "cifar-10-batches-bin"])
def test_binary_test_batch(tmp_path, subfolder):
    pixels, labels = write_cifar_binary(tmp_path / subfolder / "test_batch.bin")
    dataset = load("cifar10", "test", tmp_path)
    assert dataset.name == "cifar10"
    assert dataset.input_shape == (3, 32, 32)
    assert dataset.scale == 1 / 255
    assert (dataset.classes[0], dataset.classes[3], dataset.classes[9]) == ("airplane", "cat", "truck")
    np.testing.assert_array_equal(dataset.stored.reshape(4, -1), pixels)
    np.testing.assert_array_equal(dataset.labels, labels)


@pytest.mark.parametrize("numbers", [(1,), (2, 5), (1, 2, 3, 4, 5)])
def test_any_train_batches_are_enough(tmp_path, numbers):
    for number in numbers:
        write_cifar_binary(tmp_path / f"data_batch_{number}.bin", count=number, seed=number)
    dataset = load("cifar10", "train", tmp_path)
    expected = np.concatenate([cifar_batch(number, number)[0] for number in numbers])
    np.testing.assert_array_equal(dataset.stored.reshape(-1, 3072), expected)


@pytest.mark.parametrize("subfolder", [".", "cifar-10-batches-py"])
def test_pickled_batches(tmp_path, monkeypatch, subfolder):
    pixels, labels = cifar_batch(3, seed=5)
    content = python2_batch(pixels, labels.tolist())
    monkeypatch.setitem(CIFAR10_PICKLES, "data_batch_1", hashlib.md5(content).hexdigest())
    (tmp_path / subfolder).mkdir(exist_ok=True)
    (tmp_path / subfolder / "data_batch_1").write_bytes(content)
    dataset = load("cifar10", "train", tmp_path)
    np.testing.assert_array_equal(dataset.stored.reshape(3, -1), pixels)
    np.testing.assert_array_equal(dataset.labels, labels)


class RunsCode:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.marker),)


def test_a_pickle_that_is_not_published_is_not_read(tmp_path, monkeypatch):
    """Not even one that would be harmless: its hash and the published one are named."""
    monkeypatch.setattr(small_images, "_BatchUnpickler", lambda *_, **__: pytest.fail("a pickle was read"))
    pixels, labels = cifar_batch(1, seed=0)
    marker = tmp_path / "ran"
    for content in (pickle.dumps(RunsCode(marker)), python2_batch(pixels, labels.tolist()), b"", b"\x80\x02"):
        (tmp_path / "test_batch").write_bytes(content)
        digests = f"{hashlib.md5(content).hexdigest()[:12]}.*{CIFAR10_PICKLES['test_batch'][:12]}"
        with pytest.raises(DataError, match=rf"test_batch: .*{digests}.*npz:PATH"):
            load("cifar10", "test", tmp_path)
    assert not marker.exists()


def test_the_unpickler_makes_nothing_but_arrays(tmp_path, monkeypatch):
    """Even of a file whose hash is right."""
    marker = tmp_path / "ran"
    for content in (
        pickle.dumps({b"data": RunsCode(marker)}, 2),
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n.",
    ):
        monkeypatch.setitem(CIFAR10_PICKLES, "test_batch", hashlib.md5(content).hexdigest())
        (tmp_path / "test_batch").write_bytes(content)
        with pytest.raises(pickle.UnpicklingError):
            load("cifar10", "test", tmp_path)
    assert not marker.exists()


def test_wrong_lengths_and_labels_are_named(tmp_path):
    path = tmp_path / "test_batch.bin"
    for size in (0, 100, 3072, 2 * 3073 - 1):
        path.write_bytes(bytes(size))
        with pytest.raises(DataError, match=rf"test_batch\.bin.*\b3073\b.*\b{size}\b"):
            load("cifar10", "test", tmp_path)
    path.write_bytes(bytes(3073) + bytes([10]) + bytes(3072))
    with pytest.raises(DataError, match=r"test_batch\.bin.*0\.\.9.*\b10\b.*\b1\b"):
        load("cifar10", "test", tmp_path)
    places = r"data_batch_1.*cifar-10-batches-bin.*cifar-10-batches-py.*--data-dir"
    with pytest.raises(DataError, match=places):
        load("cifar10", "train", tmp_path)


def test_real_cifar10():
    root = shared_data()
    test = load("cifar10", "test", root)
    assert len(test) == 10000
    assert [test.classes[label] for label in test.labels[:4]] == ["cat", "ship", "ship", "airplane"]
    train = load("cifar10", "train", root)
    present = list((root / "cifar-10-batches-bin").glob("data_batch_*.bin"))
    assert len(train) == 10000 * len(present)
    assert train.labels[:4].tolist() == [6, 9, 9, 4]


# SVHN.


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("subfolder", [".", "svhn", "SVHN"])
def test_svhn(tmp_path, monkeypatch, split, subfolder):
    images = write_svhn(tmp_path / subfolder / f"{split}_32x32.mat", monkeypatch)
    dataset = load("svhn", split, tmp_path)
    assert dataset.name == "svhn"
    assert dataset.classes == tuple("0123456789")
    assert dataset.labels.tolist() == [1, 9, 0, 2], "the label 10 stands for the digit 0"
    assert dataset.input_shape == (3, 32, 32)
    for channel in range(3):
        np.testing.assert_array_equal(dataset.stored[2, channel], images[2, :, :, channel])
    assert dataset.input(1)[2, 5, 7] == pytest.approx(images[1, 5, 7, 2] / 255)


def test_svhn_of_another_hash_is_not_parsed(tmp_path, monkeypatch):
    path = tmp_path / "test_32x32.mat"
    write_svhn(path, monkeypatch)
    whole = path.read_bytes()
    stated = published.SVHN.files[0].sha256[:12]
    monkeypatch.setattr("scipy.io.loadmat", lambda *_, **__: pytest.fail("a .mat file was parsed"))
    for content in (whole[:-1], whole + b"x", bytes([whole[0] ^ 1]) + whole[1:], b"", b"<html>"):
        path.write_bytes(content)
        digests = f"{hashlib.sha256(content).hexdigest()[:12]}.*{stated}"
        with pytest.raises(DataError, match=rf"test_32x32\.mat: .*{digests}.*npz:PATH"):
            load("svhn", "test", tmp_path)
    path.write_bytes(bytes(2 * len(whole) + 1))
    with pytest.raises(DataError, match=r"test_32x32\.mat"):
        load("svhn", "test", tmp_path)


def test_missing_svhn_is_explained(tmp_path, monkeypatch):
    write_svhn(tmp_path / "train_32x32.mat", monkeypatch)
    with pytest.raises(DataError, match=rf"svhn: .*test_32x32\.mat.*{tmp_path / 'svhn'}.*--data-dir"):
        load("svhn", "test", tmp_path)
    with pytest.raises(DataError, match=r"svhn: .*test_32x32\.mat.*SMOOTHCERT_DATA"):
        load("svhn")


# Digits.


def test_the_split_of_digits_is_the_documented_one():
    bundled = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed").load_digits()
    train, test = load("digits", "train"), load("digits", "test")
    assert (len(train), len(test)) == (1297, 500)
    np.testing.assert_array_equal(np.concatenate([train.stored, test.stored])[:, 0], bundled.images)
    np.testing.assert_array_equal(np.concatenate([train.labels, test.labels]), bundled.target)
    assert (test.name, test.input_shape, test.stored.dtype) == ("digits", (1, 8, 8), np.uint8)
    assert (test.scale, test.value_range(), test.classes) == (1 / 16, (0, 1), tuple("0123456789"))
    assert (np.bincount(test.labels).min(), np.bincount(test.labels).max()) == (46, 51)
