"""smoothcert run recertify on a run made by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import create_run, read_run
from smoothcert.smoothing.answers import record_of
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import decide
from smoothcert.tally import Phase, Stream, Tally

PLAN = CertifyPlan(Gaussian(0.5), bound="clopper-pearson", n0=10, n=100, alpha=0.01, seed=0, dimension=1)
VOTES = ((100, 0, 0), (70, 20, 10), (45, 15, 40), (30, 65, 5), (50, 25, 25))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    records = []
    for i, votes in enumerate(VOTES):
        chosen = votes.index(max(votes))
        selection = Tally(Stream(0, i, Phase.SELECTION), 0, 10, tuple(10 * (c == chosen) for c in range(3)))
        estimation = Tally(Stream(0, i, Phase.ESTIMATION), 0, 100, votes)
        records.append(record_of(decide([0.0], PLAN, selection, estimation), i, chosen))
    data = {"name": "made-up", "sha256": "d" * 64, "inputs": 9, "skip": 1}
    create_run(tmp_path / "run", Manifest.of("certify", PLAN.as_json(), {}, data), records)
    return tmp_path / "run"


def refused(*words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "recertify", *words])
    assert caught.value.code == 2


def test_another_bound(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(
        [
            "run",
            "recertify",
            str(run),
            "--bound",
            "two-class",
            "--alpha",
            "0.05",
            "--out",
            str(tmp_path / "new"),
        ]
    )
    shown = capsys.readouterr()
    assert all(part in shown.out for part in ("two-class", "n = 100", "α = 0.05"))
    assert re.search(rf"{run}\D+5\D+9\b", shown.err)
    before, after = read_run(run), read_run(tmp_path / "new")
    assert before.records[4].abstained
    assert not after.records[4].abstained
    plan = replace(PLAN, bound="two-class", alpha=0.05)
    for old, new in zip(before.records, after.records):
        assert old.selection is not None
        assert old.estimation is not None
        assert new.radius == decide([0.0], plan, old.selection, old.estimation).radius
    assert after.manifest.plan.recertified_from["results_sha256"] == results_digest(before.records)


def test_no_change_is_a_check(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "recertify", str(run), "--json", "--out", str(tmp_path / "same")])
    shown = capsys.readouterr()
    assert shown.err == ""
    assert json.loads(shown.out)["results_sha256"] == results_digest(read_run(run).records)
    main(["run", "recertify", str(run), "--quiet", "--out", str(tmp_path / "quiet")])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("option", "before", "value"),
    [
        ("sigma", "0.5", "0.25"),
        ("noise", "gaussian", "uniform"),
        ("n", "100", "200"),
        ("n0", "10", "20"),
        ("seed", "0", "1"),
    ],
)
def test_other_votes_are_refused_with_the_reason(
    run: Path, tmp_path: Path, option: str, before: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(str(run), f"--{option}", value, "--out", str(tmp_path / "new"))
    assert re.search(rf" {option} .* {before} .* {value}\b", capsys.readouterr().err)
    assert not (tmp_path / "new").exists()


def test_other_refusals(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(str(run), "--bound", "hoeffding", "--out", str(tmp_path / "new"))
    assert "--bound hoeffding" in capsys.readouterr().err
    refused(str(run), "--alpha", "1", "--out", str(tmp_path / "new"))
    assert re.search(r"alpha.*\b1\.0\b", capsys.readouterr().err)
    refused(str(run), "--out", str(run))
    errors = capsys.readouterr().err
    assert f"{run} " in errors
    assert "--out" in errors
    assert not (tmp_path / "new").exists()
    log = tmp_path / "log.tsv"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n")
    main(["run", "import", str(log), "--sigma", "0.5", "--out", str(tmp_path / "log")])
    capsys.readouterr()
    refused(str(tmp_path / "log"), "--alpha", "0.1", "--out", str(tmp_path / "new"))
    assert f"{tmp_path / 'log'} " in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_help_offers_only_what_can_change(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "recertify", "--help"])
    shown = capsys.readouterr().out
    assert all(option in shown for option in ("--alpha", "--bound"))
    assert "--sigma" not in shown


def test_bits_that_certify_would_not_give_are_said(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = read_run(run)
    plan = replace(PLAN, bound="mixture", stop=("gain:1%",))
    records = [
        record_of(decide([0.0], plan, record.selection, record.estimation), record.index, record.label)
        for record in source.records
        if record.selection is not None and record.estimation is not None
    ]
    create_run(tmp_path / "gain", source.manifest.stating(plan=plan.as_json()), records)
    words = ["run", "recertify", str(tmp_path / "gain"), "--out"]
    main([*words, str(tmp_path / "same")])
    assert "gain:1%" not in capsys.readouterr().err
    main([*words, str(tmp_path / "new"), "--alpha", "0.2"])
    told = " ".join(capsys.readouterr().err.split())
    assert all(part in told for part in ("gain:1%", "alpha 0.2 ", "alpha 0.01 ", "mixture"))
