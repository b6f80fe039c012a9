"""Small images that fit in memory: MNIST, Fashion-MNIST, CIFAR-10, SVHN and scikit-learn's digits."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets import published
from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.errors import DataError
from smoothcert.extras import require
from smoothcert.files import check_expansion, opened_file, read_file

MOST_VALUES = 2**30
"""A million images of MNIST's size: more than any published file of the format has."""

_CLOTHES = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]
_PREFIX = {"train": "train", "test": "t10k"}
_SIDE = 28
_CHUNK = 1 << 20

# Both data sets use the same file names, so only their contents tell a mix-up from the real thing.
_FIRST_LABELS = {
    ("mnist", "train"): (5, 0, 4, 1, 9, 2, 1, 3, 1, 4),
    ("mnist", "test"): (7, 2, 1, 0, 4, 1, 4, 9, 5, 9),
    ("fashion-mnist", "train"): (9, 0, 0, 3, 0, 2, 7, 2, 5, 5),
    ("fashion-mnist", "test"): (9, 2, 1, 1, 6, 1, 4, 6, 5, 7),
}


@DATASETS.register("mnist")
def load_mnist(split: str, root: Path | None) -> Dataset:
    """MNIST from ``mnist/``, ``MNIST/raw/`` or the root itself; inputs are 1x28x28 in [0, 1]."""
    return _load("mnist", _DIGITS, split, published.candidate_places(root, published.MNIST.folders))


@DATASETS.register("fashion-mnist")
def load_fashion_mnist(split: str, root: Path | None) -> Dataset:
    """Fashion-MNIST; inputs are 1x28x28 in [0, 1].

    Looks in ``fashion-mnist/``, ``FashionMNIST/raw/`` and the root itself, and without an explicit root also in
    the folder of Debian's package dataset-fashion-mnist.
    """
    folders = published.FASHION_MNIST.folders
    places = published.candidate_places(root, folders, system_places=(published.DEBIAN_PLACE,))
    return _load("fashion-mnist", tuple(_CLOTHES), split, places)


