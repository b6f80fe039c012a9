"""``npz:PATH``: inputs and labels from a numpy archive, in whatever units the file has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from smoothcert.datasets.base import PATH_FORMS, Dataset
from smoothcert.errors import DataError
from smoothcert.npy import NpyArchive, opened_npz

_PAIRS = (("x", "y"), ("images", "labels"), ("inputs", "labels"), ("data", "target"))
_OTHER_SPLIT_LABELS = {"y_train": "y_test", "y_test": "y_train"}

# Without names the number of classes is the largest label + 1: a stray huge label must not invent millions.
_MOST_CLASSES = 100_000

_Array = NDArray[Any]


@PATH_FORMS.register("npz")
def load_npz(path: Path, split: str) -> Dataset:
    """One split of the archive at ``path``, whose first axis counts inputs.

    Keys are ``x_train``/``y_train`` and ``x_test``/``y_test`` by split, or one pair that serves as either:
    ``x``/``y``, ``images``/``labels``, ``inputs``/``labels`` or ``data``/``target``. Values are used as they
    are, never rescaled: noise is added in the units of the file, so σ=0.25 on values 0..255 is nearly none.
    Class names may be given in ``classes``; do so when a class may be without labels, as the number of
    classes is otherwise the largest label of the file plus one.
    """
    with _opened(path) as archive:
        input_key, label_key = _keys_of_split(path, list(archive), split)
        inputs = _checked_inputs(path, input_key, _read_member(path, archive, input_key))
        labels = _checked_labels(path, label_key, _read_member(path, archive, label_key))
        if len(inputs) != len(labels):
            raise DataError(
                f"{path}: expected one label per input, found {len(inputs)} inputs in {input_key!r} "
                f"and {len(labels)} labels in {label_key!r}"
            )
        classes = _class_names(path, archive, label_key, labels)
    return Dataset(f"npz:{path}", inputs, labels, classes)


@contextmanager
def _opened(path: Path) -> Iterator[NpyArchive]:
    if not path.is_file():
        raise DataError(f"{path}: expected an .npz file, found no such file")
    with path.open("rb") as stream:
        if stream.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
            raise DataError(f"{path}: expected an .npz archive with keys x and y, found a single .npy array")
    with opened_npz(path) as archive:
        yield archive


def _read_member(path: Path, archive: NpyArchive, key: str) -> _Array:
    try:
        return archive[key]
    except DataError:
        raise
    except ValueError as error:
        raise DataError(
            f"{path}: {key!r} is refused ({error}). Objects are never unpickled: save a plain array, "
            f"for example np.savez(path, {key}=np.stack(list_of_arrays))"
        ) from error
    except Exception as error:  # a damaged zip can raise nearly any exception
        raise DataError(
            f"{path}: expected an .npz archive, found a truncated or damaged file ({error}); save it again"
        ) from error


def _keys_of_split(path: Path, keys: Sequence[str], split: str) -> tuple[str, str]:
    pairs = ((f"x_{split}", f"y_{split}"), *_PAIRS)
    for pair in pairs:
        if pair[0] in keys and pair[1] in keys:
            return pair
    expected = ", ".join(f"{inputs}/{labels}" for inputs, labels in pairs)
    raise DataError(
        f"{path}: expected one pair of the keys {expected}, found {', '.join(keys) or 'no keys'}; "
        "save it with np.savez(path, x=inputs, y=labels)"
    )


def _checked_inputs(path: Path, key: str, inputs: _Array) -> _Array:
    if inputs.dtype.kind not in "biuf":
        raise DataError(f"{path}: expected {key!r} to hold real numbers, found {inputs.dtype}")
    if inputs.ndim < 2 or inputs.size == 0:
        raise DataError(
            f"{path}: expected {key!r} of shape (number of inputs, dimensions of one input), "
            f"found {inputs.shape}"
        )
    if inputs.dtype.kind != "f":
        return inputs
    # Inputs reach the model as float32, so a value beyond its range would become infinite later.
    bad = ~(np.abs(inputs) <= np.finfo(np.float32).max)
    if bad.any():
        index, *position = (int(axis) for axis in np.unravel_index(int(bad.argmax()), inputs.shape))
        raise DataError(
            f"{path}: expected finite values within float32 in {key!r}, "
            f"found {inputs[index][tuple(position)]} in input {index} at position {tuple(position)}"
        )
    return inputs


def _checked_labels(path: Path, key: str, labels: _Array) -> NDArray[np.int64]:
    if labels.ndim != 1:
        raise DataError(
            f"{path}: expected {key!r} to be one-dimensional, found shape {labels.shape}; "
            "use labels.ravel() for a column, labels.argmax(1) for one-hot rows"
        )
    if labels.dtype.kind not in "biuf":
        raise DataError(f"{path}: expected {key!r} to hold integers, found {labels.dtype}")
    # float64 holds every admissible label exactly and, unlike float16, the limit too.
    values = labels.astype(np.float64)
    bad = np.flatnonzero(~((values >= 0) & (values < _MOST_CLASSES) & (np.floor(values) == values)))
    if len(bad):
        raise DataError(
            f"{path}: expected {key!r} to hold integers from 0 to {_MOST_CLASSES - 1}, "
            f"found {labels[bad[0]]} for input {bad[0]}"
        )
    return values.astype(np.int64)


def _class_names(
    path: Path, archive: NpyArchive, label_key: str, labels: NDArray[np.int64]
) -> tuple[str, ...]:
    if "classes" in archive:
        return _given_names(path, _read_member(path, archive, "classes"), labels)
    largest = int(labels.max())
    other_key = _OTHER_SPLIT_LABELS.get(label_key)
    if other_key is not None and other_key in archive:
        # The splits of one file must agree on the number of classes.
        other = _checked_labels(path, other_key, _read_member(path, archive, other_key))
        largest = int(other.max(initial=largest))
    return tuple(str(label) for label in range(largest + 1))


def _given_names(path: Path, names: _Array, labels: NDArray[np.int64]) -> tuple[str, ...]:
    if names.ndim != 1 or names.dtype.kind not in "USiu":
        raise DataError(
            f"{path}: expected 'classes' to be a one-dimensional array of names, "
            f"found {names.dtype} of shape {names.shape}"
        )
    try:
        classes = tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist())
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected 'classes' in UTF-8, found {error}") from error
    bad = np.flatnonzero(labels >= len(classes))
    if len(bad):
        raise DataError(
            f"{path}: expected labels below {len(classes)}, the number of names in 'classes', "
            f"found {labels[bad[0]]} for input {bad[0]}"
        )
    return classes
