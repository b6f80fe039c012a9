"""SmoothedClassifier: plans, single inputs and batches, typed answers, warnings and refusals."""

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm

from smoothcert import ABSTAIN, CertifyPlan, Execution, Gaussian, SmoothedClassifier, Uniform
from smoothcert.errors import InvalidValueError
from smoothcert.models.numerics import Numerics
from smoothcert.smoothing.plan import TooFewVotesWarning


def half_space(batch: np.ndarray) -> np.ndarray:
    """Class 1 right of zero."""
    return (batch[:, 0] > 0).astype(np.int64)


def smoothed(**options: Any) -> SmoothedClassifier:
    defaults: dict[str, Any] = {"sigma": 0.5, "n": 2000, "outputs": "labels", "classes": 2, "seed": 0}
    return SmoothedClassifier(half_space, **(defaults | options))


def test_a_clear_input_gets_its_class_and_nearly_its_margin_and_one_on_the_edge_abstains():
    answer = smoothed(bound="clopper-pearson").certify(np.array([0.5, 0.0]))
    assert answer.predicted == 1
    assert 0.4 < answer.radius < 0.55
    assert answer.norm == "l2"
    assert answer.region is not None
    assert answer.region.contains([0.5 - 0.9 * answer.radius, 0.0])
    answer = smoothed().certify([[0.0, 0.0]])[0]
    assert answer.abstained
    assert (answer.predicted, answer.radius, answer.region) == (ABSTAIN, 0.0, None)
    answer = smoothed(noise="uniform").certify([[0.3, 0.0]])[0]
    assert answer.norm == "l1"
    assert 0 < answer.radius < 0.5 * math.sqrt(3)
    answer = smoothed().certify(np.array([0.5, 0.0]))
    assert answer.covers(torch.tensor([0.5, 0.0], requires_grad=True))


def test_the_papers_bound_is_the_papers_formula_on_its_own_tally():
    answer = smoothed(bound="clopper-pearson").certify([[0.4, 0.0]])[0]
    k = answer.estimation.counts[1]
    assert answer.radius == pytest.approx(0.5 * norm.ppf(beta.ppf(0.001, k, 2000 - k + 1)), rel=1e-9)


def test_one_input_and_batches_agree_and_others_have_independent_noise():
    classifier = smoothed()
    batch = np.array([[0.5, 0.0], [-0.7, 0.2], [0.1, 0.1]])
    together = classifier.certify(batch)
    assert isinstance(together, list)
    for x, answer in zip(batch, together):
        assert classifier.certify(x).estimation == answer.estimation
    answers = smoothed().certify([[0.2, 0.0], [0.2, 0.0], [0.2, 1e-7]])
    assert answers[0].estimation == answers[1].estimation
    assert answers[0].estimation.stream.index != answers[2].estimation.stream.index
    x = np.array([[0.3, 0.0]])
    base = smoothed().certify(x, index=5)[0].estimation.counts
    assert smoothed().certify(x, index=5)[0].estimation.counts == base
    assert smoothed(seed=1).certify(x, index=5)[0].estimation.counts != base
    assert smoothed().certify(x, index=6)[0].estimation.counts != base


def test_one_input_is_told_from_a_batch():
    def model(batch: np.ndarray) -> np.ndarray:
        return (batch.reshape(len(batch), -1)[:, 0] > 0).astype(np.int64)

    made = {"sigma": 1.0, "n": 50, "outputs": "labels", "classes": 2}
    for shape, input_shape, single in (
        ((2,), None, True),
        ((4, 2), None, False),
        ((1, 2, 3), None, True),
        ((2, 1, 2, 3), None, False),
        ((2, 3), (2, 3), True),
    ):
        answers = SmoothedClassifier(model, input_shape=input_shape, **made).certify(np.zeros(shape))
        assert isinstance(answers, list) != single
    assert smoothed().certify(torch.tensor([0.5, 0.0], requires_grad=True)).predicted == 1


def test_predictions():
    right, edge = smoothed().predict(np.array([[0.5, 0.0], [0.0, 0.0]]), n=500)
    assert right.predicted == 1
    assert right.p_value < 0.001
    assert edge.abstained
    assert smoothed().predict(np.array([-1.0, 0.0])).predicted == 0


