"""What only a file can suffer: lost logs, replaced and damaged files, full disks, forks."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.smoothing.memory import RegionMemory
from smoothcert.smoothing.stores.base import IncompleteMemoryError, StoreError
from smoothcert.smoothing.stores.sqlite import SqliteStore
from tests.smoothing.memory.toys import saying, statement


def test_a_copy_of_the_file_without_its_log_is_noticed(tmp_path):
    """The write-ahead file holds rows and head alike: what is left without it is valid, and too old."""
    path, copy = tmp_path / "memory.sqlite", tmp_path / "copy.sqlite"
    with RegionMemory.open(path, statement()) as memory:
        for i in range(3):
            memory.answer(np.array([float(i), 0.0]), saying(i, 0.25))
        shutil.copy(path, copy)
        shutil.copy(f"{path}.head", f"{copy}.head")
        with pytest.raises(IncompleteMemoryError, match=r"copy\.sqlite.*(-wal\b|\.head\b.*\b3\b)"):
            RegionMemory.open(copy, statement())
        proper = tmp_path / "backup.sqlite"
        assert memory._store.backup(proper) == memory.head
        with pytest.raises(StoreError, match=r"backup\.sqlite"):
            memory._store.backup(proper)
        head = memory.head
    with RegionMemory.open(proper, statement()) as memory:
        assert memory.head == head
    Path(f"{path}.head").unlink()
    with pytest.raises(IncompleteMemoryError, match=r"\b3\b.*memory\.sqlite\.head\b.*backup\(\)"):
        RegionMemory.open(path, statement())
    RegionMemory.open(path, statement(), known=head).close()
    RegionMemory.open(path, statement()).close()
    Path(f"{path}.head").write_bytes(b"x" * 48)
    with pytest.raises(IncompleteMemoryError, match=r"memory\.sqlite\.head:"):
        RegionMemory.open(path, statement())


def test_a_witness_that_another_process_is_about_to_write_is_none_yet(tmp_path):
    path, witness = tmp_path / "memory.sqlite", tmp_path / "memory.sqlite.head"
    witness.touch()
    with RegionMemory.open(path, statement()) as memory:
        memory.answer(np.zeros(2), saying(0, 1.0))
    witness.write_bytes(b"")
    with pytest.raises(IncompleteMemoryError, match=r"\b1\b.*memory\.sqlite\.head\b.*backup\(\)"):
        RegionMemory.open(path, statement())


def test_a_file_replaced_under_way_is_noticed(tmp_path):
    path = tmp_path / "memory.sqlite"
    with RegionMemory.open(path, statement()) as memory:
        memory.answer(np.zeros(2), saying(0, 1.0))
        memory._store.backup(tmp_path / "copy.sqlite")
        (tmp_path / "copy.sqlite").replace(path)
        with pytest.raises(IncompleteMemoryError, match=r"memory\.sqlite"):
            memory.look_up(np.zeros(2))


def test_what_is_no_memory_is_refused(tmp_path):
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE records (x)")
    connection.close()
    with pytest.raises(StoreError, match=r"other\.sqlite") as caught:
        RegionMemory.open(other, statement())
    assert not isinstance(caught.value, IncompleteMemoryError)
    (tmp_path / "text").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(IncompleteMemoryError, match="text"):
        RegionMemory.open(tmp_path / "text", statement())
    with pytest.raises(StoreError, match="nowhere"):
        RegionMemory.open(tmp_path / "nowhere" / "memory.sqlite", statement())


def test_a_full_disk_loses_nothing(tmp_path):
    with RegionMemory.open(tmp_path / "memory.sqlite", statement((1, 28, 28))) as memory:
        memory.answer(np.zeros((1, 28, 28)), saying(0, 1.0))
        store: Any = memory._store
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full"):
            [memory.answer(np.full((1, 28, 28), i * 1.0), saying(1, 1.0)) for i in range(1, 9)]
        store._connection.execute("PRAGMA max_page_count = 100000")
        before = len(memory)
        assert memory.answer(np.full((1, 28, 28), 50.0), saying(1, 1.0)).source == "certified"
        assert len(memory) == before + 1


def test_a_damaged_file_is_noticed(tmp_path):
    path = tmp_path / "memory.sqlite"
    with RegionMemory.open(path, statement((1, 28, 28))) as memory:
        for i in range(20):
            memory.answer(np.full((1, 28, 28), float(i)), saying(i % 2, 1.0))
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 3000] = b"\x55" * 3000
    path.write_bytes(content)
    with pytest.raises(IncompleteMemoryError):
        RegionMemory.open(path, statement((1, 28, 28)))


def test_the_log_is_flushed_at_every_commit_and_no_memory_survives_a_fork(tmp_path):
    with RegionMemory.open(tmp_path / "memory.sqlite", statement()) as memory:
        store: Any = memory._store
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with RegionMemory.open(tmp_path / "memory.sqlite", statement()) as memory:
        memory._store._process -= 1
        with pytest.raises(StoreError, match="fork"):
            memory.look_up(np.zeros(2))


def test_a_memory_made_while_another_process_looks_is_no_stranger(tmp_path):
    path = tmp_path / "memory.sqlite"

    class Meanwhile(sqlite3.Connection):
        """After this connection's first look at the file, another process makes the memory."""

        looked = False

        def execute(self, *words: Any) -> sqlite3.Cursor:
            if Meanwhile.looked or not words[0].startswith("SELECT count"):
                return super().execute(*words)
            found = list(super().execute(*words))
            Meanwhile.looked = True
            SqliteStore(path, statement()).close()
            return super().execute(f"SELECT {found[0][0]}")

    connect = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sqlite3,
            "connect",
            lambda *a, **k: connect(*a, **(k if Meanwhile.looked else {**k, "factory": Meanwhile})),
        )
        SqliteStore(path, statement()).close()
    assert Meanwhile.looked


def test_values_of_another_kind_than_their_columns_are_refused(tmp_path):
    for number, change in enumerate(
        (
            "UPDATE records SET payload = 1000000000000 WHERE id = 1",
            "UPDATE records SET payload = 'text' WHERE id = 1",
            "UPDATE records SET hash = 7 WHERE id = 1",
            "UPDATE head SET hash = 1000000000000",
            "UPDATE head SET count = 'one'",
        )
    ):
        path = tmp_path / f"{number}.sqlite"
        with RegionMemory.open(path, statement()) as memory:
            memory.answer(np.zeros(2), saying(0, 1.0))
        with closing(sqlite3.connect(path)) as connection, connection:
            assert connection.execute(change).rowcount == 1
        with pytest.raises(IncompleteMemoryError, match=rf"{number}\.sqlite"):
            RegionMemory.open(path, statement())
