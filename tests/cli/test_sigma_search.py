"""`certify --sigma-search` and `train --data-dependent`, as typed."""

import json
import re
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.cli.plan_options import search_of
from smoothcert.knobs import knobs_of, written
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import read_run
from smoothcert.runs.side_files import append_search, read_searches
from smoothcert.smoothing.search.base import SEARCHES, parse_search
from smoothcert.smoothing.search.by_gradient import GradientSearch
from smoothcert.smoothing.search.by_votes import GridSearch, LadderSearch
from tests.cli.output import refusal
from tests.runs.unfinished import forget

QUICK = {
    "ladder": "ladder:votes=8,round_votes=24",
    "ellipsoid": "ellipsoid:steps=5,check_votes=16",
    "grid": "grid:budget=40,check-votes=16",
    "gradient": "gradient:steps=5,lr=0.01,check_votes=16",
}


def certify(model: Path | str, out: Path, *more: str, inputs: int = 6) -> list[str]:
    return ["certify", str(model), "--n", "100", "--max", str(inputs), "--out", str(out), *more]


def test_help_lists_every_search_and_every_knob_with_its_default(capsys):
    main(["certify", "--help-all"])
    shown = " ".join(re.sub(r"[│╭╰─╮╯]", " ", capsys.readouterr().out).split())
    for name in SEARCHES:
        assert f"{name}:" in shown
        for knob in knobs_of(SEARCHES[name]):
            assert written("", {knob.name: knob.default})[1:] in shown


def test_a_text_becomes_a_search_and_back():
    searched = search_of("gradient:steps=7, samples=8,lr=.5")
    assert searched == GradientSearch(steps=7, samples=8, lr=0.5)
    assert search_of("ladder") == LadderSearch()
    assert search_of("grid:soft,whole=false") == GridSearch(soft=True)
    assert search_of(None) is None
    for name in SEARCHES:
        knobs = {knob.name: knob.default for knob in knobs_of(SEARCHES[name])}
        assert parse_search(written(name, knobs)) == SEARCHES[name](), name


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "ladder")) for name in sorted(QUICK)]
)
def test_a_run_states_the_search_and_keeps_each_sigma(name, digits_model, tmp_path, capsys):
    out = tmp_path / "run"
    main(certify(digits_model, out, "--sigma-search", QUICK[name]))
    shown = capsys.readouterr().err
    run = read_run(out)
    assert run.manifest.subject == "frozen sigma"
    assert run.manifest.plan.sigma_search == name
    assert run.manifest.plan.stateful is False
    found = read_searches(out)
    assert {record.index: record.sigma for record in run.records} == {
        index: one.sigma for index, one in found.items()
    }
    assert {one.reason for one in found.values()} <= {"improved", "no gain", "abstains"}
    moved = sum(one.reason == "improved" for one in found.values())
    assert re.search(rf"σ\D+{moved}\D+6\b", shown)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "ladder" else pytest.mark.slow) for name in sorted(QUICK)]
)
def test_a_run_in_parts_has_the_same_bits(name, digits_model, tmp_path):
    words = ["--sigma-search", QUICK[name], "--every", "5", "--quiet"]
    main(certify(digits_model, tmp_path / "whole", *words))
    for kept, workers in ((2, "1"), (4, "2"), (6, "1")):
        main(certify(digits_model, tmp_path / "parts", *words, "--workers", workers))
        forget(tmp_path / "parts", range(5 * kept, 30, 5))
    whole, parts = (read_run(tmp_path / name).records for name in ("whole", "parts"))
    assert results_digest(whole) == results_digest(parts)
    assert read_searches(tmp_path / "whole") == read_searches(tmp_path / "parts")


