"""`certify --memory` does in one command what certify and remember do in two."""

from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.runs.run import read_run

from .output import refusal

FEW = ("--n", "200", "--n0", "20", "--max", "4", "--every", "20", "--quiet")


def certify(model: Path, out: Path, *words: str) -> None:
    main(["certify", str(model), *FEW, "--out", str(out), *words])


def test_one_command_is_the_same_as_two(digits_model, tmp_path):
    search = ("--sigma-search", "ladder:rungs=3,votes=16")
    certify(digits_model, tmp_path / "one", *search, "--memory", f"sqlite:{tmp_path / 'one.memory'}")
    certify(digits_model, tmp_path / "two", *search)
    both = ["--memory", str(tmp_path / "two.memory"), "--out", str(tmp_path / "both")]
    main(["run", "remember", str(tmp_path / "two"), "--quiet", *both])
    one, two = read_run(tmp_path / "one"), read_run(tmp_path / "both")
    assert one.manifest.plan.stateful
    assert one.records.radius.tolist() == two.records.radius.tolist()
    assert one.records.predicted.tolist() == two.records.predicted.tolist()
    certificates = read_run(tmp_path / "one-certificates")
    assert certificates.records.digest == read_run(tmp_path / "two").records.digest


@pytest.mark.parametrize(("words", "named"), [(("--hold", "1"), "--hold"), (("--shard", "1/2"), "remember")])
def test_what_no_memory_takes_is_refused_first(words, named, digits_model, tmp_path, capsys):
    places = ["--out", tmp_path / "run", "--memory", tmp_path / "memory"]
    assert named in refusal(capsys, "certify", digits_model, *FEW, *places, *words)
    assert not list(tmp_path.iterdir())
