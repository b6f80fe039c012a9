"""Cells of a sweep side by side: in processes of this machine, or on a Ray cluster whose nodes share the folder.

A cell is resumed wherever it is repeated, so that a worker that is lost costs an epoch, or an input, at most.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from smoothcert import datasets
from smoothcert.errors import InvalidValueError, RunError, SmoothcertError
from smoothcert.extras import require
from smoothcert.sampling import Execution
from smoothcert.sampling.backends.processes import end_with_parent, without_main
from smoothcert.sampling.backends.ray import connect
from smoothcert.sweeps.cells import Cell, Trial
from smoothcert.training import TrainingDivergedError
from smoothcert.training.memory import keep_freed_memory

_MOST_LOSSES = 3  # of one cell's workers, one after another
_RESULT = tuple[str, str]
_DONE, _DIVERGED, _REFUSED = "done", "diverged", "refused"


@dataclass(frozen=True)
class _Job:
    """A cell with all that a worker needs to know; done twice, it is done once."""

    cell: Cell
    trial: Trial
    out: Path
    folder: str
    """The working directory that paths are relative to."""
    threads: int
    """OpenMP threads that training may use where the sweep was started: sums of large networks depend on them."""

    def __call__(self) -> _RESULT:
        """How it ended, and why."""
        os.chdir(self.folder)
        torch.set_num_threads(self.threads)
        try:
            name, place = self.cell.recipe.dataset, self.trial.data_dir
            train_set, test_set = (datasets.load(name, one, place) for one in ("train", self.trial.split))
            self.trial.train(self.cell, self.out, train_set, test_set)
            self.trial.certify(self.cell, self.out, test_set)
        except TrainingDivergedError as error:
            return _DIVERGED, str(error)
        except SmoothcertError as error:
            return _REFUSED, str(error)
        return _DONE, ""


def run_cells(
    cells: Sequence[Cell], trial: Trial, out: Path, told: Callable[[Cell], None] = lambda _: None
) -> dict[Cell, str]:
    """Train and certify cells side by side, one thread casting the votes of each; returns why some diverged.

    ``trial.execution`` says who works, and how many at once. The results have the bits of one after another. A worker
    that is killed has its cell repeated, which goes on where it stopped.
    """
    execution = trial.execution
    if execution.backend == "threads":
        raise InvalidValueError("cells run side by side in processes or on ray, got backend 'threads'")
    alone = replace(trial, execution=Execution(execution.device, 1, execution.batch))
    here, threads = str(Path.cwd()), torch.get_num_threads()
    jobs = [_Job(cell, alone, out, here, threads) for cell in cells]
    workers = _processes if execution.backend == "processes" else _ray
    diverged = {}
    for job, (ended, why) in workers(jobs, execution):
        if ended == _REFUSED:
            raise RunError(f"{job.cell.folder}: {why}")
        if ended == _DIVERGED:
            diverged[job.cell] = why
        elif not job.cell.certified(out).is_dir():
            raise RunError(
                f"{job.cell.certified(out)} isn't here though a worker has made it: workers on other machines need "
                "--out on a file system that all of them share, at the same path"
            )
        told(job.cell)
    return diverged


class _Losses:
    """How often the workers of each job were lost in a row."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def note(self, job: _Job, why: str) -> None:
        """One more; too many are an error."""
        self._of[job.cell.folder] += 1
        if self._of[job.cell.folder] > _MOST_LOSSES:
            raise RunError(
                f"{job.cell.folder}: its worker was lost {self._of[job.cell.folder]} times ({why}). Is there enough "
                "memory? Use fewer at once (--workers 1); the same command goes on"
            )


def _processes(jobs: Iterable[_Job], execution: Execution) -> Iterator[tuple[_Job, _RESULT]]:
    """A process for each job: what a training leaves behind in one doesn't matter to the next."""
    waiting, losses = deque(jobs), _Losses()
    running: dict[int, tuple[SpawnProcess, Connection, _Job]] = {}
    context = multiprocessing.get_context("spawn")
    try:
        while waiting or running:
            while waiting and len(running) < execution.worker_count():
                receiver, sender = context.Pipe(duplex=False)
                job = waiting.popleft()
                process = context.Process(target=_work, args=(sender, job))
                with without_main():
                    process.start()
                sender.close()
                running[process.sentinel] = process, receiver, job
            for sentinel in wait(list(running)):
                assert isinstance(sentinel, int)
                process, receiver, job = running.pop(sentinel)
                process.join()
                try:
                    yield job, receiver.recv()
                except EOFError:
                    losses.note(job, f"exit code {process.exitcode}")
                    waiting.appendleft(job)
                finally:
                    receiver.close()
    finally:
        for process, _, _ in running.values():
            process.kill()
            process.join()


def _work(sender: Connection, job: _Job) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns the sweep
    threading.Thread(target=end_with_parent, daemon=True).start()
    keep_freed_memory()
    sender.send(job())


def _ray(jobs: Iterable[_Job], execution: Execution) -> Iterator[tuple[_Job, _RESULT]]:
    """A task for each job, as many at once as there are workers."""
    ray: Any = require("ray", "--backend ray")
    started = not ray.is_initialized()
    if started:
        connect(ray, execution)
    waiting, losses, running = deque(jobs), _Losses(), dict[Any, _Job]()
    try:
        most = execution.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        # Not repeated by Ray, which would do so without end: losses are counted here.
        task = ray.remote(num_cpus=1, num_gpus=execution.gpus_per_worker, max_retries=0)(_work_remotely)
        while waiting or running:
            while waiting and len(running) < most:
                job = waiting.popleft()
                running[task.remote(job)] = job
            (ready,), _ = ray.wait(list(running), num_returns=1)
            job = running.pop(ready)
            try:
                result = ray.get(ready)
            except ray.exceptions.RayError as error:
                losses.note(job, (str(error).strip() or type(error).__name__).splitlines()[0])
                waiting.appendleft(job)
                continue
            yield job, result
    finally:
        for reference in running:
            with suppress(Exception):
                ray.cancel(reference, force=True)
        if started:
            ray.shutdown()


def _work_remotely(job: _Job) -> _RESULT:
    return job()
