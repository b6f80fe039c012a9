"""Every table, in every layout and format, says of which data a row is, whether σ was searched, and what is missing."""

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from smoothcert.analysis.facts import sigma_per
from smoothcert.analysis.layouts import render_table, seed_table
from smoothcert.analysis.metrics import summarise
from smoothcert.analysis.plots import curves
from smoothcert.analysis.plots.curves import plot_certified_accuracy, plot_seed_groups
from smoothcert.analysis.plots.kinds import run_labels
from smoothcert.analysis.report import ReportOptions, make_payload
from smoothcert.analysis.seeds import SeedGroup, summarise_seeds
from smoothcert.analysis.tables import render
from smoothcert.errors import InvalidValueError
from smoothcert.runs.run import Run

from .made_runs import FIVE_AND_TWO, made_run
from .texts import cells, numbers

RADII = ["0", "0.5"]
PER_INPUT = tuple(replace(record, sigma=0.1 + 0.1 * record.index) for record in FIVE_AND_TWO)


def about(name: str, data: str = "digits", split: str | None = "test", sha: str = "a", **made: Any) -> Run:
    run = made_run(name, **made)
    stated = run.manifest.data.but(name=data, sha256=sha * 64)
    return replace(
        run, manifest=run.manifest.stating(data=stated, origin={} if split is None else {"split": split})
    )


PLAIN = about("plain")
SEARCHED = about("searched", records=PER_INPUT, sigma_search="ladder")
OTHER = about("other", data="cifar10", sha="b")
STRETCHED = about("stretched", noise="diagonal-gaussian")
LOG = about("log", split=None, records=PER_INPUT)
CUT = replace(about("cut", sha="a"), records=FIVE_AND_TWO[:3])
ALL = [PLAIN, SEARCHED, OTHER, STRETCHED, LOG, CUT]


@pytest.mark.parametrize("layout", ["runs", "paper"])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_machines_are_told(layout, format):
    text = render_table(ALL, RADII, layout, format)
    if format == "csv":
        rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text)))
        unknown: Any = ""
        truth: dict[bool, Any] = {True: "true", False: "false"}
    else:
        rows = json.loads(text)["runs" if layout == "runs" else "rows"]
        unknown, truth = None, {True: True, False: False}
    key = "run" if layout == "runs" else "method"
    found = {row[key].partition(" ")[0]: row for row in rows}
    assert {name: row["dataset"] for name, row in found.items() if row["dataset"] != "digits"} == {
        "other": "cifar10"
    }
    assert {row["split"] for name, row in found.items() if name != "log"} == {"test"}
    assert found["log"]["split"] == unknown
    assert {name: row["sigma_search"] for name, row in found.items() if row["sigma_search"]} == {
        "searched": "ladder"
    }
    per = {name: row["sigma_per"] for name, row in found.items() if row["sigma_per"]}
    assert per == {"searched": "input", "stretched": "coordinate", "log": "input"}
    assert {int(row["planned"]) for row in found.values()} == {7}
    assert [name for name, row in found.items() if row["complete"] == truth[False]] == ["cut"]
    assert all(row["complete"] in truth.values() for row in found.values())


def test_readers_of_markdown_and_latex_are_told():
    header, *rows = cells(render_table(ALL, RADII, "runs", "markdown"))
    found = {row[0]: dict(zip(header, row)) for row in rows}
    for name, data in (("plain", "digits"), ("other", "cifar10")):
        assert data in found[name]["data"]
        assert "test" in found[name]["data"]
    assert found["plain"]["σ"] == "0.25"
    for name, mark in (("searched", "ladder"), ("log", "input"), ("stretched", "coordinate")):
        assert found[name]["σ"].startswith("0.25 ")
        assert mark in found[name]["σ"]
    assert (found["plain"]["inputs"], numbers(found["cut"]["inputs"])) == ("7", ["3", "7"])
    text = render_table(ALL, RADII, "runs", "latex")
    rows = {row[0].strip(): row[1:3] for line in text.splitlines() if (row := line.split("&"))[1:]}
    for name, data, sigma in (("searched", "digits", "ladder"), ("other", "cifar10", "0.25")):
        assert data in rows[name][0]
        assert "test" in rows[name][0]
        assert "0.25" in rows[name][1]
        assert sigma in rows[name][1]
    columns = text.partition(r"\begin{tabular}{")[2].partition("}")[0]
    assert {line.count("&") + 1 for line in text.splitlines() if line.startswith(("run &", "plain &"))} == {
        len(columns)
    }


