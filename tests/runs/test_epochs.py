"""The lines of a training run: read as written, damaged ones left out, strangers' files refused."""

from pathlib import Path

import pytest

from smoothcert.errors import RunError
from smoothcert.runs.epochs import EpochMetrics, read_epochs, write_epochs

HISTORY = (
    EpochMetrics(1, 2.5, 0.1, "test", 0.01, 3.0),
    EpochMetrics(2, 1.5, 0.5, "test", 0.01, 3.0, acr=0.25),
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_epochs(tmp_path, HISTORY)
    assert read_epochs(tmp_path) == HISTORY
    assert "acr" not in (tmp_path / "metrics.jsonl").read_text().splitlines()[0]


@pytest.mark.parametrize(
    "line",
    [
        '{"epoch": 3',
        "[]",
        '{"epoch": 3, "loss": "1"}',
        '{"epoch": 3, "loss": NaN, "accuracy": 0, "validated_on": "test", "learning_rate": 1, "seconds": 1}',
        '{"epoch": true, "loss": 1, "accuracy": 0, "validated_on": "test", "learning_rate": 1, "seconds": 1}',
        '{"epoch": 3, "loss": 1, "accuracy": 0, "validated_on": "\\u001b[2J", "learning_rate": 1, "seconds": 1}',
    ],
)
def test_a_line_that_says_nothing_is_left_out(tmp_path: Path, line: str) -> None:
    write_epochs(tmp_path, HISTORY)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    assert read_epochs(tmp_path) == HISTORY


def test_other_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"metrics\.jsonl"):
        read_epochs(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("nothing\n")
    with pytest.raises(RunError, match="no epoch"):
        read_epochs(tmp_path)
