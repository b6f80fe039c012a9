"""A memory in each kind of store; a PostgreSQL server for the tests that want one, started once by each worker."""

import itertools
import sqlite3
from collections.abc import Iterator

import pytest

from smoothcert.smoothing.stores.base import STORES
from tests.smoothing.memory.postgres_server import Server, postgres_server
from tests.smoothing.memory.toys import Place


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with postgres_server() as running:
        yield running


_numbers = itertools.count()


@pytest.fixture
def schema() -> str:
    """The name of a schema that no other test uses."""
    return f"m{next(_numbers)}"


def _sqlite(request: pytest.FixtureRequest) -> Place:
    path = request.getfixturevalue("tmp_path") / "memory.sqlite"

    def execute(command: str) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(command)
        connection.close()

    return Place(str(path), execute, "")


def _postgres(request: pytest.FixtureRequest) -> Place:
    server: Server = request.getfixturevalue("server")
    schema = request.getfixturevalue("schema")

    def execute_there(command: str) -> None:
        import psycopg

        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(command)

    return Place(f"{server.url}#{schema}", execute_there, f"{schema}.")


PLACES = {"sqlite": _sqlite, "postgres": _postgres}
"""How a test finds a place for a memory in each kind of store."""


_SYSTEM = {"postgres"}
"""Stores that need a server."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.system) if name in _SYSTEM else name for name in STORES.names()
    ]
)
def place(request) -> Place:
    return PLACES[request.param](request)
