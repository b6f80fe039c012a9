"""Choosers as they are written and kept in a directory, and what a plan states of its levels, and back."""

import math

import numpy as np
import pytest

from smoothcert import CertifyPlan, Gaussian, SmoothedClassifier
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.experimental.levels.choosers import (
    ConstantChooser,
    StatisticChooser,
    chooser_named,
    read_chooser_statement,
    write_chooser_statement,
)
from smoothcert.experimental.levels.classifier import LevelledClassifier
from smoothcert.experimental.levels.procedures import median_level
from smoothcert.models.numerics import Numerics
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.statement import PlanStatement
from smoothcert.sigma_levels import SigmaLevels
from tests.guarantees.exact import hard_tally


def test_statistics_of_rows():
    rows = np.array([[[0.0, 2.0]], [[3.0, 3.0]], [[-1.0, -1.0]]])
    assert StatisticChooser("mean", (0.0, 2.0))(rows).tolist() == [1, 2, 0]
    assert StatisticChooser("spread", (0.5,))(rows).tolist() == [1, 0, 0]
    assert StatisticChooser("energy", (1.5, 5.0))(rows).tolist() == [1, 2, 0]
    assert StatisticChooser("mean", (0.0, 2.0)).levels == 3


def test_how_choosers_are_written():
    assert chooser_named("constant:2") == ConstantChooser(2)
    assert chooser_named("spread:0.3,0.4") == StatisticChooser("spread", (0.3, 0.4))
    assert StatisticChooser("spread", (0.3, 0.4)).text == "spread:0.3,0.4"
    assert chooser_named("runs/chooser") is None
    assert chooser_named("module:function") is None
    for wrong in ("constant:x", "spread:0.4,0.3", "mean:", "mean:a"):
        with pytest.raises(InvalidValueError):
            chooser_named(wrong)


def test_the_median_is_the_first_level_with_half_of_the_votes():
    medians = {(5, 0, 0): 0, (2, 3, 0): 1, (5, 5, 0): 0, (4, 5, 1): 1, (0, 0, 1): 2}
    assert {counts: median_level(hard_tally(counts)) for counts in medians} == medians


def test_levels_and_noise_come_back_and_damage_is_noticed(tmp_path):
    assert read_chooser_statement(tmp_path) is None
    assert read_chooser_statement(tmp_path / "missing") is None
    for change in (None, ("0.25", "0.35"), ("{", "["), ("sigma_levels", "x")):
        write_chooser_statement(tmp_path, (0.25, 0.5), 0.75, {"inputs": 100})
        if change is None:
            assert read_chooser_statement(tmp_path) == ((0.25, 0.5), 0.75)
            continue
        path = RunFiles(tmp_path).chooser
        path.write_text(path.read_text().replace(*change))
        with pytest.raises(ModelError, match=r"chooser\.json"):
            read_chooser_statement(tmp_path)


LEVELS = SigmaLevels((0.25, 0.5, 1.0), 0.75, 50, 2000)


