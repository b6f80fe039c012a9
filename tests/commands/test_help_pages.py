"""Help in two lengths, and Tab."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from cyclopts import App

from smoothcert.commands import COMMANDS, main, make_app
from smoothcert.commands.help_pages import EVERYDAY, first_sentence, short_text

ROW = re.compile(r"^│ \*? +(?:[A-Z]+ )?(--[\w-]+)", re.MULTILINE)


def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", "100")
    main(list(words))
    return capsys.readouterr().out


def options_of(app: App, command: str) -> set[str]:
    """Every option that is shown anywhere."""
    found = app[command].assemble_argument_collection(parse_docstring=True)
    return {name for one in found if one.show for name in one.names if name.startswith("--")}


def test_help_names_every_option_and_a_short_page_explains_the_everyday_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    for command in COMMANDS:
        page, known = help_of(capsys, monkeypatch, command, "--help"), options_of(app, command)
        assert {name for name in known if not name.startswith("--no-")} <= set(
            re.findall(r"--[\w-]+", page)
        ), command
        assert ("--help-all" in page) == (command in EVERYDAY), command
        if command in EVERYDAY:
            everyday = {f"--{name}" for name in EVERYDAY[command]}
            assert everyday < known, command
            assert set(ROW.findall(page)) == everyday, command
            full = help_of(capsys, monkeypatch, command, "--help-all")
            assert all(name in full for name in known), command
            assert "--help-all" not in full, command


def test_certifys_short_page_teaches_the_written_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = help_of(capsys, monkeypatch, "certify", "-h")
    assert "pilot:1%" in shown
    assert "ladder:rungs=9,votes=32" in shown
    assert "[default: 100000]" in shown


def test_a_sentence_ends_before_a_capital() -> None:
    assert first_sentence("One (e.g. two), 0.5 of it. Three.") == "One (e.g. two), 0.5 of it."
    assert first_sentence("One, i.e. two") == "One, i.e. two"
    assert first_sentence("One\n\nTwo") == "One"


def test_a_short_text_has_two_paragraphs_and_an_example() -> None:
    text = "First.\n\nSecond\nline.\n\nThird.\n\nExample: `a`\n\nExample: `b`\n"
    assert short_text(text) == "First.\n\nSecond line.\n\nExample: `a`"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed_for_the_shell(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}.items():
        monkeypatch.setenv(name, value)
    main(["--install-completion", "--shell", shell])
    (script,) = (path for path in tmp_path.rglob("*smoothcert*") if path.is_file())
    assert "certify" in script.read_text()
    shown = capsys.readouterr()
    assert str(script) in (shown.out + shown.err).replace("\n", "")


def test_tab_completes_commands_and_options_in_bash(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(make_app().generate_completion(shell="bash"))
    asked = f"""
        source {script}
        complete -p smoothcert
        function=$(complete -p smoothcert | sed -n 's/.*-F \\([^ ]*\\) .*/\\1/p')
        tab() {{ COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=(); "$function"; echo "${{COMPREPLY[@]}}"; }}
        tab smoothcert cert
        tab smoothcert certify --sigma-se
        tab smoothcert certify model --bound clop
    """
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60)
    _, command, option, choice = done.stdout.splitlines()
    assert (command.strip(), option.strip(), choice.strip()) == (
        "certify",
        "--sigma-search",
        "clopper-pearson",
    )
