"""verify is for strangers' runs: no link is followed, nothing waits, little memory is taken, nothing is written."""

import json
import os
import re
import shutil
import sqlite3
import struct
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.engine.execution import Execution
from smoothcert.models.adapt import adapt
from smoothcert.replay import Replay
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import create_run, open_run, read_run
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import decide
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch
from smoothcert_verify import RunError, verify_run
from smoothcert_verify.noise import Grid, Noise, read_scales
from smoothcert_verify.reading import UnreadableError
from smoothcert_verify.votes import read_levels
from tests.cli.output import refusal
from tests.guarantees.hostile import exit_code, in_time, manifest_of, memory_below
from tests.runs.sealing import without_checksums
from tests.verification.runs import Linear, bands, certified, dataset, edit_plan, edit_record, stretched

SPARSE = 2**31


@pytest.fixture(scope="session")
def made(build_once) -> Path:
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


@pytest.fixture
def run(made, tmp_path) -> Path:
    return Path(shutil.copytree(made / "plain", tmp_path / "run"))


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
def test_only_plain_files_are_opened(made, tmp_path, capsys, change):
    for number, (kind, name) in enumerate(FILES):
        run = Path(shutil.copytree(made / kind, tmp_path / str(number) / "run"))
        change(run / name)
        # Counting what is allocated takes many times as long: only one of them has more to read than its file had.
        with in_time(), memory_below(100) if change is endless else nullcontext():
            assert name in refusal(capsys, "verify", run)
        if name == "run.json" and change is a_folder:
            assert name in refusal(capsys, "table", run)


READ_WHOLE = [(kind, name) for kind, name in FILES if "journal" not in name]  # SQLite reads pages


@pytest.mark.parametrize(("kind", "name"), READ_WHOLE, ids=[name for _, name in READ_WHOLE])
def test_a_sparse_file_takes_no_memory(made, tmp_path, kind, name):
    run = tmp_path / "run"
    shutil.copytree(made / kind, run)
    with (run / name).open("r+b" if (run / name).exists() else "wb") as file:
        file.truncate(SPARSE)
    with memory_below(100), pytest.raises(RunError, match=rf"{re.escape(name)}.*\b{SPARSE}\b"):
        verify_run(run)


def test_a_folder_of_scales_that_is_a_link(made, tmp_path):
    shutil.copytree(made / "searched", tmp_path / "run")
    linked(tmp_path / "run" / "sigmas")
    with pytest.raises(RunError, match=re.escape(str(tmp_path / "run" / "sigmas"))):
        verify_run(tmp_path / "run")


def test_lines_of_levels_that_are_elsewhere(tmp_path):
    (tmp_path / "run").mkdir()
    linked(tmp_path / "run" / "levels.jsonl")
    with pytest.raises(RunError, match=r"levels\.jsonl"):
        read_levels(tmp_path / "run")


def test_scales_are_as_many_as_their_bytes(tmp_path):
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
    ],
)
def test_a_journal_with_anything_else_in_it_is_refused(run, capsys, name, commands):
    with closing(sqlite3.connect(run / "journal.sqlite")) as connection, connection:
        for command in commands:
            connection.execute(command)
    with in_time(), memory_below(100):
        assert f"'{name}'" in refusal(capsys, "verify", run)


@pytest.mark.parametrize("index", [False, True])
def test_a_run_under_way_is_left_as_it_is(run, tmp_path, index):
    """Copied with its write-ahead file, with the index beside that or without."""
    copy = tmp_path / "copy"
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


def test_what_a_killed_writer_left_half_done_is_rolled_back_in_a_copy(run, tmp_path):
    copy = tmp_path / "copy"
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


def test_a_journal_that_never_rests_is_not_half_read(run, monkeypatch):
    (run / "journal.sqlite-wal").write_bytes(b"")
    monkeypatch.setattr("smoothcert_verify.reading._PAUSE", 0.0)
    moments = iter(range(10**6))
    monkeypatch.setattr("smoothcert_verify.reading._moment", lambda *_: next(moments))
    with pytest.raises(RunError, match=r"journal\.sqlite"):
        verify_run(run)
    monkeypatch.setattr("smoothcert_verify.reading._moment", lambda *_: 0)
    assert verify_run(run).report.holds


