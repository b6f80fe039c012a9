"""One run in full, in words and as JSON."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from smoothcert.analysis.evidence import planned_ceiling
from smoothcert.analysis.intervals import population_lower_bound
from smoothcert.cli import main
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, create_run, read_run
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


def answer(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(capsys, *words, "--json"))
    return found


def acr_line(text: str) -> str:
    (line,) = (line for line in text.splitlines() if "ACR:" in line)
    return line


def acr_interval(text: str) -> list[float]:
    """The two ends in parentheses after the ACR; none where the line gives a reason instead."""
    return [float(end) for end in re.findall(r"\d+\.\d+", acr_line(text).partition("(")[2].partition(")")[0])]


def test_the_three_accuracies_are_kept_apart_and_what_is_proved_pays_for_every_radius(tmp_path, capsys):
    made(tmp_path / "run")
    words = (tmp_path / "run", "--radii", "0,0.25")
    found = answer(capsys, *words)
    assert found["base_accuracy"] == 0.9  # input 0 is wrong without noise
    assert found["noisy_accuracy"] == 0.9  # 90 of 100 votes everywhere
    assert found["smoothed_accuracy"] == 0.8
    assert found["summary"]["abstained"] == 0.1
    assert found["summary"]["acr"] == pytest.approx(0.24)
    text = shown(capsys, *words)
    assert re.findall(r": (\d+\.\d) %", text)[:4] == ["90.0", "90.0", "80.0", "10.0"]
    assert "ACR: 0.240" in text
    low, high = acr_interval(text)
    assert 0 < low < 0.24 < high
    sentences = answer(capsys, *words)["statements"]
    assert len(sentences) == 2
    bound = 100 * population_lower_bound(8, 10, 0.001, 0.01 / 2)
    for sentence in sentences:
        (percentage,) = map(float, re.findall(r"([\d.]+) %", sentence))
        assert percentage == pytest.approx(bound, abs=0.1)
        assert percentage <= bound
        assert sentence in text
    found = answer(capsys, tmp_path / "run", "--radii", "0,0.25")["classes"]
    assert [(one["inputs"], one["accuracy"]) for one in found] == [
        (5, [1.0, 1.0]),
        (0, None),
        (5, [0.6, 0.6]),
    ]
    assert (
        answer(capsys, tmp_path / "run")["radii"][-1] > 0.3
    )  # beyond anything certified: results had no say


def test_what_a_log_cannot_say_is_missing(tmp_path, capsys):
    made(tmp_path / "log", votes=False, alpha=None, n=None)
    words = (tmp_path / "log", "--radii", "0,0.25")
    found = answer(capsys, *words)
    assert [found[name] for name in ("base_accuracy", "noisy_accuracy", "top_class")] == [None] * 3
    assert "--alpha" in found["statements"]
    text = shown(capsys, *words)
    assert found["statements"] in text
    assert re.findall(r": (\d+\.\d) %", text) == ["80.0", "10.0"]  # smoothed accuracy and abstentions alone
    assert not acr_interval(text)
    # Radii that the results chose prove nothing either.
    made(tmp_path / "with-alpha", votes=False, n=None)
    reason = answer(capsys, tmp_path / "with-alpha")["statements"]
    assert "--radii" in reason
    assert reason in shown(capsys, tmp_path / "with-alpha")
    assert len(answer(capsys, tmp_path / "with-alpha", "--radii", "0.25")["statements"]) == 1


def test_a_searched_sigma_is_not_sold_as_one_classifier(tmp_path, capsys):
    made(tmp_path / "plain")
    made(tmp_path / "searched", sigma_search="ladder")
    for name, own_sigmas in (("plain", False), ("searched", True)):
        (statement,) = answer(capsys, tmp_path / name, "--radii", "0.25")["statements"]
        assert ("σ" in statement) == own_sigmas, name


def test_a_memory_and_a_run_under_way_prove_nothing_about_other_inputs(tmp_path, capsys):
    for name, plan in (("memory", {"stateful": True}), ("begun", {})):
        made(tmp_path / name, **plan)
        if name == "begun":
            forget(tmp_path / name, [3])
        found = answer(capsys, tmp_path / name, "--radii", "0.25")
        assert found["summary"]["complete"] == (name == "memory")
        assert isinstance(found["statements"], str), "a reason, and no list of statements"
        text = shown(capsys, tmp_path / name, "--radii", "0.25")
        assert found["statements"] in text
        assert ("(stateful)" in text) == (name == "memory")
        assert not acr_interval(text)
    assert re.search(r"^begun: 9\D+10\b", text)


def test_why_the_acr_has_no_interval(tmp_path, capsys):
    plans: list[dict[str, object]] = [
        {"stateful": True},
        {"stop": ["total:900,10"], "n0": 10},
        {"sigma_search": "ladder"},
        {"bound": None},
    ]
    reasons = set()
    for number, plan in enumerate(plans):
        made(tmp_path / str(number) / "a [b]. c", **plan)
        text = shown(capsys, tmp_path / str(number) / "a [b]. c", "--radii", "0")
        assert not acr_interval(text), plan
        line = acr_line(text)
        assert "a [b]" not in line, "the page names its run once"
        assert "ceiling=" not in line, plan
        reasons.add(line)
    assert len(reasons) == len(plans)


def test_a_log_with_radii_above_the_ceiling_by_rounding_is_shown(tmp_path, capsys):
    plan = PLAN | {"n": 10, "alpha": 0.1}
    ceiling = planned_ceiling(PlanStatement(plan))
    assert ceiling is not None
    radius = math.ceil(ceiling * 1000) / 1000
    assert ceiling < radius < ceiling + 0.0005
    records = [Record(index, 1, 1, radius, 0.5, 1.0) for index in range(8)]
    data = {"planned": 8, "radius_digits": 3, "radius_decimals": 3}
    create_run(tmp_path / "log", Manifest.of("import", plan, {}, data), records)
    text = shown(capsys, tmp_path / "log", "--radii", "0.25")
    low, high = acr_interval(text)
    assert low < radius <= high
    assert " 3 digits" in text
    (statement,) = answer(capsys, tmp_path / "log", "--radii", "0.25")["statements"]
    assert statement in text


def test_a_recertified_run_names_its_condition(tmp_path, capsys):
    lines = []
    for folder, plan in (("plain", {}), ("recertified", {"recertified_from": {"alpha": 0.01}})):
        made(tmp_path / folder / "run", **plan)
        lines.append(shown(capsys, tmp_path / folder / "run", "--radii", "0.25").splitlines())
    (condition,) = (line for line in lines[1] if line not in lines[0])
    assert "α" in condition
