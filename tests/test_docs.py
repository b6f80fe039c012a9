"""Pages that say what the code does are held to it."""

import importlib
import json
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
from cyclopts import App

from smoothcert.cli import make_app, parsed
from smoothcert.extras import PluginError, load_plugins
from smoothcert.sweeps import plan_cells
from smoothcert.training.recipe import find_recipe, markdown_rows

ROOT = Path(__file__).parent.parent


def test_the_table_of_methods_is_the_registry():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- smoothcert recipes --markdown -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert table == markdown_rows(), (
        "paste the output of `smoothcert recipes --markdown` into docs/methods.md"
    )


def commands_of(page: Path, cwd: Path) -> list[list[str]]:
    """What bash makes of the commands on a page, without running any: loops, braces and quotes are its own."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    blocks = [re.sub(r" &$", "", block, flags=re.MULTILINE) for block in blocks]  # one after the other
    say = "{ printf '%s\\0' NAME \"$@\" $'\\n' >&3; }"
    functions = [f"{name}() {say.replace('NAME', name)}" for name in ("smoothcert", "python")]
    functions += [f"{name}() {{ :; }}" for name in ("python3", "pip", "curl", ".")]
    script = "\n".join(["exec 3>&1", *functions, "set -euf", *blocks])
    done = subprocess.run(
        ["bash", "-c", script], cwd=cwd, capture_output=True, text=True, check=True, timeout=60
    )
    return [words.split("\0") for words in done.stdout.split("\0\n\0")[:-1]]


RUN_AS_WRITTEN = {"add-an-objective.md", "CONTRIBUTING.md"}
"""Pages about members that a reader adds: their commands are unknown here, and run by tests of their own."""


@pytest.mark.slow
def test_every_command_of_every_page_parses_and_names_recipes_that_exist(tmp_path):
    app = make_app()
    seen = set()
    for page in [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]:
        if page.name in RUN_AS_WRITTEN:
            continue
        for program, *tokens in commands_of(page, tmp_path):
            if (shape := shape_of(tokens)) in seen:
                continue
            seen.add(shape)
            if program == "smoothcert":
                check_command(app, tokens)
            elif tokens[:2] != ["-m", "pytest"] and tokens[0] == "-m":
                module = importlib.import_module(tokens[1])
                if isinstance(benchmark := getattr(module, "app", None), App):
                    benchmark.parse_args(tokens[2:], exit_on_error=False, print_error=False)
                else:
                    module._parser().parse_args(tokens[2:])
    assert {"certify", "train", "sweep", "serve", "table"} <= {shape[0] for shape in seen}


def shape_of(tokens: list[str]) -> tuple[str, ...]:
    """Equal for commands of which one is enough: they differ in paths, or in numbers that name no recipe."""
    words = ["PATH" if "/" in word else word for word in tokens]
    if tokens[0] not in ("train", "sweep"):
        words = [re.sub(r"\d+", "0", word) for word in words]
    return tuple(word for word, _ in groupby(words))


def check_command(app: App, tokens: list[str]) -> None:
    try:
        # A run in an object store would be read at once.
        local, changes = parsed([word.removeprefix("s3://") for word in tokens])
        assert not changes
        command, bound, _ = app.parse_args(local, exit_on_error=False, print_error=False)
    except Exception as error:
        raise AssertionError(shlex.join(["smoothcert", *tokens])) from error
    if command.__name__ == "sweep":
        fields = {"dataset": bound.args[0]} if bound.args else {}
        assert plan_cells(bound.kwargs["methods"], bound.kwargs.get("sigmas", ()), (0,), fields)
    if (search := bound.kwargs.get("search")) is not None:
        search.search()  # an unknown search or option is refused
    if (recipe := bound.kwargs.get("recipe")) is not None and not recipe.endswith(".toml"):
        find_recipe(recipe)


LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


def test_every_link_of_every_page_leads_to_a_file():
    """As on the code host, where links to tests and sources work as well; the site's build checks anchors."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []


def test_the_promises_stay_short():
    assert len((ROOT / "docs" / "guarantees.md").read_bytes()) <= 8 * 1024
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_table_and_figure_of_the_papers_is_on_the_page():
    """Numbers are written singly (Table 4), joined (Tables 1 and 3) or as a range (Tables 6 to 9)."""
    for paper, tables, figures in [
        ("SmoothMix", range(1, 10), range(1, 7)),
        ("MACER", range(1, 14), range(1, 5)),
        ("Data-dependent", range(1, 11), (*range(1, 8), 9)),
        ("Non-uniform", (), range(1, 5)),
    ]:
        page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
        (section,) = (part for part in page.split("\n## ") if part.startswith(paper))
        for word, numbers in (("table", tables), ("figure", figures)):
            found: set[int] = set()
            for first, joint, last in re.findall(
                rf"{word}s? (\d+)(?: (to|and) (\d+))?", section, re.IGNORECASE
            ):
                found |= set(range(int(first), int(last or first) + 1)) if joint == "to" else {int(first)}
                found |= {int(last)} if last else set()
            assert set(numbers) <= found, f"{paper}: no word of {word} {sorted(set(numbers) - found)}"


def run_commands(
    commands: list[list[str]], contracts: list[str], cwd: Path, environment: dict[str, str]
) -> list[str]:
    """What each command of a page prints, and then the contract tests of the checkout: all in one new interpreter.

    ``verify`` may have something to say against a run.
    """
    script = (
        "import json, os, sys\n"
        "from smoothcert.cli import main\n"
        "commands, folder, *contracts = json.loads(sys.argv[1])\n"
        "for name, *words in commands:\n"
        "    assert name == 'smoothcert', name\n"
        "    try:\n"
        "        main(words)\n"
        "    except SystemExit as end:\n"
        "        if end.code and words[0] != 'verify':\n"
        "            raise\n"
        "    print(chr(30))\n"
        "import pytest\n"
        "os.chdir(folder)\n"
        "sys.exit(pytest.main(['-n', '0', '-q', '-p', 'no:cacheprovider', *contracts]))\n"
    )
    words = [commands, str(ROOT), f"--basetemp={cwd / 'contracts'}", *contracts]
    done = run_python("-c", script, json.dumps(words), cwd=cwd, environment=environment)
    return done.stdout.split(chr(30))


