"""From bounds to radii, and what a sampler's distance from its noise costs."""

import json
import math
import operator
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

from smoothcert.runs.run import read_run
from smoothcert_verify import verify_run
from smoothcert_verify.bounds import Pair
from smoothcert_verify.intervals import Interval
from smoothcert_verify.noise import Grid, Noise
from tests.runs.sealing import without_checksums
from tests.verification.runs import certified, edit_plan, edit_record, figures, messages, says, stretched

UNIT = Fraction(1, 2**58)


def pair(lower: str, upper: str) -> Pair:
    return Pair(Interval.of(Fraction(lower)), Interval.of(Fraction(upper)))


def test_extents():
    with mpmath.workdps(50):
        found = Noise("gaussian", (2.0,)).extent(pair("0.9", "0.05"))
        exact = mpmath.sqrt(2) * (mpmath.erfinv(mpmath.mpf("0.8")) + mpmath.erfinv(mpmath.mpf("0.9"))) / 2
        assert mpmath.mpf(str(found.low)) <= exact <= mpmath.mpf(str(found.high))
    uniform = Noise("uniform", (2.0,)).extent(pair("0.9", "0.05"))
    assert float(uniform.low) == pytest.approx(math.sqrt(3) * 0.85)


def test_classes_that_are_not_separated_have_no_extent():
    for lower, upper in (("0.5", "0.5"), ("0.4", "0.6"), ("0", "1")):
        assert Noise("gaussian", (1.0,)).extent(pair(lower, upper)).high == 0


def test_geometric_means_of_many_and_of_extreme_scales():
    scales = tuple(np.geomspace(1e-5, 10.0, 20_001).tolist())
    with mpmath.workdps(80):
        exact = mpmath.exp(mpmath.fsum(mpmath.log(scale) for scale in scales) / len(scales))
        found = Noise("diagonal-gaussian", scales).mean
        assert mpmath.mpf(str(found.low)) <= exact <= mpmath.mpf(str(found.high))
    assert float((found.high - found.low) / found.low) < 1e-40
    extreme = Noise("diagonal-gaussian", (5e-324, 1.7e308, 1.0)).mean
    assert float(extreme.low) == pytest.approx(math.exp((math.log(5e-324) + math.log(1.7e308)) / 3))
    assert float(Noise("diagonal-uniform", (0.3,) * 5).mean.low) == 0.3


def test_the_samplers_distance():
    for sigma, levels, cells, steps in [
        (0.25, 255, 32, Fraction(255, 4)),  # already fine: the inputs' own grid
        (0.01, 255, 32, Fraction(0.01) * 255 * 16),  # 2.55 steps, doubled until there are 32
        (8.0, 255, 32, Fraction(2040)),  # up to 2048 steps the grid isn't coarsened
        (16.0, 255, 32, Fraction(4080, 64)),  # beyond, it is: 4080 / 2⁶ = 63.75
        (1.0, 1, 64, Fraction(64)),
        (0.5, 2**20, 100, Fraction(2**19, 2**12)),
    ]:
        grid = Grid(levels, cells, 12)
        assert steps >= cells
        assert grid.distance(Noise("gaussian", (sigma,))) == 12 * (2 * math.ceil(10 * steps) + 3) * UNIT


def test_the_distance_of_several_scales_is_their_sum():
    grid, one = Grid(255, 32, 3), Grid(255, 32, 1)
    scales = (0.25, 0.01, 0.25)
    each = [one.distance(Noise("gaussian", (scale,))) for scale in scales]
    assert grid.distance(Noise("diagonal-gaussian", scales)) == sum(each)


def certified_inputs(run: Path) -> set[int]:
    return {record.index for record in read_run(run).records if not record.abstained}


@pytest.mark.parametrize("kind", ["gaussian", "diagonal-gaussian"])
def test_bounds_that_were_not_paid_for(kind, tmp_path):
    """A stated error that the radii ignore is a problem of every certified input; paid for, it is safe and noted."""
    run = certified(tmp_path / "run") if kind == "gaussian" else stretched(tmp_path / "run", kind)
    assert any("sampler_error" in text for text in verify_run(run).report.verified)
    edit_plan(run, sampler_error=2e-3)
    found = messages(run)
    assert set(found) == certified_inputs(run)
    assert all(says(message.partition(";")[0], operator.gt) for message in found.values())
    for index, message in found.items():
        assert index is not None
        exact = [math.nextafter(figures(part)[1], 0) for part in message.split("; ")]
        edit_record(run, index, **dict(zip(("radius", "volume_radius"), exact)))
    report = verify_run(run).report
    assert report.problems == []
    assert any("sampler_error" in note for note in report.notes)


def test_a_stated_distance_that_is_too_small(tmp_path):
    run = certified(tmp_path / "run")
    edit_plan(run, sampler_error=1e-20)
    assert says(messages(run)[None], r"sampler_error.*\b1e-20\b.*e-13\b")
    for nonsense in (None, -1.0, 2.0, "0"):
        edit_plan(run, sampler_error=nonsense)
        assert says(messages(run)[None], f"sampler_error.*{nonsense}")


def test_version_one_says_that_its_arithmetic_must_be_believed(tmp_path):
    run = certified(tmp_path / "run")
    assert not any("Voráček" in text for text in verify_run(run).report.believed)
    path = without_checksums(run) / "run.json"
    content = json.loads(path.read_text())
    for name in ("stream", "levels", "cells_per_sigma", "dimension", "sampler_error"):
        content["plan"].pop(name, None)
    path.write_text(json.dumps(content))
    report = verify_run(run).report
    assert report.holds
    assert any("Voráček" in text for text in report.believed)
