"""Damage to the files of runs, and what commands and resumed runs then say: the same figures, or that it is damaged.

``python -m tests.guarantees.damages --tries 1000 --seed 1`` prints what came of so many damages.
"""

import argparse
import contextlib
import io
import random
import re
import shutil
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert import SmoothedClassifier
from smoothcert.cli import main
from smoothcert.datasets.base import Dataset
from smoothcert.errors import SmoothcertError
from smoothcert.evaluation.certification import Progress, certify_dataset
from smoothcert.evaluation.remembering import remember
from smoothcert.experimental.levels.choosers import StatisticChooser
from smoothcert.experimental.levels.classifier import LevelledClassifier
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.runs.field_log import import_manifest, read_field_log, write_field_log
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import Run, create_run
from smoothcert.smoothing.fits.fit import fit_into
from smoothcert.smoothing.fits.objective import FitProgress
from smoothcert.smoothing.fits.plan import FitPlan
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch
from smoothcert.smoothing.search.by_votes import LadderSearch
from smoothcert.training.runs import train_into
from tests.training.toys import halves
from tests.training.toys import recipe as small_recipe
from tests.verification.runs import SIGMAS, STRETCHED, Linear, bands, scores

POINTS = 10
BLOCK = 512
DAMAGES = ("flip", "flips", "cut", "swap", "zeros", "gone")
_NOW = re.compile(r'"made": ?"[^"]*"')


class Killed(BaseException):
    """Ends a run in the middle, as a kill would: what it has on disk stays."""


@dataclass(frozen=True)
class Specimen:
    """A run in ``path``: commands that read it, how it is continued, and to which result."""

    path: Path
    reading: list[list[str]]
    resume: Callable[[], str] | None


def points() -> Dataset:
    """Points at several distances from the border between two classes."""
    x = np.zeros((POINTS, 3), np.float32)
    x[:, 0] = np.linspace(-1.2, 1.0, POINTS)
    return Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("a", "b", "c"))


def _classifier(kind: str) -> SmoothedClassifier:
    if kind == "searched":
        return SmoothedClassifier(Linear(), sigma=0.5, n=400, n0=20, search=LadderSearch())
    if kind == "ellipsoid":
        search = EllipsoidSearch(steps=5, samples=4, lr=0.1)
        return SmoothedClassifier(Linear(), sigma=0.5, n=400, n0=20, search=search)
    if kind == "stretched":
        plan = CertifyPlan(STRETCHED["diagonal-gaussian"](SIGMAS), n=400, n0=20)
        return SmoothedClassifier(bands, plan, outputs="labels", classes=3)
    if kind == "soft":
        return SmoothedClassifier(scores, sigma=0.5, n=400, n0=20, bound="hoeffding", outputs="scores")
    if kind == "levelled":
        votes = {"n": 400, "n0": 20, "chooser_n0": 20, "chooser_n": 200}
        chooser = StatisticChooser("mean", (-0.1, 0.1))
        return LevelledClassifier(scores, chooser, sigmas=(0.3, 0.4, 0.5), **votes)
    stop = {"stop": ("total:4000,100",)} if kind == "total" else {}
    return SmoothedClassifier(bands, sigma=0.5, n=400, n0=20, outputs="labels", classes=3, **stop)


EARLIER_KINDS = ("plain", "total", "searched", "ellipsoid", "stretched", "soft")
"""Those of which there are runs without checksums."""
KINDS = (*EARLIER_KINDS, "levelled")


def certified(kind: str, out: Path, most: int | None = None) -> Run:
    """A run of one kind, finished or, after ``most`` records, as a kill leaves it: with a write-ahead file."""
    if most is None:
        return certify_dataset(_classifier(kind), points(), out)
    done = 0
    work = out.with_name(f"{out.name}-before")

    def copy(_: object) -> None:
        nonlocal done
        done += 1
        if done == most:
            out.mkdir()
            for path in sorted(work.rglob("*")):
                if path.is_file() and not path.name.endswith("-shm"):
                    (out / path.relative_to(work)).parent.mkdir(exist_ok=True)
                    shutil.copyfile(path, out / path.relative_to(work))

    run = certify_dataset(_classifier(kind), points(), work, progress=Progress(record=copy))
    shutil.rmtree(work)
    return run


def _digest(run: Run) -> str:
    return results_digest(run.records)


