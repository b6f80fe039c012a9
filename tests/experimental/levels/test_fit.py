"""A chooser's fit: pilot votes, what its network learns from them, what it is worth, and its directory."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import ndtri

from smoothcert import SmoothedClassifier
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.architectures.weights import load_model
from smoothcert.bounds.base import Bound, ClassBounds
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError, ModelError, RunError
from smoothcert.experimental.levels import fit
from smoothcert.experimental.levels.choosers import LevelFitPlan, read_chooser_fields, read_chooser_statement
from smoothcert.experimental.levels.fit import (
    LEAST_SHARE,
    LevelReport,
    _take_over,
    chooser_spec,
    chosen_inputs,
    combined_radii,
    counted_votes,
    expected_radius,
    fit_levels_into,
    fitted_chooser,
    label_radii,
    radii_by_level,
    reported,
)
from smoothcert.experimental.levels.procedures import combined_radius, median_level, reaches
from smoothcert.models.adapt import adapt
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.perturb.base import NOISES
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.run import read_run
from smoothcert.smoothing.fits.objective import FitProgress
from smoothcert.tally import Phase, Stream, Tally
from tests.experimental.levels.toys import Half, pictures

PLAN = LevelFitPlan(
    sigmas=(0.5, 1.0), chooser_sigma=0.75, inputs=20, validation=6, votes=32, epochs=2, copies=2
)


def fitted(out: Path, plan: LevelFitPlan = PLAN, progress: FitProgress | None = None):
    return fit_levels_into(out, [adapt(Half(), "hard")], pictures(30), plan, progress=progress)


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in ("model.safetensors", "model.json", "chooser.json")}


@pytest.fixture(scope="session")
def undisturbed(build_once) -> Path:
    """A finished chooser; tests that change it take a copy."""
    return build_once("level-fit-chooser", fitted)


@pytest.fixture
def chooser(undisturbed, tmp_path) -> Path:
    """A copy of a finished chooser."""
    return shutil.copytree(undisturbed, tmp_path / "chooser")


def test_a_chooser_is_a_model_that_says_what_it_chooses_among(chooser):
    _, spec = load_model(chooser)
    assert spec.classes == ("0.5", "1")
    assert read_chooser_statement(chooser) == ((0.5, 1.0), 0.75)
    fields = read_chooser_fields(chooser)
    assert fields["models"][0]["sha256"] == adapt(Half(), "hard").fingerprint((1, 4, 4))
    assert fitted(chooser).inputs == 6


def test_the_same_again_does_nothing_and_another_plan_is_refused(chooser):
    before = (chooser / "model.safetensors").stat().st_mtime_ns
    rows: list[int] = []
    fitted(chooser, progress=FitProgress(rows=rows.append))
    assert rows == []
    assert (chooser / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(RunError, match=r"plan\.votes: .*\b32\b.*\b33\b"):
        fitted(chooser, replace(PLAN, votes=33))


def test_damaged_weights_are_made_again(chooser):
    report, whole = fitted(chooser), contents(chooser)
    (chooser / "model.safetensors").write_bytes(whole["model.safetensors"][:-1])
    assert fitted(chooser) == report
    assert contents(chooser) == whole


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_kill_leaves_nothing_that_looks_finished(written, undisturbed, chooser, tmp_path, monkeypatch):
    """Killed before the statement, before the weights, and before the description that makes them a model."""
    from smoothcert import files
    from smoothcert.architectures import weights

    writes = []

    def write(path: Path, content: bytes) -> None:
        if path.name != RunFiles.statement.name:
            if len(writes) == written:
                raise KeyboardInterrupt
            writes.append(path.name)
        path.write_bytes(content)

    for module in (weights, files):
        monkeypatch.setattr(module, "write_atomically", write)
    killed = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        fitted(killed)
    monkeypatch.undo()
    assert writes == ["chooser.json", "model.safetensors"][:written]
    with pytest.raises(ModelError):
        load_model(killed)
    assert fitted(killed) == fitted(chooser)
    assert contents(killed) == contents(undisturbed)


def test_progress_counts_every_row(tmp_path):
    begun: list[tuple[int, int, int]] = []
    rows: list[int] = []
    epochs: list[int] = []
    fitted(
        tmp_path / "chooser",
        progress=FitProgress(lambda *all_: begun.append(all_), rows.append, lambda _: epochs.append(1)),
    )
    assert begun == [(sum(rows), 2, 0)]
    assert len(epochs) == 2


def test_what_is_refused(tmp_path):
    with pytest.raises(InvalidValueError, match=r"validation.*\b20\b.*--validation 5\b"):
        fitted(tmp_path / "chooser", replace(PLAN, validation=20))
    two = [adapt(Half(), "hard")] * 2
    with pytest.raises(InvalidValueError, match=r"\b3\b.*\b2\b"):
        fit_levels_into(tmp_path, two, pictures(), LevelFitPlan(sigmas=(0.5, 1.0, 2.0)))
    with pytest.raises(InvalidValueError, match=r"1, 0\.5"):
        LevelFitPlan(sigmas=(1.0, 0.5))
    with pytest.raises(InvalidValueError, match="constant=0"):
        LevelFitPlan(sigmas=(1.0,))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.safetensors").write_bytes(b"somebody's")
    with pytest.raises(RunError, match=r"/other\b.*model\.safetensors.*--out"):
        fitted(tmp_path / "other")
    assert not (tmp_path / "chooser").exists()


def test_a_chooser_is_no_run_to_be_tabled(undisturbed):
    assert fit.KIND == "fit-levels"
    with pytest.raises(RunError, match=rf"--chooser {re.escape(str(undisturbed))}"):
        read_run(undisturbed)


NETWORK_PLAN = LevelFitPlan(
    sigmas=(0.25, 1.0), inputs=160, validation=60, epochs=12, copies=4, batch=20, votes=128
)


def worth(radii: np.ndarray, plan: LevelFitPlan = NETWORK_PLAN):
    """What a chooser that was fitted on radii of the first 100 pictures is worth on others."""
    data, fitted, kept = pictures(160), np.arange(100), np.arange(100, 160)
    chooser = fitted_chooser(chooser_spec(data, plan), data, fitted, radii[fitted], plan)
    noise = NOISES[plan.noise](plan.noise_sigma)
    counts = counted_votes(TorchClassifier(chooser), data, kept, noise, plan.votes, 1, Execution())
    return reported(counts, radii[kept], noise)


def test_it_goes_where_the_radius_is():
    bright = pictures(160).labels == 1
    report = worth(np.where(np.stack([bright, ~bright], 1), 0.8, 0.1))
    assert report.fixed == pytest.approx((0.45, 0.45))
    assert report.chooser > 0.7
    assert report.shares == pytest.approx((0.5, 0.5), abs=0.1)


def test_it_stays_where_nothing_can_be_learnt():
    radii = np.random.default_rng(0).random((160, 2)) + np.array([0.0, 0.3])
    report = worth(radii)
    assert report.best == 1
    assert report.shares[1] > 0.95
    assert report.chooser == pytest.approx(report.fixed[1], abs=0.02)


def test_the_same_seed_gives_the_same_weights_and_another_doesnt():
    data, places = pictures(40), np.arange(40)
    radii = np.random.default_rng(1).random((40, 2))

    def weights(seed: int) -> torch.Tensor:
        plan = LevelFitPlan(sigmas=(0.25, 1.0), epochs=2, copies=2, seed=seed)
        made = fitted_chooser(chooser_spec(data, plan), data, places, radii, plan)
        return torch.cat([each.flatten() for each in made.state_dict().values()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


def test_inputs_are_drawn_from_all_over_and_kept_apart():
    fitted, kept = chosen_inputs(range(0, 1000, 2), NETWORK_PLAN)
    assert len(kept) == 60
    assert len(fitted) == 100
    assert not {*fitted} & {*kept}
    assert all(place % 2 == 0 for place in (*fitted, *kept))
    assert fitted.max() > 800
    few, _ = chosen_inputs(range(100), NETWORK_PLAN)
    assert len(few) == 40


def test_a_loss_that_runs_away_is_told():
    data, plan = pictures(40), LevelFitPlan(sigmas=(0.25, 1.0), epochs=2, copies=1, lr=1e30)
    with pytest.raises(ModelError, match=r"\bnan\b.*1e\+30"):
        fitted_chooser(chooser_spec(data, plan), data, np.arange(40), np.ones((40, 2)), plan)


def test_it_starts_from_all_but_the_last_layer_of_another_network():
    data = pictures(160)
    spec = ModelSpec("small-cnn", data.input_shape, ("dark", "bright"))
    trained = initialise(spec, 7)
    none = replace(NETWORK_PLAN, epochs=1, lr=1e-12)  # a step that moves nothing
    chooser = fitted_chooser(
        chooser_spec(data, none, spec), data, np.arange(100), np.ones((100, 2)), none, start=trained
    )
    same = {
        name: torch.allclose(value, chooser.state_dict()[name], atol=1e-6)
        for name, value in trained.state_dict().items()
        if name.endswith("weight")
    }
    *below, last = same.values()
    assert all(below)
    assert not last


def test_it_starts_from_a_network_for_the_same_inputs_only():
    data = pictures(2)
    spec = chooser_spec(data, NETWORK_PLAN)
    assert (spec.architecture, spec.classes) == ("small-cnn", ("0.25", "1"))
    other = ModelSpec("small-cnn", (3, 32, 32), ("dark", "bright"))
    with pytest.raises(ModelError, match=r"small-cnn.*\(1, 4, 4\).*small-cnn.*\(3, 32, 32\)"):
        chooser_spec(data, NETWORK_PLAN, other)
    fitting = replace(other, input_shape=data.input_shape)
    with pytest.raises(ModelError, match=r"lenet.*small-cnn"):
        chooser_spec(data, replace(NETWORK_PLAN, network="lenet"), fitting)
    with pytest.raises(ModelError, match="ByConvolution"):
        _take_over(ByConvolution(2), ByConvolution(10))


class ByConvolution(torch.nn.Module):
    """Its classes come from a convolution, after a linear layer that doesn't give them."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.scale, self.classes = torch.nn.Linear(1, 1), torch.nn.Conv2d(1, classes, 1)


