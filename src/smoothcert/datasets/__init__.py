"""Data sets by name or path: ``load("mnist")``, ``load("folder:PATH")``, ``load("file.npz")``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from smoothcert.datasets import cifar10, digits, fashion_mnist, imagenet, kitti, mnist, svhn
from smoothcert.datasets.arrays import load_npz
from smoothcert.datasets.base import DATASETS, Dataset, LazySource, Loader
from smoothcert.datasets.image_folder import load_image_folder
from smoothcert.errors import DataError, InvalidValueError
from smoothcert.registry import unknown_name

__all__ = [
    "DATASETS",
    "SPLITS",
    "Dataset",
    "LazySource",
    "Loader",
    "cifar10",
    "digits",
    "fashion_mnist",
    "imagenet",
    "kitti",
    "load",
    "mnist",
    "svhn",
]

SPLITS = ("train", "test")

_PATH_LOADERS: dict[str, Callable[[Path, str], Dataset]] = {"folder": load_image_folder, "npz": load_npz}


def load(spec: str, split: str = "test", root: Path | None = None) -> Dataset:
    """The ``split`` of the data set that ``spec`` means.

    ``spec`` is a registered name, ``folder:PATH``, ``npz:PATH``, a path that ends in ``.npz`` or an existing
    folder; a name wins over a folder called the same. ``root`` is where the files of a named data set lie
    (without one, where the environment variable ``SMOOTHCERT_DATA`` says) and has no bearing on a path.
    """
    if split not in SPLITS:
        raise InvalidValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    try:
        return _resolve(spec, split, root)
    except OSError as error:
        raise DataError(
            f"data set {spec!r} can't be read: {error}; check the path and its permissions"
        ) from error


def _resolve(spec: str, split: str, root: Path | None) -> Dataset:
    if spec in DATASETS:
        return DATASETS[spec](split, root)
    kind, colon, path = spec.partition(":")
    if colon and kind in _PATH_LOADERS:
        if not path:
            raise InvalidValueError(f"data set {spec!r} lacks its path: write {kind}:PATH")
        return _PATH_LOADERS[kind](Path(path).expanduser(), split)
    if spec and Path(spec).expanduser().is_dir():
        return load_image_folder(Path(spec).expanduser(), split)
    if spec.endswith(".npz"):
        return load_npz(Path(spec).expanduser(), split)
    raise unknown_name(DATASETS.kind, spec, [*DATASETS.names(), *(f"{form}:PATH" for form in _PATH_LOADERS)])
