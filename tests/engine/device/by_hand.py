"""The device path by hand: Philox in Python's integers, thresholds by NumPy, one number after the other."""

import hashlib
from fractions import Fraction
from functools import cache

import numpy as np
import torch

from smoothcert.perturb.base import Noise
from smoothcert.perturb.grid import Grid, on_grid
from smoothcert.tally import Stream

MASK = (1 << 32) - 1


def philox_block(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """Philox4x32-10 as Salmon et al. write it."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ k0, right & MASK, (left >> 32) ^ d ^ k1, left & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return [a, b, c, d]


def bits_of(stream: Stream, vote: int, dimension: int) -> list[int]:
    """The 58 bits of each coordinate of a vote."""
    told = f"smoothcert philox stream 2|{stream.seed}/{stream.index}/{int(stream.phase)}"
    digest = hashlib.shake_128(told.encode()).digest(16)
    k0, k1, n0, n1 = (int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))
    half = (dimension + 1) // 2
    blocks = [philox_block((vote, pair, n0, n1), (k0, k1)) for pair in range(half)]
    words = [a << 32 | b for a, b, _, _ in blocks] + [c << 32 | d for _, _, c, d in blocks]
    return [word >> 6 for word in words[:dimension]]


@cache
def _thresholds(kind: type[Noise], ratio: Fraction) -> np.ndarray:
    return kind.thresholds(ratio)


def steps_of(noise: Noise, grid: Grid, shape: tuple[int, ...], bits: list[int]) -> np.ndarray:
    """Whole numbers of steps: how many of its own table's thresholds a coordinate's bits have reached, from 0 on."""
    scales = np.broadcast_to(noise.scales(), shape).ravel()
    found = []
    for sigma, own in zip(scales, bits):
        table = _thresholds(type(noise), Fraction(float(sigma)) * Fraction(grid.steps_per_unit(float(sigma))))
        found.append(int(table.searchsorted(np.uint64(own), side="right")) - len(table) // 2)
    return np.array(found)


def noisy_rows(
    noise: Noise, grid: Grid, x: np.ndarray, stream: Stream, votes: range, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """What the model sees of these votes."""
    on = on_grid(noise, grid, x.shape)
    point = on.point(x).steps.ravel()
    whole = np.stack([steps_of(noise, grid, x.shape, bits_of(stream, v, x.size)) for v in votes]) + point
    divisor = on.divisor(dtype).reshape(-1)
    return (torch.from_numpy(whole).to(dtype) / divisor).reshape(len(votes), *x.shape)
