"""The command line as a whole: its tree, help that fits a screen, earlier names, lists, and exit codes."""

import inspect
import os
import re
import shlex
import subprocess
import sys
from dataclasses import asdict, fields
from itertools import dropwhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from cyclopts import App, ArgumentOrderError, UnusedCliTokensError

from smoothcert.cli import main, make_app, parsed
from smoothcert.cli.attack import AttackOptions
from smoothcert.cli.commands import COMMANDS, GROUPS, joined, path_of
from smoothcert.cli.fit import FitOptions
from smoothcert.cli.levels import LevelFitOptions
from smoothcert.cli.plan_options import given, without_none
from smoothcert.cli.train import train
from smoothcert.empirical.results import ATTACKS, AttackPlan
from smoothcert.experimental.levels.choosers import LevelFitPlan
from smoothcert.smoothing.fits.plan import FitPlan
from tests.guarantees.hostile import toy_run

from .output import refusal

FORMER = Path(__file__).with_name("former_spellings.txt").read_text(encoding="utf-8").splitlines()
"""Every command and option of version 0.1.0, with a value that it took: ``COMMAND NEEDED: OPTION; OPTION; …``."""

SHOWN = [path for title, commands in GROUPS.items() if title for path in commands]
PAGES = [*COMMANDS, "", "data", "fit", "run", "experimental", "attack --lines"]
PRINT_A_DOCUMENT = {"run export", "serve key"}


