"""Whoever changes a run is found out, at the right inputs."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.errors import RunError
from smoothcert.region_memory.runs import remember
from smoothcert.runs import read_run
from smoothcert.runs.rows import TABLES
from smoothcert.sigma_search import SEARCHES, EllipsoidSearch
from smoothcert.verification import journal, verify_run
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
    messages,
    scores,
    stretched,
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(tmp_path_factory.mktemp("honest") / "run")


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return copied(honest, tmp_path / "run")


def certified_inputs(run: Path) -> list[int]:
    return [record.index for record in read_run(run).records if not record.abstained]


def test_a_radius_raised_by_a_billionth(run: Path) -> None:
    victim = certified_inputs(run)[1]
    edit_record(run, victim, radius=column(run, victim, "radius") * (1 + 1e-9))
    found = messages(run)
    assert list(found) == [victim]
    assert "larger than its votes support" in found[victim]


def test_the_exact_radius_is_the_border_to_the_last_place(run: Path) -> None:
    """The largest float up to the exact radius follows, the next one doesn't."""
    victim = certified_inputs(run)[0]
    edit_record(run, victim, radius=column(run, victim, "radius") * 2)
    (message,) = messages(run).values()
    exact = float(message.rpartition(" ")[2])
    low = math.nextafter(exact, 0)
    edit_record(run, victim, radius=low)
    assert messages(run) == {}
    edit_record(run, victim, radius=math.nextafter(exact, math.inf))
    assert list(messages(run)) == [victim]


@pytest.mark.parametrize("factor", [0.999, 0.5])
def test_a_radius_much_smaller_than_the_votes_support(run: Path, factor: float) -> None:
    victim = certified_inputs(run)[0]
    edit_record(run, victim, radius=column(run, victim, "radius") * factor)
    assert "smaller than the votes support" in messages(run)[victim]


@pytest.mark.parametrize("radius", [math.inf, -1.0, 0.0, "large", 1e308])
def test_radii_that_are_none(run: Path, radius: Any) -> None:
    victim = certified_inputs(run)[0]
    edit_record(run, victim, radius=radius)
    assert list(messages(run)) == [victim]


def test_a_changed_class(run: Path) -> None:
    victim = certified_inputs(run)[0]
    edit_record(run, victim, predicted=1 - column(run, victim, "predicted"))
    assert "selection votes chose" in messages(run)[victim]


@pytest.mark.parametrize(
    "fields",
    [{"predicted": 3}, {"predicted": -2}, {"label": 3}, {"label": -1}, {"base": 3}, {"abstained": 1}],
)
def test_classes_that_cannot_be(run: Path, fields: dict[str, int]) -> None:
    victim = certified_inputs(run)[0]
    edit_record(run, victim, **fields)
    assert list(messages(run)) == [victim]


def test_an_abstention_that_the_votes_contradict(run: Path) -> None:
    victim = certified_inputs(run)[0]
    edit_record(run, victim, predicted=-1, abstained=1, radius=0.0)
    assert "abstains, where its votes certify" in messages(run)[victim]


def test_a_certificate_of_an_abstention(run: Path) -> None:
    (victim, *_) = [record.index for record in read_run(run).records if record.abstained]
    chosen = json.loads(column(run, victim, "selection"))["counts"]
    edit_record(run, victim, predicted=chosen.index(max(chosen)), abstained=0, radius=1e-12)
    assert "certify nothing" in messages(run)[victim]


def moved(votes: dict[str, Any]) -> None:
    best, least = votes["counts"].index(max(votes["counts"])), votes["counts"].index(min(votes["counts"]))
    votes["counts"][best] -= 5
    votes["counts"][least] += 5


def more(votes: dict[str, Any]) -> None:
    votes["counts"][votes["counts"].index(max(votes["counts"]))] += 1


@pytest.mark.parametrize(
    ("which", "change", "words"),
    [
        ("estimation", moved, "larger than its votes support"),
        ("estimation", more, "the plan states n = 1000"),
        ("selection", more, "the plan states n0 = 20"),
        ("estimation", lambda votes: votes.update(index=votes["index"] + 1), "estimation votes of input"),
        ("selection", lambda votes: votes.update(index=votes["index"] + 1), "selection votes of input"),
        ("estimation", lambda votes: votes.update(seed=7), "of seed 7"),
        ("estimation", lambda votes: votes.update(start=64), "from number 64"),
        (
            "estimation",
            lambda votes: votes.update(phase="selection"),
            "selection votes in the place of estimation",
        ),
        ("selection", lambda votes: votes.update(phase="search"), "search votes in the place of selection"),
        ("estimation", lambda votes: votes["counts"].append(0), "for 4 classes"),
        ("estimation", lambda votes: votes.update(counts=[1001, -1, 0]), "a count of -1"),
        ("estimation", lambda votes: votes.update(counts=[1000.0, 0, 0]), "aren't a list of whole numbers"),
        ("estimation", lambda votes: votes.pop("counts"), "aren't a list of whole numbers"),
        ("estimation", lambda votes: votes.update(seed=True), "no whole number"),
        (
            "estimation",
            lambda votes: votes.update(sums=[0, 0, 0], squares=[0, 0, 0]),
            "soft estimation votes",
        ),
    ],
)
def test_changed_votes(run: Path, which: str, change: Callable[[dict[str, Any]], None], words: str) -> None:
    victim = certified_inputs(run)[0]
    edit_votes(run, victim, which, change)
    found = messages(run)
    assert list(found) == [victim]
    assert words in found[victim]


