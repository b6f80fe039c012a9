"""The device path keeps the promises of the other, forced on the CPU: same bits, true arithmetic, votes that replay."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.cli import main
from smoothcert.datasets.base import Dataset
from smoothcert.engine.engine import Engine
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import NoisyModel
from smoothcert.engine.schedule import Draw, Procedure
from smoothcert.errors import DependentVotesError, RunError
from smoothcert.evaluation.certification import Progress, certify_dataset
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.perturb.grid import Grid
from smoothcert.perturb.uniform import Uniform
from smoothcert.runs.run import read_run
from smoothcert.tally import Phase, Tally
from tests.guarantees.test_arithmetic import NOISES, PAIRS, READERS, Reads, contradict
from tests.verification.runs import edit_plan

SHAPE = (1, 4, 5)
GRID = Grid.of(255)
INPUTS = np.random.default_rng(0).integers(0, 256, (9, *SHAPE)) / 255
PHILOX = Numerics(generator="philox")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 5))


def above(batch: np.ndarray) -> np.ndarray:
    """A label that no rounding moves: an exact comparison of one number."""
    return (batch[:, 0, 1, 2] * 255 > 127.5).astype(np.int64)


def draws() -> Procedure[tuple[Tally, ...]]:
    found = []
    for phase, votes in ((Phase.SELECTION, 30), (Phase.ESTIMATION, 250), (Phase.ESTIMATION, 1)):
        found.append((yield Draw(phase, votes)))
    return tuple(found)


def cast(
    model: object,
    numerics: Numerics = PHILOX,
    execution: Execution | None = None,
    order: list[int] | None = None,
    votes: str = "hard",
    **words: object,
) -> dict[int, tuple[Tally, ...]]:
    execution = execution or Execution(workers=1)
    prepared = adapt(model, votes, **words).prepare(numerics, SHAPE)
    noises = [Gaussian(0.5), Uniform(0.25), DiagonalGaussian(np.linspace(0.1, 1.0, 20).reshape(SHAPE))]
    with Engine(execution) as engine:
        noisy = NoisyModel(engine, prepared, votes, 7, GRID)
        jobs = (noisy.job(i, INPUTS[i], noises[i % 3], draws()) for i in order or range(len(INPUTS)))
        return {done.job.index: done.answer for done in noisy.run(jobs)}


@pytest.mark.parametrize(("votes", "chunk"), [("hard", None), ("soft", 64), ("hard", 24)])
def test_same_bits_for_any_batch_workers_devices_and_order(votes, chunk):
    numerics = replace(PHILOX, chunk=chunk)
    expected = cast(network(), numerics, votes=votes)
    shuffled = list(range(len(INPUTS)))
    random.Random(3).shuffle(shuffled)
    for execution, order in (
        (Execution(workers=1, batch=1), shuffled),
        (Execution(workers=3, batch=100), None),
        (Execution("cpu,cpu", batch=1), shuffled),
    ):
        found = cast(network(), numerics, execution, order, votes)
        assert found == {index: expected[index] for index in found}


@pytest.mark.parametrize(
    "numerics", [Numerics(chunk=8, block=4), Numerics(chunk=24), Numerics(chunk=7, block=35)]
)
def test_a_vote_is_the_same_draw_whatever_the_layout(numerics):
    """Its noise has its number in the stream, not its place in a pass or a block."""
    words = {"outputs": "labels", "classes": 2}
    assert cast(above, replace(numerics, generator="philox"), **words) == cast(above, **words)


def test_no_two_certificates_contradict_each_other():
    """The classifiers that read low-order bits."""
    for noise, pair, dtype in [
        ("gaussian", "black and grey", "float32"),
        ("uniform", "a digit on black and on 5/255", "float32"),
        ("diagonal-gaussian", "signs", "float64"),
        ("diagonal-uniform", "grey and one step more", "float32"),
    ]:
        numerics = Numerics(dtype, chunk=40, generator="philox")
        plan = CertifyPlan(NOISES[noise], n=120, n0=20, alpha=0.01, seed=1, numerics=numerics, levels=255)
        distance = float(np.linalg.norm(PAIRS[pair][0] - PAIRS[pair][1], ord=1 if "uniform" in noise else 2))
        for name, reader in READERS.items():
            smoothed = SmoothedClassifier(
                Reads(reader), plan, outputs="labels", classes=2, execution=Execution(workers=1)
            )
            first, second = (smoothed.certify(x) for x in PAIRS[pair])
            assert not contradict(first, second, distance), (name, first.radius, second.radius, distance)


def test_zeros_have_no_sign_and_pictures_are_seen_as_they_are():
    seen: list[np.ndarray] = []

    def model(batch: np.ndarray) -> np.ndarray:
        seen.append(batch.copy())
        return np.zeros(len(batch), dtype=np.int64)

    plan = CertifyPlan(Gaussian(0.5), n=100, seed=1, numerics=PHILOX, levels=255)
    smoothed = SmoothedClassifier(model, plan, outputs="labels", classes=2, execution=Execution(workers=1))
    smoothed.prepare((16,))
    for x in (np.zeros(16), np.full(16, -0.0), np.full(16, 77 / 255)):
        seen.clear()
        smoothed.certify(x)
        rows = np.concatenate(seen)
        assert not (np.signbit(rows) & (rows == 0)).any()
        pictures = np.arange(-(2**15), 2**15).astype(np.float32) / np.float32(255)
        assert np.isin(rows, pictures).all()


@pytest.fixture
def data() -> Dataset:
    return Dataset("points", INPUTS.astype(np.float32), np.zeros(len(INPUTS), dtype=np.int64), tuple("abcde"))


class KilledError(Exception):
    pass


def test_a_run_that_was_broken_off_goes_on_to_the_same_bits_and_states_its_generator(data, tmp_path):
    def classifier(generator: str = "philox", **how: object) -> SmoothedClassifier:
        plan = CertifyPlan(Gaussian(0.5), n=300, n0=20, seed=5, numerics=Numerics(generator=generator))
        return SmoothedClassifier(network(), plan, execution=Execution(**how))

    def after(count: int) -> Progress:
        seen: list[object] = []

        def record(one: object) -> None:
            seen.append(one)
            if len(seen) == count:
                raise KilledError

        return Progress(record=record)

    whole = certify_dataset(classifier(), data, tmp_path / "whole")
    out = tmp_path / "broken"
    for count, how in ((2, {"workers": 1}), (3, {"device": "cpu,cpu"}), (1, {"workers": 3, "batch": 64})):
        with pytest.raises(KilledError):
            certify_dataset(classifier(**how), data, out, progress=after(count))
    with pytest.raises(RunError, match=r"plan\.generator.*philox.*null"):
        certify_dataset(classifier("sfc64"), data, out)
    run = certify_dataset(classifier(), data, out)
    assert run.records.digest == whole.records.digest
    assert run.manifest.plan.generator == "philox"
    assert CertifyPlan.from_statement(run.manifest.plan, out).numerics.generator == "philox"
    # Runs of before say nothing, and so do those that draw as they did.
    other = certify_dataset(classifier("auto"), data, tmp_path / "other")
    assert "generator" not in json.loads((tmp_path / "other" / "run.json").read_text())["plan"]
    assert CertifyPlan.from_statement(other.manifest.plan, out).numerics.generator == "sfc64"
    assert other.records.digest != run.records.digest


def test_replay_draws_by_the_runs_own_generator(data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "device_path_model.py").write_text(
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
        "net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 5))\n"
    )
    np.savez(tmp_path / "points.npz", x=INPUTS.astype(np.float32), y=np.arange(len(INPUTS)) % 5)
    source = ["device_path_model:net", "--dataset", "npz:points.npz"]
    main(
        ["certify", *source, "--sigma", "0.5", "--n", "300", "--n0", "20", "--generator", "philox",
         "--dtype", "autocast-bfloat16", "--quiet", "--out", "run"]
    )  # fmt: skip
    words = ["verify", "run", "--replay", "3", "--seed", "0", "--format", "json", "--model", *source]
    capsys.readouterr()
    main(words)
    told = json.loads(capsys.readouterr().out)
    assert (told["replayed"], told["holds"]) == (3, True)
    manifest = read_run(tmp_path / "run").manifest
    assert (manifest.plan.generator, manifest.plan.dtype) == ("philox", "autocast-bfloat16")
    # Votes that are said to be of the other generator are found out.
    edit_plan(tmp_path / "run", generator="sfc64", device="cuda")
    with pytest.raises(SystemExit):
        main(words)
    other = json.loads(capsys.readouterr().out)
    assert other["replayed"] == 3
    assert other["inputs_with_problems"]
    assert len(other["notes"]) == len(told["notes"]) + 1  # another device may round otherwise


def test_models_that_answer_by_the_batch_are_refused():
    class Mixing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            flat = x.flatten(1)[:, :5]
            return flat - flat.mean(0)

    with pytest.raises(DependentVotesError):
        cast(Mixing())


def test_a_model_that_writes_to_its_input_and_returns_a_part_of_it_gets_its_own_votes():
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return x.flatten(1)[:, :5]

    class Reads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1)[:, :5] * 2

    assert cast(Writes()) == cast(Reads())
