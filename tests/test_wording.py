"""Tests assert behaviour: the type of an error, the value and the option it names, never a sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SENTENCE = re.compile(
    r"(?<![\w.\-/`'])(?:[A-Za-z]?[a-z]*(?:['’][a-z]+)?[ ]){2}[a-z]+(?:['’][a-z]+)?(?![\w\-/=.(`])"
)
"""Three plain words in a row. Names of fields, options, files and methods are not plain words."""


def expected_texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Literals that a message or an output is compared with: match=…, assert … in …, and parameters used there."""
    compared: set[str] = set()
    parts: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "match":
            parts.append(node.value)
        if isinstance(node, ast.Assert):
            compares = [one for one in ast.walk(node.test) if isinstance(one, ast.Compare)]
            parts += [one.left for one in compares if isinstance(one.ops[0], ast.In | ast.NotIn)]
    for part in parts:
        if isinstance(part, ast.Name):
            compared.add(part.id)
        yield from (one for one in ast.walk(part) if isinstance(one, ast.Constant))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize")):
            continue
        names = ast.unparse(node.args[0])
        if any(re.search(rf"\b{name}\b", names) for name in compared):
            yield from (one for one in ast.walk(node.args[1]) if isinstance(one, ast.Constant))


def test_no_sentence_is_expected() -> None:
    found = [
        f"{path.relative_to(TESTS.parent)}:{one.lineno}: {one.value}"
        for path in sorted(TESTS.rglob("*.py"))
        for one in expected_texts(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(one.value, str) and SENTENCE.search(one.value)
    ]
    assert not found, "\n".join(["assert the type, the value and the option instead of words:", *found])
