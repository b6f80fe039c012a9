from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothcert.commands import main

WORDS = ["--max", "4", "--steps", "3", "--copies", "2", "--points", "5", "--votes", "50"]


def test_a_picture_and_a_sentence(digits_model: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "line.png"
    main(["diagnose", str(digits_model), *WORDS, "--out", str(out)])
    assert "right without attack" in capsys.readouterr().out
    assert out.read_bytes().startswith(b"\x89PNG")


def test_json_has_every_input(digits_model: Path, capsys) -> None:
    main(["diagnose", str(digits_model), *WORDS, "--skip", "7", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["idx"] for row in found["inputs"]] == [0, 7, 14, 21]
    assert found["sigma"] == 0.25
    assert all(row["rival"] != row["label"] for row in found["inputs"])


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--out", "line.gif"], "pictures are written as"), (["--sigma", "-1"], "sigma must be positive")],
)
def test_mistakes(digits_model: Path, capsys, words, message) -> None:
    with pytest.raises(SystemExit):
        main(["diagnose", str(digits_model), *words])
    assert message in capsys.readouterr().err
