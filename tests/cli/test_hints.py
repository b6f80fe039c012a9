"""Every command that a message tells the reader to run, run: from folders with spaces in their names, as printed."""

import ast
import contextlib
import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from smoothcert.cli import COMMANDS, main, quickstart
from smoothcert.plain_text import beside, certify_trained, command, typed, usage
from tests.datasets.files import write_mnist

SOURCE = Path(__file__).parent.parent.parent / "src" / "smoothcert"
NAMES = "|".join(COMMANDS)
HINT = re.compile(
    rf"`(smoothcert (?:{NAMES})\b[^`]*)`|^(?:[\w ]+:)? *(?:\w+ +)?(smoothcert (?:{NAMES})\b.*)$", re.MULTILINE
)
FEW = {"certify": ["--n", "100", "--n0", "10"], "attack": ["--steps", "1", "--copies", "1", "--n", "20"]}

Said = Callable[..., str]


@pytest.fixture
def said(capsys) -> Said:
    """What a command prints, refusals included."""

    def run(*words: str, code: int = 0) -> str:
        try:
            main(list(words))
            ended = 0
        except SystemExit as end:
            ended = int(end.code or 0)
        shown = capsys.readouterr()
        assert ended == code, shown.err
        return shown.out + shown.err

    return run


def hints_in(text: str) -> list[list[str]]:
    return [shlex.split(found[1] or found[2])[1:] for found in HINT.finditer(text)]


def few_votes(words: list[str]) -> list[str]:
    """The same in less time, where the hint leaves the number of votes open."""
    return words if "--n" in words or "--help" in words else [*words, *FEW.get(words[0], [])]


def follow(said: Said, text: str) -> list[list[str]]:
    found = hints_in(text)
    for words in found:
        said(*few_votes(words))
    return found


def toy_data(path: Path, *splits: str) -> Path:
    random = np.random.default_rng(0)
    arrays = {f"x_{split}": random.random((24, 1, 8, 8)).astype(np.float32) for split in splits}
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays, **{f"y_{split}": np.arange(24) % 3 for split in splits})
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    return tmp_path


TRAIN = ["--sigma", "0.5", "--epochs", "1", "--batch-size", "8"]


@pytest.mark.parametrize("splits", [("train", "test"), ("train",)])
def test_certify_after_training_on_a_file(said, folder, splits):
    data = toy_data(Path("my data") / "toy set.npz", *splits)
    text = said("train", f"npz:{data}", *TRAIN, "--out", "my runs/it's one")
    (words,) = follow(said, text)
    assert words[-1] == "my runs/it's one-certified"
    assert Path(words[-1], "run.json").exists()


def test_certify_after_training_without_noise(said, folder):
    data = toy_data(Path("toys.npz"), "train", "test")
    text = said("train", f"npz:{data}", "--sigma", "0", *TRAIN[2:], "--out", "clean")
    (words,) = follow(said, text)
    assert words[:6] == ["certify", "clean", "--dataset", "npz:toys.npz", "--sigma", "0.25"]
    (again,) = hints_in(said("table", "clean", code=2))
    assert again[:-2] == words[:-2]
    assert "--sigma" in said("certify", "clean", "--dataset", "npz:toys.npz", "--out", "other", code=2)


@pytest.mark.parametrize("more", [[], ["--holdout", "2"]])
def test_certify_after_training_on_named_data_elsewhere(said, folder, more):
    for split in ("train", "test"):
        write_mnist(Path("my data"), split, count=6)
    text = said("train", "mnist", *TRAIN, *more, "--data-dir", "my data", "--out", "my model")
    (words,) = follow(said, text)
    assert words == ["certify", "my model", "--data-dir", "my data", "--out", "my model-certified"]


@pytest.fixture
def model(build_once, folder) -> Path:
    def trained(path: Path) -> None:
        path.mkdir()
        with contextlib.chdir(path):
            toy_data(Path("my data") / "toy.npz", "train", "test")
            main(["train", "npz:my data/toy.npz", *TRAIN, "--quiet", "--out", "my model"])

    shutil.copytree(build_once("model-of-hints", trained), folder, dirs_exist_ok=True)
    return Path("my model")


CERTIFY = ["certify", "my model", "--dataset", "npz:my data/toy.npz", "--n", "100", "--max", "3"]


