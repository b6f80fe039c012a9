"""The hundred small operations behind two numbers as one kernel, where torch can make one that gives the same bits."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection

import torch
from torch import Tensor

from smoothcert.sampling.device.philox import uniform_bits

UniformBits = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""Does what :func:`~smoothcert.sampling.device.philox.uniform_bits` does."""


def bits_on(device: str, rows: Collection[int], dimension: int) -> UniformBits:
    """For so many rows of so many numbers: fused on CUDA, where each operation would cost a pass through memory."""
    return fused_bits(device, rows, dimension) if torch.device(device).type == "cuda" else uniform_bits


def fused_bits(device: str, rows: Collection[int], dimension: int) -> UniformBits:
    """A compiled function, after it has given the bits of the plain one for every number of rows; else the plain one.

    Compilers fail in many ways, and all of them mean: not fused. Slower noise is the same noise.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers warn about themselves
            fused: UniformBits = torch.compile(uniform_bits)
            alike = all(_same_bits(fused, device, count, dimension) for count in rows)
    except Exception:
        return uniform_bits
    return fused if alike else uniform_bits


def _same_bits(fused: UniformBits, device: str, rows: int, dimension: int) -> bool:
    words = torch.arange(5 * rows, device=device).view(rows, 5)
    words = words * 0x9E3779B97F4A7C15 >> 32 & 0xFFFFFFFF  # anything, of all sizes
    keys, votes = words[:, :4].contiguous(), words[:, 4].contiguous()
    expected, found = uniform_bits(keys, votes, dimension), fused(keys, votes, dimension)
    return all(torch.equal(a, b) for a, b in zip(expected, found))
