"""Runs on network file systems: no shared memory, nothing lost by a kill, refused where locks can't be trusted."""

import errno
import os
import re
import sqlite3
from pathlib import Path

import pytest

from smoothcert import databases
from smoothcert.errors import RunError
from smoothcert.runs.journal import Journal
from smoothcert.runs.run import open_run, read_run
from smoothcert.smoothing.stores.base import MemoryStatement, StoreError
from smoothcert.smoothing.stores.sqlite import SqliteStore
from smoothcert_verify import verify_run
from tests.analysis.report.made_reports import toy_records
from tests.guarantees.hostile import manifest_of, toy_run
from tests.guarantees.kills import ended
from tests.runs.test_journal import record

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def network(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "nfs4", options: str = "rw") -> Path:
    """A folder that is on a network file system as far as the kernel's table tells."""
    made = folder / "mounted"
    made.mkdir(exist_ok=True)
    table = folder / "mountinfo"
    table.write_text(f"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / {made.resolve()} rw - {kind} b {options}\n")
    monkeypatch.setattr(databases, "MOUNTS", table)
    return made


def files(path: Path) -> set[str]:
    return {one.name for one in path.iterdir()}


def test_no_write_ahead_file_is_made_and_the_result_is_the_same(tmp_path, monkeypatch):
    local = toy_run(tmp_path / "local")
    shared = network(tmp_path, monkeypatch)
    with open_run(shared / "run", manifest_of(local)) as journal:
        for one in toy_records(12):
            journal.append(one)
            assert not {"journal.sqlite-wal", "journal.sqlite-shm"} & files(shared / "run")
    assert files(shared / "run") == {"run.json", "journal.sqlite", ".lock"}
    assert read_run(shared / "run").records.digest == read_run(local).records.digest
    assert verify_run(shared / "run").report.records == 12


def test_one_process_has_the_journal(tmp_path, monkeypatch):
    """By SQLite's own lock too: the run's may be of a kind that other machines don't see."""
    path = network(tmp_path, monkeypatch) / "journal.sqlite"
    with Journal(path, writable=True) as journal:
        journal.append(record(1))
        other = os.fork()  # POSIX locks are a process's
        if not other:
            try:
                connection = sqlite3.connect(path, timeout=0)
                connection.execute("SELECT * FROM records").fetchall()
            except sqlite3.OperationalError:
                os._exit(7)
            os._exit(0)
        assert ended(other) == 7


@pytest.mark.parametrize("done", [0, 1, 7])
def test_a_writer_that_ends_without_a_word_loses_no_record(tmp_path, monkeypatch, done):
    path = network(tmp_path, monkeypatch) / "journal.sqlite"
    process = os.fork()
    if not process:
        with Journal(path, writable=True) as journal:
            for index in range(done):
                journal.append(record(index))
            os._exit(7)
    assert ended(process) == 7
    before = files(path.parent)
    with Journal(path) as journal:
        assert journal.indices() == set(range(done))
    assert files(path.parent) == before
    with Journal(path, writable=True) as journal:
        journal.append(record(done))
        assert journal.indices() == set(range(done + 1))


def test_a_journal_left_hot_is_read_in_a_copy(tmp_path, monkeypatch):
    path = network(tmp_path, monkeypatch) / "journal.sqlite"
    with Journal(path, writable=True) as journal:
        journal.append_all(map(record, range(300)))
    process = os.fork()
    if not process:  # dies in the middle of a change that is in the file already
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE records SET radius = 0, estimation = selection")
        os._exit(7)
    assert ended(process) == 7
    hot = path.with_name("journal.sqlite-journal")
    assert hot.read_bytes()[:4] == b"\xd9\xd5\x05\xf9"
    before = (path.read_bytes(), hot.read_bytes())
    with Journal(path) as journal:
        assert journal.records() == [record(index) for index in range(300)]
    assert (path.read_bytes(), hot.read_bytes()) == before
    with Journal(path, writable=True) as journal:
        assert journal.records() == [record(index) for index in range(300)]


def test_a_run_begun_on_a_local_disk_goes_on_without_shared_memory(tmp_path, monkeypatch):
    shared = network(tmp_path, monkeypatch)
    monkeypatch.setattr(databases, "MOUNTS", tmp_path / "none")
    source = tmp_path / "local.sqlite"
    with Journal(source, writable=True) as journal:
        journal.append(record(1))
        for end in ("", "-wal"):
            (shared / f"journal.sqlite{end}").write_bytes(Path(f"{source}{end}").read_bytes())
    network(tmp_path, monkeypatch)
    with Journal(shared / "journal.sqlite") as reader:
        assert reader.indices() == {1}
    assert files(shared) == {"journal.sqlite", "journal.sqlite-wal"}
    with Journal(shared / "journal.sqlite", writable=True) as journal:
        assert journal.indices() == {1}
        assert "journal.sqlite-shm" not in files(shared)
    assert files(shared) == {"journal.sqlite"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [("nfs", "rw,nolock"), ("nfs", "rw,local_lock=all"), ("cifs", "rw,nobrl"), ("fuse.sshfs", "rw")],
)
def test_where_locks_stay_on_one_machine_nothing_is_written(kind, options, tmp_path, monkeypatch):
    finished = toy_run(tmp_path / "local")
    shared = network(tmp_path, monkeypatch, kind, options)
    with (
        pytest.raises(RunError, match=rf"\b{re.escape(kind)}\b.*--shard"),
        open_run(shared / "run", manifest_of(finished)),
    ):
        pass
    assert files(shared) == set()
    finished.rename(shared / "copied")
    assert len(read_run(shared / "copied").records) == 12  # finished runs are read there all the same


def test_a_finished_run_is_read_without_a_lock(tmp_path, monkeypatch):
    finished = toy_run(network(tmp_path, monkeypatch) / "run")
    asked = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda where, **how: asked.append(where) or connect(where, **how))
    assert len(read_run(finished).records) == 12
    assert [where.partition("?")[2] for where in asked] == ["mode=ro&immutable=1"]


def test_a_lock_that_is_refused_is_told_from_one_that_is_held(tmp_path, monkeypatch):
    run = toy_run(tmp_path / "run")

    def no_locks(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("smoothcert.files.lock", no_locks)
    with pytest.raises(RunError, match=re.escape(os.strerror(errno.ENOLCK))), open_run(run, manifest_of(run)):
        pass


def test_a_memory_is_refused_with_the_way_out(tmp_path, monkeypatch):
    shared = network(tmp_path, monkeypatch)
    with pytest.raises(StoreError, match=r"\bnfs4\b.*PostgreSQL"):
        SqliteStore(shared / "memory", MemoryStatement("a" * 64, (2,), "gaussian", "l2"))
    assert files(shared) == set()
