"""certify --stop and --total-votes: what they write, say and refuse, and that kills change nothing."""

import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.analysis.evidence import planned_ceiling
from smoothcert.analysis.facts import votes_used
from smoothcert.analysis.intervals import acr_interval, robust_radius_lower_bound, statement
from smoothcert.analysis.overview import overview
from smoothcert.cli import main
from smoothcert.datasets.base import Dataset
from smoothcert.errors import RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.evaluation.recertification import recertified
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.side_files import read_pilots
from tests.processes import Command
from tests.runs.unfinished import forget_what_was_asked_for

from .output import names, refusal

TOTAL = ("--stop", "total:9000,100")


def certify(model: Path, out: Path, *words: str, n: str = "1000", most: str = "24") -> None:
    few = ["--n", n, "--n0", "20", "--max", most, "--every", "5"]
    main(["certify", str(model), *few, "--out", str(out), *words])


@pytest.fixture(scope="module")
def sequential(digits_model, build_once) -> Path:
    stop = ("--stop", "grid:0,0.25,0.5", "--stop", "wrong", "--quiet")
    return build_once("sequential-run", lambda out: certify(digits_model, out, *stop))


@pytest.fixture(scope="module")
def allocated(digits_model, build_once) -> Path:
    return build_once("allocated-run", lambda out: certify(digits_model, out, *TOTAL, "--quiet"))


def test_the_run_says_what_it_did_and_why(sequential):
    run = read_run(sequential)
    assert run.manifest.plan.stop == ["grid:0,0.25,0.5", "wrong"]
    assert run.manifest.plan.bound == "mixture-top-two"
    assert all(record.stopped for record in run.records)
    used = votes_used(run)
    assert used is not None
    assert used.total == sum(r.selection.n + r.estimation.n for r in run.records)  # type: ignore[union-attr]
    assert used.share < 0.6
    assert sum(count for _, count in used.reasons) == len(run.records) == 24
    for record in run.records:
        assert record.stopped is not None
        if record.stopped.startswith("wrong"):
            assert (record.predicted, record.radius) == (-1, 0.0)


