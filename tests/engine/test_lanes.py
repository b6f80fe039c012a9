"""Lanes: an item's slot is its own affair, and rounds are as few as the fullest slot allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.engine.schedule import rounds, slot_of


@given(st.lists(st.integers(0, 2**63), unique=True, max_size=40), st.integers(1, 33))
def test_an_inputs_slot_is_its_own_affair(indices, slots):
    waves = rounds(slots, ((slot_of(index, slots), index) for index in indices))
    assert sorted(index for wave in waves for index in wave if index is not None) == sorted(indices)
    for wave in waves:
        assert len(wave) == slots
        assert all(index is None or slot_of(index, slots) == slot for slot, index in enumerate(wave))


@pytest.mark.parametrize("skip", [1, 2, 3, 10, 16, 20, 64, 100])
def test_evenly_spaced_inputs_fill_their_passes(skip):
    waves = rounds(32, ((slot_of(index, 32), index) for index in range(0, 128 * skip, skip)))
    assert len(waves) <= 10  # 4 if no slot were ever empty
