"""Budgets: how they are written, and that they are no stop rules: they settle n before the first vote."""

from __future__ import annotations

import pytest

from smoothcert import CertifyPlan, Gaussian
from smoothcert.errors import InvalidValueError
from smoothcert.smoothing import stopping_procedure
from smoothcert.stopping import (
    Budget,
    FixedVotes,
    Pilot,
    RadiusForecast,
    Total,
    parse_stop,
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


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("pilot:1%,0", r"\bpilot\b.*\b0\b"),
        ("pilot:1%,1.5", r"\bpilot\b.*'1\.5'.*pilot:1%,500"),
        ("pilot:100%", r"\bpilot\b.*\b100%"),
        ("pilot", r"\bpilot\b.*''.*pilot:1%"),
        ("total:0", r"\btotal\b.*\b0\b"),
        ("total:", r"\btotal\b.*''.*total:50000000,500"),
        ("budget:5", r"\bbudget\b.*'5'.*\bbudget\b"),
        ("pilt:1%", "'pilt'.*'pilot'"),
    ],
)
def test_mistakes_are_named(text: str, named: str) -> None:
    with pytest.raises(InvalidValueError, match=named):
        parse_stop(text)


def test_a_total_that_pilots_use_up_is_refused_and_others_suffice_for_any_data_set() -> None:
    Total(1101, 1000).check_inputs(1, 100)
    with pytest.raises(InvalidValueError, match=r"\b1100\b.*total:1100,100"):
        Total(1100, 1000).check_inputs(1, 100)
    for budget in (FixedVotes(), Pilot()):
        budget.check_inputs(10**9, 100)


def test_a_budget_for_a_data_set_says_nothing_of_one_input() -> None:
    with pytest.raises(InvalidValueError, match=r"total:5000.*certify_dataset"):
        stopping_procedure([0.0], CertifyPlan(Gaussian(0.5), stop=("total:5000",)))
    with pytest.raises(InvalidValueError, match="total:5000"):
        Total(5000).choose(
            RadiusForecast(lambda _: 0.0), Tally(Stream(0, 0, Phase.PILOT), 0, 1, (1,)), 0, 9, 1
        )
