import json
import subprocess
import sys

import pytest

from smoothcert.analysis.layouts import LAYOUTS, render_table
from smoothcert.analysis.tables import FORMATS, default_radii, parse_radii
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.runs.records import Record

from .made_runs import made_run, trained
from .texts import cells

RADII = ["0", "0.50", "1.0"]


def test_csv_is_exact():
    runs = [made_run(), made_run('odd,"name', sigma=1)]
    assert render_table(runs, RADII, format="csv") == (
        "run,sigma,inputs,acr,0,0.50,1.0,dataset,split,sigma_search,sigma_per,planned,complete,sigma_levels,chooser\n"
        "made,0.25,7,0.314,71.4,42.9,14.3,,,,,7,true,,\n"
        '"odd,""name",1.0,7,0.314,71.4,42.9,14.3,,,,,7,true,,\n'
    )


def test_markdown_states_what_the_figures_rest_on():
    text = render_table([made_run(), made_run("a|b", bound=None, n=None, alpha=None)], RADII)
    figures = ["7", "0.314", "71.4", "42.9", "14.3"]
    assert cells(text) == [
        ["run", "data", "σ", "norm", "bound", "n", "α", "inputs", "ACR", *RADII],
        ["made", "–", "0.25", "ℓ2", "clopper-pearson", "1000", "0.001", *figures],
        [r"a\|b", "–", "0.25", "ℓ2", "–", "–", "–", *figures],
    ]
    assert "ℓ2" in text.splitlines()[0]


def test_latex_is_booktabs_with_escaped_names():
    text = render_table([made_run(r"50%_a&b\c", n=None)], RADII, format="latex")
    assert r"\begin{tabular}{llrllrrrrrrr}" in text
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\cmidrule(l){10-12}"))
    assert (
        r"50\%\_a\&b\textbackslash{}c & -- & 0.25 & $\ell_2$ & clopper-pearson & -- & 0.001 & 7 & 0.314 "
        r"& 71.4 & 42.9 & 14.3 \\"
    ) in text


def test_json_has_full_precision_and_null():
    table = json.loads(render_table([made_run(alpha=None)], RADII, format="json"))
    assert table["norm"] == "l2"
    assert table["radii"] == RADII
    (row,) = table["runs"]
    assert row["certified_accuracy"] == {"0": 5 / 7, "0.50": 3 / 7, "1.0": 1 / 7}
    assert row["acr"] == pytest.approx(2.2 / 7, rel=1e-15)
    assert (row["alpha"], row["n"], row["bound"], row["norm"]) == (None, 1000, "clopper-pearson", "l2")


def test_ties_fall_as_in_the_published_tables():
    printed = {7665: "76.6", 5785: "57.9", 9945: "99.5", 9705: "97.0", 8815: "88.1", 4225: "42.2"}
    for count, shown in printed.items():
        records = tuple(Record(k, 1, 1 if k < count else 2, 1.0, 0.25, 0.0) for k in range(10_000))
        table = render_table([made_run(records=records)], ["0.5"], format="csv")
        assert table.splitlines()[1].split(",")[4] == shown


@pytest.mark.parametrize("layout", ["runs", "paper", "best"])
def test_norms_dont_mix(layout):
    with pytest.raises(InvalidValueError, match=r"first.*l2.*second.*l1"):
        render_table([made_run("first"), made_run("second", norm="l1")], RADII, layout)


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "changes"])  # that is of masks
def test_every_layout_in_every_format(layout):
    run = trained(made_run(), epochs=90, seconds=3600.0)
    texts = [render_table([run], RADII, layout, format) for format in FORMATS]
    assert all("0.314" in text for text in texts), "the ACR"
    assert len(set(texts)) == len(FORMATS)
    for runs, radii, format, told in (
        ([run], RADII, "html", r"'html'.*\bmarkdown\b"),
        ([], RADII, "csv", r"\b0\b.*\b3\b"),
        ([run], [], "csv", r"\b1\b.*\b0\b"),
    ):
        with pytest.raises(InvalidValueError, match=told):
            render_table(runs, radii, layout, format)
    with pytest.raises(RunError, match="empty"):
        render_table([trained(made_run("empty", ()), epochs=90, seconds=1.0)], RADII, layout)


def test_radii_are_kept_as_typed():
    assert parse_radii("0, 0.250,1e-1 ,.5") == ["0", "0.250", "1e-1", ".5"]
    for text in ("", "0,,1", "a", "-0.5", "nan", "inf", "1e999", "0;1", "1_0"):
        with pytest.raises(InvalidValueError, match=rf"'{text}'"):
            parse_radii(text)
    with pytest.raises(InvalidValueError, match=r"0\.50.*'0,0\.5,0\.50'.*0\.5\b"):
        parse_radii("0,0.5,0.50")


def test_default_radii_reach_just_above_the_largest():
    for largest, radii in [
        (0.0, "0 0.25 0.5"),
        (0.953, "0 0.25 0.5 0.75 1"),
        (1.0, "0 0.25 0.5 0.75 1 1.25"),
        (3.81, "0 0.5 1 1.5 2 2.5 3 3.5 4"),
        (0.1, "0 0.025 0.05 0.075 0.1 0.125"),
        (0.04, "0 0.005 0.01 0.015 0.02 0.025 0.03 0.035 0.04 0.045"),
        (240.0, "0 25 50 75 100 125 150 175 200 225 250"),
    ]:
        wrong_but_far = Record(1, 1, 2, 1000.0, 0.25, 0.0)
        run = made_run(records=(Record(0, 1, 1, largest, 0.25, 0.0), wrong_but_far))
        assert default_radii([run]) == radii.split()


@pytest.mark.system
def test_analysis_loads_neither_torch_nor_matplotlib():
    code = "import sys, smoothcert.functions; print({'torch', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "set()"


def test_a_long_sigma_and_a_limited_n():
    runs = [made_run(sigma=sigma) for sigma in (0.3047691994105896, 1, 0.125)]
    rows = render_table(runs, RADII, format="csv").splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == ["0.304769", "1.0", "0.125"]
    assert json.loads(render_table(runs, RADII, format="json"))["runs"][0]["sigma"] == 0.3047691994105896
    runs = [
        made_run(stop=["grid:0,0.25", "wrong"]),
        made_run(stop=["total:9000,100"]),  # one input may get 16 n
        made_run(),
    ]
    rows = render_table(runs, RADII).splitlines()[-3:]
    assert [row.split("|")[6].strip() for row in rows] == ["≤ 1000", "≤ 16000", "1000"]
    assert r"& $\leq$ 1000 &" in render_table(runs, RADII, format="latex")