def _share(tally: Tally, chosen: int, _alpha: float) -> ClassBounds:
    share = min(tally.counts[chosen] / tally.n, 1 - LEAST_SHARE)
    return ClassBounds(share, 1 - share)


SHARES = Bound("shares", "hard", False, "", _share)


@pytest.mark.parametrize("kind", ["gaussian", "uniform"])
@pytest.mark.parametrize("levels", [2, 3, 5])
def test_it_is_the_radius_that_certificates_combine_to(kind, levels):
    random, noise = np.random.default_rng(levels), NOISES[kind](0.7)
    for _ in range(60):
        counts = random.multinomial(1000, random.dirichlet(np.full(levels, 0.5)))
        radii = np.where(random.random(levels) < 0.3, 0.0, random.random(levels))
        votes = Tally(Stream(0, 0, Phase.PILOT), 0, 1000, tuple(counts.tolist()))
        reached = reaches(votes, median_level(votes), noise, SHARES, 0.5, 0.0)
        soft = combined_radii(torch.from_numpy(counts / 1000)[None], torch.from_numpy(radii)[None], noise)
        assert float(soft) == pytest.approx(combined_radius(reached, radii.tolist()), abs=1e-9)


def test_where_votes_limit_the_radius_they_are_drawn_apart_and_sure_ones_have_a_gradient():
    noise = NOISES["gaussian"](1.0)
    shares = torch.tensor([[0.2, 0.8]], requires_grad=True)
    combined_radii(shares, torch.tensor([[0.0, 5.0]]), noise).sum().backward()
    assert shares.grad[0, 0] < 0  # the rest of a share counts as the other level's
    shares = torch.tensor([[0.0, 1.0]], requires_grad=True)
    found = combined_radii(shares, torch.tensor([[0.0, 9.0]]), noise)
    found.sum().backward()
    assert torch.isfinite(found).all()
    assert torch.isfinite(shares.grad).all()
    found = expected_radius(torch.tensor([[0.25, 0.75]]), torch.tensor([[1.0, 2.0]]))
    assert float(found) == 1.75


