"""The verifier stands alone: one file and Python are enough, and it answers what ``smoothcert verify`` answers."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smoothcert.cli import main as smoothcert
from smoothcert.evaluation.remembering import remember
from smoothcert.runs.run import read_run
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch
from smoothcert_verify.__main__ import main as alone
from smoothcert_verify.build import archive
from tests.verification.runs import Linear, certified, copied, dataset, edit_plan, edit_record, sql, stretched

CODES = {
    "plain": 0,
    "total": 0,
    "searched": 0,
    "stretched": 0,
    "remembered": 0,
    "empty": 5,
    "unknown-noise": 5,
    "unknown-bound": 5,
    "other-radius": 4,
    "other-seed": 4,
    "strange-name": 0,
    "void": 2,
    "nowhere": 2,
}


@pytest.fixture(scope="session")
def made(build_once) -> Path:
    """Runs of all kinds, by the name that :data:`CODES` has for them."""

    def build(folder: Path) -> None:
        folder.mkdir()
        plain = certified(folder / "plain")
        certified(folder / "total", stop=("total:12000,100",))
        certified(folder / "searched", Linear(), search=EllipsoidSearch(steps=10))
        stretched(folder / "stretched", "diagonal-gaussian")
        remember(read_run(plain), dataset(), folder / "memory", folder / "remembered")
        edit_plan(copied(plain, folder / "unknown-noise"), noise="theirs", norm="l7")
        edit_plan(copied(plain, folder / "unknown-bound"), bound="magic")
        empty = copied(plain, folder / "empty")
        sql(empty / "journal.sqlite", "DELETE FROM records")
        edit_record(copied(plain, folder / "other-radius"), 0, radius=9.0)
        edit_plan(copied(plain, folder / "other-seed"), seed=6)
        strange = copied(plain, folder / "strange-name") / "run.json"
        stated = json.loads(strange.read_text())
        stated["data"]["name"] = "\x1b[2J\u202e\nverified \U000e0041"
        strange.write_text(json.dumps(stated))
        (copied(plain, folder / "void") / "void.json").write_text("{}")

    return build_once("standalone", build)


def of_smoothcert(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    try:
        smoothcert(["verify", *words])
    except SystemExit as ended:
        return int(ended.code or 0), capsys.readouterr().out
    return 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "options", [[], ["--quiet"], ["--json"], ["--format", "json"], ["--digest", "0" * 64]]
)
@pytest.mark.parametrize("name", CODES)
def test_both_commands_say_the_same(made, capsys, name, options):
    words = [str(made / name), *options]
    code = alone(words)
    printed = capsys.readouterr().out
    assert (code, printed) == of_smoothcert(capsys, *words)
    assert code == (CODES[name] if CODES[name] == 2 or "--digest" not in options else 4)
    assert printed.removesuffix("\n").replace("\n", "").isprintable()
    assert bool(printed) == (code != 2 and (code != 0 or "--quiet" not in options))


def said(capsys: pytest.CaptureFixture[str], run: Path) -> dict[str, Any]:
    capsys.readouterr()
    alone([str(run), "--format", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(("name", "value"), [("unknown-noise", "'theirs'"), ("unknown-bound", "'magic'")])
def test_of_a_theorem_that_is_not_known_the_votes_are_checked(made, tmp_path, capsys, name, value):
    found = said(capsys, made / name)
    assert (found["holds"], found["records"], found["recomputed"]) == (True, 8, 0)
    assert value in found["believed"][0]
    assert found["results_sha256"] is not None
    assert alone([str(made / name), "--quiet"]) == 5
    assert value in capsys.readouterr().out, "the reason is told in any case"
    run = tmp_path / "run"
    shutil.copytree(made / name, run)
    edit_plan(run, n0=21)
    assert alone([str(run)]) == 4
    edit_plan(run, n0=20, seed=3)
    assert said(capsys, run)["inputs_with_problems"] == list(range(8))


def test_a_message_shows_control_characters_and_sends_none(made, tmp_path, capsys):
    """SQLite quotes the names of a damaged schema."""
    run = copied(made / "plain", tmp_path / "run")
    odd = "UPDATE sqlite_master SET name = char(27) || '[2J' || char(8238), sql = 'CREATE TABLE ('"
    sql(run / "journal.sqlite", "PRAGMA writable_schema = ON", odd)
    assert alone([str(run)]) == 2
    said = capsys.readouterr().err
    assert r"\u001b[2J\u202e" in said
    assert said.removesuffix("\n").isprintable()


def test_an_address_is_not_taken_for_a_path(capsys):
    assert alone(["s3://bucket/run"]) == 2
    assert "s3://bucket/run" in capsys.readouterr().err


@pytest.mark.system
def test_one_file_where_there_is_nothing_but_python(made, tmp_path, capsys):
    """No environment, no site-packages, no checkout: what it prints is what the command prints."""
    build = [sys.executable, "-m", "smoothcert_verify.build"]
    for name in ("first.pyz", "second.pyz"):
        subprocess.run([*build, str(tmp_path / name)], check=True, timeout=60, capture_output=True)
    assert (tmp_path / "first.pyz").read_bytes() == (tmp_path / "second.pyz").read_bytes()
    for name, code in CODES.items():
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(tmp_path / "first.pyz"), str(made / name)],
            cwd=tmp_path,
            env={"PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
        assert (code, done.stdout.decode()) == of_smoothcert(capsys, str(made / name))


@pytest.mark.system
def test_one_file_on_a_terminal_that_lacks_our_letters(made, tmp_path):
    (tmp_path / "verify.pyz").write_bytes(archive())
    words = [sys.executable, "-I", "-S", str(tmp_path / "verify.pyz"), str(made / "plain")]
    done = subprocess.run(
        words, env={"LC_ALL": "C", "PYTHONUTF8": "0"}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    with subprocess.Popen(words, env={}, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # as `… | head -0` does
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


# ------------------------------------------------------------------------------------------------- region memories


def edit_memory(made: Path, tmp_path: Path, command: str) -> Path:
    path = Path(shutil.copyfile(made / "memory", tmp_path / "memory"))
    sql(path, command)
    return path


def test_the_memory_that_the_answers_came_out_of(made, capsys):
    words = [str(made / "remembered"), "--memory", str(made / "memory")]
    code = alone(words)
    printed = capsys.readouterr().out
    ((count,),) = sql(made / "memory", "SELECT count FROM head")
    assert count
    assert any(str(count) in line for line in printed.splitlines() if "memory:" in line)
    assert (code, printed) == (0, of_smoothcert(capsys, *words)[1])
    assert alone([str(made / "plain"), "--memory", str(made / "memory")]) == 2
    assert "--memory" in capsys.readouterr().err
    assert alone([str(made / "remembered"), "--memory", str(made / "nowhere")]) == 2


@pytest.mark.parametrize(
    "command",
    [
        "DELETE FROM records WHERE id = 2",
        "DELETE FROM records WHERE id = (SELECT max(id) FROM records)",
        "UPDATE records SET payload = x'00' WHERE id = 1",
        "UPDATE records SET payload = 1000000000000 WHERE id = 1",
        "UPDATE records SET hash = x'00' WHERE id = 3",
        "UPDATE head SET count = count + 1",
        "UPDATE head SET hash = 1000000000000",
        "DELETE FROM head",
        "DELETE FROM statement",
        "UPDATE statement SET text = '[]'",
        "UPDATE statement SET text = replace(text, ':', ': ') || '}'",
    ],
)
def test_a_memory_that_is_not_whole(made, tmp_path, capsys, command):
    path = edit_memory(made, tmp_path, command)
    assert alone([str(made / "remembered"), "--memory", str(path)]) == 4
    assert str(path.name) in capsys.readouterr().out


def test_another_memory_than_the_one_stated(made, tmp_path, capsys):
    remember(read_run(made / "plain"), dataset(), tmp_path / "memory", tmp_path / "run")
    words = [str(tmp_path / "run"), "--memory", str(tmp_path / "memory")]
    assert alone(words) == 0
    head = "3:" + "0" * 64
    edit_plan(tmp_path / "run", memory={"head": head, "results_sha256": "0" * 64})
    assert alone(words) == 4
    assert head in capsys.readouterr().out


def test_a_memory_with_anything_else_in_it_is_refused(made, tmp_path, capsys):
    path = edit_memory(made, tmp_path, "CREATE VIEW more AS SELECT * FROM records")
    assert alone([str(made / "remembered"), "--memory", str(path)]) == 2
    assert "'more'" in capsys.readouterr().err
    path.unlink()
    path.symlink_to(made / "memory")
    assert alone([str(made / "remembered"), "--memory", str(path)]) == 2
