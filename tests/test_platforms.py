"""An operating system without POSIX locks: a line that says so, whichever way one comes in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoothcert.platforms import lock

WITHOUT = "import sys; sys.modules['fcntl'] = None; "


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + program], capture_output=True, text=True)


@pytest.mark.parametrize("words", [["certify", "model", "--out", "run"], ["show", "run"], ["--help"]])
def test_the_command_says_no_at_once(words: list[str]) -> None:
    done = python(f"sys.argv = ['smoothcert', *{words!r}]; from smoothcert.__main__ import main; main()")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("smoothcert: smoothcert needs Linux or macOS")
    assert "WSL" in line
    assert done.stdout == ""


def test_the_library_is_imported_and_runs_are_refused(tmp_path: Path) -> None:
    done = python(
        "import smoothcert; from pathlib import Path; from smoothcert.files import read_file, write_atomically\n"
        "from smoothcert.runs import read_run\n"
        f"here = Path({str(tmp_path)!r})\n"
        "for act in (lambda: read_run(here), lambda: write_atomically(here / 'x', b''), lambda: read_file(here, 1)):\n"
        "    try: act()\n"
        "    except smoothcert.SmoothcertError as error: print(type(error).__name__)\n"
    )
    assert done.stdout.split() == ["PlatformError"] * 3, done.stderr
    assert not list(tmp_path.iterdir())


def test_a_lock_is_one_processs_or_many_readers(tmp_path: Path) -> None:
    path = tmp_path / "locked"
    path.touch()
    first, second = (os.open(path, os.O_RDWR) for _ in range(2))
    lock(first, shared=True)
    lock(second, shared=True, wait=False)
    os.close(second)
    lock(first)
    second = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        lock(second, wait=False)
    os.close(first)
    lock(second, wait=False)
    os.close(second)
