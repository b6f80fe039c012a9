"""How far a command has come, in a bar, in lines and in JSON."""

import json
import os
import pty
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from smoothcert import cli
from smoothcert.cli import console, main, progress
from smoothcert.cli.console import progress_bar
from smoothcert.cli.progress import Meter, clock


class Clock:
    """A clock that tests turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def turn(monkeypatch) -> Clock:
    return Clock(monkeypatch)


def silent(_meter: Meter, _state: str) -> None: ...


def figures(meter: Meter) -> list[str]:
    """The numbers in a line about the meter, a dash for one that isn't known yet."""
    return re.findall(r"\d[\d:./]*k?|–", meter.in_words())


def test_times_read_as_on_a_clock():
    told = {9: "0:09", 59.6: "1:00", 754: "12:34", 3723: "1:02:03"}
    assert {seconds: clock(seconds) for seconds in told} == told


def test_what_is_left_goes_by_work_and_what_was_done_before_is_in_the_share_alone(turn):
    meter = Meter("certifying", "votes", silent)
    meter.begin(1000, 10)
    assert figures(meter) == ["0/10", "0", "–", "0:00", "–"]
    turn.now = 9
    meter.advance(180)
    meter.item()
    assert figures(meter) == ["1/10", "18", "20.0", "0:09", "0:41"]
    assert all(given in meter.in_words() for given in ("certifying", "votes"))
    turn.now = 0
    resumed = Meter("certifying", "votes", silent)
    resumed.begin(500, 10, done=5)
    turn.now = 10
    resumed.advance(250)
    assert figures(resumed) == ["5/10", "75", "25.0", "0:10", "0:10"]


def test_unknown_work_goes_by_items_and_nothing_is_no_division_by_zero(turn):
    meter = Meter("certifying", "votes", silent)
    meter.begin(None, 4)
    turn.now = 10
    meter.advance(30_000)
    meter.item()
    assert figures(meter) == ["1/4", "25", "3.0k", "30.0k", "0:10", "0:30"]
    meter.begin(0, 0)
    assert figures(meter)[-1] == "0:00"
    meter.begin(0, 7, done=7)
    assert meter.share == 1.0


def test_an_item_that_is_the_unit_of_work_is_told_once_and_whole():
    told = []
    meter = Meter("points", "points", lambda meter, _: told.append((meter.items, meter.share)))
    meter.begin(4, 4)
    meter.one()
    meter.one()
    assert told == [(0, 0.0), (1, 0.25), (2, 0.5)]


def test_training_goes_by_steps_and_counts_epochs_done_before(turn):
    meter = Meter("training", "steps", silent)
    meter.step(3, 4, 1, 10, 0.5)
    turn.now = 4
    meter.step(3, 4, 5, 10, 0.25)
    assert figures(meter) == ["3/4", "0.250", "62", "1.2", "0:04", "0:12"]


def test_lines_come_from_time_to_time_and_at_the_end(turn, capsys):
    with progress_bar("certifying", "votes") as bar:
        bar.begin(100, 100)
        for second in range(100):
            turn.now = second + 1
            bar.item()
            bar.advance(1)
    told = re.findall(r"\d+/100", capsys.readouterr().err)
    assert told == ["5/100", "35/100", "65/100", "95/100", "100/100"]


@pytest.mark.parametrize(
    ("quiet", "seconds", "as_json"), [(False, 0, False), (True, 1000, False), (True, 1000, True)]
)
def test_short_tasks_and_quiet_ones_write_no_line(turn, quiet, seconds, as_json, capsys):
    words = [*(["--quiet"] if quiet else []), *(["--log-format", "json"] if as_json else [])]
    with console.log_format(words), progress_bar("certifying", "votes") as bar:
        bar.begin(2, 2)
        turn.now = seconds
        bar.advance(1)
    assert capsys.readouterr().err == ""


