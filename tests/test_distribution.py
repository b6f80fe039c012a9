"""What people get who install smoothcert: both distributions are built, and the wheel works where no checkout is."""

from __future__ import annotations

import email
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import smoothcert

ROOT = Path(__file__).parent.parent
TITLE = f"smoothcert-{smoothcert.__version__}"

pytestmark = pytest.mark.slow


def tree() -> set[str]:
    """The files of the project; without git, those of the unpacked source distribution that this is."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    found = (path for path in ROOT.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}


def hatchling(folder: Path, kind: str) -> Path:
    """The distribution of one kind, built from ``folder``."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind], cwd=folder, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    (made,) = (folder / "dist").iterdir()
    return made


@dataclass(frozen=True)
class Built:
    """Both distributions, the wheel made from the source distribution as pip would."""

    source: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    pytest.importorskip("hatchling")
    work = tmp_path_factory.mktemp("build")
    for name in tree():
        (work / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, work / "tree" / name)
    source = hatchling(work / "tree", "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(work, filter="data")
    return Built(source, hatchling(work / TITLE, "wheel"))


def test_the_source_distribution_is_the_whole_tree(built: Built) -> None:
    with tarfile.open(built.source) as archive:
        names = {name.removeprefix(f"{TITLE}/") for name in archive.getnames()}
    assert tree() - names == set()
    assert names - tree() == {"PKG-INFO"}


def test_the_wheel_is_the_package_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
        metadata = email.message_from_bytes(archive.read(f"{TITLE}.dist-info/METADATA"))
    package = {name for name in names if not name.startswith(f"{TITLE}.dist-info/")}
    assert package == {name.removeprefix("src/") for name in tree() if name.startswith("src/smoothcert/")}
    assert "smoothcert/py.typed" in package
    assert any(name.startswith("smoothcert/training/recipes/") and name.endswith(".toml") for name in package)
    assert "smoothcert/report/assets/page.html" in package
    assert f"{TITLE}.dist-info/licenses/LICENSE" in names
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata["Version"] == smoothcert.__version__
    assert metadata["License-Expression"] == "MIT"
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment's ``bin``: the wheel is installed there, everything else is this interpreter's."""
    pytest.importorskip("pip")
    home = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))
    # A path in a .pth file is searched, but its own .pth files, such as an editable checkout's, are not read.
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(ours)))
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet"]
    done = subprocess.run(
        [*pip, "--no-deps", "--no-index", "--ignore-installed", str(built.wheel)],
        env=outside(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return home / "bin"


def outside() -> dict[str, str]:
    """An environment that says nothing of the checkout."""
    hidden = ("PYTHONPATH", "SMOOTHCERT_DATA", "SMOOTHCERT_PLUGINS")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {
        "OMP_NUM_THREADS": "1"
    }


def run(program: Path, words: str, folder: Path) -> str:
    """What a command prints in ``folder``."""
    done = subprocess.run(
        [str(program), *shlex.split(words)], cwd=folder, env=outside(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_command_works_in_an_empty_directory(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c 'import smoothcert; print(smoothcert.__file__)'", tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    command = installed / "smoothcert"
    assert run(command, "--version", tmp_path).strip() == smoothcert.__version__
    assert "--sigma" in run(command, "certify --help", tmp_path)
    assert "mnist-smoothmix-1.0" in run(command, "recipes --json", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_installed_command_trains_certifies_and_reports(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    command = installed / "smoothcert"
    run(command, "train digits --sigma 0.25 --epochs 1 --out model --quiet", tmp_path)
    run(command, "certify model --n 200 --max 3 --out run --quiet", tmp_path)
    assert json.loads(run(command, "table run --format json", tmp_path))
    run(command, "report run --out page", tmp_path)
    (page,) = (tmp_path / "page").rglob("*.html")
    assert "<script" in page.read_text(encoding="utf-8")
