"""An operating system without POSIX locks: a line that says so, whichever way one comes in."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smoothcert.files import lock

WITHOUT = "import sys; sys.modules['fcntl'] = None\n"
COMMANDS = """
from smoothcert.__main__ import main
for words in (['certify', 'model', '--out', 'run'], ['show', 'run'], ['--help']):
    sys.argv = ['smoothcert', *words]
    try: main()
    except SystemExit as end: print(end.code)
"""
LIBRARY = """
import smoothcert
from pathlib import Path
from smoothcert.files import read_file, write_atomically
from smoothcert.runs.run import read_run
here = Path.cwd()
for act in (lambda: read_run(here), lambda: write_atomically(here / 'x', b''), lambda: read_file(here, 1)):
    try: act()
    except smoothcert.SmoothcertError as error: print(type(error).__name__)
"""


def python(program: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", WITHOUT + program]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.mark.system
def test_commands_end_at_once_and_the_library_refuses_runs(tmp_path):
    done = python(COMMANDS, tmp_path)
    assert done.stdout.split() == ["2"] * 3, "nothing but the exit codes is printed"
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("smoothcert: ")
        assert {"Linux", "macOS", "WSL"} <= set(re.findall(r"\w+", line))
    done = python(LIBRARY, tmp_path)
    assert done.stdout.split() == ["PlatformError"] * 3, done.stderr
    assert not list(tmp_path.iterdir())


def test_a_lock_is_one_processs_or_many_readers(tmp_path):
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
