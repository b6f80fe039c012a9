"""Speed is measured until it means something, a pilot says what stop rules will ask for, and time follows by hand."""

import threading

import numpy as np
import pytest

from smoothcert import Execution, SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.evaluation.planning import (
    BYTES_OF_A_RUN,
    Pace,
    Work,
    bytes_on_disk,
    fixed_draws,
    local,
    measured_rate,
    paced,
    padded,
    piloted,
    work_of,
)
from smoothcert.models.numerics import Layout, Numerics
from smoothcert.runs.statement import Choice


class FakeClock:
    """A machine of a fixed speed, with a warm-up."""

    def __init__(self, rate: float, cold: float = 5.0) -> None:
        self.rate, self.cold, self.now = rate, cold, 0.0
        self.asked: list[int] = []

    def __call__(self) -> float:
        return self.now

    def cast(self, votes: int) -> float:
        self.asked.append(votes)
        self.now += self.cold + votes / self.rate
        self.cold = 0.0
        return votes


def test_the_rate_is_measured_over_a_while_and_without_the_warm_up():
    for rate in (3.0, 1000.0, 1e6, 1e12):
        clock = FakeClock(rate)
        assert measured_rate(clock.cast, 64, least=1.0, clock=clock) == pytest.approx(rate)
        assert clock.asked[0] == clock.asked[1] == 64
        assert clock.asked[-1] / rate >= 1.0
        assert len(clock.asked) < 12
        assert clock.asked[-1] <= max(64, 64 * rate)  # no longer than needed


def test_a_clock_that_stands_still_ends_all_the_same():
    clock, calls = FakeClock(1.0, cold=0.0), []

    def cast(votes: int) -> float:
        calls.append(votes)
        clock.now += 2.0 if len(calls) > 5 else 0.0
        return votes

    assert measured_rate(cast, 1, clock=clock) == calls[-1] / 2.0


def test_speed_is_measured_with_threads_of_this_machine(monkeypatch):
    monkeypatch.setattr("smoothcert.evaluation.planning.usable_cores", lambda: 2)
    asked = Execution(workers=64, backend="ray", address="10.0.0.1:6379", gpus_per_worker=1)
    assert local(asked) == Execution(workers=2)
    assert local(Execution(workers=1, backend="processes")) == Execution(workers=1)


def data() -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    return Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("left", "right"))


def half_space(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > 0).astype(np.int64)


def smoothed(**options: object) -> SmoothedClassifier:
    given = {"sigma": 0.5, "n": 4000, "outputs": "labels", "classes": 2, "seed": 0} | options
    return SmoothedClassifier(half_space, numerics=Numerics("float32", "eager", 256, 64), **given)


def test_without_rules_the_draws_are_the_plans():
    classifier = smoothed()
    plan = classifier.prepare((3,))
    assert fixed_draws(plan, 40) == ((1.0, 100), (1.0, 4000))
    total = smoothed(stop=("total:1000000",)).prepare((3,))
    assert fixed_draws(total, 40) == ((1.0, 25_000),)


def test_workers_elsewhere_are_as_fast_as_those_here(monkeypatch):
    monkeypatch.setattr("smoothcert.evaluation.planning.measured_rate", lambda cast, first: 100.0)
    monkeypatch.setattr("smoothcert.evaluation.planning.usable_cores", lambda: 2)
    inputs = list(data().each(range(4)))
    for asked, rate in (
        (Execution(workers=64, backend="ray"), 3200.0),
        (Execution(workers=64), 100.0),  # threads beyond the cores bring nothing
        (Execution(workers=2), 100.0),
    ):
        assert paced(smoothed(execution=asked), inputs, 0.5).rows_per_second == rate


@pytest.mark.parametrize("stop", ["pilot:1%", "decide:0.25", "wrong"])
def test_the_pilot_foretells_what_the_rules_take(stop, tmp_path):
    classifier, inputs = smoothed(stop=(stop,)), data()
    classifier.settle_for(inputs.levels, inputs.largest)
    found = piloted(classifier, inputs, list(inputs.each(range(0, 40, 4))), Pace(1e6))
    assert (found.inputs, found.votes) == (10, 1000)
    plan = classifier.prepare((3,))
    forecast = work_of(plan, 40, found.draws).votes
    run = certify_dataset(classifier, inputs, tmp_path / "run", Choice())
    cast = (
        sum(tally.n for one in run.records for tally in (one.selection, one.estimation) if tally is not None)
        + len(run.records) * plan.budget.pilot_votes
    )
    assert forecast == pytest.approx(cast, rel=0.35)  # ten inputs stand for forty


def test_a_slow_model_gets_few_pilot_votes_and_no_thread_stays():
    classifier, inputs = smoothed(stop=("pilot:1%",)), data()
    classifier.settle_for(inputs.levels, inputs.largest)
    before = threading.active_count()
    some = list(inputs.each(range(4)))
    slow = piloted(classifier, inputs, some, Pace(2.0))
    assert slow.votes == 64
    assert slow == piloted(classifier, inputs, some, Pace(2.0)), "the forecast is the same every time"
    assert threading.active_count() == before


LARGE = Layout(chunk=8, block=64)  # a block takes eight passes
SMALL = Layout(chunk=256, block=64)  # four inputs' blocks share a pass


def test_work_by_hand():
    for layout, votes, rows in (
        (LARGE, 1, 8), (LARGE, 100, 104), (LARGE, 64, 64),
        (SMALL, 1, 64), (SMALL, 100, 128), (SMALL, 256, 256),
    ):  # fmt: skip
        assert padded(layout, votes) == rows  # whole passes, or blocks that share one
    # 100 votes are 13 passes of 8 rows, 1000 are 125, and one more pass has no noise: 139 for each of 50 inputs.
    work = Work.of(LARGE, 50, [(1.0, 100), (1.0, 1000)])
    assert work == Work(inputs=50, votes=55_000, rows=50 * 139 * 8, passes=50 * 139)
    # Half of the inputs draw 64 votes, the other half none: 32 rows for an average one, and 256 without noise.
    assert Work.of(SMALL, 10, [(0.5, 64)]) == Work(10, 320, 10 * 288, 10 * 288 / 256)


def test_time_by_hand():
    work = Work.of(LARGE, 50, [(1.0, 100), (1.0, 1000)])  # 55 600 rows
    assert Pace(5560.0).seconds(work) == 10.0
    assert Pace(5560.0, start_seconds=2.5).seconds(work) == 12.5
    written = Pace(5560.0, start_seconds=1.0, record_seconds=0.1)  # 5 s of records hide behind 10 s of votes
    assert (written.seconds(work), written.bottleneck(work)) == (11.0, "votes")
    slow = Pace(5560.0, start_seconds=1.0, record_seconds=0.5)
    assert (slow.seconds(work), slow.bottleneck(work)) == (26.0, "records")


def test_costs_grow_with_votes_and_records_and_shrink_with_workers():
    one = Work.of(LARGE, 10, [(1.0, 6400)])
    four = Work.of(LARGE, 10, [(1.0, 4 * 6400)])
    assert Pace(100.0).seconds(four) == pytest.approx(4 * Pace(100.0).seconds(one), rel=0.01)
    assert Pace(400.0).seconds(four) == Pace(100.0).seconds(four) / 4
    assert bytes_on_disk(0, 10) == BYTES_OF_A_RUN
    assert bytes_on_disk(1000, 10) == bytes_on_disk(1000, 2)
    assert bytes_on_disk(1000, 1000) > 5 * bytes_on_disk(1000, 10)
