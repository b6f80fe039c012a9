"""A run that notices damage: no flipped bit changes a figure in silence, and what is lost is made again."""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert.cli import main
from smoothcert.errors import RunError
from smoothcert.evaluation.certification import Progress, certify_dataset
from smoothcert.evaluation.remembering import remember
from smoothcert.perturb.diagonal import load_sigmas, write_sigmas
from smoothcert.runs.journal import DamageWarning, Journal
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import Run, create_run, open_run, read_run
from smoothcert.runs.side_files import EpochMetrics, read_evidence, read_searches
from smoothcert.smoothing.memory import RegionMemory
from smoothcert.smoothing.stores.base import IncompleteMemoryError
from smoothcert.training.loop import State
from smoothcert.training.runs import load_state, save_state
from smoothcert_verify import RunError as UnreadableRunError
from smoothcert_verify import verify_run
from tests.guarantees import damages
from tests.guarantees.damages import _classifier, certified, outcome, points
from tests.runs.sealing import without_checksums
from tests.runs.test_journal import record
from tests.runs.test_run import MANIFEST
from tests.smoothing.memory.toys import saying, statement


@pytest.fixture(scope="session")
def finished(build_once) -> Callable[[str], Run]:
    """A finished run of a kind."""
    return lambda kind: read_run(build_once(f"damage-{kind}", lambda path: certified(kind, path)))


@pytest.fixture(scope="session")
def whole(finished) -> Run:
    return finished("plain")


def copied(whole: Run, path: Path) -> Path:
    return Path(shutil.copytree(whole.path, path))


@pytest.fixture
def run(whole, tmp_path) -> Path:
    return copied(whole, tmp_path / "run")


def again(path: Path, kind: str = "plain") -> Run:
    return certify_dataset(_classifier(kind), points(), path)


def execute(run: Path, *statements: str) -> None:
    with closing(sqlite3.connect(run / "journal.sqlite")) as connection, connection:
        for one in statements:
            connection.execute(one)


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[str, str]:
    """Output and errors of a command that ends as commands do."""
    code: object = 0
    try:
        main([str(word) for word in words])
    except SystemExit as end:
        code = end.code
    shown = capsys.readouterr()
    assert code in (0, 2, 4, 5)
    assert "Traceback" not in shown.err
    return shown.out, " ".join(shown.err.split())


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The message of a command that prints nothing else."""
    out, error = printed(capsys, *words)
    assert out == ""
    assert error
    return error


def changing(statement: str) -> Callable[[Path], None]:
    return lambda run: execute(run, statement)


def cutting(keep: float) -> Callable[[Path], None]:
    def cut(run: Path) -> None:
        content = (run / "journal.sqlite").read_bytes()
        (run / "journal.sqlite").write_bytes(content[: int(keep * len(content))])

    return cut


CHANGES = {
    "radius": changing('UPDATE records SET radius = radius * 0.25 WHERE "index" = 0'),
    "label": changing('UPDATE records SET label = 1 - label WHERE "index" = 0'),
    "votes": changing(
        """UPDATE records SET estimation = replace(estimation, '"start": 0', '"start": 1') WHERE "index" = 0"""
    ),
    "seconds": changing('UPDATE records SET seconds = seconds + 1 WHERE "index" = 0'),
    "number": changing('UPDATE records SET "index" = 77 WHERE "index" = 0'),
    "checksum": changing('UPDATE records SET checksum = NULL WHERE "index" = 0'),
    "lost": changing('DELETE FROM records WHERE "index" = 0'),
    "no totals": changing("DROP TABLE totals"),
    "other totals": changing("UPDATE totals SET checksums = '1'"),
    **{f"the first {keep:.0%}": cutting(keep) for keep in (0.0, 0.3, 0.5, 0.9)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_or_lost_is_noticed_and_made_again(whole, run, change, capsys):
    CHANGES[change](run)
    for command in ("table", "show", "export-log"):
        assert str(run) in refused(capsys, command, run)
    out, _ = printed(capsys, "verify", run, "--format", "json")
    assert not out or not json.loads(out)["holds"]
    with nullcontext() if change.endswith("totals") else pytest.warns(DamageWarning):
        assert results_digest(again(run).records) == results_digest(whole.records)
    assert read_run(run).complete


@pytest.mark.parametrize("field", ["alpha", "n", "sigma", "bound", "norm"])
def test_an_edited_statement_is_noticed(run, field, capsys):
    """With its own checksum, and without: the records know the statement they were made with."""
    path = run / "run.json"
    other = {"alpha": 0.01, "n": 100, "sigma": 0.25, "bound": "clopper-pearson", "norm": "l1"}[field]
    stated = json.loads(path.read_text())
    stated["plan"][field] = other
    path.write_text(json.dumps(stated))
    assert "run.json" in refused(capsys, "table", run)
    report = verify_run(run).report
    assert report.exit_code == 4
    assert any(problem.index is None and "run.json" in problem.message for problem in report.problems)
    del stated["checksum"]
    path.write_text(json.dumps(stated))
    assert "run.json" in refused(capsys, "table", run)
    assert not verify_run(run).report.holds
    with pytest.raises(RunError, match=r"run\.json"), open_run(run, Manifest.load(run)):
        pass  # nor are records thrown away because the statement was edited


def not_utf8(content: bytes) -> Iterator[bytes]:
    """With a flipped bit in every seventh byte of the text of the tables, beginning with the first table's name."""
    first = content.index(b"CREATE TABLE") + len(b"CREATE TABLE ")
    for place in [*range(first, first + 40), *range(first, 4096, 7)]:
        yield content[:place] + bytes([content[place] ^ 0x80]) + content[place + 1 :]


