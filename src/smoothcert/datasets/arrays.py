"""``npz:PATH``: inputs and labels from a numpy archive, in whatever units the file has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from smoothcert.datasets.base import PATH_FORMS, Dataset
from smoothcert.errors import DataError
from smoothcert.npy import NpyArchive, opened_npz

_PAIRS = (("x", "y"), ("images", "labels"), ("inputs", "labels"), ("data", "target"))

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
    if not path.is_file():
        raise DataError(f"{path}: expected an .npz file, found no such file")
    with path.open("rb") as stream:
        if stream.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
            raise DataError(f"{path}: expected an .npz archive with keys x and y, found a single .npy array")
    with opened_npz(path) as archive:
        pairs = ((f"x_{split}", f"y_{split}"), *_PAIRS)
        pair = next((pair for pair in pairs if pair[0] in archive and pair[1] in archive), None)
        if pair is None:
            expected = ", ".join("/".join(each) for each in pairs)
            raise DataError(
                f"{path}: expected one pair of the keys {expected}, found {', '.join(archive) or 'no keys'}; "
                "save it with np.savez(path, x=inputs, y=labels)"
            )
        inputs = _checked_inputs(path, pair[0], _read_member(path, archive, pair[0]))
        labels = _checked_labels(path, pair[1], _read_member(path, archive, pair[1]))
        classes = _class_names(path, archive, pair[1], labels)
    return Dataset(f"npz:{path}", inputs, labels, classes)


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
            f"{path}: expected an .npz archive, it is damaged ({error}); save it again"
        ) from error


def _checked_inputs(path: Path, key: str, inputs: _Array) -> _Array:
    if inputs.dtype.kind not in "biuf":
        raise DataError(f"{path}: expected {key!r} to hold real numbers, found {inputs.dtype}")
    # Inputs reach the model as float32, so a value beyond its range would become infinite later.
    if inputs.dtype.kind == "f" and (bad := ~(np.abs(inputs) <= np.finfo(np.float32).max)).any():
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
        names = _read_member(path, archive, "classes")
        if names.ndim != 1 or names.dtype.kind not in "USiu":
            raise DataError(
                f"{path}: expected 'classes' to be a one-dimensional array of names, "
                f"found {names.dtype} of shape {names.shape}"
            )
        try:
            return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist())
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: expected 'classes' in UTF-8, found {error}") from error
    largest = int(labels.max(initial=-1))
    other_key = {"y_train": "y_test", "y_test": "y_train"}.get(label_key)
    if (
        other_key is not None and other_key in archive
    ):  # the splits of a file must agree on the number of classes
        largest = int(
            _checked_labels(path, other_key, _read_member(path, archive, other_key)).max(initial=largest)
        )
    return tuple(str(label) for label in range(largest + 1))
