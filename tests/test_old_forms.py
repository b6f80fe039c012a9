"""Forms of before 1.0 do what they did, and say what to write instead."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert import (
    AttackPlan,
    Certification,
    Certifications,
    CertifyPlan,
    ConstantChooser,
    Execution,
    FitPlan,
    Gaussian,
    LevelledClassifier,
    Numerics,
    Prediction,
    SmoothedClassifier,
)
from smoothcert.errors import InvalidValueError
from smoothcert.objectives import BatchNoise, Passes, Sigma, StepCost


def signs(batch: np.ndarray) -> np.ndarray:
    return (batch.sum(1) > 0).astype(int)


def smoothed(**options: Any) -> SmoothedClassifier:
    return SmoothedClassifier(
        signs, sigma=0.5, n=200, seed=0, outputs="labels", classes=2, **{"input_shape": (2,)} | options
    )


POINT = np.array([1.0, 0.5])
ANSWER = smoothed().certify_one(POINT)
FORMS: dict[str, tuple[Callable[[], Any], Any]] = {
    "certify, one input": (lambda: smoothed().certify(POINT), ANSWER),
    "predict, one input": (lambda: smoothed().predict(POINT, n=50), smoothed().predict_one(POINT, n=50)),
    "certify_batch": (lambda: smoothed().certify_batch([POINT])[0], ANSWER),
    "holding": (
        lambda: smoothed().holding([1]).certify_one(POINT).radius,
        smoothed(hold=[1]).certify_one(POINT).radius,
    ),
    **{
        name: (lambda name=name: getattr(ANSWER, name), getattr(ANSWER.evidence, name))
        for name in (
            *("candidate", "bounds", "selection", "estimation", "search", "levels", "stopped"),
            *("volume_radius", "shift", "radius_off_grid", "plan_seed"),
        )
    },
}


def test_every_old_form_of_the_changelog_is_tried():
    """The first column of the table of Python: calls are tried by name, fields below Certification each."""
    text = (Path(__file__).parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    table = text.partition("| Python, before |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    told = {
        re.sub(r"^(Certification)?\.|\(.*", "", form)
        for row in rows
        if "no warning" not in row
        for form in re.findall(r"`([^`]+)`", row)
    }
    assert told == {form.partition(",")[0] for form in FORMS}
    assert {Sigma: BatchNoise, Passes: StepCost} == {BatchNoise: BatchNoise, StepCost: StepCost}


@pytest.mark.parametrize("form", FORMS)
def test_an_old_form_works_and_warns(form):
    old, expected = FORMS[form]
    with pytest.warns(DeprecationWarning, match=r"goes with 2\.0") as told:
        found = old()
    assert told[0].filename == __file__
    if isinstance(expected, Certification):
        assert (found.predicted, found.radius, found.evidence) == (
            expected.predicted,
            expected.radius,
            expected.evidence,
        )
    elif isinstance(expected, Prediction):
        assert (found.predicted, found.tally) == (expected.predicted, expected.tally)
    else:
        assert found == expected


def test_new_forms_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        many, one = smoothed().certify([POINT, -POINT]), smoothed().certify_one(-POINT)
        assert isinstance(many, Certifications)
        assert isinstance(one, Certification)
        assert many[1].evidence == one.evidence
        assert isinstance(smoothed().certify([POINT]), Certifications)  # of one input as well
        answers = smoothed().predict([POINT, -POINT], n=50)
        assert answers.predicted.tolist() == [1, 0]
        assert answers[1].tally == smoothed().predict_one(-POINT, n=50).tally
        assert list(answers.to_dict()) == ["row", "predicted", "label", "abstained", "p_value", "seconds"]


def test_an_attribute_that_never_was_is_an_error():
    with pytest.raises(AttributeError, match="estimatoin"):
        ANSWER.estimatoin  # type: ignore[attr-defined]  # noqa: B018


def test_a_misspelled_option_names_the_one_that_is_meant():
    for written, meant in [
        ("alhpa", "alpha"),
        ("sigmas", "sigma"),
        ("stops", "stop"),
        ("device", "Execution"),
        ("route", "Numerics"),
    ]:
        with pytest.raises(TypeError, match=meant) as caught:
            SmoothedClassifier(signs, **{"sigma": 0.5, written: 0.1})
        assert written in str(caught.value)


def test_misspelled_fields_of_plans_name_the_one_that_is_meant():
    for made, written, meant in [
        (lambda: CertifyPlan(Gaussian(0.5), aplha=0.1), "aplha", "alpha"),
        (lambda: Execution(worker=3), "worker", "workers"),
        (lambda: Numerics(rout="eager"), "rout", "route"),
        (lambda: AttackPlan(step=3), "step", "steps"),
        (lambda: FitPlan(init=0.5, bata=3), "bata", "beta"),
        (lambda: LevelledClassifier(signs, ConstantChooser(0), sigmas=[0.5], aplha=0.1), "aplha", "alpha"),
    ]:
        with pytest.raises(TypeError, match=rf"'{written}'.*\b{meant}\b"):
            made()


def test_types_and_shapes_may_be_written_as_the_libraries_do():
    import torch

    for dtype in (np.float64, np.dtype("float64"), torch.float64):
        assert Numerics(dtype=dtype) == Numerics(dtype="float64")
    for shape in (2, [2], np.array([2])):
        assert smoothed(input_shape=shape).certify_one(POINT).radius == ANSWER.radius
    for shape in (0, [2, -1], 2.5, "2"):
        with pytest.raises(InvalidValueError, match="input_shape"):
            smoothed(input_shape=shape)


def test_a_failing_model_leaves_the_answers_that_were_ready():
    calls = []

    def fails_late(batch: np.ndarray) -> np.ndarray:
        calls.append(len(batch))
        if len(calls) > 20:
            raise ConnectionError("gone")
        return signs(batch)

    classifier = SmoothedClassifier(fails_late, sigma=0.5, n=1000, seed=0, outputs="labels", classes=2)
    from smoothcert import SmoothcertError

    with pytest.raises(SmoothcertError, match="gone") as caught:
        classifier.certify(np.linspace(1, 2, 40).reshape(20, 2))
    assert 0 < len(caught.value.finished) < 20
    assert all(isinstance(answer, Certification) for answer in caught.value.finished)
