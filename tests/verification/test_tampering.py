"""Whoever changes a run is found out, at the right inputs."""

import json
import math
import operator
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.evaluation.remembering import remember
from smoothcert.runs.journal import TABLES
from smoothcert.runs.run import read_run
from smoothcert.smoothing.search.base import SEARCHES
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch
from smoothcert_verify import RunError, reading, verify_run
from tests.runs.sealing import without_checksums
from tests.verification.runs import (
    Linear,
    certified,
    column,
    copied,
    dataset,
    edit_plan,
    edit_record,
    edit_votes,
    figures,
    messages,
    says,
    scores,
    sql,
    stretched,
)

DIGEST = "[0-9a-f]{12}"
"""The beginning of a SHA-256."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    return certified(tmp_path_factory.mktemp("honest") / "run")


@pytest.fixture
def run(honest, tmp_path) -> Path:
    """A copy to tamper with."""
    return copied(honest, tmp_path / "run")


def certified_inputs(run: Path) -> list[int]:
    return [record.index for record in read_run(run).records if not record.abstained]


def test_a_radius_raised_by_a_billionth(run):
    victim = certified_inputs(run)[1]
    edit_record(run, victim, radius=column(run, victim, "radius") * (1 + 1e-9))
    found = messages(run)
    assert list(found) == [victim]
    assert says(found[victim], operator.gt)


def test_the_exact_radius_is_the_border_to_the_last_place(run):
    """The largest float up to the exact radius follows, the next one doesn't."""
    victim = certified_inputs(run)[0]
    edit_record(run, victim, radius=column(run, victim, "radius") * 2)
    (message,) = messages(run).values()
    _, exact = figures(message)
    low = math.nextafter(exact, 0)
    edit_record(run, victim, radius=low)
    assert messages(run) == {}
    edit_record(run, victim, radius=math.nextafter(exact, math.inf))
    assert list(messages(run)) == [victim]


@pytest.mark.parametrize("factor", [0.999, 0.5])
def test_a_radius_much_smaller_than_the_votes_support(run, factor):
    victim = certified_inputs(run)[0]
    edit_record(run, victim, radius=column(run, victim, "radius") * factor)
    assert says(messages(run)[victim], operator.lt)


@pytest.mark.parametrize(
    "fields",
    [
        *({"radius": radius} for radius in (math.inf, -1.0, 0.0, "large", 1e308)),
        *({"predicted": 3}, {"predicted": -2}, {"label": 3}, {"label": -1}, {"base": 3}, {"abstained": 1}),
    ],
    ids=str,
)
def test_radii_and_classes_that_cannot_be(run, fields):
    victim = certified_inputs(run)[0]
    edit_record(run, victim, **fields)
    assert list(messages(run)) == [victim]


def test_a_changed_class(run):
    victim = certified_inputs(run)[0]
    chosen = column(run, victim, "predicted")
    edit_record(run, victim, predicted=1 - chosen)
    assert says(messages(run)[victim], rf"\b{1 - chosen}\b.*selection.*\b{chosen}\b")


def test_an_abstention_that_the_votes_contradict(run):
    victim = certified_inputs(run)[0]
    radius = column(run, victim, "radius")
    edit_record(run, victim, predicted=-1, abstained=1, radius=0.0)
    assert figures(messages(run)[victim]) == [pytest.approx(radius, rel=1e-9)]


def test_a_certificate_of_an_abstention(run):
    (victim, *_) = [record.index for record in read_run(run).records if record.abstained]
    chosen = json.loads(column(run, victim, "selection"))["counts"]
    edit_record(run, victim, predicted=chosen.index(max(chosen)), abstained=0, radius=1e-12)
    assert figures(messages(run)[victim]) == [1e-12]


def moved(votes: dict[str, Any]) -> None:
    best, least = votes["counts"].index(max(votes["counts"])), votes["counts"].index(min(votes["counts"]))
    votes["counts"][best] -= 5
    votes["counts"][least] += 5


def more(votes: dict[str, Any]) -> None:
    votes["counts"][votes["counts"].index(max(votes["counts"]))] += 1


