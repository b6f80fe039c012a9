"""Two runs compared: figures by hand, refusals, words. How often they are wrong: tests/guarantees."""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from smoothcert.analysis.comparison import compare, in_words, planned_radii, shown_p
from smoothcert.analysis.evidence import planned_ceiling
from smoothcert.analysis.intervals import difference_interval, holm, mcnemar, sign_flip_p_value
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run

from .made_runs import made_run
from .texts import numbers

INPUTS = 60


def run_of(name: str, radii: list[float], **plan: Any) -> Run:
    """An input per radius; a negative one is a wrong answer."""
    records = tuple(Record(i, 0, int(r < 0), abs(r), 0.25, 1.0) for i, r in enumerate(radii))
    return made_run(name, records, **plan)


# 30 inputs equal; on 24 the second run reaches 0.5 and the first doesn't; on 6 it is the other way round.
FIRST = run_of("first", [0.6] * 20 + [-0.6] * 10 + [0.3] * 24 + [0.6] * 6)
SECOND = run_of("second", [0.6] * 20 + [-0.6] * 10 + [0.6] * 24 + [0.2] * 6)


def on_data(run: Run, **data: Any) -> Run:
    return replace(run, manifest=run.manifest.stating(data=run.manifest.data.but(**data)))


def test_figures_by_hand():
    found = compare(FIRST, SECOND, [0.0, 0.5])
    assert (found.first, found.second, found.norm, found.inputs) == ("first", "second", "l2", INPUTS)
    at_zero, at_half = found.radii
    assert (at_zero.first, at_zero.second, at_zero.difference) == (50 / 60, 50 / 60, 0.0)
    assert (at_zero.p_value, at_zero.p_holm) == (1.0, 1.0)
    assert (at_half.only_first, at_half.only_second) == (6, 24)
    assert (at_half.first, at_half.second) == (26 / 60, 44 / 60)
    assert at_half.difference == pytest.approx(18 / 60)
    assert at_half.p_value == pytest.approx(stats.binomtest(6, 30).pvalue)
    assert at_half.p_holm == pytest.approx(2 * at_half.p_value)
    assert (at_half.low, at_half.high) == pytest.approx(difference_interval(6, 24, 60, 0.975))
    assert found.acr.first == pytest.approx((26 * 0.6 + 24 * 0.3) / 60)
    assert found.acr.difference == pytest.approx((24 * 0.3 - 6 * 0.4) / 60)
    assert found.acr.low is not None
    assert found.acr.high is not None
    assert found.acr.low < found.acr.difference < found.acr.high
    wrong, undecided = run_of("wrong", [-0.6] * 5), run_of("undecided", [0.0] * 5)
    undecided = replace(undecided, records=tuple(replace(r, predicted=-1) for r in undecided.records))
    (at_zero,) = compare(wrong, undecided, [0.0]).radii
    assert (at_zero.first, at_zero.second) == (0.0, 0.0)


def test_swapping_the_runs_mirrors_everything_and_a_run_differs_nowhere_from_itself():
    there, back = compare(FIRST, SECOND, [0.5]), compare(SECOND, FIRST, [0.5])
    one, other = there.radii[0], back.radii[0]
    assert (one.low, one.high, one.p_value) == pytest.approx((-other.high, -other.low, other.p_value))
    assert (there.acr.low, there.acr.high) == pytest.approx((-back.acr.high, -back.acr.low))
    assert there.acr.p_value == back.acr.p_value
    found = compare(FIRST, FIRST, [0.0, 0.5, 1.0])
    assert all((c.difference, c.p_holm) == (0.0, 1.0) and c.low < 0 < c.high for c in found.radii)
    assert (found.acr.difference, found.acr.p_value) == (0.0, 1.0)
    assert "0.05" in numbers(in_words(found)), "the level at which nothing was shown"


def test_words():
    found = compare(FIRST, SECOND, [0.0, 0.5])
    text = in_words(found)
    assert text.index("second") < text.index("first"), "the better run is the subject"
    assert "ℓ2" in text
    # Shown at 0.5, at level 0.05, and not at 0; then the ACR's p-value.
    assert numbers(text)[:3] == ["0.5", "0.05", "0"]
    assert shown_p(found.acr.p_value) in text
    excluded = replace(found, acr=replace(found.acr, low=0.01, high=0.2))
    assert in_words(excluded) != text, "an interval that excludes 0 says more"
    assert in_words(compare(SECOND, FIRST, [0.5])) == in_words(compare(FIRST, SECOND, [0.5]))
    found = compare(replace(FIRST, path=Path("a/run")), replace(SECOND, path=Path("b/run")), [0.5])
    assert (found.first, found.second) == ("a/run", "b/run")


