"""However a command ends, and wherever its output goes: no traceback."""

import errno
import io
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.runs.run import open_run, read_run
from tests.analysis.report.made_reports import toy_records
from tests.guarantees.hostile import manifest_of, toy_run

COMMAND = [sys.executable, "-m", "smoothcert"]
PRESSED = """
import os, signal, sys, threading, time
from smoothcert.cli import main

class Slow:
    def __enter__(self): return self
    def __exit__(self, *_): time.sleep(30)  # as threads that finish their work

def slow(*_, **__):
    with Slow():
        print("ready", flush=True)
        time.sleep(30)

import smoothcert.runs.run
smoothcert.runs.run.read_run = slow
main(["table", "somewhere"])
"""


def ended(words: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(words, capture_output="stdout" not in options, timeout=120, **options)  # type: ignore[call-overload]
    assert b"Traceback" not in (done.stderr or b"")
    assert b"Exception ignored" not in (done.stderr or b"")
    return done  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return toy_run(tmp_path_factory.mktemp("runs") / "σ-run")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_our_letters(run, encoding, monkeypatch):
    for command in ("show", "table"):
        written = io.BytesIO()
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, io.TextIOWrapper(written, encoding=encoding))
        main([command, str(run)])
        assert b"\\u03c3-run" in written.getvalue()


@pytest.mark.system
def test_a_reader_that_has_seen_enough(run):
    for words in (["show", str(run)], ["certify", "--help"], ["certify", "--help-all"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = ended([*COMMAND, *words], stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, b""), words


@pytest.mark.system
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", ">/dev/full"])
def test_output_that_is_closed_or_full(run, closed):
    if closed == ">/dev/full" and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    line = f"exec '{sys.executable}' -m smoothcert table '{run}' {closed}"
    done = ended(["sh", "-c", line])
    if closed == ">/dev/full":
        assert done.returncode == 2
        assert os.strerror(errno.ENOSPC).encode() in done.stderr
    else:
        assert done.returncode == 0


def interrupted(words: list[str], presses: int = 1, env: dict[str, str] | None = None) -> tuple[int, bytes]:
    """How a command that says when it is ready ends after Ctrl-C, and what it says."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 60)[0], "not ready within a minute"
        assert process.stdout.readline() == b"ready\n"
        for press in range(presses):
            time.sleep(0.2 * (press > 0))
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, said


@pytest.mark.system
@pytest.mark.parametrize("presses", [1, 3])
def test_ctrl_c_pressed_again_and_again(presses):
    program = PRESSED.replace("time.sleep(30)  #", "pass  #") if presses == 1 else PRESSED
    code, said = interrupted([sys.executable, "-c", program], presses)
    assert code in (130, -signal.SIGINT)  # a shell shows both as 130
    assert b"Traceback" not in said
    assert (b"smoothcert: " in said) == (presses == 1)


IMPORTING = """
import sys
sys.path.insert(0, {folder!r})
from smoothcert.cli import main
import smoothcert.runs.run
def slow(*_, **__):
    import slow_to_import
smoothcert.runs.run.read_run = slow
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


@pytest.mark.system
def test_ctrl_c_during_an_import(tmp_path):
    (tmp_path / "slow_to_import.py").write_text(SWALLOWS)
    of_the_command = interrupted([sys.executable, "-c", IMPORTING.format(folder=str(tmp_path))])
    (tmp_path / "cyclopts.py").write_text(SWALLOWS)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    of_the_command_line = interrupted(
        [*COMMAND, "table", "somewhere"], env={**os.environ, "PYTHONPATH": path}
    )
    for code, said in (of_the_command, of_the_command_line):
        assert code == 130
        assert said.startswith(b"smoothcert: ")
        assert said.count(b"\n") == 1


def test_a_run_that_cannot_be_written_to(run, tmp_path, monkeypatch):
    """With a write-ahead file and no index beside it, or one that can't be opened for writing: it is read in a copy."""
    with open_run(run, manifest_of(run)) as journal:
        journal.append(toy_records(20)[-1])
        shutil.copytree(run, tmp_path / "copy")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere: pretend not to be
    before = sorted(tmp_path.rglob("*"))
    assert len(read_run(tmp_path / "copy").records) == 13
    assert sorted(tmp_path.rglob("*")) == before
