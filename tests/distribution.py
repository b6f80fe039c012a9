"""``python -m tests.distribution``: builds both distributions, and uses the wheel where no checkout is."""

import email
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import smoothcert

ROOT = Path(__file__).parent.parent
TITLE = f"smoothcert-{smoothcert.__version__}"


def output(*words: object, folder: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """What a command prints in a folder."""
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tree() -> set[str]:
    """The files of the project; without git, those of the unpacked source distribution that this is."""
    if (ROOT / ".git").exists():
        names = output("git", "ls-files", "-z").split("\0")
        return {name for name in names if name and (ROOT / name).is_file()}
    paths = (path for path in ROOT.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


def hatchling(folder: Path, kind: str) -> Path:
    """The distribution of one kind, built from ``folder``."""
    output(sys.executable, "-m", "hatchling", "build", "-t", kind, folder=folder)
    (made,) = (folder / "dist").iterdir()
    return made


@dataclass(frozen=True)
class Built:
    """Both distributions, the wheel made from the source distribution as pip would."""

    source: Path
    wheel: Path


def build(work: Path) -> Built:
    """Both distributions, made in ``work``."""
    for name in tree():
        (work / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, work / "tree" / name)
    source = hatchling(work / "tree", "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(work, filter="data")
    return Built(source, hatchling(work / TITLE, "wheel"))


def check_source(built: Built) -> None:
    with tarfile.open(built.source) as archive:
        names = {name.removeprefix(f"{TITLE}/") for name in archive.getnames()}
    assert tree() - names == set()
    assert names - tree() == {"PKG-INFO"}


def check_wheel(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
        metadata = email.message_from_bytes(archive.read(f"{TITLE}.dist-info/METADATA"))
    package = {name for name in names if not name.startswith(f"{TITLE}.dist-info/")}
    assert package == {name.removeprefix("src/") for name in tree() if name.startswith("src/")}
    assert {"smoothcert/py.typed", "smoothcert_verify/py.typed"} <= package
    assert any(name.startswith("smoothcert/training/recipes/") and name.endswith(".toml") for name in package)
    assert "smoothcert/analysis/report/assets/page.html" in package
    assert f"{TITLE}.dist-info/licenses/LICENSE" in names
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata["Version"] == smoothcert.__version__
    assert metadata["License-Expression"] == "MIT"
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])


def install(built: Built, home: Path) -> Path:
    """A fresh environment's ``bin``: the wheel is installed there, everything else is this interpreter's."""
    output(sys.executable, "-m", "venv", "--without-pip", home)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))
    # A path in a .pth file is searched, but its own .pth files, such as an editable checkout's, are not read.
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(ours)))
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--quiet"]
    output(*pip, "--no-deps", "--no-index", "--ignore-installed", built.wheel, env=outside())
    return home / "bin"


def outside() -> dict[str, str]:
    """An environment that says nothing of the checkout."""
    hidden = ("PYTHONPATH", "SMOOTHCERT_DATA", "SMOOTHCERT_PLUGINS")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {
        "OMP_NUM_THREADS": "1"
    }


def run(program: Path, words: str, folder: Path) -> str:
    """What an installed command prints in ``folder``."""
    return output(program, *shlex.split(words), folder=folder, env=outside())


def check_command(installed: Path, empty: Path) -> None:
    """It finds itself, leaves nothing behind where it only tells, trains, certifies and reports."""
    where = run(installed / "python", "-c 'import smoothcert; print(smoothcert.__file__)'", empty)
    assert Path(where.strip()).is_relative_to(installed.parent)
    command = installed / "smoothcert"
    assert run(command, "--version", empty).strip() == smoothcert.__version__
    assert "--sigma" in run(command, "certify --help", empty)
    assert "mnist-smoothmix-1.0" in run(command, "recipes --json", empty)
    assert list(empty.iterdir()) == []
    run(command, "train digits --sigma 0.25 --epochs 1 --out model --quiet", empty)
    run(command, "certify model --n 200 --max 3 --out run --quiet", empty)
    assert json.loads(run(command, "table run --format json", empty))
    run(command, "report run --out page", empty)
    (page,) = (empty / "page").rglob("*.html")
    assert "<script" in page.read_text(encoding="utf-8")


def main() -> None:
    """Build, look inside, install, use."""
    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder))
        check_source(built)
        check_wheel(built)
        empty = Path(folder) / "empty"
        empty.mkdir()
        check_command(install(built, Path(folder) / "venv"), empty)
        print(f"{built.source.name}, {built.wheel.name}")


if __name__ == "__main__":
    main()
