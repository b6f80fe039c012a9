"""The OpenAPI description, asked about by a machine: whatever it makes up, nothing is a fault of ours."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from smoothcert.service.application import make_application
from smoothcert.service.limits import Limits
from tests.service.made import live, service, smoothed

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
