"""Certificates at a σ per input, and answers of a memory, are never sold as certificates of one classifier."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from smoothcert.analysis.ceiling import radius_ceiling
from smoothcert.analysis.comparison import compare
from smoothcert.analysis.intervals import acr_interval, robust_radius_lower_bound, statement
from smoothcert.empirical import check_attackable
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.report.statements import HeadlineRadius, guarantee, headline
from smoothcert.runs import Record, Run
from tests.analysis.made_runs import FIVE_AND_TWO, made_run

RECORDS = tuple(replace(record, radius=0.2 * record.radius) for record in FIVE_AND_TWO)  # as the plan allows
PLAIN, SEARCHED, REMEMBERED = (
    made_run("plain", RECORDS, votes="hard"),
    made_run("searched", RECORDS, votes="hard", sigma_search="ladder", stateful=False),
    made_run("remembered", RECORDS, votes="hard", sigma_search="ladder", stateful=True),
)


def names_sigma(text: str) -> bool:
    return re.search("σ|sigma", text) is not None


def page(run: Run) -> tuple[str, str, str]:
    said = headline(run, HeadlineRadius.fixed(0.25))
    return said.text(), guarantee(run), " ".join(said.notes)


def test_a_run_says_which_classifier_it_speaks_of() -> None:
    assert [run.manifest.subject for run in (PLAIN, SEARCHED, REMEMBERED)] == [
        "one classifier",
        "frozen sigma",
        "memory",
    ]


def test_the_population_statement_names_the_frozen_classifier() -> None:
    assert not names_sigma(statement(PLAIN, 0.25))
    assert names_sigma(statement(SEARCHED, 0.25))


@pytest.mark.parametrize(
    "figure",
    [
        lambda run: statement(run, 0.25),
        lambda run: acr_interval(run, ceiling=2.0),
        lambda run: robust_radius_lower_bound(run, 0.01, ceiling=2.0),
    ],
)
def test_nothing_follows_from_a_memory_for_other_inputs(figure) -> None:
    figure(PLAIN)
    figure(SEARCHED)
    with pytest.raises(RunError, match="remembered"):
        figure(REMEMBERED)


def test_a_memory_is_neither_compared_nor_attacked() -> None:
    with pytest.raises(InvalidValueError, match="remembered"):
        compare(PLAIN, REMEMBERED, [0.25])
    with pytest.raises(RunError, match="remembered"):
        check_attackable(REMEMBERED)


def test_the_page_says_so_too() -> None:
    """Of a memory nothing follows with any probability: neither that of the headline nor that of a certificate."""
    text, promise, notes = page(PLAIN)
    assert not names_sigma(text + promise + notes)
    assert "99 %" in text
    assert "99.9 %" in promise
    assert all(map(names_sigma, page(SEARCHED)))
    text, promise, _ = page(REMEMBERED)
    assert "99 %" not in text
    assert "%" not in promise


@pytest.mark.parametrize("figure", [acr_interval, lambda run: robust_radius_lower_bound(run, 0.01)])
def test_a_search_that_moved_nothing_could_have_moved_everything(figure) -> None:
    """The range of radii follows from the plan, not from what was found: σ might have been four times as large."""
    records = (Record(0, 1, 1, 0.5, 0.25, 1.0), Record(1, 2, 2, 0.4, 0.25, 1.0))
    figure(made_run("plain", records))
    assert radius_ceiling(made_run("plain", records)) is not None
    searched = made_run("searched", records, sigma_search="ladder")
    assert radius_ceiling(searched) is None
    with pytest.raises(RunError, match="ceiling="):
        figure(searched)
