"""What only a server can do: go away, be configured to forget, have odd names."""

from __future__ import annotations

import signal
import sys
from typing import Any

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError, MissingExtraError
from smoothcert.region_memory import (
    RegionMemory,
    StoreError,
    open_store,
)
from tests.region_memory.postgres_server import Server
from tests.region_memory.toys import never, saying, statement


def test_a_server_that_goes_away_and_comes_back(server: Server) -> None:
    with RegionMemory.open(f"{server.url}#gone", statement()) as memory:
        memory.answer(np.zeros(2), saying(0, 1.0))
        server.stop(signal.SIGQUIT)
        try:
            with pytest.raises(StoreError, match="ask again when it is back"):
                memory.answer(np.array([5.0, 5.0]), saying(1, 1.0))
            with pytest.raises(StoreError, match="can't be reached"):
                RegionMemory.open(f"{server.url}#gone", statement())
        finally:
            server.start()
        assert memory.answer(np.array([0.5, 0.0]), never).predicted == 0
        assert memory.answer(np.array([5.0, 5.0]), saying(1, 1.0)).source == "certified"


def test_a_server_that_may_forget_is_not_trusted(server: Server) -> None:
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER ROLE tester SET synchronous_commit = off")
        with RegionMemory.open(f"{server.url}#hasty", statement()) as memory:
            store: Any = memory._store
            assert store._connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        connection.execute("ALTER ROLE tester RESET synchronous_commit")
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        try:
            with pytest.raises(StoreError, match="fsync off"):
                [RegionMemory.open(f"{server.url}#hasty", statement()).close() for _ in range(100)]
        finally:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("SELECT pg_reload_conf()")


def test_a_schema_s_name_can_t_carry_sql() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(InvalidValueError, match="lower-case"):
        open_store('postgresql:///x#a"; DROP TABLE b', statement())


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[postgres\]"):
        open_store("postgresql:///x", statement())


def test_a_database_or_user_that_isnt_there_is_no_server_that_is_away(server: Server) -> None:
    start, _, _ = server.url.rpartition("/")
    before, slash, after = server.url.partition("/postgres")
    missing = f"{before}/nowhere{after}" if slash else f"{start}/nowhere"
    with pytest.raises(StoreError, match=r"\"nowhere\" does not exist.*createdb") as caught:
        RegionMemory.open(missing, statement())
    assert "ask again" not in str(caught.value)
    assert "can't be reached" not in str(caught.value)
