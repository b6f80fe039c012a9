"""The benchmark that compares choosers on taped votes: what it reads off a tape is what the library would find."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import levels
from benchmarks.level_tapes import Shelf, Tape, TapedClassifier

from smoothcert.sampling import adapt
from smoothcert.sigma_levels import ConstantChooser, StatisticChooser
from smoothcert.smoothing.level_plans import stage_seed
from smoothcert.smoothing.levelled import LevelledClassifier
from smoothcert.tally import Phase
from tests.level_fit.toys import Half, pictures

SIGMAS = (0.5, 1.0, 2.0)
PLAN = {"sigmas": SIGMAS, "n0": 20, "n": 700, "seed": 3, "chooser_n": 400}


def inputs():
    data = pictures(12)
    return [(index, data.input(index)) for index in range(12)]


@pytest.mark.parametrize("edges", [(1.8, 2.2), (1.9, 2.1)])
def test_a_taped_classifier_certifies_what_the_librarys_does(edges, tmp_path: Path) -> None:
    chooser, shelf = StatisticChooser("mean", edges), Shelf(tmp_path)
    plain = LevelledClassifier([adapt(Half(), "hard")], chooser, **PLAN)
    expected = {one.index: one for one in plain.certify_each(inputs())}
    for again in (shelf, shelf, Shelf(tmp_path)):  # cast, from memory, from disk
        taped = TapedClassifier([adapt(Half(), "hard")], chooser, **PLAN)
        taped.shelf = again
        found = list(taped.certify_each(inputs()))
        assert len(found) == 12
        for one in found:
            other = expected[one.index]
            assert (one.predicted, one.radius) == (other.predicted, other.radius)
            assert one.levels == other.levels
    assert any(len(one.levels.votes) > 1 for one in expected.values())


def test_a_fixed_level_has_that_levels_tape(tmp_path: Path) -> None:
    shelf = Shelf()
    on_every_grid = [(index, np.round(x * 255 / 8) * 8 / 255) for index, x in inputs()]
    taped = TapedClassifier([adapt(Half(), "hard")], StatisticChooser("mean", (-9.0, 9.0)), **PLAN)
    taped.shelf = shelf
    list(taped.certify_each(on_every_grid))  # the mean is never beyond ±9: level 1 is everybody's home
    casts = len(shelf.tapes)
    constant = TapedClassifier(
        [adapt(Half(), "hard")], ConstantChooser(1), **PLAN | {"seed": stage_seed(3, "level 1")}
    )
    constant.shelf = shelf
    list(constant.certify_each(on_every_grid))
    assert len(shelf.tapes) == casts


def test_a_tape_is_cut_where_votes_were_counted() -> None:
    tape = Tape(0, 0, "", 64, np.array([3, 2]), np.array([[0, 0], [60, 4], [90, 10]]))
    assert tape.tally(Phase.ESTIMATION, 64, 100).counts == (30, 6)
    assert tape.tally(Phase.SELECTION, 0, 5).counts == (3, 2)
    with pytest.raises(ValueError, match=r"\b0\b.*\b70\b"):
        tape.tally(Phase.ESTIMATION, 0, 70)


@pytest.mark.slow
@pytest.mark.parametrize("chooser", ["spread:0.4", "confidence:0.5"])
def test_the_table(
    digits_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    chooser: str,
) -> None:
    words = [
        digits_model,
        *("--sigma-levels", "0.12", "0.25"),
        *("--chooser", chooser, "--chooser-sigma", "0.25"),
    ]
    words += ["--n", "300", "--skip", "60", "--json", tmp_path / "levels.json"]
    monkeypatch.setattr(sys, "argv", ["levels", *map(str, words)])
    levels.main()
    shown = capsys.readouterr().out
    rows = {row["name"]: row for row in json.loads((tmp_path / "levels.json").read_text())["rows"]}
    assert all(name in shown for name in rows)
    fixed = np.array([rows["σ = 0.12"]["radii"], rows["σ = 0.25"]["radii"]])
    assert np.array_equal(rows["best level of each input"]["radii"], fixed.max(axis=0))
    known = np.array(rows["the median's levels alone"]["radii"])
    assert (np.array(rows["median"]["radii"]) <= known).all()
    assert (np.isin(known, fixed)).all()
    assert sum(rows["the same with a memory"]["notes"]["answers"].values()) == len(known)
    for name in ("median", "majority (dual smoothing)", "σ frozen at each input (DS)"):
        assert (np.array(rows[name]["radii"]) <= fixed.max(axis=0)).all()
    assert sum(rows["median"]["notes"]["homes"]) == pytest.approx(1.0)
