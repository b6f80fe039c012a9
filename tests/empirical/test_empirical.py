"""Attacks on certified runs: known boundaries are found, answers don't depend on the batch, misfits are refused."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from smoothcert import Execution, SmoothedClassifier
from smoothcert.analysis.metrics import certified_accuracy
from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load
from smoothcert.datasets.base import Dataset
from smoothcert.empirical.attacker import attack_run, strongest_rival
from smoothcert.empirical.results import ATTACKS, AttackedInput, AttackPlan, AttackProgress, AttackReport
from smoothcert.errors import DataError, InvalidValueError, ModelError, RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.models.adapt import adapt
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.statement import Choice
from smoothcert.smoothing.plan import TooFewVotesWarning
from smoothcert.tally import Phase, Stream, Tally

SIGMA = 0.5
NORMAL = np.array([0.6, 0.0, -0.8, 0.0])


def half_space(bias: float = 0.0) -> nn.Linear:
    """Class 1 where NORMAL·x + bias > 0: smoothed, it still changes exactly there, at distance |NORMAL·x + bias|."""
    module = nn.Linear(len(NORMAL), 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(np.stack([-NORMAL, NORMAL])))
        module.bias.copy_(torch.tensor([-bias, bias]))
    return module


def at_distances(distances: list[float]) -> Dataset:
    """Inputs of class 1 at these distances from the boundary, anywhere along it."""
    along = np.random.default_rng(1).normal(size=(len(distances), len(NORMAL)))
    along -= np.outer(along @ NORMAL, NORMAL)
    x = along + np.outer(distances, NORMAL)
    return Dataset("made-up", x, np.ones(len(x), dtype=np.int64), ("left", "right"))


def certified(out: Path, data: Dataset, module: nn.Module | None = None, **options: Any) -> Run:
    plan = {"sigma": SIGMA, "n": 2000, "seed": 0} | options
    return certify_dataset(SmoothedClassifier(module or half_space(), **plan), data, out / "run")


@pytest.mark.parametrize(
    ("attack", "copies", "gap"),
    [("pgd", 4, 0.05), ("ddn", 4, 0.05), ("gradient-free", 256, 0.2), ("nes", 256, 0.1)],
)
def test_inputs_break_just_beyond_their_true_distance(tmp_path, attack, copies, gap):
    distances = [0.4, 0.9, 1.4]
    data = at_distances(distances)
    radii = [distance + sign * gap for distance in distances for sign in (-1, 1)]
    plan = AttackPlan(attack, copies=copies, n=20_000)
    report = attack_run(certified(tmp_path, data), half_space(), data, radii, plan)
    assert [one.broken_at for one in report.inputs] == pytest.approx([d + gap for d in distances])
    assert report.empirical_accuracy() == (1, 2 / 3, 2 / 3, 1 / 3, 1 / 3, 0)
    assert report.broken() == (0, 1, 1, 2, 2, 3)
    for one, distance in zip(report.inputs, distances):
        assert one.broken is not None
        assert distance < one.broken.distance < one.broken.radius
        assert one.broken.rival == 0
    assert report.contradictions() == ()


def test_restarts_keep_what_is_found(tmp_path):
    data = at_distances([0.4, 1.4])
    plan = AttackPlan("gradient-free", copies=16, restarts=5, n=20_000)
    report = attack_run(certified(tmp_path, data), half_space(), data, [0.7, 1.9], plan)
    assert [one.broken_at for one in report.inputs] == [0.7, 1.9]


def test_what_the_run_gets_wrong_needs_no_attack(tmp_path):
    data = at_distances([-0.5, 1.0])
    settled: list[int] = []
    seen: list[AttackedInput] = []
    report = attack_run(
        certified(tmp_path, data),
        half_space(),
        data,
        [0.25, 0.5],
        progress=AttackProgress(settled.append, seen.append),
    )
    assert [(one.wrong, one.broken_at) for one in report.inputs] == [(True, 0.0), (False, None)]
    shown = report.inputs[0].broken
    assert shown is not None
    assert (shown.radius, shown.distance, shown.rival) == (0.0, 0.0, 0)
    assert [one.certified_radius > 0 for one in report.inputs] == [False, True]
    assert (report.wrong, report.broken(), report.empirical_accuracy()) == (1, (0, 0), (0.5, 0.5))
    assert tuple(seen) == report.inputs
    assert sum(settled) == 4


def test_the_runs_own_votes_call_nothing_wrong(tmp_path):
    """Fresh votes do: those of the run were counted before, and their plurality is no test."""
    data = at_distances([1.0])
    run = certified(tmp_path, data)
    against = Tally(Stream(0, 0, Phase.ESTIMATION), 0, 2000, (1100, 900))
    run = replace(run, records=(replace(run.records[0], estimation=against),))
    assert not attack_run(run, half_space(), data, [0.1]).inputs[0].wrong


def test_a_certificate_that_the_input_itself_contradicts(tmp_path):
    data = at_distances([-1.0])
    run = certified(tmp_path, data)
    claimed = replace(run, records=(replace(run.records[0], predicted=1, radius=0.3),))
    report = attack_run(claimed, half_space(), data, [0.1])
    (one,) = report.contradictions()
    assert one.wrong


def test_adversaries_stay_where_the_data_do(tmp_path):
    """Beyond 1 no adversary exists if all data lie in [0, 1]; a single input outside lifts the fence."""
    module = nn.Linear(1, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        module.bias.copy_(torch.tensor([-1.1, 1.1]))
    for far, broken_at in ((0.0, None), (-1.0, 0.5)):
        data = Dataset("made-up", np.array([[0.9], [far]]), np.array([1, 1]), ("high", "low"))
        run = certified(tmp_path / str(far), data, module, sigma=0.25)
        assert attack_run(run, module, data, [0.5]).inputs[0].broken_at == broken_at


@pytest.mark.parametrize("attack", ATTACKS.names())
def test_neither_batch_nor_workers_nor_other_inputs_and_radii_matter(tmp_path, attack):
    data = at_distances(list(np.linspace(0.1, 1.5, 6)))
    run = certified(tmp_path, data, n=500)

    def breaks(report: AttackReport) -> list[tuple[int, float | None]]:
        return [(one.record.index, one.broken_at) for one in report.inputs]

    plan = AttackPlan(attack, steps=10, copies=32, n=500)
    expected = attack_run(run, half_space(), data, [0.5, 1.0], plan)
    for batch, execution in ((1, None), (4, Execution(workers=3)), (99, Execution(workers=1, batch=64))):
        found = attack_run(run, half_space(), data, [1.0, 0.5], plan, batch=batch, execution=execution)
        assert breaks(found) == breaks(expected)
    fewer = replace(run, records=run.records[1::3])
    assert breaks(attack_run(fewer, half_space(), data, [0.5, 1.0], plan)) == breaks(expected)[1::3]
    alone = attack_run(replace(run, records=run.records[:1]), half_space(), data, [0.5], plan)
    assert alone.inputs[0].broken is not None
    assert expected.inputs[0].broken is not None
    assert alone.inputs[0].broken.votes == expected.inputs[0].broken.votes


def test_votes_are_fresh_at_every_radius_and_seed(tmp_path):
    data = at_distances([0.1])
    found = set()
    for seed in (0, 1):
        run = certified(tmp_path / str(seed), data, seed=seed)
        for radius in (1.0, 1.0 + 1e-9):
            broken = attack_run(run, half_space(), data, [radius]).inputs[0].broken
            assert broken is not None
            found.add(broken.votes)
    assert len(found) == 4


@pytest.fixture(scope="session")
def digits_run(digits_model, build_once) -> Run:
    classifier = SmoothedClassifier(load_model(digits_model)[0], sigma=0.25, n=1000, seed=0)
    return read_run(
        build_once(
            "attacked-digits", lambda out: certify_dataset(classifier, load("digits"), out, Choice(skip=20))
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_empirical_accuracy_is_no_less_than_certified(digits_model, digits_run, attack):
    module, _ = load_model(digits_model)
    data, run = load("digits"), digits_run
    radii = [0.2, 0.4, 0.6, 1.5]
    plan = AttackPlan(attack, steps=10, copies=8, n=200)
    report = attack_run(run, module, data, radii, plan)
    empirical = report.empirical_accuracy()
    assert report.contradictions() == ()
    assert all(
        left >= proved for left, proved in zip(empirical, certified_accuracy(run.records, radii), strict=True)
    )
    assert list(empirical) == sorted(empirical, reverse=True)
    assert empirical[-1] < 0.2
    some = attack_run(replace(run, records=run.records[::4]), module, data, radii, plan, batch=3)
    assert [one.broken_at for one in some.inputs] == [one.broken_at for one in report.inputs[::4]]


def test_the_test_against_the_label():
    for votes, label, rival, p_value in (
        ((10, 3, 5), 0, 2, 1.0),
        ((5, 5), 1, 0, 1.0),
        ((0, 0, 12), 0, 2, 2.0**-12),
        ((30, 7, 51, 12), 0, 2, binomtest(51, 81, alternative="greater").pvalue),
        ((3, 900, 97), 2, 1, binomtest(900, 997, alternative="greater").pvalue),
    ):
        assert strongest_rival(votes, label) == (rival, pytest.approx(p_value, rel=1e-9))


def test_too_few_votes_to_show_anything_are_pointed_out(tmp_path):
    data = at_distances([0.3])
    run = certified(tmp_path, data)
    with pytest.warns(TooFewVotesWarning, match=r"\b12\b"):
        report = attack_run(run, half_space(), data, [1.0, 9.0], AttackPlan(n=11))
    assert report.broken() == (0, 0)
    assert attack_run(run, half_space(), data, [1.0, 9.0], AttackPlan(n=12)).broken() == (0, 1)


def test_what_does_not_fit_is_refused(tmp_path):
    for field, value in {
        "attack": "fgsm",
        "steps": 0,
        "copies": 0,
        "restarts": 0,
        "n": 0,
        "alpha": 1.0,
    }.items():
        with pytest.raises(InvalidValueError, match=rf"\b{field}\b.*\b{value}\b"):
            AttackPlan(**{field: value})
    data = at_distances([1.0])
    run = certified(tmp_path / "gaussian", data)
    for radii, named in (
        ([], r"radii.*\[\]"),
        ([0.5, 0.5], r"radii.*\[0\.5, 0\.5\]"),
        ([0.0], r"radius.*0\.0"),
    ):
        with pytest.raises(InvalidValueError, match=named):
            attack_run(run, half_space(), data, radii)
    uniform = certified(tmp_path / "uniform", data, noise="uniform")
    soft = certified(tmp_path / "soft", data, bound="hoeffding")
    imported = replace(run, manifest=replace(run.manifest, kind="import"))
    for other, named in (
        (uniform, "uniform.*l1.*l2.*--noise gaussian"),
        (soft, "hoeffding.*--bound"),
        (imported, "'import'"),
        (replace(run, records=()), re.escape(str(run.path))),
    ):
        with pytest.raises(RunError, match=named):
            attack_run(other, half_space(), data, [0.5])
    with pytest.raises(ModelError, match=r"Linear.*--model"):
        attack_run(run, half_space(bias=1e-6), data, [0.5])
    with pytest.raises(DataError, match=r"made-up.*--data-dir"):
        attack_run(run, half_space(), at_distances([1.1]), [0.5])


def linear_onnx(path: Path) -> Path:
    """The half-space as an ONNX file."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    tensor, number = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.stack([-NORMAL, NORMAL], 1).astype(np.float32), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["scores"])],
        "half-space",
        [tensor("x", number, ["rows", 4])],
        [tensor("scores", number, ["rows", 2])],
        [weights],
    )
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


