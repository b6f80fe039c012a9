"""Curves: exact where they are whole, never above the truth where they are thinned."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.analysis.metrics import certified_accuracy, certified_accuracy_steps, correct_radii, thin
from smoothcert.analysis.report.page import MOST_POINTS, curve_json, histograms_json
from smoothcert.runs.records import Record, step_counts
from tests.analysis.made_runs import made_run


def value_at(radii: Any, counts: Any, radius: float) -> int:
    """What the page reads off: beyond radii[k] and up to radii[k+1] it is counts[k]."""
    return int(counts[max(0, int(np.searchsorted(radii, radius, side="left")) - 1)])


def test_steps_of_a_run_by_hand():
    radii, counts = step_counts(correct_radii(made_run().records))
    assert radii.tolist() == [0, 0, 0.2, 0.5, 1.0]
    assert counts.tolist() == [5, 4, 3, 1, 0]
    _, accuracy = certified_accuracy_steps(made_run().records)
    assert accuracy.tolist() == [5 / 7, 4 / 7, 3 / 7, 1 / 7, 0.0]


@given(
    radii=st.lists(st.floats(0, 5, width=32), max_size=60),
    most=st.integers(3, 20),
    asked=st.lists(st.floats(0, 6), min_size=1, max_size=20),
)
def test_a_thinned_curve_never_lies_above(radii, most, asked):
    ascending = np.sort(np.array(radii, dtype=np.float64))
    whole = step_counts(ascending)
    kept, counts, highest = thin(*whole, most)
    assert len(kept) <= max(most, 3)
    assert np.all(np.diff(counts) <= 0)
    assert counts[0] == len(radii)
    assert counts[-1] == 0
    for radius in [*asked, *radii]:
        true = int(np.count_nonzero(ascending >= radius))
        assert value_at(*whole, radius) == true
        assert value_at(kept, counts, radius) <= true <= value_at(kept, highest, radius)


def test_ten_thousand_jumps_lose_a_fifth_of_a_point_at_most():
    radii = np.sort(np.random.default_rng(0).random(10_000))
    kept, counts, _ = thin(*step_counts(radii), MOST_POINTS)
    assert len(kept) <= MOST_POINTS
    lost = [np.count_nonzero(radii >= r) - value_at(kept, counts, r) for r in np.linspace(0, 1, 777)]
    assert min(lost) >= 0
    assert max(lost) <= 21


def test_the_embedded_curve_and_histograms():
    generator = np.random.default_rng(1)
    records = tuple(
        Record(i, 0, int(generator.random() < 0.2), generator.random(), 0.5, 1.0) for i in range(3000)
    )
    found = curve_json(made_run(records=records))
    assert len(found["radii"]) <= MOST_POINTS
    assert found["jumps"] > MOST_POINTS
    radii = np.linspace(0, 1.1, 500).tolist()
    for radius, accuracy in zip(radii, certified_accuracy(records, radii)):
        assert value_at(found["radii"], found["counts"], radius) / 3000 <= accuracy
    for low, count, high in zip(found["low"], found["counts"], found["high"]):
        assert low <= count / 3000 <= high
    found = histograms_json(made_run(), 3.0)
    assert sum(found["right"]) == 5
    assert sum(found["wrong"]) == 1
    assert found["wrong"][-1] == 1
    assert found["shares"] is None
