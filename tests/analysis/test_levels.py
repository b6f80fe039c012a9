"""Runs whose σ follows the input by levels: what tables, pages and pictures say of them."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.analysis.comparison import compare
from smoothcert.analysis.evidence import planned_ceiling, radius_ceiling
from smoothcert.analysis.facts import (
    Departures,
    alpha_of_class,
    chooser_of,
    inputs_depend,
    levels_of,
    sigma_per,
)
from smoothcert.analysis.intervals import acr_interval, statement
from smoothcert.analysis.layouts import render_table
from smoothcert.analysis.metrics import runtime, summarise
from smoothcert.analysis.overview import decided_levels, levels_used, lower_bounds, overview
from smoothcert.analysis.plots.kinds import run_labels
from smoothcert.analysis.plots.sigma import plot_levels, ranked_radii
from smoothcert.analysis.plots.votes import plot_samples
from smoothcert.analysis.report.page import ReportOptions, make_payload
from smoothcert.analysis.report.statements import certify_command
from smoothcert.analysis.seeds import differ_in_seed_alone, method_of
from smoothcert.cli import main
from smoothcert.errors import InvalidValueError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.experimental.levels.choosers import ConstantChooser
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.side_files import read_evidence
from tests.analysis.texts import numbers
from tests.levelled_runs import INPUTS, SIGMAS, certified, dataset, halves


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return read_run(certified(tmp_path_factory.mktemp("levels") / "run"))


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> Run:
    classifier = SmoothedClassifier(halves, sigma=0.5, n=2000, n0=20)
    return certify_dataset(classifier, dataset(), tmp_path_factory.mktemp("fixed") / "fixed")


def test_it_is_one_classifier_and_says_so(run):
    assert run.manifest.subject == "one classifier"
    assert (levels_of(run), chooser_of(run), sigma_per(run)) == (SIGMAS, "chooser", "level")
    assert not inputs_depend(run.manifest)
    summary = summarise(run, [0.0])
    assert (summary.sigma, summary.sigma_levels, summary.chooser) == (1.0, SIGMAS, "chooser")
    for shape in ("markdown", "latex"):
        assert re.search(r"\b1\.0 \(.*\b3\b.*\)", render_table([run], ["0"], format=shape))
    csv = render_table([run], ["0"], format="csv").splitlines()[1]
    assert csv.endswith(",level,12,true,0.25 0.5 1,chooser")
    (row,) = json.loads(render_table([run], ["0"], format="json"))["runs"]
    assert (row["sigma_per"], row["sigma_levels"], row["chooser"]) == ("level", list(SIGMAS), "chooser")
    assert re.fullmatch(r"run\b.*\b3\b.*σ.*\bchooser\b.*", method_of(run))
    for shape in ("markdown", "latex", "csv", "json"):
        assert re.search(r"run\b.*\b3\b.*\(chooser\)", render_table([run], ["0"], "paper", shape))
    _, (label,) = run_labels([run], [summary])
    assert re.search(r"σ = 1 \(.*\b3\b.*\)", label)


def test_a_constant_chooser_is_named(tmp_path):
    constant = read_run(certified(tmp_path / "run", ConstantChooser(1)))
    assert chooser_of(constant) == "constant:1"
    assert sigma_per(constant) == "level"
    used = levels_used(constant)
    assert used is not None
    assert used.homes == (0, INPUTS, 0)
    of_the_chooser, _, elsewhere = used.votes.values()
    assert of_the_chooser == elsewhere == 0
    assert used.share == 1.0
    assert radius_ceiling(constant) == planned_ceiling(constant.manifest.plan)
    assert alpha_of_class(constant.manifest.plan) == 0.001


def test_what_the_levels_came_to(run):
    used, lines = levels_used(run), read_evidence(run.path)
    assert used is not None
    assert used.homes == tuple(sum(one.home == level for one in lines.values()) for level in range(3))
    assert used.looked == Counter(len(one.votes) for one in lines.values())
    assert sum(used.votes.values()) == sum(one.n for one in lines.values())
    assert used.share == sum(used.votes.values()) / (INPUTS * 2020)
    assert set(used.limits) == {"home", "level", "chooser"}
    assert sum(used.limits.values()) == np.count_nonzero(run.records.radius)
    first, *_, last = used.sentences()
    assert numbers(first) == ["3", "12", "2", "0.25", "6", "0.5", "4", "1"]
    assert f"{100 * used.share:.1f} %" in last
    evidence = decided_levels(run)
    assert evidence is not None
    for one, radius in zip(evidence, run.records.radius.tolist()):
        assert min(map(max, one.reaches, one.radii)) == radius
    assert evidence is not None
    (abstained,) = np.flatnonzero(run.records.radius == 0)
    assert evidence[abstained].limit == "home"
    found, alone = overview(run, [0.0]).runtime, runtime(run.records)
    assert found is not None
    assert alone is not None
    total = sum(one.n for one in read_evidence(run.path).values())
    assert found.votes_per_second == pytest.approx(total / found.total_seconds)
    assert found.votes_per_second > alone.votes_per_second


def test_pilots_count_as_votes(tmp_path):
    piloted = read_run(certified(tmp_path / "run", stop=("pilot:5%,200",)))
    used = levels_used(piloted)
    assert used is not None
    assert sum(used.votes.values()) == 200 * INPUTS + sum(
        one.n for one in read_evidence(piloted.path).values()
    )


def test_intervals_and_statements_are_offered(run):
    """Inputs are independent, each wrong with probability α, and no radius is above that of the largest σ."""
    ceiling = radius_ceiling(run)
    assert ceiling == planned_ceiling(run.manifest.plan)
    assert ceiling is not None
    assert run.records.radius.max() < ceiling
    low, high = acr_interval(run)
    assert 0 < low < summarise(run, [0.0]).acr < high
    assert numbers(statement(run, 0.25, 0.99))[1:] == ["0.25", "0.99"]
    assert make_payload([run], ReportOptions(inputs=0))["groups"][0]["runs"][0]["statement"]["proved"]
    found = lower_bounds(run)
    assert found is not None
    assert alpha_of_class(run.manifest.plan) == pytest.approx(0.001 * 31 / 32)
    whole = replace(run, manifest=run.manifest.stating(plan=run.manifest.plan.but(sigma_levels=None)))
    assert (found < lower_bounds(whole)).all()
    manifest = run.manifest.stating(origin={"trained": {"noise": "gaussian", "sigma": 0.25}})
    assert Departures.of(manifest).in_words() == []


def test_a_comparison_says_what_differs(run, fixed, tmp_path):
    notes = compare(fixed, run, [0.25]).notes
    assert any(re.search(r"0\.25 0\.5 1\b.*chooser \(σ 1\.0, n ≤ 1000\b", note) for note in notes)
    looser = read_run(certified(tmp_path / "run", alpha=0.01))
    (note,) = [note for note in compare(run, looser, [0.25]).notes if "alpha" in note]
    assert "chooser" not in note  # its part of α follows from α


def test_choosers_of_other_seeds_are_averaged_over(run):
    plan, chooser = run.manifest.plan, run.manifest.plan.chooser
    assert chooser is not None
    model = {"name": "halves", "sha256": "another"}
    other = replace(
        run,
        manifest=run.manifest.stating(plan=plan.but(seed=1, chooser={**chooser, "sha256": "b"}), model=model),
    )
    assert differ_in_seed_alone([run, other])
    farther = other.manifest.stating(plan=plan.but(seed=1, chooser={**chooser, "sigma": 2.0}), model=model)
    assert not differ_in_seed_alone([run, replace(run, manifest=farther)])


def test_show_and_report_say_it(run, fixed, capsys):
    main(["show", str(run.path)])
    shown = capsys.readouterr().out
    used = levels_used(run)
    assert used is not None
    for sentence in used.sentences():
        assert sentence in shown
    assert re.search(r"σ: 1\.0 \(.*\b3\b.*\)", shown)
    main(["show", str(run.path), "--json"])
    assert json.loads(capsys.readouterr().out)["levels"]["homes"] == list(used.homes)
    (group,) = make_payload([run], ReportOptions(inputs=0))["groups"]
    assert group["runs"][0]["levels"] == used.sentences()
    (plain,) = make_payload([fixed], ReportOptions(inputs=0))["groups"]
    assert group["runs"][0]["guarantee"] != plain["runs"][0]["guarantee"]
    main(["table", str(run.path)])
    assert "0.25, 0.5, 1 (chooser)" in " ".join(capsys.readouterr().err.split())


def test_the_command_that_makes_it_again(run):
    origin = {
        "model": "m:halves",
        "dataset": "npz:x.npz",
        "chooser": "m:chooser",
        "level_models": ["a", "b", "m"],
    }
    made = certify_command(replace(run, manifest=run.manifest.stating(origin=origin)))
    for words in (
        "--chooser m:chooser", "--level-models a b m", "--sigma-levels 0.25 0.5 1.0", "--chooser-sigma 1.0",
        "--chooser-n0 20", "--chooser-n 1000",
    ):  # fmt: skip
        assert words in made
    assert "--sigma 1" not in made


def test_the_picture_ranks_right_answers(run, fixed, tmp_path):
    ranked = ranked_radii(run)
    right = np.where(run.records.correct, run.records.radius, 0.0)
    assert ranked.radius.tolist() == sorted(right[right > 0].tolist(), reverse=True)
    assert Counter(ranked.limit.tolist()) == levels_used(run).limits
    assert ranked.place[0] == 100 * 0.5 / INPUTS
    first = int(np.argmax(right))
    assert SIGMAS[ranked.home[0]] == run.records.sigma[first]
    plot_levels([run], tmp_path / "alone.svg")
    plot_levels([run], tmp_path / "beside.svg", against=fixed.path)
    assert re.search(r"<!-- .*\bfixed\b.* -->", (tmp_path / "beside.svg").read_text())
    with pytest.raises(InvalidValueError, match=r"fixed.*--sigma-levels"):
        plot_levels([fixed], tmp_path / "none.svg")
    other = read_run(certified(tmp_path / "other", sigmas=(0.25, 0.6, 1.0)))
    with pytest.raises(InvalidValueError, match=r"0\.25 0\.5 1; 0\.25 0\.6 1"):
        plot_levels([run, other], tmp_path / "both.svg")
    with pytest.raises(InvalidValueError, match="σ"):
        plot_samples([run], tmp_path / "picture.png")
    assert not (tmp_path / "picture.png").exists()