class Sides:
    """An estimator that calls the far side of the boundary by names in another order than the data's."""

    classes_ = np.array(["right", "left"])
    n_features_in_ = 4

    def predict(self, batch: np.ndarray) -> np.ndarray:
        return self.classes_[(batch @ NORMAL <= 0).astype(int)]


class OfWholeNumbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = half_space()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.dtype == torch.int16
        return self.inner(x.to(self.inner.weight.dtype))


def by_hand(batch: np.ndarray) -> np.ndarray:
    return np.stack([-batch @ NORMAL, batch @ NORMAL], 1)


@pytest.mark.parametrize("make", ["function", "estimator", "onnx", "bytes"])
def test_models_without_gradients_are_attacked_by_votes(tmp_path, make):
    distances = [0.4, 0.9, 1.4]
    data = at_distances(distances)
    scale, base = 1, None
    if make == "function":
        base = adapt(by_hand, "hard")
    elif make == "estimator":
        base = adapt(Sides(), "hard")
    elif make == "onnx":
        base = adapt(linear_onnx(tmp_path / "m.onnx"), "hard")
    else:  # rounding has no slope: gradients say nothing
        scale, base = 100, adapt(OfWholeNumbers(), "hard", input_dtype="int16")
        data = replace(data, stored=np.rint(np.asarray(data.stored) * scale))
    run = certify_dataset(
        SmoothedClassifier(base, sigma=SIGMA * scale, n=2000, seed=0), data, tmp_path / "run"
    )
    radii = [scale * (distance + sign * 0.12) for distance in distances for sign in (-1, 1)]
    report = attack_run(run, base, data, radii, AttackPlan(n=20_000), execution=Execution(workers=2))
    assert (report.plan.attack, report.plan.copies) == ("nes", 256)
    expected = [scale * (distance + 0.12) for distance in distances]
    assert [one.broken_at for one in report.inputs] == pytest.approx(expected)
    assert report.contradictions() == ()
    if make == "function":  # to an attack by votes they are all functions
        assert attack_run(run, base, data, radii, AttackPlan("gradient-free", n=20_000)).broken()[-1] >= 2
    for attack in ("pgd", "ddn"):
        with pytest.raises(ModelError, match=rf"\b{attack}\b.*\bnes\b"):
            attack_run(run, base, data, radii, AttackPlan(attack))


