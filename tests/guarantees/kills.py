"""Runs killed at random moments and resumed: in the end they are what an undisturbed one is, to the last bit.

Killed are the process that owns a run, its workers, and nodes of a Ray cluster. ``python -m tests.guarantees.kills
--kills 200`` prints how many kills of each kind hit each job and what they changed; Ray is among the jobs where it is
installed.
"""

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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import torch
from torch import nn

from smoothcert import SmoothedClassifier, databases
from smoothcert.cli import certify as _certify  # noqa: F401  (loaded once, before processes are forked)
from smoothcert.cli import main
from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution
from smoothcert.errors import RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.evaluation.merging import merge
from smoothcert.evaluation.recertification import recertify
from smoothcert.evaluation.remembering import remember
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.runs.field_log import import_manifest, read_field_log, write_field_log
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import create_run, read_run
from smoothcert.runs.statement import Choice, Shard
from smoothcert.smoothing.fits.fit import fit_into
from smoothcert.smoothing.fits.plan import FitPlan
from smoothcert.training.runs import train_into
from smoothcert_verify import verify_run
from tests.guarantees.damages import KINDS, _classifier, points
from tests.training.toys import halves
from tests.training.toys import recipe as small_recipe
from tests.verification.runs import Linear

Job = Callable[[Path], str]
"""Works in a directory and returns what must come out of it."""

ROOT = Path(__file__).parents[2]
LIMIT = 300.0  # seconds that a job may take
_STEP = 0.002  # seconds between two looks whether it has ended
_ADDRESS = "SMOOTHCERT_TEST_RAY"
_MOST_OF_WORKERS = (
    2  # in one life of their owner: more, with nothing done between them, are an error by design
)


@contextmanager
def unless_finished(run: Path) -> Iterator[None]:
    """Whoever was killed after the last byte finds the run finished, and is refused another one in its place."""
    try:
        yield
    except RunError:
        if not read_run(run).complete:
            raise


def certifying(kind: str) -> Job:
    return lambda path: results_digest(certify_dataset(_classifier(kind), points(), path / "run").records)


def recertifying(path: Path) -> str:
    with unless_finished(path / "run"):
        recertify(read_run(path.parent / "source"), path / "run", alpha=0.01)
    return results_digest(read_run(path / "run").records)


def remembering(path: Path) -> str:
    """A run through a memory; its account of where answers came from counts, too."""
    with unless_finished(path / "run"):
        remember(read_run(path.parent / "source"), points(), path / "memory", path / "run")
    run = read_run(path / "run")
    lines = (path / "run" / "answers.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines if line.endswith("}")]
    sources = sorted((line["index"], line["source"]) for line in answers if "source" in line)
    return results_digest(run.records) + repr(sources) + run.manifest.plan.memory["head"]


def importing(path: Path) -> str:
    source = path.parent / "log.tsv"
    log = read_field_log(source, 0.5)
    stated = dict.fromkeys(("bound", "n0", "n", "alpha", "data_name", "method"))
    manifest = import_manifest(source, 0.5, noise="gaussian", read=log, **stated)
    with unless_finished(path / "run"):
        create_run(path / "run", manifest, log.records)
    return results_digest(read_run(path / "run").records)


def training(path: Path) -> str:
    train_into(path / "run", small_recipe(epochs=3), halves(10))
    return (path / "run" / "model.safetensors").read_bytes().hex()


def fitting(path: Path) -> str:
    plan = FitPlan(init=0.3, sub_epochs=3, validation=2, validation_n0=10, validation_n=50, route="gradient")
    fit = fit_into(path / "run", TorchClassifier(Linear()), points(), plan)
    return fit.noise.sha256 + repr(fit.history)


torch.manual_seed(0)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def commanding(*options: str) -> Job:
    """The command line's certification of digits."""

    def job(path: Path) -> str:
        words = ["certify", "tests.guarantees.kills:network", "--dataset", "digits", "--sigma", "0.25"]
        words += ["--n", "4000", "--max", "24", "--chunk", "64", "--quiet", "--out", str(path / "run")]
        main([*words, *options])
        return results_digest(read_run(path / "run").records)

    return job


INPUTS, VOTES, SHARDS = 40, 20_000, 3


