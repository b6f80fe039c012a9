"""Kills of owners and workers change no result; ``python -m tests.guarantees.backend_kills`` is the long campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guarantees.backend_kills import campaign


@pytest.mark.system
def test_killed_owners_lose_nothing(tmp_path: Path) -> None:
    """Workers of processes are killed in tests/sampling/backends and tests/sweeps, and in the campaign."""
    tally = campaign(tmp_path, {"threads": 2, "network": 2, "shards": 2}, seed=1, each=2)
    assert not tally.wrong
    assert tally.kills.total() == 6


@pytest.mark.campaign
def test_a_campaign(tmp_path: Path) -> None:
    tally = campaign(tmp_path, {"threads": 8, "network": 8, "shards": 8, "processes": 8}, seed=2)
    assert not tally.wrong
    assert tally.kills.total() == 32