def test_closing_lines_and_show_tell_the_votes(digits_model, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    certify(digits_model, tmp_path / "run", "--stop", "decide:0.25", most="6")
    told = capsys.readouterr().out
    assert names(told, "mixture-top-two", 1000, 0.001)
    main(["show", str(tmp_path / "run"), "--json"])
    used = json.loads(capsys.readouterr().out)["votes"]
    assert (used["inputs"], used["reasons"]) == (6, [["decided", 6]])
    main(["show", str(tmp_path / "run")])
    for text in (told, capsys.readouterr().out):
        assert names(text, f"{used['total']:,}", 6, "decide:0.25")


def test_plain_runs_are_what_they_were(digits_model, tmp_path):
    certify(digits_model, tmp_path / "plain", "--quiet", n="200", most="3")
    certify(digits_model, tmp_path / "budget", "--quiet", "--stop", "budget", n="200", most="3")
    plain, budget = read_run(tmp_path / "plain"), read_run(tmp_path / "budget")
    assert plain.manifest.plan == budget.manifest.plan
    assert plain.manifest.plan.stop is None
    assert all(record.stopped is None for record in plain.records)
    assert results_digest(plain.records) == results_digest(budget.records)
    assert votes_used(plain) is None


@pytest.mark.slow
def test_a_pilot_run(digits_model, tmp_path):
    certify(digits_model, tmp_path / "run", "--sigma", "1.0", "--stop", "pilot:5%,100", "--quiet", n="3000")
    run = read_run(tmp_path / "run")
    assert run.manifest.plan.bound == "top-two"
    sizes = {record.estimation.n for record in run.records if record.estimation is not None}
    assert len(sizes) > 1
    assert max(sizes) <= 3000
    assert votes_used(run).total == sum(r.estimation.n + 120 for r in run.records)
    main(
        [
            "run",
            "recertify",
            str(run.path),
            "--bound",
            "clopper-pearson",
            "--quiet",
            "--out",
            str(tmp_path / "cp"),
        ]
    )
    for old, new in zip(run.records, read_run(tmp_path / "cp").records, strict=True):
        assert new.estimation == old.estimation


def test_a_total_is_kept_to_and_written_down(allocated):
    run = read_run(allocated)
    allocation = json.loads((allocated / "allocation.json").read_text())
    used = votes_used(run)
    assert used is not None
    assert used.total == allocation["spent_before"] + sum(allocation["votes"].values())
    assert 7000 < used.total <= 9000
    for record in run.records:
        assert record.estimation is not None
        assert record.estimation.n == allocation["votes"][str(record.index)]
    assert max(allocation["votes"].values()) > 2 * min(allocation["votes"].values())


def test_what_needs_independent_inputs_is_refused_where_a_total_was_spread(allocated, sequential, capsys):
    run = read_run(allocated)
    with pytest.raises(RunError, match=re.escape(str(allocated))):
        acr_interval(run)
    assert robust_radius_lower_bound(run, 0.05) > 0, "false certificates and inputs are still independent"
    assert "0.25" in statement(run, 0.25)
    assert "--stop pilot:1%" in refusal(capsys, "compare", allocated, allocated)
    for path, interval in ((sequential, True), (allocated, False)):
        main(["show", str(path)])
        assert bool(re.search(r"ACR: [\d.]+ \([^)]*\d\.\d", capsys.readouterr().out)) == interval


def test_the_ceiling_is_that_of_the_most_votes_an_input_may_get(allocated):
    plan = read_run(allocated).manifest.plan
    assert planned_ceiling(plan) == planned_ceiling(plan.but(stop=[], n=16_000))
    assert planned_ceiling(plan.but(stop=["pilot:1%"])) == planned_ceiling(plan.but(stop=[]))


def test_other_inputs_are_refused_where_a_total_was_spread(allocated, digits_model, tmp_path, capsys):
    run, earlier = (shutil.copytree(allocated, tmp_path / name) for name in ("run", "earlier"))
    forget_what_was_asked_for(earlier)
    words = ["certify", digits_model, "--n", "1000", "--n0", "20", "--every", "5", "--max", "25"]
    words += [*TOTAL, "--out"]
    assert names(refusal(capsys, *words, run), "data.planned", "--max", 24, 25)
    assert names(refusal(capsys, *words, earlier), earlier / "allocation.json", 24, 25)
    for path in (run, earlier):
        assert len(read_run(path).records) == 24
        assert len(read_pilots(path)) == 24  # refused before any vote was cast


def test_pilots_of_inputs_that_are_no_longer_asked_for_get_no_votes(digits_model, tmp_path):
    out, words = tmp_path / "run", (*TOTAL, "--quiet")
    certify(digits_model, out, *words, most="8")
    forget_what_was_asked_for(out)
    (out / "allocation.json").unlink()  # as if it had been killed before
    (out / "journal.sqlite").unlink()
    certify(digits_model, out, *words, most="4")
    certify(digits_model, out, *words, most="4")
    assert len(json.loads((out / "allocation.json").read_text())["votes"]) == 4
    assert len(read_run(out).records) == 4


@pytest.mark.parametrize("bound", ["top-two", "looks"])
def test_an_alpha_beyond_all_numbers(digits_model, tmp_path, capsys, bound):
    words = ["certify", digits_model, "--alpha", "1e-306", "--bound", bound, "--n", "1000", "--out", tmp_path]
    assert names(refusal(capsys, *words), "alpha", "1e-200", "1e-306")


def test_recertify_of_votes_that_ended_early(sequential, tmp_path, capsys):
    before = read_run(sequential)
    words = ["run", "recertify", str(sequential), "--out", str(tmp_path / "new")]
    message = refusal(capsys, *words, "--bound", "top-two")
    assert names(message, "grid:0,0.25,0.5", "top-two", "mixture-top-two")
    message = refusal(capsys, *words, "--bound", "looks")
    assert any(names(message, "looks", record.estimation.n) for record in before.records if record.estimation)
    main([*words, "--quiet"])
    assert results_digest(read_run(tmp_path / "new").records) == results_digest(before.records)
    main([*words[:-1], str(tmp_path / "strict"), "--alpha", "0.0001", "--quiet"])
    stricter = read_run(tmp_path / "strict").records
    assert all(new.radius <= old.radius for old, new in zip(before.records, stricter, strict=True))
    assert any(new.radius < old.radius for old, new in zip(before.records, stricter, strict=True))


def test_altered_numbers_of_votes_are_noticed(sequential, tmp_path):
    run = read_run(sequential)
    plain = run.manifest.stating(plan={k: v for k, v in run.manifest.plan.items() if k != "stop"})
    early = next(record for record in run.records if record.estimation and record.estimation.n < 1000)
    with pytest.raises(RunError, match=rf"{re.escape(str(sequential))}.*\b{early.index}\b"):
        recertified(replace(run, manifest=plain))


def certified_until_wrong(model: Any, data: Dataset, folder: Path) -> Run:
    plan = {"sigma": 0.5, "n": 300, "stop": ("wrong",), "outputs": "labels", "classes": 2}
    return certify_dataset(SmoothedClassifier(model, **plan), data, folder / "run")


def test_inputs_without_votes_are_shown_without_shares(tmp_path):
    x = np.random.default_rng(0).normal(size=(8, 2))
    data = Dataset("made-up", x, np.arange(8) % 2, ("left", "right"))
    run = certified_until_wrong(lambda batch: (batch[:, 0] > 0).astype(np.int64), data, tmp_path)
    none = [record.estimation is not None and record.estimation.n == 0 for record in run.records]
    assert 0 < sum(none) < 8
    votes = run.records.votes
    assert np.isnan(votes.chosen_votes).tolist() == none
    whole = overview(run, [0.0])
    assert whole.noisy_accuracy is not None
    assert whole.top_class is not None
    main(["report", str(run.path), "--out", str(tmp_path / "report")])
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "NaN" not in page.partition("<script>")[0]


def test_the_report_tells_the_votes(sequential, tmp_path):
    pytest.importorskip("matplotlib")
    main(["report", str(sequential), "--out", str(tmp_path / "report")])
    page = "".join(p.read_text(encoding="utf-8") for p in (tmp_path / "report").rglob("*.html"))
    assert f"{votes_used(read_run(sequential)).total:,} " in page
    assert "--stop grid:0,0.25,0.5 --stop wrong" in page


def test_mistakes(digits_model, tmp_path, capsys):
    for words, named in [
        (["--stop", "decde:0.5"], ["'decde'", "'decide'"]),
        (["--stop", "decide:-1"], ["decide", -1.0]),
        (["--stop", "gain:300%"], ["gain", "300%"]),
        (["--stop", "grid:1,0"], ["grid", "1, 0"]),
        (["--stop", "decide:1", "--bound", "clopper-pearson"], ["clopper-pearson", "decide:1"]),
        (["--total-votes", "0"], ["total", 0]),
        (["--total-votes", "500"], [500, 3300, 3]),
        (["--stop", "pilot:1%", "--total-votes", "500"], ["'pilot'", "'total'"]),
    ]:
        out = tmp_path / "run"
        message = refusal(capsys, "certify", digits_model, "--n", "1000", "--max", "3", "--out", out, *words)
        assert names(message, *named)
        assert not (out / "run.json").exists(), (
            "a mistake must not leave a run that the corrected command can't continue"
        )


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param("total:20000,100", marks=pytest.mark.system),
        pytest.param("gain:2%", marks=pytest.mark.campaign),
    ],
)
def test_kills_change_no_bit(digits_model, tmp_path, stop):
    options = ["--n", "3000", "--n0", "20", "--max", "20", "--every", "3", "--stop", stop, "--quiet"]
    main(["certify", str(digits_model), *options, "--workers", "2", "--out", str(tmp_path / "whole")])
    killed = tmp_path / "killed"
    for after in ("run.json", "pilots.jsonl", "journal.sqlite"):
        process = Command("certify", digits_model, *options, "--workers", "1", "--out", killed)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and not (killed / after).exists():
            time.sleep(0.01)
        process.kill()
        process.wait()
    main(["certify", str(digits_model), *options, "--workers", "3", "--out", str(killed)])
    assert results_digest(read_run(killed).records) == results_digest(read_run(tmp_path / "whole").records)
    if stop.startswith("total"):
        assert (killed / "allocation.json").read_text() == (
            tmp_path / "whole" / "allocation.json"
        ).read_text()


