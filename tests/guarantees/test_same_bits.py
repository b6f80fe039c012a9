"""“The same numbers to the last bit”: whatever the batch, the workers, the order, or how often it was killed."""

import json

import numpy as np
import pytest
import torch

from smoothcert import Execution, Numerics, SmoothedClassifier
from smoothcert.architectures.weights import load_model
from smoothcert.cli import main
from smoothcert.datasets import load
from smoothcert.training.plan import TrainPlan
from smoothcert.training.recipe import Recipe
from smoothcert.training.runs import train_into
from tests.guarantees.kills import JOBS, campaign


@pytest.mark.system
def test_killed_owners_lose_nothing(tmp_path):
    """Workers of processes are killed in tests/engine/backends and tests/sweeps, and in the campaign."""
    commands = dict.fromkeys(("certify plain", "remember", "recertify", "import-log"), 3)
    outcome = campaign(tmp_path, commands | {"command": 2, "threads": 2, "network": 2, "shards": 2}, seed=1)
    assert not outcome.wrong
    assert outcome.kills.total() == 20


@pytest.mark.campaign
def test_killed_owners_and_workers_lose_nothing(tmp_path):
    """``python -m tests.guarantees.kills`` does it for longer, and on Ray."""
    names = [name for name in JOBS if name != "ray"]
    outcome = campaign(tmp_path, dict.fromkeys(names, 5), seed=2)
    assert not outcome.wrong
    assert outcome.kills.total() >= 4 * len(names)


@pytest.mark.slow
def test_speed_options_do_not_change_the_digest(digits_model, tmp_path, capsys):
    digests = set()
    for number, speed in enumerate(("--workers 1", "--batch 1", "--workers 3 --batch 5000")):
        words = f"--dataset digits --sigma 0.25 --n 1000 --max 8 --quiet --json {speed} --out".split()
        main(["certify", str(digits_model), *words, str(tmp_path / str(number))])
        digests.add(json.loads(capsys.readouterr().out)["results_sha256"])
    assert len(digests) == 1


@pytest.mark.campaign
def test_mnist_lenet_counts_are_the_same_for_every_execution(shared, tmp_path):
    root = shared / "data"
    plan = TrainPlan(sigma=0.5, epochs=2, batch_size=128, lr=0.05, schedule="cosine")
    train_into(tmp_path / "lenet", Recipe("mnist", plan, "lenet", inputs=6000), load("mnist", "train", root))
    module, _ = load_model(tmp_path / "lenet")
    data = load("mnist", "test", root)
    inputs = data.inputs(slice(0, 30))
    tallies = {}
    for workers, batch in ((1, None), (2, 64), (3, 1000)):
        execution = Execution(workers=workers, batch=batch)
        classifier = SmoothedClassifier(module, sigma=0.5, n=500, seed=0, levels=255, execution=execution)
        tallies[workers, batch] = [a.estimation for a in classifier.certify(inputs, index=0)]
    classifier = SmoothedClassifier(
        module, sigma=0.5, n=500, seed=0, levels=255, execution=Execution(workers=2)
    )
    backwards = {
        a.index: a.estimation for a in classifier.certify_each((i, inputs[i]) for i in range(29, -1, -1))
    }
    expected = tallies[1, None]
    assert all(found == expected for found in tallies.values())
    assert [backwards[i] for i in range(30)] == expected


def test_small_networks_train_to_the_same_bits_whatever_threads_there_are(tmp_path):
    """Sums are split among threads, and rounded where they are put together again: small networks have one thread."""
    trained = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            recipe = Recipe("digits", TrainPlan(sigma=0.25, epochs=2, batch_size=64, lr=0.05), "small-cnn")
            train_into(tmp_path / str(threads), recipe, load("digits", "train"))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(1)
        trained.append((tmp_path / str(threads) / "model.safetensors").read_bytes())
    assert trained[0] == trained[1] == trained[2]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("route", ["eager", "channels-last", "folded", "onnxruntime", "openvino"])
def test_every_route_gives_the_same_sums_for_any_batch_workers_order_and_resumption(route, dtype):
    """Sums of probabilities in units of 2⁻³² show a last bit that no class would."""
    if route in ("onnxruntime", "openvino"):
        pytest.importorskip(route)
        pytest.importorskip("onnx")
    if (route, dtype) == ("onnxruntime", "bfloat16"):
        pytest.skip("onnxruntime evaluates float32 here")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 96, 3),
        torch.nn.BatchNorm2d(96),
        torch.nn.Conv2d(96, 96, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(1536, 5),
    )
    inputs = list(enumerate(np.random.default_rng(0).random((3, 1, 8, 8))))
    found = []
    for chosen, execution in (
        (inputs, Execution(workers=1)),
        (inputs[::-1], Execution(workers=3, batch=64)),
        (inputs, Execution(workers=2, batch=1000)),
        (inputs[2:], Execution(workers=2)),  # what a resumed run has left
    ):
        classifier = SmoothedClassifier(
            network,
            sigma=0.5,
            bound="hoeffding",
            n=500,
            seed=0,
            numerics=Numerics(dtype, route),
            execution=execution,
        )
        answers = {one.index: one.estimation for one in classifier.certify_each(chosen)}
        found.append([answers[index].sums for index in sorted(answers)])
    assert found[0] == found[1] == found[2] == [*found[0][:2], *found[3]]
