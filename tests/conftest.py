"""Shared fixtures; material outside the repository is found through environment variables or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data and published logs, where SMOOTHCERT_SHARED names one."""
    named = os.environ.get("SMOOTHCERT_SHARED")
    if not named:
        pytest.skip("SMOOTHCERT_SHARED is not set: real data and published logs are not at hand")
    return Path(named)
