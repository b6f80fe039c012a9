"""`certify --memory` does in one command what certify and remember do in two."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothcert.commands import main
from smoothcert.runs import read_run


def certify(model: Path, out: Path, *words: str) -> None:
    few = ("--n", "200", "--n0", "20", "--max", "8", "--skip", "20", "--quiet")
    main(["certify", str(model), *few, "--out", str(out), *words])


def test_one_command_is_the_same_as_two(digits_model: Path, tmp_path: Path) -> None:
    search = ("--sigma-search", "ladder:rungs=3,votes=16")
    certify(digits_model, tmp_path / "one", *search, "--memory", f"sqlite:{tmp_path / 'one.memory'}")
    certify(digits_model, tmp_path / "two", *search)
    both = ["--memory", str(tmp_path / "two.memory"), "--out", str(tmp_path / "both")]
    main(["remember", str(tmp_path / "two"), "--quiet", *both])
    one, two = read_run(tmp_path / "one"), read_run(tmp_path / "both")
    assert one.manifest.plan.stateful
    assert one.records.radius.tolist() == two.records.radius.tolist()
    assert one.records.predicted.tolist() == two.records.predicted.tolist()
    certificates = read_run(tmp_path / "one-certificates")
    assert certificates.records.digest == read_run(tmp_path / "two").records.digest


@pytest.mark.parametrize(
    ("words", "told"), [(("--hold", "1"), "whole inputs"), (("--shard", "1/2"), "merge the shards")]
)
def test_what_no_memory_takes_is_refused_first(
    words: tuple[str, ...], told: str, digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        certify(digits_model, tmp_path / "run", *words, "--memory", str(tmp_path / "memory"))
    assert ended.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())
