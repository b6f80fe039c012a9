"""Random kills over all backends: of the process that owns a run, of its workers, of nodes. The results don't change.

``python -m tests.guarantees.backend_kills --kills 100`` prints how many kills of each kind hit each backend and what
they changed; Ray is among them where it is installed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from smoothcert import SmoothedClassifier, mounts
from smoothcert.datasets.base import Dataset
from smoothcert.evaluation import Choice, certify_dataset
from smoothcert.evaluation.merging import merge
from smoothcert.runs import Run, read_run
from smoothcert.runs.shards import Shard
from smoothcert.sampling import Execution
from smoothcert.verification import verify_run
from tests.guarantees.kills import LIMIT, unless_finished
from tests.verification.runs import Linear

ROOT = Path(__file__).parents[2]
INPUTS, VOTES, SHARDS = 40, 20_000, 3
_MOST_OF_WORKERS = (
    2  # in one life of their owner: more, with nothing done between them, are an error by design
)


def inputs() -> Dataset:
    x = np.zeros((INPUTS, 3), np.float32)
    x[:, 0] = np.linspace(-1.2, 1.0, INPUTS)
    return Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("a", "b", "c"))


def certified(path: Path, execution: Execution, choice: Choice | None = None) -> Run:
    classifier = SmoothedClassifier(Linear(), sigma=0.5, n=VOTES, seed=7, execution=execution)
    return certify_dataset(classifier, inputs(), path, choice)


def threads(path: Path, _address: str | None) -> Run:
    return certified(path / "run", Execution(workers=2))


def network(path: Path, _address: str | None) -> Run:
    """On a file system that the kernel calls a network's."""
    table = path / "mountinfo"
    table.write_text(f"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / {path.resolve()} rw - nfs4 b rw\n")
    mounts.TABLE = table
    return certified(path / "run", Execution(workers=1))


def shards(path: Path, _address: str | None) -> Run:
    parts = [path / str(number) for number in range(1, SHARDS + 1)]
    for number, part in enumerate(parts, start=1):
        certified(part, Execution(workers=1), Choice(shard=Shard(number, SHARDS)))
    with unless_finished(path / "run"):
        merge(parts, path / "run")
    return read_run(path / "run")


def processes(path: Path, _address: str | None) -> Run:
    return certified(path / "run", Execution(workers=2, backend="processes"))


def ray(path: Path, address: str | None) -> Run:
    return certified(path / "run", Execution(workers=2, backend="ray", address=address))


JOBS: dict[str, Callable[[Path, str | None], Run]] = {
    "threads": threads,
    "network": network,
    "shards": shards,
    "processes": processes,
    "ray": ray,
}


