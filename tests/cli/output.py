"""What commands print, taken apart, and how they fail."""

import re
from pathlib import Path

import pytest

from smoothcert.cli import main


def rows(text: str) -> list[list[str]]:
    """The cells of each row of printed tables, without headings."""
    lines = (line for line in text.splitlines() if line.startswith("│"))
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def names(message: str, *values: object) -> bool:
    """Whether a message has all of these names and values, each as a whole, in any order and words."""
    return all(
        re.search(rf"(?<![\w.-]){re.escape(str(value))}(?![\w-]|\.\d)", message, re.ASCII) for value in values
    )


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 2) -> str:
    """The message of a command that fails, on one line."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    shown = capsys.readouterr().err
    assert caught.value.code == code, shown
    assert "Traceback" not in shown
    return " ".join(shown.split())
