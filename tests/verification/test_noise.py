"""From bounds to radii, and what a sampler's distance from its noise costs."""

from __future__ import annotations

import json
import math
import operator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

from smoothcert.bounds import ClassBounds
from smoothcert.certificates import certificate_for
from smoothcert.noise import DiagonalGaussian, Gaussian
from smoothcert.runs import Run, create_run, read_run
from smoothcert.smoothing import CertifyPlan
from smoothcert.verification.class_bounds import Pair
from smoothcert.verification.intervals import Interval
from smoothcert.verification.noise import Grid, Noise
from tests.runs.sealing import without_checksums
from tests.verification.runs import certified, edit_plan, messages, says, stretched

UNIT = Fraction(1, 2**58)


def pair(lower: str, upper: str) -> Pair:
    return Pair(Interval.of(Fraction(lower)), Interval.of(Fraction(upper)))


def test_extents() -> None:
    with mpmath.workdps(50):
        found = Noise("gaussian", (2.0,)).extent(pair("0.9", "0.05"))
        exact = mpmath.sqrt(2) * (mpmath.erfinv(mpmath.mpf("0.8")) + mpmath.erfinv(mpmath.mpf("0.9"))) / 2
        assert mpmath.mpf(str(found.low)) <= exact <= mpmath.mpf(str(found.high))
    uniform = Noise("uniform", (2.0,)).extent(pair("0.9", "0.05"))
    assert float(uniform.low) == pytest.approx(math.sqrt(3) * 0.85)


@pytest.mark.parametrize(("lower", "upper"), [("0.5", "0.5"), ("0.4", "0.6"), ("0", "1")])
def test_classes_that_are_not_separated_have_no_extent(lower: str, upper: str) -> None:
    assert Noise("gaussian", (1.0,)).extent(pair(lower, upper)).high == 0


def test_geometric_means_of_many_and_of_extreme_scales() -> None:
    scales = tuple(np.geomspace(1e-5, 10.0, 20_001).tolist())
    with mpmath.workdps(80):
        exact = mpmath.exp(mpmath.fsum(mpmath.log(scale) for scale in scales) / len(scales))
        found = Noise("diagonal-gaussian", scales).mean
        assert mpmath.mpf(str(found.low)) <= exact <= mpmath.mpf(str(found.high))
    assert float((found.high - found.low) / found.low) < 1e-40
    extreme = Noise("diagonal-gaussian", (5e-324, 1.7e308, 1.0)).mean
    assert float(extreme.low) == pytest.approx(math.exp((math.log(5e-324) + math.log(1.7e308)) / 3))
    assert float(Noise("diagonal-uniform", (0.3,) * 5).mean.low) == 0.3


@pytest.mark.parametrize(
    ("sigma", "levels", "cells", "steps"),
    [
        (0.25, 255, 32, Fraction(255, 4)),  # already fine: the inputs' own grid
        (0.01, 255, 32, Fraction(0.01) * 255 * 16),  # 2.55 steps, doubled until there are 32
        (8.0, 255, 32, Fraction(2040)),  # up to 2048 steps the grid isn't coarsened
        (16.0, 255, 32, Fraction(4080, 64)),  # beyond, it is: 4080 / 2⁶ = 63.75
        (1.0, 1, 64, Fraction(64)),
        (0.5, 2**20, 100, Fraction(2**19, 2**12)),
    ],
)
def test_the_samplers_distance(sigma: float, levels: int, cells: int, steps: Fraction) -> None:
    grid = Grid(levels, cells, 12)
    assert steps >= cells
    assert grid.distance(Noise("gaussian", (sigma,))) == 12 * (2 * math.ceil(10 * steps) + 3) * UNIT


def test_the_distance_of_several_scales_is_their_sum() -> None:
    grid, one = Grid(255, 32, 3), Grid(255, 32, 1)
    scales = (0.25, 0.01, 0.25)
    each = [one.distance(Noise("gaussian", (scale,))) for scale in scales]
    assert grid.distance(Noise("diagonal-gaussian", scales)) == sum(each)


LEVELS, CELLS = 255, 64