def test_selection_votes_used_for_estimation(run: Path) -> None:
    victim = certified_inputs(run)[0]
    edit_record(run, victim, estimation=column(run, victim, "selection"))
    assert "selection votes in the place of estimation votes" in messages(run)[victim]


def test_votes_that_are_gone_or_no_json(run: Path) -> None:
    edit_record(run, 0, estimation=None)
    edit_record(run, 1, selection="{")
    edit_record(run, 2, selection="[]")
    found = messages(run)
    assert "keeps no votes" in found[0]
    assert "no JSON" in found[1]
    assert "no JSON object" in found[2]
    assert verify_run(run).report.results_sha256 is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"alpha": 0.0001}, "its votes"),
        ({"alpha": 0.01}, "smaller than the votes support"),
        ({"n": 2000}, "the plan states n = 2000"),
        ({"n0": 10}, "the plan states n0 = 10"),
        ({"sigma": 0.6}, "where the plan states 0.6"),
        ({"seed": 1}, "the plan's is 1"),
        ({"bound": "clopper-pearson"}, "votes support"),
        ({"noise": "uniform", "norm": "l1"}, "votes support"),
    ],
)
def test_an_edited_plan_speaks_against_all_certified_inputs(
    run: Path, fields: dict[str, Any], words: str
) -> None:
    edit_plan(run, **fields)
    found = messages(run)
    guilty = set(found) & set(certified_inputs(run))
    assert guilty
    assert all(words in found[index] for index in guilty)
    if "bound" not in fields:  # near unanimous votes one bound is as good as the other
        assert guilty == set(certified_inputs(run))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"norm": "l1"}, "certifies l2"),
        ({"votes": "soft"}, "is about hard votes"),
        ({"stop": ["decide:0.5"]}, "doesn't hold"),
        ({"bound": "looks", "n": 1001}, "looks"),
        ({"stop": ["oracle"]}, "oracle"),
        ({"stateful": True}, "which memory"),
    ],
)
def test_plans_that_contradict_themselves(run: Path, fields: dict[str, Any], words: str) -> None:
    edit_plan(run, **fields)
    assert words in messages(run)[None]


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
        {"bound": "magic"},
        {"noise": "laplace"},
        {"sigma": -1.0},
        {"sigma": 10**400},
        {"seed": None},
        {"stop": "decide:0.5"},
        {"stream": 3},
        {"stream": 2, "levels": None},
    ],
)
def test_plans_that_make_no_sense_are_unreadable(run: Path, fields: dict[str, Any]) -> None:
    edit_plan(run, **fields)
    with pytest.raises(RunError):
        verify_run(run)


def test_a_record_of_an_input_that_nobody_asked_for(run: Path) -> None:
    with sqlite3.connect(run / "journal.sqlite") as connection:
        connection.execute('UPDATE records SET "index" = 99 WHERE "index" = 2')
    connection.close()
    assert "none of the inputs" in messages(run)[99]


def test_records_that_were_taken_out_are_named(run: Path) -> None:
    with sqlite3.connect(run / "journal.sqlite") as connection:
        connection.execute('DELETE FROM records WHERE "index" IN (2, 5)')
    connection.close()
    report = verify_run(run).report
    assert report.finished is False
    assert any("2, 5" in note for note in report.notes)


def test_a_number_of_inputs_beyond_all_measure_takes_no_time(run: Path) -> None:
    path = run / "run.json"
    content = json.loads(path.read_text())
    content["data"] |= {"inputs": 10**15, "planned": 10**15}
    path.write_text(json.dumps(content))
    with sqlite3.connect(run / "journal.sqlite") as connection:
        connection.execute('UPDATE records SET "index" = ? WHERE "index" = 7', (10**15 - 1,))
    connection.close()
    report = verify_run(run).report
    assert report.inputs == [10**15 - 1]  # its votes are of input 7
    assert any(f"{10**15 - 8} inputs are missing" in note for note in report.notes)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_a_truncated_journal_is_unreadable(run: Path, keep: float) -> None:
    path = run / "journal.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    if keep == 0:  # an empty file is an empty database: nothing is left that could be wrong
        report = verify_run(run).report
        assert (report.records, report.recomputed, report.finished) == (0, 0, False)
        return
    with pytest.raises(RunError, match="damaged"):
        verify_run(run)


