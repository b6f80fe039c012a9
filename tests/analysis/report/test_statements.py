"""Statements: figures worked out independently, rounded down, and nothing said that isn't known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from smoothcert.analysis.evidence import radius_ceiling
from smoothcert.analysis.report.statements import RHO, HeadlineRadius, _units, guarantee, headline
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run
from smoothcert.runs.statement import OriginStatement
from tests.analysis.made_runs import made_run
from tests.analysis.texts import numbers


def of_radii(radii: list[float], **plan: object) -> Run:
    records = tuple(Record(i, 1, 1, radius, 0.25, 1.0) for i, radius in enumerate(radii))
    return made_run(records=records, **plan)


def test_a_radius_fixed_beforehand_gets_the_whole_probability():
    run = of_radii([0.6] * 90 + [0.1] * 10)
    said = headline(run, HeadlineRadius.fixed(0.5))
    bound = beta.ppf(0.01, 90, 11) - 0.001
    assert said.figure == f"{np.floor(1000 * bound) / 10:.1f} %"
    assert said.proved
    assert numbers(said.text()) == [said.figure.removesuffix(" %"), "0.5", "99"]
    assert "ℓ2" in said.text()
    assert not any("0.25" in note for note in said.notes), "no multiples to choose among"
    assert numbers(said.notes[0])[:3] == ["90", "100", "90.0"]


def test_a_radius_chosen_afterwards_pays_for_the_choice():
    run = of_radii([0.8] * 90 + [0.1] * 10, n=100_000)
    chosen = HeadlineRadius.of(run)
    assert chosen.value == 0.75
    assert chosen.rho == pytest.approx(RHO / (3 * 4))
    said = headline(run, chosen)
    assert said.figure == f"{np.floor(1000 * (beta.ppf(RHO / 12, 90, 11) - 0.001)) / 10:.1f} %"
    assert any("0.25" in note for note in said.notes), "chosen among its multiples"


def test_a_radius_is_chosen_by_sigma_and_all_choices_spend_no_more_than_rho():
    spent = 0.0
    for median in np.arange(0.25, 60, 0.25):
        spent += HeadlineRadius.of(of_radii([float(median)])).rho
    assert 0.995 * RHO < spent < RHO
    assert HeadlineRadius.of(of_radii([70.0], sigma=31.0)).value == 60
    assert HeadlineRadius.of(of_radii([0.031], sigma=0.01)).value == pytest.approx(0.03)
    assert HeadlineRadius.of(of_radii([0.0])).value == 0.25
    other = HeadlineRadius.of(of_radii([70.0], sigma=31.0))
    mine = of_radii([0.6])
    assert other.for_run(mine).value == 0.5
    assert HeadlineRadius.fixed(7.0).for_run(mine).value == 7


def test_without_alpha_no_probability_is_named():
    run = made_run(alpha=None)
    said = headline(run, HeadlineRadius.fixed(0.5))
    assert said.figure == "42.8 %"  # 3 of 7 is 42.857…
    assert not said.proved
    assert numbers(said.text()) == ["7", "42.8", "0.5"], "no probability"
    assert any("α" in note and "--alpha" in note for note in said.notes)
    assert numbers(guarantee(run)) == []


def test_an_imported_log_with_alpha_says_whose_figures_they_are():
    for run, imported in ((log_of([0.5, 0.25]), True), (of_radii([0.5, 0.25]), False)):
        notes = headline(run, HeadlineRadius.fixed(0)).notes
        assert any("smoothcert" in note for note in notes) == imported, "which program did not check them"


def log_of(radii: list[float], **data: object) -> Run:
    run = of_radii(radii)
    stated = {"planned": len(radii), "radius_digits": 3, "radius_decimals": 3} | data
    return Run(run.path, Manifest.of("import", run.manifest.plan.as_json(), {}, stated), run.records)


def test_half_a_unit_of_what_a_log_prints_is_not_claimed():
    """Of 100 radii eleven are printed 0.5: they may have been 0.4996, and don't count at 0.5."""
    run = log_of([0.5] * 11 + [0.501] * 40 + [0.1] * 49)
    said = headline(run, HeadlineRadius.fixed(0.5))
    assert said.figure == f"{np.floor(1000 * (beta.ppf(0.01, 40, 61) - 0.001)) / 10:.1f} %"
    assert numbers(said.notes[0])[:3] == ["51", "100", "51.0"]
    assert any(numbers(note) == ["3"] for note in said.notes), "digits of the log"


def test_radii_that_the_stated_plan_cannot_give_prove_nothing():
    run = log_of([0.7] * 100)
    said = headline(run, HeadlineRadius.fixed(0.5))
    assert not said.proved
    assert numbers(said.text()) == ["100", "100.0", "0.5"], "no probability"
    assert any(numbers(note) == ["0.6995", f"{radius_ceiling(run):.6g}"] for note in said.notes)


def test_runs_under_way_and_empty_ones_prove_nothing():
    run = of_radii([0.6] * 100)
    begun = Run(run.path, run.manifest.stating(data={"inputs": 1000, "skip": 1, "planned": 200}), run.records)
    said = headline(begun, HeadlineRadius.fixed(0.5))
    assert not said.proved
    assert numbers(said.figure) == ["100", "100"]
    assert "%" not in said.text()
    assert numbers(said.notes[0]) == ["100", "200"]
    run = made_run(records=())
    said = headline(run, HeadlineRadius.of(run))
    assert said.text()
    assert (numbers(said.text()), said.notes, said.proved) == ([], (), False)


def test_the_guarantee_names_one_minus_alpha():
    for alpha, shown in ((0.001, "99.9 %"), (0.01, "99 %"), (0.0005, "99.95 %"), (1e-6, "99.9999 %")):
        assert shown in guarantee(made_run(alpha=alpha))


def test_the_guarantee_names_one_minus_alpha_the_norm_and_what_was_recertified():
    first, again = (
        headline(of_radii([0.5], **plan), HeadlineRadius.fixed(0.5))
        for plan in ({}, {"recertified_from": {"alpha": 0.01}})
    )
    (condition,) = set(again.notes) - set(first.notes)
    assert "α" in condition
    run = made_run(norm="l1", noise="uniform")
    assert "ℓ1" in headline(run, HeadlineRadius.fixed(0.5)).text()


def test_a_radius_is_told_in_the_units_of_the_inputs():
    """0.5 over 784 pixels: 0.5 / 28 = 0.01786 each, 4.55 of 255; cut off."""
    for span, norm, size, radius, expected in [
        ([0.0, 1.0], "l2", 784, 0.5, "(inputs in [0, 1]; 0.5 is each of 784 numbers by 4.5/255)"),
        ([0.0, 1.0], "l1", 784, 0.5, "(inputs in [0, 1]; 0.5 is each of 784 numbers by 0.16/255)"),
        ([-1.0, 3.0], "l2", 784, 0.5, "(inputs in [-1, 3]; 0.5 is each of 784 numbers by 0.017)"),
        ([0.0, 255.0], "l2", 4, 25.0, "(inputs in [0, 255]; 25 is each of 4 numbers by 12)"),
        ([0.0, 1.0], "l2", None, 0.5, "(inputs in [0, 1])"),
    ]:
        run = made_run(norm=norm, dimension=size)
        run = replace(run, manifest=replace(run.manifest, origin=OriginStatement({"input_range": span})))
        assert _units(run, radius).strip() == expected
    assert _units(made_run(), 0.5) == ""
