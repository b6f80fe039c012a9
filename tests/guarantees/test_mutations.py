"""Damaged and hostile variants of everything that commands read.

Whatever a file says, nothing is run, nothing is written outside ``--out``, memory stays below a stated bound, and a
refusal is one message.
"""

import copy
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smoothcert.analysis.metrics import summarise
from smoothcert.analysis.overview import levels_used
from smoothcert.analysis.plots.sigma import ranked_radii
from smoothcert.analysis.report.page import ReportOptions, make_payload
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.cli import main
from smoothcert.errors import SmoothcertError
from smoothcert.evaluation.recertification import recertified
from smoothcert.files import sealed
from smoothcert.perturb.gaussian import DiagonalGaussian
from smoothcert.runs.field_log import write_field_log
from smoothcert.runs.parquet import write_parquet
from smoothcert.runs.run import create_run, read_run
from smoothcert.runs.statement import save_sigmas
from smoothcert_verify import RunError, verify_run
from tests.analysis.report.made_reports import statement, toy_records
from tests.guarantees.hostile import exit_code, process_within
from tests.levelled_runs import certified
from tests.runs.sealing import without_checksums

MOST_MEGABYTES = 1024
"""What opening small files may add to a process, whatever they claim (SECURITY.md states it)."""

_FORBIDDEN = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"),
    *("pickle.find_class", "ctypes.dlopen"),
}
_watching: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching is not None and event in _FORBIDDEN:
        _watching.append(f"{event} {arguments!r}")


sys.addaudithook(_hook)


@contextmanager
def nothing_runs() -> Iterator[None]:
    """No program is started, no pickle's class looked up, no library loaded."""
    global _watching  # an audit hook can't be taken away again, only told to rest
    _watching = []
    try:
        yield
        assert _watching == []
    finally:
        _watching = None


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }


ODD_VALUES = [
    *b'1e999 -1 0 null NaN [] {} "" 1.5 true "cat" =1 - 1e-320 "../../etc" 9223372036854775808'.split(),
    *(b"9" * 400, b"1" * 70, b"[" * 3000, b'"\\u001b]0;x"', b"\x00", b"\xff\xfe"),
]
WAYS, WAYS_OF_TEXT = 5, 6


def mutated(content: bytes, chance: random.Random, way: int) -> bytes:
    """One of the ways in which a file goes wrong, or is made to; the last is for text alone."""
    if not content:
        return content
    place = chance.randrange(len(content))
    if way == 0:
        return content[:place]
    if way == 1:
        return content[:place] + bytes([content[place] ^ (1 << chance.randrange(8))]) + content[place + 1 :]
    if way == 2:
        end = min(len(content), place + chance.choice([1, 4, 8, 64]))
        return content[:place] + content[end:]
    if way == 3:
        value = chance.choice([b"\xff" * 4, b"\x00" * 4, b"\x7f\xff\xff\xff", b"\xff" * 8, *ODD_VALUES])
        return content[:place] + value + content[place + len(value) :]
    if way == 4:
        other = chance.randrange(len(content))
        return content[:place] + content[other : other + 200] + content[place:]
    return _with_an_odd_value(content, chance)


def _with_an_odd_value(content: bytes, chance: random.Random) -> bytes:
    """A number or a word replaced by something else, so that the rest still parses."""
    found = list(re.finditer(rb'-?\d[\d.e+-]*|"[^"\n]*"|true|false|null', content))
    if not found:
        return content + b"x"
    one = chance.choice(found)
    return content[: one.start()] + chance.choice(ODD_VALUES) + content[one.end() :]


def run_with_noise(folder: Path) -> Path:
    """A run with everything that lies beside a journal."""
    run = folder / "run"
    noise = DiagonalGaussian(np.array([0.4, 0.5, 0.6]))
    about = statement(**noise.describe(), stop=["wrong"]).stating(
        origin={"model": "theirs:model", "dataset": "folder:/nowhere", "method": "gaussian"}
    )
    create_run(run, about, [replace(r, sigma=noise.sigma) for r in toy_records(12)])
    save_sigmas(run, noise)
    (run / "sigma_search.jsonl").write_text('{"index": 0, "sigma": 0.5}\n')
    return run