NOISE = NOISES["gaussian"](1.0)


def test_sure_votes_give_the_levels_own_radii_and_unsure_ones_less():
    radii = np.array([[0.1, 0.9], [0.4, 2.0]])
    sure = reported(np.array([[0, 1000], [1000, 0]]), radii, NOISE)
    assert sure.fixed == pytest.approx((0.25, 1.45))
    assert sure.ceiling == pytest.approx(1.45)
    assert sure.homes == sure.chooser == pytest.approx((0.9 + 0.4) / 2)
    assert sure.shares == (0.5, 0.5)
    assert sure.best == 1
    assert sure.gain == pytest.approx(0.65 - 1.45)
    unsure = reported(np.array([[300, 700], [300, 700]]), radii, NOISE)
    reach = ndtri(700.5 / 1001)
    assert unsure.chooser == pytest.approx((min(0.9, max(0.1, reach)) + min(2.0, max(0.4, reach))) / 2)
    assert unsure.homes == pytest.approx(1.45)


def test_it_comes_back_from_json():
    report = reported(np.array([[5, 95], [90, 10]]), np.array([[0.1, 0.9], [0.4, 0.2]]), NOISE)
    assert LevelReport.from_json(json.loads(json.dumps(report.as_json()))) == report


def test_the_labels_radius_of_shares_and_nothing_where_it_loses():
    counts = np.array([[96, 4, 0], [4, 96, 0], [100, 0, 0], [50, 50, 0]])
    found = label_radii(counts, np.zeros(4, dtype=np.int64), NOISES["gaussian"](0.5))
    assert found[0] == pytest.approx(0.25 * (ndtri(96.5 / 101) - ndtri(4.5 / 101)))
    assert found[1] == found[3] == 0
    assert found[0] < found[2] < np.inf
    found = label_radii(np.array([[80, 20]]), np.zeros(1, dtype=np.int64), NOISES["uniform"](0.5))
    assert found[0] == pytest.approx(0.5 * 3**0.5 * (80.5 - 20.5) / 101)