class Owner:
    """The owner of a run, which goes on with it: a fork of this process, which has torch already; on Ray a new one."""

    def __init__(self, name: str, path: Path, address: str | None) -> None:
        self._path = path
        if name == "ray":  # whose client doesn't survive a fork
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            words = [sys.executable, "-W", "ignore", "-m", "tests.guarantees.backend_kills"]
            words += ["--do", name, str(path), *([] if address is None else ["--address", address])]
            with (path / "said").open("ab") as said:
                self._program = subprocess.Popen(words, env=environment, stdout=said, stderr=said, cwd=ROOT)
            self.pid = self._program.pid
        else:
            self._fork = multiprocessing.get_context("fork").Process(target=self._do, args=(name,))
            self._fork.start()
            assert self._fork.pid is not None
            self.pid = self._fork.pid

    def _do(self, name: str) -> None:
        try:
            JOBS[name](self._path, None)
        except BaseException:
            (self._path / "said").write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)

    def ends_within(self, seconds: float) -> bool:
        """Wait so long, at most."""
        if hasattr(self, "_fork"):
            self._fork.join(seconds)
            return self._fork.exitcode is not None
        try:
            self._program.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def wait(self) -> int:
        """Its exit code; one that takes longer than ``LIMIT`` seconds is killed, which is an error."""
        if not self.ends_within(LIMIT):
            self.kill()
            raise AssertionError(f"the owner of {self._path} has not ended after {LIMIT:g} s")
        return (self._program.returncode if hasattr(self, "_program") else self._fork.exitcode) or 0

    def kill(self) -> None:
        """At once."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.ends_within(LIMIT)


WORKERS = ("processes", "ray")
"""Backends whose workers are processes of their own."""


def workers_of(name: str, owner: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        if name == "processes":
            children = psutil.Process(owner).children(recursive=True)
            return [one for one in children if "spawn_main" in " ".join(one.cmdline())]
        if name == "ray":
            every = psutil.process_iter(["cmdline"])
            return [one for one in every if "RemoteWorker" in " ".join(one.info["cmdline"] or [])]
    return []


@dataclass
class Tally:
    """Kills that hit something, by backend and kind, and what went wrong."""

    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{name}: {count} kills of the {kind}" for (name, kind), count in sorted(self.kills.items())]
        lines += [f"{name}: {count} runs finished" for name, count in sorted(self.finished.items())]
        return "\n".join(
            [*lines, *self.wrong, f"{self.kills.total()} kills, {len(self.wrong)} lost or changed"]
        )


def disturbed(
    name: str, path: Path, seconds: float, kills: int, chance: random.Random, tally: Tally, cluster: Any
) -> None:
    """One run under so many kills at random moments, resumed until it is finished."""
    path.mkdir()
    address = None if cluster is None or name != "ray" else cluster.address
    left, of_workers = kills, 0
    owner = Owner(name, path, address)
    while left:
        # Half of the kills come once there are workers, which takes longer than their work.
        begun = chance.random() < 0.5
        deadline = time.monotonic() + LIMIT
        while begun and name in WORKERS and not workers_of(name, owner.pid) and not owner.ends_within(0.05):
            assert time.monotonic() < deadline, f"{name}: no worker after {LIMIT:g} s"
        if owner.ends_within(chance.uniform(0, seconds / 4 if begun else seconds)):
            break
        workers = workers_of(name, owner.pid)
        kinds = ["owner"] + ["worker"] * (2 if workers and of_workers < _MOST_OF_WORKERS else 0)
        kinds += ["node"] if address is not None and workers else []
        kind = chance.choice(kinds)
        if kind == "worker":
            with suppress(psutil.Error):
                chance.choice(workers).kill()
            of_workers += 1
        elif kind == "node":
            cluster.remove_node(chance.choice([*cluster.worker_nodes]), allow_graceful=False)
            cluster.add_node(num_cpus=1)
        else:
            owner.kill()
            owner, of_workers = Owner(name, path, address), 0
        tally.kills[name, kind] += 1
        left -= 1
    if owner.wait():
        tally.wrong.append(f"{name}: {(path / 'said').read_text()[-2000:]}")
    else:
        tally.finished[name] += 1


@contextmanager
def ray_nodes() -> Iterator[Any]:
    """A head without room for workers, which is never killed, and two nodes with a CPU each."""
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), before)))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(2):
            made.add_node(num_cpus=1)
        yield made
    finally:
        made.shutdown()
        os.environ["PYTHONPATH"] = before


def campaign(folder: Path, kills: dict[str, int], seed: int, each: int = 4) -> Tally:
    """So many kills of each backend, ``each`` in a run; every run is held against one that nobody disturbed."""
    tally, chance = Tally(), random.Random(seed)
    begun = time.monotonic()
    (folder / "whole").mkdir()
    assert Owner("threads", folder / "whole", None).wait() == 0
    seconds = {name: time.monotonic() - begun + (4 if name in WORKERS else 0) for name in kills}
    expected = read_run(folder / "whole" / "run").records.digest
    with ExitStack() as held:
        cluster = held.enter_context(ray_nodes()) if kills.get("ray") else None
        for name, wanted in kills.items():
            for number in range(10 * wanted):  # a run may end before all of its kills have come
                done = sum(count for (of, _), count in tally.kills.items() if of == name)
                if done >= wanted or tally.wrong:
                    break
                path = folder / f"{name}-{number}"
                disturbed(name, path, seconds[name], min(each, wanted - done), chance, tally, cluster)
                if not tally.wrong:
                    run = read_run(path / "run")
                    if run.records.digest != expected or not verify_run(path / "run").report.holds:
                        tally.wrong.append(f"{name}: another result")
                    shutil.rmtree(path)
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.guarantees.backend_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backends", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--do", nargs=2, metavar=("BACKEND", "PATH"), help="be the owner of a run")
    parser.add_argument("--address")
    options = parser.parse_args(arguments)
    if options.do:
        name, path = options.do
        JOBS[name](Path(path), options.address)
        return 0
    names = [name for name in options.backends if name != "ray" or find_spec("ray") is not None]
    share, rest = divmod(options.kills, len(names))
    with tempfile.TemporaryDirectory() as place:
        wanted = {name: share + (number < rest) for number, name in enumerate(names)}
        tally = campaign(Path(place), wanted, options.seed)
    print(tally)
    return bool(tally.wrong)


if __name__ == "__main__":
    sys.exit(main())
