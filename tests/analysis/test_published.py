"""Every published row, from the published log to the printed digit."""

import csv
import io
import os
from pathlib import Path

import pytest

from smoothcert.analysis.layouts import render_table
from smoothcert.runs.field_log import import_manifest, read_field_log
from smoothcert.runs.run import create_run, read_run

SHARED = os.environ.get("SMOOTHCERT_SHARED")
ROWS = 24


@pytest.mark.skipif(not SHARED, reason="SMOOTHCERT_SHARED doesn't name the folder that holds peer-logs")
@pytest.mark.parametrize("number", [0, 23, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 23))])
def test_published_row(tmp_path, number):
    folder = Path(str(SHARED)) / "peer-logs"
    with (folder / "published.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert len(rows) == ROWS
    published = rows[number]
    log, sigma = folder / published["file"], float(published["sigma"])
    read = read_field_log(log, sigma)
    assert read.dropped_tail is None
    out = tmp_path / published["method"]
    create_run(out, import_manifest(log, sigma, data_name=published["dataset"], read=read), read.records)
    radii = [name for name in published if name[0].isdigit() and published[name]]
    (row,) = csv.DictReader(io.StringIO(render_table([read_run(out)], radii, format="csv")))
    expected = {"run": published["method"], "sigma": published["sigma"], "inputs": "10000"}
    # published.tsv leaves out the last zeros of an ACR.
    expected["acr"] = f"{float(published['acr']):.3f}"
    expected |= {"dataset": published["dataset"], "split": "", "sigma_search": "", "sigma_per": ""}
    expected |= {"planned": "10000", "complete": "true", "sigma_levels": "", "chooser": ""}
    assert row == expected | {radius: published[radius] for radius in radii}
