from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from smoothcert.datasets import load
from smoothcert.errors import DataError

from .files import cifar_batch, shared_data, write_cifar_binary

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture(autouse=True)
def no_data_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch byte for byte as Python 2 and numpy 1 wrote it, which no pickler of today does."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + number(-1) + number(-1) + b"K\x00tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        + b"cnumpy\nndarray\n"
        + b"K\x00\x85"
        + text(b"b")
        + b"\x87R"
    )
    array += b"(K\x01" + number(len(pixels)) + number(3072) + b"\x86" + dtype + b"\x89"
    array += b"T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    entries = text(b"batch_label") + text(b"training batch 1 of 5")
    entries += text(b"labels") + b"](" + b"".join(number(label) for label in labels) + b"e"
    entries += text(b"data") + array
    return b"\x80\x02}(" + entries + b"u."


def write_pickle(path: Path, content: object, protocol: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol))


@pytest.mark.parametrize("subfolder", [".", "cifar-10-batches-bin"])
def test_binary_test_batch(tmp_path: Path, subfolder: str) -> None:
    pixels, labels = write_cifar_binary(tmp_path / subfolder / "test_batch.bin")
    dataset = load("cifar10", "test", tmp_path)
    assert dataset.name == "cifar10"
    assert dataset.input_shape == (3, 32, 32)
    assert dataset.scale == 1 / 255
    assert (dataset.classes[0], dataset.classes[3], dataset.classes[9]) == ("airplane", "cat", "truck")
    np.testing.assert_array_equal(dataset.stored.reshape(4, -1), pixels)
    np.testing.assert_array_equal(dataset.labels, labels)


@pytest.mark.parametrize("numbers", [(1,), (2, 5), (1, 2, 3, 4, 5)])
def test_any_train_batches_are_enough(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    for number in numbers:
        write_cifar_binary(tmp_path / f"data_batch_{number}.bin", count=number, seed=number)
    dataset = load("cifar10", "train", tmp_path)
    expected = np.concatenate([cifar_batch(number, number)[0] for number in numbers])
    np.testing.assert_array_equal(dataset.stored.reshape(-1, 3072), expected)


@pytest.mark.parametrize("subfolder", [".", "cifar-10-batches-py"])
def test_batches_of_python_2(tmp_path: Path, subfolder: str) -> None:
    pixels, labels = cifar_batch(3, seed=5)
    folder = tmp_path / subfolder
    folder.mkdir(exist_ok=True)
    (folder / "data_batch_1").write_bytes(python2_batch(pixels, labels.tolist()))
    dataset = load("cifar10", "train", tmp_path)
    np.testing.assert_array_equal(dataset.stored.reshape(3, -1), pixels)
    np.testing.assert_array_equal(dataset.labels, labels)


@pytest.mark.parametrize("as_bytes", [True, False])
def test_batches_pickled_anew(tmp_path: Path, as_bytes: bool) -> None:
    pixels, labels = cifar_batch(3, seed=6)
    content = {"data": pixels, "labels": labels.tolist(), "filenames": [b"a.png"] * 3}
    keyed = {key.encode() if as_bytes else key: value for key, value in content.items()}
    for protocol in PROTOCOLS:
        write_pickle(tmp_path / "test_batch", keyed, protocol)
        dataset = load("cifar10", "test", tmp_path)
        np.testing.assert_array_equal(dataset.stored.reshape(3, -1), pixels, f"protocol {protocol}")
        np.testing.assert_array_equal(dataset.labels, labels, f"protocol {protocol}")


class RunsCode:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.marker),)


def test_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for protocol in PROTOCOLS:
        write_pickle(tmp_path / "test_batch", {"data": RunsCode(marker), "labels": [1]}, protocol)
        with pytest.raises(DataError, match=r"test_batch.*\.mkdir\b"):
            load("cifar10", "test", tmp_path)
        assert not marker.exists(), f"protocol {protocol}"


@pytest.mark.parametrize(
    ("content", "callable_"),
    [
        (b"cbuiltins\neval\n(S'1'\ntR.", r"builtins\.eval"),
        (b"cnumpy\nload\n(S'x'\ntR.", r"numpy\.load"),
        (b"c_codecs\ndecode\n(S'x'\ntR.", r"_codecs\.decode"),
        (b"cnumpy.core.multiarray\nscalar\n.", r"numpy\.core\.multiarray\.scalar"),
    ],
)
def test_other_callables_are_refused(tmp_path: Path, content: bytes, callable_: str) -> None:
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match=rf"test_batch.*{callable_}\b"):
        load("cifar10", "test", tmp_path)


RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n(tR(I1\n(I9\nt"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"c_codecs\nencode\n(Vx\nVzlib\ntR.", "'zlib'"),
        (b"c_codecs\nencode\n}b.", ""),
        (b"cnumpy\ndtype\n(VO\ntR.", "dtype 'O'"),
        (b"cnumpy\nndarray\n(I5\ntR.", ""),
        (RECONSTRUCT + b"tb.", ""),
        (RECONSTRUCT + b"cnumpy\ndtype\n(Vu1\ntRI00\nC\x01xtb.", r"\(9,\)"),
    ],
    ids=["codec", "state of a function", "dtype", "shape alone", "no content", "content of another size"],
)
def test_forged_arrays_are_refused(tmp_path: Path, content: bytes, named: str) -> None:
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match=f"test_batch: .*{named}"):
        load("cifar10", "test", tmp_path)


def test_truncated_pickle_is_refused(tmp_path: Path) -> None:
    pixels, labels = cifar_batch(2, seed=0)
    for kept in (0, 1, 50, 3000, -1):
        (tmp_path / "test_batch").write_bytes(python2_batch(pixels, labels.tolist())[:kept])
        with pytest.raises(DataError, match="test_batch: "):
            load("cifar10", "test", tmp_path)


def test_flipped_bytes_never_escape_as_another_exception(tmp_path: Path) -> None:
    pixels, labels = cifar_batch(1, seed=0)
    original = python2_batch(pixels, labels.tolist())
    messages: list[str] = []
    for position in range(original.index(pixels.tobytes())):
        damaged = bytearray(original)
        damaged[position] ^= 0x55
        (tmp_path / "test_batch").write_bytes(damaged)
        try:
            load("cifar10", "test", tmp_path)
        except DataError as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert all("test_batch" in message for message in messages)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ([1, 2], "'data'.*NoneType"),
        ({"labels": [1]}, "'data'.*NoneType"),
        ({"data": np.zeros((1, 3072)), "labels": [1]}, "dtype b?'f8'"),
        ({"data": np.zeros((1, 100), np.uint8), "labels": [1]}, r"'data'.*\(1, 100\)"),
        ({"data": np.zeros((1, 3072), np.uint8)}, "'labels'.*NoneType"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [1.5]}, "'labels'"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [1, 2]}, r"\b1\b.*\b2\b"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [10**30]}, rf"0\.\.9.*{10**30}.*\b0\b"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [-1]}, r"0\.\.9.*-1\b.*\b0\b"),
    ],
)
def test_wrong_fields_are_named(tmp_path: Path, content: object, named: str) -> None:
    write_pickle(tmp_path / "test_batch", content)
    with pytest.raises(DataError, match=f"test_batch: .*{named}"):
        load("cifar10", "test", tmp_path)


@pytest.mark.parametrize("size", [0, 100, 3072, 2 * 3073 - 1])
def test_wrong_length_is_named(tmp_path: Path, size: int) -> None:
    (tmp_path / "test_batch.bin").write_bytes(bytes(size))
    with pytest.raises(DataError, match=rf"test_batch\.bin.*\b3073\b.*\b{size}\b"):
        load("cifar10", "test", tmp_path)


def test_binary_label_above_nine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_batch.bin").write_bytes(bytes(3073) + bytes([10]) + bytes(3072))
    with pytest.raises(DataError, match=r"test_batch\.bin.*0\.\.9.*\b10\b.*\b1\b"):
        load("cifar10", "test", tmp_path)


def test_missing_batches_list_the_places(tmp_path: Path) -> None:
    write_cifar_binary(tmp_path / "test_batch.bin")
    with pytest.raises(
        DataError, match=r"data_batch_1.*cifar-10-batches-bin.*cifar-10-batches-py.*--data-dir"
    ):
        load("cifar10", "train", tmp_path)


def test_real_cifar10() -> None:
    root = shared_data()
    test = load("cifar10", "test", root)
    assert len(test) == 10000
    assert test.labels[:4].tolist() == [3, 8, 8, 0]
    assert [test.classes[label] for label in test.labels[:4]] == ["cat", "ship", "ship", "airplane"]
    train = load("cifar10", "train", root)
    present = list((root / "cifar-10-batches-bin").glob("data_batch_*.bin"))
    assert len(train) == 10000 * len(present)
    assert train.labels[:4].tolist() == [6, 9, 9, 4]