def test_bytes_of_the_schema_that_are_not_utf8_are_damage_and_no_traceback(whole, run, tmp_path):
    """SQLite quotes its schema in its errors, which then can't be decoded."""
    path, memory = run / "journal.sqlite", tmp_path / "memory.sqlite"
    for changed in not_utf8(path.read_bytes()):
        path.write_bytes(changed)
        for read in (verify_run, read_run):
            with pytest.raises((RunError, UnreadableRunError)):
                read(run)
    with pytest.warns(DamageWarning):
        assert results_digest(again(run).records) == results_digest(whole.records)
    with RegionMemory.open(memory, statement((2,), "l2")) as opened:
        opened.answer(np.zeros(2), saying(1, 0.5))
    for changed in not_utf8(memory.read_bytes()):
        memory.write_bytes(changed)
        with pytest.raises(IncompleteMemoryError):
            RegionMemory.open(memory, statement((2,), "l2"))


def test_records_lost_with_a_write_ahead_file_are_missed(whole, tmp_path):
    run = tmp_path / "run"
    certified("plain", run, most=6)
    assert len(read_run(run).records) == 6
    (run / "journal.sqlite-wal").unlink()
    with pytest.raises(RunError, match=re.escape(str(run))):
        read_run(run)
    assert not verify_run(run).report.holds
    with pytest.warns(DamageWarning):
        assert results_digest(again(run).records) == results_digest(whole.records)


@pytest.mark.parametrize("kind", damages.EARLIER_KINDS)
def test_runs_of_earlier_versions_open_and_go_on(finished, kind, tmp_path, capsys):
    run = copied(finished(kind), tmp_path / "run")
    expected = read_run(run)
    before = printed(capsys, "table", run, "--format", "json")
    without_checksums(run)
    assert printed(capsys, "table", run, "--format", "json") == before
    assert read_run(run) == expected
    assert verify_run(run).report.holds
    execute(run, 'DELETE FROM records WHERE "index" > 3')
    assert results_digest(again(run, kind).records) == results_digest(expected.records)
    execute(run, 'UPDATE records SET radius = radius + 1 WHERE "index" = 2')
    with pytest.raises(RunError, match=r"\b2\b"):
        read_run(run)
    assert json.loads(printed(capsys, "table", run, "--format", "json")[0] or "[]") == []


@pytest.mark.parametrize("name", ["sigma_search.jsonl", "sigmas"])
def test_a_damaged_search_is_made_again(finished, name, tmp_path):
    expected = finished("ellipsoid")
    run = copied(expected, tmp_path / "run")
    found = read_searches(run)
    victim = next(index for index, one in sorted(found.items()) if one.noise is not None)
    if name == "sigmas":
        path = run / "sigmas" / f"{victim}.npy"
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
    else:
        path = run / name
        path.write_text(path.read_text().replace('"reason": "improved"', '"reason": "no gain"', 1))
    (lost,) = found.keys() - read_searches(run).keys()
    with pytest.raises(RunError, match=rf"\b{lost}\b"):
        remember(read_run(run), points(), tmp_path / "memory", tmp_path / "out")
    assert again(run, "ellipsoid").records[0].radius == expected.records[0].radius
    assert results_digest(read_run(run).records) == results_digest(expected.records)
    assert read_searches(run) == found


