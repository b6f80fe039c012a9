"""Inputs as users pass them: arrays, tables, torch loaders, and the numbers that name their random streams."""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError, SmoothcertError, check_count, plain_int
from smoothcert.models.function import is_masked
from smoothcert.perturb.base import NOISES, Noise
from smoothcert.perturb.diagonal import diagonal_noise
from smoothcert.registry import unknown_name

Labels = Callable[[int], int]
"""The label that belongs to an index."""

_FLOATS_OF_NUMPY = ("torch.float16", "torch.float32", "torch.float64")
_EXACT_IN_FLOAT64 = 1 << 53
_MASKED = "an array with masked values, which NumPy would unmask: fill them in, or drop their rows"


_SMALL = 0.005  # of the inputs' range


class SmallNoiseWarning(UserWarning):
    """Noise that is tiny beside the range of the inputs, most often because they are in other units than sigma."""


def warn_if_small(sigma: float, low: float, high: float) -> None:
    """Say that noise is tiny beside the range of the inputs."""
    if 0 < sigma < _SMALL * (high - low) < math.inf:
        warnings.warn(
            f"sigma = {sigma:g} is {100 * sigma / (high - low):.2g} % of the range of the inputs, {low:g} to {high:g}, "
            "whose units noise and radii have: rescale the inputs (pixels / 255), or give sigma in their units",
            SmallNoiseWarning,
            stacklevel=4,
        )


def as_numpy(x: ArrayLike) -> NDArray[Any]:
    """``x`` as an array in its own type, wherever it lives; refused where one can't be made of all of it."""
    if is_masked(x):
        raise InvalidValueError(_MASKED)
    try:
        detach = getattr(x, "detach", None)  # a torch tensor, perhaps on a device or with a gradient
        if detach is None:
            found = np.asanyarray(x)
            if is_masked(found):  # what isn't an array may become one of these
                raise InvalidValueError(_MASKED)
            check_not_rounded(x, found)
            return np.asarray(found)
        tensor = detach().cpu()
        if tensor.is_floating_point() and str(tensor.dtype) not in _FLOATS_OF_NUMPY:
            tensor = tensor.float()  # exact for bfloat16 and the 8-bit floats
        return np.asarray(tensor.numpy())
    except InvalidValueError:
        raise
    # Rows of several lengths, a sparse tensor, lazy signs.
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidValueError(f"a {type(x).__name__} that is not an array of numbers ({reason})") from None


def check_not_rounded(x: Any, found: NDArray[Any]) -> None:
    """Refuse whole numbers that became other ones in an array of floats; ``x`` is what the array was made of."""
    if found is x or found.dtype.kind != "f" or not (np.abs(found) >= _EXACT_IN_FLOAT64).any():
        return
    # Columns of pandas' one by one: it rounds them first to have one type.
    given = np.asarray(x.astype(object) if hasattr(x, "iloc") else x, dtype=object)
    for one, near in zip(given.reshape(-1), found.reshape(-1)):
        value = one.item() if hasattr(one, "item") else one
        if isinstance(value, int) and np.isfinite(near) and value != int(near):
            raise InvalidValueError(
                f"{value} isn't exact in {found.dtype}, which numbers beside it need: give whole numbers alone, or "
                "subtract an offset"
            )


def same_values(given: NDArray[Any], values: NDArray[Any]) -> bool:
    """Whether every pair is certainly the same: by exact value, where NumPy would round whole numbers beside floats."""
    one, other = (
        [value.item() if isinstance(value, np.generic) else value for value in each.reshape(-1).tolist()]
        for each in (given, values)
    )
    try:
        return one == other
    except (TypeError, ValueError, RuntimeError):  # no single answer: missing values, arrays
        return False


