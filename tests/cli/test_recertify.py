"""smoothcert run recertify on a run made by hand."""

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

from .output import refusal

PLAN = CertifyPlan(Gaussian(0.5), bound="clopper-pearson", n0=10, n=100, alpha=0.01, seed=0, dimension=1)
VOTES = ((100, 0, 0), (70, 20, 10), (45, 15, 40), (30, 65, 5), (50, 25, 25))


@pytest.fixture
def run(tmp_path) -> Path:
    records = []
    for i, votes in enumerate(VOTES):
        chosen = votes.index(max(votes))
        selection = Tally(Stream(0, i, Phase.SELECTION), 0, 10, tuple(10 * (c == chosen) for c in range(3)))
        estimation = Tally(Stream(0, i, Phase.ESTIMATION), 0, 100, votes)
        records.append(record_of(decide([0.0], PLAN, selection, estimation), i, chosen))
    data = {"name": "made-up", "sha256": "d" * 64, "inputs": 9, "skip": 1}
    create_run(tmp_path / "run", Manifest.of("certify", PLAN.as_json(), {}, data), records)
    return tmp_path / "run"


def test_another_bound(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words = ["--bound", "two-class", "--alpha", "0.05", "--out", str(tmp_path / "new")]
    main(["run", "recertify", str(run), *words])
    shown = capsys.readouterr()
    assert all(part in shown.out for part in ("two-class", "n = 100", "α = 0.05"))
    assert re.search(rf"{run}\D+5\D+9\b", shown.err)
    before, after = read_run(run), read_run(tmp_path / "new")
    assert before.records[4].abstained
    assert not after.records[4].abstained
    plan = replace(PLAN, bound="two-class", alpha=0.05)
    for old, new in zip(before.records, after.records):
        assert new.radius == decide([0.0], plan, old.selection, old.estimation).radius
    assert after.manifest.plan.recertified_from["results_sha256"] == results_digest(before.records)


def test_no_change_is_a_check(run, tmp_path, capsys):
    main(["run", "recertify", str(run), "--json", "--out", str(tmp_path / "same")])
    shown = capsys.readouterr()
    assert shown.err == ""
    assert json.loads(shown.out)["results_sha256"] == results_digest(read_run(run).records)
    main(["run", "recertify", str(run), "--quiet", "--out", str(tmp_path / "quiet")])
    assert capsys.readouterr() == ("", "")


def test_refusals(run, tmp_path, capsys):
    """Of what other votes would be needed for, with the reason."""
    log, new = tmp_path / "log.tsv", tmp_path / "new"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n")
    main(["run", "import", str(log), "--sigma", "0.5", "--out", str(tmp_path / "log")])
    for words, named in (
        ([run, "--sigma", "0.25"], r" sigma .* 0\.5 .* 0\.25\b"),
        ([run, "--noise", "uniform"], r" noise .* gaussian .* uniform\b"),
        ([run, "--n", "200"], r" n .* 100 .* 200\b"),
        ([run, "--n0", "20"], r" n0 .* 10 .* 20\b"),
        ([run, "--seed", "1"], r" seed .* 0 .* 1\b"),
        ([run, "--bound", "hoeffding"], "--bound hoeffding"),
        ([run, "--alpha", "1"], r"alpha.*\b1\.0\b"),
        ([tmp_path / "log", "--alpha", "0.1"], f"{tmp_path / 'log'} "),
    ):
        assert re.search(named, refusal(capsys, "run", "recertify", *words, "--out", new))
        assert not new.exists()
    assert re.search(f"{run} .*--out", refusal(capsys, "run", "recertify", run, "--out", run))


def test_bits_that_certify_would_not_give_are_said(run, tmp_path, capsys):
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
