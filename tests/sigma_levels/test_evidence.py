"""Evidence beside a run: written whole, read back, and damage left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from smoothcert.runs.layout import RunFiles
from smoothcert.sigma_levels import LevelEvidence, LevelVotes
from smoothcert.sigma_levels.evidence import append_evidence, read_evidence
from smoothcert.tally import Phase, Stream, Tally


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


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    constant = replace(EVIDENCE, index=5, chosen=None, chooser=None, votes=EVIDENCE.votes[:1])
    for one in (EVIDENCE, constant):
        append_evidence(tmp_path, one)
    assert read_evidence(tmp_path) == {4: EVIDENCE, 5: constant}
    assert EVIDENCE.n == 10 + 100 + 10 + 100 + 10 + 64
    assert EVIDENCE.certified == (0, 1)


def test_lines_that_were_cut_or_changed_are_left_out(tmp_path: Path) -> None:
    append_evidence(tmp_path, EVIDENCE)
    append_evidence(tmp_path, replace(EVIDENCE, index=6))
    path = RunFiles(tmp_path).levels
    lines = path.read_text().splitlines()
    path.write_text(lines[0].replace("95", "96") + "\n" + lines[1][:-9] + "\n")
    assert read_evidence(tmp_path) == {}


@pytest.mark.parametrize(
    ("reaches", "radii", "limit"),
    [
        ((0.9, 0.0, 0.9), (0.0, 0.4, 0.0), "home"),
        ((0.1, 0.0, 0.9), (0.3, 0.4, 0.0), "level"),
        ((0.3, 0.0, 0.9), (0.1, 0.4, 0.0), "chooser"),
    ],
)
def test_what_limits_a_radius(reaches: tuple[float, ...], radii: tuple[float, ...], limit: str) -> None:
    assert replace(EVIDENCE, reaches=reaches, radii=radii).limit == limit