@pytest.mark.parametrize(
    ("which", "change", "told"),
    [
        ("estimation", moved, operator.gt),
        ("estimation", more, r"\b1001\b.*\bn\b.*\b1000\b"),
        ("selection", more, r"\b21\b.*\bn0\b.*\b20\b"),
        ("estimation", lambda votes: votes.update(index=91), r"estimation.*\b91\b"),
        ("selection", lambda votes: votes.update(index=91), r"selection.*\b91\b"),
        ("estimation", lambda votes: votes.update(seed=7), r"estimation.*\b7\b.*\b0\b"),
        ("estimation", lambda votes: votes.update(start=64), r"estimation.*\b64\b"),
        ("estimation", lambda votes: votes.update(phase="selection"), "selection.*estimation"),
        ("selection", lambda votes: votes.update(phase="search"), "search.*selection"),
        ("estimation", lambda votes: votes["counts"].append(0), r"estimation.*\b4\b.*\b3\b"),
        ("estimation", lambda votes: votes.update(counts=[1001, -1, 0]), r"-1\b.*estimation"),
        ("estimation", lambda votes: votes.update(counts=[1000.0, 0, 0]), "counts"),
        ("estimation", lambda votes: votes.pop("counts"), "counts"),
        ("estimation", lambda votes: votes.update(seed=True), "seed.*True"),
        ("estimation", lambda votes: votes.update(sums=[0, 0, 0], squares=[0, 0, 0]), "soft.*hard"),
    ],
)
def test_changed_votes(run, which, change, told):
    victim = certified_inputs(run)[0]
    edit_votes(run, victim, which, change)
    found = messages(run)
    assert list(found) == [victim]
    assert says(found[victim], told)


def test_selection_votes_used_for_estimation(run):
    victim = certified_inputs(run)[0]
    edit_record(run, victim, estimation=column(run, victim, "selection"))
    assert says(messages(run)[victim], "selection.*estimation")


def test_votes_that_are_gone_or_no_json(run):
    edit_record(run, 0, estimation=None)
    edit_record(run, 1, selection="{")
    edit_record(run, 2, selection="[]")
    found = messages(run)
    assert set(found) == {0, 1, 2}
    assert [("JSON" in found[index]) for index in range(3)] == [False, True, True]
    assert verify_run(run).report.results_sha256 is None


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"alpha": 0.0001}, operator.gt),
        ({"alpha": 0.01}, operator.lt),
        ({"n": 2000}, r"\b1000\b.*\bn\b.*\b2000\b"),
        ({"n0": 10}, r"\b20\b.*\bn0\b.*\b10\b"),
        ({"sigma": 0.6}, r"σ.*0\.5\b.*0\.6\b"),
        ({"seed": 1}, r"selection.*\b0\b.*\b1\b"),
        ({"bound": "clopper-pearson"}, operator.ne),
        ({"noise": "uniform", "norm": "l1"}, operator.ne),
    ],
)
def test_an_edited_plan_contradicts_certified_inputs(run, fields, told):
    edit_plan(run, **fields)
    found = messages(run)
    guilty = set(found) & set(certified_inputs(run))
    assert guilty
    assert all(says(found[index], told) for index in guilty)
    if "bound" not in fields:  # near unanimous votes one bound is as good as the other
        assert guilty == set(certified_inputs(run))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"norm": "l1"}, "l2.*l1"),
        ({"votes": "soft"}, "top-two.*hard.*soft"),
        ({"stop": ["decide:0.5"]}, "top-two"),
        ({"bound": "looks", "n": 1001}, r"\b1001\b.*looks"),
        ({"stop": ["oracle"]}, "oracle"),
        ({"stateful": True}, "memory"),
    ],
)
def test_plans_that_contradict_themselves(run, fields, told):
    edit_plan(run, **fields)
    assert says(messages(run)[None], told)


@pytest.mark.parametrize(
    "fields",
    [
        {"alpha": 1.0},
        {"alpha": 0},
        {"alpha": "0.001"},
        {"alpha": math.nan},
        {"n": 0},
        {"n": 1e5},
        {"n": 10**30},
        {"sigma": -1.0},
        {"sigma": 10**400},
        {"seed": None},
        {"stop": "decide:0.5"},
        {"stream": 3},
        {"stream": 2, "levels": None},
    ],
)
def test_plans_that_make_no_sense_are_unreadable(run, fields):
    edit_plan(run, **fields)
    with pytest.raises(RunError):
        verify_run(run)


