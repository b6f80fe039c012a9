"""One run in full, in words and as JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from smoothcert.analysis.ceiling import planned_ceiling
from smoothcert.analysis.intervals import population_lower_bound
from smoothcert.commands import main
from smoothcert.runs import Manifest, Record, Run, create_run, read_run
from smoothcert.runs.statement import PlanStatement
from smoothcert.tally import Phase, Stream, Tally
from tests.runs.unfinished import forget

PLAN = {"noise": "gaussian", "sigma": 0.5, "norm": "l2", "bound": "clopper-pearson", "n": 100, "alpha": 0.001}


def made(folder: Path, votes: bool = True, **plan: object) -> Run:
    """Ten inputs of classes 0 and 2 (class 1 has none): eight right at 0.3, one wrong, one abstained."""
    records = []
    for index in range(10):
        label = 0 if index < 5 else 2
        predicted, radius = {8: (0, 0.1), 9: (-1, 0.0)}.get(index, (label, 0.3))
        counts = [10, 0, 90] if label == 2 else [90, 10, 0]
        tallies = (
            Tally(Stream(0, index, Phase.SELECTION), 0, 10, (10, 0, 0) if label == 0 else (0, 0, 10)),
            Tally(Stream(0, index, Phase.ESTIMATION), 0, 100, tuple(counts)),
            label if index else 1,
        )
        records.append(
            Record(index, label, predicted, radius, 0.5, 2.0, *(tallies if votes else (None, None, None)))
        )
    create_run(
        folder, Manifest.of("certify" if votes else "import", PLAN | plan, {}, {"planned": 10}), records
    )
    return read_run(folder)


def shown(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    main(["show", *map(str, words)])
    return capsys.readouterr().out


def test_the_three_accuracies_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "run")
    text = shown(capsys, tmp_path / "run", "--radii", "0,0.25")
    assert "base accuracy (no noise, no certificate): 90.0 %" in text  # input 0 is wrong without noise
    assert "noisy accuracy of the base classifier: 90.0 %" in text  # 90 of 100 votes everywhere
    assert "smoothed accuracy (certified at radius 0): 80.0 %" in text
    assert "abstained: 10.0 %" in text
    assert "ACR: 0.240" in text


def test_what_is_proved_pays_for_every_radius(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "run")
    sentences = json.loads(shown(capsys, tmp_path / "run", "--radii", "0,0.25", "--json"))["statements"]
    bound = 100 * population_lower_bound(8, 10, 0.001, 0.01 / 2)
    for sentence in sentences:
        assert float(sentence.split("%")[0].split()[-1]) == pytest.approx(bound, abs=0.1)
        assert float(sentence.split("%")[0].split()[-1]) <= bound


def test_a_class_without_inputs_has_no_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "run")
    found = json.loads(shown(capsys, tmp_path / "run", "--radii", "0,0.25", "--json"))["classes"]
    assert [(one["inputs"], one["accuracy"]) for one in found] == [
        (5, [1.0, 1.0]),
        (0, None),
        (5, [0.6, 0.6]),
    ]


def test_what_a_log_cannot_say_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "log", votes=False, alpha=None, n=None)
    text = shown(capsys, tmp_path / "log", "--radii", "0,0.25")
    assert "base accuracy (no noise, no certificate): missing" in text
    assert "p_A: missing" in text
    assert "Nothing is proved about other inputs" in text
    assert "doesn't state alpha" in text
    assert "Proved" not in text
    assert "no interval" in text


def test_radii_come_from_the_plan_unless_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "run")
    radii = json.loads(shown(capsys, tmp_path / "run", "--json"))["radii"]
    assert radii[-1] > 0.3  # beyond anything certified: the results had no say


def test_a_searched_sigma_is_not_sold_as_one_classifier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "run", sigma_search="ladder")
    assert "by the classifier frozen at their own σ" in shown(capsys, tmp_path / "run", "--radii", "0.25")


def test_a_memory_proves_nothing_about_other_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "run", stateful=True)
    text = shown(capsys, tmp_path / "run", "--radii", "0.25")
    assert "(stateful)" in text
    assert "depend on one another" in text
    assert "Proved" not in text


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"stateful": True}, "the run comes out of a region memory, whose answers depend on one another"),
        ({"stop": ["total:900,10"], "n0": 10}, "the run spread one total of votes over its inputs"),
        ({"sigma_search": "ladder"}, "the run certifies inputs with σ of their own"),
        ({"bound": None}, "so the range of its radii is unknown)"),
    ],
)
def test_why_the_acr_has_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: dict[str, object], reason: str
) -> None:
    made(tmp_path / "a [b]. c", **plan)
    text = shown(capsys, tmp_path / "a [b]. c", "--radii", "0")
    (line,) = (one for one in text.splitlines() if "ACR:" in one)
    assert "(no interval: the run " in line
    assert reason in line
    assert "ceiling=" not in line


def test_a_run_under_way_counts_and_proves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "run")
    forget(tmp_path / "run", [3])
    text = shown(capsys, tmp_path / "run", "--radii", "0.25")
    assert "9 of the 10 inputs asked for so far" in text
    assert "no interval: the run isn't complete" in text
    assert "Nothing is proved about other inputs" in text
    assert "Proved" not in text
    statements = json.loads(shown(capsys, tmp_path / "run", "--radii", "0.25", "--json"))["statements"]
    assert "isn't complete" in statements


def test_radii_that_the_results_chose_prove_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "log", votes=False, n=None)
    text = shown(capsys, tmp_path / "log")
    assert "its results chose those above; give --radii" in text
    assert "Proved" not in text
    assert "Proved" in shown(capsys, tmp_path / "log", "--radii", "0.25")


def test_a_log_with_radii_above_the_ceiling_by_rounding_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = PLAN | {"n": 10, "alpha": 0.1}
    ceiling = planned_ceiling(PlanStatement(plan))
    assert ceiling is not None
    radius = math.ceil(ceiling * 1000) / 1000
    assert ceiling < radius < ceiling + 0.0005
    records = [Record(index, 1, 1, radius, 0.5, 1.0) for index in range(8)]
    data = {"planned": 8, "radius_digits": 3, "radius_decimals": 3}
    create_run(tmp_path / "log", Manifest.of("import", plan, {}, data), records)
    text = shown(capsys, tmp_path / "log", "--radii", "0.25")
    assert "(95 % interval over the choice of inputs" in text
    assert "rounded to 3 digits; statements and intervals allow for half a unit" in text
    assert "Proved" in text


def test_a_recertified_run_names_its_condition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "run", recertified_from={"alpha": 0.01})
    assert "without looking at its votes" in shown(capsys, tmp_path / "run", "--radii", "0.25")
