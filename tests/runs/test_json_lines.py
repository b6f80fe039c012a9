"""Lines of JSON on disk: what isn't what was written is left out."""

import json
from pathlib import Path

import pytest

from smoothcert.runs.side_files import append_sealed, read_sealed, write_lines

ROWS = [{"index": 1, "name": "sigma"}, {"index": 2, "values": [0.1, None]}]


@pytest.fixture
def path(tmp_path) -> Path:
    for row in ROWS:
        append_sealed(tmp_path / "lines", row)
    return tmp_path / "lines"


def test_lines_come_back_and_a_file_is_replaced_whole(path):
    assert list(read_sealed(path)) == ROWS
    assert list(read_sealed(path, always=True)) == ROWS
    assert list(read_sealed(path.with_name("none"))) == []
    write_lines(path, ROWS)
    assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS


def test_a_line_with_any_flipped_bit_is_left_out(path):
    whole = path.read_bytes()
    first = whole.index(b"\n")
    for place in range(first):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            assert list(read_sealed(path, always=True)) == ROWS[1:]


def test_a_line_that_a_kill_cut_off_spoils_no_other(path):
    whole = path.read_bytes()
    for size in range(whole.index(b"\n") + 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        append_sealed(path, ROWS[1])
        assert list(read_sealed(path)) == ROWS


def test_other_lines_are_left_out(path):
    with path.open("a") as file:
        file.write("\n".join(["7", "[]", "null", "", "{", "[" * 100_000, '{"checksum": 1}', ""]))
    assert list(read_sealed(path)) == ROWS
    with path.open("a") as file:  # a line without a checksum is an earlier version's
        file.write(json.dumps({"index": 3}) + "\n")
    assert list(read_sealed(path)) == [*ROWS, {"index": 3}]
    assert list(read_sealed(path, always=True)) == ROWS