@pytest.mark.parametrize("name", ["sigma_search.jsonl", "votes"])
def test_nesting_without_end(made, tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(made / "searched", run)
    if name == "votes":
        with closing(sqlite3.connect(run / "journal.sqlite")) as connection, connection:
            connection.execute("UPDATE records SET selection = ?", ("[" * 200_000,))
    else:
        (run / name).write_text("[" * 200_000)
    assert not verify_run(run).report.holds


# ------------------------------------------------------------------------------------------------------- forged runs


def edit_data(run: Path, **fields: Any) -> None:
    content = json.loads((run / "run.json").read_text())
    content["data"] |= fields
    (run / "run.json").write_text(json.dumps(content))


def holds(run: Path) -> bool:
    try:
        return verify_run(run).report.holds
    except RunError:
        return False


@pytest.mark.parametrize("search", ["", 0, False, [], {}, 0.0, ["x"], True, 3])
def test_a_search_that_is_none_excuses_no_sigma(run, search):
    """Readers of runs took it for no search at all, verification for one: radii a thousand times too large passed."""
    records = read_run(run).records
    edit_plan(run, sigma_search=search)
    lines = []
    for record in records:
        edit_record(run, record.index, sigma=500.0, radius=record.radius * 1000 * (1 - 1e-9))
        lines.append(json.dumps({"index": record.index, "sigma": 500.0}))
    (run / "sigma_search.jsonl").write_text("\n".join(lines))
    assert not holds(run)


def test_a_dimension_that_is_not_the_inputs_is_found_by_casting_again(run):
    plan = CertifyPlan.from_statement(read_run(run).manifest.plan.but(dimension=1), run)
    edit_plan(run, dimension=1, sampler_error=plan.sampler_error)
    for record in read_run(run).records:
        answer = decide(np.zeros(1), plan, record.selection, record.estimation)
        edit_record(run, record.index, radius=answer.radius)
    checked = verify_run(run, keep_records=True)
    model = adapt(bands, "hard", "labels", 3)
    replay = Replay(run, checked.statement, model, dataset(), Execution())
    replay.check(checked.records, checked.report)
    assert not checked.report.holds


@pytest.mark.parametrize(("levels", "cells"), [(1, 1), (255, 7), (2**25, 64), (16, 256)])
def test_a_grid_that_no_votes_are_drawn_on(run, levels, cells):
    distance = float(Grid(levels, cells, 3).distance(Noise("gaussian", (0.5,))))
    edit_plan(run, levels=levels, cells_per_sigma=cells, sampler_error=distance * (1 + 1e-9))
    assert not holds(run)


def test_inputs_chosen_by_their_radii(run):
    """No certification lists the inputs it was asked for; a list made afterwards would call the run complete."""
    connection = sqlite3.connect(without_checksums(run) / "journal.sqlite")
    connection.execute("DELETE FROM records WHERE radius < 0.3")
    connection.commit()
    connection.close()
    edit_data(run, planned=[record.index for record in read_run(run).records])
    assert read_run(run).complete
    assert not holds(run)


@pytest.mark.parametrize("planned", [3, "all", -1, 2.0, True])
def test_records_of_inputs_that_were_not_asked_for(run, planned):
    edit_data(run, planned=planned)
    assert not holds(run)


def forged(source: Path, out: Path, **plan: Any) -> str:
    """The run with another plan and ten times its radii, and checksums that fit."""
    run = read_run(source)
    stated = run.manifest.as_json()
    manifest = Manifest.of(**stated | {"plan": stated["plan"] | plan})
    create_run(out, manifest, [replace(record, radius=10 * record.radius) for record in run.records])
    return str(out)


def test_what_cant_be_recomputed_has_an_exit_code_of_its_own(run, tmp_path):
    assert exit_code("verify", run) == 0
    assert exit_code("verify", forged(run, tmp_path / "radii")) == 4
    memory = {"stateful": True, "memory": {"head": "0" * 64, "results_sha256": "0" * 64}}
    assert exit_code("verify", forged(run, tmp_path / "memory", **memory)) == 5
    assert exit_code("verify", forged(run, tmp_path / "theirs", noise="theirs")) == 5
