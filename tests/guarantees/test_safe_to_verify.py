"""verify is for strangers' runs: no link is followed, nothing waits, little memory is taken, nothing is written."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from smoothcert.errors import RunError, SmoothcertError
from smoothcert.runs import open_run
from smoothcert.sigma_search import EllipsoidSearch
from smoothcert.verification import verify_run
from smoothcert.verification.levels import read_levels
from smoothcert.verification.reading import read_scales
from smoothcert.verification.votes import UnreadableError
from tests.conftest import BuildOnce
from tests.guarantees.hostile import in_time, manifest_of, memory_below, refusal
from tests.runs.sealing import without_checksums
from tests.verification.runs import Linear, certified, stretched

SPARSE = 2**31


@pytest.fixture(scope="session")
def made(build_once: BuildOnce) -> Path:
    """Runs of all kinds that have files beside their journals."""

    def build(folder: Path) -> None:
        folder.mkdir()
        certified(folder / "plain")
        certified(folder / "total", stop=("total:12000,100",))
        certified(folder / "searched", Linear(), search=EllipsoidSearch(steps=10))
        stretched(folder / "stretched", "diagonal-gaussian")
        for run in folder.iterdir():
            assert verify_run(run).report.holds

    return build_once("safe-to-verify", build)


def listed(run: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in run.iterdir() if one.is_file()}


FILES = [
    ("plain", "run.json"),
    ("plain", "journal.sqlite"),
    ("plain", "journal.sqlite-wal"),
    ("plain", ".lock"),
    ("total", "allocation.json"),
    ("total", "pilots.jsonl"),
    ("searched", "sigma_search.jsonl"),
    ("searched", "sigmas/0.npy"),
    ("stretched", "sigmas.npy"),
]


def linked(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    if path.exists():
        path.rename(elsewhere)
    else:
        elsewhere.write_bytes(b"")
    path.symlink_to(elsewhere)


def endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def a_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


@pytest.mark.parametrize("change", [linked, endless, a_pipe, a_folder], ids=lambda one: one.__name__)
def test_only_plain_files_are_opened(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], None]
) -> None:
    for number, (kind, name) in enumerate(FILES):
        run = Path(shutil.copytree(made / kind, tmp_path / str(number) / "run"))
        change(run / name)
        with in_time(), memory_below(100):
            assert name in refusal(capsys, "verify", run)


READ_WHOLE = [(kind, name) for kind, name in FILES if "journal" not in name]  # SQLite reads pages


@pytest.mark.parametrize(("kind", "name"), READ_WHOLE, ids=[name for _, name in READ_WHOLE])
def test_a_sparse_file_takes_no_memory(made: Path, tmp_path: Path, kind: str, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / kind, run)
    with (run / name).open("r+b" if (run / name).exists() else "wb") as file:
        file.truncate(SPARSE)
    with memory_below(100), pytest.raises(SmoothcertError, match=rf"{re.escape(name)}.*\b{SPARSE}\b"):
        verify_run(run)


def test_a_folder_of_scales_that_is_a_link(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "searched", tmp_path / "run")
    linked(tmp_path / "run" / "sigmas")
    with pytest.raises(SmoothcertError, match=re.escape(str(tmp_path / "run" / "sigmas"))):
        verify_run(tmp_path / "run")


def test_lines_of_levels_that_are_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    linked(tmp_path / "run" / "levels.jsonl")
    with pytest.raises(SmoothcertError, match=r"levels\.jsonl"):
        read_levels(tmp_path / "run")


def test_scales_are_as_many_as_their_bytes(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (17179869184,)}".ljust(117) + b"\n"
    path = tmp_path / "sigmas.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"12345678")
    with memory_below(20), pytest.raises(UnreadableError, match=rf"\b{8 * 2**34}\b"):
        read_scales(path, "diagonal-gaussian", "")


ENDLESS = "WITH RECURSIVE more(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM more)"


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        (
            "totals",
            [
                "DROP TABLE totals",
                f"CREATE VIEW totals AS {ENDLESS} SELECT max(k) AS records, '' AS checksums, '' AS statement FROM more",
            ],
        ),
        ("records", ["ALTER TABLE records ADD COLUMN big TEXT AS (hex(zeroblob(400000000)))"]),
        ("more", ["CREATE TRIGGER more AFTER INSERT ON records BEGIN UPDATE records SET radius = 99; END"]),
        ("other", ["CREATE TABLE other (a)"]),
    ],
)
def test_a_journal_with_anything_else_in_it_is_refused(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, commands: list[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "plain", run)
    with closing(sqlite3.connect(run / "journal.sqlite")) as connection, connection:
        for command in commands:
            connection.execute(command)
    with in_time(), memory_below(100):
        assert f"'{name}'" in refusal(capsys, "verify", run)


@pytest.mark.parametrize("index", [False, True])
def test_a_run_under_way_is_left_as_it_is(made: Path, tmp_path: Path, index: bool) -> None:
    """Copied with its write-ahead file, with the index beside that or without."""
    run, copy = tmp_path / "run", tmp_path / "copy"
    shutil.copytree(made / "plain", run)
    with open_run(run, manifest_of(run)) as journal:
        journal.drop([7])
        assert (run / "journal.sqlite-wal").stat().st_size
        before = listed(run)
        assert verify_run(run).report.records == 7
        assert listed(run) == before, "a writer at work isn't disturbed"
        shutil.copytree(run, copy)
    if not index:
        (copy / "journal.sqlite-shm").unlink()
    before = listed(copy)
    report = verify_run(copy).report
    assert report.records == 7
    assert listed(copy) == before


def test_what_a_killed_writer_left_half_done_is_rolled_back_in_a_copy(made: Path, tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    shutil.copytree(made / "plain", run)
    without_checksums(run)
    with closing(sqlite3.connect(run / "journal.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("PRAGMA cache_spill = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE records SET radius = 99, stopped = hex(zeroblob(20000))")
        shutil.copytree(run, copy)
        connection.execute("ROLLBACK")
    assert (copy / "journal.sqlite-journal").stat().st_size
    assert (copy / "journal.sqlite").read_bytes() != (run / "journal.sqlite").read_bytes()
    before = listed(copy)
    assert verify_run(copy).report.holds
    assert listed(copy) == before


def test_a_journal_that_never_rests_is_not_half_read(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "plain", run)
    (run / "journal.sqlite-wal").write_bytes(b"")
    monkeypatch.setattr("smoothcert.verification.journal._PAUSE", 0.0)
    moments = iter(range(10**6))
    monkeypatch.setattr("smoothcert.verification.journal._moment", lambda *_: next(moments))
    with pytest.raises(RunError, match=r"journal\.sqlite"):
        verify_run(run)
    monkeypatch.setattr("smoothcert.verification.journal._moment", lambda *_: 0)
    assert verify_run(run).report.holds


@pytest.mark.parametrize("text", ["[" * 200_000, '{"format": 1, "format": 2}', '{"format": 1e999}', "\x00"])
def test_statements_that_make_no_sense(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "plain", run)
    (run / "run.json").write_text(text)
    assert "run.json" in refusal(capsys, "verify", run)


@pytest.mark.parametrize("name", ["sigma_search.jsonl", "votes"])
def test_nesting_without_end(made: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "searched", run)
    if name == "votes":
        with closing(sqlite3.connect(run / "journal.sqlite")) as connection, connection:
            connection.execute("UPDATE records SET selection = ?", ("[" * 200_000,))
    else:
        (run / name).write_text("[" * 200_000)
    assert not verify_run(run).report.holds


@pytest.mark.parametrize("command", ["verify", "table"])
def test_a_folder_is_named_and_not_its_number(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "plain", run)
    a_folder(run / "run.json")
    assert "run.json" in refusal(capsys, command, run)
