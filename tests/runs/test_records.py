"""Columns of records, and their row view."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from smoothcert.errors import RunError
from smoothcert.runs.records import UNKNOWN, Record, Records, results_digest
from smoothcert.tally import Phase, Stream, Tally


def tally(index: int, phase: Phase, counts: tuple[int, ...], soft: bool = False) -> Tally:
    sums = tuple(2**32 * c for c in counts) if soft else None
    return Tally(Stream(2**90, index, phase), 3, 3 + sum(counts), counts, sums, sums)


def tallies(index: int, chosen: tuple[int, ...], counts: tuple[int, ...], soft: bool = False) -> list[Tally]:
    return [tally(index, Phase.SELECTION, chosen), tally(index, Phase.ESTIMATION, counts, soft)]


RECORDS = [
    Record(5, 1, 1, 0.1 + 0.2, 0.5, 1.5, *tallies(5, (1, 9), (3, 97)), 1),
    Record(0, 1, 0, 0.25, 0.5, 0.0, *tallies(0, (9, 1), (99, 1), soft=True)),
    Record(7, 0, -1, 0.0, 0.25, 0.5, None, None, None, None, "wrong"),
    Record(9, 0, 0, 1e-300, 0.25, 0.5, None, None, 0, 0.75),
]


def test_rows_come_back_in_order_with_plain_values():
    records = Records.of(RECORDS)
    assert list(records) == sorted(RECORDS, key=lambda record: record.index)
    assert records == tuple(sorted(RECORDS, key=lambda record: record.index))
    assert records[-1] == RECORDS[3]
    assert Records.of(records) is records
    assert len(Records.of(())) == 0
    assert not Records.of(())
    for each in fields(Record):
        value = getattr(Records.of(RECORDS)[0], each.name)
        assert not isinstance(value, np.generic | np.ndarray), each.name


def test_columns_say_what_rows_say():
    records = Records.of(RECORDS)
    assert records.index.tolist() == [0, 5, 7, 9]
    assert records.correct.tolist() == [record.correct for record in records]
    assert records.abstained.tolist() == [record.abstained for record in records]
    assert records.base.tolist() == [UNKNOWN, 1, UNKNOWN, 0]
    assert np.isnan(records.volume_radius).tolist() == [True, True, True, False]
    assert records.digest == results_digest(RECORDS)
    assert not records.has_votes()
    assert records[:2].has_votes()


def test_parts():
    records = Records.of(RECORDS)
    assert list(records.take(records.correct)) == [record for record in records if record.correct]
    assert list(records.take(np.array([2, 0]))) == [records[2], records[0]]
    assert list(records[1:3]) == [records[1], records[2]]
    assert records != records[1:3]
    assert records != [*records[:3], replace(records[3], radius=0.5)]


GOOD = json.dumps(tally(4, Phase.ESTIMATION, (1, 99)).as_json())
COLUMNS = {
    **{"index": [4], "label": [1], "predicted": [1], "radius": [0.5], "sigma": [0.5], "seconds": [1.0]},
    **{"selection": [GOOD], "estimation": [GOOD], "base": [None], "volume_radius": [None], "stopped": [None]},
}


@pytest.mark.parametrize(
    "bad", ["", "{", "[]", "{}", "null", "7", GOOD.replace("99", "-99"), GOOD.replace("4", "4.5")]
)
def test_votes_that_are_damaged_are_named_when_they_are_looked_at(bad):
    records = Records.read(COLUMNS | {"estimation": [bad]}, Path("run/journal.sqlite"))
    assert records.correct.tolist() == [True]  # figures that need no votes don't
    with pytest.raises(RunError, match=r"run/journal\.sqlite.*\b4\b"):
        records[0]


def test_votes_as_columns_and_an_answer_that_they_do_not_have():
    votes = Records.of(RECORDS).votes
    assert votes.total.tolist()[:2] == [100, 100]
    assert np.isnan(votes.total[2:]).all()
    assert votes.chosen.tolist() == [0, 1, -2, -2]
    assert votes.chosen_votes[:2].tolist() == [99, 97]
    assert votes.rival[:2].tolist() == [0, 0]  # input 0 is answered with a wrong class
    assert votes.rival_votes[:2].tolist() == [99, 3]
    records = Records.read(COLUMNS | {"predicted": [2]}, Path("journal"))
    with pytest.raises(RunError, match=r"journal.*\b4\b"):
        list(records)


@pytest.mark.parametrize("indent", [None, 1])
def test_the_digest_and_the_votes_are_those_of_the_rows_however_they_are_written(indent):
    columns = {each.name: [getattr(r, each.name) for r in Records.of(RECORDS)] for each in fields(Record)}
    for name in ("selection", "estimation"):
        columns[name] = [None if t is None else json.dumps(t.as_json(), indent=indent) for t in columns[name]]
    records = Records.read(columns, Path("journal"))
    assert records.digest == results_digest(RECORDS)
    assert np.array_equal(records.votes.leader_votes, Records.of(RECORDS).votes.leader_votes)


@pytest.mark.parametrize(
    "changed",
    [GOOD.replace("[1", "[01"), GOOD.replace("estimation", "voting"), GOOD.replace("}", ', "x": 1}')],
)
def test_what_would_be_written_otherwise_is_not_taken_as_it_is(changed):
    records = Records.read(COLUMNS | {"estimation": [changed]}, Path("journal"))
    if '"x"' in changed:
        assert records.digest == Records.read(COLUMNS, Path("journal")).digest
    else:
        with pytest.raises(RunError, match=r"journal.*\b4\b"):
            records.digest  # noqa: B018


def test_values_that_no_record_has_are_refused():
    for odd in [
        *({"index": value} for value in (-1, 2**53 + 1, True, "4", None)),
        *({name: value} for name in ("label", "base") for value in (-1, 10**6, 1.0, "1", b"1")),
        *({"predicted": value} for value in (-2, 10**6, None)),
        *(
            {name: value}
            for name in ("radius", "sigma", "seconds")
            for value in (-0.5, 1e60, float("nan"), 1, "1", None)
        ),
        *({"volume_radius": value} for value in (-0.5, float("inf"), 1, "1")),
        *({"stopped": value} for value in (1, "x" * 2000)),
        *({name: value} for name in ("selection", "estimation") for value in (1, b"{}")),
    ]:
        (name,) = odd
        with pytest.raises(ValueError, match=name):
            Records.read(COLUMNS | {name: [odd[name]]}, Path("journal"))
