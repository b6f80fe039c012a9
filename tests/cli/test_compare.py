"""smoothcert compare on runs made by hand."""

import json
import re
import shutil
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import create_run

from .output import names, refusal, rows

PLAN = {
    "noise": "gaussian", "sigma": 0.5, "norm": "l2", "bound": "clopper-pearson", "n": 1000, "alpha": 0.001,
}  # fmt: skip


def written(path: Path, radii: list[float], sha256: str = "d" * 64, norm: str = "l2") -> str:
    records = [Record(i, 0, 0 if r > 0 else -1, r, 0.5, 1.0) for i, r in enumerate(radii)]
    data = {"name": "made-up", "sha256": sha256, "planned": len(radii)}
    manifest = Manifest.of("certify", PLAN | {"norm": norm}, {}, data)
    create_run(path, manifest, records)
    return str(path)


@pytest.fixture
def pair(tmp_path) -> list[str]:
    return [
        written(tmp_path / "weak", [0.6] * 20 + [0.3] * 24 + [0.6] * 6),
        written(tmp_path / "strong", [0.6] * 20 + [0.6] * 24 + [0.2] * 6),
    ]


@pytest.mark.parametrize("columns", ["120", "40"], ids=["wide", "narrow: figures are whole all the same"])
def test_a_table_and_a_sentence(pair, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    main(["compare", *pair, "--radii", "0.1,0.50"])
    shown = capsys.readouterr().out
    cells = rows(shown)[1]
    assert cells[:6] == ["0.50", "52.0", "88.0", "6", "24", "+36.0"]
    low, high = map(float, re.findall(r"-?[\d.]+", cells[6]))
    assert 5 < low < 36 < high < 75
    assert float(cells[7]) == pytest.approx(0.0029, abs=2e-4)
    assert names(shown, "ACR", 0.456, 0.552)
    assert names(shown.rpartition("ACR:")[2], "strong", "weak", "ℓ2", 0.5)


def test_json_is_complete(pair, tmp_path, capsys):
    main(["compare", *pair, "--radii", "0.1,0.5", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["radius"] for row in found["radii"]] == [0.1, 0.5]
    assert set(found["radii"][0]) >= {"first", "second", "difference", "low", "high", "p_value", "p_holm"}
    assert set(found["acr"]) == {"first", "second", "difference", "low", "high", "p_value"}
    assert names(found["in_words"], "strong", "weak", 0.5)
    main(["compare", *reversed(pair), "--radii", "0.1,0.5", "--json"])
    turned = json.loads(capsys.readouterr().out)
    assert turned["radii"][1]["difference"] == -found["radii"][1]["difference"]
    assert turned["in_words"] == found["in_words"]  # it is about the better one, wherever that stands
    swapped = [
        shutil.copytree(path, tmp_path / "swapped" / name) for path, name in zip(pair, ("strong", "weak"))
    ]
    main(["compare", *map(str, swapped), "--radii", "0.1,0.5", "--json"])
    swapped_words = json.loads(capsys.readouterr().out)["in_words"]
    exchanged = {"strong": "weak", "weak": "strong"}
    assert re.sub("strong|weak", lambda name: exchanged[name[0]], swapped_words) == found["in_words"]
    assert swapped_words != found["in_words"]


def test_default_radii_follow_from_the_plans(pair, tmp_path, capsys):
    main(["compare", *pair, "--json"])  # n = 1000, alpha = 0.001: at most 2.46 σ
    asked = [row["radius"] for row in json.loads(capsys.readouterr().out)["radii"]]
    assert asked == [0, 0.25, 0.5, 0.75, 1]
    log = tmp_path / "log.tsv"
    main(["run", "export", pair[0]])
    log.write_text(capsys.readouterr().out)
    main(["run", "import", str(log), "--sigma", "0.5", "--out", str(tmp_path / "log")])
    capsys.readouterr()
    assert "--radii" in refusal(capsys, "compare", pair[0], tmp_path / "log", "--json")
    main(["compare", pair[0], str(tmp_path / "log"), "--radii", "0.25", "--json"])
    note, *_ = json.loads(capsys.readouterr().out)["notes"]  # labels alone could be compared
    assert names(note, "weak", "log")


def test_refusals(pair, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def message(*words: str) -> str:
        return refusal(capsys, "compare", "weak", *words)

    assert names(message(written(Path("other"), [0.5] * 50, sha256="e" * 64)), "d" * 12, "e" * 12)
    assert names(message(written(Path("manhattan"), [0.5] * 50, norm="l1")), "l2", "l1")
    assert names(message(written(Path("short"), [0.5] * 30)), 50, 30, "--common")
    main(["compare", "weak", "short", "--common", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == 30
    assert names(found["notes"][0], 30, 50)
    assert names(message(written(Path("empty"), [])), "empty")
    assert names(message("strong", "--confidence", "95"), "confidence", 95.0)
    assert "'x'" in message("strong", "--radii", "0.5,x")