def test_a_record_of_an_input_that_nobody_asked_for(run):
    sql(run / "journal.sqlite", 'UPDATE records SET "index" = 99 WHERE "index" = 2')
    assert "--every" in messages(run)[99]


def test_records_that_were_taken_out_are_named(run):
    sql(run / "journal.sqlite", 'DELETE FROM records WHERE "index" IN (2, 5)')
    report = verify_run(run).report
    assert report.finished is False
    assert any("2, 5" in note for note in report.notes)


def test_a_number_of_inputs_beyond_all_measure_takes_no_time(run):
    path = run / "run.json"
    content = json.loads(path.read_text())
    content["data"] |= {"inputs": 10**15, "planned": 10**15}
    path.write_text(json.dumps(content))
    sql(run / "journal.sqlite", f'UPDATE records SET "index" = {10**15 - 1} WHERE "index" = 7')
    report = verify_run(run).report
    assert report.inputs == [10**15 - 1]  # its votes are of input 7
    assert any(str(10**15 - 8) in note for note in report.notes)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_a_truncated_journal_is_unreadable(run, keep):
    path = run / "journal.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    if keep == 0:  # an empty file is an empty database: nothing is left that could be wrong
        report = verify_run(run).report
        assert (report.records, report.recomputed, report.finished) == (0, 0, False)
        return
    with pytest.raises(RunError, match=r"journal\.sqlite"):
        verify_run(run)


@pytest.mark.parametrize(
    ("commands", "odd"),
    [
        (["ALTER TABLE records RENAME TO hidden", "CREATE VIEW records AS SELECT * FROM hidden"], "hidden"),
        (["ALTER TABLE records ADD COLUMN later TEXT DEFAULT 'x'"], "records"),
        (
            ["ALTER TABLE records RENAME COLUMN radius TO was", "ALTER TABLE records ADD COLUMN radius REAL"],
            "records",
        ),
        (
            [  # without its primary key: a record may be there twice
                "CREATE TABLE copy AS SELECT * FROM records",
                "DROP TABLE records",
                "ALTER TABLE copy RENAME TO records",
            ],
            "records",
        ),
        (["CREATE INDEX quick ON records (radius)"], "quick"),
        (["CREATE TABLE totals (records, checksums, statement)"], "totals"),
    ],
)
def test_tables_that_smoothcert_never_made(run, commands, odd):
    sql(run / "journal.sqlite", *commands)
    with pytest.raises(RunError, match=rf"journal\.sqlite.*'{odd}'"):
        verify_run(run)


@pytest.mark.parametrize(
    "change", ["records = 9e999", "records = 'many'", "checksums = 'no number'", "checksums = x'00'"]
)
def test_totals_that_are_no_numbers(honest, tmp_path, change):
    run = Path(shutil.copytree(honest, tmp_path / "run"))
    assert len(sql(run / "journal.sqlite", f"UPDATE totals SET {change} RETURNING 1")) == 1
    with pytest.raises(RunError, match=r"journal\.sqlite.*totals"):
        verify_run(run)


def test_the_tables_of_every_version_are_known():
    assert {name: set(texts) for name, texts in reading.TABLES.items()} == {
        name: set(texts) for name, texts in TABLES.items()
    }


def test_columns_of_earlier_versions_may_be_missing(run):
    later = ("base", "volume_radius", "stopped")
    sql(run / "journal.sqlite", *(f"ALTER TABLE records DROP COLUMN {name}" for name in later))
    assert messages(run) == {}


def test_calling_a_run_imported_does_not_hide_its_votes(run):
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "import"}))
    report = verify_run(run).report
    assert report.recomputed == 0
    assert report.inputs == [record.index for record in read_run(run).records]


def test_a_digest_that_somebody_told(honest):
    digest = verify_run(honest).report.results_sha256
    assert verify_run(honest, digest).report.holds
    assert not verify_run(honest, "0" * 64).report.holds