def _load(name: str, classes: tuple[str, ...], split: str, places: Sequence[Path]) -> Dataset:
    names = [f"{_PREFIX[split]}-{part}-ubyte" for part in ("images-idx3", "labels-idx1")]
    for place in places:
        paths = [
            path
            for file in names
            for path in [place / file if (place / file).is_file() else place / f"{file}.gz"]
            if path.is_file()
        ]
        if len(paths) == len(names):
            break
    else:
        wanted = f"{' and '.join(names)} (each plain or .gz) side by side"
        raise published.missing_files(name, wanted, places)
    labels = read_idx(paths[1], dimensions=1, most=MOST_VALUES // _SIDE**2)
    for (known, known_split), first in _FIRST_LABELS.items():
        if (known, known_split) != (name, split) and tuple(labels[: len(first)].tolist()) == first:
            raise DataError(
                f"{paths[1]}: expected the {split} labels of {name}, "
                f"found the {known_split} labels of {known}; name the folder of {name} with --data-dir"
            )
    images = read_idx(paths[0], dimensions=3)
    if images.shape[1:] != (_SIDE, _SIDE):
        raise DataError(f"{paths[0]}: expected images of shape {(_SIDE, _SIDE)}, found {images.shape[1:]}")
    if len(images) != len(labels):
        raise DataError(f"{paths[1]}: expected {len(images)} labels, one per image, found {len(labels)}")
    return Dataset(name, images[:, np.newaxis], labels.astype(np.int64), classes, scale=1 / 255)


def read_idx(path: Path, dimensions: int, most: int = MOST_VALUES) -> NDArray[np.uint8]:
    """The array in ``path``, which must hold unsigned bytes in exactly ``dimensions`` dimensions, ``most`` at most.

    The first bytes tell whether the file is gzipped, since browsers unpack downloads and keep the name.
    """
    try:
        with opened_file(path) as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
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
    expected_magic = bytes((0, 0, 8, dimensions))  # 8: unsigned bytes
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
        raise DataError(f"{path}: its header claims {expected} values of shape {shape}, above {most}")
    check_expansion(str(path), expected, path.stat().st_size)
    body = _read_at_most(stream, expected + 1)
    if len(body) != expected:
        actual = "more" if len(body) > expected else str(len(body))
        raise DataError(f"{path}: expected {expected} bytes of values for shape {shape}, found {actual}")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _read_at_most(stream: BinaryIO, limit: int) -> bytes:
    # In chunks, because one read() reserves all it is asked for, and a damaged header may ask for terabytes.
    parts: list[bytes] = []
    while limit > 0 and (part := stream.read(min(limit, _CHUNK))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DIGITS_TRAIN_SIZE = 1297

_DIGITS = tuple("0123456789")
_PIXELS = 3 * 32 * 32
_MOST_RECORDS = 100_000  # ten times what a batch has
_PICKLE_SIZE = 31_035_999  # the largest batch of the Python version
_BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}

_Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


@DATASETS.register("cifar10")
def load_cifar10(split: str, root: Path | None) -> Dataset:
    """CIFAR-10; inputs are 3x32x32 in [0, 1].

    Looks in ``cifar-10-batches-bin/``, ``cifar-10-batches-py/`` and the root itself. The train split is
    whichever of the five batches are there, in order: one batch of 10000 is enough to train on. Its length
    and fingerprint tell how many there were. Pickled batches are read only if they are the published files.
    """
    places = published.candidate_places(root, published.CIFAR10.folders)
    for place in places:
        for suffix, read in ((".bin", _read_binary), ("", _read_pickle)):
            paths = [place / f"{batch}{suffix}" for batch in _BATCHES[split]]
            batches = [read(path) for path in paths if path.is_file()]
            if batches:
                images = np.concatenate([images for images, _ in batches]).reshape(-1, 3, 32, 32)
                labels = np.concatenate([labels for _, labels in batches])
                return Dataset("cifar10", images, labels, CIFAR10_CLASSES, scale=1 / 255)
    wanted = " or ".join(_BATCHES[split])
    raise published.missing_files("cifar10", f"{wanted} (.bin, or the Python version without suffix)", places)


def _read_binary(path: Path) -> _Batch:
    size = 1 + _PIXELS
    content = np.frombuffer(read_file(path, _MOST_RECORDS * size), dtype=np.uint8)
    if len(content) == 0 or len(content) % size:
        raise DataError(
            f"{path}: expected one or more records of {size} bytes (a label, then {_PIXELS} values), "
            f"found {len(content)} bytes"
        )
    records = content.reshape(-1, size)
    labels = records[:, 0]
    for bad in np.flatnonzero(labels >= len(CIFAR10_CLASSES))[:1]:
        raise DataError(f"{path}: expected labels in 0..9, found {labels[bad]} in record {bad}")
    return records[:, 1:], labels.astype(np.int64)


def _read_pickle(path: Path) -> _Batch:
    content = published.read_published(path, _PICKLE_SIZE, "md5", published.CIFAR10_PICKLES[path.name])
    fields = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    return fields[b"data"], np.array(fields[b"labels"], np.int64)


class _BatchUnpickler(pickle.Unpickler):
    """Makes the one array of a batch and nothing else: a second guard behind the hash."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in ("numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"):
            raise pickle.UnpicklingError(f"a batch of CIFAR-10 does not use {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


@DATASETS.register("svhn")
def load_svhn(split: str, root: Path | None) -> Dataset:
    """SVHN's cropped digits; inputs are 3x32x32 in [0, 1].

    Looks for ``train_32x32.mat`` and ``test_32x32.mat`` in ``svhn/``, ``SVHN/`` and the root itself. Only the
    published files are read: scipy's reader can crash on a damaged file. The extra images are not part of the train
    split.
    """
    (file,) = (file for file in published.SVHN.files if file.name == f"{split}_32x32.mat")
    places = published.candidate_places(root, published.SVHN.folders)
    path = next((place / file.name for place in places if (place / file.name).is_file()), None)
    if path is None:
        raise published.missing_files("svhn", file.name, places)
    content = published.read_published(path, file.size, "sha256", file.sha256)
    from scipy.io import loadmat  # names and labels of other data sets need not wait for it

    fields: dict[str, NDArray[Any]] = loadmat(cast(Any, io.BytesIO(content)), variable_names=("X", "y"))
    images = np.ascontiguousarray(fields["X"].transpose(3, 2, 0, 1))
    labels = fields["y"][:, 0].astype(np.int64) % 10  # the label 10 stands for the digit 0
    return Dataset("svhn", images, labels, _DIGITS, scale=1 / 255)


@DATASETS.register("digits")
def load_digits(split: str, root: Path | None) -> Dataset:  # noqa: ARG001 - the data is inside scikit-learn
    """Scikit-learn's digits; inputs are 1x8x8 in [0, 1], stored as the original counts 0..16.

    The split is simple: the first 1297 images train, the last 500 test, in scikit-learn's order. No shuffle,
    so no random generator can change it; every class has between 46 and 51 test images.
    """
    bunch = require("sklearn.datasets", "the digits data set").load_digits()
    part = slice(None, DIGITS_TRAIN_SIZE) if split == "train" else slice(DIGITS_TRAIN_SIZE, None)
    images, labels = bunch.images[part, np.newaxis].astype(np.uint8), bunch.target[part].astype(np.int64)
    return Dataset("digits", images, labels, _DIGITS, scale=1 / 16)
