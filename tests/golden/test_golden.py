"""Votes and results of every kind of certification are those that are pinned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("pandas")
pytest.importorskip("onnxruntime")

from tests.golden.digests import CASES, PINNED, digests

PINS = json.loads(PINNED.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name", [pytest.param(case.name, marks=[pytest.mark.slow] * case.slow) for case in CASES.values()]
)
def test_digests_are_the_pinned_ones(name: str, tmp_path: Path) -> None:
    found = digests(CASES[name], tmp_path)
    assert found["votes"] == PINS[name]["votes"]
    assert found["answers"] == PINS[name]["answers"]


def test_every_case_is_pinned_and_nothing_else() -> None:
    assert set(PINS) == set(CASES)


@pytest.mark.parametrize("name", [case.name for case in CASES.values() if case.same])
def test_what_only_speeds_up_changes_no_bit(name: str) -> None:
    assert PINS[name] == PINS[CASES[name].same]