@pytest.mark.parametrize(
    "commands",
    [
        ["ALTER TABLE records RENAME TO hidden", "CREATE VIEW records AS SELECT * FROM hidden"],
        ["ALTER TABLE records ADD COLUMN later TEXT DEFAULT 'x'"],
        ["ALTER TABLE records RENAME COLUMN radius TO was", "ALTER TABLE records ADD COLUMN radius REAL"],
        [  # without its primary key: a record may be there twice
            "CREATE TABLE copy AS SELECT * FROM records",
            "DROP TABLE records",
            "ALTER TABLE copy RENAME TO records",
        ],
        ["CREATE INDEX quick ON records (radius)"],
        ["CREATE TABLE totals (records, checksums, statement)"],
    ],
)
def test_tables_that_smoothcert_never_made(run: Path, commands: list[str]) -> None:
    with sqlite3.connect(run / "journal.sqlite") as connection:
        for command in commands:
            connection.execute(command)
    connection.close()
    with pytest.raises(RunError, match="no journal that smoothcert made"):
        verify_run(run)


@pytest.mark.parametrize(
    "change", ["records = 9e999", "records = 'many'", "checksums = 'no number'", "checksums = x'00'"]
)
def test_totals_that_are_no_numbers(honest: Path, tmp_path: Path, change: str) -> None:
    run = Path(shutil.copytree(honest, tmp_path / "run"))
    with sqlite3.connect(run / "journal.sqlite") as connection:
        assert connection.execute(f"UPDATE totals SET {change}").rowcount == 1
    connection.close()
    with pytest.raises(RunError, match=r"is damaged .*no totals of its records"):
        verify_run(run)


def test_the_tables_of_every_version_are_known() -> None:
    assert {name: set(texts) for name, texts in journal.TABLES.items()} == {
        name: set(texts) for name, texts in TABLES.items()
    }


def test_columns_of_earlier_versions_may_be_missing(run: Path) -> None:
    with sqlite3.connect(run / "journal.sqlite") as connection:
        for name in ("base", "volume_radius", "stopped"):
            connection.execute(f"ALTER TABLE records DROP COLUMN {name}")
    connection.close()
    assert messages(run) == {}


def test_calling_a_run_imported_does_not_hide_its_votes(run: Path) -> None:
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "import"}))
    assert all("weren't recomputed" in message for message in messages(run).values())


def test_a_digest_that_somebody_told(honest: Path) -> None:
    digest = verify_run(honest).report.results_sha256
    assert verify_run(honest, digest).report.holds
    assert not verify_run(honest, "0" * 64).report.holds


@pytest.mark.parametrize("kind", ["diagonal-gaussian", "diagonal-uniform"])
def test_stretched_regions(tmp_path: Path, kind: str) -> None:
    run = stretched(tmp_path / "run", kind)
    victim = certified_inputs(run)[0]
    edit_record(run, victim, volume_radius=column(run, victim, "volume_radius") * (1 + 1e-9))
    assert "volume radius" in messages(run)[victim]
    edit_record(run, victim, volume_radius=None)
    assert "no volume radius" in messages(run)[victim]


def test_scales_that_were_replaced(tmp_path: Path) -> None:
    run = stretched(tmp_path / "run", "diagonal-gaussian")
    np.save(run / "sigmas.npy", np.array([0.8, 1.4, 1.1]))
    found = messages(run)
    assert "isn't the vector that is stated" in found[None]
    assert set(certified_inputs(run)) <= set(found)
    (run / "sigmas.npy").unlink()
    assert "can't be read" in messages(run)[None]


def test_a_stated_least_sigma_or_mean_that_is_not_the_vectors(tmp_path: Path) -> None:
    run = stretched(tmp_path / "run", "diagonal-gaussian")
    edit_plan(run, least_sigma=0.5)
    assert "least_sigma" in messages(run)[None]
    edit_plan(run, least_sigma=0.4, sigma=0.56)
    assert "geometric mean" in messages(run)[None]


def test_a_searched_sigma_raised_with_its_radius(tmp_path: Path) -> None:
    run = certified(tmp_path / "run", Linear(), search=SEARCHES["ladder"]())
    victim = certified_inputs(run)[0]
    edit_record(run, victim, sigma=column(run, victim, "sigma") * 2, radius=column(run, victim, "radius") * 2)
    assert "where its search found" in messages(run)[victim]
    (run / "sigma_search.jsonl").unlink()
    assert "has no line for it" in messages(run)[victim]


