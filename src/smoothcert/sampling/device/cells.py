"""Cells on the device: the integer thresholds of :class:`~smoothcert.noise.sampler.CellSampler`, searched there."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from smoothcert.noise.sampler import CellSampler
from smoothcert.noise.thresholds import BITS

_SIGN = np.uint64(1 << 63)


class DeviceCells:
    """A sampler's tables, moved once: the whole number of steps that belongs to 58 bits is the one it would give."""

    def __init__(self, sampler: CellSampler, device: str) -> None:
        """Tables are told apart by the bits above the 58; with the sign turned they have the order of int64, too."""
        which = sampler.which
        self._thresholds = _moved((sampler.thresholds ^ _SIGN).view(np.int64), device)
        table = np.zeros(1, dtype=np.int64) if which is None else which
        self._begin = _moved(((table.astype(np.uint64) << np.uint64(BITS)) ^ _SIGN).view(np.int64), device)
        self._zero = _moved(sampler.zeros[table].astype(np.int64), device)
        self._single = which is None

    def steps(self, bits: Tensor, columns: slice) -> Tensor:
        """Steps for rows of 58-bit numbers that belong to these coordinates of an input."""
        begin, zero = (one if self._single else one[columns] for one in (self._begin, self._zero))
        return torch.searchsorted(self._thresholds, bits + begin, right=True).sub_(zero)


def _moved(array: np.ndarray[tuple[int, ...], np.dtype[np.int64]], device: str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
