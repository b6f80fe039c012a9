"""Stream states are real MT19937 states: numpy's generator, given the same words, says the same numbers."""

from __future__ import annotations

import numpy as np
import torch

from smoothcert.sampling.streams import BlockGenerator, stream_words
from smoothcert.tally import Phase, Stream

STREAM = Stream(5, 17, Phase.SELECTION)


def test_torch_reads_the_state_as_mt19937() -> None:
    reference = np.random.RandomState()
    reference.set_state(("MT19937", stream_words(STREAM, 3), 624))
    words = reference.randint(0, 2**32, size=1000, dtype=np.uint32)
    out = torch.empty(1000)
    out.uniform_(generator=BlockGenerator().seek(STREAM, 3))
    # torch makes a float32 uniform from the low 24 bits of each word.
    assert np.array_equal(out.numpy(), (words & 0xFFFFFF).astype(np.float32) / np.float32(2**24))


def test_seeking_is_repeatable_whatever_was_drawn_before() -> None:
    generator = BlockGenerator()
    first = torch.empty(33).normal_(generator=generator.seek(STREAM, 0))
    torch.empty(7).normal_(generator=generator.torch)
    torch.empty(5).uniform_(generator=generator.seek(STREAM, 9))
    assert torch.equal(first, torch.empty(33).normal_(generator=generator.seek(STREAM, 0)))
    assert torch.equal(first, torch.empty(33).normal_(generator=BlockGenerator().seek(STREAM, 0)))


def test_states_are_pinned_across_versions() -> None:
    # Published numbers depend on these words: a change here needs a new stream version and a changelog entry.
    assert stream_words(Stream(0, 0, Phase.ESTIMATION), 0)[:3].tolist() == PINNED


PINNED = [1208689331, 3271852462, 3898669053]