def test_an_ellipsoid_that_was_replaced(tmp_path: Path) -> None:
    run = certified(tmp_path / "run", Linear(), search=EllipsoidSearch(steps=30))
    victim = next((run / "sigmas").iterdir())
    np.save(victim, np.load(victim) * 2)
    assert "isn't the vector that is stated" in messages(run)[int(victim.stem)]
    shutil.rmtree(run / "sigmas")
    assert "can't be read" in messages(run)[int(victim.stem)]


def test_soft_votes_that_cannot_be(tmp_path: Path) -> None:
    run = certified(tmp_path / "run", scores, bound="bernstein")
    victim = certified_inputs(run)[0]

    def surer(votes: dict[str, Any]) -> None:
        votes["sums"] = [2 * total for total in votes["sums"]]

    edit_votes(run, victim, "estimation", surer)
    assert "add up to more than their number" in messages(run)[victim]

    def steadier(votes: dict[str, Any]) -> None:
        votes["sums"] = [total // 2 for total in votes["sums"]]
        votes["squares"] = [0] * len(votes["squares"])

    edit_votes(run, victim, "estimation", steadier)
    assert "don't fit its sum" in messages(run)[victim]


def test_stopped_where_the_bound_has_no_look(tmp_path: Path) -> None:
    run = certified(tmp_path / "run", stop=("decide:0.2",), bound="looks")
    victim = certified_inputs(run)[0]

    def cut(votes: dict[str, Any]) -> None:
        votes["counts"] = [min(count, 90) for count in votes["counts"]]

    edit_votes(run, victim, "estimation", cut)
    assert "none of the bound's looks" in messages(run)[victim]
    edit_record(run, victim, stopped=None)
    assert "why its voting ended" in messages(run)[victim]


def test_more_votes_than_a_rule_allows(tmp_path: Path) -> None:
    run = certified(tmp_path / "run", stop=("decide:0.2",))
    victim = certified_inputs(run)[0]
    edit_votes(run, victim, "estimation", lambda votes: votes.update(counts=[1100, 0, 0]))
    assert "the plan allows 1000" in messages(run)[victim]


def test_other_votes_than_were_allocated(tmp_path: Path) -> None:
    run = certified(tmp_path / "run", stop=("total:12000,100",))
    victim = certified_inputs(run)[0]
    edit_votes(run, victim, "estimation", more)
    assert "allocation.json gives it" in messages(run)[victim]


def test_an_allocation_that_does_not_add_up(tmp_path: Path) -> None:
    run = certified(tmp_path / "run", stop=("total:12000,100",))
    path = without_checksums(run) / "allocation.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"total": 10**6}))
    assert "the plan states total:12000,100" in messages(run)[None]
    path.write_text(json.dumps(content | {"spent_before": 0}))
    assert "votes before it" in messages(run)[None]
    votes = {index: n + 10**4 for index, n in content["votes"].items()}
    path.write_text(json.dumps(content | {"votes": votes}))
    assert "hands out" in messages(run)[None]
    path.unlink()
    with pytest.raises(RunError, match="allocation"):
        verify_run(run)


def test_pilot_votes_must_not_be_those_that_certify(tmp_path: Path) -> None:
    run = certified(tmp_path / "run", stop=("total:12000,100",))
    path = without_checksums(run) / "pilots.jsonl"
    path.write_text(path.read_text().replace('"phase": "pilot"', '"phase": "estimation"'))
    assert "of another stream in the place of pilot votes" in next(iter(messages(run).values()))
    path.unlink()
    assert any("by which n was chosen" in message for message in messages(run).values())


def test_votes_of_a_memorys_run_are_checked_all_the_same(honest: Path, tmp_path: Path) -> None:
    remember(read_run(honest), dataset(), tmp_path / "memory", tmp_path / "run")
    victim = certified_inputs(tmp_path / "run")[0]
    edit_votes(tmp_path / "run", victim, "estimation", lambda votes: votes.update(seed=3))
    assert list(messages(tmp_path / "run")) == [victim]


def test_memorys_answer_on_the_edge_of_a_region_has_a_class_and_no_radius(
    honest: Path, tmp_path: Path
) -> None:
    remember(read_run(honest), dataset(), tmp_path / "memory", tmp_path / "made")
    run = copied(tmp_path / "made", tmp_path / "run")
    edit_record(run, certified_inputs(run)[0], radius=0.0)
    assert messages(run) == {}
    edit_record(run, certified_inputs(run)[1], radius=-0.1)
    assert len(messages(run)) == 1