def plain_run(folder: Path) -> Path:
    run = folder / "run"
    create_run(run, statement().stating(origin={"model": "m", "dataset": "digits"}), toy_records(12))
    return run


def reading(run: Path, out: Path) -> list[list[str | Path]]:
    return [
        ["show", run],
        ["show", run, "--json"],
        ["table", run, "--layout", "paper", "--format", "csv"],
        ["table", run],
        ["compare", run, run, "--common"],
        ["report", run, "--out", out / "page"],
        ["recertify", run, "--out", out / "again"],
        ["export-log", run, "--out", out / "log.tsv"],
        ["export-log", run, "--out", out / "log.parquet"],
        ["attack", run],
        ["remember", run, "--memory", out / "memory", "--out", out / "kept"],
        ["sensitivity", run],
    ]


def drawing(run: Path, out: Path) -> list[list[str | Path]]:
    kinds = ("accuracy", "area", "noise", "samples", "confidence", "sigma", "envelope", "clean-accuracy")
    return [["plot", run, "--kind", kind, "--out", out / f"{kind}.svg"] for kind in kinds]


def try_all(theirs: Path, out: Path, commands: list[list[str | Path]]) -> list[int]:
    """Exit codes of the commands; anything but a clean end or a refusal fails, and so does a trace left behind."""
    before = tree(theirs)
    codes = []
    for words in commands:
        with nothing_runs():
            codes.append(exit_code(*words))
        assert codes[-1] in (0, 2), words
        assert tree(theirs) == before, words
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
    return codes


def reads(words: list[str | Path], path: Path) -> bool:
    """Whether a command is given this path, as it is or in a specification."""
    return path in {Path(str(word).partition(":")[2] or word) for word in words}


def explore(
    tmp_path: Path,
    make: Callable[[Path], Path],
    names: list[str],
    commands: Callable[[Path, Path], list[list[str | Path]]],
    tries: int,
    seed: int = 0,
) -> None:
    """Mutate one file at a time and give the result to commands that read it; files and ways take turns."""
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    theirs.mkdir()
    out.mkdir()
    target = make(theirs)
    originals = {name: (theirs / name).read_bytes() for name in names}
    every = commands(target, out)
    assert try_all(theirs, out, every).count(0) >= len(every) // 2  # untouched, they are read
    with process_within(MOST_MEGABYTES):
        for number in range(tries):
            chance = random.Random(1000 * seed + number)
            way, place = divmod(number, len(names))
            name = names[place]
            content = originals[name]
            ways = WAYS_OF_TEXT if name.endswith((".json", ".jsonl", ".tsv", ".toml")) else WAYS
            content = mutated(content, chance, (way + place) % ways)
            for _ in range(chance.choice([0, 0, 1, 4])):
                content = mutated(content, chance, chance.randrange(ways))
            (theirs / name).write_bytes(content)
            reading = [words for words in every if reads(words, theirs / Path(name).parts[0])]
            assert reading, name
            chosen = chance.sample(reading, min(3, len(reading)))
            try:
                try_all(theirs, out, chosen)
            except BaseException:
                print(f"try {number} of {name}: {content[:200]!r}", file=sys.__stderr__)
                raise
            (theirs / name).write_bytes(originals[name])


AMOUNTS = pytest.mark.parametrize(
    ("seed", "tries"),
    [
        pytest.param(2, 12, id="few"),
        pytest.param(0, 25, id="more", marks=pytest.mark.slow),
        pytest.param(1, 40, id="many", marks=pytest.mark.campaign),
    ],
)
VOTES = ["--n", "20", "--max", "1", "--workers", "1", "--chunk", "8"]


@pytest.mark.slow
@AMOUNTS
@pytest.mark.parametrize(
    ("make", "names", "commands"),
    [
        (plain_run, ["run.json", "journal.sqlite"], reading),
        (run_with_noise, ["run.json", "sigmas.npy", "sigma_search.jsonl"], reading),
        (run_with_noise, ["run.json", "journal.sqlite", "sigmas.npy"], drawing),
    ],
    ids=["plain", "files beside it", "drawings"],
)
def test_runs(tmp_path, make, names, commands, seed, tries):
    pytest.importorskip("matplotlib")
    explore(tmp_path, make, [f"run/{name}" for name in names], commands, tries, seed)


