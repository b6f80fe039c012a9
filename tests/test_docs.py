"""Pages that say what the code does are held to it."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from smoothcert.commands import make_app
from smoothcert.sweeps import plan_cells
from smoothcert.training import find_recipe
from smoothcert.training.methods import markdown_rows

ROOT = Path(__file__).parent.parent


def test_the_table_of_methods_is_the_registry() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- smoothcert methods --markdown -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert table == markdown_rows(), (
        "paste the output of `smoothcert methods --markdown` into docs/methods.md"
    )


def commands_of(page: Path) -> list[list[str]]:
    """What bash makes of the commands on a page, without running any: loops and braces are its own."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    say = "{ printf '%s\\0' \"$0\" \"$@\"; printf '\\n'; }"
    script = "\n".join(
        [f"{name}() {say.replace('$0', name)}" for name in ("smoothcert", "python")] + ["set -euf", *blocks]
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return [line.split("\0")[:-1] for line in done.stdout.splitlines()]


def run_commands(
    commands: list[list[str]], cwd: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Commands of a page one after the other in a new interpreter: one start for all of them.

    ``verify`` may have something to say against a run.
    """
    script = (
        "import json, sys\n"
        "from smoothcert.commands import main\n"
        "for name, *words in json.loads(sys.argv[1]):\n"
        "    assert name == 'smoothcert', name\n"
        "    try:\n"
        "        main(words)\n"
        "    except SystemExit as end:\n"
        "        if end.code and words[0] != 'verify':\n"
        "            raise\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script, json.dumps(commands)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_every_command_of_the_papers_parses_and_names_recipes_that_exist() -> None:
    commands = commands_of(ROOT / "docs" / "papers.md")
    assert len(commands) > 150
    app = make_app()
    # Loops make commands that differ in numbers alone; where a number names no recipe, one of them is enough.
    shapes = {
        tuple(words if words[1] != "certify" else (re.sub(r"\d+", "0", word) for word in words)): words
        for words in commands
    }
    for program, *tokens in shapes.values():
        if program == "python":
            assert tokens[0] == "-m"
            benchmark = importlib.import_module(tokens[1])
            benchmark._parser().parse_args(tokens[2:])
            continue
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=True)
        if command.__name__ == "sweep":
            fields = {"dataset": bound.args[0]} if bound.args else {}
            assert plan_cells(bound.kwargs["methods"], bound.kwargs.get("sigmas", ()), (0,), fields)
        if (search := bound.kwargs.get("search")) is not None:
            search.search()  # an unknown search or knob is refused
        if (recipe := bound.kwargs.get("recipe")) is not None and not recipe.endswith(".toml"):
            find_recipe(recipe)


@pytest.mark.parametrize(
    ("paper", "tables", "figures"),
    [
        ("SmoothMix", range(1, 10), range(1, 7)),
        ("MACER", range(1, 14), range(1, 5)),
        ("Data-dependent", range(1, 11), (*range(1, 8), 9)),
        ("Non-uniform", (), range(1, 5)),
    ],
)
def test_every_table_and_figure_of_the_papers_is_on_the_page(
    paper: str, tables: Iterable[int], figures: Iterable[int]
) -> None:
    """Numbers are written singly (Table 4), joined (Tables 1 and 3) or as a range (Tables 6 to 9)."""
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    (section,) = (part for part in page.split("\n## ") if part.startswith(paper))
    for word, numbers in (("table", tables), ("figure", figures)):
        found: set[int] = set()
        for first, joint, last in re.findall(rf"{word}s? (\d+)(?: (to|and) (\d+))?", section, re.IGNORECASE):
            found |= set(range(int(first), int(last or first) + 1)) if joint == "to" else {int(first)}
            found |= {int(last)} if last else set()
        assert set(numbers) <= found, f"{paper}: no word of {word} {sorted(set(numbers) - found)}"


def test_the_page_on_architecture_names_rooms_and_modules_that_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "smoothcert"
    files = {
        path.relative_to(ROOT).as_posix()
        for folder in (source, ROOT / "tests")
        for path in folder.rglob("*.py")
    }
    named = set(re.findall(r"[\w/]+\.py\b", page))
    assert {name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)} == set()
    rooms = [path for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    hidden = {"__init__.py", "__main__.py"}
    assert {room.name for room in rooms if room.name not in page} <= hidden


@pytest.mark.slow
def test_the_page_on_adding_an_objective_works_as_written(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    page = ROOT / "docs" / "add-an-objective.md"
    text = page.read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "export SMOOTHCERT_PLUGINS=softened.py\n" in text
    (tmp_path / "softened.py").write_text(source)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    commands = [*commands_of(page), ["smoothcert", "train", "--help-all"]]
    done = run_commands(commands, tmp_path, environment | {"SMOOTHCERT_PLUGINS": "softened.py"})
    assert done.returncode == 0, done.stderr
    assert "share of the label that is spread over all classes [softened 0.1]" in done.stdout
    assert "share = 0.2" in (tmp_path / "runs" / "softened" / "recipe.toml").read_text()
    assert "softened:share=0.05" in (tmp_path / "sweeps" / "softened" / "table.md").read_text()
    # The contract tests of the checkout take the plugin in.
    contract = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "tests/objectives/test_objective_contract.py",
            "-k",
            "softened",
            "-n",
            "0",
            "-q",
        ],
        cwd=ROOT,
        env={**environment, "SMOOTHCERT_PLUGINS": str(tmp_path / "softened.py")},
        capture_output=True,
        text=True,
    )
    assert contract.returncode == 0, contract.stdout
    assert re.search(r"\d+ passed", contract.stdout)


@pytest.mark.slow
def test_the_members_that_contributing_adds_are_one_file_each_and_work_as_written(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    page = ROOT / "CONTRIBUTING.md"
    text = page.read_text(encoding="utf-8")
    shown = dict(re.findall(r"`(src/smoothcert/\S+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL))
    assert sorted(shown) == ["src/smoothcert/noise/laplace.py", "src/smoothcert/stopping/patience.py"]
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name, source in shown.items():
        assert not (tmp_path / name).exists()
        (tmp_path / name).write_text(source, encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "src"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "PYTHONIOENCODING": "utf-8",
    }
    more = [["smoothcert", "certify", "--help-all"], ["smoothcert", "verify", "runs/laplace-certified"]]
    done = run_commands([*commands_of(page), *more], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    assert "laplace (of scale σ/√2; certifies an ℓ1 ball)" in done.stdout
    assert "patience:500 (give up after 500 votes without a certificate)" in done.stdout
    assert "Traceback" not in done.stderr
    stated = {
        run: json.loads((tmp_path / "runs" / run / "run.json").read_text(encoding="utf-8"))["plan"]
        for run in ("laplace-certified", "laplace-searched", "laplace-stretched", "patient")
    }
    assert {(plan["noise"], plan["norm"]) for plan in stated.values()} == {
        ("laplace", "l1"),
        ("diagonal-laplace", "l1"),
    }
    assert stated["patient"]["stop"] == ["patience:500"]
    contracts = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"),
            *("tests/noise/test_contract.py", "tests/stopping/test_contract.py"),
            *("-k", "laplace or patience or both or no_name"),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert contracts.returncode == 0, contracts.stdout
    passed = re.search(r"(\d+) passed", contracts.stdout)
    assert passed is not None
    assert int(passed[1]) > 50


@pytest.mark.parametrize(
    ("content", "words"), [(None, "no Python file"), ("import nowhere_to_be_found", "can't be imported")]
)
def test_a_plugin_that_cannot_be_loaded_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    plugin = tmp_path / "broken.py"
    if content is not None:
        plugin.write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "smoothcert", "methods"],
        env={**os.environ, "SMOOTHCERT_PLUGINS": str(plugin)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "broken.py" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_tabular_example_runs_as_written() -> None:
    pytest.importorskip("sklearn")
    script = ROOT / "docs" / "examples" / "tabular.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    plain, spread, fitted = (
        re.search(rf"{name}: (\d+) of 169 .* radius (\S+)", done.stdout)
        for name in ("one σ for all features", "0.3 standard deviations", "fitted σ")
    )
    assert plain is not None
    assert spread is not None
    assert fitted is not None
    assert int(fitted[1]) >= int(spread[1]) - 8 > int(plain[1])
    assert float(fitted[2]) > 2 * float(spread[2])
    assert "least safe to get wrong" in done.stdout


@pytest.mark.slow
def test_the_example_of_a_loop_of_ones_own_runs_as_written(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    script = ROOT / "docs" / "examples" / "own_loop.py"
    done = subprocess.run(
        [sys.executable, str(script), "curve.png"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"radius 0 and 0.5: \[(\S+)\s+(\S+)\s*\]\naverage certified radius: (\S+)", done.stdout)
    assert found is not None
    clean, far, acr = map(float, found.groups())
    assert clean > 0.9
    assert far > 0.4
    assert acr > 0.35
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_the_page_on_models_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    page = (ROOT / "docs" / "any-model.md").read_text(encoding="utf-8")
    first, _, _, estimator = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(first, {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("Certification(row=0, predicted=0, label=0, radius=")
    assert printed[-1] == "True False"
    exec(estimator, {})
    score, _, acr, mean = map(float, capsys.readouterr().out.split())
    assert score > 0.9
    assert mean > 0.9
    assert acr > 0.5


def test_every_command_of_the_page_on_serving_parses() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "serving.md").read_text("utf-8"), re.DOTALL)
    commands = re.findall(r"^smoothcert ([^>&\n]*)", "".join(blocks), re.MULTILINE)
    assert len(commands) == 4
    app = make_app()
    for command in commands:
        app.parse_args(shlex.split(command), exit_on_error=False, print_error=True)


@pytest.mark.slow
@pytest.mark.campaign
def test_the_lines_of_the_page_on_serving_work_as_written(tmp_path: Path) -> None:
    """Each as bash runs it, but for the ports, and with an end to the servers."""
    pytest.importorskip("sklearn")
    pytest.importorskip("fastapi")
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    commands = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    for port in ("8000", "8001"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            commands = commands.replace(port, str(free.getsockname()[1]))
    commands = commands.replace("curl -s", "curl -sS --fail-with-body")
    script = f"""trap 'kill $(jobs -p); wait' EXIT
served() {{ exec "{sys.executable}" -m smoothcert "$@"; }}  # is its own process, which can be ended
smoothcert() {{ if [ $1 = serve ]; then served "$@"; fi; "{sys.executable}" -m smoothcert "$@"; }}
python() {{ "{sys.executable}" "$@"; }}
{commands}"""
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"results":[{"votes":') == 3
    assert "event: votes" in done.stdout
    assert "event: answer" in done.stdout
    assert '"promise":"For any input' in done.stdout
    assert "Traceback" not in done.stderr