@pytest.mark.parametrize("kind", ["diagonal-gaussian", "diagonal-uniform"])
def test_stretched_regions(tmp_path, kind):
    run = stretched(tmp_path / "run", kind)
    victim = certified_inputs(run)[0]
    edit_record(run, victim, volume_radius=column(run, victim, "volume_radius") * (1 + 1e-9))
    assert says(messages(run)[victim], operator.gt)
    edit_record(run, victim, volume_radius=None)
    assert list(messages(run)) == [victim]
    assert "volume" in messages(run)[victim]


def test_scales_that_were_replaced(tmp_path):
    run = stretched(tmp_path / "run", "diagonal-gaussian")
    np.save(run / "sigmas.npy", np.array([0.8, 1.4, 1.1]))
    found = messages(run)
    assert says(found[None], rf"sigmas\.npy.*{DIGEST}")
    assert set(certified_inputs(run)) <= set(found)
    (run / "sigmas.npy").unlink()
    assert "sigmas.npy" in messages(run)[None]
    assert not says(messages(run)[None], DIGEST)


def test_a_stated_least_sigma_or_mean_that_is_not_the_vectors(tmp_path):
    run = stretched(tmp_path / "run", "diagonal-gaussian")
    edit_plan(run, least_sigma=0.5)
    assert "least_sigma" in messages(run)[None]
    edit_plan(run, least_sigma=0.4, sigma=0.56)
    assert says(messages(run)[None], r"\bsigma\b.*0\.56.*sigmas\.npy.*0\.536")


def test_a_searched_sigma_raised_with_its_radius(tmp_path):
    run = certified(tmp_path / "run", Linear(), search=SEARCHES["ladder"]())
    victim = certified_inputs(run)[0]
    sigma = column(run, victim, "sigma")
    edit_record(run, victim, sigma=sigma * 2, radius=column(run, victim, "radius") * 2)
    assert figures(messages(run)[victim]) == [2 * sigma, sigma]
    (run / "sigma_search.jsonl").unlink()
    assert "sigma_search.jsonl" in messages(run)[victim]


def test_an_ellipsoid_that_was_replaced(tmp_path):
    run = certified(tmp_path / "run", Linear(), search=EllipsoidSearch(steps=30))
    victim = next((run / "sigmas").iterdir())
    np.save(victim, np.load(victim) * 2)
    assert says(messages(run)[int(victim.stem)], rf"{victim.name}.*{DIGEST}")
    shutil.rmtree(run / "sigmas")
    assert victim.name in messages(run)[int(victim.stem)]
    assert not says(messages(run)[int(victim.stem)], DIGEST)


