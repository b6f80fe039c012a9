"""Random streams of a fit, each named by seed and purpose: no state to save."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch

_ROOM = 0x6E6F697365  # keeps them apart from training's, which are named by numbers too


class Purpose(IntEnum):
    """One for each, so that drawing more of one never shifts another."""

    HOLDOUT = 0
    SHUFFLE = 1
    NOISE = 2
    START = 3
    ORDER = 4
    VALIDATION = 5


def stream(seed: int, purpose: Purpose, *words: int) -> torch.Generator:
    """A generator at the beginning of a stream."""
    return torch.Generator().manual_seed(stream_seed(seed, purpose, *words))


def noise_bits(seed: int, *words: int) -> np.random.SFC64:
    """Fair bits for the noise at these words, at the beginning of their stream."""
    return np.random.SFC64(stream_seed(seed, Purpose.NOISE, *words))


def stream_seed(seed: int, purpose: Purpose, *words: int) -> int:
    """The number that names a stream; no certification draws from it unless given that exact seed."""
    state = np.random.SeedSequence([_ROOM, seed, int(purpose), *words]).generate_state(1, np.uint64)
    return int(state[0])
