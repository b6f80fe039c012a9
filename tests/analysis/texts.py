"""What a text states, whatever its words: its numbers, and the cells of its tables."""

import re


def numbers(text: str) -> list[str]:
    """All numbers in a text as they are printed; digits of names, as in ℓ2, are not numbers."""
    return re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)", text)


def cells(text: str) -> list[list[str]]:
    """The rows of a Markdown table, the header first."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