def as_array(x: ArrayLike) -> NDArray[Any]:
    """Inputs as an array, from anything that holds numbers; refuses what holds none."""
    if isinstance(x, list | tuple) and any(hasattr(each, "getbands") for each in x):
        raise InvalidValueError(
            "PIL images hold rows, columns and channels from 0 to 255: give an array as the model takes it, "
            "np.stack([np.asarray(i.convert('RGB')) for i in images]).transpose(0, 3, 1, 2) / 255"
        )
    array = as_numpy(x)
    if array.dtype == object and hasattr(x, "iloc"):
        array = _table_of_numbers(x)
    if array.dtype == object and (text := _columns_of_text(x)):
        raise InvalidValueError(
            f"columns that hold no numbers: {', '.join(text)}. Noise is added to numbers: hold such columns, "
            f"hold=[{', '.join(text)}], or encode them first"
        )
    if array.ndim == 0 or array.dtype == object:
        raise InvalidValueError(f"inputs must be numbers, got {type(x).__name__} of {array.dtype}")
    if array.size == 0:
        raise InvalidValueError(f"there is no input to certify: the batch is empty (shape {array.shape})")
    return array


def _table_of_numbers(table: Any) -> NDArray[Any]:
    """A table, or a row of one, with columns of several types of numbers: truths, pandas' nullable ones, Arrow's.

    As objects where a value is not a number; refused with the name of a column that misses one.
    """
    values = table.to_numpy(dtype=object)
    flat = values.reshape(-1).tolist()
    names = list(table.columns) if values.ndim == 2 else list(table.index)
    for place, value in enumerate(flat):
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            raise InvalidValueError(
                f"column {names[place % len(names)]!r} misses a value in row {place // len(names)}: fill it in, or "
                "drop the row"
            )
    if not all(isinstance(value, bool | int | float | np.bool_ | np.number) for value in flat):
        return np.asarray(values)
    columns = [np.array(column.tolist()) for column in np.atleast_2d(values).T]
    found = np.stack(columns, axis=-1)
    check_not_rounded(table, found)
    return found if values.ndim == 2 else found[0]


def _columns_of_text(table: Any) -> list[str]:
    kinds = getattr(table, "dtypes", None)
    if kinds is None or not hasattr(kinds, "items"):
        return []
    return [repr(name) for name, kind in kinds.items() if getattr(kind, "kind", "O") not in "biuf"]


def by_column(x: Any, names: tuple[str, ...] | None) -> Any:
    """A table's columns in the order in which the model was taught them; arrays have no names and stay as they are."""
    columns = getattr(x, "columns", None)
    if columns is None:
        columns = _names_of_row(x)
    if columns is None or names is None or list(columns) == list(names):
        return x
    held = list(columns)
    for missing in (name for name in names if name not in held):
        raise InvalidValueError(f"inputs have no column {missing!r}; they have {', '.join(map(str, held))}")
    return x[list(names)]


def _names_of_row(x: Any) -> Any:
    """What one row of a table (a Series) calls its columns; None of anything else, and where it only numbers them."""
    names = getattr(x, "index", None)
    if names is None or callable(names) or getattr(x, "ndim", None) != 1:  # lists have a method of that name
        return None
    return names if any(isinstance(name, str) for name in names) else None


def label_numbers(
    y: ArrayLike, names: Sequence[Any] | None, count: int, classes: int | None = None, what: str = "labels"
) -> list[int]:
    """The number of each label's class: its place among ``names``, or the number that it is; ``count`` of them.

    Names that are text leave numbers free to be numbers, but for one that another class spells. Where names are
    numbers, a number that isn't among them is a mistake.
    """
    places = {name: place for place, name in enumerate(names or ())}
    numbered = names is None or all(isinstance(name, str) for name in names)
    most = classes if names is None else len(names)

    def number_of(label: Any) -> int | None:
        found = places.get(label)
        if found is not None or not numbered:
            return found
        if isinstance(label, bool) or not isinstance(label, int | float) or not 0 <= label == label // 1:
            return None
        number = int(label)
        fits = (most is None or number < most) and places.get(str(number), number) == number
        return number if fits else None

    given = as_numpy(y).reshape(-1).tolist()
    if len(given) != count:
        raise InvalidValueError(f"{what} must be {count}, one for each input, got {len(given)}")
    numbers = []
    for label in given:
        if (number := number_of(label)) is None:
            last = "…" if most is None else most - 1
            known = f"0 to {last}" if names is None else ", ".join(map(repr, names[:8]))
            raise InvalidValueError(f"{what} must be {count} classes, got {label!r}; the model has {known}")
        numbers.append(number)
    return numbers