def readers(run: Path, out: Path, other: Path, stateful: bool = False) -> list[list[str]]:
    """Commands that print a run's figures, or make another run of them."""
    made = [
        ["table", run, "--format", "json"],
        ["show", run, "--json"],
        ["export-log", run],
        ["compare", run, other],
        ["verify", run, "--format", "json"],
        ["report", run, "--out", out / "report"],
    ]
    if not stateful:
        made.append(["recertify", run, "--alpha", "0.01", "--out", out / "again", "--json"])
    return [[str(word) for word in words] for words in made]


def certified_specimens(folder: Path) -> Iterator[Specimen]:
    """Runs of every kind, finished and not."""
    other, out = folder / "other", folder / "out"
    certified("plain", other)
    for kind in KINDS:
        for most in (None, 6):
            path = folder / f"{kind}-{'finished' if most is None else 'under way'}"
            certified(kind, path, most)

            def resume(kind: str = kind, path: Path = path) -> str:
                return _digest(certify_dataset(_classifier(kind), points(), path))

            yield Specimen(path, readers(path, out, other), resume)


def other_specimens(folder: Path) -> Iterator[Specimen]:
    """Runs made in one go, trainings and fits."""
    other, out = folder / "other-2", folder / "out"
    source = certified("plain", other)
    remembered = folder / "remembered"
    remember(source, points(), folder / "memory", remembered)
    yield Specimen(remembered, readers(remembered, out, other, stateful=True), None)
    with (folder / "log.tsv").open("w") as stream:
        write_field_log(source.records, stream)
    log = read_field_log(folder / "log.tsv", 0.5)
    given: dict[str, Any] = dict.fromkeys(("bound", "n0", "n", "alpha", "data_name", "method"))
    manifest = import_manifest(folder / "log.tsv", 0.5, noise="gaussian", read=log, **given)
    create_run(folder / "imported", manifest, log.records)
    yield Specimen(folder / "imported", readers(folder / "imported", out, other, stateful=True), None)

    data, recipe = halves(10), small_recipe(epochs=3)

    def trained(path: Path, stop: int | None = None) -> str:
        def listen(metrics: Any) -> None:
            if metrics.epoch == stop:
                raise Killed

        history = train_into(path, recipe, data, listeners=[listen])
        state = torch.load(path / "checkpoint.pt", weights_only=True)["model"]
        return repr([(k, v.numpy().tobytes()) for k, v in state.items()]) + repr(
            [one.loss for one in history]
        )

    def fitted(path: Path, stop: int | None = None) -> str:
        def listen(one: Any) -> None:
            if one.sub_epoch == stop:
                raise Killed

        plan = FitPlan(
            init=0.3, sub_epochs=2, validation=2, validation_n0=10, validation_n=50, route="gradient"
        )
        fit = fit_into(path, TorchClassifier(Linear()), points(), plan, progress=FitProgress(epoch=listen))
        return fit.noise.sha256 + repr(fit.history)

    for name, make in (("trained", trained), ("fitted", fitted)):
        for stop in (1, None):
            path = folder / f"{name}-{stop}"
            with contextlib.suppress(Killed):
                make(path, stop)
            yield Specimen(path, [], lambda path=path, make=make: make(path))