@pytest.mark.slow
@pytest.mark.parametrize("init", ["0.4", "0.3,0.4"])
def test_certify_after_fitting_noise_and_the_areas_after_that(said, model, init):
    few = ["--validation", "4", "--sub-epochs", "1", "--groups", "rows", "--beta", "1000"]
    text = said(
        "fit", "noise", "my model", "-d", "npz:my data/toy.npz", "--init", init, *few, "--out", "a fit"
    )
    ((*words, out),) = hints_in(text)
    shown = said(*few_votes([*words, out]))
    follow(said, shown)
    assert (Path(out).parent / f"{Path(out).name}-area.png").exists()


@pytest.mark.parametrize("wrong", [["show"], ["table"], ["report", "--out", "page"]])
def test_a_training_run_where_a_certified_one_is_meant(said, model, wrong):
    first, *rest = wrong
    (words,) = follow(said, said(first, "my model", *rest, code=2))
    assert words[:2] == ["certify", "my model"]


def test_an_attack_without_its_model(said, model):
    said(*CERTIFY, "--out", "a run")
    (words,) = follow(said, said("attack", "a run", code=2))
    assert words[:4] == ["attack", "a run", "--model", "my model"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--thread-safe", "--grid", "7"],
        ["--split", "train", "--model-returns", "scores"],
        ["--shard", "2/2"],
    ],
)
def test_the_commands_of_a_page(said, model, options):
    said(*CERTIFY, *options, "--out", "some runs/a run")
    said(*CERTIFY, *options, "--seed", "1", "--out", "other runs/a run")
    where = ["--dataset", "npz:my data/toy.npz", "--radius", "0.123456789", "--out", "the page"]
    said("report", "some runs/a run", "other runs/a run", *where)
    page = Path("the page", "index.html").read_text(encoding="utf-8")
    data = json.loads(
        re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[0]
    )
    made = Path("the page", "index.html").stat().st_mtime_ns
    commands = [run["provenance"]["command"] for group in data["groups"] for run in group["runs"]]
    for line in [data["command"], *commands]:
        said(*shlex.split(line)[1:])
    assert Path("the page", "index.html").stat().st_mtime_ns > made
    for place in ("some runs", "other runs"):
        first, again = (
            json.loads(Path(place, name, "run.json").read_text()) for name in ("a run", "a run-again")
        )
        assert [first[part] for part in ("plan", "model", "data")] == [
            again[part] for part in ("plan", "model", "data")
        ]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["table"], ["table", "--help"]),
        (["plot", "--out", "a.png"], ["plot", "--help"]),
        (["report", "--out", "page"], ["report", "--help"]),
        (["recipes"], ["recipes", "smoothmix"]),
    ],
)
def test_what_a_command_without_runs_or_names_says(said, folder, words, hint):
    assert follow(said, said(*words, code=0 if words == ["recipes"] else 2)) == [hint]


@pytest.mark.slow
def test_what_comes_after_quickstart(said, folder, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(quickstart, "_EPOCHS", 1)
    monkeypatch.setattr(quickstart, "_EVERY", 50)
    text = said("quickstart", "--n", "100", "--out", "the first steps")
    text = text.replace("--n 100000", "--n 100")  # votes are votes
    assert [words[0] for words in follow(said, text)] == ["report", "certify", "train", "train"]


def test_commands_are_written_for_a_shell_beside_a_path(folder):
    @dataclass(frozen=True)
    class Group:
        architecture: str | None = None
        thread_safe: bool | None = None
        trust_pickle: bool = False

    line = command("certify", Path("-a b"), alpha=0.1, skip=None, radii=("0", "1"), json=True, quiet=False)
    assert line == "smoothcert certify './-a b' --alpha 0.1 --radii 0 1 --json"
    assert typed(Group()) == {}
    assert typed(Group("lenet", False, True)) == {
        "architecture": "lenet",
        "no_thread_safe": True,
        "trust_pickle": True,
    }
    assert "\x1b" not in command("show", "a\x1b[31m")
    assert usage("show") == "smoothcert show --help"
    assert certify_trained(Path("a"), None) == "smoothcert certify a --out a-certified"
    assert beside(Path("runs/a"), "again") == Path("runs/a-again")
    assert beside(Path(), "again") == folder.parent / f"{folder.name}-again"
    assert beside(Path(".."), "again") == folder.parent.parent / f"{folder.parent.name}-again"


@pytest.mark.slow
def test_no_message_spells_out_a_command_of_its_own():
    spelled = re.compile(rf"smoothcert (?:{NAMES}) (?!--help|[0-9]\|)\S")
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            text = (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
            )
            if text and spelled.search(node.value):  # type: ignore[union-attr]
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")  # type: ignore[attr-defined]
    assert found == []