def labels_by_index(indices: list[int], labels: ArrayLike, names: tuple[Any, ...] | None) -> Labels:
    """Numbers of labels by index, as many as inputs; labels go by name where the model's classes have names."""
    found: dict[int, int] = {}
    for index, value in zip(indices, label_numbers(labels, names, len(indices))):
        if found.setdefault(index, value) != value:
            raise InvalidValueError(f"equal inputs have labels {found[index]} and {value}: give one index=")
    return found.__getitem__


def numbered_inputs(inputs: NDArray[Any], index: int | None) -> list[tuple[int, NDArray[Any]]]:
    """Pair inputs with stream numbers: counted from ``index``, or from each input's own values."""
    if index is not None:
        index = plain_int(index)
        check_count("index", index, least=0)
        return [(index + i, x) for i, x in enumerate(inputs)]
    return [(content_index(x), x) for x in inputs]


@contextmanager
def naming_rows(numbered: Sequence[tuple[int, object]], index: int | None) -> Iterator[None]:
    """Errors name an input by its row in the caller's array, not by a stream number that follows from its values."""
    if index is not None:
        yield
        return
    rows = {str(number): str(row) for row, (number, _) in reversed(list(enumerate(numbered)))}
    try:
        yield
    except SmoothcertError as error:
        told = re.sub(r"\b\d+\b", lambda found: rows.get(found[0], found[0]), str(error))
        error.args = (told, *error.args[1:])
        raise


