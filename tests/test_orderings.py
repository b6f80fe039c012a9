"""The benchmark that asks whether methods rank as published, on schedules shortened in proportion."""

from __future__ import annotations

import pytest
from benchmarks import orderings

from smoothcert.training import find_recipe


def reduced(method: str, *words: str):
    return orderings._reduced(method, 0, orderings._parser().parse_args(words)).plan


@pytest.mark.parametrize("epochs", [3, 6, 9, 20, 90])
def test_macers_hinge_still_sets_in_with_the_first_drop_of_the_rate(epochs):
    plan = reduced("macer", "--epochs", str(epochs))
    settings = [plan.at(epoch) for epoch in range(epochs)]
    assert [each.objective.lam == 0 for each in settings] == [each.lr == 0.01 for each in settings]
    assert settings[0].objective.lam == 0
    assert settings[-1].objective.lam == 16


@pytest.mark.parametrize("method", orderings.METHODS)
def test_the_full_number_of_epochs_is_the_published_schedule(method):
    published, plan = find_recipe(f"mnist-{method}-0.5").plan, reduced(method, "--epochs", "90")
    assert (plan.ramps, plan.step_epochs, plan.schedule) == (
        published.ramps,
        published.step_epochs,
        published.schedule,
    )
    assert plan.objective == published.objective


def test_macer_is_among_those_that_must_be_above_gaussian():
    assert "macer" in orderings.ABOVE_GAUSSIAN
