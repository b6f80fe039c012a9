import json
from dataclasses import replace

import numpy as np
import pytest

from smoothcert.analysis.layouts import seed_table
from smoothcert.analysis.metrics import certified_accuracy_steps, mean_curve
from smoothcert.analysis.plots.curves import plot_seed_groups
from smoothcert.analysis.seeds import SeedGroup, Spread, summarise_seeds
from smoothcert.analysis.tables import render
from smoothcert.errors import InvalidValueError
from smoothcert.runs.run import Run

from .made_runs import made_run


def scaled(run: Run, factor: float) -> Run:
    return replace(
        run, records=tuple(replace(record, radius=record.radius * factor) for record in run.records)
    )


def group(*factors: float) -> SeedGroup:
    return SeedGroup("mine", 0.5, tuple(scaled(made_run(), factor) for factor in factors))


def test_mean_and_sample_deviation_over_seeds():
    (one,) = (summarise_seeds(group(1.0), [0.0]),)
    three = summarise_seeds(group(1.0, 2.0, 3.0), [0.0, 1e9])
    assert three.acr.mean == pytest.approx(2 * one.acr.mean)
    assert three.acr.sd == pytest.approx(one.acr.mean)  # of a, 2a, 3a with n − 1 below
    assert (one.acr.sd, three.seeds, one.seeds) == (None, 3, 1)
    assert three.accuracy == (Spread(one.accuracy[0].mean, 0.0), Spread(0.0, 0.0))
    assert Spread(1.5581, 0.0016).text(3) == "1.558±0.002"
    assert Spread(1.5581, None).text(3) == "1.558"
    assert Spread(0.612, 0.011).text(1, scale=100) == "61.2±1.1"


def test_the_mean_curve():
    run = made_run()
    radii, accuracy = certified_accuracy_steps(run.records)
    mean_radii, mean, spread = mean_curve([run])
    assert np.array_equal(mean_radii, radii)
    assert np.array_equal(mean, accuracy)
    assert not spread.any()
    near, far = group(1.0, 2.0).runs
    radii, mean, spread = mean_curve([near, far])
    between = [
        [
            sum(record.correct and record.radius > r for record in run.records) / len(run.records)
            for r in radii[1:]
        ]
        for run in (near, far)
    ]
    assert mean[1:] == pytest.approx(np.mean(between, axis=0))
    assert spread[1:] == pytest.approx(np.std(between, axis=0, ddof=1))


def test_runs_that_differ_in_more_than_the_seed_do_not_average():
    other = replace(made_run(), manifest=made_run().manifest.stating(plan=made_run().manifest.plan.but(n=7)))
    with pytest.raises(InvalidValueError, match=r"\bn\b.*\b7\b.*\b1000\b"):
        summarise_seeds(SeedGroup("mine", 0.5, (made_run(), other)), [0.0])
    with pytest.raises(InvalidValueError, match=r"mine.*0\.5"):
        SeedGroup("mine", 0.5, ())


def test_tables_and_a_picture(tmp_path):
    summaries = [summarise_seeds(group(1.0, 1.1), [0.0, 0.25])]
    table = seed_table(summaries, ["0", "0.25"])
    markdown = render(table, "markdown")
    assert "| mine" in markdown
    assert "±" in markdown
    csv = render(table, "csv").splitlines()
    assert csv[0] == "method,sigma,seeds,inputs,acr,acr_sd,0,0_sd,0.25,0.25_sd,dataset,split"
    assert float(csv[1].split(",")[4]) == summaries[0].acr.mean
    rows = json.loads(render(table, "json"))["rows"]
    assert rows[0]["certified_accuracy"]["0"]["mean"] == summaries[0].accuracy[0].mean
    with pytest.raises(InvalidValueError, match="markdwon"):
        render(table, "markdwon")
    plot_seed_groups([group(1.0, 1.2), SeedGroup("other", 0.5, (made_run(),))], tmp_path / "curve.svg")
    assert "fill-opacity: 0.2" in (tmp_path / "curve.svg").read_text()  # the band
    with pytest.raises(InvalidValueError):
        plot_seed_groups([], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