def as_shape(input_shape: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """The shape of one input as a tuple; a number is that of a vector."""
    if input_shape is None:
        return None
    shape = np.atleast_1d(input_shape)
    if shape.dtype.kind not in "iu" or shape.ndim != 1 or (shape < 1).any():
        raise InvalidValueError(
            f"input_shape must be positive whole numbers, such as (3, 32, 32), got {input_shape!r}"
        )
    return tuple(shape.tolist())


def content_index(x: NDArray[Any]) -> int:
    """A stream number that follows from an input's values: equal inputs have equal ones, whatever their type.

    A choice among several streams of one input would be a choice of the one that flatters it.
    """
    x = _canonical(x)
    digest = hashlib.sha256(json.dumps([x.dtype.str, list(x.shape)]).encode() + x.tobytes()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _canonical(x: NDArray[Any]) -> NDArray[Any]:
    """Float64 without −0; where that doesn't hold the same numbers, beside it what it leaves out of each."""
    if x.dtype.kind not in "biuf" or x.size == 0:
        return x
    with np.errstate(over="ignore", invalid="ignore"):
        plain = x.astype(np.float64) + 0.0
        rest = _left_out(x, plain)
    return np.stack([plain, rest]) if rest.any() else plain


def _left_out(x: NDArray[Any], plain: NDArray[np.float64]) -> NDArray[np.float64]:
    if x.dtype.kind == "f":
        return np.where(np.isfinite(plain), x - plain, 0.0).astype(np.float64) + 0.0  # of long doubles alone
    if x.dtype.kind == "b" or -_EXACT_IN_FLOAT64 <= int(x.min()) <= int(x.max()) <= _EXACT_IN_FLOAT64:
        return np.zeros(x.shape)
    # Python's whole numbers: the difference of two types may be computed in a third, which rounds.
    rest = [one - int(near) for one, near in zip(x.reshape(-1).tolist(), plain.reshape(-1).tolist())]
    return np.array(rest, np.float64).reshape(x.shape)


_SHUFFLES = (
    "the loader shuffles, so that answers couldn't be told apart: give one with shuffle=False and no sampler; "
    "torch.utils.data.Subset has the inputs you want in the order you want"
)


def is_loader(x: object) -> bool:
    """Whether inputs come out of it in batches, as of a ``DataLoader``."""
    return hasattr(x, "dataset") and hasattr(x, "__iter__")


def from_loader(loader: Any, input_shape: tuple[int, ...] | None) -> NDArray[Any]:
    """A batch of all inputs, without their targets; refused unless answer i is of input i that the data set gives.

    A loader without batches (``batch_size=None``) gives inputs or batches, which ``input_shape`` has to tell.
    """
    _check_order(loader)
    given = (batch[0] if isinstance(batch, list | tuple) else batch for batch in loader)
    arrays = [as_numpy(one) for one in given]
    if getattr(loader, "batch_sampler", loader) is None:
        arrays = [_as_batch(array, input_shape) for array in arrays]
    if any(array.ndim < 2 or array.dtype == object for array in arrays):
        raise InvalidValueError(
            "the batches of the loader are neither inputs nor (inputs, targets): give the inputs themselves, or a "
            "loader of those"
        )
    if not arrays:
        raise InvalidValueError("there is no input to certify: the loader is empty")
    if len(shapes := {array.shape[1:] for array in arrays}) > 1:
        raise InvalidValueError(f"the loader has inputs of shapes {', '.join(map(str, sorted(shapes)))}")
    return np.concatenate(arrays)


def _as_batch(array: NDArray[Any], input_shape: tuple[int, ...] | None) -> NDArray[Any]:
    """One input, or a batch of them: joined end to end, inputs would be certified as one."""
    if input_shape is None:
        raise InvalidValueError(
            "the loader has batch_size=None, so that one input can't be told from a batch: give it a batch_size, or "
            "the classifier input_shape="
        )
    return array[np.newaxis] if array.shape == input_shape else array


def _check_order(loader: Any) -> None:
    """Refuse a loader whose inputs don't come in the order of its data set, as far as its samplers tell."""
    from torch.utils.data import IterableDataset  # whoever has a loader has imported it

    batches, sampler = getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)
    for each in (sampler, batches, getattr(batches, "sampler", None)):
        if "Random" in type(each).__name__ or getattr(each, "shuffle", False):
            raise InvalidValueError(_SHUFFLES)
    if getattr(loader, "num_workers", 0) and not getattr(loader, "in_order", True):
        raise InvalidValueError("the loader gives batches as they are ready: give one with in_order=True")
    source = sampler if batches is None else batches
    # An iterable's order is its own, and has no numbers.
    if source is None or isinstance(loader.dataset, IterableDataset):
        return
    indices = list(_numbers(source))
    # By their name samplers can say anything: the numbers are looked at, and again, as they may be drawn each time.
    if any(not a < b for a, b in pairwise(indices)) or indices != list(_numbers(source)):
        raise InvalidValueError(_SHUFFLES)


def _numbers(source: Any) -> Iterator[Any]:
    """The indices that a sampler gives, one by one or in lists."""
    for one in source:
        if isinstance(one, list | tuple) or np.ndim(one):
            yield from one
        else:
            yield one


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
        raise InvalidValueError(f"sigma must be a number or of an input's shape, {shape}, got {sigmas.shape}")
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
            raise InvalidValueError(f"inputs of shape {shape} have no columns: hold a mask of that shape")
        for one in given.reshape(-1).tolist():
            place = column_place(one, shape[0], columns)
            if mask[place]:
                raise InvalidValueError(f"column {one!r} is held twice: name columns once, or give a mask")
            mask[place] = True
    if not mask.any() or mask.all():
        raise InvalidValueError(
            f"some coordinates must be held and some not, got {int(mask.sum())} of {mask.size}"
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
