"""When voting at another level ends: at what the others leave, or where nothing more can come of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothcert.analysis.levels import decided_levels
from smoothcert.runs import Run, read_run
from smoothcert.sigma_levels import LevelEvidence
from smoothcert.smoothing.level_rules import Enough
from smoothcert.stopping.voting_state import VotingState
from smoothcert.tally import Phase, Stream, Tally
from tests.conftest import BuildOnce
from tests.levelled_runs import certified
from tests.stopping.states import told

N = 2000


@pytest.fixture(scope="module")
def run(build_once: BuildOnce) -> Run:
    return read_run(build_once("level-rules-run", lambda path: certified(path, n=N)))


@pytest.fixture(scope="module")
def evidence(run: Run) -> list[LevelEvidence]:
    found = decided_levels(run)
    assert found is not None
    return found


def state(radius: float, votes: int = 64, full: float = 1.0) -> VotingState:
    """A unanimous vote that is worth ``radius`` now and ``full`` at the end."""
    tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, votes, (votes, 0))
    return VotingState(0, None, N, tally, radius, lambda cast: full if cast.n > votes else radius)


def test_enough_useless_or_not_yet() -> None:
    rule = Enough(0.5, 0.2)
    assert rule.reason(state(0.4)) is None
    assert told(rule.reason(state(0.5))) == ("enough", [0.5])
    assert told(rule.reason(state(0.1, full=0.15))) == ("useless", [0.2])
    assert rule.reason(state(0.1, full=0.3)) is None
    assert Enough(0.5, 0.0).reason(state(0.0, full=0.0)) is not None


def test_a_level_that_falls_short_of_the_others_gets_all_its_votes(evidence: list[LevelEvidence]) -> None:
    """Its radius is the answer's: ending where the others' radius is hopeless would leave that of the first votes."""
    one = evidence[6]  # far from the border between classes, on that between levels 0 and 1
    (other,) = one.votes[1:]
    assert (one.home, other.level, one.limit) == (1, 0, "level")
    assert other.estimation.n == N
    assert one.radii[0] > 0.6  # 0.27 after the first block


def test_a_level_within_reach_of_the_chooser_only_gets_few(evidence: list[LevelEvidence]) -> None:
    """Where the median can't come to a level within more than it can certify, its votes end at the first look."""
    one = evidence[7]
    assert one.limit == "chooser"
    for other in one.votes[1:]:
        assert one.reaches[other.level] > one.radii[other.level]
        assert other.estimation.n < N / 10


def test_levels_that_reach_what_the_others_leave_stop_there(evidence: list[LevelEvidence]) -> None:
    stopped = [vote for one in evidence for vote in one.votes[1:] if told(vote.stopped)[0] == "enough"]
    assert stopped
    assert any(vote.estimation.n < N for vote in stopped)


def test_it_is_the_same_run_however_often(run: Run, tmp_path: Path) -> None:
    assert read_run(certified(tmp_path / "again", n=N)).records.digest == run.records.digest