def test_another_search_is_another_run_and_no_sigma_of_it_is_attacked(digits_model, tmp_path, capsys):
    out = tmp_path / "run"
    main(certify(digits_model, out, "--sigma-search", QUICK["grid"], "--quiet"))
    message = refusal(capsys, *certify(digits_model, out, "--sigma-search", QUICK["ladder"]))
    assert re.search(r'plan\.sigma_search: [^:]*"grid"[^:]*"ladder"', message)
    message = refusal(capsys, *certify(digits_model, out))
    assert re.search(r'plan\.sigma_search: [^:]*"grid"[^:]*\bnull\b', message)
    message = refusal(capsys, "attack", out, "--model", digits_model)
    assert str(out) in message
    assert "--sigma-search" in message


def test_uniform_noise(digits_model, tmp_path, capsys):
    words = ["--sigma-search", QUICK["ladder"], "--noise", "uniform", "--json"]
    main(certify(digits_model, tmp_path / "run", *words))
    assert json.loads(capsys.readouterr().out)["results_sha256"]
    assert read_run(tmp_path / "run").manifest.plan.norm == "l1"


def test_a_model_without_gradients(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    (tmp_path / "gradientless.py").write_text(
        "def model(batch):\n    return batch.reshape(len(batch), -1)[:, :10]\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["--dataset", "digits", "--sigma", "0.1", "--quiet", "--sigma-search"]
    message = refusal(capsys, *certify("gradientless:model", tmp_path / "run", *words, "gradient"))
    assert all(part in message for part in ("FunctionClassifier", "'ladder'", "'grid'"))
    assert not (tmp_path / "run").exists()
    main(certify("gradientless:model", tmp_path / "run", *words, QUICK["ladder"]))
    assert len(read_run(tmp_path / "run").records) == 6


def test_mistakes_are_named(digits_model, tmp_path, capsys):
    for text, expected in [
        ("laddr", "'laddr'.*'ladder'.*ladder:factor=4.0"),
        ("help", "'help'.*ladder:factor=4.0,rescue=false,rungs=9,votes=32,rounds=2,round_votes=288"),
        ("", "''.*ladder:factor=4.0"),
        ("ladder:steps=5", "ladder .*'steps'.*gradient"),
        ("ladder:=5", "ladder.*''"),
        ("ladder:rungs", "rungs.* True"),
        ("ladder:rungs=many", "rungs.* 'many'"),
        ("ladder:rungs=9.5", r"rungs.* 9\.5"),
        ("gradient:steps=0", r"steps.* 0\b"),
        ("ladder:factor=1", r"factor.* 1\.0\b"),
    ]:
        message = refusal(capsys, *certify(digits_model, tmp_path / "run", "--sigma-search", text))
        assert re.search(expected, message)
        assert not (tmp_path / "run").exists()


def test_a_line_that_a_kill_cut_off_is_passed_over(digits_model, tmp_path):
    out = tmp_path / "run"
    words = ["--sigma-search", QUICK["grid"], "--quiet"]
    main(certify(digits_model, out, *words, inputs=6))
    forget(out, [4, 5])
    assert sorted(read_searches(out)) == list(range(4))
    with RunFiles(out).searches.open("a") as file:
        file.write('{"index": 4, "sig')
    main(certify(digits_model, out, *words, inputs=6))
    assert sorted(read_searches(out)) == list(range(6))
    append_search(out, read_searches(out)[0])
    assert len(read_searches(out)) == 6


def test_data_dependent_fine_tuning(digits_model, tmp_path):
    out = tmp_path / "tuned"
    words = ["--max", "64", "--epochs", "2", "--data-dependent", "--sigma-lr", "0.01", "--quiet"]
    main(["train", "digits", "--sigma", "0.25", *words, "--from", str(digits_model), "--out", str(out)])
    recipe = (out / "recipe.toml").read_text()
    assert "data_dependent = true" in recipe
    assert "sigma_warmup = 0" in recipe
    assert f'start = "{digits_model}"' in recipe
    assert json.loads((out / "run.json").read_text())["model"]["start_sha256"]
