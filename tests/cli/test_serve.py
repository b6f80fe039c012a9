"""`smoothcert serve` from outside: it starts, answers, refuses what it should, and ends in order."""

import io
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from smoothcert.cli import main
from smoothcert.cli.serve import _shape
from smoothcert.client import Client, ServiceError
from tests.waiting import until

from .output import refusal

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")


@contextmanager
def serving(*words: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of its own process, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "smoothcert", "serve", *words, "--port", "0", "--json"],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = threading.Timer(300, process.kill)
    limit.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        yield process, json.loads(line)["url"]
    finally:
        limit.cancel()
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.system
def test_it_serves_a_training_run_and_ends_on_a_signal(digits_model, tmp_path):
    words = ("--n", "4000", "--seed", "7", "--workers", "1")
    with serving(str(digits_model), *words, cwd=tmp_path) as (process, url):
        client = Client(url)
        assert client.plan()["model"]["input_shape"] == [1, 8, 8]
        assert client.certify(np.zeros((1, 8, 8)), votes=1000).votes == 1000
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
        assert "--seed 7" in told


@pytest.mark.system
def test_a_second_signal_ends_it_at_once(tmp_path):
    """With a model that never comes back, an end in order would never come."""
    (tmp_path / "hanging.py").write_text(
        "import time, numpy as np\n"
        "from pathlib import Path\n"
        "def model(batch):\n"
        "    while Path('hang').exists():\n"
        "        Path('hanging').touch()\n"
        "        time.sleep(0.1)\n"
        "    return np.stack([-batch[:, 0], batch[:, 0]], 1)\n"
    )
    words = "hanging:model --model-returns scores --classes 2 --input-shape 2 --sigma 1 --n 1000"
    with serving(*words.split(), cwd=tmp_path) as (process, url):
        (tmp_path / "hang").touch()
        asking = threading.Thread(
            target=certify_or_fail, args=(Client(url), np.array([1.0, 0.0])), daemon=True
        )
        asking.start()
        until((tmp_path / "hanging").exists)
        process.send_signal(signal.SIGINT)
        until(lambda: not listens(url))
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGINT
        assert "Traceback" not in errors
        asking.join(60)
        assert not asking.is_alive()


def certify_or_fail(client: Client, x: np.ndarray) -> None:
    with suppress(ServiceError):
        client.certify(x, deadline=60)


def listens(url: str) -> bool:
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname, address.port), timeout=10).close()
    except OSError:
        return False
    return True


def test_mistakes_are_told_before_anything_is_served(digits_model, tmp_path, capsys):
    model = str(digits_model)
    keys, secret = str(tmp_path / "keys"), str(tmp_path / "secret")
    for words, named in (
        (("--host", "0.0.0.0"), ("--host 0.0.0.0", "--api-keys", "--open")),
        (("--open", "--api-keys", keys), ("--open", "--api-keys")),
        (("--api-keys", keys), (f"--api-keys {keys}", "serve key")),
        (("--seed", "1", "--secret-file", secret), ("--seed", "--secret-file")),
        (("--bound", "two-class"), ("two-class", "mixture-top-two")),
        (("--sigma-search", "ladder"), ("--memory", "--sigma-search")),
        (("--input-shape", "wide"), ("--input-shape", "1,28,28", "'wide'")),
        (("--input-shape", "1", "wide"), ("--input-shape", "1,28,28", "'1 wide'")),
        (("--port", "70000"), ("65535", "70000")),
    ):
        message = refusal(capsys, "serve", model, *words)
        assert all(name in message for name in named), message


def test_a_port_that_is_taken_is_one_message(digits_model, tmp_path, capsys):
    of_the_process = logging.StreamHandler(io.StringIO())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        told = refusal(capsys, "serve", digits_model, "--port", port)
    assert of_the_process in [handler() for handler in logging._handlerList], "handlers of others were closed"
    assert all(part in told for part in ("127.0.0.1", port, "--port 0"))


def test_a_key_is_shown_once(tmp_path, capsys):
    main(["serve", "key", "alice", "--api-keys", str(tmp_path / "keys")])
    key = capsys.readouterr().out.strip()
    assert key.startswith("smoothcert_")
    assert key not in (tmp_path / "keys").read_text()


def test_a_run_of_certificates_says_how_its_model_is_served(digits_model, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    few = ("--n", "300", "--n0", "20", "--alpha", "0.01", "--sigma", "0.3", "--max", "2", "--quiet")
    main(["certify", str(digits_model), *few, "--out", str(run)])
    assert f"--plan-from {run}" in refusal(capsys, "serve", run).replace("- ", "-")
    message = refusal(capsys, "serve", digits_model, "--plan-from", run, "--sigma", "1")
    assert all(option in message for option in ("--plan-from", "--sigma", "--sigma-search"))
    made = []

    class Ended:
        async def serve(self) -> None:
            """Nobody asks."""

    def remembered(application: Any, *_: Any) -> Ended:
        made.append(application.state.service)
        return Ended()

    monkeypatch.setattr("smoothcert.service.server.make_server", remembered)
    main(["serve", str(digits_model), "--plan-from", str(run), "--quiet"])
    plan = made[0].engine.plan
    assert (plan.noise.sigma, plan.n, plan.n0, plan.alpha) == (0.3, 300, 20, 0.01)
    assert plan.bound == "mixture-top-two"


def test_a_shape_is_read_in_each_spelling():
    for words in (["1,28,28"], ["1", "28", "28"], ["1x28x28"]):
        assert _shape(None, words) == (1, 28, 28)  # type: ignore[arg-type]
