"""The table of MNIST that is made from logs kept in the repository."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import adjusted_check, mnist_table
from benchmarks.adjusted_acr import adjust

from smoothcert.datasets.base import Dataset
from smoothcert.runs import Record
from smoothcert.runs.field_log import read_field_log
from smoothcert.training import find_recipe


def record(index: int, radius: float, correct: bool = True) -> Record:
    return Record(index, 1, 1 if correct else 0, radius, 0.5, seconds=0.0)


def test_a_harder_subset_is_adjusted_by_the_mean_paired_difference():
    # On inputs 0 and 2 the control has 0.4 and 1.0, on all it has 0.9; the run is 0.1 and 0.3 above it.
    adjusted = adjust([record(0, 0.5), record(2, 1.3)], [record(0, 0.4), record(1, 1.3), record(2, 1.0)], 0.9)
    assert adjusted.acr == pytest.approx(0.9 + 0.2)
    assert adjusted.error == pytest.approx(0.1)  # sd of (0.1, 0.3) is √0.02, over √2


def test_a_wrong_answer_counts_as_radius_zero():
    adjusted = adjust([record(0, 0.5, correct=False), record(1, 0.5)], [record(0, 0.5), record(1, 0.5)], 1.0)
    assert adjusted.acr == pytest.approx(0.75)


def test_how_honest_a_standard_error_is_follows_from_subsets_of_logs_whose_acr_is_known():
    control = [record(k, 1.0) for k in range(4)]
    log = [record(0, 1.1), record(1, 1.1), record(2, 1.5), record(3, 1.3)]  # on all 1.25
    found = adjusted_check.check([log], control, 2)
    # Inputs 0 and 2: 1.3, off by 0.05, stated (0.4/√2)/√2 = 0.2. Inputs 1 and 3: 1.2, off by 0.05, stated 0.1.
    assert found.subsets == 2
    assert found.error == pytest.approx(0.05)
    assert found.stated == pytest.approx(0.15)
    assert found.covered == 1.0
    # With nothing but noise in every other input, the others' standard error of 0 covers nothing.
    half = [record(0, 1.0), record(1, 1.1), record(2, 1.0), record(3, 1.5)]
    assert adjusted_check.check([half], control, 2).covered == 0.5


def test_logs_without_the_control_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=rf"{tmp_path}.*mnist-sigma0\.5-consistency\.tsv\.gz"):
        adjusted_check.main([str(tmp_path), "--sigma", "0.5"])


def test_the_acr_over_epochs_is_in_columns_of_epochs(tmp_path: Path) -> None:
    for log in ("gaussian-0.5.json", "gaussian-0.5.tsv.gz"):
        (tmp_path / log).write_bytes((mnist_table.KEPT / log).read_bytes())
    assert mnist_table.curves(tmp_path) == ""
    stated = json.loads((tmp_path / "gaussian-0.5.json").read_text(encoding="utf-8"))
    stated["curve"] = [[2, 0.25], [5, 1.0]]
    (tmp_path / "gaussian-0.5.json").write_text(json.dumps(stated), encoding="utf-8")
    *_, row = mnist_table.curves(tmp_path).splitlines()
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["0.5", "gaussian", "0.250", "1.000"]


def test_log_passed_through_a_memory_loses_what_another_class_claims(tmp_path: Path) -> None:
    # Inputs on a line: the second lies 0.5 from the first, of its class; the third, 1.25 from it, is of another.
    line = np.array([[0.0], [0.5], [1.25]], np.float32)
    data = Dataset("line", line, np.array([1, 1, 0]), ("a", "b"))
    records = [record(0, 0.75), record(1, 0.5), record(2, 0.75, correct=False)]
    mnist_table._write_log(tmp_path / "made.tsv.gz", records)
    stated = json.loads((mnist_table.KEPT / "gaussian-0.5.json").read_text(encoding="utf-8"))
    (tmp_path / "made.json").write_text(json.dumps(stated), encoding="utf-8")
    made = mnist_table.remember(tmp_path / "made.tsv.gz", data, tmp_path)
    assert made.name == "made-memory.tsv.gz"
    answers = read_field_log(made, 0.5).records
    assert [one.predicted for one in answers] == [1, 1, 0]
    # The second keeps its own 0.5, the first left 0.25 of it; the third is cut to 0.25 by the second.
    assert [one.radius for one in answers] == pytest.approx([0.75, 0.5, 0.25], abs=2e-6)
    assert json.loads((tmp_path / "made-memory.json").read_text(encoding="utf-8"))["memory"] is True


def test_every_published_row_has_a_recipe():
    for sigma, rows in mnist_table.PUBLISHED.items():
        for method in rows:
            assert find_recipe(f"mnist-{method}-{sigma}").plan.sigma == sigma


def test_the_table_is_made_of_the_files_in_the_repository():
    logs = [path for path in mnist_table.KEPT.glob("*.tsv.gz") if not path.name.startswith("control-")]
    told = [
        json.loads(Path(str(log).removesuffix(".tsv.gz") + ".json").read_text(encoding="utf-8"))
        for log in logs
    ]
    published = [stated for stated in told if mnist_table.Kept(**stated).as_published]
    assert len(mnist_table.table(mnist_table.KEPT).splitlines()) == len(published) + 2
    others = len(logs) - len(published)
    assert len(mnist_table.beyond(mnist_table.KEPT).splitlines()) == (others + 2 if others else 0)
    page = (mnist_table.KEPT.parent / "mnist.md").read_text(encoding="utf-8")
    for made in mnist_table.TABLES:
        assert made(mnist_table.KEPT) in page, "paste what `python -m benchmarks.mnist_table` prints"
    assert all((stated["n0"], stated["n"], stated["alpha"]) == (100, 100_000, 0.001) for stated in told)