def exit_code(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    return int(caught.value.code or 0)


def function_of(path: str) -> tuple[Any, App]:
    app: App = make_app(path.split())
    for word in path.split():
        app = app[word]
    return app.default_command, app


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main([*words])
    return capsys.readouterr().out


def test_the_tree(capsys):
    page = help_of(capsys, "--help")
    headings = re.findall(r"╭─ (\w+) ─", page)
    assert headings == ["Start", "Do", "Read", "More", "Options"]
    rows = re.findall(r"^│ (\w[\w-]*) ", page, re.MULTILINE)
    assert rows == list(dict.fromkeys(path.split()[0] for path in SHOWN))
    assert rows == [
        *("quickstart", "data", "recipes"),
        *("train", "certify", "predict", "attack", "serve"),
        *("show", "table", "plot", "compare", "report", "verify"),
        *("sweep", "fit", "run", "doctor"),
    ]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_fits_a_screen(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(capsys, *path.split(), "--help").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert "----" not in "".join(lines), "the docstring's section becomes options"


def test_a_newcomers_page(capsys):
    page = help_of(capsys, "certify", "-h")
    options = re.findall(r"^│ \*? +(?:[A-Z]+ )?(--[\w-]+)", page, re.MULTILINE)
    assert " ".join(options) == (
        "--model --out --dataset --data-dir --sigma --n --alpha --max --device --dry-run"
    )
    assert all(part in page for part in ("Example", "--help-all", "[default: 100000]"))


@pytest.mark.parametrize("path", COMMANDS)
def test_the_short_page_counts_what_it_leaves_out_and_the_long_one_has_it(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    found = function_of(path)[1].assemble_argument_collection(parse_docstring=True)
    known = [
        {name for name in each.names if re.match("--(?!no-|empty-)", name)} for each in found if each.show
    ]
    page, full = help_of(capsys, *path.split(), "--help"), help_of(capsys, *path.split(), "--help-all")
    assert {f"--{name}" for name in COMMANDS[path].everyday} <= {name for names in known for name in names}
    assert all(name in full for names in known for name in names)
    assert "more options" not in full
    assert bool(re.findall(r"\d+ more options", page)) == bool(COMMANDS[path].everyday)


@pytest.mark.slow
@pytest.mark.parametrize("line", FORMER, ids=lambda line: line.split()[0])
def test_every_earlier_command_and_option_is_understood(line):
    needed, _, options = line.partition(": ")
    command, *given = shlex.split(needed)
    words, changes = parsed([command, *given])
    path = path_of(words)
    assert path is not None
    assert bool(changes) == (command not in COMMANDS and command != "data")
    app = make_app(words)
    for written in options.split("; "):
        option, *value = written.split()
        place = given.index(option) if option in given else None
        needs = given if place is None else [*given[:place], *given[place + 2 :]]
        words, changes = parsed([command, *needs, option, *value])
        try:
            app.parse_args(words, exit_on_error=False, print_error=False)
        except (ArgumentOrderError, UnusedCliTokensError):  # the option is the name of what comes first
            named = dropwhile(lambda word: word[0] != "-", needs)
            words, changes = parsed([command, *named, option, *value])
            app.parse_args(words, exit_on_error=False, print_error=False)
        assert len(changes) <= 2


def test_an_earlier_name_is_told_in_one_line(tmp_path, capsys):
    words = ["export-log", str(toy_run(tmp_path / "run", 4)), "--out", str(tmp_path / "log.tsv")]
    main(words)
    told = capsys.readouterr().err.splitlines()
    assert ["run export" in line for line in told if "export-log" in line] == [True]
    main([*words, "--quiet"])
    assert capsys.readouterr().err == ""
    words, changes = parsed(
        ["plan", "m", "--outputs", "labels", "--levels=7", "--format", "json", "--", "--skip"]
    )
    assert " ".join(words) == "certify --dry-run m --model-returns labels --grid=7 --json -- --skip"
    assert len(changes) == 4


@pytest.mark.parametrize("path", sorted(set(COMMANDS) - PRINT_A_DOCUMENT))
def test_one_convention_for_output(path):
    names = {name for each in function_of(path)[1].assemble_argument_collection() for name in each.names}
    assert {"--json", "--quiet", "--log-format"} <= names
    assert ("--format" in names) == (path == "table")


def test_options_and_choices_are_the_librarys():

    kind = without_none(get_args(AttackOptions.__annotations__["attack"])[0])
    assert sorted(get_args(kind)) == ATTACKS.names()
    assert vars(AttackOptions()) == asdict(AttackPlan()) | {"alpha": None}
    levels = {"sigmas": (0.1, 0.2)}
    assert LevelFitPlan(**levels, **vars(LevelFitOptions())) == LevelFitPlan(**levels)
    assert FitPlan(init=0.25, **given(FitOptions())) == FitPlan(init=0.25)
    assert given(FitOptions(route="votes", tried=3)).items() >= {"route": "votes", "tried": 3}.items()
    for options, plan in ((FitOptions, FitPlan), (LevelFitOptions, LevelFitPlan)):
        shown = [field.name for field in fields(options) if not field.name.startswith("former_")]
        assert shown == [field.name for field in fields(plan)][1:]


def test_numbers_with_commas_or_spaces():
    for typed, meant in [
        ("table a --radii 0 0.5 1", "table a --radii 0,0.5,1"),
        ("table a --radii 0,0.5", "table a --radii 0,0.5"),
        ("table --radii 0,0.5 2024", "table --radii 0,0.5 2024"),  # a run's name
        ("table --radii 0 0.5 runs/a", "table --radii 0,0.5 runs/a"),
        ("table --radii 0, 0.5, 1 runs/a", "table --radii 0,0.5,1 runs/a"),
        ("table --radii=0 .5 --layout paper a", "table --radii 0,.5 --layout paper a"),
        ("table --radii", "table --radii"),
        ("table --radii -1 a", "table --radii -1 a"),
        ("table -- --radii 0 1", "table -- --radii 0 1"),
        ("certify a --n 5 6", "certify a --n 5 6"),
        ("sweep a --sigmas .25 .5 --seeds 0 1", "sweep a --sigmas .25,.5 --seeds 0,1"),
    ]:
        assert " ".join(joined(typed.split())) == meant


def test_lists_take_both():
    for option, value in [
        ("sweep --out o --methods", "gaussian smoothmix:eta=1,steps=4 consistency"),
        ("sweep --out o --methods a --sigmas", "0.25 0.5"),
        ("sweep --out o --methods a --seeds", "0 1 2"),
        ("train --out o --milestones", "30 60"),
        ("train --out o --ramp", "lam:5 epsilon:10"),
        ("certify m --sigma-levels", "0.1 0.2"),
        ("certify m --level-models", "a m"),
    ]:
        found = []
        for text in (value, value.replace(" ", ",")):
            words, _ = parsed([*option.split(), *text.split()])
            _, bound, _ = make_app(words).parse_args(words, exit_on_error=False, print_error=False)
            found.append(bound.arguments)
        assert found[0] == found[1]


@pytest.mark.parametrize("command", ["table", "show", "compare"])
def test_both_forms_give_the_same(command, tmp_path, capsys):
    run = str(toy_run(tmp_path / "run", 40))
    runs = [run, run] if command == "compare" else [run]
    shown = []
    for words in (["--radii", "0.25,0.5"], ["--radii", "0.25", "0.5"]):
        main([command, *runs, *words])
        main([command, *words, *runs])
        shown += [capsys.readouterr().out]
    assert shown[0] == shown[1]
    assert "0.25" in shown[0]


def test_parameters_of_a_docstring_become_options(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    page = help_of(capsys, "train", "--help")
    (row,) = (line for line in page.splitlines() if " --out " in line and "│" in line)
    documented = (inspect.getdoc(train) or "").partition("\nout\n")[2].splitlines()[0].strip()
    assert documented
    assert documented in row


@pytest.mark.system
def test_help_needs_no_torch():
    program = """
import sys
from smoothcert.cli import main
from smoothcert.cli.commands import COMMANDS
for words in ("--help", "--version", *(f"{path} --help" for path in COMMANDS)):
    main(words.split())
    loaded = {"torch", "matplotlib"} & sys.modules.keys()
    assert not loaded, (words, loaded)
    assert not words.startswith("--") or not {"numpy", "scipy"} & sys.modules.keys(), words
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_typing_mistakes_end_with_two_and_a_hint(capsys):
    for words, hint in (
        ("certfy", "certify"),
        ("table --formt csv", "--format"),
        ("certify model --dataset digits --out x --bound hoefding", "hoeffding"),
        ("certify model --sigma-levels 0.1,x", "0.1, x"),
    ):
        assert hint in refusal(capsys, *words.split())


@pytest.mark.parametrize(
    ("command", "resumes"),
    [(["table", "a"], False), (["run", "remember", "a", "--memory", "m", "--out", "o"], True)],
)
def test_an_interrupt_ends_with_130_and_says_how_to_resume(command, resumes, monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for module in ("reading", "runs"):
        monkeypatch.setattr(f"smoothcert.cli.{module}.read_run", interrupted)
    assert exit_code(*command) == 130
    errors = capsys.readouterr().err
    assert errors
    assert "Traceback" not in errors
    assert (shlex.join(command) in errors) == resumes


@pytest.mark.system
def test_a_closed_pipe_is_no_error():
    words = [sys.executable, "-c", "from smoothcert.cli import main; main(['certify', '--help'])"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert b"Traceback" not in errors


def test_waiting_threads_give_way_unless_the_user_says_otherwise(monkeypatch):
    from smoothcert import __main__, cli

    monkeypatch.setattr(cli, "main", lambda: None)
    for stated, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if stated is not None:
            monkeypatch.setenv("OMP_WAIT_POLICY", stated)
        __main__.main()
        assert os.environ["OMP_WAIT_POLICY"] == expected


@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(shell, marks=pytest.mark.slow) for shell in ("zsh", "fish"))]
)
def test_completion_is_installed_for_the_shell(shell, tmp_path, monkeypatch, capsys):
    for name, value in {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}.items():
        monkeypatch.setenv(name, value)
    assert exit_code("--install-completion", "--shell", shell) == 2  # nobody is there to agree
    startup = "" if shell == "fish" else f".{shell}rc"
    assert startup in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    main(["--install-completion", "--shell", shell, "--yes"])
    (script,) = (path for path in tmp_path.rglob("*smoothcert*") if path.is_file())
    assert "certify" in script.read_text()
    shown = capsys.readouterr()
    assert str(script) in (shown.out + shown.err).replace("\n", "")


def test_tab_completes_commands_and_options_in_bash(tmp_path):
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
        tab smoothcert certify model --backend proc
    """
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60)
    completed = [line.strip() for line in done.stdout.splitlines()[1:]]
    assert completed == ["certify", "--sigma-search", "clopper-pearson", "processes"]


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_completion_is_installed_only_if_the_user_agrees(answer, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: answer)
    main(["--install-completion", "--shell", "bash"])
    assert (tmp_path / ".bashrc").exists() == (answer == "yes")
