"""Statements: typed fields that may be unknown, and JSON that comes back as it was."""

import re

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError, RunError
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.perturb.uniform import Uniform
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.statement import DataStatement, PlanStatement, save_sigmas
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.search.base import SEARCHES

PLANS = [
    CertifyPlan(Gaussian(0.5), seed=0),
    CertifyPlan(Uniform(0.25), "clopper-pearson", 7, 900, 0.01, 2**80, Numerics("float64", "eager", 64, 256)),
    CertifyPlan(Gaussian(0.5), seed=1, levels=255, dimension=784),
    CertifyPlan(Gaussian(0.5), seed=1, stop=("decide:0.5", "wrong")),
    CertifyPlan(Gaussian(0.5), seed=1, stop=("pilot:1%",)),
    CertifyPlan(Gaussian(0.5), seed=1, n=1000, stop=("total:90000,100",)),
    CertifyPlan(DiagonalGaussian(np.array([0.25, 0.5, 1.0])), seed=1, dimension=3),
    *(CertifyPlan(Gaussian(0.5), seed=3, search=SEARCHES[name]()) for name in SEARCHES),
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.noise.name} {plan.stops} {plan.search}"[:60])
def test_a_plan_comes_back_from_what_it_states(plan, tmp_path):
    plan = plan.for_shape((3,)) if plan.dimension is None else plan
    save_sigmas(tmp_path, plan.noise)
    again = CertifyPlan.from_statement(PlanStatement(plan.as_json()), tmp_path)
    assert again == plan
    assert again.as_json() == plan.as_json()


def test_a_search_that_is_not_registered_here_is_left_out(tmp_path):
    stated = CertifyPlan(Gaussian(0.5), seed=0, search=SEARCHES["ladder"](), dimension=3).as_json()
    plan = PlanStatement(stated | {"sigma_search": "somebody's"})
    assert CertifyPlan.from_statement(plan, tmp_path).search is None
    # A knob of an earlier version takes no part.
    old = PlanStatement(stated | {"sigma_search.gone": 3})
    assert CertifyPlan.from_statement(old, tmp_path).search == SEARCHES["ladder"]()
    for odd in ("4", None, True, [4.0], {}):
        edited = PlanStatement(stated | {"sigma_search.factor": odd})
        with pytest.raises(InvalidValueError, match=rf"sigma_search\.factor.*{re.escape(repr(odd))}"):
            CertifyPlan.from_statement(edited, tmp_path)


def test_what_is_unknown_is_none_and_says_so_where_it_is_needed():
    plan = PlanStatement({"n": None, "alpha": 0.001, "later": [1, {"deep": None}]})
    assert (plan.n, plan.n0, plan.alpha) == (None, None, 0.001)
    assert plan.has(PlanStatement.n)
    assert not plan.has(PlanStatement.n0)
    assert plan.known(PlanStatement.alpha) == 0.001
    with pytest.raises(RunError, match=r"plan\.n0"):
        plan.known(PlanStatement.n0)
    assert plan.as_json() == {"n": None, "alpha": 0.001, "later": [1, {"deep": None}]}
    assert plan.but(n=5).as_json() == plan.as_json() | {"n": 5}
    assert plan.n is None


def test_what_cannot_be_right_is_refused():
    for stated, named in [
        ({"alpha": 1}, r"plan\.alpha.*\b1\b"),
        ({"alpha": "0.001"}, r'plan\.alpha.*"0\.001"'),
        ({"n": True}, r"plan\.n\b.*\btrue\b"),
        ({"n": 0}, r"plan\.n\b.*\b0\b"),
        ({"sigma": -0.5}, r"plan\.sigma.*-0\.5"),
        ({"sigma": float("nan")}, r"plan\.sigma"),
        ({"other": float("inf")}, r"plan\.other.*\binf\b"),
        ({"stop": ["decide:1"]}, r"plan\.stop.*\bn\b"),
        ({"stop": [3], "n": 1}, r"plan\.stop.*\[3\]"),
        ({"chunk": 2.5}, r"plan\.chunk.*2\.5"),
    ]:
        with pytest.raises(ValueError, match=named):
            PlanStatement(stated)


def test_inputs_asked_for():
    for stated, asked in [
        ({"planned": 3, "skip": 10}, [0, 10, 20]),
        ({"planned": [4, 1]}, [1, 4]),
        ({"planned": 3, "skip": 10, "inputs": 25}, [0, 10, 20]),
        ({"planned": 4, "skip": 10, "inputs": 25}, None),  # there aren't as many
        ({"planned": None}, None),
        ({"planned": "all"}, None),
        ({}, None),
    ]:
        found = DataStatement(stated).asked_for
        assert (None if found is None else list(found)) == asked


def test_a_manifest_comes_back_and_keeps_its_seal():
    manifest = Manifest.of(
        "certify", PLANS[2].as_json(), {"name": "m", "order": [1, 0]}, {"planned": 5}, {"torch": "2"}, "now"
    )
    again = Manifest.from_json(manifest.as_json())
    assert again == manifest
    assert again.seal == manifest.seal
    other = manifest.stating(plan=manifest.plan.but(n=7), origin={"model": "x"})
    assert (other.plan.n, other.origin.model, other.data) == (7, "x", manifest.data)
    assert other.seal != manifest.seal
    assert manifest.stating(origin={"model": "x"}).seal == manifest.seal
