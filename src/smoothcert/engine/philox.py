"""Philox4x32-10 (Salmon et al. 2011): fair bits as a function of a place, in torch's integers, on any device.

A block of 128 bits is f(key, counter), with f(key, ·) a permutation of all 2¹²⁸ counters. A stream's key and half of
its counters are SHAKE-128 of (seed, input, phase); the other half is (vote, place in the input). So

* no two numbers of a stream share bits: their counters differ, and f(key, ·) never gives two counters the same block;
  votes differ between blocks, so no two blocks do, whatever their size;
* two streams share bits only if all 128 bits of SHAKE agree: of 10⁸ streams any two with a probability below 2⁻⁷⁵.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Collection
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.errors import InvalidValueError
from smoothcert.perturb.sampler import BITS, CellSampler
from smoothcert.tally import STREAM_VERSION, Stream

MOST_VOTES = 1 << 32
"""Of a stream: a vote's number is one word of its counters."""

Words = tuple[int, int, int, int]

UniformBits = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""Does what :func:`uniform_bits` does."""

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_LOW = 0xFFFFFFFF
_SIGN = np.uint64(1 << 63)

# From the known-answer vectors of Random123: counter, key, block.
_KNOWN: tuple[tuple[Words, tuple[int, int], Words], ...] = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((_LOW, _LOW, _LOW, _LOW), (_LOW, _LOW), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


@lru_cache(maxsize=1 << 14)
def stream_key(stream: Stream) -> Words:
    """The two words of a stream's key, and the two that all of its counters have in common."""
    told = f"smoothcert philox stream {STREAM_VERSION}|{stream.seed}/{stream.index}/{int(stream.phase)}"
    a, b, c, d = np.frombuffer(hashlib.shake_128(told.encode()).digest(16), dtype="<u4").tolist()
    return a, b, c, d


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Blocks of four words, one for each element of the counters' and keys' common shape.

    All are int64 with values below 2³². Products wrap around at 2⁶⁴, which leaves their bits what they are; an
    arithmetic shift fills in ones, which are cut off with what else is above 32 bits.
    """
    a, b, c, d = counter
    for number in range(_ROUNDS):
        first, second = ((word + number * weyl) & _LOW for word, weyl in zip(key, _WEYL))
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = _mixed(right, b, first), right, _mixed(left, d, second), left
    return a, b & _LOW, c, d & _LOW


def _mixed(product: Tensor, word: Tensor, key: Tensor) -> Tensor:
    """The product's upper half and the lower halves of the others; what ``word`` has above its own is cut off here."""
    return ((product >> 32) ^ word ^ key).bitwise_and_(_LOW)


def uniform_bits(keys: Tensor, votes: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """58 fair bits for each number of each row: of its first half, and of its second, which is no longer.

    ``keys`` has a row's four words of :func:`stream_key`, ``votes`` its number in the stream. Number j of a row and
    number j + half of it are a block of 128 bits.
    """
    pairs = torch.arange(-(-dimension // 2), device=keys.device)
    k0, k1, n0, n1 = keys.unsqueeze(2).unbind(1)
    a, b, c, d = philox((votes.unsqueeze(1), pairs.unsqueeze(0), n0, n1), (k0, k1))
    rest = dimension // 2
    return _joined(a, b), _joined(c[:, :rest], d[:, :rest])


def _joined(high: Tensor, low: Tensor) -> Tensor:
    """The first 58 of 64 bits."""
    return (high << (BITS - 32)).bitwise_or_(low >> (64 - BITS))


@lru_cache(maxsize=64)
def check_known_answers(device: str) -> None:
    """Refuse a device whose integers don't give the published answers, before anything is drawn on it."""
    counters = torch.tensor([counter for counter, _, _ in _KNOWN], device=device)
    keys = torch.tensor([key for _, key, _ in _KNOWN], device=device)
    a, b, c, d = counters.unbind(1)
    k0, k1 = keys.unbind(1)
    found = torch.stack(philox((a, b, c, d), (k0, k1)), 1).tolist()
    if found != [list(block) for _, _, block in _KNOWN]:
        raise InvalidValueError(
            f"device {device!r} computes with 64-bit integers otherwise than others do, so noise can't be drawn on it: "
            "draw it on the CPU (--generator sfc64)"
        )


def bits_on(device: str, rows: Collection[int], dimension: int) -> UniformBits:
    """The hundred small operations behind two numbers as one kernel, where torch can make one that gives the same bits.

    For so many rows of so many numbers: fused on CUDA, where each operation would cost a pass through memory.
    """
    return fused_bits(device, rows, dimension) if torch.device(device).type == "cuda" else uniform_bits


def fused_bits(device: str, rows: Collection[int], dimension: int) -> UniformBits:
    """A compiled function, after it has given the bits of the plain one for every number of rows; else the plain one.

    Compilers fail in many ways, and all of them mean: not fused, which is said. Slower noise is the same noise.
    """
    reason = "its bits differ from the plain function's"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers warn about themselves
            # Dynamic: one kernel for inputs of any size, so that many models stay below dynamo's limit of recompiling.
            fused: UniformBits = torch.compile(uniform_bits, dynamic=True)
            if all(_same_bits(fused, device, count, dimension) for count in rows):
                return fused
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    warnings.warn(
        f"noise on {device} is drawn by single operations, several times slower: torch.compile made no kernel for it "
        f"({reason}). Votes are the same",
        RuntimeWarning,
        stacklevel=2,
    )
    return uniform_bits


def _same_bits(fused: UniformBits, device: str, rows: int, dimension: int) -> bool:
    words = torch.arange(5 * rows, device=device).view(rows, 5)
    words = words * 0x9E3779B97F4A7C15 >> 32 & 0xFFFFFFFF  # anything, of all sizes
    keys, votes = words[:, :4].contiguous(), words[:, 4].contiguous()
    expected, found = uniform_bits(keys, votes, dimension), fused(keys, votes, dimension)
    return all(torch.equal(a, b) for a, b in zip(expected, found))


class DeviceCells:
    """A sampler's integer thresholds on a device, moved once: 58 bits give the whole number of steps that it gives."""

    def __init__(self, sampler: CellSampler, device: str) -> None:
        """Tables are told apart by the bits above the 58; with the sign turned they have the order of int64 as well."""
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


def _moved(array: NDArray[np.int64], device: str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
