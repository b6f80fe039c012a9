"""The papers' layout: what is grouped, averaged, set in bold and refused."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from smoothcert.analysis.layouts import render_table
from smoothcert.analysis.seeds import SeedGroup, coverage, differ_in_seed_alone, method_of, summarise_seeds
from smoothcert.errors import InvalidValueError
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run

from .made_runs import FIVE_AND_TWO, made_run, trained
from .texts import cells

# Four inputs, three right, at 0.25, 0.5 and 1.0: ACR 1.75 / 4 = 0.4375, shares 75.0, 50.0 and 25.0 %.
FOUR = tuple(
    Record(index, label, predicted, radius, 0.25, 1.0)
    for index, (label, predicted, radius) in enumerate([(1, 1, 0.25), (2, 2, 0.5), (3, 3, 1.0), (5, 4, 2.0)])
)
# The same inputs: right at 0.25 (three times) and 1.0: ACR 1.75 / 4 too, shares 100.0, 25.0 and 25.0 %.
FLAT = tuple(
    replace(record, predicted=record.label, radius=1.0 if k == 2 else 0.25) for k, record in enumerate(FOUR)
)
RADII = ["0", "0.5", "1.0", "3"]


def run_of(method: str, records: tuple[Record, ...] = FOUR, data: str | None = "mnist", **plan: Any) -> Run:
    run = made_run(f"{method}-run", records, **plan)
    origin = {"method": method} if method else {}
    return replace(run, manifest=run.manifest.stating(origin=origin, data=run.manifest.data.but(name=data)))


def paper(runs: list[Run], radii: list[str] = RADII, format: str = "markdown") -> str:
    return render_table(runs, radii, "paper", format)


def rows_of(runs: list[Run], radii: list[str] = RADII) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(paper(runs, radii, "csv"))))


def test_markdown_is_exact():
    runs = [run_of("b", sigma=0.5), run_of("a"), run_of("flat", FLAT)]
    text = paper(runs)
    assert cells(text) == [
        ["σ", "method", "ACR", "0", "0.5", "1.0", "3"],
        ["0.25", "a", "**0.438**", "75.0", "**50.0**", "**25.0**", "0.0"],
        ["", "flat", "**0.438**", "**100.0**", "25.0", "**25.0**", "0.0"],
        ["0.5", "b", "0.438", "75.0", "50.0", "25.0", "0.0"],
    ]
    note, blank = text.splitlines()[:2]
    assert re.search(r"mnist.*ℓ2.*\b4\b.*clopper-pearson.*n = 1000, α = 0\.001", note)
    assert not blank


def test_latex_is_booktabs_without_multirow():
    text = paper([run_of("a_1"), run_of("flat", FLAT)], format="latex")
    assert r"\begin{tabular}{llrrrrr}" in text
    assert r"0.25 & a\_1 & \textbf{0.438} & 75.0 & \textbf{50.0} & \textbf{25.0} & 0.0 \\" in text
    assert r" & flat & \textbf{0.438} & \textbf{100.0} & 25.0 & \textbf{25.0} & 0.0 \\" in text
    assert re.search(r"\\textit\{mnist.*\b4\b.*clopper-pearson.*n = 1000, \$\\alpha\$ = 0\.001\}", text)
    assert r"\multirow" not in text
    assert text.count(r"\begin") == text.count(r"\end") == 1


def test_csv_and_json():
    runs, radii = [run_of("a", alpha=None)], ["0", "0.50"]
    assert paper(runs, radii, "csv") == (
        "dataset,sigma,method,seeds,inputs,acr,acr_sd,0,0.50,split,sigma_search,sigma_per,planned,complete,"
        "sigma_levels,chooser\n"
        "mnist,0.25,a,1,4,0.438,,75.0,50.0,,,,4,true,,\n"
    )
    plain = json.loads(paper(runs, radii, "json"))
    assert (plain["norm"], plain["radii"]) == ("l2", ["0", "0.50"])
    (row,) = plain["rows"]
    assert (row["acr"], row["acr_sd"], row["alpha"], row["n"]) == (0.4375, None, None, 1000)
    assert row["certified_accuracy"] == {"0": {"mean": 0.75, "sd": None}, "0.50": {"mean": 0.5, "sd": None}}


def test_seeds_are_averaged():
    none_right = tuple(replace(record, predicted=9) for record in FOUR)
    runs = [run_of("a", seed=0), run_of("a", none_right, seed=1), run_of("b", seed=0)]
    first, second = rows_of(runs, ["0"])
    # Of 0.4375 and 0: mean 0.21875, sample standard deviation 0.4375/√2 = 0.3094.
    assert (first["method"], first["seeds"], first["acr"], first["acr_sd"]) == ("a", "2", "0.219", "0.309")
    assert (first["0"], second["0"], second["acr_sd"]) == ("37.5", "75.0", "")
    text = paper(runs, ["0"], "latex")
    assert r"a & 0.219$\pm$0.309 & 37.5$\pm$53.0" in text
    assert re.search(r"\\textit\{.*\$\\pm\$.*\}", text), "what stands behind the sign"
    other = replace(run_of("a", seed=1, n=100), path=Path("other"))
    rows = rows_of([run_of("a", seed=0), other], ["0"])
    assert [(row["method"], row["seeds"]) for row in rows] == [("a (a-run)", "1"), ("a (other)", "1")]


def test_a_searched_sigma_makes_another_method():
    runs = [run_of("a", seed=0), run_of("a", seed=1, sigma_search="ascent")]
    plain, searched = (row["method"] for row in rows_of(runs, ["0"]))
    assert plain == "a"
    assert re.fullmatch(r"a\b.*σ.*\bascent\b.*", searched)
    latex = searched.replace("σ", r"$\sigma$")
    assert f"{latex} &" in paper(runs, ["0"], "latex")


def test_runs_of_one_name_are_told_apart():
    runs = [made_run("x-sigma0.25", FOUR), made_run("x-sigma0.25-seed3", FOUR, n=10)]
    assert [row["method"] for row in rows_of(runs, ["0"])] == ["x (x-sigma0.25)", "x (x-sigma0.25-seed3)"]
    twins = [made_run("x", FOUR, Path("a")), made_run("x", FOUR, Path("b"))]
    assert [row["method"] for row in rows_of(twins, ["0"])] == ["x (a/x)", "x (b/x)"]


def test_each_data_set_has_its_heading_and_none_mix_unseen():
    runs = [run_of("a"), run_of("a", FIVE_AND_TWO, data="cifar10"), run_of("b", data=None)]
    text = paper(runs, ["0"], "markdown")
    first, second, third = [line for line in text.splitlines() if line and not line.startswith("|")]
    assert "mnist" in first
    assert "cifar10" in second
    assert not re.search("mnist|cifar10", third)
    assert "**" not in text, "nothing to compare within a data set"
    assert [row["dataset"] for row in rows_of(runs, ["0"])] == ["mnist", "cifar10", ""]
    other = (replace(FOUR[0], label=8),)
    with pytest.raises(InvalidValueError, match=r"\b0\b.*\b1\b.*a-run.*\b8\b.*b-run.*--dataset"):
        paper([run_of("a", data=None), run_of("b", other, data=None)], ["0"])
    first, second = run_of("a"), run_of("b")
    states = [
        replace(run, manifest=run.manifest.stating(data={"name": "mnist", "sha256": digest}))
        for run, digest in ((first, "1"), (second, "2"))
    ]
    with pytest.raises(InvalidValueError, match=r"a-run.*b-run.*mnist"):
        paper(states, ["0"])


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("gaussian-sigma0.25", "gaussian"),
        ("cifar10-sigma0.25-smoothmix-onestep", "cifar10-smoothmix-onestep"),
        ("smoothmix-eta=1-sigma0.5-seed12", "smoothmix-eta=1"),
        ("sigma-search", "sigma-search"),
        ("plain", "plain"),
    ],
)
def test_a_method_is_the_name_without_sigma_and_seed(tmp_path, name, method):
    assert method_of(made_run(name, path=tmp_path)) == method
    assert method_of(made_run("certified", path=tmp_path / name)) == method, "a sweep's folder"
    assert method_of(run_of("stated")) == "stated"


def test_coverage():
    run = run_of("a")
    assert coverage(run) is None
    states = {"name": "mnist", "inputs": 100, "skip": 10}
    begun = replace(run, manifest=run.manifest.stating(data=states))
    assert re.fullmatch(r"a-run\b.*\b4\b.*\b10\b.*", coverage(begun) or "")
    under_way = replace(begun, manifest=run.manifest.stating(data=states | {"skip": 1, "planned": 5}))
    assert re.fullmatch(r"a-run\b.*\b4\b.*\b5\b.*", coverage(under_way) or "")
    # A run of an earlier version holds all that its data allow: there is nothing it could lack.
    whole = replace(begun, records=tuple(replace(record, index=10 * record.index) for record in FOUR))
    assert coverage(replace(whole, manifest=run.manifest.stating(data=states | {"inputs": 40}))) is None


def test_what_makes_another_method_or_another_seed():
    runs = [_seeded("a", seed, "m" * 64) for seed in (0, 1)]
    runs = [replace(run, path=Path(f"run{k}")) for k, run in enumerate(runs)]
    assert [row["method"] for row in rows_of(runs)] == ["a (run0)", "a (run1)"]
    two = [_seeded("a", seed, str(seed) * 64) for seed in (0, 1)]
    (row,) = rows_of(two)
    assert (row["seeds"], row["acr_sd"]) == ("2", "0.000")
    short = trained(_seeded("a", 1, "1" * 64), epochs=2, seed=0, seconds=1.0)
    long = trained(_seeded("a", 2, "2" * 64), epochs=12, seed=0, seconds=9.0)
    assert not differ_in_seed_alone([short, long])
    rows = rows_of([short, replace(long, path=Path("long"))])
    assert [row["seeds"] for row in rows] == ["1", "1"]
    with pytest.raises(InvalidValueError, match=r"epochs: 2, 12"):
        summarise_seeds(SeedGroup("a", 0.25, (short, long)), [0.0])
    runs = [
        trained(_seeded("a", 0, str(seed) * 64), epochs=2, seed=seed, seconds=1.0 + seed) for seed in (0, 1)
    ]
    (row,) = rows_of(runs)
    assert row["seeds"] == "2"
    same = [trained(_seeded("a", k, str(k) * 64), epochs=2, seed=0) for k in (0, 1)]
    assert not differ_in_seed_alone(same)  # the same seed, and yet other weights: not known to be seeds
    runs = [run_of("a", seed=seed) for seed in (0, 1)]
    logs = [
        replace(run, manifest=run.manifest.stating(data={"name": "mnist", "log_sha256": str(k) * 64}))
        for k, run in enumerate(runs)
    ]
    assert not differ_in_seed_alone(logs)


def test_rows_of_other_inputs_or_another_alpha_have_no_best():
    shifted = tuple(replace(record, index=record.index + 4) for record in FLAT)
    runs = [_seeded("a", 0, "0" * 64), _seeded("a", 1, "1" * 64, shifted)]
    runs = [replace(run, path=Path(f"run{k}")) for k, run in enumerate(runs)]
    assert [row["seeds"] for row in rows_of(runs)] == ["1", "1"]
    for form in ("markdown", "latex"):
        text = paper(runs, format=form)
        assert "**" not in text
        assert r"\textbf" not in text
        assert "= 0.25" in text, "the σ without a best is named"
    other_data = replace(
        runs[1], manifest=runs[1].manifest.stating(data={"name": "mnist", "sha256": "f" * 64})
    )
    assert not differ_in_seed_alone([runs[0], replace(other_data, records=FOUR)])
    assert "**" not in paper([run_of("a"), run_of("b", FLAT, alpha=0.5)])
    assert "**" in paper([run_of("a"), run_of("b", FLAT)])


def _seeded(method: str, seed: int, model: str, records: tuple[Record, ...] = FOUR) -> Run:
    run = run_of(method, records, seed=seed)
    return replace(run, manifest=run.manifest.stating(model={"sha256": model}))


def test_n_is_a_limit_where_voting_may_end_early():
    stopped = run_of("a", stop=["wrong"])
    assert "n ≤ 1000, α = 0.001" in paper([stopped], ["0"], "markdown")
    assert r"n $\leq$ 1000" in paper([stopped], ["0"], "latex")
    assert "1000" not in paper([stopped, run_of("b")], ["0"], "markdown")
    assert "n = 1000" in paper([run_of("b")], ["0"], "markdown")
