"""How far a command has come, in a bar, in lines and in JSON."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from smoothcert.commands import console, main, progress
from smoothcert.commands.console import progress_bar
from smoothcert.commands.progress import Meter, clock


class Clock:
    """A clock that tests turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def silent(_meter: Meter, _state: str) -> None: ...


@pytest.mark.parametrize(
    ("seconds", "told"), [(9, "0:09"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")]
)
def test_times_read_as_on_a_clock(seconds: float, told: str) -> None:
    assert clock(seconds) == told


def test_what_is_left_goes_by_work(turn: Clock) -> None:
    meter = Meter("certifying", "votes", silent)
    meter.begin(1000, 10)
    assert meter.in_words() == "certifying 0/10 (0 %), – votes/s, elapsed 0:00, left –"
    turn.now = 9
    meter.advance(180)
    meter.item()
    assert meter.in_words() == "certifying 1/10 (18 %), 20.0 votes/s, elapsed 0:09, left 0:41"


def test_what_was_done_before_is_in_the_share_and_not_in_the_rate(turn: Clock) -> None:
    meter = Meter("certifying", "votes", silent)
    meter.begin(500, 10, done=5)
    turn.now = 10
    meter.advance(250)
    assert meter.in_words() == "certifying 5/10 (75 %), 25.0 votes/s, elapsed 0:10, left 0:10"


def test_unknown_work_goes_by_items(turn: Clock) -> None:
    meter = Meter("certifying", "votes", silent)
    meter.begin(None, 4)
    turn.now = 10
    meter.advance(30_000)
    meter.item()
    assert meter.in_words() == "certifying 1/4 (25 %), 3.0k votes/s, 30.0k each, elapsed 0:10, left 0:30"


def test_training_goes_by_steps_and_counts_epochs_done_before(turn: Clock) -> None:
    meter = Meter("training", "steps", silent)
    meter.step(3, 4, 1, 10, 0.5)
    turn.now = 4
    meter.step(3, 4, 5, 10, 0.25)
    assert meter.in_words() == "training, loss 0.250, epoch 3/4 (62 %), 1.2 steps/s, elapsed 0:04, left 0:12"


def test_nothing_to_do_is_no_division_by_zero(turn: Clock) -> None:
    meter = Meter("certifying", "votes", silent)
    meter.begin(0, 0)
    assert "left –" in meter.in_words()
    meter.begin(0, 7, done=7)
    assert meter.share == 1.0


def test_lines_come_from_time_to_time_and_at_the_end(turn: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("certifying", "votes", quiet=False) as bar:
        bar.begin(100, 100)
        for second in range(100):
            turn.now = second + 1
            bar.item()
            bar.advance(1)
    told = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert told == ["5/100", "35/100", "65/100", "95/100", "100/100"]


def test_a_short_task_writes_no_line(turn: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("certifying", "votes", quiet=False) as bar:
        bar.begin(1, 1)
        bar.advance(1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_quiet_silences(
    turn: Clock, as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console._log, "json", as_json)
    with progress_bar("certifying", "votes", quiet=True) as bar:
        bar.begin(2, 2)
        turn.now = 1000
        bar.advance(1)
    assert capsys.readouterr().err == ""


def test_a_json_log_is_an_object_a_line(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


@pytest.mark.parametrize(
    "words",
    [
        ["certify", "nothing", "--out", "o", "--log-format", "json"],
        ["certify", "nothing", "--out", "o", "--log-format=json"],
        ["certify", "--log-format", "json", "--bound", "cloper", "m"],
        ["certify", "--log-format", "json", "--nonsense"],
    ],
)
def test_mistakes_are_json_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    shown = capsys.readouterr()
    error, end = (json.loads(line) for line in shown.err.splitlines())
    assert (error["event"], error["exit_code"]) == ("error", 2)
    assert error["message"]
    assert (end["event"], end["exit_code"]) == ("end", 2)
    assert shown.out == ""


def test_a_bug_is_one_line_with_its_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from smoothcert import commands

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a \x1b[31m bug")

    monkeypatch.setattr(commands, "make_app", broken)
    with pytest.raises(SystemExit) as caught:
        main(["methods", "--log-format", "json"])
    assert caught.value.code == 1
    shown = capsys.readouterr().err
    error = json.loads(shown.splitlines()[0])
    assert error["exit_code"] == 1
    assert "ZeroDivisionError" in error["traceback"]
    assert "\x1b" not in shown
    with pytest.raises(ZeroDivisionError):
        main(["methods"])
    assert not console._log.json


def test_the_bar_on_a_terminal_says_what_its_times_are(digits_model: Path, tmp_path: Path) -> None:
    terminal, theirs = pty.openpty()
    words = ["certify", str(digits_model), "--n", "2000", "--max", "3", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "smoothcert", *words],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=os.environ | {"COLUMNS": "120", "TERM": "xterm", "OMP_NUM_THREADS": "1"},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux says so where others return nothing
            piece = b""
        if not piece:
            break
        shown += piece
    os.close(terminal)
    assert process.wait() == 0
    assert "certifying 3/3" in shown.decode()
    assert ", elapsed 0:0" in shown.decode()
    assert ", left 0:00" in shown.decode()