@pytest.mark.parametrize("change", ["votes", "cut", "line", "file"])
def test_damaged_votes_of_chooser_and_levels_are_cast_again(finished, change, tmp_path, capsys):
    expected = finished("levelled")
    run = copied(expected, tmp_path / "run")
    path, whole = run / "levels.jsonl", read_evidence(run)
    text = path.read_text()
    if change == "votes":
        path.write_text(text.replace('"counts": [', '"counts": [1', 1))
    elif change == "cut":
        path.write_text(text[:-200])
    elif change == "line":
        path.write_text("".join(text.splitlines(keepends=True)[:4]))
    else:
        path.unlink()
    lost = whole.keys() - read_evidence(run).keys()
    assert lost
    assert set(verify_run(run).report.inputs) == lost
    for command in ("show", "report", "recertify"):
        said = refused(capsys, command, run, *([] if command == "show" else ["--out", tmp_path / "out"]))
        assert "levels.jsonl" in said
        assert any(re.search(rf"\b{index}\b", said) for index in lost)
    assert results_digest(again(run, "levelled").records) == results_digest(expected.records)
    assert read_evidence(run) == whole
    assert verify_run(run).report.holds


@pytest.mark.parametrize(("kind", "most"), [*((kind, 4) for kind in damages.KINDS), ("levelled", 1)])
def test_a_killed_run_goes_on_to_the_same_bits(finished, kind, most, tmp_path):
    expected = finished(kind)
    run = tmp_path / "run"
    certified(kind, run, most=most)
    assert len(read_run(run).records) == most
    assert verify_run(run).report.holds
    assert again(run, kind).records.digest == expected.records.digest
    assert read_evidence(run) == read_evidence(expected.path)
    assert read_searches(run) == read_searches(expected.path)


def test_a_damaged_pilot_is_cast_again_and_a_damaged_allocation_refused(finished, tmp_path):
    run = tmp_path / "run"
    expected = finished("total")
    certified("total", run, most=4)
    pilots, allocation = run / "pilots.jsonl", run / "allocation.json"
    lines = pilots.read_text()
    pilots.write_text(lines.replace('"counts": [', '"counts": [1', 1))
    kept = allocation.read_text()
    number = str(json.loads(kept)["spent_before"])
    allocation.write_text(kept.replace(number, str(int(number) + 1)))
    with pytest.raises(RunError, match=r"allocation\.json"):
        again(run, "total")
    allocation.unlink()
    assert results_digest(again(run, "total").records) == results_digest(expected.records)
    assert allocation.read_text() == kept


def flipped(content: bytes, every: int) -> Iterator[bytes]:
    """With one bit flipped, at every so many bytes."""
    for place in range(0, len(content), every):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        yield bytes(changed)


def test_a_checkpoint_with_any_flipped_bit_is_refused(tmp_path):
    metrics, weights = EpochMetrics(1, 0.5, 0.5, "train", 0.1, 1.0), torch.arange(64.0)
    save_state(tmp_path, State((metrics,), {"model": {"w": weights}}))
    path = tmp_path / "checkpoint.pt"
    assert torch.load(path, weights_only=True)["model"]["w"][3] == 3  # it is a checkpoint to others, too
    for changed in flipped(path.read_bytes(), 13):
        path.write_bytes(changed)
        with suppress(RunError):
            state = load_state(tmp_path)
            assert torch.equal(state.tensors["model"]["w"], weights)
            assert state.history == (metrics,)
    torch.save({"history": [], "model": {}}, path)
    assert load_state(tmp_path) is not None  # of an earlier version, without a checksum


def test_a_vector_with_any_flipped_bit_is_refused(tmp_path):
    path = tmp_path / "sigmas.npy"
    sigmas = np.linspace(0.1, 0.9, 12).reshape(3, 4)
    write_sigmas(path, sigmas)
    assert np.array_equal(np.load(path), sigmas)  # numpy reads it
    for changed in flipped(path.read_bytes(), 1):
        path.write_bytes(changed)
        with suppress(RunError):
            assert np.array_equal(load_sigmas(path), sigmas)
    np.save(path, sigmas)
    assert np.array_equal(load_sigmas(path), sigmas)


@pytest.mark.parametrize("act", [shutil.rmtree, lambda path: path.rename(path.with_name("elsewhere"))])
def test_a_directory_that_goes_away_is_noticed_at_the_next_record(tmp_path, act):
    run, seen = tmp_path / "run", list[object]()

    def watch(record: object) -> None:
        seen.append(record)
        if len(seen) == 2:
            act(run)

    with pytest.raises(RunError, match=re.escape(str(run))):
        certify_dataset(_classifier("plain"), points(), run, progress=Progress(record=watch))
    assert len(seen) == 2


