"""Pages, help and messages are written in the field's words: none of those in ``retired_words.txt`` is left."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RETIRED = [
    (re.compile(pattern, re.IGNORECASE), instead.strip())
    for line in (ROOT / "tests" / "retired_words.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
    for pattern, _, instead in [line.partition("\t")]
]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]


def retired(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, words, what to write) of each retired word outside of code."""
    blank = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL)
    prose = re.sub(r"`+[^`\n]*`+", "`x`", blank)
    for pattern, instead in RETIRED:
        for found in pattern.finditer(prose):
            yield prose.count("\n", 0, found.start()), found[0], instead


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings, messages and help: every literal of several words, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_no_retired_words(page):
    text = page.read_text(encoding="utf-8")
    assert [f"line {line + 1}: {words!r}: {instead}" for line, words, instead in retired(text)] == []


def test_help_messages_and_docstrings_have_no_retired_words():
    left = [
        f"{path.relative_to(ROOT)}:{line + offset}: {words!r}: {instead}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line, text in texts(path.read_text(encoding="utf-8"))
        for offset, words, instead in retired(text)
    ]
    assert left == []


def test_a_retired_phrase_is_found():
    for text in [
        "killed, the same command goes on",
        "every error that is the caller's to mend",
        "it is no plain file",
        "Who means to deceive can compute them, too.",
        "the model is at rest",
        "a knob of the plan",
        "n is fixed beforehand",
    ]:
        assert list(retired(text))
        assert not list(retired(f"`{text}`"))
