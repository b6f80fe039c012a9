"""A memory in each kind of store; a PostgreSQL server for the tests that want one, started once."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.region_memory.places import Place
from tests.region_memory.postgres_server import Server, postgres_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with postgres_server() as running:
        yield running


_numbers = itertools.count()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        path = tmp_path / "memory.sqlite"

        def execute(command: str) -> None:
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute(command)
            connection.close()

        return Place(str(path), execute, "")
    server: Server = request.getfixturevalue("server")
    schema = f"m{next(_numbers)}"

    def execute_there(command: str) -> None:
        import psycopg

        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(command)

    return Place(f"{server.url}#{schema}", execute_there, f"{schema}.")
