"""docs/architecture.md: what it names is there, and what it says of additions was tried."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "smoothcert"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

MEMBERS = {
    "bounds/added.py": """
from smoothcert.bounds.base import register
from smoothcert.bounds.fixed import top_two

@register("added", "hard", "a test")
def added(tally, chosen, alpha):
    return top_two(tally, chosen, alpha)
""",
    "datasets/added.py": """
import numpy as np
from smoothcert.datasets.base import DATASETS, Dataset

@DATASETS.register("added")
def load_added(split, root):
    return Dataset("added", np.ones((4, 1, 4, 4), np.float32), np.zeros(4, np.int64), ("a", "b"))
""",
    "architectures/added.py": """
import math
from torch import nn
from smoothcert.architectures.base import ARCHITECTURES

@ARCHITECTURES.register("added")
def added(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))
""",
    "objectives/added.py": """
from dataclasses import dataclass
from smoothcert.objectives.base import OBJECTIVES
from smoothcert.objectives.gaussian import GaussianAugmentation

@OBJECTIVES.register("added")
@dataclass(frozen=True, kw_only=True)
class Added(GaussianAugmentation):
    pass
""",
    "smoothing/search/added.py": """
from dataclasses import dataclass
from smoothcert.smoothing.search.base import SEARCHES
from smoothcert.smoothing.search.by_votes import LadderSearch

@SEARCHES.register("added")
@dataclass(frozen=True, kw_only=True)
class Added(LadderSearch):
    pass
""",
    "smoothing/stopping/added.py": """
from dataclasses import dataclass
from typing import ClassVar
from smoothcert.smoothing.stopping.base import BUDGETS
from smoothcert.smoothing.stopping.rules import Pilot

@BUDGETS.register("added")
@dataclass(frozen=True)
class Added(Pilot):
    name: ClassVar[str] = "added"
    example: ClassVar[str] = "added:1%"
""",
    "smoothing/stores/added.py": """
from pathlib import Path
from smoothcert.smoothing.stores.base import STORES
from smoothcert.smoothing.stores.sqlite import SqliteStore

@STORES.register("added")
class Added(SqliteStore):
    @classmethod
    def takes(cls, address):
        return address.startswith("added:")

    @classmethod
    def at(cls, address, statement, known):
        return cls(Path(address.removeprefix("added:")), statement, known)
""",
    "engine/backends/added.py": """
from smoothcert.engine.backends.workers import BACKENDS
from smoothcert.engine.backends.threads import ThreadVoters

@BACKENDS.register("added")
def added(passes, execution):
    return ThreadVoters(passes)
""",
    "analysis/plots/added.py": """
from smoothcert.analysis.plots.kinds import register

@register("added", "a test")
def plot_added(runs, out, width="page"):
    out.write_text(f"{len(runs[0].records)} records")
""",
}

USE = """
from pathlib import Path
from smoothcert import Execution, SmoothedClassifier
from smoothcert.analysis.plots.kinds import PLOTS
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.datasets import load
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.objectives.base import OBJECTIVES
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.search.base import parse_search
from smoothcert.training.plan import TrainPlan

data = load("added", "test", None)
model = initialise(ModelSpec("added", data.input_shape, data.classes), seed=0)
assert OBJECTIVES.name_of(type(TrainPlan(0.5, objective=OBJECTIVES["added"]()).objective)) == "added"
for number, options in enumerate(({"search": parse_search("added")}, {"stop": ("added:1%",)})):
    bound = "added" if number == 0 else "top-two"
    with SmoothedClassifier(
        model, sigma=0.5, n=1000, seed=0, bound=bound, execution=Execution(workers=1, backend="added"), **options
    ) as smoothed:
        run = certify_dataset(smoothed, data, Path(f"run-{number}"))
    assert run.complete, number
PLOTS["added"].draw([run], out=Path("plot.svg"))
assert Path("plot.svg").read_text() == "4 records"
statement = MemoryStatement("0" * 64, (2,), "gaussian", "l2")
with RegionMemory.open("added:memory.sqlite", statement) as memory:
    assert len(memory) == 0
assert Path("memory.sqlite").exists()
"""


def test_every_path_and_package_on_the_page_exists():
    files = {
        path.relative_to(ROOT).as_posix() for top in ("src", "tests") for path in (ROOT / top).rglob("*.py")
    }
    named = set(re.findall(r"[\w/]+\.py\b", PAGE))
    assert len(named) > 25
    assert {name for name in named if not {f"src/smoothcert/{name}", name} & files} == set()
    folders = set(re.findall(r"`((?:[a-z_]+/)+)`", PAGE))
    assert {folder for folder in folders if not (SOURCE / folder).is_dir()} == set()
    (packages,) = re.findall(r"```\nsrc/smoothcert/\n(.*?)```", PAGE, re.DOTALL)
    there = {
        path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert there - set(re.findall(r"\w+", packages)) <= {"__init__", "__main__"}


def test_files_that_other_pages_name_exist():
    """But for members that a reader adds, and scripts of an earlier commit that is named beside them."""
    files = {
        f"/{path.relative_to(ROOT).as_posix()}"
        for top in ("src", "tests", "benchmarks", "docs")
        for path in (ROOT / top).rglob("*.py")
    }
    added = {"src/smoothcert/perturb/laplace.py", "src/smoothcert/smoothing/stopping/patience.py"}
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    missing = set()
    for page in pages:
        text = re.sub(r"`[^`]+` of commit \w+", "", page.read_text(encoding="utf-8"))
        named = set(re.findall(r"(?<![\w./-])[\w-]+/[\w/-]*\.py\b", text)) - added
        missing |= {
            (page.name, name) for name in named if not any(file.endswith(f"/{name}") for file in files)
        }
    assert missing == set()


def test_the_walk_of_a_vote_names_functions_that_are_there():
    stops = re.findall(r"^\| \d+ \| `([\w/]+\.py): (\w+)`", PAGE, re.MULTILINE)
    assert 20 <= len(stops) <= 25
    for file, function in stops:
        tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in defined, file


@pytest.mark.system
def test_members_of_families_are_one_file_each(tmp_path):
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name, source in MEMBERS.items():
        (tmp_path / "src" / "smoothcert" / name).write_text(source, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
