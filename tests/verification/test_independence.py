"""Verification must not lean on the code that made a run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import smoothcert.verification

# What opens a stranger's file safely says nothing about its figures.
SHARED = ("smoothcert.errors", "smoothcert.files", "smoothcert.databases", "smoothcert.npy")
FOLDER = Path(smoothcert.verification.__file__).parent


def imported(path: Path) -> Iterator[str]:
    """The names of all modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_only_replays_use_the_library() -> None:
    files = [path for path in FOLDER.glob("*.py") if path.name not in ("replay.py", "level_replay.py")]
    assert len(files) > 2
    for path in files:
        for name in imported(path):
            if name.startswith("smoothcert"):
                assert name in SHARED or name.startswith("smoothcert.verification"), (path.name, name)
            assert name.split(".")[0] not in ("scipy", "mpmath", "torch", "pickle"), (path.name, name)


@pytest.mark.system
def test_nothing_heavy_is_loaded_for_it() -> None:
    program = (
        "import sys; import smoothcert.verification; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'scipy', 'smoothcert.bounds', 'smoothcert.rounding')))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0
