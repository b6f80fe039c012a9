"""Fits: where they end for models whose best σ is known, that they can be killed, and what they refuse."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from torch import nn

from smoothcert import Execution
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, InvalidValueError, ModelError, RunError
from smoothcert.models.function import FunctionClassifier
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.smoothing.fits.fit import (
    fit_into,
    front_points,
    pareto_front,
    read_fit,
    read_fits,
    starting_constants,
    step_sigmas,
)
from smoothcert.smoothing.fits.objective import FitProgress, Streams
from smoothcert.smoothing.fits.plan import FitPlan
from smoothcert.smoothing.fits.routes import vote_gaps

from .toys import WEIGHTS, Linear, points

QUICK: dict[str, Any] = {"init": 0.3, "validation": 8, "validation_n0": 8, "validation_n": 64}


def plan(**changes: Any) -> FitPlan:
    return FitPlan(**QUICK | changes)


def linear_function(batch: np.ndarray) -> np.ndarray:
    return np.asarray((batch.reshape(len(batch), -1) @ np.array(WEIGHTS) < 0).astype(np.int64))


def labels_model() -> FunctionClassifier:
    return FunctionClassifier(linear_function, "labels", 2)


def test_a_linear_classifier_gets_noise_in_inverse_proportion_to_its_weights(tmp_path):
    """p_A = Φ(m/‖σ⊙w‖): Σ ln σ_i + D ln(m/‖σ⊙w‖) is largest where σ_i|w_i| is the same for all i."""
    given = plan(lr=0.025, decay=0.4, sub_epochs=3, n0=64, batch=16)
    fit = fit_into(tmp_path / "fit", TorchClassifier(Linear()), points(390), given)
    products = fit.noise.sigmas * np.array(WEIGHTS)
    assert products.max() / products.min() < 1.35  # 16 at the start
    first, last = fit.history[0], fit.history[-1]
    assert last.area > first.area + 2.0
    # With all products equal to s the area is Σ ln(s/w_i) + D ln(m/(2s)), whatever s is.
    best = float(-np.log(WEIGHTS).sum() + 4 * np.log(1.4375 / 2))
    exact = float(np.log(fit.noise.sigmas).sum() + 4 * np.log(1.4375 / np.linalg.norm(products)))
    assert best - 0.05 < exact <= best


def test_uniform_noise_finds_them_too(tmp_path):
    given = plan(noise="uniform", lr=0.025, decay=0.4, sub_epochs=3, n0=64, batch=16)
    fit = fit_into(tmp_path / "fit", TorchClassifier(Linear()), points(390), given)
    assert fit.noise.name == "diagonal-uniform"
    assert (np.diff(fit.noise.sigmas) > 0).all()
    assert fit.noise.sigmas[3] > 4 * fit.noise.sigmas[0]


def test_votes_find_them_without_gradients(tmp_path):
    given = plan(route="votes", sub_epochs=6, votes=128, tried=64, decay=0.7)
    fit = fit_into(tmp_path / "fit", labels_model(), points(), given)
    products = fit.noise.sigmas * np.array(WEIGHTS)
    assert products.max() / products.min() < 2.0
    assert "lr" not in fit.manifest.plan.as_json()


@pytest.mark.parametrize("route", ["gradient", "votes"])
def test_groups_share_a_sigma(tmp_path, route):
    given = plan(groups="0,1,1,0", route=route, sub_epochs=2, lr=0.01, votes=16)
    fit = fit_into(tmp_path / "fit", TorchClassifier(Linear()), points(), given)
    a, b, c, d = fit.noise.sigmas
    assert a == d
    assert b == c
    assert a < b
    assert fit.manifest.plan.value("group_count") == 2
    assert fit.manifest.plan.value("groups").startswith("sha256:")


def test_low_rank(tmp_path):
    given = plan(rank=1, lr=0.01, sub_epochs=2)
    fit = fit_into(tmp_path / "fit", TorchClassifier(Linear()), points(shape=(1, 2, 2)), given)
    assert np.linalg.matrix_rank(np.log(fit.noise.sigmas[0] / 0.3), tol=1e-9) == 1


class KilledError(Exception):
    pass


@pytest.mark.parametrize("route", ["gradient", "votes"])
def test_the_same_bits_after_a_kill_and_with_other_workers(tmp_path, route):
    given = plan(route=route, sub_epochs=2, lr=0.01, votes=16, batch=50)
    model, data = TorchClassifier(Linear()), points()

    def fitted(name: str, workers: int, **options: Any) -> Any:
        return fit_into(tmp_path / name, model, data, given, execution=Execution(workers=workers), **options)

    def kill(one: object) -> None:
        raise KilledError

    whole = fitted("whole", 1)
    for _ in range(2):  # after sub-epochs 0 and 1
        with pytest.raises(KilledError):
            fitted("parts", 3, progress=FitProgress(epoch=kill))
        assert read_fit(tmp_path / "parts").noise is None
    parts = fitted("parts", 2)
    assert whole.noise == parts.noise
    assert whole.history == parts.history
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "parts/metrics.jsonl").read_bytes()
    # A finished fit has nothing to do; its sub-epochs are kept.
    assert fitted("whole", 1).noise == whole.noise
    assert np.array_equal(step_sigmas(tmp_path / "whole", 2), whole.noise.sigmas)
    assert (step_sigmas(tmp_path / "whole", 0) == 0.3).all()
    lines = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert [line["sub_epoch"] for line in lines] == [0, 1, 2]


def test_another_statement_is_refused(tmp_path):
    model, data, given = TorchClassifier(Linear()), points(), plan(sub_epochs=1)
    fit_into(tmp_path / "fit", model, data, given)
    for other, named in (
        ((model, data, plan(sub_epochs=1, lr=0.5)), r"plan\.lr: .*\b0\.0003081\b.*\b0\.5\b"),
        ((model, points(170), given), r"data\.sha256"),
        ((TorchClassifier(Linear(steepness=2.0)), data, given), r"model\.sha256"),
        ((model, data, given, range(0, 100)), r"data\.used"),
    ):
        with pytest.raises(RunError, match=named):
            fit_into(tmp_path / "fit", *other)


def test_validation_inputs_are_kept_apart():
    fitted, kept = Streams(0).split(range(0, 300, 3), 30)
    assert len(fitted) == 70
    assert len(kept) == 30
    assert sorted([*fitted, *kept]) == list(range(0, 300, 3))
    with pytest.raises(InvalidValueError, match=r"validation.*\b16\b.*--validation 4\b"):
        Streams(0).split(range(16), 16)


def test_scale_std_starts_at_a_share_of_the_spread(tmp_path):
    generator = np.random.default_rng(0)
    stored = (generator.normal(size=(200, 2)) * [1000.0, 0.01] + [5000.0, 0.0]).astype(np.float32)
    data = Dataset("units", stored, (stored[:, 0] < 5000).astype(np.int64), ("high", "low"))
    model = FunctionClassifier(lambda batch: (batch[:, 0] < 5000).astype(np.int64), "labels", 2, name="m")
    given = plan(init=0.1, scale="std", route="votes", sub_epochs=1, votes=16)
    fit = fit_into(tmp_path / "fit", model, data, given)
    fitted, _ = Streams(given.seed).split(range(200), given.validation)
    start = step_sigmas(tmp_path / "fit", 0)
    assert start == pytest.approx(0.1 * stored[fitted].astype(np.float64).std(0), rel=1e-6)
    # The model never looks at the second feature: its σ has grown by the whole factor.
    assert fit.noise.sigmas[1] == pytest.approx(4 * start[1])


def test_everything_wrong_is_said(tmp_path):
    models = {"gradient": TorchClassifier(Linear()), "votes": labels_model()}
    for route, model in models.items():
        with pytest.raises(DataError, match=f"--init.*{model.name}"):
            fit_into(tmp_path / route, model, points(label=1), plan(route=route))


def test_a_batch_without_a_right_input_is_passed_over(tmp_path):
    data = replace(points(), labels=np.where(np.arange(160) < 150, 1, 0))
    fit = fit_into(tmp_path / "fit", TorchClassifier(Linear()), data, plan(batch=4, sub_epochs=1, lr=0.01))
    assert 0 < fit.history[1].counted < 0.1
    assert np.isfinite(fit.history[1].objective)


def test_gradients_that_are_none_and_too_many_groups_for_votes(tmp_path):
    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # Its value is 5 everywhere, its slope ∞·0.
            score = 5.0 + torch.sqrt(0.0 * x.sum(1))
            return torch.stack([score, torch.zeros_like(score)], 1)

    with pytest.raises(ModelError, match=r"Root.*\b0\b.*\b1\b.*--fit-by votes"):
        fit_into(tmp_path / "fit", TorchClassifier(Root()), points(), plan())
    with pytest.raises(InvalidValueError, match=r"linear_function.*--fit-by votes"):
        fit_into(tmp_path / "fit", labels_model(), points(), plan())

    class Cut(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).detach()

    with pytest.raises(ModelError, match=r"Cut.*--fit-by votes"):
        fit_into(tmp_path / "other", TorchClassifier(Cut()), points(), plan())
    model = FunctionClassifier(lambda batch: np.zeros(len(batch), dtype=np.int64), "labels", 2, name="zero")
    with pytest.raises(InvalidValueError, match=r"\b1024\b.*--groups"):
        fit_into(tmp_path / "fit", model, points(32, (1, 32, 32)), plan(route="votes"))


def test_plans_that_make_no_sense():
    for changes, named in [
        ({"init": 0.0}, r"\binit\b.*\b0\.0"),
        ({"noise": "laplace"}, "noise.*'laplace'"),
        ({"route": "guess"}, "route.*'guess'"),
        ({"lr": -1.0}, r"\blr\b.*-1\.0"),
        ({"decay": 0.0}, r"\bdecay\b.*\b0\.0"),
        ({"factor": 1.0}, r"\bfactor\b.*\b1\.0"),
        ({"sub_epochs": 0}, r"\bsub_epochs\b.*\b0\b"),
        ({"rank": 1, "groups": "rows"}, "--rank 1.*--groups"),
        ({"rank": 1, "route": "votes"}, r"\brank\b.*--fit-by votes"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            plan(**changes)


def test_gaps_by_votes():
    counts = np.array([[10, 0, 0], [8, 2, 0], [5, 5, 0], [0, 10, 0]])
    labels = np.zeros(4, dtype=np.int64)
    expected = [ndtri(10.5 / 11), ndtri(8.5 / 11), ndtri(0.51), ndtri(0.51)]
    assert vote_gaps(counts, labels, "gaussian") == pytest.approx(expected)
    assert vote_gaps(counts, labels, "uniform") == pytest.approx([10 / 11, 6.5 / 11, 0.5 / 11, 0.02])


def test_several_fits_and_their_points(tmp_path):
    for init in (0.2, 0.1):
        fit_into(tmp_path / f"{init:g}", TorchClassifier(Linear()), points(), plan(init=init, sub_epochs=2))
    fits = read_fits(tmp_path)
    assert [fit.manifest.plan.init for fit in fits] == [0.1, 0.2]
    found = front_points(fits)
    assert len(found) == 6
    assert [point.area for point in found] == sorted(point.area for point in found)
    assert not any(point.kept for point in found if point.sub_epoch == 0)
    assert any(point.kept for point in found)
    assert [fit.path for fit in read_fits(tmp_path / "0.1")] == [tmp_path / "0.1"]
    with pytest.raises(RunError, match=r"/nothing\b"):
        read_fits(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"/empty\b.*fit noise"):
        read_fits(tmp_path / "empty")


def test_the_front_by_hand():
    points = [
        (0.0, 0.99),  # most accurate: kept, range [0, 0]
        (5.0, 0.97),  # outside on the right: kept, range [0, 5]
        (3.0, 0.95),  # between two better ones: goes
        (-2.0, 0.90),  # outside on the left: kept, range [-2, 5]
        (9.0, 0.80),  # outside: kept, range [-2, 9]
        (8.0, 0.70),  # inside: goes
        (5.0, 0.60),  # on a point that is kept: goes
    ]
    assert pareto_front(points) == [0, 1, 3, 4]
    order = [4, 6, 0, 5, 2, 1, 3]
    assert [order[k] for k in pareto_front([points[k] for k in order])] == [0, 1, 3, 4]
    assert pareto_front([]) == []
    assert pareto_front([(1.0, 0.5)]) == [0]
    # Equally accurate: the larger area first; the other one is outside its range still.
    assert pareto_front([(1.0, 0.5), (2.0, 0.5)]) == [1, 0]


def test_starting_constants():
    assert starting_constants("0.5") == [0.5]
    assert starting_constants("0.1,0.5") == [0.1, 0.5]
    assert starting_constants("0.1:1.0:0.1") == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert starting_constants("0.01:0.035:0.01") == [0.01, 0.02, 0.03]


def test_starting_constants_that_make_no_sense():
    for spec, named in [
        ("0", r"\b0\b"),
        ("-1", "-1"),
        ("nan", r"\bnan\b"),
        ("0.0:1:0.5", r"\b0\b"),
        ("1:0.5:0.1", r"FIRST:LAST:STEP.*'1:0\.5:0\.1'"),
        ("0.1:1:0", r"FIRST:LAST:STEP.*'0\.1:1:0'"),
        ("0.1:1", r"FIRST:LAST:STEP.*'0\.1:1'"),
        ("much", "FIRST:LAST:STEP.*'much'"),
        ("0.1,0.1", r"'0\.1,0\.1'"),
        ("0.001:1:0.001", r"'0\.001:1:0\.001'.*\b1000\b.*\b200\b"),
    ]:
        with pytest.raises(InvalidValueError, match=f"init.*{named}"):
            starting_constants(spec)


def test_the_default_rate_is_the_papers_in_pixels():
    """Tecot et al. normalise the MNISTs by 0.3081 before the noise: their .001 is of σ in those units."""
    default = FitPlan(init=0.1)
    assert default.lr == pytest.approx(0.001 * 0.3081)
    assert (default.decay, default.sub_epochs, default.batch, default.n0) == (0.5, 5, 128, 32)
    page = (Path(__file__).parents[3] / "docs" / "nonuniform.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.strip().startswith("| ")]
    stated = {
        row[1].strip(): (float(row[2]), float(row[3])) for row in rows if len(row) == 8 and "." in row[3]
    }
    in_pixels = {
        "MNIST, Fashion-MNIST": 0.3081,
        "ImageNet": (0.229 + 0.224 + 0.225) / 3,
        "CIFAR-10": 1,
        "KITTI": 1,
    }
    assert set(stated) == set(in_pixels)
    for name, (paper, ours) in stated.items():
        assert ours == pytest.approx(paper * in_pixels[name], rel=1e-3), name
