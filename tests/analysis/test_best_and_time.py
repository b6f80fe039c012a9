"""The envelope as a table, and what training took."""

import json
from dataclasses import replace
from typing import Any

import pytest

from smoothcert.analysis.facts import own_sigmas, stated_training
from smoothcert.analysis.layouts import render_table, training_time
from smoothcert.analysis.plots.curves import plot_envelope
from smoothcert.analysis.plots.kinds import checked, run_labels
from smoothcert.analysis.seeds import best_rows
from smoothcert.errors import InvalidValueError
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run
from smoothcert.runs.statement import OriginStatement
from tests.analysis.made_runs import made_run, trained
from tests.analysis.texts import cells, numbers


def run_of(name: str, radii: list[float], method: str | None = None, **plan: Any) -> Run:
    run = made_run(name, tuple(Record(k, 0, 0, radius, 0.25, 1.0) for k, radius in enumerate(radii)), **plan)
    origin = {} if method is None else {"method": method}
    return replace(run, manifest=run.manifest.stating(origin=origin))


RUNS = [
    run_of("small", [0.5, 0.5, 0.4], "x", sigma=0.12),
    run_of("large", [1.5, 0.0, 0.0], "x", sigma=0.5),
    run_of("other", [1.0, 1.0, 0.0], "y", sigma=0.5),
]


def test_each_figure_is_the_best_of_a_methods_runs_at_that_radius():
    first, second = best_rows(RUNS, [0.0, 0.4, 0.45, 1.2])
    assert (first.method, first.runs, first.inputs) == ("x", 2, 3)
    assert first.acr == (0.5, "large")  # 1.5 / 3 beats 1.4 / 3
    assert first.oracle == pytest.approx((1.5 + 0.5 + 0.4) / 3)  # each input by its own best run
    assert [(round(3 * best), run) for best, run in first.accuracy] == [
        (3, "small"),
        (3, "small"),
        (2, "small"),
        (1, "large"),
    ]
    assert second.acr == (pytest.approx(2 / 3), "other")
    assert second.oracle == pytest.approx(2 / 3)  # of one run there is nothing to choose
    wrong = made_run("wrong", (Record(0, 0, 1, 9.0, 0.25, 1.0), Record(1, 0, 0, 0.25, 0.25, 1.0)))
    (row,) = best_rows([wrong], [0.0])
    assert row.oracle == pytest.approx(0.125)
    with pytest.raises(InvalidValueError, match=r"few.*small.*\b1\b.*\b3\b"):
        best_rows([RUNS[0], run_of("few", [3.0], "x")], [0.0])
    with pytest.raises(InvalidValueError, match=r"l2.*l1"):
        best_rows([RUNS[0], run_of("ball", [3.0, 1.0, 1.0], "x", norm="l1")], [0.0])


def test_the_table_names_the_run_of_each_figure_and_runs_under_way():
    first, _ = json.loads(render_table(RUNS, ["0", "1.2"], "best", "json"))["rows"]
    assert first["oracle_acr"] == pytest.approx(0.8)
    assert first["certified_accuracy"]["1.2"] == {"best": pytest.approx(1 / 3), "run": "large"}
    run = run_of("begun", [0.5, 0.25], "x")
    begun = replace(run, manifest=run.manifest.stating(data={"planned": list(range(500))}))
    (header, row) = cells(render_table([begun], ["0"], "best", "markdown"))
    assert numbers(row[header.index("inputs")]) == ["2", "500"]
    assert "500,false" in render_table([begun], ["0"], "best", "csv")
    (told,) = json.loads(render_table([begun], ["0"], "best", "json"))["rows"]
    assert (told["planned"], told["complete"]) == (500, False)


@pytest.mark.parametrize("field", [{"alpha": 0.5}, {"bound": "top-two"}])
def test_no_best_among_runs_of_other_certainty(field, tmp_path):
    runs = [run_of("strict", [1.0], "x"), run_of("lax", [2.0], "x", **field)]
    (name,) = field
    with pytest.raises(InvalidValueError, match=rf"\b{name}\b.*lax"):
        best_rows(runs, [0.0])
    with pytest.raises(InvalidValueError, match=rf"\b{name}\b.*lax"):
        plot_envelope(runs, tmp_path / "a.png")


def test_curves_of_other_votes_say_so():
    runs = [run_of("a", [1.0], "x"), run_of("b", [2.0], "x", alpha=0.5, n=77)]
    heading, (first, second) = run_labels(runs, checked(runs))
    assert "α" not in (heading or "")
    assert all(part in first for part in ("α = 0.001", "n = 1000"))
    assert all(part in second for part in ("α = 0.5", "n = 77"))


def test_hours_are_what_the_run_states_of_its_training():
    runs = [trained(RUNS[1], epochs=90, seconds=3600.0)]
    header, row = cells(render_table(runs, ["0"], "training"))
    told = dict(zip(header, row))
    assert [told[name] for name in ("method", "σ", "s/epoch", "hours")] == ["x", "0.5", "40.0", "1.00"]
    assert json.loads(render_table(runs, ["0"], "training", "json"))[0]["seconds"] == 3600.0
    assert render_table(runs, ["0"], "training", "csv").splitlines()[1] == "x,0.5,90,3600.0,0.5,,,3,3,true"
    for odd in (
        {},
        {"epochs": 90},
        {"epochs": "many", "seconds": 1.0},
        {"epochs": 0, "seconds": 1.0},
        {"epochs": True, "seconds": 1.0},
        {"epochs": 10**30, "seconds": 1.0},
        {"epochs": 90, "seconds": -5},
        {"epochs": 90, "seconds": True},
        {"epochs": 90, "seconds": 1e308},
    ):
        with pytest.raises(InvalidValueError, match=r"\blarge\b"):
            training_time(trained(RUNS[1], **odd))


def test_an_acr_of_some_inputs_says_of_how_many():
    some = replace(RUNS[1], manifest=RUNS[1].manifest.stating(data={"planned": 500}))
    runs = [trained(run, epochs=90, seconds=3600.0) for run in (some, RUNS[1])]
    header, *lines = cells(render_table(runs, ["0"], "training", "markdown"))
    places = (header.index("inputs"), header.index("ACR"))
    assert [[numbers(line[place]) for place in places] for line in lines] == [
        [["3", "500"], ["0.500"]],
        [["3"], ["0.500"]],
    ]
    told = [
        (row["inputs"], row["planned"], row["complete"])
        for row in json.loads(render_table(runs, ["0"], "training", "json"))
    ]
    assert told == [(3, 500, False), (3, 3, True)]
    header, *lines = render_table(runs, ["0"], "training", "csv").splitlines()
    assert header.endswith(",inputs,planned,complete")
    assert [line.rpartition(",,,")[2] for line in lines] == ["3,500,false", "3,3,true"]


def test_what_a_run_states_of_its_training_and_of_its_sigmas():
    assert stated_training(OriginStatement()) == {}
    assert stated_training(OriginStatement({"trained": "much"})) == {}
    odd = {"a": [1], "b": float("nan"), "c": float("inf"), 5: 1, "d": None, "e": 2, "f": "x", "g": 10**400}
    assert stated_training(OriginStatement({"trained": odd})) == {"e": 2, "f": "x"}
    assert own_sigmas(RUNS[0].records.sigma) is None
    assert own_sigmas(()) is None
    assert numbers(own_sigmas((0.05, 0.12, 0.3125)) or "") == ["0.05", "0.3125", "0.12"]  # the median last