def test_a_disk_that_is_full_midway_says_so_and_the_same_command_goes_on(tmp_path, monkeypatch):
    out, records = tmp_path / "out", [record(index) for index in range(300)]
    taken = Journal._take_for_writing

    def limited(journal: Journal) -> None:
        taken(journal)
        (pages,) = journal._connection.execute("PRAGMA page_count").fetchone()
        journal._connection.execute(f"PRAGMA max_page_count = {pages}")

    with monkeypatch.context() as full:
        full.setattr(Journal, "_take_for_writing", limited)
        with pytest.raises(RunError, match=re.escape(str(out))):
            create_run(out, MANIFEST, records)
    create_run(out, MANIFEST, records)
    assert read_run(out).records == tuple(records)
    with pytest.raises(RunError, match="--out"):
        create_run(out, MANIFEST, records)


def test_remember_refuses_a_place_before_it_fills_the_memory(whole, tmp_path):
    create_run(tmp_path / "out", replace(whole.manifest, kind="import"), [])
    with pytest.raises(RunError, match="--out"):
        remember(whole, points(), tmp_path / "memory", tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=re.escape(str(tmp_path / "file"))):
        remember(whole, points(), tmp_path / "memory", tmp_path / "file" / "run")
    assert not (tmp_path / "memory").exists()


@pytest.mark.parametrize("stop", [1, 3, 7, 10])
def test_a_killed_memory_gives_the_same_bits_and_the_same_account(whole, tmp_path, monkeypatch, stop):
    """Killed after the memory stored an answer and before it was noted; or with the last notes lost, too."""
    expected, sources = remember(whole, points(), tmp_path / "memory", tmp_path / "expected")
    asked = 0
    answer = RegionMemory.offer

    def killed(memory: RegionMemory, *words: object) -> object:
        nonlocal asked
        given = answer(memory, *words)
        asked += 1
        if asked == stop:
            raise damages.Killed
        return given

    for lost in (0, 1, 4, 10):
        memory, out, asked = tmp_path / f"memory-{lost}", tmp_path / f"out-{lost}", 0
        with monkeypatch.context() as under_way:
            under_way.setattr(RegionMemory, "offer", killed)
            with pytest.raises(damages.Killed):
                remember(whole, points(), memory, out)
        notes = out / "answers.jsonl"
        lines = notes.read_text().splitlines(keepends=True)
        notes.write_text("".join(lines[: max(1, len(lines) - lost)]))
        made, again_sources = remember(whole, points(), memory, out)
        assert made.records == expected.records, lost
        assert again_sources == sources, lost
        assert made.manifest.plan.memory == expected.manifest.plan.memory, lost


READERS = {"table", "show", "export-log", "compare", "verify", "report", "recertify"}


@pytest.mark.slow
def test_each_kind_of_damage_over_all_kinds_of_certified_runs(tmp_path):
    told, wrong = damages.one_of_each(damages.certified_specimens(tmp_path))
    assert wrong == []
    assert told.keys() >= READERS | {*damages.DAMAGES}
    assert told["damages"] == told["resumed"] == 2 * len(damages.KINDS)
    assert told["resumed to the same bits"] > 5


def test_each_kind_of_damage_over_other_runs(tmp_path):
    told, wrong = damages.one_of_each(damages.other_specimens(tmp_path))
    assert wrong == []
    assert told.keys() >= {*damages.DAMAGES}
    assert (told["damages"], told["resumed"], told["commands"]) == (6, 4, 2)


@pytest.mark.slow
def test_damages_at_random(tmp_path):
    told, wrong = damages.campaign(tmp_path, 72, seed=1)
    assert wrong == []
    assert told["damages"] > 50
    assert told["resumed to the same bits"] > 10


@pytest.mark.campaign
def test_more_damages(tmp_path):
    """``python -m tests.guarantees.damages`` does it for longer."""
    told, wrong = damages.campaign(tmp_path, 550, seed=2)
    assert wrong == []
    assert told["damages"] >= 500


@pytest.mark.parametrize("command", ["show", "report"])
def test_an_ellipsoid_whose_scales_are_gone_is_not_taken_for_a_ball(finished, command, tmp_path):
    run = read_run(copied(finished("ellipsoid"), tmp_path / "run"))
    lost = next(record.index for record in run.records if record.volume_radius is not None)
    RunFiles(run.path).sigmas_of(lost).unlink()
    page = ["--out", str(tmp_path / "out" / "page")] if command == "report" else []
    code, _, said = outcome([command, str(run.path), *page], tmp_path / "out")
    assert code == 2
    assert f"{lost}.npy" in said.replace("\n", "")


def test_a_record_is_on_disk_when_it_counts_as_done(whole, run):
    """SQLite's FULL: every commit waits for the disk."""
    with open_run(run, Manifest.load(run)) as journal:
        (level,) = journal._connection.execute("PRAGMA synchronous").fetchone()
    assert level == 2
