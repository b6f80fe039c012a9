"""A PostgreSQL server of the tests' own, in a temporary directory, reachable through a unix socket only."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_USERS = ("postgres", "nobody")
LIMIT = 120  # seconds


def _programs() -> Path:
    """The folder of initdb and postgres: on PATH, or the newest where Debian keeps them."""
    found = shutil.which("initdb")
    if found and shutil.which("postgres"):
        return Path(found).parent
    kept = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not kept:
        pytest.skip("PostgreSQL is not installed: neither on PATH nor in /usr/lib/postgresql")
    return kept[-1].parent


class Server:
    """A running server; ``crash`` and ``start`` let tests take it away and bring it back."""

    def __init__(self, folder: Path, prefix: list[str], programs: Path) -> None:
        self._folder = folder
        self._programs = programs
        self._prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql:///postgres?host={folder}&user=tester"

    def create(self) -> None:
        words = ["-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(
            [*self._prefix, str(self._programs / "initdb"), "-D", str(self._folder / "data"), *words],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            timeout=LIMIT,
            check=True,
        )

    def start(self) -> None:
        options = {
            "unix_socket_directories": str(self._folder),
            "listen_addresses": "",
            "shared_buffers": "16MB",
            "max_connections": "40",
        }
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, str(self._programs / "postgres"), "-D", str(self._folder / "data"), *words],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        self._wait()

    def _wait(self) -> None:
        import psycopg

        assert self._process is not None
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self._folder / "log").read_text()[-2000:]) from error
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is PostgreSQL's fast shutdown, SIGQUIT a crash: nothing is written, recovery follows."""
        if self._process is not None:
            pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
            os.kill(pid, how)
            self._process.wait(timeout=60)
            self._process = None


@contextmanager
def postgres_server() -> Iterator[Server]:
    pytest.importorskip("psycopg")
    programs = _programs()
    prefix: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="smoothcert-pg-"))  # short: a socket's path has at most 107 bytes
    try:
        if os.geteuid() == 0:
            prefix = _unprivileged(folder)
        server = Server(folder, prefix, programs)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root: words that run a command as somebody else, who gets the folder."""
    for name in _USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        if shutil.which("setpriv"):
            os.chown(folder, user.pw_uid, user.pw_gid)
            return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    pytest.skip("root can't run PostgreSQL, and there is no setpriv or no user to become")
