"""The command line in a process of its own, forked from a server that has torch loaded: no start takes seconds."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["tests.processes", "torch", "scipy.stats", "smoothcert.cli"])
LIMIT = 300.0
"""Seconds that a command of a test may take."""


def _run(words: list[str], cwd: str, environment: dict[str, str], files: list[str]) -> None:
    """What the child does: become the command ``smoothcert`` with these words."""
    for descriptor, path in zip((0, 1, 2), files):
        opened = os.open(path, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in ((0, "r"), (1, "w"), (2, "w")))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["smoothcert", *words]
    from smoothcert.__main__ import main

    main()


class Command:
    """``smoothcert WORDS`` under way."""

    def __init__(self, *words: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self.words = [str(word) for word in words]
        self._folder = tempfile.TemporaryDirectory(prefix="smoothcert-command-")
        outputs = [str(Path(self._folder.name) / name) for name in ("stdout", "stderr")]
        for path in outputs:
            Path(path).touch()
        self._files = [os.devnull, *outputs]
        given = dict(os.environ if env is None else env)
        self._process: Any = _FORKSERVER.Process(
            target=_run, args=(self.words, str(cwd or Path.cwd()), given, self._files)
        )
        self._process.start()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """The exit code; None while it runs. Minus the signal's number where one ended it."""
        return self._process.exitcode

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send it a signal; one that has ended is left alone."""
        if self.poll() is None:
            os.kill(self.pid, how)

    def wait(self, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
        """Its end, with what it printed; killed and reported when it takes longer than ``limit`` seconds."""
        self._process.join(limit)
        code = self.poll()
        if code is None:
            self.kill()
            self._process.join(LIMIT)
        out, err = (Path(path).read_text(encoding="utf-8") for path in self._files[1:])
        self._folder.cleanup()
        if code is None:
            raise subprocess.TimeoutExpired(["smoothcert", *self.words], limit, out, err)
        return subprocess.CompletedProcess(["smoothcert", *self.words], code, out, err)


def run_command(
    *words: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit: float = LIMIT,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """``smoothcert WORDS`` in a process of its own, to its end."""
    done = Command(*words, cwd=cwd, env=env).wait(limit)
    if check:
        assert done.returncode == 0, done.stderr
    return done
