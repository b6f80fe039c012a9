"""Runs commands in this process, where no extra can be imported; says in JSON how each ended and what it wrote.

Given in JSON on standard input: the names of the modules to block, and the words of each command.
"""

import contextlib
import io
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Without:
    """A finder that doesn't find these packages, as if they weren't installed."""

    def __init__(self, finder: Any, names: set[str]) -> None:
        self.finder, self.names = finder, names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self.names else self.finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def written() -> dict[str, tuple[int, int]]:
    stats = {
        str(path): path.stat()
        for path in sorted(Path().rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}


def ended(words: Sequence[str]) -> dict[str, object]:
    from smoothcert.cli import main

    before, code = written(), 0
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            code = 1
            traceback.print_exc()
    return {"code": code, "out": out.getvalue(), "err": err.getvalue(), "wrote": written() != before}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    sys.meta_path = [Without(finder, set(asked["blocked"])) for finder in sys.meta_path]  # type: ignore[misc]
    sys.path.insert(0, str(Path.cwd()))
    answers = [ended(words) for words in asked["commands"]]
    json.dump(answers, sys.stdout)
