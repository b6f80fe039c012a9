"""Overviews: what a run says of itself, by hand, and what it can't say."""

from dataclasses import replace

import numpy as np
import pytest

from smoothcert.analysis.metrics import acr_share_of_top, certified_accuracy, median_radius
from smoothcert.analysis.overview import QUANTILES, by_class, lower_bounds, overview, top_class
from smoothcert.bounds.fixed import clopper_pearson_lower
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.runs.records import Record
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

from .made_runs import FIVE_AND_TWO, made_run

N = 100


def voted(index: int, label: int, votes: tuple[int, ...], predicted: int, radius: float = 0.0) -> Record:
    """Ten selection votes, all for the first class with the most votes, and ``votes`` to estimate."""
    chosen = max(range(len(votes)), key=votes.__getitem__)
    selection = Tally(
        Stream(0, index, Phase.SELECTION), 0, 10, tuple(10 * (c == chosen) for c in range(len(votes)))
    )
    estimation = Tally(Stream(0, index, Phase.ESTIMATION), 0, sum(votes), votes)
    base = label if index else 1 - label
    return Record(index, label, predicted, radius, 0.25, 0.5, selection, estimation, base=base)


VOTED = (
    voted(0, 0, (100, 0, 0), 0, 0.5),
    voted(1, 0, (90, 10, 0), 0, 0.25),
    voted(2, 1, (60, 40, 0), 0, 0.1),
    voted(3, 1, (52, 48, 0), -1),
)


def test_figures_by_hand():
    found = overview(made_run(records=VOTED), [0.0, 0.25, 0.5])
    assert found.radii == (0.0, 0.25, 0.5)
    assert found.summary.accuracy == (0.5, 0.5, 0.25)
    assert found.smoothed_accuracy == 0.5
    assert found.base_accuracy == 0.75
    assert found.noisy_accuracy == pytest.approx((100 + 90 + 40 + 48) / 400)
    assert found.summary.abstained == 0.25
    assert found.median_radius == 0.25
    assert found.acr_share_of_top == pytest.approx(0.5 / 0.75)  # one of four inputs is the top tenth
    assert found.runtime is not None
    assert found.runtime.total_seconds == 2.0
    assert found.runtime.mean_seconds == 0.5
    assert found.runtime.votes_per_second == 4 * 110 / 2.0


def test_classes_without_inputs_have_no_rates_and_all_add_up_to_the_run():
    first, second, third = by_class(VOTED, [0.0, 0.5])
    assert (first.inputs, first.accuracy, first.acr, first.abstained) == (2, (1.0, 0.5), 0.375, 0.0)
    assert (second.inputs, second.accuracy, second.acr, second.abstained) == (2, (0.0, 0.0), 0.0, 0.5)
    assert (third.label, third.inputs, third.accuracy, third.acr, third.abstained) == (2, 0, None, None, None)
    found = overview(made_run(), [0.0, 0.2, 0.3, 0.5, 3.0])
    for k, accuracy in enumerate(found.summary.accuracy):
        assert sum(c.inputs * c.accuracy[k] for c in found.classes if c.accuracy) == pytest.approx(
            7 * accuracy
        )
    assert sum(c.inputs * c.acr for c in found.classes if c.acr) == pytest.approx(7 * found.summary.acr)


def test_the_top_class_is_the_one_chosen_by_other_votes():
    # The class chosen got 48 of 100: the class ahead in the estimation votes would flatter it.
    record = replace(voted(0, 1, (52, 48), -1), selection=Tally(Stream(0, 0, Phase.SELECTION), 0, 10, (2, 8)))
    found = top_class(made_run(records=(record,)))
    assert found is not None
    assert set(found.estimates) == {0.48}
    assert found.at_ceiling == 0.0


def test_quantiles_of_the_top_class_are_values_of_inputs():
    run = made_run(records=VOTED, alpha=0.01)
    found, every = top_class(run), lower_bounds(run)
    assert found is not None
    assert every is not None
    assert every.tolist() == [clopper_pearson_lower(k, N, 0.01) for k in (100, 90, 60, 52)]
    assert found.estimates[QUANTILES.index(0.0)] == 0.52
    assert found.estimates[QUANTILES.index(0.5)] == 0.6
    assert found.estimates[QUANTILES.index(0.75)] == 0.9
    assert found.estimates[QUANTILES.index(1.0)] == 1.0
    assert found.lower_bounds is not None
    assert found.lower_bounds[QUANTILES.index(0.5)] == clopper_pearson_lower(60, N, 0.01)
    assert set(found.lower_bounds) <= set(every.tolist())
    assert found.at_ceiling == 0.25