def certified(path: Path, choice: Choice | None = None, **execution: Any) -> str:
    """A longer certification than those above, and that it verifies."""
    x = np.zeros((INPUTS, 3), np.float32)
    x[:, 0] = np.linspace(-1.2, 1.0, INPUTS)
    data = Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("a", "b", "c"))
    how = Execution(**execution)
    run = certify_dataset(
        SmoothedClassifier(Linear(), sigma=0.5, n=VOTES, seed=7, execution=how), data, path, choice
    )
    assert verify_run(path).report.holds
    return results_digest(run.records)


def on_a_network(path: Path) -> str:
    """On a file system that the kernel calls a network's."""
    databases.MOUNTS = path / "mountinfo"
    databases.MOUNTS.write_text(f"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / {path.resolve()} rw - nfs4 b rw\n")
    return certified(path / "run", workers=1)


def in_shards(path: Path) -> str:
    parts = [path / str(number) for number in range(1, SHARDS + 1)]
    for number, part in enumerate(parts, start=1):
        certified(part, Choice(shard=Shard(number, SHARDS)), workers=1)
    with unless_finished(path / "run"):
        merge(parts, path / "run")
    assert verify_run(path / "run").report.holds
    return results_digest(read_run(path / "run").records)


COMMANDS: dict[str, Job] = {
    **{f"certify {kind}": certifying(kind) for kind in KINDS},
    "command": commanding(),
    "command on the device path": commanding("--generator", "philox"),
    "recertify": recertifying,
    "remember": remembering,
    "import-log": importing,
    "train": training,
    "fit-noise": fitting,
}
BACKENDS: dict[str, Job] = {
    "threads": lambda path: certified(path / "run", workers=2),
    "network": on_a_network,
    "shards": in_shards,
    "processes": lambda path: certified(path / "run", workers=2, backend="processes"),
    "ray": lambda path: certified(path / "run", workers=2, backend="ray", address=os.environ.get(_ADDRESS)),
}
"""All with the results of the first."""
JOBS = COMMANDS | BACKENDS
WORKERS = ("processes", "ray")
"""Backends whose workers are processes of their own."""


@dataclass
class Child:
    """A process that this one started."""

    pid: int
    code: int | None = None

    def ends_within(self, seconds: float) -> bool:
        """Wait so long, at most."""
        deadline = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(_STEP)
        return True

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.ends_within(LIMIT)


def ended(process: int) -> int:
    """Its exit code when it has ended; one that takes longer than ``LIMIT`` seconds is killed, which is an error."""
    child = Child(process)
    if not child.ends_within(LIMIT):
        child.kill()
        raise AssertionError(f"process {process} has not ended after {LIMIT:g} s")
    assert child.code is not None
    return child.code


def do(name: str, path: Path) -> NoReturn:
    """Do the job in this process, which ends with it, and write down what came of it."""
    try:
        result = JOBS[name](path)
        (path / "result.part").write_text(result)
        (path / "result.part").rename(path / "result")  # whole or not there: a kill may hit this, too
    except BaseException:
        (path / "error").write_text(traceback.format_exc())
    finally:
        os._exit(0)


def started(name: str, path: Path) -> Child:
    """A fork, which has torch already; for Ray, whose client doesn't survive a fork, a new process."""
    path.mkdir(exist_ok=True)
    if name == "ray":
        words = [sys.executable, "-W", "ignore", "-m", "tests.guarantees.kills", "--do", name, str(path)]
        return Child(os.posix_spawn(sys.executable, words, os.environ | {"OMP_NUM_THREADS": "1"}))
    process = os.fork()
    if not process:
        do(name, path)
    return Child(process)