def damaged(content: bytes, chance: random.Random, kind: str | None = None) -> tuple[str, bytes | None]:
    """What happened to a file's bytes, and what is left; None: the file is gone. Without a kind, any of them."""
    kind = kind or chance.choice(["flip", "flip", *DAMAGES])
    changed = bytearray(content)
    if kind == "gone" or not content:
        return "gone", None
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else 8):
            changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del changed[chance.choice([0, chance.randrange(len(content)), len(content) // BLOCK * BLOCK // 2]) :]
    else:
        block = min(chance.choice([BLOCK, 4096]), max(1, len(content) // 2))
        a, b = (chance.randrange(max(1, len(content) // block)) * block for _ in range(2))
        first, second = bytes(changed[a : a + block]), bytes(changed[b : b + block])
        if kind == "zeros":
            changed[a : a + block] = bytes(len(first))
        elif len(first) == len(second):
            changed[a : a + block], changed[b : b + block] = second, first
    return kind, bytes(changed)


def outcome(words: list[str], out: Path) -> tuple[int, str, str]:
    """Exit code, output and errors of a command in this process; any exception is a traceback to a user."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    printed, said = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said), warnings.catch_warnings():
        try:
            main(words)
        except SystemExit as end:
            code = end.code or 0
    pages = [_NOW.sub("", page.read_text()) for page in sorted((out / "report").rglob("*.html"))]
    shown = "".join([printed.getvalue(), *pages])
    return int(code), shown, said.getvalue()


def tree(path: Path) -> dict[Path, bytes]:
    """Every file of a directory."""
    return {one.relative_to(path): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file()}


def restore(path: Path, files: dict[Path, bytes]) -> None:
    """Make the directory what it was."""
    shutil.rmtree(path)
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)


def explore(
    specimen: Specimen, tries: int, seed: int, commands: int = 2, kind: str | None = None
) -> tuple[Counter[str], list[str]]:
    """Damage the specimen's files one at a time: how often what happened, and everything that must not."""
    files = tree(specimen.path)
    out = specimen.path.parent / "out"
    expected: dict[tuple[str, ...], tuple[int, str, str]] = {}
    result = None if specimen.resume is None else specimen.resume()
    restore(specimen.path, files)
    told: Counter[str] = Counter()
    wrong = []
    for number in range(tries):
        chance = random.Random(f"{seed} {specimen.path.name} {number}")
        for _ in range(1 if kind is None else 100):  # equal blocks that are exchanged are no damage
            name = chance.choice(sorted(files))
            happened, content = damaged(files[name], chance, kind)
            if content != files[name] and kind in (None, happened):
                break
        else:
            continue
        about = f"{specimen.path.name}: {happened} of {name} (try {number})"
        chosen = chance.sample(specimen.reading, min(commands, len(specimen.reading)))
        for words in chosen:
            if tuple(words) not in expected:
                code, _, said = expected[tuple(words)] = outcome(words, out)
                # Searched runs aren't recertified; runs under way aren't compared.
                fine = (
                    code == 0 or words[0] in ("recertify", "compare") or (words[0] == "verify" and code == 5)
                )
                assert fine, (words, said)
        for words in chosen:
            _damage(specimen.path / name, content)
            told["commands"] += 1
            told[words[0]] += 1
            try:
                code, shown, said = outcome(words, out)
            except BaseException:
                wrong.append(f"{about}: traceback of {words[0]}\n{traceback.format_exc()}")
                continue
            before = expected[tuple(words)]
            if code in (0, 5) and code == before[0] and shown != before[1]:
                wrong.append(f"{about}: {words[0]} prints other figures")
            if "Traceback" in said or (code not in (0, 2, 4, 5)):
                wrong.append(f"{about}: {words[0]} ends with {code}: {said}")
            told["noticed" if code != before[0] else "unchanged"] += 1
        if specimen.resume is not None:
            _damage(specimen.path / name, content)
            told["resumed"] += 1
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    again = specimen.resume()
                if again != result:
                    wrong.append(f"{about}: resumed to another result")
                told["resumed to the same bits"] += 1
            except SmoothcertError:
                told["resuming refused"] += 1
            except BaseException:
                wrong.append(f"{about}: traceback of the resumed run\n{traceback.format_exc()}")
        told["damages"] += 1
        told[happened] += 1
        restore(specimen.path, files)
    return told, wrong


def _damage(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)


def one_of_each(specimens: Iterable[Specimen]) -> tuple[Counter[str], list[str]]:
    """One damage of every specimen; kinds of damage, and the commands that then read it, take turns."""
    told: Counter[str] = Counter()
    wrong = []
    for number, specimen in enumerate(list(specimens)):
        turn = number % max(1, len(specimen.reading))
        asked = replace(specimen, reading=specimen.reading[turn : turn + 1])
        kind = DAMAGES[(number + number // len(DAMAGES)) % len(DAMAGES)]
        counted, found = explore(asked, 1, seed=0, kind=kind)
        told.update(counted)
        wrong += found
    return told, wrong


def campaign(folder: Path, tries: int, seed: int) -> tuple[Counter[str], list[str]]:
    """``tries`` damages over specimens of every kind."""
    specimens = [*certified_specimens(folder), *other_specimens(folder)]
    told: Counter[str] = Counter()
    wrong = []
    for specimen in specimens:
        counted, found = explore(specimen, -(-tries // len(specimens)), seed)
        told.update(counted)
        wrong += found
    return told, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        told, wrong = campaign(Path(place), options.tries, options.seed)
    for line in wrong:
        print(line)
    print(dict(told))
    print(f"{len(wrong)} silent changes or tracebacks")
