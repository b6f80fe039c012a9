"""The time model against numbers worked out by hand."""

from __future__ import annotations

import pytest

from smoothcert.evaluation.costs import BYTES_OF_A_RUN, Pace, Work, bytes_on_disk, padded
from smoothcert.sampling.numerics import Layout

LARGE = Layout(chunk=8, block=64)  # a block takes eight passes
SMALL = Layout(chunk=256, block=64)  # four inputs' blocks share a pass


@pytest.mark.parametrize(
    ("layout", "votes", "rows"),
    [(LARGE, 1, 8), (LARGE, 100, 104), (LARGE, 64, 64), (SMALL, 1, 64), (SMALL, 100, 128), (SMALL, 256, 256)],
)
def test_draws_are_padded_to_whole_passes_or_to_blocks_that_share_one(
    layout: Layout, votes: int, rows: int
) -> None:
    assert padded(layout, votes) == rows


def test_work_by_hand() -> None:
    # 100 votes are 13 passes of 8 rows, 1000 are 125, and one more pass has no noise: 139 for each of 50 inputs.
    work = Work.of(LARGE, 50, [(1.0, 100), (1.0, 1000)])
    assert work == Work(inputs=50, votes=55_000, rows=50 * 139 * 8, passes=50 * 139)
    # Half of the inputs draw 64 votes, the other half none: 32 rows for an average one, and 256 without noise.
    assert Work.of(SMALL, 10, [(0.5, 64)]) == Work(10, 320, 10 * 288, 10 * 288 / 256)


def test_time_by_hand() -> None:
    work = Work.of(LARGE, 50, [(1.0, 100), (1.0, 1000)])  # 55 600 rows
    assert Pace(5560.0).seconds(work) == 10.0
    assert Pace(5560.0, start_seconds=2.5).seconds(work) == 12.5
    written = Pace(5560.0, start_seconds=1.0, record_seconds=0.1)  # 5 s of records hide behind 10 s of votes
    assert (written.seconds(work), written.bottleneck(work)) == (11.0, "votes")
    slow = Pace(5560.0, start_seconds=1.0, record_seconds=0.5)
    assert (slow.seconds(work), slow.bottleneck(work)) == (26.0, "records")


def test_time_grows_with_votes_and_shrinks_with_workers() -> None:
    one = Work.of(LARGE, 10, [(1.0, 6400)])
    four = Work.of(LARGE, 10, [(1.0, 4 * 6400)])
    assert Pace(100.0).seconds(four) == pytest.approx(4 * Pace(100.0).seconds(one), rel=0.01)
    assert Pace(400.0).seconds(four) == Pace(100.0).seconds(four) / 4


def test_disk_is_by_records_and_classes() -> None:
    assert bytes_on_disk(0, 10) == BYTES_OF_A_RUN
    assert bytes_on_disk(1000, 10) == bytes_on_disk(1000, 2)
    assert bytes_on_disk(1000, 1000) > 5 * bytes_on_disk(1000, 10)
