"""What commands print, taken apart."""

from __future__ import annotations

import re


def rows(text: str) -> list[list[str]]:
    """The cells of each row of printed tables, without headings."""
    lines = (line for line in text.splitlines() if line.startswith("│"))
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def names(message: str, *values: object) -> bool:
    """Whether a message has all of these names and values, each as a whole, in any order and words."""
    return all(
        re.search(rf"(?<![\w.-]){re.escape(str(value))}(?![\w-]|\.\d)", message, re.ASCII) for value in values
    )
