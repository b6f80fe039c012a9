"""The benchmarks: tables made from logs kept in the repository, shortened recipes, and commands that pages name."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import mnist, papers, timing

from smoothcert.runs.records import Record
from smoothcert.training.recipe import find_recipe

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


def test_curves_are_held_against_the_best_fixed_sigma_at_each_radius(tmp_path: Path) -> None:
    rows = [
        "data\tclassifier\t0\t1",
        "d\tσ = 0.25\t90.0\t0.0",
        "d\tσ = 0.5\t80.0\t40.0",
        "d\tmedian\t85.0\t41.0",
    ]
    (tmp_path / "levels.tsv").write_text("\n".join(rows), encoding="utf-8")
    lines = papers.curves_table(tmp_path / "levels.tsv").splitlines()
    cells = {
        row[0]: row[1:] for row in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    }
    assert cells["envelope of the fixed σ"][:2] == ["90.0", "40.0"]
    assert cells["median"] == ["85.0", "41.0", "-5.0 … +1.0", "σ = 0.5"]


def test_searches_are_compared_with_the_fixed_sigma_on_the_same_inputs(tmp_path: Path) -> None:
    heads = "start\tsearch\tn\tidx\tlabel\tpredicted\tradius\tsigma"
    rows = ["0.5\tfixed σ\t100\t0\t1\t1\t0.4\t0.5", "0.5\tfixed σ\t100\t1\t1\t1\t0.4\t0.5"]
    rows += ["0.5\tgradient, K = 9\t100\t0\t1\t1\t1\t0.9", "0.5\tgradient, K = 9\t100\t1\t1\t2\t1\t0.9"]
    (tmp_path / "kept.tsv").write_text("\n".join([heads, *rows]), encoding="utf-8")
    *_, searched = papers.ds_table(tmp_path / "kept.tsv").splitlines()
    cells = [cell.strip() for cell in searched.strip("|").split("|")]
    # One input has another class, a wrong one: ACR .5 for .4, in pairs +.6 and −.4.
    assert cells[1:3] + cells[4:7] == ["gradient, K = 9", "2", "1", "0.500", "+0.100 ± 0.500"]


def test_pages_of_results_hold_what_the_commands_print_of_the_kept_files() -> None:
    levels = (papers.RESULTS / "levels.md").read_text(encoding="utf-8")
    assert papers.curves_table(papers.LEVELS) in levels, (
        "paste what `python -m benchmarks.papers curves` prints"
    )
    if papers.KEPT.exists():
        page = (papers.RESULTS / "data-dependent.md").read_text(encoding="utf-8")
        assert papers.ds_table(papers.KEPT) in page, "paste what `python -m benchmarks.papers ds` prints"


def test_every_benchmark_that_a_page_or_a_file_names_exists():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    files = [*pages, *(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    named = {found.groups() for file in files for found in NAMED.finditer(file.read_text(encoding="utf-8"))}
    assert ("speed", None) in named
    for name, command in named:
        app = importlib.import_module(f"benchmarks.{name}").app
        if command is not None and app.default_command is None:
            assert command in {*app}, f"python -m benchmarks.{name} {command}"
