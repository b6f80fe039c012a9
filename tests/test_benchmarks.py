"""The benchmarks: tables made from logs kept in the repository, shortened recipes, and commands that pages name."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import mnist, timing

from smoothcert.analysis.seeds import SeedGroup
from smoothcert.runs.records import Record
from smoothcert.training.recipe import find_recipe

from .analysis.made_runs import made_run

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"python -m benchmarks\.(\w+)(?: ([a-z]+)\b)?")


def record(index: int, radius: float, correct: bool = True) -> Record:
    return Record(index, 1, 1 if correct else 0, radius, 0.5, seconds=0.0)


def stated_beside(log: Path) -> dict:
    return json.loads(Path(str(log).removesuffix(".tsv.gz") + ".json").read_text(encoding="utf-8"))


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    drawn = np.random.default_rng(0).normal(size=(4000, 20))
    found = [timing.Spread.interval(list(values)) for values in drawn]
    assert np.mean([one.low <= 0 <= one.high for one in found]) == pytest.approx(
        0.9586, abs=0.01
    )  # 1 - 2 P(B20 <= 5)
    assert timing.Spread.interval([3.0, 1.0, 2.0]) == timing.Spread(2.0, 1.0, 3.0)


def test_a_harder_subset_is_adjusted_by_the_mean_paired_difference():
    # On inputs 0 and 2 the control has 0.4 and 1.0, on all it has 0.9; the run is 0.1 and 0.3 above it.
    control = [record(0, 0.4), record(1, 1.3), record(2, 1.0)]
    adjusted = mnist.adjust([record(0, 0.5), record(2, 1.3)], control, 0.9)
    assert adjusted.acr == pytest.approx(0.9 + 0.2)
    assert adjusted.error == pytest.approx(0.1)  # sd of (0.1, 0.3) is √0.02, over √2


def test_a_wrong_answer_counts_as_radius_zero():
    control = [record(0, 0.5), record(1, 0.5)]
    assert mnist.adjust([record(0, 0.5, correct=False), record(1, 0.5)], control, 1.0).acr == pytest.approx(
        0.75
    )


def test_the_acr_over_epochs_is_in_columns_of_epochs(tmp_path):
    for log in ("gaussian-0.5.json", "gaussian-0.5.tsv.gz"):
        (tmp_path / log).write_bytes((mnist.KEPT / log).read_bytes())
    assert mnist.curves(tmp_path) == ""
    stated = stated_beside(tmp_path / "gaussian-0.5.tsv.gz") | {"curve": [[2, 0.25], [5, 1.0]]}
    (tmp_path / "gaussian-0.5.json").write_text(json.dumps(stated), encoding="utf-8")
    *_, row = mnist.curves(tmp_path).splitlines()
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["0.5", "gaussian", "0.250", "1.000"]


def test_every_published_row_has_a_recipe_that_states_its_figure():
    for sigma in (0.25, 0.5, 1.0):
        for method in mnist.PUBLISHED:
            assert find_recipe(f"mnist-{method}-{sigma}").plan.sigma == sigma
            assert mnist.published(method, sigma) > 0.9


def test_the_tables_are_made_of_the_files_in_the_repository():
    logs = [path for path in mnist.KEPT.glob("*.tsv.gz") if not path.name.startswith("control-")]
    told = [stated_beside(log) for log in logs]
    published = [stated for stated in told if mnist.Kept(**stated).as_published]
    assert len(mnist.table(mnist.KEPT).splitlines()) == len(published) + 2
    others = len(logs) - len(published)
    assert len(mnist.beyond(mnist.KEPT).splitlines()) == (others + 2 if others else 0)
    page = (mnist.KEPT.parent / "mnist.md").read_text(encoding="utf-8")
    for made in mnist.TABLES:
        assert made(mnist.KEPT) in page, "paste what `python -m benchmarks.mnist` prints"
    assert all((stated["n0"], stated["n"], stated["alpha"]) == (100, 100_000, 0.001) for stated in told)


def test_a_published_table_is_recomputed_and_what_differs_is_named(tmp_path, monkeypatch, capsys):
    heads = ["table", "row", "sigma", "acr", "sd", "logs", "accuracies"]
    rows = [
        ["7", "right", "0.5", "0.750", "", "one", "100.0 50.0"],
        ["7", "off", "0.5", "0.700", "", "one", "100.0 51.0"],
    ]
    table = "\n".join("\t".join(row) for row in [heads, *rows])
    (tmp_path / "table.tsv").write_text(table, encoding="utf-8")
    log = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t1.3\t1\t0:00:01\n1\t1\t1\t0.2\t1\t0:00:01\n"
    (tmp_path / "one").write_text(log, encoding="utf-8")
    monkeypatch.setattr(mnist, "PRINTED", tmp_path / "table.tsv")
    mnist.logs(tmp_path)
    printed = capsys.readouterr().out
    assert "1 of 2" in printed
    assert "ACR: 0.750 for 0.700; at 0.25: 50.0 for 51.0" in printed


@pytest.mark.parametrize("epochs", [3, 6, 9, 20, 90])
def test_macers_hinge_still_sets_in_with_the_first_drop_of_the_rate(epochs):
    plan = mnist.reduced("macer", epochs=epochs).plan
    settings = [plan.at(epoch) for epoch in range(epochs)]
    assert [each.objective.lam == 0 for each in settings] == [each.lr == 0.01 for each in settings]
    assert settings[0].objective.lam == 0
    assert settings[-1].objective.lam == 16


@pytest.mark.parametrize("method", mnist.METHODS)
def test_the_full_number_of_epochs_is_the_published_schedule(method):
    published, plan = find_recipe(f"mnist-{method}-0.5").plan, mnist.reduced(method, epochs=90).plan
    for field in ("ramps", "step_epochs", "schedule", "objective"):
        assert getattr(plan, field) == getattr(published, field)


def test_differences_are_of_the_same_inputs_and_seeds():
    """Two inputs, two seeds: a method that is .2 and .4 ahead on the first and even on the second."""

    def group(method: str, *radii: tuple[float, float]) -> SeedGroup:
        runs = [
            made_run(f"{method}{k}", tuple(record(i, r) for i, r in enumerate(two)))
            for k, two in enumerate(radii)
        ]
        return SeedGroup(method, 0.5, tuple(runs))

    gaussian, macer = group("gaussian", (1.0, 0.5), (1.1, 0.5)), group("macer", (1.2, 0.5), (1.5, 0.5))
    row = mnist.comparison(macer, gaussian)
    # Means over seeds are .3 and 0 on the two inputs: sd .3/√2, s. e. .15.
    assert row == ["macer", "+0.150 ± 0.150", "+0.100, +0.200", "+0.032", "yes"]
    assert mnist.comparison(gaussian, macer)[1:3] == ["-0.150 ± 0.150", "-0.100, -0.200"]


def test_every_benchmark_that_a_page_or_a_file_names_exists():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    files = [*pages, *(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    named = {found.groups() for file in files for found in NAMED.finditer(file.read_text(encoding="utf-8"))}
    assert ("speed", None) in named
    for name, command in named:
        app = importlib.import_module(f"benchmarks.{name}").app
        if command is not None and app.default_command is None:
            assert command in {*app}, f"python -m benchmarks.{name} {command}"