@pytest.mark.parametrize("format", ["markdown", "latex"])
def test_papers_are_told(format):
    text = render_table(ALL, RADII, "paper", format)
    for told in (
        r"digits.*test.*\b1\D+5\b",  # of five rows one is not complete
        "cifar10.*test",
        "searched.*ladder",
        "stretched.*coordinate",
        "log.*input",
    ):
        assert re.search(told, text), told


def test_the_best_isnt_called_across_different_inputs():
    better = about(
        "better",
        records=tuple(replace(record, predicted=record.label, radius=2.0) for record in FIVE_AND_TWO),
    )
    assert "**" in render_table([PLAIN, better], RADII, "paper", "markdown")
    elsewhere = replace(OTHER, records=better.records)
    assert "**" not in render_table([PLAIN, elsewhere], RADII, "paper", "markdown")
    assert "**" not in render_table(
        [PLAIN, replace(better, records=better.records[:3])], RADII, "paper", "markdown"
    )
    with pytest.raises(InvalidValueError, match=r"plain.*train.*digits"):
        render_table([PLAIN, about("train", split="train", sha="c")], RADII, "paper", "markdown")


@pytest.mark.parametrize("format", ["markdown", "csv", "json"])
def test_the_other_layouts_name_the_data(format):
    assert "digits" in render_table([PLAIN], RADII, "best", format)
    trained = replace(
        PLAIN,
        manifest=PLAIN.manifest.stating(origin={"split": "test", "trained": {"epochs": 3, "seconds": 9.0}}),
    )
    assert "digits" in render_table([trained], RADII, "training", format)
    group = SeedGroup("mine", 0.25, (PLAIN,))
    assert "digits" in render(seed_table([summarise_seeds(group, [0.0, 0.5])], RADII), format)


def label_of(*runs: Run) -> list[str]:
    return run_labels(runs, [summarise(run, [0.0]) for run in runs])[1]


def test_curves_of_different_data_are_marked(tmp_path, monkeypatch):
    for label, name, searched in zip(label_of(PLAIN, SEARCHED), ("plain", "searched"), (False, True)):
        assert label.startswith(f"{name} ")
        assert numbers(label) == ["0.25", "0.314"]
        assert ("ladder" in label) == searched
    assert [("digits" in label, "cifar10" in label) for label in label_of(PLAIN, OTHER)] == [
        (True, False),
        (False, True),
    ]
    later = about("later", split="train", sha="c")
    assert ["train" in label for label in label_of(PLAIN, later)] == [False, True]
    drawn: list[str] = []
    monkeypatch.setattr(curves, "draw_curves", lambda found, *_: drawn.extend(curve.label for curve in found))
    plot_certified_accuracy([PLAIN, OTHER], tmp_path / "a.svg")
    plot_seed_groups([SeedGroup(run.name, 0.25, (run,)) for run in (PLAIN, OTHER)], tmp_path / "b.svg")
    assert [("digits" in label, "cifar10" in label) for label in drawn] == 2 * [(True, False), (False, True)]
    assert sigma_per(about("alike", sigma_search="grid")) == "input"


def test_the_page_is_told():
    page = make_payload(
        [PLAIN, SEARCHED, OTHER, about("train", split="train", sha="c"), CUT], ReportOptions()
    )
    for group, told in zip(
        page["groups"], (("digits", "test"), ("cifar10", "test"), ("digits", "train")), strict=True
    ):
        assert all(word in group["name"] for word in told)
    first, second, cut = page["groups"][0]["runs"]
    assert first["sigmaMark"] == ""
    assert "ladder" in second["sigmaMark"]
    assert [(run["inputs"], run["planned"], run["complete"]) for run in (first, cut)] == [
        (7, 7, True),
        (3, 7, False),
    ]
