"""Philox: the published numbers on any device, each number in one place only."""

import numpy as np
import pytest
import torch

from smoothcert.engine import philox
from smoothcert.engine.philox import check_known_answers, stream_key, uniform_bits
from smoothcert.engine.schedule import stream_words
from smoothcert.errors import InvalidValueError
from smoothcert.tally import Phase, Stream
from tests.engine.device.by_hand import bits_of, philox_block

ONES = 0xFFFFFFFF

# Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, block.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def blocks(counters: np.ndarray, keys: np.ndarray) -> list[list[int]]:
    a, b, c, d = torch.from_numpy(counters).unbind(1)
    k0, k1 = torch.from_numpy(keys).unbind(1)
    return torch.stack(philox.philox((a, b, c, d), (k0, k1)), 1).tolist()


def test_published_answers():
    for counter, key, block in KNOWN:
        assert blocks(np.array([counter]), np.array([key])) == [block] == [philox_block(counter, key)]


def test_products_that_wrap_around_lose_no_bit():
    rng = np.random.default_rng(0)
    counters, keys = rng.integers(0, 2**32, (200, 4)), rng.integers(0, 2**32, (200, 2))
    counters[::7] |= 0xFFFF0000
    expected = [philox_block(tuple(c), tuple(k)) for c, k in zip(counters.tolist(), keys.tolist())]
    assert blocks(counters, keys) == expected


def test_numbers_are_those_of_their_stream_vote_and_place():
    streams = [Stream(3, 5, Phase.ESTIMATION), Stream(2**70, 2**63 - 1, Phase.PREDICTION)]
    asked = [(stream, vote) for stream in streams for vote in (0, 1, 63, 2**32 - 1)]
    keys = torch.tensor([stream_key(stream) for stream, _ in asked])
    for dimension in (1, 2, 7, 12):
        lower, upper = uniform_bits(keys, torch.tensor([vote for _, vote in asked]), dimension)
        found = torch.cat([lower, upper], 1).tolist()
        assert found == [bits_of(stream, vote, dimension) for stream, vote in asked]


def test_no_two_inputs_phases_seeds_votes_or_coordinates_share_a_number():
    streams = [Stream(seed, index, phase) for seed in (0, 1) for index in range(5) for phase in Phase]
    drawn = []
    for stream in streams:
        votes = torch.cat([torch.arange(40), torch.arange(2**32 - 3, 2**32)])
        keys = torch.tensor([stream_key(stream)]).expand(len(votes), 4)
        drawn += [one.reshape(-1) for one in uniform_bits(keys, votes, 33)]
    numbers = torch.cat(drawn)
    assert numbers.min() >= 0
    assert numbers.max() < 2**58
    # Two of 70 950 fair 58-bit numbers are equal with a probability below 10⁻⁸.
    assert len(numbers.unique()) == len(numbers) == len(streams) * 43 * 33


def test_keys_are_pinned_and_none_of_the_other_generators_words():
    stream = Stream(0, 0, Phase.ESTIMATION)
    # Published numbers depend on these words: a change here needs a new stream version and a changelog entry.
    assert stream_key(stream) == PINNED
    others = {int(word) for block in range(100) for word in stream_words(stream, block)}
    halves = {half for word in others for half in (word & ONES, word >> 32)}
    assert not halves & set(stream_key(stream))


def test_a_device_that_counts_otherwise_is_refused(monkeypatch):
    check_known_answers("cpu")
    check_known_answers.cache_clear()
    monkeypatch.setattr(philox, "_ROUNDS", 9)
    with pytest.raises(InvalidValueError, match=r"'cpu'.*--generator sfc64"):
        check_known_answers("cpu")


PINNED = (4270560163, 2357581963, 3419373100, 2961126710)