def test_levels_that_make_no_sense_are_refused():
    for fields, named in [
        ({"sigmas": ()}, r"\b64\b"),
        ({"sigmas": (0.5, 0.25)}, r"0\.5, 0\.25"),
        ({"sigmas": (0.5, 0.5)}, r"0\.5, 0\.5"),
        ({"sigmas": (-1.0, 0.5)}, r"-1\.0"),
        ({"sigmas": (0.5, math.nan)}, r"\bnan\b"),
        ({"sigmas": (0.5,)}, "constant=0"),
        ({"sigmas": (0.5, 1.0), "constant": 2}, r"constant.*\b0\b.*\b1\b.*\b2\b"),
        ({"sigmas": (0.5, 1.0), "chooser_sigma": 0.0}, r"chooser_sigma.*\b0\.0"),
        ({"sigmas": (0.5, 1.0), "chooser_n": 0}, r"\bchooser_n\b.*\b0\b"),
        ({"sigmas": (0.5, 1.0), "chooser_n0": 0}, r"\bchooser_n0\b.*\b0\b"),
        ({"sigmas": tuple(range(1, 100))}, r"\b64\b.*\b98, 99\b"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            SigmaLevels(**fields)


def test_the_parts_of_alpha_never_exceed_it():
    for alpha in (0.5, 0.05, 0.001, 1e-9, 0.1 + 1e-17):
        assert LEVELS.chooser_alpha(alpha) == alpha / 32
        assert LEVELS.chooser_alpha(alpha) + LEVELS.level_alpha(alpha) <= alpha
        assert LEVELS.level_alpha(alpha) == pytest.approx(alpha * 31 / 32, rel=1e-12)
        assert SigmaLevels((0.5,), constant=0).level_alpha(alpha) == alpha


@pytest.mark.parametrize(
    "levels",
    [
        LEVELS,
        SigmaLevels(
            (0.25, 0.5), 0.75, 50, 2000, None, "net", "ab" * 32, Numerics("float32", "eager", 64, 64)
        ),
        SigmaLevels((0.25, 0.5), constant=1),
        SigmaLevels((0.5,), constant=0),
    ],
)
def test_a_plan_comes_back_from_what_it_states(levels, tmp_path):
    plan = CertifyPlan(
        Gaussian(levels.sigmas[-1]), seed=3, n=500, alpha=0.01, levels=255, dimension=12, sigma_levels=levels
    )
    stated = PlanStatement(plan.as_json())
    assert CertifyPlan.from_statement(stated, tmp_path).sigma_levels == levels
    assert CertifyPlan.from_statement(stated, tmp_path).as_json() == plan.as_json()


def test_plans_that_levels_have_no_place_in(tmp_path):
    for fields, named in (
        ({"noise": Gaussian(0.5)}, r"\b1\b.*Gaussian\(sigma=0\.5\)"),
        ({"bound": "hoeffding"}, "hoeffding.*top-two"),
        ({"stop": ("total:100000",)}, "total:100000"),
    ):
        with pytest.raises(InvalidValueError, match=named):
            CertifyPlan(**({"noise": Gaussian(1.0), "sigma_levels": LEVELS} | fields))
    plan = CertifyPlan(Gaussian(1.0), seed=3, levels=255, dimension=12, sigma_levels=LEVELS)
    with pytest.raises(InvalidValueError, match="LevelledClassifier"):
        SmoothedClassifier(lambda batch: batch, plan)
    for chooser in ({}, {"sigma": "x", "n0": 1, "n": 1}, {"constant": "one"}, {"constant": 9}):
        with pytest.raises(InvalidValueError):
            CertifyPlan.from_statement(PlanStatement(plan.as_json() | {"chooser": chooser}), tmp_path)


def test_models_that_number_their_classes_otherwise_are_refused():
    """Class 0 of one level would be class 1 of another."""
    from sklearn.linear_model import LogisticRegression

    rows = [[0.0], [1.0], [0.1], [0.9]]
    one = LogisticRegression().fit(rows, ["a", "b", "a", "b"])
    other = LogisticRegression().fit(rows, ["c", "b", "c", "b"])
    with pytest.raises(InvalidValueError, match=r"\('a', 'b'\).*\('b', 'c'\)"):
        LevelledClassifier([one, other], ConstantChooser(0), sigmas=(0.25, 0.5))
    LevelledClassifier([one, one], ConstantChooser(0), sigmas=(0.25, 0.5))


@pytest.mark.parametrize(("field", "value"), [("chooser_sigma", 0.5), ("chooser_n", 10), ("n", 10)])
def test_what_belongs_in_a_plan_is_not_passed_over(field, value):
    plan = CertifyPlan(Gaussian(0.5), sigma_levels=SigmaLevels((0.25, 0.5), constant=0))
    with pytest.raises(InvalidValueError, match=rf"\b{field}\b"):
        LevelledClassifier(lambda batch: batch, ConstantChooser(0), plan, **{field: value})


def test_a_chooser_names_levels_by_their_numbers():
    from sklearn.linear_model import LogisticRegression

    rows = [[0.0], [1.0], [0.1], [0.9]]
    by_number = LogisticRegression().fit(rows, [0, 1, 0, 1])
    from_one = LogisticRegression().fit(rows, [1, 2, 1, 2])
    LevelledClassifier(by_number, by_number, sigmas=(0.25, 0.5))
    with pytest.raises(InvalidValueError, match=r"\(1, 2\).*\(0, 1\).*\('0\.25', '0\.5'\)"):
        LevelledClassifier(by_number, from_one, sigmas=(0.25, 0.5))
    by_name = LogisticRegression().fit(rows, ["0.25", "0.5", "0.25", "0.5"])
    LevelledClassifier(by_number, by_name, sigmas=(0.25, 0.5))
    with pytest.raises(
        InvalidValueError, match=r"\('0\.25', '0\.5'\).*\('0\.5', '1'\)"
    ):  # a chooser fitted for other levels
        LevelledClassifier(by_number, by_name, sigmas=(0.5, 1.0))
