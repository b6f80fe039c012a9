"""A real S3-compatible server for tests: moto's, in a process of its own that ends with the test."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

KEY, SECRET = "AKIATESTTESTTEST", "very/secret+key/of-the-tests"
BUCKET = "certified"


def missing() -> str | None:
    """Why there can be no server; None where there can."""
    absent = [name for name in ("s3fs", "moto", "flask") if find_spec(name) is None]
    return f"{', '.join(absent)} not installed (pip install s3fs 'moto[server]')" if absent else None


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """The variables by which clients find it; the bucket is there."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(port, server)
            yield {
                "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            }
        finally:
            server.kill()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server doesn't answer")


def objects(system: object) -> dict[str, bytes]:
    """What is in the bucket."""
    return {path: system.cat_file(path) for path in system.find(BUCKET)}  # type: ignore[attr-defined]


def set_up(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """As a user sets it up: by environment variables alone."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
