"""Freed memory is kept by the process: what a step frees, the next one has without asking the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from smoothcert.commands import main
from smoothcert.training import memory

FAULTS = """
import resource
import numpy as np
from smoothcert.training.memory import keep_freed_memory

kept = KEEP and keep_freed_memory()
for step in range(6):
    if step == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(64 * 2**20, np.uint8)
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> tuple[bool, int]:
    """Whether freed memory was kept, and the pages that five more arrays of 64 MB faulted in."""
    words = [sys.executable, "-c", FAULTS.replace("KEEP", str(keep))]
    run = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120)
    kept, count = run.stdout.split()
    return kept == "1", int(count)


@pytest.mark.system
def test_the_next_array_has_the_pages_of_the_last():
    kept, count = faults(keep=True)
    if not kept:
        pytest.skip("this C library can't be told")
    _, otherwise = faults(keep=False)
    assert count < otherwise / 10


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    assert not memory.keep_freed_memory()


def test_the_command_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("sklearn")
    asked: list[bool] = []
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: asked.append(True))
    words = ["--sigma", "0.25", "--epochs", "1", "--max", "64", "--quiet"]
    main(["train", "digits", *words, "--out", str(tmp_path / "run")])
    assert asked == [True]