@AMOUNTS
def test_logs(tmp_path, seed, tries):
    pytest.importorskip("pyarrow")

    def make(folder: Path) -> Path:
        plain_run(tmp_path / "made")
        read = read_run(tmp_path / "made" / "run")
        with (folder / "log.tsv").open("w") as file:
            write_field_log(read.records, file)
        (folder / "log.gz").write_bytes(gzip.compress((folder / "log.tsv").read_bytes()))
        write_parquet(read, folder / "log.parquet")
        return folder

    def commands(folder: Path, out: Path) -> list[list[str | Path]]:
        logs = [
            ["import-log", folder / name, "--sigma", "0.5", "--out", out / "run"]
            for name in ("log.tsv", "log.gz")
        ]
        return [*logs, ["import-log", folder / "log.parquet", "--out", out / "run"]]

    explore(tmp_path, make, ["log.tsv", "log.gz", "log.parquet"], commands, tries, seed)


@pytest.mark.slow
@AMOUNTS
def test_models(tmp_path, digits_model, seed, tries):
    def make(folder: Path) -> Path:
        shutil.copytree(digits_model, folder / "model")
        lenet = initialise(ModelSpec("lenet", (1, 28, 28), tuple("0123456789")), seed=0)
        for name, zipped in (("new.pth", True), ("old.pth", False)):
            state = {"arch": "lenet", "state_dict": lenet.state_dict()}
            torch.save(state, folder / name, _use_new_zipfile_serialization=zipped)
        onnx = pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
        tensors = [("x", ["rows", 1, 8, 8]), ("scores", ["rows", 10])]
        ends = [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in tensors
        ]
        weights = onnx.numpy_helper.from_array(np.eye(64, 10, dtype=np.float32), "w")
        steps = [
            onnx.helper.make_node("Flatten", ["x"], ["flat"]),
            onnx.helper.make_node("MatMul", ["flat", "w"], ["scores"]),
        ]
        graph = onnx.helper.make_graph(steps, "g", ends[:1], ends[1:], [weights])
        opset = [onnx.helper.make_opsetid("", 17)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "model.onnx")
        return folder

    def commands(folder: Path, out: Path) -> list[list[str | Path]]:
        np.savez(tmp_path / "data.npz", x=np.zeros((2, 1, 28, 28)), y=np.zeros(2, np.int64))
        few = [*VOTES, "--sigma", "0.25", "--out", out / "answers"]
        named = {"model": "digits", "new.pth": "npz", "old.pth": "npz", "model.onnx": "digits"}
        data = {"digits": "digits", "npz": f"npz:{tmp_path / 'data.npz'}"}
        return [["predict", folder / name, "-d", data[kind], *few] for name, kind in named.items()]

    names = [f"model/{name}" for name in ("model.json", "model.safetensors", "recipe.toml")]
    names += ["new.pth", "old.pth", "model.onnx"]
    explore(tmp_path, make, names, commands, tries, seed)


@pytest.mark.slow
@AMOUNTS
def test_fits(tmp_path, digits_model, build_once, seed, tries):
    pytest.importorskip("matplotlib")

    def fit(out: Path) -> None:
        few = ["--max", "64", "--validation", "8", "--sub-epochs", "1", "--workers", "1", "--quiet"]
        main(["fit-noise", str(digits_model), "--init", "0.25", *few, "--out", str(out)])

    def make(folder: Path) -> Path:
        return Path(shutil.copytree(build_once("mutations-fit", fit), folder / "fit"))

    def commands(fit: Path, out: Path) -> list[list[str | Path]]:
        few = ["-d", "digits", *VOTES]
        return [
            ["sensitivity", fit],
            ["plot", fit, "--kind", "noise", "--out", out / "noise.svg"],
            ["plot", fit, "--kind", "clean-accuracy", "--out", out / "clean.svg"],
            ["predict", digits_model, "--noise", fit, *few, "--out", out / "answers"],
        ]

    names = ["fit/run.json", "fit/sigmas.npy", "fit/checkpoint.pt", "fit/sub-epochs/0.npy"]
    explore(tmp_path, make, names, commands, tries, seed)


