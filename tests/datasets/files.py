"""Writers of small files in the true formats, and where the real ones lie."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

IDX_NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def shared_data() -> Path:
    shared = os.environ.get("SMOOTHCERT_SHARED")
    if not shared:
        pytest.skip("SMOOTHCERT_SHARED is not set: no real data to read")
    return Path(shared) / "data"


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist(
    folder: Path, split: str = "test", count: int = 6, gzipped: bool = True, seed: int = 0, side: int = 28
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, side, side), dtype=np.uint8)
    labels = rng.integers(0, 10, count, dtype=np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(IDX_NAMES[split], (images, labels)):
        if gzipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array)))
        else:
            (folder / name).write_bytes(idx_bytes(array))
    return images, labels


def cifar_batch(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8), rng.integers(0, 10, count, dtype=np.uint8)


def write_cifar_binary(path: Path, count: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = cifar_batch(count, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.hstack([labels[:, None], pixels]).tobytes())
    return pixels, labels