def test_numbers_of_votes_that_suffice_or_are_hopeless():
    with pytest.warns(TooFewVotesWarning, match=r"\b10\b.*0\.001.*\b11\b"):
        smoothed().predict(np.array([1.0, 0.0]), n=10)
    with pytest.warns(TooFewVotesWarning, match=r"\b10\b.*0\.001.*top-two.*\b11\b"):
        smoothed(n=10).certify(np.array([1.0, 0.0]))
    with pytest.warns(TooFewVotesWarning, match=r"\b9\b.*clopper-pearson.*\b10\b"):
        smoothed(n=9, bound="clopper-pearson").certify(np.array([1.0, 0.0]))
    assert smoothed(n=11).certify(np.array([9.0, 0.0])).radius > 0
    assert smoothed().predict(np.array([9.0, 0.0]), n=11).predicted == 1


def test_a_plan_can_be_given_whole_and_settled_names_everything():
    plan = CertifyPlan(Gaussian(0.5), n=2000, seed=0)
    by_plan = SmoothedClassifier(half_space, plan, outputs="labels", classes=2)
    x = np.array([[0.3, 0.0]])
    assert by_plan.certify(x)[0].estimation == smoothed().certify_batch(x)[0].estimation
    plan = smoothed(execution=Execution(workers=1)).prepare((2,)).as_json()
    assert plan == {
        "noise": "gaussian", "sigma": 0.5, "norm": "l2", "bound": "top-two", "votes": "hard", "n0": 100,
        "n": 2000, "alpha": 0.001, "seed": 0, "dtype": "float32", "route": "eager", "chunk": 1024, "block": 64,
        "stream": 2, "levels": 255, "cells_per_sigma": 256, "dimension": 2,
        "sampler_error": pytest.approx(2 * (2 * 10 * 510 + 3) * 2.0**-58, rel=1e-12),
    }  # fmt: skip
    assert CertifyPlan(Uniform(1.0)).as_json()["norm"] == "l1"


def test_bad_options_are_refused():
    for options, message in [
        ({"sigma": 0.0}, r"sigma.*\b0\.0"),
        ({"sigma": -1.0}, r"sigma.*-1\.0"),
        ({"sigma": "0.5"}, r"sigma.*0\.5"),
        ({"alpha": 0.0}, r"alpha.*\b0\.0"),
        ({"alpha": 1.0}, r"alpha.*\b1\.0"),
        ({"n0": 0}, r"\bn0\b.*\b0\b"),
        ({"n": 0}, r"\bn\b.*\b0\b"),
        ({"n": 10.5}, r"\bn\b.*10\.5"),
        ({"seed": -1}, "seed.*-1"),
        ({"bound": "clopper"}, "bound.*'clopper'.*clopper-pearson"),
        ({"noise": "laplace"}, "noise.*'laplace'.*gaussian, uniform"),
        ({"outputs": "logits"}, "'logits'.*labels, probabilities, scores"),
        ({"sigma": None}, "plan.*sigma="),
        ({"numerics": Numerics(), "plan": CertifyPlan(Gaussian(1.0)), "sigma": None}, "n, seed.*plan"),
    ]:
        with pytest.raises(InvalidValueError, match=message):
            smoothed(
                **{k: v for k, v in ({"n": 2000} | options).items() if not ("plan" in options and k == "n")}
            )


def test_bad_inputs_are_refused():
    for x, message in [
        (np.zeros((0, 2)), r"\(0, 2\)"),
        (np.array([np.nan, 0.0]), r"\bnan\b.*\(0,\)"),
        (np.array([["a", "b"]]), "<U1"),
        (3.0, "float.*float64"),
        ([object()], "list.*object"),
        (np.ma.masked_array([[0.5, 1.0]], mask=[[True, False]]), "masked"),
        ([[0.5, 1.0], [0.5]], "list.*inhomogeneous"),
        (torch.eye(2).to_sparse(), "Tensor.*Sparse"),
        (np.array([1, 2], dtype="m8[s]"), "timedelta64"),
    ]:
        with pytest.raises(InvalidValueError, match=message):
            smoothed().certify(x)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_classifier_that_has_voted_can_be_copied_and_sent(again):
    classifier = smoothed(seed=None)
    before = classifier.certify(np.array([0.5, 0.0]))
    after = again(classifier).certify(np.array([0.5, 0.0]))
    assert (after.seed, after.estimation) == (before.seed, before.estimation)