def test_soft_votes_count_by_their_probabilities():
    sums = (SOFT_UNIT * 3, SOFT_UNIT)
    squares = (SOFT_UNIT * 3, SOFT_UNIT)
    tallies = [
        Tally(Stream(0, 0, phase), 0, 4, (4, 0), sums, squares)
        for phase in (Phase.SELECTION, Phase.ESTIMATION)
    ]
    run = made_run(records=(Record(0, 0, -1, 0.0, 0.25, 1.0, *tallies),), bound="hoeffding")
    found = top_class(run)
    assert found is not None
    assert set(found.estimates) == {0.75}
    assert found.lower_bounds == tuple(lower_bounds(run)[[0] * len(QUANTILES)])  # type: ignore[index]


def test_what_a_log_cannot_say_is_none():
    found = overview(made_run(bound=None, alpha=None), [0.0])
    assert (found.base_accuracy, found.noisy_accuracy, found.top_class) == (None, None, None)
    assert found.runtime is not None
    assert found.runtime.votes_per_second is None
    timeless = tuple(replace(record, seconds=0.0) for record in FIVE_AND_TWO)
    assert overview(made_run(records=timeless), [0.0]).runtime is None
    assert lower_bounds(made_run()) is None
    unstated = top_class(made_run(records=VOTED, bound=None))
    assert unstated is not None
    assert unstated.lower_bounds is None
    records = (*VOTED[:3], replace(VOTED[3], base=None))
    assert overview(made_run(records=records), [0.0]).base_accuracy is None
    empty = made_run(records=())
    for figure in (top_class, lower_bounds, lambda run: overview(run, [0.0])):
        with pytest.raises(RunError, match="made"):
            figure(empty)
    with pytest.raises(RunError):
        by_class([], [0.0])


def test_median_and_share_of_the_top():

    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 10, 31):
        records = [Record(i, 0, int(rng.random() < 0.3), float(rng.random()), 0.25, 1.0) for i in range(size)]
        median = median_radius(records)
        if median:
            assert certified_accuracy(records, [median])[0] >= 0.5
        assert certified_accuracy(records, [np.nextafter(median, 9)])[0] < 0.5
    equal = [Record(i, 0, 0, 0.5, 0.25, 1.0) for i in range(20)]
    assert acr_share_of_top(equal) == pytest.approx(0.1)
    few = [*equal[:1], *(replace(record, radius=0.0) for record in equal[1:])]
    assert acr_share_of_top(few) == 1.0
    assert acr_share_of_top([replace(record, radius=0.0) for record in equal]) is None
    with pytest.raises(InvalidValueError, match=r"fraction.*0\.0"):
        acr_share_of_top(equal, 0.0)


def ended_before_voting(index: int) -> Record:
    """What ``--stop wrong`` leaves: ten selection votes for class 0, none to estimate."""
    record = voted(index, 1, (100, 0, 0), -1)
    none = Tally(Stream(0, index, Phase.ESTIMATION), 0, 0, (0, 0, 0))
    return replace(record, estimation=none, stopped="wrong")


def test_votes_that_chose_a_class_do_not_estimate_it():
    mixed = made_run(records=(*VOTED, ended_before_voting(4), ended_before_voting(5)), alpha=0.01)
    found = top_class(mixed)
    assert found is not None
    assert found.inputs == 4
    assert found == top_class(made_run(records=VOTED, alpha=0.01))
    assert lower_bounds(mixed)[4:].tolist() == [0.0, 0.0]  # type: ignore[index]


@pytest.mark.parametrize("bound", ["clopper-pearson", "hoeffding"])
def test_a_run_without_any_estimation_vote_has_no_spread(bound):
    run = made_run(records=tuple(map(ended_before_voting, range(3))), bound=bound, stop=["wrong"])
    assert overview(run, [0.0]).top_class is None
    assert lower_bounds(run).tolist() == [0.0] * 3  # type: ignore[union-attr]
