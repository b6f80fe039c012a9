"""Lines that are added one by one survive a kill in the middle of one."""

import pytest

from smoothcert.errors import OutputError
from smoothcert.files import append_line, read_lines
from smoothcert_verify.reading import read_objects
from tests.guarantees.hostile import memory_below


def test_lines_follow_one_another_and_one_that_was_cut_off_stays_apart(tmp_path):
    path = tmp_path / "log"
    for line in ("one", "two"):
        append_line(path, line)
    assert path.read_text() == "one\ntwo\n"
    path.write_text("one\ntw")
    append_line(path, "three")
    assert path.read_text() == "one\ntw\nthree\n"
    path = tmp_path / "none" / "log"
    with pytest.raises(OutputError, match=str(path)):
        append_line(path, "one")
    assert not path.parent.exists()


def test_what_was_added_is_read_back_and_damage_is_no_error(tmp_path):
    path = tmp_path / "log"
    assert list(read_lines(path)) == []
    append_line(path, "σ")
    path.write_bytes(path.read_bytes() + b"\xff\xfe")
    first, _ = read_lines(path)
    assert first == "σ"


@pytest.mark.slow
def test_many_empty_lines_take_no_memory(tmp_path):
    (tmp_path / "log").write_bytes(b"\n" * 2**17)
    with memory_below(1):
        assert sum(map(len, read_lines(tmp_path / "log"))) == 0
    with memory_below(1):
        assert list(read_objects(tmp_path / "log")) == []
