"""Radii with commas or with spaces between them, in every command that takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothcert.commands import main
from smoothcert.commands.radii import joined_radii
from tests.guarantees.hostile import toy_run


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("table a --radii 0 0.5 1", "table a --radii 0,0.5,1"),
        ("table a --radii 0,0.5", "table a --radii 0,0.5"),
        ("table --radii 0,0.5 2024", "table --radii 0,0.5 2024"),  # a run's name
        ("table --radii 0 0.5 runs/a", "table --radii 0,0.5 runs/a"),
        ("table --radii 0, 0.5, 1 runs/a", "table --radii 0,0.5,1 runs/a"),
        ("table --radii=0 .5 --layout paper a", "table --radii 0,.5 --layout paper a"),
        ("table --radii", "table --radii"),
        ("table --radii -1 a", "table --radii -1 a"),
        ("table -- --radii 0 1", "table -- --radii 0 1"),
        ("certify a --n 5 6", "certify a --n 5 6"),
    ],
)
def test_words(typed: str, meant: str) -> None:
    assert " ".join(joined_radii(typed.split())) == meant


@pytest.mark.parametrize("command", ["table", "show", "compare"])
def test_both_forms_give_the_same(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(toy_run(tmp_path / "run", 40))
    runs = [run, run] if command == "compare" else [run]
    shown = []
    for words in (["--radii", "0.25,0.5"], ["--radii", "0.25", "0.5"]):
        main([command, *runs, *words])
        main([command, *words, *runs])
        shown += [capsys.readouterr().out]
    assert shown[0] == shown[1]
    assert "0.25" in shown[0]
