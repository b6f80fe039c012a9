"""`predict --noise`: the noises that certify takes."""

import json
from pathlib import Path

import numpy as np
import pytest

from smoothcert.cli import main
from tests.cli.output import refusal

WORDS = ("--n", "200", "--max", "10", "--seed", "0", "--json")


def rows(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[tuple[int, float]]:
    capsys.readouterr()
    main(["predict", *(str(word) for word in words), *WORDS])
    found = json.loads(capsys.readouterr().out)["predictions"]
    return [(row["predict"], row["p_value"]) for row in found]


@pytest.mark.slow
def test_equal_scales_are_the_plain_noise(digits_model, tmp_path, capsys):
    np.save(tmp_path / "flat.npy", np.full((1, 8, 8), 0.7))
    for kind, prefix in (("gaussian", ""), ("uniform", "uniform:")):
        plain = rows(capsys, digits_model, "--noise", kind, "--sigma", "0.7")
        assert rows(capsys, digits_model, "--noise", f"{prefix}{tmp_path / 'flat.npy'}") == plain
    assert rows(capsys, digits_model, "--noise", "gaussian", "--sigma", "0.1") != plain


@pytest.mark.slow
def test_a_fit(digits_model, tmp_path, capsys):
    fit = tmp_path / "fit"
    quick = ["--max", "24", "--validation", "4", "--validation-n", "32", "--sub-epochs", "1", "--n0", "4"]
    main(["fit", "noise", str(digits_model), "--init", "0.25", *quick, "--quiet", "--out", str(fit)])
    assert rows(capsys, digits_model, "--noise", fit) == rows(
        capsys, digits_model, "--noise", fit / "sigmas.npy"
    )


def test_what_it_refuses(digits_model, tmp_path, capsys):
    np.save(tmp_path / "small.npy", np.ones(4))
    words = ["predict", digits_model, "--noise"]
    assert "'laplace'" in refusal(capsys, *words, "laplace")
    message = refusal(capsys, *words, tmp_path / "small.npy")
    assert "(4,)" in message
    assert "(1, 8, 8)" in message
    assert "--sigma 0.5" in refusal(capsys, *words, tmp_path / "small.npy", "--sigma", "0.5")


def test_json_has_the_models_own_names(digits_model, capsys):
    capsys.readouterr()
    main(["predict", str(digits_model), "--sigma", "0.25", *WORDS])
    found = json.loads(capsys.readouterr().out)["predictions"]
    assert [row["name"] for row in found] == [
        None if row["predict"] < 0 else str(row["predict"]) for row in found
    ]
