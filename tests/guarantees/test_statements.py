"""Statements about other inputs are false no more often than they say, and about the classifier that they name.

Of complete runs alone, of logs as printed; a σ per input and a memory are never sold as one classifier.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from smoothcert.analysis.comparison import compare
from smoothcert.analysis.evidence import radius_ceiling
from smoothcert.analysis.intervals import (
    acr_interval,
    population_lower_bound,
    robust_radius_lower_bound,
    statement,
)
from smoothcert.analysis.report.statements import HeadlineRadius, guarantee, headline
from smoothcert.empirical.attacker import check_attackable
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.runs.field_log import Printed, import_manifest, read_field_log
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, create_run, read_run
from tests.analysis.made_runs import FIVE_AND_TWO, made_run

PLAN = {
    "noise": "gaussian",
    "sigma": 0.25,
    "norm": "l2",
    "bound": "clopper-pearson",
    "n": 1000,
    "alpha": 0.001,
}


def quickest_first(seed: int, inputs: int = 200) -> list[Record]:
    """Half the inputs are robust at 0.5 and decided at once; the others take long. In the order they are done."""
    robust = np.random.default_rng(seed).random(inputs) < 0.5
    done = np.argsort(~robust, kind="stable").tolist()
    return [Record(index, 1, 1, 0.6 if robust[index] else 0.1, 0.25, 1.0) for index in done]


FIGURES = [lambda run: statement(run, 0.5), acr_interval, lambda run: robust_radius_lower_bound(run, 0.01)]


def run_of(records: list[Record], planned: int) -> Run:
    data = {"name": "drawn", "sha256": "d" * 64, "inputs": planned, "skip": 1, "planned": planned}
    ordered = tuple(sorted(records, key=lambda record: record.index))
    return Run(Path("run"), Manifest.of("certify", PLAN, {"sha256": "m" * 64}, data), ordered)


@pytest.mark.parametrize("done", [1, 20, 60, 199])
def test_nothing_is_stated_of_a_run_under_way(done):
    records = quickest_first(0)
    begun, whole = run_of(records[:done], 200), run_of(records, 200)
    # What would be stated of those done is false: half of all inputs are robust.
    if done in (20, 60):
        share = sum(record.radius >= 0.5 for record in begun.records)
        assert population_lower_bound(share, done, 0.001, 0.01) > 0.5
    compared = (
        lambda run: compare(run, whole, [0.5], common=True),
        lambda run: compare(whole, run, [0.5], common=True),
    )
    for figure in (*FIGURES, *compared):
        with pytest.raises(RunError, match=rf"\b{done}\b.*\b200\b"):
            figure(begun)
    told = headline(begun, HeadlineRadius.fixed(0.5))
    assert not told.proved
    assert "%" not in told.text()
    assert headline(whole, HeadlineRadius.fixed(0.5)).proved


def test_nothing_is_stated_of_inputs_that_the_model_may_have_learnt():
    """A model that knows its training inputs by heart is right on all of them, and on half of the others."""
    run = run_of([Record(index, 1, 1, 0.6, 0.25, 1.0) for index in range(200)], 200)
    learnt, tested = (
        replace(run, manifest=run.manifest.stating(origin={"split": split})) for split in ("train", "test")
    )
    for figure in FIGURES:
        with pytest.raises(RunError, match=r"\btrain\b"):
            figure(learnt)
        figure(tested)
    told = headline(learnt, HeadlineRadius.fixed(0.5))
    assert not told.proved
    assert "99 %" not in told.text()


def test_a_run_that_does_not_say_what_was_asked_for_is_not_known_to_be_complete():
    for data in [
        {},
        {"inputs": 300, "skip": 1},
        {"planned": "all"},
        {"planned": True},
        {"planned": 10**40},
        {"inputs": 200, "planned": None},
        {"inputs": 200, "planned": 400},
    ]:
        run = run_of(quickest_first(0), 200)
        old = replace(run, manifest=run.manifest.stating(data=data))
        assert not old.complete
        with pytest.raises(RunError, match=r"\b200\b"):
            statement(old, 0.5)
        assert not headline(old, HeadlineRadius.fixed(0.5)).proved
        whole = replace(run, manifest=run.manifest.stating(data={"inputs": 200, "skip": 1}))
        assert whole.complete
        assert statement(whole, 0.5)


def printed_log(path: Path, radii: list[float], form: str = "{:.3}") -> Path:
    lines = [f"{i}\t1\t1\t{form.format(radius)}\t1\t0:00:01\n" for i, radius in enumerate(radii)]
    path.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n" + "".join(lines))
    return path


def imported(path: Path, log: Path) -> Run:
    read = read_field_log(log, 0.25)
    manifest = import_manifest(log, 0.25, bound="clopper-pearson", n=1000, alpha=0.001, read=read)
    create_run(path, manifest, read.records)
    return read_run(path)


@pytest.mark.parametrize("form", ["{:.3}", "{:.2f}", "{:.1}", "{:.4f}", "{!r}", "{:.3e}"])
def test_no_certified_radius_is_above_what_is_taken_for_certain_nor_below(form):
    radii = [*np.random.default_rng(0).exponential(0.1, 500).tolist(), 0.0, 0.0995, 9.996, 1.2e-05]
    texts = [form.format(radius) for radius in radii]
    printed = np.array([float(text) for text in texts])
    doubts = Printed.of(texts).half_units(printed)
    assert (printed - doubts <= radii).all()
    assert (printed + doubts >= radii).all()


def test_radii_printed_exactly_at_the_radius_do_not_count(tmp_path):
    """All are certified at 0.4996 and printed 0.5: that any is robust at 0.5 must not be claimed."""
    run = imported(tmp_path / "run", printed_log(tmp_path / "log.tsv", [0.4996] * 99 + [0.123]))
    assert {record.radius for record in run.records} == {0.5, 0.123}  # figures stay as they are published
    assert " 0.0 %" in statement(run, 0.5)
    assert " 0.0 %" not in statement(run, 0.499)


def test_the_acr_of_a_log_allows_for_its_rounding(tmp_path):
    """Radii of 0.549 and of 0.451 are both printed 0.5: the interval of the log holds those of both."""
    for radius in (0.549, 0.451):
        log = printed_log(tmp_path / "log.tsv", [radius] * 100, "{:.1f}")
        low, high = acr_interval(imported(tmp_path / str(radius), log))
        exact = run_of([Record(index, 1, 1, radius, 0.25, 1.0) for index in range(100)], 100)
        assert low <= acr_interval(exact)[0]
        assert high >= acr_interval(exact)[1]
        assert robust_radius_lower_bound(imported(tmp_path / f"{radius}x", log), 0.01) <= radius - 0.001


def test_a_radius_above_the_ceiling_by_rounding_is_no_error(tmp_path):
    ceiling = 0.25 * norm.ppf(0.001 ** (1 / 1000))
    assert float(f"{ceiling:.3}") > ceiling
    run = imported(tmp_path / "run", printed_log(tmp_path / "log.tsv", [ceiling] * 60 + [0.1234] * 40))
    low, high = acr_interval(run)
    assert low < 0.6 * ceiling + 0.4 * 0.1234 < high
    assert robust_radius_lower_bound(run, 0.01) < low + 0.01
    # Beyond rounding, the plan that was stated isn't the log's: no probability follows from it.
    other = imported(tmp_path / "other", printed_log(tmp_path / "other.tsv", [ceiling + 0.01] * 100))
    for refused in (lambda: statement(other, 0.5), lambda: acr_interval(other)):
        with pytest.raises(RunError, match=re.escape(f"{other.records[0].radius:g}")):
            refused()


def test_a_log_states_its_own_inputs_and_a_cut_one_none(tmp_path):
    log = printed_log(tmp_path / "log.tsv", [0.5] * 20)
    assert imported(tmp_path / "whole", log).complete
    log.write_text(log.read_text()[:-12])
    cut = imported(tmp_path / "cut", log)
    assert not cut.complete
    with pytest.raises(RunError, match=r"\b19\b"):
        statement(cut, 0.1)
    gaps = tmp_path / "gaps.tsv"
    gaps.write_text("".join(line for k, line in enumerate(log.read_text().splitlines(True)[:-1]) if k != 3))
    assert imported(tmp_path / "gaps", gaps).complete


RECORDS = tuple(replace(record, radius=0.2 * record.radius) for record in FIVE_AND_TWO)  # as the plan allows
PLAIN, SEARCHED, REMEMBERED = (
    made_run("plain", RECORDS, votes="hard"),
    made_run("searched", RECORDS, votes="hard", sigma_search="ladder", stateful=False),
    made_run("remembered", RECORDS, votes="hard", sigma_search="ladder", stateful=True),
)


def names_sigma(text: str) -> bool:
    return re.search("σ|sigma", text) is not None


def test_a_run_says_which_classifier_it_speaks_of():
    subjects = [run.manifest.subject for run in (PLAIN, SEARCHED, REMEMBERED)]
    assert subjects == ["one classifier", "frozen sigma", "memory"]
    assert not names_sigma(statement(PLAIN, 0.25))
    assert names_sigma(statement(SEARCHED, 0.25))


def test_nothing_follows_from_a_memory_for_other_inputs():
    for figure in (
        lambda run: statement(run, 0.25),
        lambda run: acr_interval(run, ceiling=2.0),
        lambda run: robust_radius_lower_bound(run, 0.01, ceiling=2.0),
    ):
        figure(PLAIN)
        figure(SEARCHED)
        with pytest.raises(RunError, match="remembered"):
            figure(REMEMBERED)
    with pytest.raises(InvalidValueError, match="remembered"):
        compare(PLAIN, REMEMBERED, [0.25])
    with pytest.raises(RunError, match="remembered"):
        check_attackable(REMEMBERED)


def test_the_page_says_so_too():
    """Of a memory nothing follows with any probability: neither that of the headline nor that of a certificate."""

    def page(run: Run) -> tuple[str, str, str]:
        told = headline(run, HeadlineRadius.fixed(0.25))
        return told.text(), guarantee(run), " ".join(told.notes)

    text, promise, notes = page(PLAIN)
    assert not names_sigma(text + promise + notes)
    assert "99 %" in text
    assert "99.9 %" in promise
    assert all(map(names_sigma, page(SEARCHED)))
    text, promise, _ = page(REMEMBERED)
    assert "99 %" not in text
    assert "%" not in promise


@pytest.mark.parametrize("figure", [*FIGURES[1:]])
def test_a_search_that_moved_nothing_could_have_moved_everything(figure):
    """The range of radii follows from the plan, not from what was found: σ might have been four times as large."""
    records = (Record(0, 1, 1, 0.5, 0.25, 1.0), Record(1, 2, 2, 0.4, 0.25, 1.0))
    figure(made_run("plain", records))
    assert radius_ceiling(made_run("plain", records)) is not None
    searched = made_run("searched", records, sigma_search="ladder")
    assert radius_ceiling(searched) is None
    with pytest.raises(RunError, match="ceiling="):
        figure(searched)
