"""Reading runs, in several processes when there are many: a million records are half a minute's work for one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from smoothcert.errors import SmoothcertError
from smoothcert.report.condensed import Condensed, condense
from smoothcert.report.messages import Answer, decode, encode
from smoothcert.runs import read_run

_MANY = 16  # fewer runs are read before another interpreter has started
_MOST_PROCESSES = 8
_PROGRAM = "from smoothcert.report.readers import answer; answer()"

_Task = tuple[str, str]


def read_condensed(paths: Sequence[Path], names: Sequence[str], many: int = _MANY) -> list[Condensed]:
    """Every run condensed, in order; ``many`` runs or more are shared out among processes."""
    tasks = [(str(path), name) for path, name in zip(paths, names)]
    processes = min(os.cpu_count() or 1, _MOST_PROCESSES, len(tasks)) if len(tasks) >= many else 1
    if processes <= 1:
        return [condense(read_run(Path(path)), name) for path, name in tasks]
    with ThreadPoolExecutor(processes) as pool:
        shares = list(pool.map(_read_elsewhere, (tasks[k::processes] for k in range(processes))))
    answers = [shares[k % processes][k // processes] for k in range(len(tasks))]
    found = []
    for one in answers:
        if isinstance(one, SmoothcertError):
            raise one
        found.append(one)
    return found


def answer() -> None:
    """Condense the runs that standard input names, onto standard output."""
    sys.stdout.buffer.write(encode(_read_here(json.loads(sys.stdin.buffer.read()))))


def _read_here(tasks: Sequence[_Task]) -> list[Answer]:
    answers: list[Answer] = []
    for path, name in tasks:
        try:
            answers.append(condense(read_run(Path(path)), name))
        except SmoothcertError as error:
            answers.append(error)
    return answers


def _read_elsewhere(tasks: Sequence[_Task]) -> list[Answer]:
    """In an interpreter started afresh: a forked one could inherit locks, a spawned one the caller's script.

    With ``-P`` the working directory is none of the places it imports from: among a stranger's runs there may lie a
    ``smoothcert.py``. What comes back is data alone.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM],
        input=json.dumps(tasks).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:  # it may not find the library where this process did
        return _read_here(tasks)
    return decode(done.stdout)
