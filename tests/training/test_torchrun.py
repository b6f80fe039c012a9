"""Real processes, started by torchrun: what they do together, one process does alone."""

import json
import os
import shlex
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from smoothcert.cli import main

pytestmark = pytest.mark.system


def losses(out):
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def torchrun(*words):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    # After `--` torchrun leaves our options alone; it takes --max for one of its own.
    start = "-m torch.distributed.run --standalone --nproc-per-node 2 -m -- smoothcert train"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *shlex.split(start), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@pytest.mark.parametrize(
    "method",
    [
        ["--objective", "gaussian", "--max", "300"],
        pytest.param(
            shlex.split("--objective smoothadv --steps 2 --copies 2 --max 100 --ramp epsilon:3"),
            marks=pytest.mark.campaign,
        ),
    ],
    ids=["gaussian", "smoothadv"],
)
def test_two_processes_do_what_one_does_with_two_shards(method, tmp_path):
    words = ["digits", "--sigma", "0.25", "--epochs", "3", "--batch-size", "64", "--lr", "0.05", *method]
    together, alone = tmp_path / "together", tmp_path / "alone"
    run = torchrun(*words, "--json", "--out", str(together))
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["out"] == str(together)  # one process spoke
    assert "Traceback" not in run.stderr
    main(["train", *words, "--shards", "2", "--quiet", "--out", str(alone)])
    assert losses(together) == pytest.approx(losses(alone), rel=1e-5)
    weights = [safetensors.torch.load_file(out / "model.safetensors") for out in (together, alone)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], rtol=1e-4, atol=1e-6)
    assert (together / "recipe.toml").read_bytes() == (alone / "recipe.toml").read_bytes()
    assert sorted(path.name for path in together.iterdir()) == sorted(path.name for path in alone.iterdir())


@pytest.mark.campaign
def test_what_several_processes_finished_is_finished_for_one_too(tmp_path):
    words = ["digits", "--sigma", "0.25", "--batch-size", "64", "--max", "200", "--shards", "2", "--quiet"]
    words += ["--epochs", "3", "--architecture", "cifar_resnet20", "--out"]
    run = torchrun(*words, str(tmp_path / "run"))
    assert run.returncode == 0, run.stderr
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    main(["train", *words, str(tmp_path / "run")])  # finished: nothing to do, the same model
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
