"""However a command ends, and wherever its output goes: no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.guarantees.hostile import toy_run

COMMAND = [sys.executable, "-m", "smoothcert"]
PRESSED = """
import os, signal, sys, threading, time
from smoothcert.commands import main
from smoothcert.commands import table as module

class Slow:
    def __enter__(self): return self
    def __exit__(self, *_): time.sleep(30)  # as threads that finish their work

def slow(*_, **__):
    with Slow():
        print("ready", flush=True)
        time.sleep(30)

import smoothcert.runs
smoothcert.runs.read_run = slow
main(["table", "somewhere"])
"""


def ended(words: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(words, capture_output="stdout" not in options, check=False, **options)  # type: ignore[call-overload]
    assert b"Traceback" not in (done.stderr or b"")
    assert b"Exception ignored" not in (done.stderr or b"")
    return done  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_run(tmp_path_factory.mktemp("runs") / "σ-run")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_our_letters(run: Path, encoding: str) -> None:
    for command in ("show", "table"):
        done = ended([*COMMAND, command, str(run)], env={**os.environ, "PYTHONIOENCODING": encoding})
        assert done.returncode == 0
        assert b"\\u03c3-run" in done.stdout


def test_a_reader_that_has_seen_enough(run: Path) -> None:
    for words in (["show", str(run)], ["certify", "--help"], ["certify", "--help-all"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = ended([*COMMAND, *words], stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, b""), words


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", ">/dev/full"])
def test_output_that_is_closed_or_full(run: Path, closed: str) -> None:
    if closed == ">/dev/full" and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    line = f"exec '{sys.executable}' -m smoothcert table '{run}' {closed}"
    done = ended(["sh", "-c", line])
    if closed == ">/dev/full":
        assert done.returncode == 2
        assert b"No space left" in done.stderr
    else:
        assert done.returncode == 0


@pytest.mark.parametrize("presses", [1, 3])
def test_ctrl_c_pressed_again_and_again(presses: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PRESSED.replace("time.sleep(30)  #", "pass  #") if presses == 1 else PRESSED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, said = process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGINT)  # a shell shows both as 130
    assert b"Traceback" not in said
    assert (b"interrupted" in said) == (presses == 1)


IMPORTING = """
import sys
sys.path.insert(0, {folder!r})
from smoothcert.commands import main
import smoothcert.runs
def slow(*_, **__):
    import slow_to_import
smoothcert.runs.read_run = slow
main(["table", "somewhere"])
"""
SWALLOWS = """
print("ready", flush=True)
import time
try:
    time.sleep(30)
except BaseException as error:
    raise OSError from error
"""


def test_ctrl_c_during_an_import_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(SWALLOWS)
    _interrupted([sys.executable, "-c", IMPORTING.format(folder=str(tmp_path))])


def test_ctrl_c_while_the_command_line_itself_is_imported(tmp_path: Path) -> None:
    (tmp_path / "cyclopts.py").write_text(SWALLOWS)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    _interrupted([*COMMAND, "table", "somewhere"], env={**os.environ, "PYTHONPATH": path})


def _interrupted(words: list[str], env: dict[str, str] | None = None) -> None:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (130, b"smoothcert: interrupted\n")


def test_a_run_that_cannot_be_written_to(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a write-ahead file and no index beside it, or one that can't be opened for writing: it is read in a copy."""
    import shutil

    from smoothcert.runs import open_run, read_run
    from tests.guarantees.hostile import manifest_of
    from tests.report.made_reports import toy_records

    with open_run(run, manifest_of(run)) as journal:
        journal.append(toy_records(20)[-1])
        shutil.copytree(run, tmp_path / "copy")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere: pretend not to be
    before = sorted(tmp_path.rglob("*"))
    assert len(read_run(tmp_path / "copy").records) == 13
    assert sorted(tmp_path.rglob("*")) == before
