"""The benchmark that asks whether methods rank as published, on schedules shortened in proportion."""

from __future__ import annotations

import pytest
from benchmarks import orderings

from smoothcert.analysis.seeds import SeedGroup
from smoothcert.runs import Record
from smoothcert.training import find_recipe

from .analysis.made_runs import made_run


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


def test_differences_are_of_the_same_inputs_and_seeds():
    """Two inputs, two seeds: a method that is .2 and .4 ahead on the first and even on the second."""

    def group(method: str, *radii: tuple[float, float]) -> SeedGroup:
        runs = [
            made_run(f"{method}{k}", tuple(record(i, r) for i, r in enumerate(two)))
            for k, two in enumerate(radii)
        ]
        return SeedGroup(method, 0.5, tuple(runs))

    def record(index: int, radius: float) -> Record:
        return Record(index, 1, 1, radius, 0.5, seconds=0.0)

    gaussian, macer = group("gaussian", (1.0, 0.5), (1.1, 0.5)), group("macer", (1.2, 0.5), (1.5, 0.5))
    row = orderings._comparison(macer, gaussian)
    # Means over seeds are .3 and 0 on the two inputs: sd .3/√2, s. e. .15.
    assert row == ["macer", "+0.150 ± 0.150", "+0.100, +0.200", "+0.032", "yes"]
    assert orderings._comparison(gaussian, macer)[1:3] == ["-0.150 ± 0.150", "-0.100, -0.200"]


def test_macer_is_among_those_that_must_be_above_gaussian():
    assert "macer" in orderings.ABOVE_GAUSSIAN
