"""The rules of the project that a machine can check: layers, dependencies, README and CI agree."""

import ast
import functools
import importlib.metadata
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import smoothcert
from smoothcert.runs.layout import RunFiles

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "smoothcert"
VERIFIER = ROOT / "src" / "smoothcert_verify"

# Highest layer first: a package imports only from lower layers, and from itself.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"sweeps", "health", "service", "functions", "integrations", "masked"},
    {"analysis", "training", "evaluation", "empirical", "replay", "estimator"},
    {"experimental"},
    {"objectives", "smoothing"},
    {"sigma_levels"},
    {"engine", "runs", "attacks", "downloads"},
    {"models"},
    {"architectures", "datasets"},
    {"perturb"},
    {"bounds", "regions"},
    {"tally"},
    {"knobs", "threads"},
    {"npy", "client"},
    {"registry", "rounding", "databases"},
    {"files", "plain_text", "extras"},
    {"errors"},
]
LAYER_OF = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@functools.cache
def imported_packages(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module == "smoothcert":
            names = [f"smoothcert.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        packages |= {name.split(".")[1] for name in names if name.startswith("smoothcert.")}
    return packages


def test_imports_point_down():
    for path in sorted(SOURCE.rglob("*.py")):
        package = package_of(path)
        if package != "__init__":
            for used in imported_packages(path) - {package}:
                assert LAYER_OF[used] > LAYER_OF[package], f"{path}: {package} must not use {used}"


def test_every_package_has_a_layer():
    packages = {package_of(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert packages == set(LAYER_OF)


def test_few_use_what_is_experimental():
    """Commands of its own, and what reads the runs that it makes; a new user is a step into the front row."""
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "experimental" in imported_packages(path) and package_of(path) not in ("__init__", "experimental")
    }
    assert users == {
        "analysis/overview.py",
        "cli/levels.py",
        "evaluation/same_model.py",
        "evaluation/recertification.py",
        "replay.py",
    }


# To be renamed: one of the two is misnamed.
DOUBLED_CLASSES = {"Place"}


def test_no_public_class_has_the_name_of_another():
    """A name that two classes have leaves the reader of an import guessing."""
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    doubled = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: where for name, where in doubled.items() if name not in DOUBLED_CLASSES} == {}


@functools.cache
def imported_modules(path: Path) -> set[str]:
    """All modules that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in nodes), path
    froms = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return froms | {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def test_the_verifier_uses_the_standard_library_alone():
    """It must not lean on the code that made a run, and an auditor has nothing else."""
    files = sorted(VERIFIER.rglob("*.py"))
    assert len(files) > 2
    for path in files:
        packages = {name.partition(".")[0] for name in imported_modules(path)} - {VERIFIER.name}
        assert packages <= sys.stdlib_module_names - {"pickle", "importlib"}, path


def test_only_verify_and_its_replay_use_the_verifier():
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(name.partition(".")[0] == VERIFIER.name for name in imported_modules(path))
    }
    assert users == {"replay.py", "functions.py", "cli/verify.py"}


def test_no_module_binds_a_name_twice():
    """Two constants of one name in one file: the first is lost, and what used it has another value."""
    for path in sorted([*SOURCE.rglob("*.py"), *VERIFIER.rglob("*.py")]):
        bound: list[str] = []
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                bound += [
                    part.id for each in targets for part in ast.walk(each) if isinstance(part, ast.Name)
                ]
        assert len(bound) == len(set(bound)), (
            f"{path}: {sorted(name for name in bound if bound.count(name) > 1)}"
        )


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


def test_the_layout_of_a_run_is_known_to_runs_alone():
    """The verifier has its own reader, which trusts nothing of the library; replay speaks of what it read."""
    names = [one.name for one in vars(RunFiles).values() if hasattr(one, "name")]
    assert "run.json" in names
    assert "sub-epochs" in names
    folders = {name for name in names if "." not in name}
    for path in sorted(SOURCE.rglob("*.py")):
        if package_of(path) not in ("runs", "replay"):
            for line, text in texts_of(path):
                known = [name for name in names if (f"/{name}" if name in folders else name) in text]
                assert not known, f"{path}, line {line}: ask runs.layout for {known[0]}"


def shell_blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_opens_with_its_two_commands():
    first, second = shell_blocks()[:2]
    assert "-c constraints.txt" in first
    assert "smoothcert quickstart" in first
    assert "pytest" in second


def test_ci_runs_the_readmes_commands_and_what_people_run():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "README.md" in script
    assert re.search(r"^[^#\n]*\bmake check$", script, re.MULTILINE)
    assert not re.search(r"^\s*(python\S* -m )?pytest", script, re.MULTILINE)


def test_every_dependency_has_its_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[<>=\[ ]", requirement)[0] for group in groups for requirement in group} - {
        "smoothcert"
    }
    reasons = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert {name for name in names if f"| {name} |" not in reasons} == set()


def test_every_package_of_the_tests_is_pinned_at_or_above_its_floor():
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
    # As well as what those that are installed here need, which pip would otherwise take in its newest version.
    unpinned, waiting, seen = set(), [(name, ("",)) for name in pinned], set()
    while waiting:
        name, wanted_extras = waiting.pop()
        try:
            needed = [] if (name, wanted_extras) in seen else importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        seen.add((name, wanted_extras))
        for one in map(Requirement, needed):
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in wanted_extras):
                unpinned |= {canonicalize_name(one.name)} - pinned.keys()
                waiting.append((canonicalize_name(one.name), ("", *sorted(one.extras))))
    assert unpinned == set()


def test_workflows_try_what_is_pinned_and_the_lowest_versions_and_look_for_holes():
    import tomllib

    from packaging.requirements import Requirement
    from packaging.version import Version

    yaml = pytest.importorskip("yaml")
    stated = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8"))
    steps = {name: job["steps"] for name, job in stated["jobs"].items()}
    runs = {name: " ".join(step.get("run", "") for step in each) for name, each in steps.items()}
    assert ".ci/run" in runs["pinned"]
    lowest = re.search(r"floors\.py ([\w ]+) > (\S+) .*-c \2 -e '\.\[([\w,]+)\]' .*pytest", runs["lowest"])
    assert lowest is not None
    names = lowest[1].split()
    assert names == lowest[3].split(",")
    assert re.search(r"pip-audit .*constraints\.txt", runs["audit"])
    assert "mkdocs build --strict" in runs["docs"]
    used = [step["uses"] for each in steps.values() for step in each if "uses" in step]
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in used), "a tag may be moved"
    assert stated["permissions"] == {"contents": "read"}
    # The lowest versions: each admitted by every line about the package, and named by one of them.
    floors = runpy.run_path(str(ROOT / ".github" / "floors.py"))["floors"](names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*map(Requirement, chain(project["dependencies"], *(extras[name] for name in names)))]
    assert floors.keys() == {one.name for one in asked}
    for one in asked:
        assert one.specifier.contains(floors[one.name]), str(one)
    named = {
        (one.name, Version(each.version)) for one in asked for each in one.specifier if each.operator == ">="
    }
    assert {(name, Version(version)) for name, version in floors.items()} <= named


def test_no_absolute_paths_or_hosts_in_the_tree():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if listed.returncode:
        pytest.skip("not a git checkout")
    suspicious = re.compile(r"/(?:root|home/\w+|work)/|pypi\.org|files\.pythonhosted")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ""} and path.is_file() and path != Path(__file__):
            assert not suspicious.search(path.read_text(encoding="utf-8")), name


SENTENCE = re.compile(
    r"(?<![\w.\-/`'])(?:[A-Za-z]?[a-z]*(?:['’][a-z]+)?[ ]){2}[a-z]+(?:['’][a-z]+)?(?![\w\-/=.(`])"
)
"""Three plain words in a row. Names of fields, options, files and methods are not plain words."""


def expected_texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Literals that a message or an output is compared with: match=…, assert … in …, and parameters used there."""
    compared: set[str] = set()
    parts: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "match":
            parts.append(node.value)
        if isinstance(node, ast.Assert):
            compares = [one for one in ast.walk(node.test) if isinstance(one, ast.Compare)]
            parts += [one.left for one in compares if isinstance(one.ops[0], ast.In | ast.NotIn)]
    for part in parts:
        if isinstance(part, ast.Name):
            compared.add(part.id)
        yield from (one for one in ast.walk(part) if isinstance(one, ast.Constant))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize")):
            continue
        names = ast.unparse(node.args[0])
        if any(re.search(rf"\b{name}\b", names) for name in compared):
            yield from (one for one in ast.walk(node.args[1]) if isinstance(one, ast.Constant))


def test_no_sentence_is_expected():
    found = [
        f"{path.relative_to(ROOT)}:{one.lineno}: {one.value}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for one in expected_texts(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(one.value, str) and SENTENCE.search(one.value)
    ]
    assert not found, "\n".join(["assert the type, the value and the option instead of words:", *found])


def unlimited_waits(tree: ast.Module) -> list[ast.Call]:
    """Calls that wait for another process without a limit, or that listen at a fixed port."""
    runs = {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output")}
    wrong = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if name in runs or name.endswith(".communicate"):
            limited = any(keyword.arg == "timeout" for keyword in call.keywords)
        elif name in ("os.wait", "os.waitpid"):
            limited = "os.WNOHANG" in ast.unparse(call)
        elif name.endswith((".bind", ".create_server", "HTTPServer")) and call.args:
            limited = not re.fullmatch(r"\(.*, [1-9]\d*\)", ast.unparse(call.args[0]))
        else:
            continue
        if not limited:
            wrong.append(call)
    return wrong


def test_tests_wait_for_processes_with_a_limit_and_listen_at_free_ports():
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for call in unlimited_waits(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(found)


def test_a_wait_without_a_limit_is_found():
    for wrong in [
        "subprocess.run(words, check=True)",
        "process.communicate()",
        "os.waitpid(child, 0)",
        "socket.create_server(('127.0.0.1', 8000))",
    ]:
        assert len(unlimited_waits(ast.parse(wrong))) == 1


def test_the_readmes_python_example_runs(capsys):
    pytest.importorskip("sklearn")
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    exec(compile(example, "README.md", "exec"), {})
    answers = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {int(predicted) for predicted, _ in answers} <= {-1, 0, 1, 2}
    assert max(float(radius) for _, radius in answers) > 0


def test_the_citation_is_of_this_version():
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["cff-version"] == "1.2.0"
    assert cited["authors"] == [{"name": "The smoothcert authors"}]
    assert cited["version"] == smoothcert.__version__


def test_the_forms_for_issues_are_ones_that_the_host_accepts():
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


def test_the_steps_of_a_release_are_shell():
    """Not the ``sh`` blocks, which another test runs: these would publish."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    assert blocks
    subprocess.run(["bash", "-n"], input="".join(blocks), text=True, check=True, timeout=60)


_PLANS = """
import sys, typing
from smoothcert.bounds.base import BOUNDS
from smoothcert.engine.execution import Execution
from smoothcert.experimental.levels.choosers import LevelFitPlan
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.base import NOISES
from smoothcert.runs.statement import Choice
from smoothcert.sigma_levels import SigmaLevels
from smoothcert.smoothing.fits.plan import FitPlan
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.search.base import SEARCHES
from smoothcert.smoothing.stopping.base import BUDGETS, STOP_RULES
for registry in (BOUNDS, NOISES, SEARCHES, BUDGETS, STOP_RULES):
    registry.load()
members = [member for registry in (SEARCHES, BUDGETS, STOP_RULES) for member in registry.load().values()]
for plan in (CertifyPlan, Choice, Execution, FitPlan, LevelFitPlan, Numerics, SigmaLevels, *members):
    typing.get_type_hints(plan)
assert "torch" not in sys.modules
"""


def test_plans_are_read_without_torch():
    """Commands take their options from these dataclasses, and help doesn't wait for torch."""
    subprocess.run([sys.executable, "-c", _PLANS], check=True, timeout=120)
