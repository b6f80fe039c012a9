"""What users give and ask for as a matter of course: it was refused without reason, or wrong more often than said."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor, nn

from smoothcert import SmoothedClassifier
from smoothcert.bounds.anytime import anytime_mean_p_value, anytime_top_two_p_value
from smoothcert.commands import main
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.evaluation import certify_dataset
from smoothcert.noise import Gaussian, Grid, on_grid
from smoothcert.runs import create_run, read_run
from smoothcert.runs.manifest import Manifest


def first(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > 0.5).astype(np.int64)


def smoothed(model: Any = first, **options: Any) -> SmoothedClassifier:
    given: dict[str, Any] = {"sigma": 0.5, "n": 200, "seed": 0}
    if not isinstance(model, nn.Module):
        given |= {"outputs": "labels", "classes": 2}
    return SmoothedClassifier(model, **(given | options))


# ------------------------------------------------------------------------------------------------ PREDICT, asked often


def wrong_at_any_look(p_value: Callable[[int, int], float], alpha: float, most: int) -> float:
    """Exactly, for two classes that are equally likely: the probability that the first is ever named."""
    reached = np.zeros(most + 2)
    reached[0] = 1.0
    ended = 0.0
    for n in range(1, most + 1):
        reached[1:] = 0.5 * reached[1:] + 0.5 * reached[:-1]
        reached[0] *= 0.5
        for k in range(n + 1):
            if 2 * k > n and p_value(k, n - k) <= alpha:
                ended += reached[k]
                reached[k] = 0.0
    return ended


def test_a_prediction_that_goes_on_until_it_is_decided_is_wrong_as_seldom_as_it_says() -> None:
    assert wrong_at_any_look(lambda a, b: anytime_top_two_p_value(a, b, 2), 0.05, 400) <= 0.05
    integral, _ = quad(lambda q: 2 * (2 * q) ** 60 * (2 * (1 - q)) ** 40, 0.5, 1)
    assert anytime_top_two_p_value(60, 40, 2) == pytest.approx(1 / integral, rel=1e-5)
    assert anytime_top_two_p_value(60, 40, 2) >= 1 / integral
    assert anytime_top_two_p_value(60, 40, 5) == pytest.approx(min(1, 4 / integral), rel=1e-5)
    assert anytime_top_two_p_value(40, 60, 2) == 1
    assert anytime_top_two_p_value(10**6, 0, 2) < 1e-200


def test_so_is_one_by_mean_probabilities() -> None:
    mixed, _ = quad(
        lambda t: 2 * math.exp(30 * t - 100 * t * t / 2 - t * t / 0.02) / math.sqrt(2 * math.pi * 0.01), 0, 3
    )
    assert anytime_mean_p_value(30.0, 100, 2) == pytest.approx(1 / mixed, rel=1e-5)
    assert wrong_at_any_look(lambda a, b: anytime_mean_p_value(a - b, a + b, 2), 0.05, 400) <= 0.05


def test_votes_end_when_the_answer_is_there() -> None:
    sure, close = smoothed().predict(np.array([[3.0, 0.0], [0.5, 0.0]]), until_decided=2000, index=0)
    assert sure.predicted == 1
    assert sure.tally.n == 64
    assert close.tally.n == 2000
    assert smoothed().predict(np.array([0.7, 0.0]), until_decided=20000).predicted == 1


# ------------------------------------------------------------------------------------------------- far from the origin


@pytest.mark.parametrize("far", [2.0**47, 2.0**49, 2.0**51])
def test_what_float64_rounds_is_a_part_of_the_way_to_the_grid(far: float) -> None:
    noise = on_grid(Gaussian(0.7), Grid.of(None), (1,))
    step = 1 / float(np.max(noise.steps_per_unit))
    value = far * step
    worst = 0.0
    for k in range(400):
        x = np.nextafter(value, np.inf) + k * np.spacing(value)
        steps = float(noise.point(np.array([x])).steps[0])
        exact = Fraction(x) - Fraction(steps) / Fraction(float(np.max(noise.steps_per_unit)))
        worst = max(worst, abs(float(exact)))
    assert worst <= noise.half_diagonal("l2", value * (1 + 1e-9))


# ------------------------------------------------------------------------------------------------------ models and rows


class Frozen(nn.Sequential):
    def train(self, mode: bool = True) -> Any:  # type: ignore[override]
        super().train(False)


def test_a_module_whose_train_returns_nothing_works() -> None:
    model = Frozen(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert len(smoothed(model).certify(np.zeros((3, 2)))) == 3


class Saliency(nn.Module):
    def __init__(self, allowed: bool) -> None:
        super().__init__()
        self.body, self.allowed = nn.Linear(2, 2), allowed

    def forward(self, x: Tensor) -> Tensor:
        if self.allowed:
            with torch.inference_mode(False), torch.enable_grad():
                return self.sloped(x.clone())
        return self.sloped(x)

    def sloped(self, x: Tensor) -> Tensor:
        x.requires_grad_(True)
        scores: Tensor = self.body(x)
        (slope,) = torch.autograd.grad(scores.sum(), x)
        return (scores + slope).detach()


def test_gradients_in_forward_are_named_and_the_remedy_works() -> None:
    with pytest.raises(ModelError, match=r"torch\.inference_mode\(False\)"):
        smoothed(Saliency(allowed=False)).certify(np.zeros((2, 2)))
    assert len(smoothed(Saliency(allowed=True)).certify(np.zeros((2, 2)))) == 2


def test_tables_of_truths_and_nullable_numbers() -> None:
    plain = np.array([[1.5, 1.0, 3.0], [0.0, 0.0, 4.0]])
    table = pd.DataFrame({"a": plain[:, 0], "b": plain[:, 1] == 1, "c": pd.array([3, 4], dtype="Int64")})
    votes = [one.estimation for one in smoothed().certify(plain, index=0)]
    assert [one.estimation for one in smoothed().certify(table, index=0)] == votes
    nullable = table.astype({"a": "Float64", "b": "boolean"})
    assert [one.estimation for one in smoothed().certify(nullable, index=0)] == votes
    assert smoothed().certify(nullable.iloc[0], index=0).estimation == votes[0]
    nullable.loc[1, "c"] = pd.NA
    with pytest.raises(InvalidValueError, match=r"'c'.*\b1\b"):
        smoothed().certify(nullable)


def test_tables_of_arrow_columns() -> None:
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"a": [1.5, 0.0], "b": [1, 2]}).convert_dtypes(dtype_backend="pyarrow")
    assert len(smoothed().certify(table)) == 2


def test_integers_of_numpy_and_text_for_alpha() -> None:
    x = np.array([1.0, 0.0])
    plain = smoothed(seed=3).certify(x, index=7)
    given = smoothed(seed=np.int64(3), n=np.int32(200)).certify(x, index=np.uint8(7))
    assert given.estimation == plain.estimation
    with pytest.raises(InvalidValueError, match=r"'0\.1'"):
        smoothed(alpha="0.1")


# ------------------------------------------------------------------------------------------------------- exit code five


def forged(source: Path, out: Path, **plan: Any) -> str:
    """The run with another plan and ten times its radii, and checksums that fit."""
    run = read_run(source)
    stated = run.manifest.as_json()
    manifest = Manifest.of(**stated | {"plan": stated["plan"] | plan})
    create_run(out, manifest, [replace(record, radius=10 * record.radius) for record in run.records])
    return str(out)


def exit_code(*words: str) -> int:
    try:
        main(list(words))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_what_cant_be_recomputed_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    rows = np.array([[2.0, 0.0], [-1.0, 0.0]])
    data = Dataset("points", rows, np.array([1, 0]), ("left", "right"))
    certify_dataset(smoothed(), data, tmp_path / "run")
    assert exit_code("verify", str(tmp_path / "run")) == 0
    assert exit_code("verify", forged(tmp_path / "run", tmp_path / "radii")) == 4
    memory = {"stateful": True, "memory": {"head": "0" * 64, "results_sha256": "0" * 64}}
    assert exit_code("verify", forged(tmp_path / "run", tmp_path / "memory", **memory)) == 5
    assert exit_code("verify", forged(tmp_path / "run", tmp_path / "theirs", noise="theirs")) == 5