def test_p_values_never_round_down():
    shown = {1.0: "1", 0.0401: "0.041", 0.05: "0.05", 0.00099999: "0.001", 0.9999: "1"}
    assert {p: shown_p(p) for p in shown} == shown


def test_different_data_are_refused():
    a, b = on_data(FIRST, sha256="a" * 64, name="digits"), on_data(SECOND, sha256="b" * 64, name="digits")
    with pytest.raises(InvalidValueError, match=r"digits.*a{12}.*b{12}"):
        compare(a, b, [0.5])
    with pytest.raises(InvalidValueError, match=r"mnist.*second.*svhn"):
        compare(on_data(FIRST, name="mnist"), on_data(SECOND, name="svhn"), [0.5])
    assert compare(a, on_data(SECOND, sha256="a" * 64, name="renamed"), [0.5]).notes == ()
    relabelled = replace(SECOND, records=(replace(SECOND.records[0], label=7), *SECOND.records[1:]))
    with pytest.raises(InvalidValueError, match=r"\b0\b.*\b0\b.*first.*\b7\b.*second"):
        compare(FIRST, relabelled, [0.5])


def test_plans_and_data_that_differ_or_cannot_be_checked_are_noted():
    (note,) = compare(on_data(FIRST, sha256="a" * 64, name="digits"), SECOND, [0.5]).notes
    assert "first" in note
    assert "second" in note
    notes = compare(FIRST, run_of("other", [0.1] * INPUTS, alpha=0.01, bound=None), [0.5]).notes
    assert any(re.search(r"bound.*clopper-pearson.*alpha.*0\.001.*0\.01", note) for note in notes)
    radii = [0.1] * INPUTS
    plain = run_of("plain", radii)
    known = set(compare(plain, run_of("other", radii, stop=[]), [0.5]).notes)
    for first, plan, told in (
        (plain, {"stop": ["grid:0,0.5", "wrong"]}, r"grid:0,0\.5.*wrong"),
        (plain, {"sigma_search": "ladder"}, "ladder"),
        (plain, {"noise": "uniform"}, "gaussian.*uniform"),
        (run_of("plain", radii, sigmas_sha256="a" * 64), {"sigmas_sha256": "b" * 64}, "a{8}.*b{8}"),
    ):
        (note,) = set(compare(first, run_of("other", radii, **plan), [0.5]).notes) - known
        assert re.search(told, note), plan


def test_different_inputs_are_refused_unless_told():
    fewer = made_run("second", SECOND.records[:40])
    with pytest.raises(InvalidValueError, match=r"first.*\b60\b.*second.*\b40\b.*--common"):
        compare(FIRST, fewer, [0.5])
    found = compare(FIRST, fewer, [0.5], common=True)
    assert found.inputs == 40
    assert ["40", "60", "40"] in [numbers(note) for note in found.notes]
    apart = made_run("second", tuple(replace(r, index=r.index + 100) for r in SECOND.records))
    with pytest.raises(InvalidValueError, match=r"first.*second"):
        compare(FIRST, apart, [0.5], common=True)


@pytest.mark.parametrize("common", [False, True])
def test_runs_under_way_are_not_compared(common):
    under_way = replace(SECOND, records=SECOND.records[:40])
    with pytest.raises(RunError, match=r"second.*\b40\b.*\b60\b"):
        compare(FIRST, under_way, [0.5], common=common)
    unknown = replace(SECOND, manifest=SECOND.manifest.stating(data={"inputs": 100, "skip": 1}))
    with pytest.raises(RunError, match=r"second.*\b60\b.*\b100\b"):
        compare(unknown, FIRST, [0.5], common=common)


