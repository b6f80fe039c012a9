"""Lines of JSON on disk: what isn't what was written is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothcert.runs.side_files import append_sealed, read_sealed, write_lines

ROWS = [{"index": 1, "name": "sigma"}, {"index": 2, "values": [0.1, None]}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for row in ROWS:
        append_sealed(tmp_path / "lines", row)
    return tmp_path / "lines"


def test_lines_come_back(path: Path) -> None:
    assert list(read_sealed(path)) == ROWS
    assert list(read_sealed(path, always=True)) == ROWS
    assert list(read_sealed(path.with_name("none"))) == []


def test_a_line_with_any_flipped_bit_is_left_out(path: Path) -> None:
    whole = path.read_bytes()
    first = whole.index(b"\n")
    for place in range(first):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            assert list(read_sealed(path, always=True)) == ROWS[1:]


def test_a_line_that_a_kill_cut_off_spoils_no_other(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(whole.index(b"\n") + 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        append_sealed(path, ROWS[1])
        assert list(read_sealed(path)) == ROWS


@pytest.mark.parametrize("line", ["7", "[]", "null", "", "{", "[" * 100_000, '{"checksum": 1}'])
def test_other_lines_are_left_out(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")
    assert list(read_sealed(path)) == ROWS


def test_a_line_without_a_checksum_is_an_earlier_versions(path: Path) -> None:
    with path.open("a") as file:
        file.write(json.dumps({"index": 3}) + "\n")
    assert list(read_sealed(path)) == [*ROWS, {"index": 3}]
    assert list(read_sealed(path, always=True)) == ROWS


def test_a_file_is_replaced_whole(path: Path) -> None:
    write_lines(path, ROWS)
    assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS
