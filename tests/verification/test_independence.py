"""Verification must not lean on the code that made a run."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import smoothcert.verification

# What opens a stranger's file safely says nothing about its figures.
SHARED = ("smoothcert.errors", "smoothcert.files", "smoothcert.databases", "smoothcert.npy")
FOLDER = Path(smoothcert.verification.__file__).parent


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda p: p.name)
def test_only_replays_use_the_library(path: Path) -> None:
    if path.name in ("replay.py", "level_replay.py"):
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name.startswith("smoothcert"):
                assert name in SHARED or name.startswith("smoothcert.verification"), name
            assert name.split(".")[0] not in ("scipy", "mpmath", "torch", "pickle"), name


def test_nothing_heavy_is_loaded_for_it() -> None:
    program = (
        "import sys; import smoothcert.verification; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'scipy', 'smoothcert.bounds', 'smoothcert.rounding')))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
