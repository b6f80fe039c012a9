"""Published logs: the page's table and curves are the papers'."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from smoothcert.report import ReportOptions, make_payload
from smoothcert.runs import Run
from smoothcert.runs.field_log import import_manifest, read_field_log


@pytest.mark.slow
def test_all_published_rows_on_one_page(shared: Path) -> None:
    logs = shared / "peer-logs"
    with (logs / "published.tsv").open(newline="") as file:
        published = {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}
    runs = []
    for name, row in published.items():
        read = read_field_log(logs / name, float(row["sigma"]))
        manifest = import_manifest(logs / name, float(row["sigma"]), read=read)
        runs.append(Run(Path(name), manifest, tuple(read.records), name))
    page = make_payload(runs, ReportOptions(inputs=5))
    assert sorted(len(group["runs"]) for group in page["groups"]) == [6, 18]  # told apart by their labels
    for group in page["groups"]:
        assert set(group["comparison"]["levels"]) == {run["name"] for run in group["runs"]}
        for run in group["runs"]:
            row = published[run["name"]]
            assert float(run["acr"]) == float(row["acr"])
            assert run["smoothed"]["percent"] == row["0.00"]
            for radius, cell in zip(group["tableRadii"], run["cells"]):
                if stated := row.get(f"{float(radius):.2f}"):
                    assert cell["percent"] == stated
            curve = run["curve"]
            for radius in [name for name in row if name[:1].isdigit() and row[name]]:
                stretch = max(0, int(np.searchsorted(curve["radii"], float(radius), side="left")) - 1)
                drawn = 100 * curve["counts"][stretch] / run["inputs"]
                # A fifth of a point is lost at most, and half of the last printed digit.
                assert float(row[radius]) - 0.251 <= drawn <= float(row[radius]) + 0.051
            assert not run["statement"]["proved"]
            assert "--alpha" in run["statement"]["notes"][1]