def test_votes_are_a_pilots_and_nobody_elses():
    data, base = pictures(6), adapt(Half(), "hard")
    smoothed = SmoothedClassifier(base, sigma=1.0, seed=5)
    expected = dict(smoothed.cast_each(((i, data.input(i)) for i in range(6)), 64))
    assert {tally.stream.phase for tally in expected.values()} == {Phase.PILOT}
    noise = NOISES["gaussian"](1.0)
    counts = counted_votes(base, data, np.array([4, 1]), noise, 64, 5, Execution())
    assert [tuple(row) for row in counts] == [expected[4].counts, expected[1].counts]


def test_radii_at_every_level_of_one_model_and_of_two():
    data, plan = pictures(20), LevelFitPlan(sigmas=(1.0, 2.0), votes=4000)
    places = np.arange(20)
    right, wrong = adapt(Half(), "hard"), adapt(Half(-1.0), "hard")
    found = radii_by_level([right], data, places, plan, Execution())
    truth = np.abs(data.inputs(places)[:, 0, 0, 0])
    assert np.abs(found[:, 1] - truth).max() < 0.3  # a share of 4000 votes, times σ = 2
    assert np.abs(found[:, 0] - truth)[truth < 2.2].max() < 0.3
    assert (radii_by_level([wrong, right], data, places, plan, Execution())[:, 0] == 0).all()


def test_the_label_is_the_models_own_number_for_it():
    data, plan = pictures(6), LevelFitPlan(sigmas=(0.5, 1.0), votes=64)
    other = TorchClassifier(Half(-1.0), class_names=("bright", "dark"))
    assert (radii_by_level([other], data, np.arange(6), plan, Execution()) > 0).all()