def run_python(
    *words: object, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A new interpreter, which ends well."""
    settings = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONIOENCODING": "utf-8", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **settings, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.system
def test_the_page_on_adding_an_objective_works_as_written(tmp_path):
    pytest.importorskip("sklearn")
    page = ROOT / "docs" / "add-an-objective.md"
    text = page.read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "export SMOOTHCERT_PLUGINS=softened.py\n" in text
    (tmp_path / "softened.py").write_text(source)
    commands = [["smoothcert", "train", "--help-all"], *commands_of(page, tmp_path)]
    contract = "tests/objectives/test_contract.py"
    told = run_commands(commands, [contract], tmp_path, {"SMOOTHCERT_PLUGINS": "softened.py"})
    assert "--share" in told[0]
    assert "[softened 0.1]" in told[0]
    assert "share = 0.2" in (tmp_path / "runs" / "softened" / "recipe.toml").read_text()
    assert "softened:share=0.05" in (tmp_path / "sweeps" / "softened" / "table.md").read_text()


@pytest.mark.system
def test_the_members_that_contributing_adds_are_one_file_each_and_work_as_written(tmp_path):
    pytest.importorskip("sklearn")
    page = ROOT / "CONTRIBUTING.md"
    text = page.read_text(encoding="utf-8")
    shown = dict(re.findall(r"`(src/smoothcert/\S+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL))
    assert sorted(shown) == [
        "src/smoothcert/perturb/laplace.py",
        "src/smoothcert/smoothing/stopping/patience.py",
    ]
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name, source in shown.items():
        assert not (tmp_path / name).exists()
        (tmp_path / name).write_text(source, encoding="utf-8")
    commands = [["smoothcert", "certify", "--help-all"], *commands_of(page, tmp_path)]
    commands += [["smoothcert", "verify", "runs/laplace-certified"]]
    contracts = ["tests/perturb/test_contract.py", "tests/smoothing/stopping/test_contract.py"]
    told = run_commands(commands, contracts, tmp_path, {"PYTHONPATH": str(tmp_path / "src")})
    assert "laplace" in told[0]
    assert "patience:500" in told[0]
    stated = {
        run: json.loads((tmp_path / "runs" / run / "run.json").read_text(encoding="utf-8"))["plan"]
        for run in ("laplace-certified", "laplace-searched", "laplace-stretched", "patient")
    }
    assert {(plan["noise"], plan["norm"]) for plan in stated.values()} == {
        ("laplace", "l1"),
        ("diagonal-laplace", "l1"),
    }
    assert stated["patient"]["stop"] == ["patience:500"]


@pytest.mark.parametrize("content", [None, "import nowhere_to_be_found"])
def test_a_plugin_that_cannot_be_loaded_is_named(tmp_path, monkeypatch, content):
    plugin = tmp_path / "broken.py"
    if content is not None:
        plugin.write_text(content)
    monkeypatch.setenv("SMOOTHCERT_PLUGINS", str(plugin))
    monkeypatch.setitem(sys.modules, "broken", None)  # what loading puts there is taken away
    monkeypatch.setattr("smoothcert.extras._loaded", False)
    named = "nowhere_to_be_found" if content else "SMOOTHCERT_PLUGINS"
    with pytest.raises(PluginError, match=named) as caught:
        load_plugins()
    assert str(plugin) in str(caught.value)


@pytest.mark.system
def test_a_command_ends_with_a_plugin_that_cannot_be_loaded(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "smoothcert", "recipes"],
        env={**os.environ, "SMOOTHCERT_PLUGINS": str(tmp_path / "broken.py")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert "broken.py" in done.stderr
    assert "Traceback" not in done.stderr


SEEDED = """
import random, runpy, secrets, sys
secrets.randbits = random.Random(0).getrandbits
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script whose seeds would be drawn by the operating system."""


@pytest.mark.system
def test_the_tabular_example_runs_as_written(tmp_path):
    pytest.importorskip("sklearn")
    done = run_python("-c", SEEDED, ROOT / "docs" / "examples" / "tabular.py", cwd=tmp_path)
    rows = re.findall(r"^.+: (\d+) \w+ 169 .* (\S+)$", done.stdout, re.MULTILINE)
    (plain, _), (spread, spread_radius), (fitted, fitted_radius) = rows
    assert int(fitted) >= int(spread) - 8 > int(plain)
    assert float(fitted_radius) > 2 * float(spread_radius)
    features = re.findall(r"^(\w[\w ]+?) +\S+ +± +\S+ +(\S+)$", done.stdout, re.MULTILINE)
    shares = [float(share) for _, share in features]
    assert len(features) == 30
    assert shares == sorted(shares)
    for three in (features[:3], features[-3:]):
        assert ", ".join(name for name, _ in three) in done.stdout


@pytest.mark.system
def test_the_example_of_a_loop_of_ones_own_runs_as_written(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    script = ROOT / "docs" / "examples" / "own_loop.py"
    done = run_python("-c", SEEDED, script, "curve.png", cwd=tmp_path)
    ((clean, far, acr),) = re.findall(r"\[(\S+) +(\S+) *\]\n.* (\S+)$", done.stdout, re.MULTILINE)
    assert float(clean) > 0.9
    assert float(far) > 0.4
    assert float(acr) > 0.35
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_the_page_on_models_runs_as_written(capsys, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr("secrets.randbits", random.Random(0).getrandbits)
    page = (ROOT / "docs" / "any-model.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (many,) = (block for block in blocks if "answer.covers(" in block)
    (estimator,) = (block for block in blocks if "SmoothedEstimator(" in block)
    exec(many, {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("Certification(row=0, predicted=0, label=0, radius=")
    assert printed[-1] == "True False"
    exec(estimator, {})
    score, _, acr, mean = map(float, capsys.readouterr().out.split())
    assert score > 0.9
    assert mean > 0.9
    assert acr > 0.5


@pytest.mark.campaign
def test_the_lines_of_the_pages_on_servers_work_as_written(tmp_path):
    """Each as bash runs it, but for the ports, and with an end to the servers."""
    pytest.importorskip("sklearn")
    pytest.importorskip("fastapi")
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("serving.md", "operating.md")]
    commands = "".join(re.findall(r"```sh\n(.*?)```", "".join(pages), re.DOTALL))
    with socket.socket() as first, socket.socket() as second:
        for held in (first, second):
            held.bind(("127.0.0.1", 0))
        ports = {"8000": str(first.getsockname()[1]), "8001": str(second.getsockname()[1])}
    commands = re.sub(r"\b800[01]\b", lambda port: ports[port[0]], commands)
    commands = commands.replace("curl -s", "curl -sS --fail-with-body")
    script = f"""trap 'kill $(jobs -p); wait' EXIT
served() {{ exec "{sys.executable}" -m smoothcert "$@"; }}  # is its own process, which can be ended
smoothcert() {{ if [ "$1" = serve ] && [ "$2" != key ]; then served "$@"; fi; "{sys.executable}" -m smoothcert "$@"; }}
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
    assert '"promise":"' in done.stdout
    assert "Traceback" not in done.stderr
