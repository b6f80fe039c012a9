"""A run through a memory: contradictions are cut, the rest is as it was, and the result says what it is."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.analysis.metrics import summarise
from smoothcert.analysis.seeds import method_of
from smoothcert.cli import main
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.evaluation.remembering import remember
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.perturb.diagonal import DiagonalNoise
from smoothcert.perturb.gaussian import DiagonalGaussian
from smoothcert.perturb.uniform import DiagonalUniform
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, create_run, read_run
from smoothcert.runs.side_files import read_searches
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch
from smoothcert.smoothing.stores.base import StoreError

POINTS = np.array([[0.0, 0.0], [1.0, 0.0], [0.1, 0.0], [5.0, 0.0]], np.float32)


def dataset() -> Dataset:
    return Dataset("points", POINTS, np.array([0, 1, 1, 0]), ("a", "b"))


def made(folder: Path, **plan) -> Run:
    """Class 0 claims radius 0.75 around 0; class 1 around (1, 0) claims 0.5 and must lose half of it."""
    stated = {"noise": "gaussian", "norm": "l2", "sigma": 0.5, "bound": "two-class", "n": 100, "alpha": 0.001}
    data = {"name": "points", "sha256": dataset().fingerprint(), "inputs": 4}
    manifest = Manifest.of("certify", stated | plan, {"name": "m", "sha256": "f" * 64}, data)
    records = [
        Record(0, 0, 0, 0.75, 0.4, 1.0),
        Record(1, 1, 1, 0.5, 0.6, 1.0),
        Record(2, 1, 1, 0.2, 0.5, 1.0),
        Record(3, 0, -1, 0.0, 0.5, 1.0),
    ]
    create_run(folder / "run", manifest, records)
    return read_run(folder / "run")


def test_contradictions_are_cut_and_the_rest_is_kept(tmp_path):
    run, sources = remember(made(tmp_path), dataset(), tmp_path / "memory", tmp_path / "out")
    assert [record.predicted for record in run.records] == [0, 1, 0, -1]
    assert [record.radius for record in run.records] == pytest.approx([0.75, 0.25, 0.65, 0.0], rel=1e-6)
    before = made_radii(tmp_path)
    assert all(record.radius <= max(before[record.index], 0.75) for record in run.records)
    assert sources == {"certified": 1, "shrunk": 1, "memory": 1, "abstained": 1}


def test_an_input_inside_a_region_of_its_class_keeps_a_larger_certificate(tmp_path):
    run = made(tmp_path)
    # (0.1, 0) lies in the region of 0, which leaves 0.65 of its 0.75.
    records = [replace(run.records[0], radius=0.75), replace(run.records[2], predicted=0, radius=0.7)]
    create_run(tmp_path / "same", run.manifest, records)
    same, sources = remember(read_run(tmp_path / "same"), dataset(), tmp_path / "memory", tmp_path / "kept")
    assert [record.radius for record in same.records] == pytest.approx([0.75, 0.7], rel=1e-6)
    assert sources == {"certified": 2}
    # Asked again the memory knows as much already, and grows no more.
    again, sources = remember(read_run(tmp_path / "same"), dataset(), tmp_path / "memory", tmp_path / "again")
    assert [record.radius for record in again.records] == pytest.approx([0.75, 0.7], rel=1e-6)
    assert sources == {"memory": 2}


def made_radii(folder: Path) -> dict[int, float]:
    return {record.index: record.radius for record in read_run(folder / "run").records}


def test_the_result_is_marked_wherever_it_is_shown(tmp_path):
    run, _ = remember(made(tmp_path), dataset(), tmp_path / "memory", tmp_path / "out")
    assert run.manifest.plan.stateful is True
    assert summarise(run, [0.0]).run == "out (stateful)"
    named = replace(run, manifest=run.manifest.stating(origin={"method": "gaussian"}))
    assert re.fullmatch(r"gaussian\b.*\(stateful\)", method_of(named))


def test_asking_again_gives_the_same_classes(tmp_path):
    first, _ = remember(made(tmp_path), dataset(), tmp_path / "memory", tmp_path / "out")
    again, sources = remember(read_run(tmp_path / "run"), dataset(), tmp_path / "memory", tmp_path / "again")
    assert [r.predicted for r in again.records] == [r.predicted for r in first.records]
    assert all(a.radius <= f.radius for a, f in zip(again.records, first.records))
    assert sources == {"memory": 3, "abstained": 1}


def test_what_cannot_be_remembered(tmp_path):
    run = made(tmp_path)
    other = Dataset("others", POINTS + 1, np.array([0, 1, 1, 0]), ("a", "b"))
    with pytest.raises(DataError, match=r"others.*--dataset"):
        remember(run, other, tmp_path / "memory", tmp_path / "out")
    done, _ = remember(run, dataset(), tmp_path / "memory", tmp_path / "out")
    with pytest.raises(RunError, match=re.escape(str(done.path))):
        remember(done, dataset(), tmp_path / "memory", tmp_path / "twice")
    imported = replace(run, manifest=replace(run.manifest, kind="import"))
    with pytest.raises(RunError, match="'import'"):
        remember(imported, dataset(), tmp_path / "memory", tmp_path / "third")


def test_the_command(digits_model, tmp_path, capsys):
    run, memory, out = (str(tmp_path / name) for name in ("run", "memory", "out"))
    main(["certify", str(digits_model), "--n", "200", "--max", "5", "--quiet", "--out", run])
    main(["run", "remember", run, "--memory", memory, "--out", out])
    shown = capsys.readouterr()
    assert "stateful" in shown.err.lower()
    assert "(stateful)" in shown.out
    before, after = (read_run(tmp_path / name).records for name in ("run", "out"))
    assert all(a.radius <= b.radius for a, b in zip(after, before))


def certified_with(folder: Path, noise: DiagonalNoise) -> Run:
    """f decides by the first coordinate, so p is Φ((x₁ − ½)/σ₁), and the region long in the second one."""

    def model(batch: np.ndarray) -> np.ndarray:
        return (batch[:, 0] > 0.5).astype(np.int64)

    plan = CertifyPlan(noise, n0=50, n=500, seed=0)
    classifier = SmoothedClassifier(model, plan, outputs="labels", classes=2, input_shape=(2,))
    return certify_dataset(classifier, dataset(), folder / "run")


@pytest.mark.parametrize("kind", [DiagonalGaussian, DiagonalUniform])
def test_stretched_regions_are_rebuilt_from_their_votes(tmp_path, kind):
    noise = kind(np.array([0.5, 2.0]))
    before = certified_with(tmp_path, noise)
    run, sources = remember(before, dataset(), tmp_path / "memory", tmp_path / "out")
    assert sources["certified"] >= 1
    assert run.manifest.plan.noise_in(run.path) == noise
    about = MemoryStatement(run.manifest.model.sha256, (2,), noise.name, run.manifest.plan.norm)
    with RegionMemory.open(tmp_path / "memory", about) as memory:
        for _, answer in memory.answers():
            axes = answer.region.axes
            assert axes[1] / axes[0] == pytest.approx(4.0)
            given = next(r for r in before.records if np.array_equal(POINTS[r.index], answer.region.center))
            assert axes[0] <= given.radius
            if axes[0] == given.radius:
                assert answer.region.volume_radius == given.volume_radius
    for old, new in zip(before.records, run.records):
        assert new.volume_radius is not None
        assert new.radius <= new.volume_radius <= new.radius * 2.001
        assert new.abstained == (new.radius == 0) or old.abstained
    first = run.records[0]
    assert first.radius == pytest.approx(before.records[0].radius, rel=1e-9)
    assert first.volume_radius == pytest.approx(before.records[0].volume_radius, rel=1e-9)


def test_stretched_regions_need_their_votes_and_their_vector(tmp_path):
    run = certified_with(tmp_path, DiagonalGaussian(np.array([0.5, 2.0])))
    altered = replace(run, records=(replace(run.records[0], radius=run.records[0].radius * 2),))
    with pytest.raises(RunError, match=rf"\b0\b.*{altered.records[0].radius:g}"):
        remember(altered, dataset(), tmp_path / "memory", tmp_path / "a")
    voteless = replace(run, records=(replace(run.records[0], estimation=None),))
    with pytest.raises(RunError, match=rf"{re.escape(str(run.path))}\b.*\b0\b"):
        remember(voteless, dataset(), tmp_path / "memory", tmp_path / "b")
    RunFiles(run.path).sigmas.unlink()
    with pytest.raises(RunError, match=r"sigmas\.npy"):
        remember(run, dataset(), tmp_path / "memory", tmp_path / "c")


def test_a_search_for_ellipsoids_leaves_ellipsoids_in_the_memory(tmp_path):
    weights = torch.tensor([[1.0, 0.05], [0.0, 0.0]])

    class Linear(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x - torch.tensor([0.5, 0.0])) @ weights.T

    search = EllipsoidSearch(steps=30, samples=4, lr=0.05)
    classifier = SmoothedClassifier(Linear(), sigma=0.25, n=500, seed=0, input_shape=(2,), search=search)
    before = certify_dataset(classifier, dataset(), tmp_path / "run")
    stretched = {index for index, one in read_searches(before.path).items() if one.noise is not None}
    assert stretched
    run, _ = remember(before, dataset(), tmp_path / "memory", tmp_path / "out")
    about = MemoryStatement(run.manifest.model.sha256, (2,), "gaussian", "l2")
    with RegionMemory.open(tmp_path / "memory", about) as memory:
        kinds = {answer.region.kind for _, answer in memory.answers()}
    assert "ellipsoid" in kinds
    for old, new in zip(before.records, run.records):
        if old.index in stretched and not new.abstained:
            assert new.volume_radius is not None
            assert new.volume_radius >= new.radius


def test_runs_that_number_the_classes_otherwise_have_memories_of_their_own(tmp_path):
    """One model, two data sets: "no" is class 0 of the one and class 1 of the other."""

    class Named(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)

    answers = {}
    for order in (("no", "yes"), ("yes", "no")):
        base = TorchClassifier(Named(), class_names=("no", "yes"))
        data = Dataset("points", POINTS, np.array([0, 1, 1, 0]), order)
        folder = tmp_path / order[0]
        run = certify_dataset(SmoothedClassifier(base, sigma=0.25, n=500, seed=0), data, folder / "run")
        answers[order] = [None if k < 0 else order[k] for k in run.records.predicted]
        if order == ("no", "yes"):
            remember(run, data, tmp_path / "memory", folder / "out")
        else:
            with pytest.raises(StoreError, match=r"preprocessing.*\b1, 0\b"):
                remember(run, data, tmp_path / "memory", folder / "out")
            kept, _ = remember(run, data, tmp_path / "other", folder / "out2")
            assert len(kept.records) == len(POINTS)
    first, second = answers.values()
    assert first == second, "they agree by name, and by number they don't"
    assert len(set(first)) > 1
