"""``python -m tests.golden compare OLD_CHECKOUT``: votes of real networks by another checkout and by this one.

Both run at the same time on this machine, each with its own ``src`` and its own ``networks.py`` (this one's where the
other has none).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
SCRIPT = Path("tests/golden/networks.py")


def compare(arguments: list[str]) -> int:
    """Compare the votes of real networks with those of another checkout; 1 where a case differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden compare", description=compare.__doc__)
    parser.add_argument(
        "old", type=Path, metavar="OLD_CHECKOUT", help="a folder that contains src/smoothcert"
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="cases that contain NAME")
    options = parser.parse_args(arguments)
    if not (options.old / "src" / "smoothcert").is_dir():
        parser.error(f"{options.old} contains no src/smoothcert")
    began = time.perf_counter()
    started = [_started(root.resolve(), options.only) for root in (options.old, HERE)]
    old, new = (_facts(process) for process in started)
    differ = 0
    for name in dict.fromkeys([*old, *new]):
        verdict = _verdict(old.get(name), new.get(name))
        differ += not verdict.startswith("equal")
        print(f"{name:45} {verdict}")
    print(f"{differ} of {len(old | new)} cases differ ({time.perf_counter() - began:.0f} s)")
    return int(differ > 0 or not new)


def _started(root: Path, only: list[str]) -> subprocess.Popen[str]:
    script = root / SCRIPT if (root / SCRIPT).exists() else HERE / SCRIPT
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(script), *only], cwd=root, env=environment, stdout=subprocess.PIPE, text=True
    )


def _facts(process: subprocess.Popen[str]) -> dict[str, dict[str, Any]]:
    out, _ = process.communicate(timeout=600)
    if process.returncode:
        raise SystemExit(f"{process.args} ended with code {process.returncode}")
    lines = map(json.loads, out.splitlines())
    return {line["name"]: line for line in lines}


def _verdict(old: dict[str, Any] | None, new: dict[str, Any] | None) -> str:
    if old is None or new is None:
        return "only here" if old is None else "only there"
    if old["sha256"] == new["sha256"]:
        return "equal" if not isinstance(new["facts"], str) else f"equal (both: {new['facts']})"
    if isinstance(old["facts"], str) or isinstance(new["facts"], str):
        return f"DIFFERENT: {_short(old)} there, {_short(new)} here"
    same = sum(a == b for a, b in zip(old["facts"], new["facts"]))
    return f"DIFFERENT: {same} of {len(new['facts'])} parts equal"


def _short(line: dict[str, Any]) -> str:
    return line["facts"] if isinstance(line["facts"], str) else "votes"
