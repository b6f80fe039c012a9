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


def test_each_input_and_the_model_before(digits_model: Path, tmp_path: Path) -> None:
    """SmoothMix's figures 2 and 5."""
    pictures = []
    for name, options in (
        ("median", []),
        ("each", ["--each"]),
        ("before", ["--before", str(digits_model / "model.safetensors"), "--seed", "1"]),
    ):
        pictures.append(tmp_path / f"{name}.png")
        main(["diagnose", str(digits_model), *WORDS, *options, "--quiet", "--out", str(pictures[-1])])
    assert len({picture.read_bytes() for picture in pictures}) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--out", "line.gif"], "pictures are written as"), (["--sigma", "-1"], "sigma must be positive")],
)
def test_mistakes(digits_model: Path, capsys, words, message) -> None:
    with pytest.raises(SystemExit):
        main(["diagnose", str(digits_model), *words])
    assert message in capsys.readouterr().err
