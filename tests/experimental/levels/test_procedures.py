"""When voting at another level ends, and the evidence beside a run: written whole, read back, and damage left out."""

from dataclasses import replace

import pytest

from smoothcert.analysis.overview import decided_levels
from smoothcert.experimental.levels.procedures import Enough
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.side_files import LevelEvidence, LevelVotes, append_evidence, read_evidence
from smoothcert.smoothing.stopping.forecasts import VotingState
from smoothcert.tally import Phase, Stream, Tally
from tests.levelled_runs import certified
from tests.smoothing.stopping.states import told

N = 2000


@pytest.fixture(scope="module")
def run(build_once) -> Run:
    return read_run(build_once("level-rules-run", lambda path: certified(path, n=N)))


@pytest.fixture(scope="module")
def evidence(run) -> list[LevelEvidence]:
    return decided_levels(run)


def state(radius: float, votes: int = 64, full: float = 1.0) -> VotingState:
    """A unanimous vote that is worth ``radius`` now and ``full`` at the end."""
    tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, votes, (votes, 0))
    return VotingState(0, None, N, tally, radius, lambda cast: full if cast.n > votes else radius)


def test_enough_useless_or_not_yet():
    rule = Enough(0.5, 0.2)
    assert rule.reason(state(0.4)) is None
    assert told(rule.reason(state(0.5))) == ("enough", [0.5])
    assert told(rule.reason(state(0.1, full=0.15))) == ("useless", [0.2])
    assert rule.reason(state(0.1, full=0.3)) is None
    assert Enough(0.5, 0.0).reason(state(0.0, full=0.0)) is not None


def test_a_level_that_falls_short_of_the_others_gets_all_its_votes(evidence):
    """Its radius is the answer's: ending where the others' radius is hopeless would leave that of the first votes."""
    one = evidence[6]  # far from the border between classes, on that between levels 0 and 1
    (other,) = one.votes[1:]
    assert (one.home, other.level, one.limit) == (1, 0, "level")
    assert other.estimation.n == N
    assert one.radii[0] > 0.6  # 0.27 after the first block


def test_a_level_within_reach_of_the_chooser_only_gets_few(evidence):
    """Where the median can't come to a level within more than it can certify, its votes end at the first look."""
    one = evidence[7]
    assert one.limit == "chooser"
    for other in one.votes[1:]:
        assert one.reaches[other.level] > one.radii[other.level]
        assert other.estimation.n < N / 10


def test_levels_that_reach_what_the_others_leave_stop_there(evidence):
    stopped = [vote for one in evidence for vote in one.votes[1:] if told(vote.stopped)[0] == "enough"]
    assert stopped
    assert any(vote.estimation.n < N for vote in stopped)


def test_it_is_the_same_run_however_often(run, tmp_path):
    assert read_run(certified(tmp_path / "again", n=N)).records.digest == run.records.digest


def tally(phase: Phase, *counts: int, seed: int = 7, index: int = 4) -> Tally:
    return Tally(Stream(seed, index, phase), 0, sum(counts), counts)


EVIDENCE = LevelEvidence(
    4,
    1,
    tally(Phase.SELECTION, 1, 8, 1),
    tally(Phase.ESTIMATION, 10, 80, 10),
    (
        LevelVotes(1, tally(Phase.SELECTION, 9, 1), tally(Phase.ESTIMATION, 95, 5)),
        LevelVotes(
            0, tally(Phase.SELECTION, 9, 1), tally(Phase.ESTIMATION, 64, 0), "decided: radius at least 0.4"
        ),
    ),
)


def test_what_is_written_comes_back(tmp_path):
    constant = replace(EVIDENCE, index=5, chosen=None, chooser=None, votes=EVIDENCE.votes[:1])
    for one in (EVIDENCE, constant):
        append_evidence(tmp_path, one)
    assert read_evidence(tmp_path) == {4: EVIDENCE, 5: constant}
    assert EVIDENCE.n == 10 + 100 + 10 + 100 + 10 + 64
    assert EVIDENCE.certified == (0, 1)


def test_lines_that_were_cut_or_changed_are_left_out(tmp_path):
    append_evidence(tmp_path, EVIDENCE)
    append_evidence(tmp_path, replace(EVIDENCE, index=6))
    path = RunFiles(tmp_path).levels
    lines = path.read_text().splitlines()
    path.write_text(lines[0].replace("95", "96") + "\n" + lines[1][:-9] + "\n")
    assert read_evidence(tmp_path) == {}


def test_what_limits_a_radius():
    for reaches, radii, limit in [
        ((0.9, 0.0, 0.9), (0.0, 0.4, 0.0), "home"),
        ((0.1, 0.0, 0.9), (0.3, 0.4, 0.0), "level"),
        ((0.3, 0.0, 0.9), (0.1, 0.4, 0.0), "chooser"),
    ]:
        assert replace(EVIDENCE, reaches=reaches, radii=radii).limit == limit
