"""Which coordinates of an input have noise, and of which scale: by number, by mask, or by the names of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.perturb.base import NOISES, Noise
from smoothcert.perturb.diagonal import diagonal_noise
from smoothcert.registry import unknown_name


def noise_on_columns(
    kind: str,
    sigma: Any,
    hold: ArrayLike | Sequence[str] | None,
    shape: tuple[int, ...] | None,
    columns: Sequence[str] | None,
) -> tuple[Noise, ArrayLike | Sequence[str] | None]:
    """The noise of one σ, of one for each coordinate, or of one for each of some columns; and what is held beside it.

    ``shape`` is an input's and ``columns`` the names of its coordinates, as far as the model tells. Of noise with
    several scales, those of the coordinates that are not held are kept, in their order.
    """
    if isinstance(sigma, Mapping):
        return _noise_by_column(kind, sigma, hold, shape, columns)
    sigmas = np.asarray(sigma)
    if sigmas.ndim == 0:
        return NOISES[kind](sigmas.item()), hold
    if sigmas.dtype.kind not in "iuf":
        raise InvalidValueError(f"sigma must hold numbers, got {sigmas.dtype}")
    if shape is not None and sigmas.shape != shape:
        raise InvalidValueError(
            f"sigma of shape {sigmas.shape} must be a number or have the shape of an input, {shape}"
        )
    if hold is not None:
        sigmas = sigmas[~held_mask(hold, sigmas.shape, columns)]
    return diagonal_noise(kind, sigmas.astype(np.float64)), hold


def _noise_by_column(
    kind: str,
    sigma: Mapping[Any, float],
    hold: ArrayLike | Sequence[str] | None,
    shape: tuple[int, ...] | None,
    columns: Sequence[str] | None,
) -> tuple[Noise, NDArray[np.bool_] | None]:
    if columns is not None:
        shape = (len(columns),)
    if shape is None or len(shape) != 1:
        raise InvalidValueError(
            f"sigma by column needs a model of rows that says how many columns it has, got {sigma!r}: give "
            "input_shape=(columns,), or an array of sigmas in the shape of an input"
        )
    if not sigma:
        raise InvalidValueError("sigma must name at least one column, got {}")
    free = {column_place(name, shape[0], columns): value for name, value in sigma.items()}
    if len(free) < len(sigma):
        raise InvalidValueError(f"sigma names a column twice: {list(sigma)}")
    held = np.ones(shape, dtype=bool)
    held[list(free)] = False
    if hold is not None and not np.array_equal(held, told := held_mask(hold, shape, columns)):
        names = list(range(shape[0])) if columns is None else list(columns)
        both = [names[k] for k in np.flatnonzero(told & ~held)]
        neither = [names[k] for k in np.flatnonzero(held & ~told)]
        raise InvalidValueError(
            f"columns that are held have no sigma, got both for {both}"
            if both
            else f"columns without a sigma that are not held: {neither}; give a sigma, or leave hold out"
        )
    sigmas = np.array([free[place] for place in sorted(free)], dtype=np.float64)
    return diagonal_noise(kind, sigmas), held if held.any() else None


def held_mask(
    held: ArrayLike | Sequence[str], shape: tuple[int, ...], columns: Sequence[str] | None
) -> NDArray[np.bool_]:
    """Where an input of this shape is held: from a mask of the shape, places, or names among its ``columns``."""
    given = np.asarray(held)
    if given.dtype == bool:
        if given.shape != shape:
            raise InvalidValueError(f"a mask of shape {given.shape} doesn't fit inputs of shape {shape}")
        mask = given.copy()
    else:
        mask = np.zeros(shape, dtype=bool)
        if len(shape) != 1:
            raise InvalidValueError(
                f"inputs of shape {shape} have no columns: say what is held by a mask of that shape"
            )
        for one in given.reshape(-1).tolist():
            place = column_place(one, shape[0], columns)
            if mask[place]:
                raise InvalidValueError(
                    f"column {one!r} is held twice: name columns once, or give a mask of True and False"
                )
            mask[place] = True
    if not mask.any() or mask.all():
        raise InvalidValueError(
            f"some coordinates must be held and some not, got {int(mask.sum())} of {mask.size} held"
        )
    mask.setflags(write=False)
    return mask


def column_place(column: Any, width: int, columns: Sequence[str] | None) -> int:
    """The number of a column that is given by number or name."""
    if isinstance(column, str):
        if columns is None:
            raise InvalidValueError(
                f"the model doesn't name its columns, so that none is called {column!r}: say by number what is held, "
                f"from 0 to {width - 1}"
            )
        names = list(columns)
        if column not in names:
            raise unknown_name("column of the model", column, names)
        return names.index(column)
    if not isinstance(column, int) or not 0 <= column < width:
        raise InvalidValueError(f"columns are numbered from 0 to {width - 1}, got {column!r}")
    return column
