"""Logs keep no votes: radii that their own statement rules out are found, and those that printing explains are not."""

import itertools
import json
from pathlib import Path

import pytest

from smoothcert.analysis.evidence import planned_ceiling
from smoothcert.bounds.base import BOUNDS
from smoothcert.cli import main
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import create_run, read_run
from smoothcert_verify import verify_run
from tests.runs.sealing import without_checksums
from tests.verification.runs import certified, figures, messages

HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime"


def imported(folder: Path, radii: list[str], *words: str) -> Path:
    """A log of class 1 with these radii, imported by the command."""
    lines = [f"{k}\t1\t1\t{radius}\t1\t0:00:01" for k, radius in enumerate(radii)]
    (folder / "log.tsv").write_text("\n".join([HEADER, *lines]) + "\n")
    main(["run", "import", str(folder / "log.tsv"), "--out", str(folder / "run"), *words])
    return folder / "run"


STATED = ["--sigma", "0.25", "--bound", "clopper-pearson", "--n", "100", "--alpha", "0.001"]


def test_a_radius_above_what_n_and_alpha_allow(tmp_path):
    run = imported(tmp_path, ["0.37", "0.5", "0.1"], *STATED)
    found = messages(run)
    assert list(found) == [1]
    assert figures(found[1]) == [0.5, 0.375119]
    report = verify_run(run).report
    assert any("1.50048 σ" in words for words in report.verified), report.verified


@pytest.mark.parametrize("missing", ["--bound", "--n", "--alpha"])
def test_without_a_whole_plan_no_radius_is_impossible(tmp_path, missing):
    place = STATED.index(missing)
    run = imported(tmp_path, ["0.37", "0.5"], *STATED[:place], *STATED[place + 2 :])
    assert messages(run) == {}
    assert not any("σ" in words for words in verify_run(run).report.verified), "no ceiling is stated"


def test_printing_may_have_rounded_it_up(tmp_path):
    """The largest is 0.375119: with one digit it is printed as 0.4."""
    (tmp_path / "coarse").mkdir()
    assert messages(imported(tmp_path / "coarse", ["0.4", "0.1"], *STATED)) == {}
    (tmp_path / "fine").mkdir()
    assert list(messages(imported(tmp_path / "fine", ["0.4", "0.125"], *STATED))) == [0]


def test_a_statement_cant_make_its_own_digits_coarser(tmp_path):
    run = imported(tmp_path, ["0.376", "0.1"], *STATED)
    stated = json.loads((without_checksums(run) / "run.json").read_text())
    for digits in (
        {"radius_digits": 1, "radius_decimals": 0},
        {"radius_digits": 10**30, "radius_decimals": "x"},
    ):
        (run / "run.json").write_text(json.dumps(stated | {"data": stated["data"] | digits}))
        assert list(messages(run)) == [0]


def test_the_ceiling_is_the_one_that_certify_has(tmp_path):
    for bound, noise in itertools.product(BOUNDS.names(), ("gaussian", "uniform")):
        plan = {"noise": noise, "sigma": 0.5, "bound": bound, "n": 1500, "n0": 10, "alpha": 0.01}
        about = Manifest.of("import", plan, {}, {"radius_digits": 17, "radius_decimals": 17})
        most = planned_ceiling(about.plan)
        assert most is not None
        records = [Record(k, 1, 1, most * factor, 0.5, 0.1) for k, factor in enumerate((1.0, 1 + 1e-6))]
        create_run(tmp_path / f"{bound}-{noise}", about, records)
        assert list(messages(tmp_path / f"{bound}-{noise}")) == [1], (bound, noise)


def test_each_input_by_its_own_sigma(tmp_path):
    plan = {"noise": "gaussian", "sigma": 0.25, "bound": "clopper-pearson", "n": 100, "alpha": 0.001}
    records = [Record(0, 1, 1, 0.5, 0.5, 0.1), Record(1, 1, 1, 0.5, 0.2, 0.1)]
    create_run(tmp_path / "run", Manifest.of("import", plan, {}, {}), records)
    assert list(messages(tmp_path / "run")) == [1]


def test_an_honest_log_of_few_digits(tmp_path):
    """run export cuts radii: a small one becomes 0, and its class stays."""
    run = certified(tmp_path / "run", sigma=0.1)
    small = Record(0, 1, 1, 0.03, 0.1, 0.1)
    create_run(
        tmp_path / "small", read_run(run).manifest.stating(plan={"noise": "gaussian", "sigma": 0.1}), [small]
    )
    main(["run", "export", str(tmp_path / "small"), "--digits", "1", "--out", str(tmp_path / "log.tsv")])
    main(["run", "import", str(tmp_path / "log.tsv"), "--sigma", "0.1", "--out", str(tmp_path / "again")])
    assert read_run(tmp_path / "again").records[0].radius == 0
    assert messages(tmp_path / "again") == {}


def test_zero_is_explained_by_few_decimals_alone(tmp_path):
    run = imported(tmp_path, ["0.0", "0.12345678901234"], "--sigma", "0.25")
    found = messages(run)
    assert list(found) == [0]
    assert figures(found[0]) == [0.0]
