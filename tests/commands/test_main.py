"""The command line as people use it: help, errors without tracebacks, exit codes."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import get_args

import pytest

from smoothcert.bounds import BOUNDS
from smoothcert.commands import COMMANDS, main
from smoothcert.commands.options import BoundName, NoiseName
from smoothcert.commands.train import train
from smoothcert.commands.written_knobs import written_help
from smoothcert.noise import NOISES


def exit_code(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    return int(caught.value.code or 0)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


def test_every_command_explains_itself_by_its_docstring(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    main(["--help"])
    rows = {
        words[1]: " ".join(words[2:-1])
        for line in capsys.readouterr().out.splitlines()
        if len(words := line.split()) > 2 and words[1] in COMMANDS
    }
    for command in COMMANDS:
        function = command.replace("-", "_")
        help_text = written_help(f"smoothcert.commands.{function}", function)
        summary = help_text.strip().splitlines()[0].replace("`", "")
        assert rows[command] == summary, command
        main([command, "--help"])
        shown = capsys.readouterr().out
        assert f"smoothcert {command} " in shown, command
        assert shown.count(summary) == 1, command
        assert "----" not in shown, f"{command}: the docstring's section becomes options"


def test_parameters_of_a_docstring_become_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    main(["train", "--help"])
    (row,) = (line for line in capsys.readouterr().out.splitlines() if " --out " in line and "│" in line)
    documented = (inspect.getdoc(train) or "").partition("\nout\n")[2].splitlines()[0].strip()
    assert documented
    assert documented in row


@pytest.mark.system
def test_help_needs_no_torch() -> None:
    program = """
import sys
from smoothcert.commands import main
for words in ("--help", "certify --help", "recipes --help", "methods --help", "--version"):
    main(words.split())
    loaded = {"torch", "matplotlib", "scipy"} & sys.modules.keys()
    assert not loaded, (words, loaded)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


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


def test_an_interrupt_ends_with_130_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("smoothcert.runs.read_run", interrupted)
    assert exit_code("table", "somewhere") == 130
    errors = capsys.readouterr().err
    assert errors
    assert "Traceback" not in errors


@pytest.mark.system
def test_a_closed_pipe_is_no_error() -> None:
    words = [sys.executable, "-c", "from smoothcert.commands import main; main(['certify', '--help'])"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=120)
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
