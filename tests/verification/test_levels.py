"""Runs with σ levels: honest ones are verified to the last record, and whoever changes one is found out."""

import json
import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smoothcert.experimental.levels.choosers import ConstantChooser, StatisticChooser
from smoothcert.experimental.levels.procedures import decide_levels, stage_seed
from smoothcert.runs.run import read_run
from smoothcert.runs.side_files import read_evidence
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert_verify import RunError, levels, verify_run
from tests.levelled_runs import INPUTS, certified, edit_line, lines, write_lines
from tests.verification.runs import column, copied, edit_plan, edit_record, figures, messages, says, verified

AT_HOME, BY_LEVEL, BY_CHOOSER, ABSTAINS = 0, 1, 7, 8
"""What keeps the radius of these inputs from being larger; the last is too close to the border between classes."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    return certified(tmp_path_factory.mktemp("honest") / "run")


@pytest.fixture
def run(honest, tmp_path) -> Path:
    """A copy to tamper with."""
    return copied(honest, tmp_path / "run")


def test_an_honest_run_and_what_it_verifies(honest):
    verified(honest, INPUTS)
    report = verify_run(honest).report
    stated = read_run(honest).manifest.plan.chooser
    assert stated is not None
    assert any(f"{stated['alpha']:g}" in text for text in report.verified), "the chooser's part of α"
    assert any(stated["sha256"][:12] in text for text in report.believed)
    found = read_evidence(honest)
    assert any(len(one.certified) == 1 for one in found.values())
    assert any(len(one.certified) == 3 for one in found.values())


@pytest.mark.parametrize(
    "options",
    [
        {"noise": "uniform"},
        {"bound": "clopper-pearson"},
        {"bound": "mixture"},
        {"bound": "looks-top-two", "n": 1000},
        {"stop": ("wrong", "decide:0.3")},
        {"stop": ("abstain",)},
        {"stop": ("pilot:5%,200",)},
        {"chooser_sigma": 0.3, "alpha": 0.01},
        {"chosen": ConstantChooser(1)},
        {"chosen": ConstantChooser(2), "stop": ("decide:0.3",)},
        {"chosen": StatisticChooser("energy", (1.5, 4.0)), "sigmas": (0.25, 0.5, 1.0), "seed": 2**63 - 1},
    ],
)
def test_every_kind_of_plan(tmp_path, options):
    verified(certified(tmp_path / "run", **options), INPUTS)


def test_its_own_seeds_are_those_of_the_library():
    for stage in ("chooser", "level 0", "level 12"):
        for seed in (0, 7, 2**63 - 1):
            assert levels.stage_seed(seed, stage) == stage_seed(seed, stage)


@pytest.mark.parametrize("victim", [AT_HOME, BY_LEVEL, BY_CHOOSER])
def test_a_radius_is_the_exact_one_whatever_limits_it(run, victim):
    radius = column(run, victim, "radius")
    edit_record(run, victim, radius=radius * (1 + 1e-9))
    found = messages(run)
    assert list(found) == [victim]
    assert says(found[victim], operator.gt)
    edit_record(run, victim, radius=radius * 0.999)
    assert says(messages(run)[victim], operator.lt)
    edit_record(run, victim, radius=2 * radius)
    _, exact = figures(messages(run)[victim])
    edit_record(run, victim, radius=math.nextafter(exact, 0))
    assert messages(run) == {}


def test_a_home_radius_claimed_where_a_level_or_the_chooser_limits_it(honest, run):
    """As if the run were one of its home levels alone."""
    plan = CertifyPlan.from_statement(read_run(honest).manifest.plan, honest)
    for victim in (BY_LEVEL, BY_CHOOSER):
        answer = decide_levels([0.0], plan, read_evidence(honest)[victim])
        assert answer.levels is not None
        edit_record(run, victim, radius=answer.levels.radii[answer.levels.home])
    found = messages(run)
    assert set(found) == {BY_LEVEL, BY_CHOOSER}
    assert all(says(message, operator.gt) for message in found.values())


def surer(votes: dict[str, Any]) -> None:
    """All votes but a few for what is ahead."""
    best, n = votes["counts"].index(max(votes["counts"])), sum(votes["counts"])
    votes["counts"] = [n if k == best else 0 for k in range(len(votes["counts"]))]


def less_sure(votes: dict[str, Any]) -> None:
    counts = votes["counts"]
    best, least = counts.index(max(counts)), counts.index(min(counts))
    counts[best] -= 20
    counts[least] += 20


def test_a_reach_raised_by_edited_votes(run):
    edit_line(run, BY_CHOOSER, lambda line: less_sure(line["chooser"]))
    assert list(messages(run)) == [BY_CHOOSER]
    assert says(messages(run)[BY_CHOOSER], operator.gt)
    edit_line(run, BY_CHOOSER, lambda line: surer(line["chooser"]))
    assert list(messages(run)) == [BY_CHOOSER]


def test_a_level_that_was_left_out(run):
    """The radius as it is, or the one that is left without that level: neither follows."""
    level = lines(run)[BY_LEVEL]["votes"][1]["level"]
    edit_line(run, BY_LEVEL, lambda line: line["votes"].pop(1))
    assert repr(column(run, BY_LEVEL, "radius")) in messages(run)[BY_LEVEL]
    edit_record(run, BY_LEVEL, radius=0.0, predicted=-1, abstained=1)
    assert says(messages(run)[BY_LEVEL], rf"level {level}\b")


def test_votes_of_the_chooser_that_were_left_out(run):
    edit_line(run, BY_CHOOSER, lambda line: line.update(chooser=None))
    stated, exact = figures(messages(run)[BY_CHOOSER])
    assert stated > exact
    edit_record(run, BY_CHOOSER, radius=math.nextafter(exact, 0))
    assert says(messages(run)[BY_CHOOSER], "chooser")
    assert not figures(messages(run)[BY_CHOOSER])


def of_level(which: str, **fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda line: line["votes"][1][which].update(fields)


SEEDS = {stage: stage_seed(0, stage) for stage in ("level 0", "level 1", "chooser")}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (of_level("estimation", index=3), r"level 0\b.*estimation.*\b3\b"),
        (of_level("selection", index=3), r"level 0\b.*selection.*\b3\b"),
        (of_level("estimation", seed=0), rf"level 0\b.*estimation.*\b0\b.*{SEEDS['level 0']}"),
        (of_level("estimation", seed=SEEDS["level 1"]), rf"{SEEDS['level 1']}.*{SEEDS['level 0']}"),
        (of_level("estimation", phase="selection"), r"level 0\b.*selection.*estimation"),
        (of_level("estimation", start=64), r"level 0\b.*estimation.*\b64\b"),
        (of_level("estimation", counts=[9, 9, 9]), r"level 0\b.*\b3\b.*\b2\b"),
        (of_level("estimation", counts=[2001, 0]), r"level 0\b.*\b2001\b.*\b2000\b"),
        (of_level("estimation", counts=[0, 0]), r"level 0\b.*\b0\b.*estimation.*\b2000\b"),
        (of_level("selection", counts=[0, 20]), r"level 0\b.*\b1\b.*\b0\b"),
        (of_level("selection", counts=[19, 0]), r"level 0\b.*\b19\b.*\bn0\b.*\b20\b"),
        (lambda line: line["chooser"].update(index=2), r"chooser\b.*estimation.*\b2\b"),
        (lambda line: line["chooser"].update(seed=0), rf"chooser\b.*estimation.*\b0\b.*{SEEDS['chooser']}"),
        (lambda line: line["chooser"].update(phase="selection"), r"chooser\b.*selection.*estimation"),
        (lambda line: line["chooser"].update(start=1), r"chooser\b.*estimation.*\b1\b"),
        (lambda line: line["chooser"].update(counts=[1, 1]), r"chooser\b.*\b2\b.*\b3\b"),
        (lambda line: line["chooser"].update(counts=[0, 1001, 0]), r"chooser\b.*\b1001\b.*\b1000\b"),
        (lambda line: line["chosen"].update(seed=0), rf"chooser\b.*selection.*\b0\b.*{SEEDS['chooser']}"),
        (lambda line: line["chosen"].update(index=0), r"chooser\b.*selection.*\b0\b"),
        (lambda line: line["chosen"].update(counts=[0, 21, 0]), r"chooser\b.*\b21\b.*\b20\b"),
        (lambda line: line["chosen"].update(counts=[20, 0, 0]), r"levels\.jsonl.*\b1\b.*\b0\b"),
        (lambda line: line.update(chosen=None), r"levels\.jsonl.*\b1\b.*None"),
        (lambda line: line.update(home=0), r"levels\.jsonl.*\b0\b.*\b1\b"),
        (lambda line: line["votes"].reverse(), r"levels\.jsonl.*\b1\b.*\b0\b"),
        (lambda line: line["votes"].append(line["votes"][1]), r"levels\.jsonl.*\[1, 0, 0\]"),
        (lambda line: line["votes"][1].update(level=3), r"levels\.jsonl.*\[1, 3\].*\b2\b"),
        (lambda line: less_sure(line["votes"][0]["estimation"]), r"levels\.jsonl.*journal"),
        (lambda line: line.update(votes=[]), r"levels\.jsonl"),
        (lambda line: line["chooser"].update(counts="all"), r"levels\.jsonl"),
    ],
)
def test_changed_lines(run, change, told):
    edit_line(run, BY_LEVEL, change)
    found = messages(run)
    assert list(found) == [BY_LEVEL]
    assert says(found[BY_LEVEL], told)


def test_a_line_that_was_removed_or_swapped(run):
    kept = lines(run)
    removed = kept.pop(BY_CHOOSER)
    write_lines(run, kept)
    assert list(messages(run)) == [BY_CHOOSER]
    assert "levels.jsonl" in messages(run)[BY_CHOOSER]
    write_lines(run, kept | {BY_CHOOSER: removed | {"index": AT_HOME}})
    assert set(messages(run)) == {AT_HOME, BY_CHOOSER}
    (run / "levels.jsonl").unlink()
    assert set(messages(run)) == set(range(INPUTS))


def test_a_home_changed_in_line_and_record(run):
    """A level that certifies more in the place of the one that the chooser gave."""

    def moved(line: dict[str, Any]) -> None:
        line["home"] = 2
        line["votes"] = [one for one in line["votes"] if one["level"] == 2] + line["votes"][:1]

    victim = 2  # whose level 2 was looked at
    edit_line(run, victim, moved)
    first = lines(run)[victim]["votes"][0]
    edit_record(
        run,
        victim,
        sigma=1.0,
        selection=json.dumps(first["selection"]),
        estimation=json.dumps(first["estimation"]),
        stopped=first["stopped"],
    )
    assert list(messages(run)) == [victim]
    assert says(messages(run)[victim], r"levels\.jsonl.*\b2\b.*\b1\b")


def test_another_sigma_than_its_levels(run):
    edit_record(run, AT_HOME, sigma=1.0)
    assert says(messages(run)[AT_HOME], r"1\.0.*level 0\b.*0\.25")


def of_chooser(run: Path, **fields: Any) -> dict[str, Any]:
    stated = json.loads((run / "run.json").read_text())["plan"]["chooser"]
    return {"chooser": stated | fields}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"sigma_levels": [0.5, 0.25, 1.0]}, r"0\.5, 0\.25, 1\b"),
        ({"sigma_levels": [0.25, 0.5, 2.0]}, r"\bsigma\b.*1\.0.*\b2\b"),
        ({"sigma_search": "ladder"}, "search"),
        ({"stateful": True, "memory": {"head": "", "results_sha256": ""}}, "memory"),
        ({"bound": "bernstein", "votes": "soft"}, "bernstein"),
        ({"chooser": {"alpha": 0.0005}}, r"alpha.*0\.0005.*3\.125e-05"),
        ({"chooser": {"alpha": 1e-9}}, r"alpha.*1e-09.*3\.125e-05"),
        ({"chooser": {"bound": "clopper-pearson"}}, "'clopper-pearson'.*mixture"),
    ],
)
def test_levels_and_choosers_that_contradict_the_plan(run, fields, told):
    edit_plan(run, **fields | of_chooser(run, **fields.get("chooser", {})))
    assert says(messages(run)[None], told)


def test_another_alpha_with_its_right_share(run):
    edit_plan(run, alpha=0.0001, **of_chooser(run, alpha=0.0001 / 32))
    found = messages(run)
    assert None not in found
    assert set(found) == set(range(INPUTS)) - {ABSTAINS}


def test_a_chooser_of_another_sigma(run):
    edit_plan(run, **of_chooser(run, sigma=0.9))
    assert says(messages(run)[BY_CHOOSER], operator.gt)


def test_a_constant_chooser_stated_for_a_run_that_had_another(run):
    edit_plan(run, chooser={"constant": 1})
    found = messages(run)
    assert set(found) == set(range(INPUTS))
    assert "constant" in found[ABSTAINS]
    edit_plan(run, chooser={"constant": 3})
    assert says(messages(run)[None], r"constant.*\b3\b")


def test_levels_that_are_hidden(run):
    """Without its levels the plan is of one σ, and no vote is of its streams."""
    path = run / "run.json"
    content = json.loads(path.read_text())
    del content["plan"]["sigma_levels"], content["plan"]["chooser"]
    path.write_text(json.dumps(content))
    assert set(messages(run)) == set(range(INPUTS))


@pytest.mark.parametrize(
    "fields",
    [
        {"sigma_levels": []},
        {"sigma_levels": [0.25, -1.0]},
        {"sigma_levels": [0.25, math.inf]},
        {"sigma_levels": "0.25"},
        {"sigma_levels": None},
        {"chooser": None},
        {"chooser": {"constant": "1"}},
        {"chooser": {"sigma": 1.0, "n0": 0, "n": 1, "alpha": 0.1}},
        {"chooser": {"n0": 1, "n": 1, "alpha": 0.1}},
        {"chooser": {"sigma": 1.0, "n0": 1, "n": 1}},
    ],
)
def test_levels_that_make_no_sense_are_unreadable(run, fields):
    edit_plan(run, **fields)
    with pytest.raises(RunError):
        verify_run(run)