def test_a_json_log_is_an_object_a_line(digits_model, tmp_path, capsys):
    words = ["certify", str(digits_model), "--n", "200", "--max", "3", "--out", str(tmp_path / "run")]
    main([*words, "--json", "--log-format", "json"])
    shown = capsys.readouterr()
    assert json.loads(shown.out)["run"] == str(tmp_path / "run")
    events = [json.loads(line) for line in shown.err.splitlines()]
    assert {"note", "progress", "end"} == {one["event"] for one in events}
    assert [one["state"] for one in events if one["event"] == "progress"] == ["begun", "done"]
    assert events[-2]["items_done"] == events[-2]["items"] == 3
    assert events[-2]["share"] == 1.0
    assert events[-1]["exit_code"] == 0


def test_mistakes_are_json_too(capsys):
    for words in (
        ["certify", "nothing", "--out", "o", "--log-format", "json"],
        ["certify", "nothing", "--out", "o", "--log-format=json"],
        ["certify", "--log-format", "json", "--bound", "cloper", "m"],
        ["certify", "--log-format", "json", "--nonsense"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2
        shown = capsys.readouterr()
        error, end = (json.loads(line) for line in shown.err.splitlines())
        assert (error["event"], error["exit_code"]) == ("error", 2)
        assert error["message"]
        assert (end["event"], end["exit_code"]) == ("end", 2)
        assert shown.out == ""


def test_a_bug_is_one_line_with_its_traceback(capsys, monkeypatch):

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a \x1b[31m bug")

    monkeypatch.setattr(cli, "make_app", broken)
    with pytest.raises(SystemExit) as caught:
        main(["recipes", "--log-format", "json"])
    assert caught.value.code == 1
    shown = capsys.readouterr().err
    error = json.loads(shown.splitlines()[0])
    assert error["exit_code"] == 1
    assert "ZeroDivisionError" in error["traceback"]
    assert "\x1b" not in shown
    with pytest.raises(ZeroDivisionError):
        main(["recipes"])
    assert not console._log.json


def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, work: Callable[[], object]) -> str:
    """What the work writes to a terminal of this width, without colours."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    terminal, theirs = pty.openpty()
    pieces: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # Linux's way to say that the other end is closed
            while piece := os.read(terminal, 65536):
                pieces.append(piece)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with os.fdopen(theirs, "w") as screen, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", screen)
        work()
    reader.join(60)
    assert not reader.is_alive()
    os.close(terminal)
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", b"".join(pieces).decode())


def test_the_bar_on_a_terminal_shows_progress_and_times(digits_model, tmp_path, monkeypatch):
    words = ["certify", str(digits_model), "--n", "200", "--max", "3", "--out", str(tmp_path / "run")]
    for _ in range(2):  # the second finds all done, and its bar is full
        shown = shown_on_a_terminal(monkeypatch, 120, lambda: main(words))
        last = re.split(r"[\r\n]+", shown.strip())[-1]
        assert re.search(r"3/3\D+", last)
        assert last.count("━") == 20
    assert re.search(r"0:\d\d\b", shown)


def test_the_bar_of_a_training_fits_a_line(monkeypatch, turn):
    def work() -> None:
        with progress_bar("training", "steps") as bar:
            bar.step(149, 150, 1, 1000, 2.3)
            turn.now = 3600.0
            bar.step(149, 150, 999, 1000, 2.3)

    frames = re.split(r"[\r\n]+", shown_on_a_terminal(monkeypatch, 80, work).strip())
    assert max(map(len, frames)) <= 80
    assert all(part in frames[-1] for part in ("training", "149/150", "2.300", "1:00:00"))


def test_patient_bars_appear_by_themselves(monkeypatch):
    appeared = threading.Event()

    class Bar(console.Progress):
        def start(self) -> None:
            super().start()
            appeared.set()

    def work() -> None:
        with progress_bar("drawing", "pictures", patient=True):
            assert console.PATIENCE > 1 or appeared.wait(60)

    monkeypatch.setattr(console, "Progress", Bar)
    for patience in (0.01, 3600.0):
        monkeypatch.setattr(console, "PATIENCE", patience)
        assert ("drawing" in shown_on_a_terminal(monkeypatch, 80, work)) == (patience < 1)