def test_gradients_are_followed_where_there_are_some(tmp_path):
    data = at_distances([0.4])
    report = attack_run(certified(tmp_path, data), half_space(), data, [0.5])
    assert (report.plan.attack, report.plan.copies) == ("pgd", 16)


def test_a_module_whose_gradients_end_somewhere_is_told_of_the_attack_by_votes(tmp_path):
    class Labelled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = half_space()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.one_hot(self.inner(x).argmax(1), 2).to(x.dtype)

    data = at_distances([0.4])
    run = certified(tmp_path, data, Labelled())
    with pytest.raises(ModelError, match=r"Labelled.*\bnes\b"):
        attack_run(run, Labelled(), data, [0.6])
    assert attack_run(run, Labelled(), data, [0.6], AttackPlan("nes")).broken() == (1,)


def test_attacks_vote_in_threads_whatever_the_run_was_made_by(tmp_path, monkeypatch):
    """Processes would be started for every radius, which takes longer than the votes."""

    def started(*_: object) -> None:
        raise AssertionError("processes were started")

    monkeypatch.setattr("smoothcert.engine.backends.processes.ProcessVoters._start", started)
    data = at_distances([0.4])
    run = certified(tmp_path, data)
    report = attack_run(run, half_space(), data, [0.6], execution=Execution(workers=1, backend="processes"))
    assert report.broken() == (1,)