def repaid(run: Path, out: Path, error: float, **fields: object) -> Path:
    """The run as version 2 would have written it: each bound moved by the sampler's distance before the geometry."""
    old = read_run(run)
    plan = CertifyPlan.from_statement(old.manifest.plan, run)
    records = []
    for record in old.records:
        assert record.estimation is not None
        assert record.selection is not None
        bounds = plan.bounds_of(record.estimation, record.selection.top())
        lower, upper = (
            math.nextafter(bounds.lower - error, 0),
            min(1.0, math.nextafter(bounds.upper + error, 1)),
        )
        certificate = certificate_for(plan.noise)
        region = certificate.region(np.zeros(3), ClassBounds(lower, upper))
        radius = certificate.radius(ClassBounds(lower, upper))
        volume = record.volume_radius and (0.0 if region is None else region.volume_radius)
        predicted = record.selection.top() if radius > 0 else -1
        records.append(replace(record, radius=radius, predicted=predicted, volume_radius=volume))
    grid = {"stream": 2, "levels": LEVELS, "cells_per_sigma": CELLS, "dimension": 3, "sampler_error": error}
    manifest = old.manifest.stating(plan=old.manifest.plan.but(**grid, **fields))
    create_run(out, manifest, records)
    for path in run.glob("sigmas.npy"):
        (out / path.name).write_bytes(path.read_bytes())
    return out


def distance_of(noise: Gaussian | DiagonalGaussian) -> float:
    scales = tuple(noise.sigmas.tolist()) if isinstance(noise, DiagonalGaussian) else (noise.sigma,)
    exact = Grid(LEVELS, CELLS, 3).distance(Noise(noise.name, scales))
    return math.nextafter(float(exact), 1)


def plan_noise(run: Path):
    return CertifyPlan.from_statement(Run(run, read_run(run).manifest, ()).manifest.plan, run).noise


@pytest.mark.parametrize("kind", ["gaussian", "diagonal-gaussian"])
def test_runs_of_the_second_version(tmp_path: Path, kind: str) -> None:
    run = certified(tmp_path / "run") if kind == "gaussian" else stretched(tmp_path / "run", kind)
    new = repaid(run, tmp_path / "new", distance_of(plan_noise(run)))
    assert messages(new) == {}
    assert any("sampler_error" in text for text in verified(new))


def verified(run: Path) -> list[str]:
    from smoothcert.verification import verify_run

    return verify_run(run).report.verified


def test_bounds_that_were_not_paid_for(tmp_path: Path) -> None:
    """A large stated error, which the radii ignore, is an error of every certified input."""
    run = certified(tmp_path / "run")
    new = repaid(run, tmp_path / "new", 1e-3)
    assert messages(new) == {}  # more than needed: safe, and noted
    edit_plan(new, sampler_error=2e-3)
    found = messages(new)
    assert set(found) == {record.index for record in read_run(new).records if not record.abstained}
    assert any(says(message, operator.gt) for message in found.values())


def test_a_stated_distance_that_is_too_small(tmp_path: Path) -> None:
    run = certified(tmp_path / "run")
    new = repaid(run, tmp_path / "new", distance_of(plan_noise(run)))
    edit_plan(new, sampler_error=1e-20)
    assert says(messages(new)[None], r"sampler_error.*\b1e-20\b.*e-14\b")
    for nonsense in (None, -1.0, 2.0, "0"):
        edit_plan(new, sampler_error=nonsense)
        assert says(messages(new)[None], f"sampler_error.*{nonsense}")


def test_version_one_says_that_its_arithmetic_must_be_believed(tmp_path: Path) -> None:
    from smoothcert.verification import verify_run

    run = certified(tmp_path / "run")
    new = repaid(run, tmp_path / "new", distance_of(plan_noise(run)))
    assert not any("Voráček" in text for text in verify_run(new).report.believed)
    path = without_checksums(run) / "run.json"
    content = json.loads(path.read_text())
    for name in ("stream", "levels", "cells_per_sigma", "dimension", "sampler_error"):
        content["plan"].pop(name, None)
    path.write_text(json.dumps(content))
    report = verify_run(run).report
    assert report.holds
    assert any("Voráček" in text for text in report.believed)
