"""The command line as people use it: help, errors without tracebacks, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import get_args

import pytest

from smoothcert.bounds import BOUNDS
from smoothcert.commands import COMMANDS, main
from smoothcert.commands.options import BoundName, NoiseName
from smoothcert.noise import NOISES


def exit_code(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    return int(caught.value.code or 0)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "--help"])
    shown = capsys.readouterr().out
    assert "Usage: smoothcert" in shown
    assert len(shown.splitlines()) > 8


def test_commands_loaded_when_asked_for_show_their_first_line_in_the_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    main(["--help"])
    rows = {
        words[1]: " ".join(words[2:])
        for line in capsys.readouterr().out.splitlines()
        if len(words := line.split()) > 2 and words[1] in COMMANDS
    }
    assert rows["train"].startswith("Train a classifier under noise and save it")
    assert all(len(rows[command]) > 20 for command in COMMANDS)
    main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("Train a classifier under noise") == 1
    assert "Parameters ----" not in shown  # the docstring's section became options
    assert "Run directory; made, or continued" in shown


@pytest.mark.parametrize(
    "command", ["--help", "certify --help", "recipes --help", "methods --help", "--version"]
)
def test_help_needs_no_torch(command: str) -> None:
    program = (
        f"import sys; from smoothcert.commands import COMMANDS, main; main({command.split()!r}); "
        "sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules or 'scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def test_choices_on_the_command_line_are_the_librarys() -> None:
    assert sorted(get_args(BoundName)) == BOUNDS.names()
    assert sorted(get_args(NoiseName)) == NOISES.names()


def test_typing_mistakes_end_with_two_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("certfy") == 2
    assert "certify" in capsys.readouterr().err
    assert exit_code("table", "--formt", "csv") == 2
    assert "--format" in capsys.readouterr().err
    assert exit_code("certify", "model", "--dataset", "digits", "--out", "x", "--bound", "hoefding") == 2
    assert "hoeffding" in capsys.readouterr().err


def test_an_interrupt_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("smoothcert.runs.read_run", interrupted)
    assert exit_code("table", "somewhere") == 130
    assert "same command again" in capsys.readouterr().err


def test_a_closed_pipe_is_no_error() -> None:
    words = [
        sys.executable,
        "-c",
        "from smoothcert.commands import COMMANDS, main; main(['certify', '--help'])",
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate()
    assert b"Traceback" not in errors


def test_waiting_threads_give_way_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    from smoothcert import __main__, commands

    monkeypatch.setattr(commands, "main", lambda: None)
    for stated, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if stated is not None:
            monkeypatch.setenv("OMP_WAIT_POLICY", stated)
        __main__.main()
        assert os.environ["OMP_WAIT_POLICY"] == expected
