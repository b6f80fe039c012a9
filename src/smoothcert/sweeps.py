"""Sweeps: methods × σ × seeds, each trained and certified in a folder of its own, so that any part can be resumed.

Cells are done one after another, or side by side: in processes of this machine, or on a Ray cluster whose nodes share
the folder. A worker that is lost costs an epoch, or an input, at most.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol

import torch

from smoothcert import datasets
from smoothcert.analysis.facts import TRAINED, training_facts
from smoothcert.analysis.seeds import SeedGroup
from smoothcert.architectures.weights import load_model
from smoothcert.datasets.base import Dataset
from smoothcert.engine.backends.processes import end_with_parent, without_main
from smoothcert.engine.backends.ray import connect
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError, RunError, SmoothcertError, check_positive
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.extras import require
from smoothcert.knobs import plain_value, written_values
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.objectives import OBJECTIVES
from smoothcert.objectives.ramps import Ramp
from smoothcert.perturb.base import NOISES
from smoothcert.plain_text import norm_name
from smoothcert.runs.run import Run
from smoothcert.runs.statement import Choice
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.training.loop import Progress as StepProgress
from smoothcert.training.loop import TrainingDivergedError
from smoothcert.training.plan import TrainPlan, without_effect
from smoothcert.training.processes import Processes, keep_freed_memory
from smoothcert.training.recipe import SUFFIX, Recipe, find_recipe, make_recipe, parse_ramps, shipped_recipes
from smoothcert.training.runs import train_into

_RAMP, _RAMPS = "ramp", "ramps"
_OF_THE_SWEEP = {
    _RAMPS: "write ramp=…, once for each option",
    "sigma": "it is for all methods: --sigmas",
    "seed": "it is for all methods: --seeds",
}
_MOST_LOSSES = 3  # of one cell's workers, one after another
_RESULT = tuple[str, str]
_DONE, _DIVERGED, _REFUSED = "done", "diverged", "refused"


class Certifier(Protocol):
    """Certifies the chosen inputs into a run, as :func:`certify_dataset` does."""

    def __call__(
        self,
        classifier: SmoothedClassifier,
        dataset: Dataset,
        out: Path,
        choice: Choice,
        /,
        *,
        origin: dict[str, Any],
    ) -> Run:
        """Continue with the run if it was begun."""
        ...


@dataclass(frozen=True)
class Cell:
    """One training and its certification."""

    method: str
    recipe: Recipe

    @property
    def sigma(self) -> float:
        """The noise level of both."""
        return self.recipe.plan.sigma

    @property
    def seed(self) -> int:
        """The seed of both."""
        return self.recipe.plan.seed

    @property
    def folder(self) -> str:
        """A name for its folder, the same whenever the cell is the same."""
        base, changes = _parts(self.method)
        named = Path(base).stem if base.endswith(SUFFIX) else base
        method = re.sub(r"[^\w.=-]+", "-", f"{named}:{changes}" if changes else named)
        return f"{method}-sigma{self.sigma:g}-seed{self.seed}"

    def model(self, out: Path) -> Path:
        """Its training run."""
        return out / self.folder / "model"

    def certified(self, out: Path) -> Path:
        """Its certification."""
        return out / self.folder / "certified"


def plan_cells(
    methods: Sequence[str], sigmas: Sequence[float], seeds: Sequence[int], common: Mapping[str, object]
) -> list[Cell]:
    """Every method at every σ from every seed, ``common`` recipe fields overriding each method's own.

    A method is an objective (``smoothmix``), the name of a shipped recipe or a recipe file, each with options or fields
    of the plan changed (``smoothmix:eta=1,steps=8``, ``mnist-macer-0.5:copies=4,ramp=lam:0@10``). Without ``sigmas``,
    recipes keep their own. Ramps replace those of the same option.
    """
    if not methods or not seeds:
        raise InvalidValueError(f"a sweep needs methods and seeds, got {list(methods)} and {list(seeds)}")
    levels: list[dict[str, object]] = [{"sigma": sigma} for sigma in sigmas] or [{}]
    cells = [
        Cell(method, _recipe(method, {**common, **level, "seed": seed}))
        for method in methods
        for level in levels
        for seed in seeds
    ]
    folders = [cell.folder for cell in cells]
    twice = {folder for folder in folders if folders.count(folder) > 1}
    if twice:
        raise InvalidValueError(
            f"the sweep asks twice for {', '.join(sorted(twice))}: leave one out (or rename one of two recipe files of "
            "one name)"
        )
    norms = {NOISES[cell.recipe.plan.noise].norm: cell.method for cell in cells}
    if len(norms) > 1:
        named = " and ".join(f"{method} ({norm_name(norm)})" for norm, method in norms.items())
        raise InvalidValueError(f"radii in different norms don't compare: {named}; sweep one norm at a time")
    for cell in cells:
        check_positive("sigma of a sweep, whose models are certified,", cell.sigma)
    return cells


def settings_without_effect(cells: Sequence[Cell], common: Mapping[str, object]) -> list[str]:
    """A sentence for each setting, of the sweep or behind a method, that does nothing, and of which methods that is."""
    told: dict[str, dict[str, None]] = {}
    for cell in cells:
        written = list(written_values(_parts(cell.method)[1], f"method {cell.method!r}"))
        ramped = {ramp.option for ramp in parse_ramps(common.get(_RAMPS, ()))}
        ramped |= {Ramp.parse(value).option for name, value in written if name == _RAMP}
        plan = cell.recipe.plan
        plan = replace(plan, ramps=tuple(ramp for ramp in plan.ramps if ramp.option in ramped))
        for sentence in without_effect(plan, {*common, *(name for name, _ in written), _RAMPS}):
            told.setdefault(sentence, {})[cell.method] = None
    every = len({cell.method for cell in cells})
    return [
        sentence if len(methods) == every else f"{', '.join(methods)}: {sentence}"
        for sentence, methods in told.items()
    ]


@dataclass(frozen=True)
class Trial:
    """How cells are certified: the fields of their CertifyPlan but σ and seed, which inputs, and where."""

    plan: Mapping[str, Any]
    choice: Choice
    execution: Execution
    split: str = "test"
    data_dir: Path | None = None
    """Of the data set that is certified: its split, and where its files are."""

    def train(
        self,
        cell: Cell,
        out: Path,
        train_set: Dataset,
        test_set: Dataset,
        on_step: StepProgress | None = None,
    ) -> None:
        """Train a cell under ``out``, or continue with what was begun."""
        model, here = cell.model(out), Processes(self.execution.main_device)
        train_into(model, cell.recipe, train_set, test_set=test_set, on_step=on_step, processes=here)

    def certify(
        self, cell: Cell, out: Path, test_set: Dataset, certifier: Certifier = certify_dataset
    ) -> Run:
        """Certify a trained cell under ``out``, or continue with what was begun."""
        module, spec = load_model(cell.model(out))
        fields = {"sigma": cell.sigma, "noise": cell.recipe.plan.noise, "seed": cell.seed, **self.plan}
        model = TorchClassifier(module, spec.architecture)
        classifier = SmoothedClassifier(model, execution=self.execution, **fields)
        origin = {
            "model": str(cell.model(out)),
            "dataset": cell.recipe.dataset,
            "split": self.split,
            "data_dir": None if self.data_dir is None else str(self.data_dir),
            "method": cell.method,
            TRAINED: training_facts(cell.model(out)),
        }
        return certifier(classifier, test_set, cell.certified(out), self.choice, origin=origin)


def group_by_seed(done: Sequence[tuple[Cell, Run]]) -> list[SeedGroup]:
    """The runs of each method and σ together, in the order they were first met."""
    runs: dict[tuple[str, float], list[Run]] = {}
    for cell, run in done:
        runs.setdefault((cell.method, cell.sigma), []).append(run)
    return [SeedGroup(method, sigma, tuple(members)) for (method, sigma), members in runs.items()]


def _parts(method: str) -> tuple[str, str]:
    base, _, changes = (method, "", "") if method.endswith(SUFFIX) else method.partition(":")
    return base, changes


def _recipe(method: str, values: Mapping[str, object]) -> Recipe:
    base, changes = _parts(method)
    found = find_recipe(base) if base.endswith(SUFFIX) or base in shipped_recipes() else None
    objective = OBJECTIVES[base] if found is None else type(found.plan.objective)
    of_plan = {each.name for each in fields(TrainPlan)} - {"objective", "sigma", "seed", _RAMPS}
    of_plan -= {each.name for each in fields(objective)}
    # The last ramp of a knob counts: a method's own before the sweep's, and that before the recipe's.
    ramps = [*(() if found is None else found.plan.ramps), *parse_ramps(values.get(_RAMPS, ()))]
    changed, knobs = dict(values), dict[str, object]()
    for name, value in written_values(changes, f"method {method!r}"):
        if (option := _OF_THE_SWEEP.get(name)) is not None:
            raise InvalidValueError(f"method {method!r}: {name} isn't set there, {option}")
        if name == _RAMP:
            ramps.append(Ramp.parse(value))
        elif name in of_plan:
            changed[name] = plain_value(value)
        else:
            knobs[name] = plain_value(value)
    changed[_RAMPS] = [str(ramp) for ramp in {ramp.option: ramp for ramp in ramps}.values()]
    return make_recipe(changed, base, knobs) if found is None else found.changed(changed, knobs=knobs)


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


def _count_loss(losses: Counter[str], job: _Job, why: str) -> None:
    """A worker of the job was lost once more; too often in a row is an error."""
    folder = job.cell.folder
    losses[folder] += 1
    if losses[folder] > _MOST_LOSSES:
        raise RunError(
            f"{folder}: its worker was lost {losses[folder]} times ({why}). Is there enough memory? Use fewer at once "
            "(--workers 1); rerun the same command to resume"
        )


def _processes(jobs: Iterable[_Job], execution: Execution) -> Iterator[tuple[_Job, _RESULT]]:
    """A process for each job: what a training leaves behind in one doesn't matter to the next."""
    waiting, losses = deque(jobs), Counter[str]()
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
                    _count_loss(losses, job, f"exit code {process.exitcode}")
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
    waiting, losses, running = deque(jobs), Counter[str](), dict[Any, _Job]()
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
                _count_loss(losses, job, (str(error).strip() or type(error).__name__).splitlines()[0])
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
