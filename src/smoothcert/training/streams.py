"""Random streams of training, each named by seed, epoch, purpose and shard: no state to save."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """One stream for each, so that drawing more of one never shifts another."""

    SHUFFLE = 0
    NOISE = 1
    MODEL = 2
    VALIDATION = 3
    VALIDATION_NOISE = 4
    AUGMENTATION = 5
    HOLDOUT = 6
    SIGMA = 7


def stream_seed(seed: int, epoch: int, purpose: Purpose, shard: int = 0) -> int:
    """The number that seeds a stream."""
    words = [seed, epoch, int(purpose), shard]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])


def stream(
    seed: int, epoch: int, purpose: Purpose, shard: int = 0, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A generator at the beginning of a stream."""
    return torch.Generator(device).manual_seed(stream_seed(seed, epoch, purpose, shard))
