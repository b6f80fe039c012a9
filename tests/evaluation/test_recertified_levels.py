"""Recertification of runs with σ levels: other α and bounds for the votes of chooser and levels."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from smoothcert.commands import main
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.evaluation.recertification import as_if_certified, recertify
from smoothcert.runs import Run, read_run
from smoothcert.sigma_levels import ConstantChooser
from smoothcert.verification import verify_run
from tests.levelled_runs import certified, edit_line, lines, write_lines
from tests.runs.sealing import without_checksums


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(certified(tmp_path_factory.mktemp("source") / "run"))


def test_the_same_plan_gives_the_same_bits(source: Run, tmp_path: Path) -> None:
    again = recertify(source, tmp_path / "run")
    assert again.records.digest == source.records.digest
    assert (again.path / "levels.jsonl").read_bytes() == (source.path / "levels.jsonl").read_bytes()
    assert again.manifest.plan.chooser == source.manifest.plan.chooser
    assert verify_run(again.path).report.problems == []


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha": 0.2},
        {"alpha": 1e-6},
        {"bound": "clopper-pearson"},
        {"bound": "mixture-top-two", "alpha": 0.01},
        {"bound": "two-class"},
    ],
)
def test_another_alpha_or_bound_follows_from_the_same_votes(
    source: Run, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Recomputed by verify's own arithmetic, the chooser's share of α included; and back to where it came from."""
    made = recertify(source, tmp_path / "run", **changes)
    assert verify_run(made.path).report.problems == []
    chooser = made.manifest.plan.chooser
    assert chooser is not None
    assert chooser["alpha"] == made.manifest.plan.alpha / 32
    assert made.records.digest != source.records.digest
    back = recertify(made, tmp_path / "back", alpha=0.001, bound="top-two")
    assert back.records.digest == source.records.digest


def test_a_smaller_alpha_never_certifies_more(source: Run, tmp_path: Path) -> None:
    made = recertify(source, tmp_path / "run", alpha=1e-5)
    assert (made.records.radius <= source.records.radius).all()
    assert (made.records.radius < source.records.radius).any()


def test_whether_certifying_so_would_have_cast_these_votes(source: Run, tmp_path: Path) -> None:
    assert not as_if_certified(source, "top-two")
    constant = read_run(certified(tmp_path / "constant", ConstantChooser(1)))
    assert as_if_certified(constant, "top-two")
    made = recertify(constant, tmp_path / "made", alpha=0.01)
    direct = read_run(certified(tmp_path / "direct", ConstantChooser(1), alpha=0.01))
    assert made.records.digest == direct.records.digest


def test_the_command_says_what_it_means(source: Run, tmp_path: Path, capsys: Any) -> None:
    main(["recertify", str(source.path), "--alpha", "0.01", "--out", str(tmp_path / "run")])
    shown = " ".join(capsys.readouterr().err.split())
    assert re.search(r"\balpha 0\.01\b.*chooser.*\balpha 0\.001\b", shown)


def test_a_bound_of_soft_votes_is_refused(source: Run, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="soft"):
        recertify(source, tmp_path / "run", bound="bernstein")


def altered(source: Run, out: Path) -> Path:
    shutil.copytree(source.path, out)
    return without_checksums(out)


def test_a_line_that_is_missing_or_of_other_votes_is_refused(source: Run, tmp_path: Path) -> None:
    run = altered(source, tmp_path / "missing")
    write_lines(run, {index: line for index, line in lines(run).items() if index != 4})
    with pytest.raises(RunError, match=r"levels\.jsonl.*\b4\b.*missing"):
        recertify(read_run(run), tmp_path / "new")

    run = altered(source, tmp_path / "home")
    edit_line(run, 4, lambda line: line["votes"][0]["estimation"]["counts"].reverse())
    with pytest.raises(RunError, match=r"home.*\b4\b.*levels\.jsonl"):
        recertify(read_run(run), tmp_path / "new")

    run = altered(source, tmp_path / "chooser")
    edit_line(run, 7, lambda line: line["chooser"].update(counts=[0, 0, 1000]))
    with pytest.raises(RunError, match=rf"\b7\b.*{source.records[7].radius:.6g}.*\d\.\d"):
        recertify(read_run(run), tmp_path / "new")

    run = altered(source, tmp_path / "seed")
    edit_line(run, 7, lambda line: line["chooser"].update(seed=3))
    with pytest.raises(RunError, match=r"\b7\b.*\b3\b.*chooser"):
        recertify(read_run(run), tmp_path / "new")