def test_a_damaged_allocation_is_named_and_damaged_pilots_are_cast_again(
    allocated, digits_model, tmp_path, capsys
):
    copy = shutil.copytree(allocated, tmp_path / "copy")
    (copy / "allocation.json").write_text("{")
    words = ["certify", digits_model, "--n", "1000", "--n0", "20", "--every", "5", "--max", "24", *TOTAL]
    assert str(copy / "allocation.json") in refusal(capsys, *words, "--out", copy)
    (tmp_path / "pilots.jsonl").write_bytes(b"\xff\xfe\n" + (allocated / "pilots.jsonl").read_bytes())
    assert read_pilots(tmp_path) == read_pilots(allocated)


def test_a_model_that_is_always_wrong_can_be_looked_at(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    data = Dataset("made-up", np.zeros((4, 2)), np.ones(4, dtype=np.int64), ("left", "right"))
    run = certified_until_wrong(lambda batch: np.zeros(len(batch), dtype=np.int64), data, tmp_path)
    assert [record.estimation.n for record in run.records if record.estimation is not None] == [0] * 4
    main(["show", str(run.path)])
    shown = capsys.readouterr().out
    (estimates,) = re.findall(r"p_A: .*", shown)
    assert not re.search(r"\d", estimates)
    assert "nan" not in shown.lower()
    main(["show", str(run.path), "--json"])
    assert json.loads(capsys.readouterr().out)["top_class"] is None
    main(["plot", str(run.path), "--kind", "confidence", "--out", str(tmp_path / "confidence.png")])
    assert (tmp_path / "confidence.png").is_file()
