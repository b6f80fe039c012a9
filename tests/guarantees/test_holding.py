"""Coordinates that are held: certificates of f(·, v), and of no other v."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import ABSTAIN, Certifications, DiagonalGaussian, SmoothedClassifier
from smoothcert.errors import DependentVotesError, InvalidValueError, ModelError
from smoothcert.models.numerics import Numerics
from smoothcert.smoothing.plan import CertifyPlan

A, B = np.array([3.0, -1.0]), 2.0  # class 1 where A·u + B·v > 0
HELD = 1
INPUTS = np.array([[1.0, 2.0, 0.5], [0.25, -3.0, 1.0], [0.5, 0.0, 1.25], [0.0, 40.0, 0.0]])


def linear(batch: np.ndarray) -> np.ndarray:
    margin = batch[:, [0, 2]] @ A.astype(batch.dtype) + B * batch[:, HELD]
    return np.stack([-margin, margin], 1)


class Linear(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        margin = 3 * x[:, 0] - x[:, 2] + 2 * x[:, 1]
        return torch.stack([-margin, margin], 1)


def smoothed(model: Any = linear, **options: Any) -> SmoothedClassifier:
    options = {"n": 20_000, "seed": 0} | options
    return SmoothedClassifier(model, sigma=1.0, **options)


def certified(model: Any = linear, **options: Any) -> Certifications:
    return smoothed(model, **options).holding([HELD]).certify(INPUTS)


@pytest.mark.parametrize("model", [linear, Linear()])
def test_regions_end_where_the_held_problem_does(model):
    for x, answer in zip(INPUTS, certified(model)):
        margin = A @ x[[0, 2]] + B * x[HELD]
        distance = abs(margin) / np.linalg.norm(A)
        if answer.abstained:
            assert distance < 0.1
            continue
        assert answer.predicted == int(margin > 0)
        assert answer.radius < distance + 1e-9
        assert distance > 3 or answer.radius > distance - 0.15
        # The nearest point where g changes, just outside; noise on the held column would have moved it.
        edge = x.copy()
        edge[[0, 2]] -= margin * A / (A @ A) * (1 + 1e-6)
        assert not answer.covers(edge)


def test_it_is_the_certificate_of_the_other_coordinates():
    numerics = Numerics(chunk=64, block=64)
    for number, x in enumerate(INPUTS):

        def of_others(batch: np.ndarray, v: float = x[HELD]) -> np.ndarray:
            return linear(np.stack([batch[:, 0], np.full(len(batch), v, batch.dtype), batch[:, 1]], 1))

        alone = smoothed(of_others, numerics=numerics).certify(x[[0, 2]][np.newaxis], number)[0]
        held = smoothed(numerics=numerics).holding([HELD]).certify(x, index=number)
        assert (held.predicted, held.radius) == (alone.predicted, alone.radius)
        assert held.estimation.counts == alone.estimation.counts


def test_nothing_is_said_of_another_value():
    """The attacker changes the held column alone, as little as floats allow."""

    def lookup(batch: np.ndarray) -> np.ndarray:
        yes = (batch[:, HELD] == 2.0).astype(float)
        return np.stack([1 - yes, yes], 1)

    x = np.array([0.0, 2.0, 0.0])
    answer = smoothed(lookup, n=2000).holding([HELD]).certify(x)
    assert answer.predicted == 1
    assert answer.covers(x)
    assert answer.covers(x + np.array([0.1, 0.0, -0.1]))
    for v in (np.nextafter(2.0, 3.0), np.nextafter(2.0, 1.0), -2.0, 3.0, np.nan):
        assert not answer.covers([0.0, v, 0.0])
    for point in (np.zeros(2), np.zeros(4), np.zeros((1, 3))):  # the region alone knows nothing of v
        with pytest.raises(InvalidValueError, match=re.escape(str(point.shape))):
            answer.covers(point)
    with pytest.raises(InvalidValueError, match=r"\(3,\).*\(2,\)"):
        answer.region.contains(x)


def test_zeros_of_either_sign_are_one_value():
    """They compare as equal, so a model that tells them apart must not be asked about one and answer for the other."""

    def sign_of_zero(batch: np.ndarray) -> np.ndarray:
        negative = np.signbit(batch[:, HELD]).astype(float)
        return np.stack([1 - negative, negative], 1)

    holding = smoothed(sign_of_zero, n=500).holding([HELD])
    answers = [holding.certify(np.array([0.0, zero, 0.0])) for zero in (0.0, -0.0)]
    assert [answer.predicted for answer in answers] == [0, 0]
    assert all(answer.covers([0.0, -0.0, 0.0]) for answer in answers)


def test_votes_differ_where_what_is_held_differs():
    one, other = (smoothed(n=500).holding([HELD]).certify(np.array([0.1, v, 0.2])) for v in (0.0, 1e-9))
    assert one.index != other.index
    again = smoothed(n=500).holding([HELD]).certify(np.array([0.1, 0.0, 0.2]))
    assert again.estimation == one.estimation


def test_labels_stop_the_voting_on_wrong_classes():
    holding = smoothed(n=500, stop=("wrong",)).holding([HELD])
    right, wrong = holding.certify(INPUTS[[0, 0]] + [[0.0] * 3, [0.0, 1.0, 0.0]], labels=[1, 0])
    assert (right.predicted, right.estimation.n) == (1, 500)
    assert (wrong.predicted, wrong.estimation.n) == (ABSTAIN, 0)
    with pytest.raises(InvalidValueError, match="wrong"):
        holding.certify(INPUTS)


def test_masks_of_pictures_names_and_rows():
    mask = np.zeros((1, 2, 2), dtype=bool)
    mask[0, 0, 0] = True

    def corner(batch: np.ndarray) -> np.ndarray:
        first = batch[:, 0, 0, 0] + batch[:, 0, 1, 1]
        return np.stack([first, -first], 1)

    pictures = np.zeros((2, 1, 2, 2))
    pictures[:, 0, 0, 0] = [9.0, -9.0]
    answers = smoothed(corner, n=500).holding(mask).certify(pictures)
    assert answers.predicted.tolist() == [0, 1]
    assert [answer.row for answer in answers] == [0, 1]
    pictures[1, 0, 0, 0] = np.nan
    with pytest.raises(InvalidValueError, match=r"\b1\b.*\bnan\b"):
        smoothed(corner, n=500).holding(mask).certify(pictures)

    class Estimator:
        classes_ = np.array(["no", "yes"])
        feature_names_in_ = np.array(["age", "kind", "weight"])
        n_features_in_ = 3

        def predict(self, batch: np.ndarray) -> np.ndarray:
            return self.classes_[linear(np.asarray(batch)).argmax(1)]

    named = smoothed(Estimator(), n=500).holding(["kind"]).certify(INPUTS)
    assert [label for label in named.label if label is not None] == [
        ["no", "yes"][place] for place in named.predicted if place != ABSTAIN
    ]
    assert named.accuracy(["yes", "no", "yes", "yes"]) > 0


def test_what_cant_be_held_is_refused():
    for held, message in (
        ([], r"\b0\b.*\b3\b"),
        ([0, 1, 2], r"\b3\b.*\b3\b"),
        ([3], r"\b2\b.*\b3\b"),
        ([-1], r"\b2\b.*-1\b"),
        ([0.5], r"\b0\.5\b"),
        ([0, 1, 0], r"\b0\b"),  # a mask in numbers would name column 0 twice
        (["kind"], "'kind'"),
        ([True, False], r"\(2,\)"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            smoothed().holding(held).certify(INPUTS)
    with pytest.raises(InvalidValueError, match=r"\(1, 2, 2\)"):
        smoothed(lambda b: b[:, 0, 0, :2]).holding([0]).certify(np.zeros((1, 1, 2, 2)))
    plan = CertifyPlan(DiagonalGaussian(np.ones(3)), n=100)
    with pytest.raises(InvalidValueError, match=r"sigmas.*\(3,\).*\(2,\)"):
        SmoothedClassifier(linear, plan, hold=[0]).certify(INPUTS)
    with pytest.raises(ModelError, match=r"1e\+300\b.*float32"):
        smoothed(numerics=Numerics("float32")).holding([1]).certify(np.array([0.0, 1e300, 0.0]))
    with pytest.raises(DependentVotesError):
        smoothed(lambda b: linear(b - b.mean(0))).holding([0]).certify(INPUTS)


def test_what_is_held_is_settled_when_it_is_said():
    mask = np.array([False, True, False])
    holding = smoothed(n=200).holding(mask)
    mask[:] = [True, False, False]
    answer = holding.certify(INPUTS[0])
    assert answer.held.mask.tolist() == [False, True, False]


class ByKind:
    """Class 1 where 3a − b is above what the kind asks for; it knows its columns by name, and two kinds."""

    classes_ = np.array(["no", "yes"])
    feature_names_in_ = np.array(["a", "kind", "b"], dtype=object)
    n_features_in_ = 3

    def __init__(self) -> None:
        self.types: set[str] = set()

    def predict(self, table: Any) -> np.ndarray:
        self.types.add(str(table["kind"].dtype))
        asked = table["kind"].astype(object).map({"red": 2.0, "blue": -1.0})
        assert not asked.isna().any(), "a kind that nobody gave"
        return self.classes_[((3 * table["a"] - table["b"]) > asked.astype(float)).astype(int)]


def test_texts_and_categories_that_are_held_reach_the_model_as_they_are():
    pandas = pytest.importorskip("pandas")
    kinds = ["red", "blue", "red", "blue"]
    table = pandas.DataFrame({"b": INPUTS[:, 2], "a": INPUTS[:, 0], "kind": kinds})

    def by_number(batch: np.ndarray) -> np.ndarray:
        return (3 * batch[:, 0] - batch[:, 2] > batch[:, 1]).astype(int)

    numbers = np.column_stack([table["a"], [2.0 if kind == "red" else -1.0 for kind in kinds], table["b"]])
    known = smoothed(by_number, outputs="labels", classes=2).holding([1]).certify(numbers, index=0)
    model = ByKind()
    for column, name in ((table["kind"], "str"), (table["kind"].astype("category"), "category")):
        answers = smoothed(model).holding(["kind"]).certify(table.assign(kind=column), index=0)
        assert [(one.label, one.radius) for one in answers] == [
            (None if one.abstained else ("no", "yes")[one.predicted], one.radius) for one in known
        ]
        assert model.types.pop() in (name, "object")
        first = table[["a", "kind", "b"]].iloc[0]
        assert answers[0].covers(first)
        assert not answers[0].covers(first.where(first != "red", "blue")), "another kind: nothing is said"
        assert not answers[0].covers(first.where(first.index != "a", 99.0))
        single = smoothed(model).holding(["kind"]).certify(table.iloc[0], index=0)
        assert (single.label, single.radius) == (answers[0].label, answers[0].radius)
        predicted = smoothed(model).holding(["kind"]).predict(table.assign(kind=column))
        assert [one.label for one in predicted][:3] == [one.label for one in answers][:3]


def test_whole_numbers_that_are_held_stay_whole():
    pandas = pytest.importorskip("pandas")

    class Codes(ByKind):
        def predict(self, table: Any) -> np.ndarray:
            if table["kind"].dtype.kind not in "iu":
                raise TypeError("category_code")
            return self.classes_[(table["a"] > table["kind"]).astype(int)]

    table = pandas.DataFrame({"a": [9.0, -9.0], "kind": [1, 2], "b": [0.0, 0.0]})
    answers = smoothed(Codes(), n=500).holding(["kind"]).certify(table)
    assert [one.label for one in answers] == ["yes", "no"]
    with pytest.raises(ModelError, match=r"category_code.*hold=\["):
        smoothed(Codes(), n=500).certify(table)


def test_what_is_no_number_and_not_held_is_refused():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": ["x", "y"], "kind": ["red", "blue"], "b": [0.0, 0.0]})
    with pytest.raises(InvalidValueError, match="'a'") as caught:
        smoothed(ByKind()).holding(["kind"]).certify(table)
    assert "'kind'" not in str(caught.value)
    with pytest.raises(InvalidValueError, match=r"'a', 'kind'.*hold=\['a', 'kind'\]"):
        smoothed(ByKind()).certify(table)
    with pytest.raises(InvalidValueError, match=r"'kind'.*\b2\b"):
        smoothed().holding(["kind"]).certify(INPUTS)
