"""Data sets by name or path: ``load("mnist")``, ``load("folder:PATH")``, ``load("bank.csv?target=y")``."""

from __future__ import annotations

from pathlib import Path

from smoothcert.datasets.base import DATASETS, PATH_FORMS, Dataset, Loader
from smoothcert.datasets.images import LazySource
from smoothcert.errors import DataError, InvalidValueError
from smoothcert.registry import unknown_name

__all__ = ["DATASETS", "SPLITS", "Dataset", "LazySource", "Loader", "load"]

SPLITS = ("train", "test")


def load(spec: str, split: str = "test", root: Path | None = None) -> Dataset:
    """The ``split`` of the data set that ``spec`` means.

    ``spec`` is a registered name, ``folder:PATH``, ``npz:PATH``, ``csv:PATH?target=COLUMN``, ``parquet:`` alike,
    a path that ends in one of these, or an existing folder; a name wins over a folder called the same. ``root`` is
    where the files of a named data set lie (without one, where the environment variable ``SMOOTHCERT_DATA`` says) and
    has no bearing on a path.
    """
    if split not in SPLITS:
        raise InvalidValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    try:
        return _resolve(spec, split, root)
    except OSError as error:
        raise DataError(f"data set {spec!r} can't be read: {error}; check path and permissions") from error


def _resolve(spec: str, split: str, root: Path | None) -> Dataset:
    if spec in DATASETS:
        return DATASETS[spec](split, root)
    form, colon, path = spec.partition(":")
    if colon and form in PATH_FORMS:
        if not path:
            raise InvalidValueError(f"data set {spec!r} lacks its path: write {form}:PATH")
    elif spec and Path(spec).expanduser().is_dir():
        form, path = "folder", spec
    elif (ending := Path(spec.partition("?")[0]).suffix.removeprefix(".")) in PATH_FORMS:
        form, path = ending, spec
    else:
        raise unknown_name(DATASETS.kind, spec, [*DATASETS.names(), *(f"{form}:PATH" for form in PATH_FORMS)])
    return PATH_FORMS[form](Path(path).expanduser(), split)
