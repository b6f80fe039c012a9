"""What a fitted chooser's directory says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothcert.errors import ModelError
from smoothcert.runs.layout import RunFiles
from smoothcert.sigma_levels.fitted import read_chooser_statement, write_chooser_statement


def test_levels_and_noise_come_back(tmp_path: Path) -> None:
    assert read_chooser_statement(tmp_path) is None
    assert read_chooser_statement(tmp_path / "missing") is None
    write_chooser_statement(tmp_path, (0.25, 0.5), 0.75, {"inputs": 100})
    assert read_chooser_statement(tmp_path) == ((0.25, 0.5), 0.75)


@pytest.mark.parametrize("change", [("0.25", "0.35"), ("{", "["), ("sigma_levels", "x")])
def test_damage_is_noticed(change: tuple[str, str], tmp_path: Path) -> None:
    write_chooser_statement(tmp_path, (0.25, 0.5), 0.75, {})
    path = RunFiles(tmp_path).chooser
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(ModelError, match=r"chooser\.json"):
        read_chooser_statement(tmp_path)
