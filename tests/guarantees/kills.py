"""Runs killed at random moments and continued: in the end they are what an undisturbed one is, to the last bit.

``python -m tests.guarantees.kills --kills 200`` prints how many kills there were and what they changed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from smoothcert.errors import RunError
from smoothcert.evaluation import certify_dataset
from smoothcert.evaluation.recertification import recertify
from smoothcert.noise_fit import FitPlan, fit_into
from smoothcert.region_memory.runs import remember
from smoothcert.runs import create_run, read_run
from smoothcert.runs.field_log import import_manifest, read_field_log, write_field_log
from smoothcert.runs.records import results_digest
from smoothcert.sampling.models import TorchClassifier
from smoothcert.training import train_into
from tests.guarantees.damages import KINDS, _classifier, points
from tests.training.toys import halves
from tests.training.toys import recipe as small_recipe
from tests.verification.runs import Linear

Job = Callable[[Path], str]
LIMIT = 300.0  # seconds that a job may take
_STEP = 0.002  # seconds between two looks whether it has ended


@contextmanager
def unless_finished(run: Path) -> Iterator[None]:
    """Whoever was killed after the last byte finds the run finished, and is refused another one in its place."""
    try:
        yield
    except RunError:
        if not read_run(run).complete:
            raise


def certifying(kind: str) -> Job:
    """A certification of one kind."""
    return lambda path: results_digest(certify_dataset(_classifier(kind), points(), path / "run").records)


def recertifying(path: Path) -> str:
    """Another α for votes that are there."""
    with unless_finished(path / "run"):
        recertify(read_run(path.with_name("source")), path / "run", alpha=0.01)
    return results_digest(read_run(path / "run").records)


def remembering(path: Path) -> str:
    """A run through a memory; its account of where answers came from counts, too."""
    with unless_finished(path / "run"):
        remember(read_run(path.with_name("source")), points(), path / "memory", path / "run")
    run = read_run(path / "run")
    lines = [
        json.loads(line)
        for line in (path / "run" / "answers.jsonl").read_text().splitlines()
        if line[-1:] == "}"
    ]
    sources = sorted((line["index"], line["source"]) for line in lines if "source" in line)
    return results_digest(run.records) + repr(sources) + run.manifest.plan.memory["head"]


def importing(path: Path) -> str:
    """A log made a run."""
    source = path.with_name("log.tsv")
    log = read_field_log(source, 0.5)
    stated = dict.fromkeys(("bound", "n0", "n", "alpha", "data_name", "method"))
    manifest = import_manifest(source, 0.5, noise="gaussian", read=log, **stated)  # type: ignore[arg-type]
    with unless_finished(path / "run"):
        create_run(path / "run", manifest, log.records)
    return results_digest(read_run(path / "run").records)


def training(path: Path) -> str:
    """Three epochs of a small network."""
    train_into(path / "run", small_recipe(epochs=3), halves(10))
    return (path / "run" / "model.safetensors").read_bytes().hex()


def fitting(path: Path) -> str:
    """A fit of a σ vector."""
    plan = FitPlan(init=0.3, sub_epochs=3, validation=2, validation_n0=10, validation_n=50, route="gradient")
    fit = fit_into(path / "run", TorchClassifier(Linear()), points(), plan)
    assert fit.noise is not None
    return fit.noise.sha256 + repr(fit.history)


JOBS: dict[str, Job] = {
    **{f"certify {kind}": certifying(kind) for kind in KINDS},
    "recertify": recertifying,
    "remember": remembering,
    "import-log": importing,
    "train": training,
    "fit-noise": fitting,
}


def started(job: Job, path: Path) -> int:
    """A process of its own that does the job and writes down what came of it."""
    process = os.fork()
    if process:
        return process
    try:
        path.mkdir(exist_ok=True)
        result = job(path)
        (path / "result.part").write_text(result)
        (path / "result.part").rename(path / "result")  # whole or not there: a kill may hit this, too
    except BaseException:
        (path / "error").write_text(traceback.format_exc())
    finally:
        os._exit(0)


def ended(process: int) -> int:
    """Its exit code when it has ended; one that takes longer than ``LIMIT`` seconds is killed, which is an error."""
    deadline = time.monotonic() + LIMIT
    while (found := os.waitpid(process, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            raise AssertionError(f"process {process} has not ended after {LIMIT:g} s")
        time.sleep(_STEP)
    return os.waitstatus_to_exitcode(found[1])


def disturbed(job: Job, path: Path, seconds: float, kills: int, chance: random.Random) -> int:
    """Do a job under ``kills`` kills, each at a moment up to ``seconds`` after its start; how many hit it."""
    hit = 0
    for _ in range(kills):
        process = started(job, path)
        time.sleep(chance.uniform(0, seconds))
        os.kill(process, signal.SIGKILL)
        ended(process)
        if (path / "result").exists() or (path / "error").exists():
            break
        hit += 1
    else:
        ended(started(job, path))
    return hit


def campaign(folder: Path, kills: int, seed: int, names: list[str] | None = None) -> tuple[int, list[str]]:
    """So many kills over all jobs; how many there were, and what was changed by them."""
    chance = random.Random(seed)
    ended(started(certifying("plain"), folder / "made"))
    (folder / "made" / "run").rename(folder / "source")
    with (folder / "log.tsv").open("w") as stream:
        write_field_log(read_run(folder / "source").records, stream)
    expected, seconds = {}, {}
    for name in names or list(JOBS):
        begun = time.monotonic()
        ended(started(JOBS[name], folder / "whole"))
        seconds[name] = time.monotonic() - begun
        error = folder / "whole" / "error"
        assert not error.exists(), error.read_text()
        expected[name] = (folder / "whole" / "result").read_text()
        shutil.rmtree(folder / "whole")
    count, wrong = 0, []
    for _ in range(10 * kills):  # a job may end before its kills have come
        if count >= kills:
            break
        for name, whole in expected.items():
            path = folder / "disturbed"
            count += disturbed(JOBS[name], path, seconds[name], 3, chance)
            error = path / "error"
            if error.exists():
                wrong.append(f"{name}: {error.read_text()}")
            elif (path / "result").read_text() != whole:
                wrong.append(f"{name}: another result")
            shutil.rmtree(path)
    return count, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        count, wrong = campaign(Path(place), options.kills, options.seed)
    for line in wrong:
        print(line)
    print(f"{count} kills, {len(wrong)} changed results or errors")
    sys.exit(bool(wrong))
