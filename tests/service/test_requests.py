"""Bodies, options and descriptions of requests."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.service.service import _Bell

pytest.importorskip("fastapi")

from smoothcert.errors import DataError
from smoothcert.service.application import make_application
from smoothcert.service.limits import Limits
from smoothcert.service.secrets import Keys, new_key
from tests.service.made import live, service, smoothed


def test_keys_are_kept_as_hashes_and_wrong_files_named(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key = new_key(path, "alice")
    assert key not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(DataError, match="'two words'"):
        new_key(path, "two words")
    path.write_text("alice nonsense\n")
    with pytest.raises(DataError, match=rf"--api-keys {path}.*\b1\b.*sha256:HASH"):
        Keys.read(path)
    with pytest.raises(DataError, match=rf"--api-keys {tmp_path / 'none'}.*serve key"):
        Keys.read(tmp_path / "none")


GENEROUS = Limits(requests_per_minute=10**6, votes_per_minute=10**12)


def test_every_path_and_answer_is_described() -> None:
    described = service(smoothed())
    try:
        paths = make_application(described).openapi()["paths"]
    finally:
        described.close()
    assert set(paths) == {
        "/v1/predict", "/v1/certify", "/v1/certify/stream", "/v1/plan", "/healthz", "/readyz", "/metrics"
    }  # fmt: skip
    for path in ("/v1/predict", "/v1/certify", "/v1/certify/stream"):
        asked = paths[path]["post"]
        assert {"200", "401", "413", "415", "422", "429", "503"} <= set(asked["responses"])
        (inputs,) = (asked["requestBody"]["content"]["application/json"]["schema"]["properties"]["inputs"],)
        assert inputs["items"]["minItems"] == 2
        assert "application/x-npy" in asked["requestBody"]["content"]


@pytest.mark.campaign
def test_nothing_that_schemathesis_thinks_of_is_an_error_of_the_server(tmp_path: Path) -> None:
    if importlib.util.find_spec("schemathesis") is None:
        pytest.skip("schemathesis is not installed")
    with live(limits=GENEROUS, n=256) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
                *("--checks", "not_a_server_error", "--max-examples", "200", "--seed", "1"),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            cwd=tmp_path,  # it leaves a folder there
        )
        assert done.returncode == 0, done.stdout[-3000:]
        assert server.ask("GET", "/readyz")[0] == 200


@pytest.mark.parametrize("turns", range(4))
def test_a_client_that_leaves_while_the_bell_rings_has_left(turns: int) -> None:
    """Whenever the two meet: a waiting task that takes its cancellation is cancelled."""

    async def leave() -> bool:
        bell = _Bell()
        waiting = asyncio.create_task(bell.wait(bell.now() + 60))
        await asyncio.sleep(0.01)
        bell._event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        taken = waiting.cancel()
        await asyncio.wait({waiting})
        return taken == waiting.cancelled()

    assert asyncio.run(leave())


def test_a_bell_that_nothing_rings_ends_with_its_time() -> None:
    async def heard(rung: bool) -> bool:
        bell = _Bell()
        if rung:
            bell.ring()
        return await bell.wait(bell.now() + (60 if rung else 0.05))

    assert asyncio.run(heard(True))
    assert not asyncio.run(heard(False))


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def test_every_option_is_one_of_the_servers(capsys: pytest.CaptureFixture[str]) -> None:
    main(["serve", "--help-all"])
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    service = re.sub(r"\\\n", " ", (EXAMPLES / "smoothcert.service").read_text())
    container = (EXAMPLES / "Containerfile").read_text()
    for words in (
        service[service.index("ExecStart=") :].splitlines()[0],
        container[container.index("ENTRYPOINT") :],
    ):
        options = set(re.findall(r"--[a-z][a-z-]+", words))
        assert options, "it gives some"
        assert options <= known, f"unknown to serve: {sorted(options - known)}"