@AMOUNTS
def test_pictures_and_arrays(tmp_path, digits_model, seed, tries):
    image = pytest.importorskip("PIL.Image")
    endings = ("png", "jpg", "bmp", "webp", "ppm", "tif")

    def make(folder: Path) -> Path:
        for ending in endings:
            (folder / ending / "a").mkdir(parents=True)
            image.new("L", (8, 8), 99).save(folder / ending / "a" / f"0.{ending}")
        np.savez(folder / "data.npz", x=np.zeros((2, 1, 8, 8)), y=np.zeros(2, np.int64))
        np.savez_compressed(folder / "packed.npz", x=np.zeros((2, 1, 8, 8)), y=np.zeros(2, np.int64))
        return folder

    def commands(folder: Path, out: Path) -> list[list[str | Path]]:
        few = [*VOTES, "--sigma", "0.25", "--out", out / "answers"]
        specs = [f"folder:{folder / ending}" for ending in endings]
        specs += [f"npz:{folder / name}.npz" for name in ("data", "packed")]
        return [["predict", digits_model, "-d", spec, *few] for spec in specs]

    names = [f"{ending}/a/0.{ending}" for ending in endings] + ["data.npz", "packed.npz"]
    explore(tmp_path, make, names, commands, tries, seed)


def test_the_checks_notice(tmp_path):
    """A command that starts a program or leaves a file behind fails them."""
    with pytest.raises(AssertionError), nothing_runs():
        os.system("true")
    (tmp_path / "a").write_text(json.dumps({}))
    before = tree(tmp_path)
    (tmp_path / "b").write_text("")
    assert tree(tmp_path) != before


# ------------------------------------------------- runs with σ levels: odd values with the right checksums


ODD_JSON: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2, 1.5, 64, 2**63, 10**30, 10**400, 1e308, -1e-320, float("nan"), float("inf")),
    *("", "cat", "constant", [], [0], [1, 2, 3], [-5, 3, 1], [10**9, 0, 0], {}, {"constant": 1}),
)

READ_LEVELS: tuple[Callable[[Path], object], ...] = (
    lambda run: verify_run(run),
    lambda run: recertified(read_run(run)),
    lambda run: recertified(read_run(run), alpha=0.01),
    lambda run: levels_used(read_run(run)),
    lambda run: summarise(read_run(run), [0.25]),
    lambda run: ranked_radii(read_run(run)),
    lambda run: make_payload([read_run(run)], ReportOptions(inputs=0)),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be put in the place of something else."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from places(one, (*path, key))


def with_odd_value(fields: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    changed = copy.deepcopy(fields)
    changed.pop("checksum", None)
    *way, last = chance.choice(list(places(changed)))
    parent: Any = changed
    for key in way:
        parent = parent[key]
    if chance.random() < 0.15:
        del parent[last]
    else:
        parent[last] = chance.choice(ODD_JSON)
    return sealed(changed)


@pytest.fixture(scope="module")
def levelled(tmp_path_factory) -> Path:
    return certified(tmp_path_factory.mktemp("hostile") / "run", n=100, chooser_n=100)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["levels.jsonl", "run.json"])
@pytest.mark.parametrize("tries", [40, pytest.param(600, marks=pytest.mark.campaign)])
def test_runs_with_sigma_levels(levelled, tmp_path, name, tries):
    run = without_checksums(Path(shutil.copytree(levelled, tmp_path / "run")))
    path = run / name
    text = (levelled / name).read_text()
    for number in range(tries):
        chance = random.Random(f"{name} {number}")
        if name == "run.json":
            fields = json.loads(text)
            part = chance.choice(["sigma_levels", "chooser", "chooser", "chooser", "plan"])
            plan = fields["plan"]
            chosen = plan if part == "plan" else {part: plan[part]}
            fields.pop("checksum")
            changed = with_odd_value(chosen, chance)
            changed.pop("checksum")
            fields["plan"] = {**({} if part == "plan" else plan), **changed}
            path.write_text(json.dumps(sealed(fields)))
        else:
            lines = [json.loads(line) for line in text.splitlines()]
            place = chance.randrange(len(lines))
            lines[place] = with_odd_value(lines[place], chance)
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        for read in READ_LEVELS:
            try:
                read(run)
            except (SmoothcertError, RunError):
                continue
            except BaseException:
                print(f"try {number}: {path.read_text()[:3000]}")
                raise
