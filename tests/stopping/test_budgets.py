"""Budgets: how they are written, and that they are no stop rules: they settle n before the first vote."""

from __future__ import annotations

import pytest
from scipy.special import ndtri

from smoothcert import CertifyPlan, Gaussian
from smoothcert.bounds import clopper_pearson_lower
from smoothcert.errors import InvalidValueError
from smoothcert.smoothing import stopping_procedure
from smoothcert.stopping import (
    BUDGETS,
    STOP_RULES,
    Budget,
    FixedVotes,
    Pilot,
    RadiusForecast,
    Total,
    Wrong,
    budget_among,
    parse_stop,
    parse_stops,
    stop_rules,
)
from smoothcert.tally import Phase, Stream, Tally

EXAMPLES = [
    ("budget", FixedVotes()),
    ("pilot:1%", Pilot(0.01)),
    ("pilot:2.5%,500", Pilot(0.025, 500)),
    ("total:5000000", Total(5_000_000)),
    ("total:5000000,300", Total(5_000_000, 300)),
]


@pytest.mark.parametrize(("text", "budget"), EXAMPLES)
def test_texts_and_budgets_are_each_others_inverse(text: str, budget: Budget) -> None:
    assert parse_stop(text) == budget
    assert budget.text == text


def test_every_budget_is_tested_above_and_none_is_a_stop_rule() -> None:
    assert BUDGETS.names() == sorted({budget.name for _, budget in EXAMPLES})
    assert not set(BUDGETS) & set(STOP_RULES)
    assert not any(hasattr(BUDGETS[name], "reason") for name in BUDGETS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pilot:1%,0", "integer of at least 1, got 0"),
        ("pilot:1%,1.5", "whole number, got '1.5'"),
        ("pilot:100%", "percentage between 0 and 100, got 100%"),
        ("pilot", "pilot needs a percentage, got ''; write for example pilot:1%"),
        ("total:0", "integer of at least 1"),
        ("total:", "total needs a number, got ''; write for example total:50000000,500"),
        ("budget:5", "budget takes no value, got '5'; write budget"),
        ("pilt:1%", "Did you mean 'pilot'"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        parse_stop(text)


@pytest.mark.parametrize(("text", "budget"), EXAMPLES)
def test_a_plan_tells_rules_from_its_budget_and_states_both_in_order(text: str, budget: Budget) -> None:
    for stop in ((text, "wrong"), ("wrong", text)):
        plan = CertifyPlan(Gaussian(0.5), n=1000, stop=stop)
        assert plan.stop_rules == (Wrong(),) == stop_rules(plan.stops)
        assert plan.budget == budget == budget_among(plan.stops)
        assert plan.as_json()["stop"] == [each for each in stop if each != "budget"]
        assert parse_stops(plan.as_json()["stop"]) == plan.stops
        assert not plan.sequential
        assert plan.bound == "two-class", "n is settled before the votes: the fixed-n bound holds"


@pytest.mark.parametrize(("text", "budget"), EXAMPLES)
def test_the_contract(text: str, budget: Budget) -> None:
    """What an input can get at most is what plans allow; who shares votes looks at pilots first."""
    plan = CertifyPlan(Gaussian(0.5), n=1000, stop=(budget,))
    assert plan.most_votes == budget.most_votes(1000) >= 1000
    assert plan.allows_votes(plan.most_votes)
    assert not plan.allows_votes(plan.most_votes + 1)
    assert plan.allows_votes(500) == (budget.pilot_votes > 0)
    assert budget.spreads == (budget.shared_votes is not None)
    assert budget.pilot_votes > 0 or not budget.spreads
    if budget.pilot_votes and not budget.spreads:
        tally = Tally(Stream(0, 0, Phase.PILOT), 0, budget.pilot_votes, (budget.pilot_votes, 0))
        forecast = RadiusForecast(lambda votes: _radius(votes.counts[0], votes.n))
        assert 1 <= budget.choose(forecast, tally, 0, 1000, 64) <= budget.most_votes(1000)


def test_a_total_that_pilots_use_up_is_refused_and_others_suffice_for_any_data_set() -> None:
    Total(1101, 1000).check_inputs(1, 100)
    with pytest.raises(InvalidValueError, match="1100 votes in all leave none to certify with"):
        Total(1100, 1000).check_inputs(1, 100)
    for budget in (FixedVotes(), Pilot()):
        budget.check_inputs(10**9, 100)


def test_a_budget_for_a_data_set_says_nothing_of_one_input() -> None:
    with pytest.raises(InvalidValueError, match="total:5000 spreads votes over a whole data set"):
        stopping_procedure([0.0], CertifyPlan(Gaussian(0.5), stop=("total:5000",)))
    with pytest.raises(InvalidValueError, match="doesn't choose the votes of one input"):
        Total(5000).choose(
            RadiusForecast(lambda _: 0.0), Tally(Stream(0, 0, Phase.PILOT), 0, 1, (1,)), 0, 9, 1
        )


def _radius(count: int, n: int) -> float:
    lower = clopper_pearson_lower(count, n, 0.001)
    return max(0.0, float(ndtri(lower))) if lower > 0.5 else 0.0