def workers_of(name: str, owner: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        if name == "processes":
            children = psutil.Process(owner).children(recursive=True)
            return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        if name == "ray":
            every = psutil.process_iter(["cmdline"])
            return [process for process in every if "ray::_cast" in " ".join(process.info["cmdline"] or [])]
    return []


@dataclass
class Outcome:
    """Kills that hit something, by job and kind, and what went wrong."""

    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{name}: {count} kills of the {kind}" for (name, kind), count in sorted(self.kills.items())]
        last = f"{self.kills.total()} kills, {len(self.wrong)} changed results or errors"
        return "\n".join([*lines, *self.wrong, last])


def disturbed(
    name: str, path: Path, seconds: float, kills: int, chance: random.Random, outcome: Outcome, cluster: Any
) -> None:
    """One job under so many kills at random moments, resumed until it is finished."""
    owner, of_workers = started(name, path), 0
    for _ in range(kills):
        # Half of the kills come once there are workers, which takes longer than their work.
        begun = name in WORKERS and chance.random() < 0.5
        deadline = time.monotonic() + LIMIT
        while begun and not workers_of(name, owner.pid) and not owner.ends_within(0.05):
            assert time.monotonic() < deadline, f"{name}: no worker after {LIMIT:g} s"
        if owner.ends_within(chance.uniform(0, seconds / 4 if begun else seconds)):
            break
        workers = workers_of(name, owner.pid)
        kinds = ["owner"] + ["worker"] * (2 if workers and of_workers < _MOST_OF_WORKERS else 0)
        kind = chance.choice(kinds + (["node"] if name == "ray" and cluster and workers else []))
        if kind == "worker":
            with suppress(psutil.Error):
                chance.choice(workers).kill()
            of_workers += 1
        elif kind == "node":
            cluster.remove_node(chance.choice([*cluster.worker_nodes]), allow_graceful=False)
            cluster.add_node(num_cpus=1)
        else:
            owner.kill()
            owner, of_workers = started(name, path), 0
        outcome.kills[name, kind] += 1
    assert owner.ends_within(LIMIT), f"the owner of {path} has not ended after {LIMIT:g} s"


@contextmanager
def ray_nodes() -> Iterator[Any]:
    """A head without CPUs for workers, which is never killed, and two nodes with a CPU each."""
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), before)))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(2):
            made.add_node(num_cpus=1)
        os.environ[_ADDRESS] = made.address
        yield made
    finally:
        made.shutdown()
        os.environ["PYTHONPATH"] = before


def result_of(path: Path) -> str:
    error = path / "error"
    assert not error.exists(), error.read_text()
    return (path / "result").read_text()


def campaign(folder: Path, kills: dict[str, int], seed: int, each: int = 3) -> Outcome:
    """So many kills of each job, ``each`` at a time; every result is held against one that nobody disturbed."""
    outcome, chance = Outcome(), random.Random(seed)
    ended(started("certify plain", folder / "made").pid)
    (folder / "made" / "run").rename(folder / "source")
    with (folder / "log.tsv").open("w") as stream:
        write_field_log(read_run(folder / "source").records, stream)
    whole: dict[str, tuple[str, float]] = {}
    with ExitStack() as held:
        cluster = held.enter_context(ray_nodes()) if "ray" in kills else None
        for name, wanted in kills.items():
            same = "threads" if name in BACKENDS else name
            if same not in whole:
                begun = time.monotonic()
                ended(started(same, folder / f"whole {same}").pid)
                whole[same] = result_of(folder / f"whole {same}"), time.monotonic() - begun
            expected, seconds = whole[same]
            for number in range(10 * wanted):  # a job may end before all of its kills have come
                left = wanted - sum(count for (of, _), count in outcome.kills.items() if of == name)
                if left <= 0 or outcome.wrong:
                    break
                path = folder / f"{name} {number}"
                longest = seconds + (4 if name in WORKERS else 0)
                disturbed(name, path, longest, min(each, left), chance, outcome, cluster)
                try:
                    assert result_of(path) == expected, "another result"
                except AssertionError as error:
                    outcome.wrong.append(f"{name}: {error}")
                shutil.rmtree(path)
    return outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.guarantees.kills")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--do", nargs=2, metavar=("JOB", "PATH"), help="be the owner of a run")
    options = parser.parse_args()
    if options.do:
        do(options.do[0], Path(options.do[1]))
    names = [name for name in options.jobs if name != "ray" or find_spec("ray") is not None]
    share, rest = divmod(options.kills, len(names))
    with tempfile.TemporaryDirectory() as place:
        wanted = {name: share + (number < rest) for number, name in enumerate(names)}
        outcome = campaign(Path(place), wanted, options.seed)
    print(outcome)
    sys.exit(bool(outcome.wrong))
