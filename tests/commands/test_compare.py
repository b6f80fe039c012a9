"""smoothcert compare on runs made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothcert.commands import main
from smoothcert.runs import Manifest, Record, create_run

PLAN = {
    "noise": "gaussian",
    "sigma": 0.5,
    "norm": "l2",
    "bound": "clopper-pearson",
    "n": 1000,
    "alpha": 0.001,
}


def written(path: Path, radii: list[float], sha256: str = "d" * 64, norm: str = "l2") -> str:
    records = [Record(i, 0, 0 if r > 0 else -1, r, 0.5, 1.0) for i, r in enumerate(radii)]
    data = {"name": "made-up", "sha256": sha256, "planned": len(radii)}
    manifest = Manifest.of("certify", PLAN | {"norm": norm}, {}, data)
    create_run(path, manifest, records)
    return str(path)


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    return [
        written(tmp_path / "weak", [0.6] * 20 + [0.3] * 24 + [0.6] * 6),
        written(tmp_path / "strong", [0.6] * 20 + [0.6] * 24 + [0.2] * 6),
    ]


def refused(*words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compare", *words])
    assert caught.value.code == 2


@pytest.mark.parametrize("columns", ["120", "40"], ids=["wide", "narrow: figures are whole all the same"])
def test_a_table_and_a_sentence(
    pair: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    main(["compare", *pair, "--radii", "0.1,0.50"])
    shown = capsys.readouterr().out
    row = next(line for line in shown.splitlines() if "0.50" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:6] == ["0.50", "52.0", "88.0", "6", "24", "+36.0"]
    low, high = (float(end) for end in cells[6].split(" to "))
    assert 5 < low < 36 < high < 75
    assert float(cells[7]) == pytest.approx(0.0029, abs=2e-4)
    assert "strong certifies more inputs than weak at ℓ2 radius 0.5" in shown
    assert "ACR: A 0.456, B 0.552" in shown


def test_json_is_complete(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", *pair, "--radii", "0.1,0.5", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["radius"] for row in found["radii"]] == [0.1, 0.5]
    assert set(found["radii"][0]) >= {"first", "second", "difference", "low", "high", "p_value", "p_holm"}
    assert set(found["acr"]) == {"first", "second", "difference", "low", "high", "p_value"}
    assert found["in_words"].startswith("strong certifies more")


def test_default_radii_follow_from_the_plans(
    pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compare", *pair, "--json"])  # n = 1000, alpha = 0.001: at most 2.46 σ
    asked = [row["radius"] for row in json.loads(capsys.readouterr().out)["radii"]]
    assert asked == [0, 0.25, 0.5, 0.75, 1]
    log = tmp_path / "log.tsv"
    main(["export-log", pair[0]])
    log.write_text(capsys.readouterr().out)
    main(["import-log", str(log), "--sigma", "0.5", "--out", str(tmp_path / "log")])
    capsys.readouterr()
    refused(pair[0], str(tmp_path / "log"), "--json")
    assert "--radii is missing" in capsys.readouterr().err
    main(["compare", pair[0], str(tmp_path / "log"), "--radii", "0.25", "--json"])
    assert "no hash of the data" in json.loads(capsys.readouterr().out)["notes"][0]


def test_refusals_in_words(pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(pair[0], written(tmp_path / "other", [0.5] * 50, sha256="e" * 64))
    assert "different data" in capsys.readouterr().err
    refused(pair[0], written(tmp_path / "l1", [0.5] * 50, norm="l1"))
    assert "different norms" in capsys.readouterr().err
    short = written(tmp_path / "short", [0.5] * 30)
    refused(pair[0], short)
    assert "--common" in capsys.readouterr().err
    main(["compare", pair[0], short, "--common"])
    assert "30 inputs in common" in capsys.readouterr().out
    refused(pair[0], written(tmp_path / "empty", []))
    assert "no input has been certified yet" in capsys.readouterr().err
    refused(*pair, "--confidence", "95")
    assert "confidence must lie strictly between 0 and 1" in capsys.readouterr().err
    refused(*pair, "--radii", "0.5,x")
    assert "'x'" in capsys.readouterr().err
