"""What only a server can do: go away, be configured to forget, have odd names."""

import signal
import sys
import time
from typing import Any

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError, MissingExtraError
from smoothcert.smoothing.memory import RegionMemory
from smoothcert.smoothing.stores.base import StoreError, open_store
from tests.smoothing.memory.toys import never, saying, statement


@pytest.mark.system
def test_a_server_that_goes_away_and_comes_back(server, schema):
    with RegionMemory.open(f"{server.url}#{schema}", statement()) as memory:
        memory.answer(np.zeros(2), saying(0, 1.0))
        server.stop(signal.SIGQUIT)
        try:
            for ask in (
                lambda: memory.answer(np.array([5.0, 5.0]), saying(1, 1.0)),
                lambda: RegionMemory.open(f"{server.url}#{schema}", statement()),
            ):
                with pytest.raises(StoreError, match=f"'{schema}'") as caught:
                    ask()
                assert "createdb" not in str(caught.value)
        finally:
            server.start()
        assert memory.answer(np.array([0.5, 0.0]), never).predicted == 0
        assert memory.answer(np.array([5.0, 5.0]), saying(1, 1.0)).source == "certified"


@pytest.mark.system
def test_a_server_that_may_forget_is_not_trusted(server, schema):
    import psycopg

    def set_everywhere(command: str, fsync: str) -> None:
        """Let the server read its settings again, and wait until new connections have them."""
        connection.execute(command)
        connection.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 60
        found = None
        while found != (fsync,) and time.monotonic() < deadline:
            with psycopg.connect(server.url) as fresh:
                found = fresh.execute("SHOW fsync").fetchone()
        assert found == (fsync,)

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER ROLE tester SET synchronous_commit = off")
        try:
            with RegionMemory.open(f"{server.url}#{schema}", statement()) as memory:
                store: Any = memory._store
                assert store._connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        finally:
            connection.execute("ALTER ROLE tester RESET synchronous_commit")
        set_everywhere("ALTER SYSTEM SET fsync = off", "off")
        try:
            with pytest.raises(StoreError, match="fsync"):
                RegionMemory.open(f"{server.url}#{schema}", statement())
        finally:
            set_everywhere("ALTER SYSTEM RESET fsync", "on")


def test_a_schema_s_name_can_t_carry_sql():
    pytest.importorskip("psycopg")
    with pytest.raises(InvalidValueError, match="DROP TABLE b"):
        open_store('postgresql:///x#a"; DROP TABLE b', statement())


def test_without_the_driver_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[postgres\]"):
        open_store("postgresql:///x", statement())


@pytest.mark.system
def test_a_database_or_user_that_isnt_there_is_no_server_that_is_away(server):
    start, _, _ = server.url.rpartition("/")
    before, slash, after = server.url.partition("/postgres")
    missing = f"{before}/nowhere{after}" if slash else f"{start}/nowhere"
    with pytest.raises(StoreError, match=r'"nowhere".*createdb'):
        RegionMemory.open(missing, statement())
