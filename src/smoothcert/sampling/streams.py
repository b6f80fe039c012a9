"""Random streams: every block of votes has its own generator state, derived from what it is for."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from smoothcert.tally import Stream

# torch.Generator's saved state on the CPU: seed, left and seeded flags, next, then the 624 words of MT19937,
# each in eight bytes.
_HEADER, _WORDS, _STATE_BYTES = 24, 624, 5056
_VERSION = b"smoothcert stream 1"


class BlockGenerator:
    """A torch generator that can be put at the start of any block of any stream.

    The full MT19937 state is expanded by SHAKE-128 from (seed, input, phase, block). Seeding by number would
    not do: torch keeps 32 bits of a seed, and among the blocks of one test set some would be drawn twice.
    """

    def __init__(self) -> None:
        self.torch = torch.Generator().manual_seed(0)
        self._state = self.torch.get_state()
        if self._state.numel() != _STATE_BYTES:
            raise RuntimeError(f"torch {torch.__version__} keeps its generator state in an unknown layout")
        self._words = self._state.numpy()[_HEADER : _HEADER + 8 * _WORDS].view(np.uint64)

    def seek(self, stream: Stream, block: int) -> torch.Generator:
        """The generator, at the first number of ``block``."""
        self._words[:] = stream_words(stream, block)
        return self.torch.set_state(self._state)


def stream_words(stream: Stream, block: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """The 624 words of generator state that belong to one block."""
    key = f"{stream.seed}/{stream.index}/{int(stream.phase)}/{block}".encode()
    return np.frombuffer(hashlib.shake_128(_VERSION + b"|" + key).digest(4 * _WORDS), dtype="<u4")
