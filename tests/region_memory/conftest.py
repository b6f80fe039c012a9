"""A PostgreSQL server for the tests that want one, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.region_memory.postgres_server import Server, postgres_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with postgres_server() as running:
        yield running
