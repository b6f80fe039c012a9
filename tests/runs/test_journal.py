"""The journal: durable, exact, one writer, clear words when it is damaged."""

import math
import os
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from smoothcert.errors import RunError, SmoothcertError
from smoothcert.runs.journal import DamagedJournalError, Journal
from smoothcert.runs.records import Record, results_digest
from smoothcert.tally import Phase, Stream, Tally
from smoothcert_verify import RunError as UnreadableRunError
from smoothcert_verify.reading import opened_journal


def record(index: int) -> Record:
    chosen = Tally(Stream(0, index, Phase.SELECTION), 0, 10, (9, 1))
    votes = Tally(Stream(0, index, Phase.ESTIMATION), 0, 100, (90, 10), (5, 6), (7, 8))
    return Record(index, 1, 1, 0.1 + 1e-17 + index / 3, 0.25, 1.5, chosen, votes)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "journal.sqlite"


def test_records_come_back_exactly_and_in_order(path):
    records = [record(i) for i in (5, 1, 3)] + [Record(9, 1, -1, 0.0, 0.5, 0.0)]
    with Journal(path, writable=True) as journal:
        for one in records:
            journal.append(one)
        assert journal.indices() == {1, 3, 5, 9}
    with Journal(path) as journal:
        assert journal.records() == sorted(records, key=lambda r: r.index)


def test_an_input_is_recorded_once_and_many_all_or_none(path):
    with Journal(path, writable=True) as journal:
        with pytest.raises(RunError, match="UNIQUE"):
            journal.append_all([record(1), record(2), record(1)])
        assert journal.records() == []
        journal.append(record(1))
        with pytest.raises(RunError, match="UNIQUE"):
            journal.append(record(1))
    assert [p.name for p in path.parent.iterdir()] == ["journal.sqlite"]
    assert path.read_bytes()[18:20] == b"\x01\x01"  # not in write-ahead mode: readable from a read-only copy


def test_a_reader_sees_a_run_under_way(path):
    with Journal(path, writable=True) as writer:
        writer.append(record(1))
        with Journal(path) as reader:
            assert len(reader.records()) == 1
            with pytest.raises(RunError):
                reader.append(record(2))


def test_a_journal_just_made_is_empty_to_readers(path):
    sqlite3.connect(path).close()
    path.touch()
    with Journal(path) as reader:
        assert reader.records() == []
        assert reader.indices() == set()


@pytest.mark.parametrize("writable", [True, False])
def test_a_damaged_file_is_refused_and_left_alone(path, writable):
    with Journal(path, writable=True) as journal:
        journal.append_all([record(i) for i in range(300)])
    content = path.read_bytes()
    damaged = content[: len(content) // 2]
    path.write_bytes(damaged)
    with (
        pytest.raises(DamagedJournalError, match=r"journal\.sqlite"),
        Journal(path, writable=writable) as journal,
    ):
        journal.records()
    assert path.read_bytes() == damaged


def test_rubbish_and_nothing_are_refused(path):
    with pytest.raises(RunError, match=re.escape(str(path.parent))):
        Journal(path)
    path.write_bytes(b"this is not a journal" * 100)
    with pytest.raises(DamagedJournalError, match=r"journal\.sqlite"):
        Journal(path, writable=True)


def test_a_torn_tail_loses_only_what_was_not_committed(path):
    """A kill in the middle of a write leaves a torn write-ahead file: SQLite drops it, the rest is there."""
    connection = sqlite3.connect(path)
    connection.close()
    writer = Journal(path, writable=True)
    for i in range(20):
        writer.append(record(i))
    wal = path.with_name(path.name + "-wal")
    torn, main = wal.read_bytes()[:-700], path.read_bytes()
    writer.close()
    copy = path.with_name("copy.sqlite")
    copy.write_bytes(main)
    copy.with_name("copy.sqlite-wal").write_bytes(torn)
    with Journal(copy, writable=True) as journal:
        found = journal.records()
        assert found == [record(i) for i in range(len(found))]
        assert len(found) >= 18
        journal.append(record(100))


@pytest.mark.parametrize("companion", ["-wal", "-journal"])
def test_a_companion_larger_than_the_disk_is_refused_before_it_is_copied(path, companion):
    """A sparse file claims any size, and a copy of it would fill the disk."""
    with Journal(path, writable=True) as journal:
        journal.append(record(1))
    beside = path.with_name(path.name + companion)
    beside.write_bytes(bytes.fromhex("377f0682" if companion == "-wal" else "d9d505f920a163d7"))
    os.truncate(beside, 2**43)
    named = re.escape(beside.name)
    with pytest.raises(UnreadableRunError, match=named), opened_journal(path.parent):
        pass
    with pytest.raises(SmoothcertError, match=named), Journal(path) as journal:
        journal.records()


def test_a_full_disk_is_said_to_be_full_and_keeps_what_was_there(path):
    with Journal(path, writable=True) as journal:
        journal.append(record(0))
        (pages,) = journal._connection.execute("PRAGMA page_count").fetchone()
        journal._connection.execute(f"PRAGMA max_page_count = {pages}")

        def fill() -> None:
            for i in range(1, 1000):
                journal.append(record(i))

        with pytest.raises(RunError, match="full"):
            fill()
        written = journal.indices()
    with Journal(path) as journal:
        assert journal.indices() == written
        assert 0 in written


def test_the_digest_is_of_results_and_not_of_time_or_order():
    records = [record(1), record(2)]
    digest = results_digest(records)
    assert results_digest([replace(r, seconds=9.0) for r in reversed(records)]) == digest
    nudged = replace(records[1], radius=math.nextafter(records[1].radius, 1.0))
    assert results_digest([records[0], nudged]) != digest
    assert results_digest(records[:1]) != digest
