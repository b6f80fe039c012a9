"""A perturbation of another kind, added from outside the package: bytes with masks, from certify to verify."""

import itertools
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.bounds.base import ClassBounds
from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.runs.run import read_run
from smoothcert.smoothing.plan import CertifyPlan
from tests.plugins import byte_masks
from tests.plugins.byte_masks import MASK, ONE, ByteMasks
from tests.processes import run_command

PLUGGED = {**os.environ, "SMOOTHCERT_PLUGINS": str(Path(byte_masks.__file__))}
LENGTH = 6
MASKS = ByteMasks(keep=ONE // 16, length=LENGTH)
INPUTS = np.array([[200] * LENGTH, [10] * LENGTH, [200, 200, 10, 200, 200, 200]], dtype=np.uint8)


def mostly_large(batch: np.ndarray) -> np.ndarray:
    """Class 1 unless more of the bytes that are shown are below 128 than above."""
    shown = batch != MASK
    return (((batch >= 128) & shown).sum(1) >= ((batch < 128) & shown).sum(1)).astype(np.int64)


def smoothed(**fields: object) -> SmoothedClassifier:
    plan = CertifyPlan(MASKS, n=4000, seed=5, **fields)
    return SmoothedClassifier(mostly_large, plan, outputs="labels", classes=2)


def share_of_class_1(x: np.ndarray) -> Fraction:
    """By all masks."""
    keep, total = Fraction(MASKS.keep, ONE), Fraction(0)
    for shown in itertools.product([False, True], repeat=LENGTH):
        row = np.where(shown, x.astype(float), MASK)[np.newaxis]
        total += keep ** sum(shown) * (1 - keep) ** (LENGTH - sum(shown)) * int(mostly_large(row)[0])
    return total


def test_votes_are_those_of_the_masks():
    answer = smoothed().certify(INPUTS[0])
    assert answer.predicted == 1
    for x in INPUTS:
        share = float(share_of_class_1(x))
        counts = smoothed(bound="clopper-pearson").certify(x).estimation.counts
        assert abs(counts[1] / 4000 - share) < 5 * np.sqrt(share * (1 - share) / 4000) + 1e-3


def test_no_input_of_a_region_has_another_class():
    """The radius from the true probabilities, against every way to change so many bytes to 10 or 200."""
    for x in INPUTS:
        share = share_of_class_1(x)
        first = max(share, 1 - share)
        most = int(MASKS.certificate.radius(ClassBounds(float(first), float(1 - first))))
        for places in itertools.combinations(range(LENGTH), most):
            for values in itertools.product([10, 200], repeat=most):
                other = x.copy()
                other[list(places)] = values
                assert (share_of_class_1(other) > Fraction(1, 2)) == (share > Fraction(1, 2))
    assert most > 0


@pytest.mark.parametrize("backend", ["threads", pytest.param("processes", marks=pytest.mark.system)])
def test_from_certify_to_report_and_verify(tmp_path, backend):
    data = Dataset("bytes", INPUTS, np.array([1, 0, 1]), ("small", "large"))
    out = tmp_path / "run"
    expected = smoothed(levels=1).certify(INPUTS, index=0)
    classifier = smoothed()
    classifier.execution = Execution(workers=2, backend=backend)
    run = certify_dataset(classifier, data, out)
    assert [record.radius for record in run.records] == [answer.radius for answer in expected]
    assert max(record.radius for record in run.records) >= 1
    stated = read_run(out).manifest.plan
    assert stated.noise_in(out) == MASKS
    again = certify_dataset(smoothed(), data, out)  # resumed: nothing is left to do
    assert [replace(one, seconds=0) for one in again.records] == [
        replace(one, seconds=0) for one in run.records
    ]
    page = tmp_path / "page"
    assert run_command("report", out, "--out", page, env=PLUGGED).returncode == 0
    assert any(page.iterdir())
    verified = run_command("verify", out)
    assert verified.returncode == 5  # votes and counts are checked; the theorem isn't known there
    assert "byte-masks" in verified.stdout + verified.stderr
