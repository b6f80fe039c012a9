"""The journal: durable, exact, one writer, clear words when it is damaged."""

from __future__ import annotations

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
    return Record(
        index=index,
        label=1,
        predicted=1,
        radius=0.1 + 1e-17 + index / 3,
        sigma=0.25,
        seconds=1.5,
        selection=Tally(Stream(0, index, Phase.SELECTION), 0, 10, (9, 1)),
        estimation=Tally(Stream(0, index, Phase.ESTIMATION), 0, 100, (90, 10), (5, 6), (7, 8)),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def test_records_come_back_exactly_and_in_order(path: Path) -> None:
    records = [record(i) for i in (5, 1, 3)] + [Record(9, 1, -1, 0.0, 0.5, 0.0)]
    with Journal(path, writable=True) as journal:
        for one in records:
            journal.append(one)
        assert journal.indices() == {1, 3, 5, 9}
    with Journal(path) as journal:
        assert journal.records() == sorted(records, key=lambda r: r.index)


def test_a_finished_journal_is_one_plain_file(path: Path) -> None:
    with Journal(path, writable=True) as journal:
        journal.append(record(1))
    assert [p.name for p in path.parent.iterdir()] == ["journal.sqlite"]
    assert path.read_bytes()[18:20] == b"\x01\x01"  # not in write-ahead mode: readable from a read-only copy


def test_an_input_is_recorded_once(path: Path) -> None:
    with Journal(path, writable=True) as journal:
        journal.append(record(1))
        with pytest.raises(RunError, match="UNIQUE"):
            journal.append(record(1))


def test_many_records_are_added_all_or_none(path: Path) -> None:
    with Journal(path, writable=True) as journal:
        with pytest.raises(RunError, match="UNIQUE"):
            journal.append_all([record(1), record(2), record(1)])
        assert journal.records() == []


def test_a_reader_sees_a_run_under_way(path: Path) -> None:
    with Journal(path, writable=True) as writer:
        writer.append(record(1))
        with Journal(path) as reader:
            assert len(reader.records()) == 1
            with pytest.raises(RunError):
                reader.append(record(2))


def test_a_journal_just_made_is_empty_to_readers(path: Path) -> None:
    sqlite3.connect(path).close()
    path.touch()
    with Journal(path) as reader:
        assert reader.records() == []
        assert reader.indices() == set()


def test_a_missing_journal_is_said_to_be_missing(path: Path) -> None:
    with pytest.raises(RunError, match=re.escape(str(path.parent))):
        Journal(path)


@pytest.mark.parametrize("writable", [True, False])
def test_a_damaged_file_is_refused_and_left_alone(path: Path, writable: bool) -> None:
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


def test_rubbish_is_refused(path: Path) -> None:
    path.write_bytes(b"this is not a journal" * 100)
    with pytest.raises(DamagedJournalError, match=r"journal\.sqlite"):
        Journal(path, writable=True)


def test_a_torn_tail_loses_only_what_was_not_committed(path: Path) -> None:
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
def test_a_companion_larger_than_the_disk_is_refused_before_it_is_copied(path: Path, companion: str) -> None:
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


def test_a_full_disk_is_said_to_be_full_and_keeps_what_was_there(path: Path) -> None:
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


def test_the_digest_is_of_results_and_not_of_time_or_order() -> None:
    records = [record(1), record(2)]
    digest = results_digest(records)
    assert results_digest([replace(r, seconds=9.0) for r in reversed(records)]) == digest
    nudged = replace(records[1], radius=math.nextafter(records[1].radius, 1.0))
    assert results_digest([records[0], nudged]) != digest
    assert results_digest(records[:1]) != digest
