import json
import re
from typing import Any

import numpy as np
import pytest

from smoothcert.analysis.plots import gallery
from smoothcert.cli import main
from smoothcert.datasets import load

from .output import names, refusal

WORDS = ["--max", "4", "--steps", "3", "--copies", "2", "--points", "5", "--votes", "50"]


def test_a_picture_a_sentence_and_json_of_every_input(digits_model, tmp_path, capsys):
    out = tmp_path / "line.png"
    main(["attack", "--lines", str(digits_model), *WORDS, "--out", str(out)])
    assert re.search(r"\b4\b.*\b4\b.*\b4\b.*\b0\.\d{3}\b", capsys.readouterr().out)
    assert out.read_bytes().startswith(b"\x89PNG")
    main(["attack", "--lines", str(digits_model), *WORDS, "--every", "7", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["idx"] for row in found["inputs"]] == [0, 7, 14, 21]
    assert found["sigma"] == 0.25
    assert all(row["rival"] != row["label"] for row in found["inputs"])


def test_each_input_and_the_model_before(digits_model, tmp_path):
    """SmoothMix's figures 2 and 5."""
    pictures = []
    before = ["--before", str(digits_model / "model.safetensors"), "--seed", "1"]
    for number, options in enumerate(([], ["--each"], before)):
        pictures.append(tmp_path / f"{number}.png")
        words = [*WORDS, *options, "--quiet", "--out", str(pictures[-1])]
        main(["attack", "--lines", str(digits_model), *words])
    assert len({picture.read_bytes() for picture in pictures}) == 3


def test_each_input_is_drawn_beside_its_adversary(digits_model, tmp_path, monkeypatch):
    """SmoothMix's figure 2: the pictures at either end of a line, of the first four inputs that are right."""
    drawn: list[Any] = []
    monkeypatch.setattr(gallery, "plot_confidence_lines", lambda *_, ends, **__: drawn.extend(ends))
    words = ["attack", "--lines", str(digits_model), *WORDS[2:], "--max", "6", "--quiet"]
    words += ["--out", str(tmp_path / "a.png")]
    main(words)
    assert drawn == []
    main([*words, "--each"])
    assert len(drawn) == gallery.MOST_ENDS == 4
    test_set = load("digits", "test")
    for pair in drawn:
        index, label = re.match(r"(\d+): (\d) → \d, ℓ2 ", pair.caption).groups()
        assert np.array_equal(pair.first, test_set.input(int(index)))
        assert int(label) == test_set.labels[int(index)]
        distance = float(pair.caption.rpartition(" ")[2])
        assert np.linalg.norm(pair.last - pair.first) == pytest.approx(distance, abs=0.006)
        assert distance > 0.5


@pytest.mark.parametrize(
    ("words", "named"),
    [(["--out", "line.gif"], [".png", "'.gif'", "line.gif"]), (["--sigma", "-1"], ["sigma", -1.0])],
)
def test_mistakes(digits_model, capsys, words, named):
    assert names(refusal(capsys, "attack", "--lines", digits_model, *words), *named)