def test_soft_votes_that_cannot_be(tmp_path):
    run = certified(tmp_path / "run", scores, bound="bernstein")
    victim = certified_inputs(run)[0]

    def surer(votes: dict[str, Any]) -> None:
        votes["sums"] = [2 * total for total in votes["sums"]]

    edit_votes(run, victim, "estimation", surer)
    of_sums = [one for one in verify_run(run).report.problems if "squares" not in one.message]
    assert [one.index for one in of_sums] == [victim]
    assert "estimation" in of_sums[0].message

    def steadier(votes: dict[str, Any]) -> None:
        votes["sums"] = [total // 2 for total in votes["sums"]]
        votes["squares"] = [0] * len(votes["squares"])

    edit_votes(run, victim, "estimation", steadier)
    assert says(messages(run)[victim], r"squares.*\b0\b.*estimation")


def test_stopped_where_the_bound_has_no_look(tmp_path):
    run = certified(tmp_path / "run", stop=("decide:0.2",), bound="looks")
    victim = certified_inputs(run)[0]

    def cut(votes: dict[str, Any]) -> None:
        votes["counts"] = [min(count, 90) for count in votes["counts"]]

    edit_votes(run, victim, "estimation", cut)
    cast = sum(json.loads(column(run, victim, "estimation"))["counts"])
    (problem,) = verify_run(run).report.problems
    assert problem.index == victim
    assert says(problem.message, rf"\b{cast}\b")
    edit_record(run, victim, stopped=None)
    (unexplained,) = {one.message for one in verify_run(run).report.problems} - {problem.message}
    assert unexplained, "why it ended"


def test_more_votes_than_a_rule_allows(tmp_path):
    run = certified(tmp_path / "run", stop=("decide:0.2",))
    victim = certified_inputs(run)[0]
    edit_votes(run, victim, "estimation", lambda votes: votes.update(counts=[1100, 0, 0]))
    assert says(messages(run)[victim], r"\b1100\b.*\b1000\b")


@pytest.fixture
def total(tmp_path) -> Path:
    """A run that spreads a total."""
    return without_checksums(certified(tmp_path / "run", stop=("total:12000,100",)))


def test_other_votes_than_were_allocated(total):
    victim = certified_inputs(total)[0]
    edit_votes(total, victim, "estimation", more)
    cast = sum(json.loads(column(total, victim, "estimation"))["counts"])
    assert says(messages(total)[victim], rf"\b{cast}\b.*allocation\.json.*\b{cast - 1}\b")


def test_an_allocation_that_does_not_add_up(total):
    path = total / "allocation.json"
    content = json.loads(path.read_text())
    spent = content["spent_before"]
    votes = {index: n + 10**4 for index, n in content["votes"].items()}
    for change, told in (
        ({"total": 10**6}, r"\b1000000\b.*total:12000,100"),
        ({"spent_before": 0}, rf"\b0\b.*pilots\.jsonl.*\b{spent}\b"),
        ({"votes": votes}, rf"\b{sum(votes.values()) + spent}\b.*\b12000\b"),
    ):
        path.write_text(json.dumps(content | change))
        assert says(messages(total)[None], rf"allocation\.json.*{told}")
    path.unlink()
    with pytest.raises(RunError, match="allocation"):
        verify_run(total)


def test_pilot_votes_must_not_be_those_that_certify(total):
    path = total / "pilots.jsonl"
    path.write_text(path.read_text().replace('"phase": "pilot"', '"phase": "estimation"'))
    assert says(next(iter(messages(total).values())), r"pilots\.jsonl.*estimation.*\bpilot\b")
    path.unlink()
    assert any("pilots.jsonl" in message for message in messages(total).values())


def test_votes_of_a_memorys_run_are_checked_all_the_same(honest, tmp_path):
    remember(read_run(honest), dataset(), tmp_path / "memory", tmp_path / "run")
    victim = certified_inputs(tmp_path / "run")[0]
    edit_votes(tmp_path / "run", victim, "estimation", lambda votes: votes.update(seed=3))
    assert list(messages(tmp_path / "run")) == [victim]


def test_impossible_votes_and_sigmas_of_a_memorys_run_are_not_computed_with(tmp_path):
    """A negative σ took forever, negative counts and counts beyond all measure ended in a traceback."""
    search = certified(tmp_path / "search", Linear(), search=SEARCHES["ladder"]())
    remember(read_run(search), dataset(), tmp_path / "memory", tmp_path / "made")
    for folder in (search, tmp_path / "made"):
        for odd in (-1.0, math.inf):
            run = copied(folder, tmp_path / f"{folder.name} {odd}")
            edit_record(run, 0, sigma=odd)
            lines = run / "sigma_search.jsonl"
            if lines.exists():
                found = {line["index"]: line for line in map(json.loads, lines.read_text().splitlines())}
                found[0]["sigma"] = odd
                lines.write_text("".join(json.dumps(line) + "\n" for line in found.values()))
            assert list(messages(run)) == [0]
    for counts in ([-1, 1001, 0], [10**39, 0, 0], [0, 10**39, 0]):
        run = copied(tmp_path / "made", tmp_path / f"counts {counts}")
        edit_votes(run, 0, "estimation", lambda votes, counts=counts: votes.update(counts=counts))
        assert list(messages(run)) == [0]


def test_memorys_answer_on_the_edge_of_a_region_has_a_class_and_no_radius(honest, tmp_path):
    remember(read_run(honest), dataset(), tmp_path / "memory", tmp_path / "made")
    run = copied(tmp_path / "made", tmp_path / "run")
    edit_record(run, certified_inputs(run)[0], radius=0.0)
    assert messages(run) == {}
    edit_record(run, certified_inputs(run)[1], radius=-0.1)
    assert len(messages(run)) == 1
