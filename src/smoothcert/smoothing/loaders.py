"""All inputs of a torch ``DataLoader``, in the order of its data set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.smoothing.inputs import as_numpy

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
        raise InvalidValueError(
            f"the loader has inputs of several shapes: {', '.join(map(str, sorted(shapes)))}"
        )
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
