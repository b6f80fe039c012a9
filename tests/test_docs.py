"""Pages that say what the code does are held to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smoothcert.training.methods import markdown_rows

ROOT = Path(__file__).parent.parent


def test_the_table_of_methods_is_the_registry() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- smoothcert methods --markdown -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert table == markdown_rows(), (
        "paste the output of `smoothcert methods --markdown` into docs/methods.md"
    )


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
    page = (ROOT / "docs" / "add-an-objective.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (commands,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    (tmp_path / "softened.py").write_text(source)
    script = f'smoothcert() {{ "{sys.executable}" -m smoothcert "$@"; }}\n{commands}smoothcert train --help\n'
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
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


def test_the_page_on_models_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    page = (ROOT / "docs" / "any-model.md").read_text(encoding="utf-8")
    first, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(first, {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("Certification(row=0, predicted=0, label=0, radius=")
    assert printed[-1] == "True False"
