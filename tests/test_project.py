"""The rules of the project that a machine can check: layers, dependencies, README and CI agree."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import smoothcert
from smoothcert.runs.layout import RunFiles

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "smoothcert"

# From the top of the house to its foundation: a room may use rooms below it, and its own.
FLOORS = [
    {"__main__"},
    {"commands"},
    {"report", "sweeps", "health", "service"},
    {
        "analysis",
        "training",
        "evaluation",
        "empirical",
        "region_memory",
        "noise_fit",
        "level_fit",
        "verification",
        "estimator",
    },
    {"objectives", "smoothing"},
    {"sigma_search", "sigma_levels", "stopping"},
    {"sampling", "certificates", "runs", "attacks", "downloads"},
    {"bounds", "regions", "architectures", "datasets"},
    {"noise", "tally"},
    {"knobs"},
    {"npy", "hints", "client"},
    {"registry", "rounding", "files", "databases", "plain_text", "checksums", "extras"},
    {"platforms", "mounts"},
    {"errors"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module == "smoothcert":
            names = [f"smoothcert.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("smoothcert.")}
    return rooms


def test_imports_point_down() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        room = room_of(path)
        if room != "__init__":
            for used in imported_rooms(path) - {room}:
                assert FLOOR_OF[used] > FLOOR_OF[room], f"{path}: {room} must not use {used}"


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert rooms == set(FLOOR_OF)


def texts_of(path: Path) -> list[tuple[int, str]]:
    """The literals of a module other than its docstrings, by line; ``/ "name"`` where one is joined to a path."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    described = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    joined = {
        id(part)
        for node in nodes
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        for part in ast.walk(node.right)
    }
    return [
        (node.lineno, f"/{node.value}" if id(node) in joined else node.value)
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described
    ]


def test_the_layout_of_a_run_is_known_to_runs_alone() -> None:
    """Verification has its own reader, which trusts nothing of the library."""
    names = [one.name for one in vars(RunFiles).values() if hasattr(one, "name")]
    assert "run.json" in names
    assert "sub-epochs" in names
    folders = {name for name in names if "." not in name}
    for path in sorted(SOURCE.rglob("*.py")):
        if room_of(path) not in ("runs", "verification"):
            for line, text in texts_of(path):
                known = [name for name in names if (f"/{name}" if name in folders else name) in text]
                assert not known, f"{path}, line {line}: ask runs.layout for {known[0]}"


def shell_blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_opens_with_its_two_commands() -> None:
    first, second = shell_blocks()[:2]
    assert "-c constraints.txt" in first
    assert "smoothcert quickstart" in first
    assert "pytest" in second


def test_ci_runs_the_readmes_commands_and_what_people_run() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "README.md" in script
    assert re.search(r"^[^#\n]*\bmake check$", script, re.MULTILINE)
    assert not re.search(r"^\s*(python\S* -m )?pytest", script, re.MULTILINE)


def test_every_dependency_has_its_reason() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[<>=\[ ]", requirement)[0] for group in groups for requirement in group} - {
        "smoothcert"
    }
    reasons = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert {name for name in names if f"| {name} |" not in reasons} == set()


def test_every_package_of_the_tests_is_pinned_at_or_above_its_floor() -> None:
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: group for name, group in project["optional-dependencies"].items() if name != "bench"}
    for text in [*project["dependencies"], *(one for group in extras.values() for one in group)]:
        wanted = Requirement(text)
        if wanted.name != "smoothcert":
            assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), text
    assert pinned["torch"] == "2.13.0"


def test_no_absolute_paths_or_hosts_in_the_tree() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if listed.returncode:
        pytest.skip("not a git checkout")
    suspicious = re.compile(r"/(?:root|home/\w+|work)/|pypi\.org|files\.pythonhosted")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ""} and path.is_file() and path != Path(__file__):
            assert not suspicious.search(path.read_text(encoding="utf-8")), name


def test_the_readmes_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    exec(compile(example, "README.md", "exec"), {})
    predicted, radius = capsys.readouterr().out.split()
    assert int(predicted) in (0, 1, 2)
    assert float(radius) > 0


def test_the_citation_is_of_this_version() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["cff-version"] == "1.2.0"
    assert cited["authors"] == [{"name": "The smoothcert authors"}]
    assert cited["version"] == smoothcert.__version__


def test_the_forms_for_issues_are_ones_that_the_host_accepts() -> None:
    """A form with a mistake isn't shown at all; the wrong certificate is the first."""
    yaml = pytest.importorskip("yaml")
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[0-9]-*.yml"))
    assert forms[0].stem == "1-wrong-certificate"
    for form in forms:
        stated = yaml.safe_load(form.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(stated)
        asked = [part for part in stated["body"] if part["type"] != "markdown"]
        assert {part["type"] for part in asked} <= {"textarea", "input", "checkboxes"}
        assert len({part["id"] for part in asked}) == len(asked)
        assert all(part["attributes"]["label"] for part in asked)


def test_the_steps_of_a_release_are_shell() -> None:
    """Not the ``sh`` blocks, which another test runs: these would publish."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    assert blocks
    subprocess.run(["bash", "-n"], input="".join(blocks), text=True, check=True, timeout=60)
