"""Groups of coordinates that share a σ: by pixel, row, channel, patch, or as a list or a file says."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.files import MOST_TEXT, parse_json, read_file
from smoothcert.npy import load_npy

FORMS = "pixel, channel, rows, patch:K, a list such as 0,0,1, or a .json or .npy file of labels"


def group_labels(spec: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """A group number (0 … groups−1) for each coordinate of an input of this shape.

    ``pixel``: every coordinate by itself. ``channel``: the first axis of an image. ``rows``: a row of a channel.
    ``patch:K``: squares of K×K pixels of a channel. Else labels of the user's own, any integers.
    """
    numbers = np.arange(math.prod(shape)).reshape(shape)
    if spec == "pixel":
        return numbers
    if named_groups(spec):
        return _of_image(spec, shape)
    return _renumbered(spec, _given(spec), shape)


def named_groups(spec: str) -> bool:
    """Whether the groups follow from the inputs' shape alone, and not from labels of the user's own."""
    return spec in ("pixel", "channel", "rows") or spec.startswith("patch:")


def group_names(spec: str, shape: tuple[int, ...]) -> list[str] | None:
    """What each group of an image is called, in the order of their numbers; None where each coordinate has its own.

    Labels of the user's own aren't kept with a fit: None for those, too.
    """
    if spec == "pixel" or not named_groups(spec) or len(shape) != 3:
        return None
    channels = [f"channel {k}" for k in range(shape[0])]
    if spec == "channel":
        return channels
    of = [""] if shape[0] == 1 else [f" of {channel}" for channel in channels]
    if spec == "rows":
        return [f"row {k}{channel}" for channel in of for k in range(shape[1])]
    down, across = (-(-length // int(spec.removeprefix("patch:"))) for length in shape[1:])
    return [f"patch {r}, {c}{channel}" for channel in of for r in range(down) for c in range(across)]


def _of_image(spec: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    if len(shape) != 3:
        raise InvalidValueError(
            f"groups {spec!r} needs images of shape (channels, height, width), got inputs of shape {shape}; use "
            "pixel, a list or a file"
        )
    channel, row, column = np.indices(shape)
    if spec == "channel":
        return np.asarray(channel, dtype=np.int64)
    if spec == "rows":
        return np.asarray(channel * shape[1] + row, dtype=np.int64)
    side = spec.removeprefix("patch:")
    if not (side.isdecimal() and 1 <= int(side) <= max(shape[1:])):
        raise InvalidValueError(
            f"groups patch:K needs a whole number K from 1 to {max(shape[1:])}, got {spec!r}"
        )
    down, across = (-(-length // int(side)) for length in shape[1:])
    return np.asarray((channel * down + row // int(side)) * across + column // int(side), dtype=np.int64)


def _given(spec: str) -> NDArray[np.generic]:
    path = Path(spec)
    if path.suffix in (".npy", ".json"):
        try:
            if path.suffix == ".npy":
                return load_npy(path)
            return np.asarray(parse_json(read_file(path, MOST_TEXT)))
        except (OSError, ValueError, DataError) as error:
            raise DataError(f"groups: {path} can't be read as integer labels ({error})") from None
    try:
        return np.array([int(label) for label in spec.split(",")])
    except ValueError:
        raise InvalidValueError(f"groups must be {FORMS}; got {spec!r}") from None


def _renumbered(spec: str, labels: NDArray[np.generic], shape: tuple[int, ...]) -> NDArray[np.int64]:
    if labels.dtype.kind not in "iu":
        raise InvalidValueError(f"groups {spec!r}: labels must be integers, found {labels.dtype}")
    if labels.size != math.prod(shape):
        raise InvalidValueError(
            f"groups {spec!r}: {labels.size} labels for inputs of {math.prod(shape)} numbers (shape {shape}); give one "
            "label for each"
        )
    _, numbers = np.unique(labels, return_inverse=True)
    return np.asarray(numbers, dtype=np.int64).reshape(shape)