def test_logs_are_compared_as_they_are_printed():
    """Half a unit of the last digit widens the ACR's interval, and a radius rounded above the ceiling is no error."""

    def log(name: str, radii: list[float], n: int = 1000) -> Run:
        run = run_of(name, radii, n=n)
        return replace(run, manifest=replace(run.manifest, kind="import"))

    ceiling = planned_ceiling(FIRST.manifest.plan)
    assert ceiling is not None
    above = round(ceiling + 0.004, 2)
    assert ceiling < above
    found = compare(log("a", [0.31] * 30 + [above] * 30), log("b", [0.52] * 60), [0.5])
    exact = compare(run_of("a", [0.31] * 30 + [ceiling] * 30), run_of("b", [0.52] * 60), [0.5])
    assert found.acr.low is not None
    assert exact.acr.low is not None
    assert found.acr.low < exact.acr.low
    assert found.acr.high is not None
    assert exact.acr.high is not None
    assert found.acr.high > exact.acr.high
    assert [numbers(note) for note in found.notes if " b " in note] == [["2"]], "digits of its log"
    assert compare(log("a", [0.9] * 60), log("b", [0.52] * 60), [0.5]).acr.low is None


def test_what_else_is_refused():
    with pytest.raises(InvalidValueError, match=r"l2.*l1"):
        compare(FIRST, run_of("l1", [0.5] * INPUTS, norm="l1"), [0.5])
    with pytest.raises(RunError, match="empty"):
        compare(FIRST, run_of("empty", []), [0.5])
    with pytest.raises(InvalidValueError, match="radius"):
        compare(FIRST, SECOND, [])
    with pytest.raises(InvalidValueError, match=r"radius.*-0\.5"):
        compare(FIRST, SECOND, [-0.5])
    with pytest.raises(InvalidValueError, match=r"confidence.*1\.0"):
        compare(FIRST, SECOND, [0.5], confidence=1.0)


def test_no_interval_for_the_acr_where_the_range_is_unknown():
    logged = run_of("logged", [0.5] * INPUTS, n=None)
    assert compare(FIRST, logged, [0.5]).acr.low is None
    # 3.0 is more than the plan could give: its radii aren't what the plan says.
    assert compare(FIRST, run_of("odd", [3.0] * INPUTS), [0.5]).acr.low is None


@pytest.mark.parametrize(
    ("sigma", "last", "count"), [(0.25, 0.75, 4), (0.5, 1.5, 7), (1.0, 3.0, 7), (0.03, 0.09375, 4)]
)
def test_planned_radii(sigma, last, count):
    runs = [run_of(name, [0.01] * 3, sigma=sigma, n=10_000) for name in "ab"]
    radii = planned_radii(*runs)
    assert radii is not None
    assert (radii[0], radii[-1], len(radii)) == (0.0, last, count)
    assert planned_radii(runs[0], run_of("log", [0.1], n=None)) is None
    assert planned_radii(*(run_of(name, [0.0], n=2) for name in "ab")) is None


def test_holm_and_difference_intervals():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    for counts in ((-1, 0, 5), (3, 3, 5)):
        with pytest.raises(InvalidValueError, match=rf"counts.*\b5\b.*{counts[0]}\b.*\b{counts[1]}\b"):
            difference_interval(*counts)
    with pytest.raises(InvalidValueError, match=r"total.*\b0\b"):
        difference_interval(0, 0, 0)
    assert mcnemar(0, 0) == 1.0
    low, high = difference_interval(400, 600, 10_000)
    half = 1.96 * np.sqrt((0.1 - 0.02**2) / 10_000)
    assert half < (high - low) / 2 < 1.35 * half


def test_sign_flips_give_the_exact_p_value_and_of_many_inputs_nearly_the_normal_tests():
    d = np.array([0.5, 1.0, -0.2, 0.7, 0.3, 0.9, -0.1, 0.4])
    exact = np.mean([abs(np.dot(s, d)) >= d.sum() - 1e-12 for s in itertools.product((-1, 1), repeat=8)])
    assert sign_flip_p_value(d) == sign_flip_p_value(d, 8) == exact
    assert sign_flip_p_value(d, 6) == pytest.approx(exact, abs=0.05)
    assert sign_flip_p_value(d) == sign_flip_p_value([*d, 0.0, 0.0])  # inputs that don't differ say nothing
    assert sign_flip_p_value([]) == 1.0
    assert sign_flip_p_value([0.3]) == 1.0
    for generators in (0, 23):
        with pytest.raises(InvalidValueError, match=rf"generators.*\b{generators}\b"):
            sign_flip_p_value(d, generators)
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.03, 0.06):
        d = rng.normal(shift, 1.0, 3000)
        assert sign_flip_p_value(d) == pytest.approx(stats.ttest_1samp(d, 0.0).pvalue, rel=0.2, abs=0.003)
