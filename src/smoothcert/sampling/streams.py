"""Random streams: every block of votes has its own fair bits, and all noise that a model sees is drawn here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.noise import Grid, Noise, draw_unit, on_grid
from smoothcert.noise.grid import GridNoise
from smoothcert.tally import STREAM_VERSION, Stream

_WORDS = 3  # of SFC64's state; its fourth is a counter that begins at 1


class BlockBits:
    """A bit generator that can be put at the start of any block of any stream.

    SFC64's 192 bits of state are SHAKE-128 of (seed, input, phase, block), so that no two blocks share a sequence: two
    of a million million of them meet with a probability below 2⁻¹⁰⁰.
    """

    def __init__(self) -> None:
        self._bits = np.random.SFC64(0)
        self._state = self._bits.state

    def seek(self, stream: Stream, block: int) -> np.random.SFC64:
        """The generator, at the first bit of ``block``."""
        state = np.ones(_WORDS + 1, dtype=np.uint64)
        state[:_WORDS] = stream_words(stream, block)
        self._state["state"]["state"] = state
        self._bits.state = self._state
        return self._bits


def stream_words(stream: Stream, block: int) -> NDArray[np.uint64]:
    """The words of generator state that belong to one block."""
    key = f"smoothcert stream {STREAM_VERSION}|{stream.seed}/{stream.index}/{int(stream.phase)}/{block}"
    return np.frombuffer(hashlib.shake_128(key.encode()).digest(8 * _WORDS), dtype="<u8")


@dataclass(frozen=True, eq=False)
class NoisyCopies:
    """Noisy copies of an input: (``steps`` + whole numbers of steps drawn from the noise) / ``divisor``.

    Sent to another process, they are the noise and a grid point, some kilobytes: tables are made where the model is.
    """

    noise: GridNoise
    steps: torch.Tensor

    @cached_property
    def divisor(self) -> torch.Tensor:
        """In the type of the steps."""
        return self.noise.divisor(self.steps.dtype)

    def draw(self, out: torch.Tensor, bits: np.random.SFC64) -> None:
        """Overwrite ``out``: sums of whole numbers are exact, and dividing them is a part of the classifier."""
        self.noise.sampler.draw(out.numpy(), bits)
        out.add_(self.steps).div_(self.divisor)

    def __reduce__(self) -> Any:
        return _arrived, (self.noise.noise, self.noise.grid, self.steps.numpy())


def _arrived(noise: Noise, grid: Grid, steps: NDArray[np.floating]) -> NoisyCopies:
    return NoisyCopies(on_grid(noise, grid, steps.shape), torch.from_numpy(np.array(steps)))


def unit_noise(
    noise: Noise, shape: tuple[int, ...], dtype: torch.dtype, bits: np.random.SFC64
) -> torch.Tensor:
    """Noise of this kind with standard deviation 1, for searches, fits and attacks; no certificate rests on it."""
    drawn = torch.empty(shape, dtype=dtype)
    draw_unit(type(noise), drawn.numpy(), bits)
    return drawn
