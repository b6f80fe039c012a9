"""A training run on disk: its statement, metrics as they come, a checkpoint after each epoch, the model at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn

from smoothcert.architectures.base import WEIGHTS_NAME
from smoothcert.architectures.spec import ModelSpec, initialise, normalisation_for
from smoothcert.architectures.weights import load_model, save_model
from smoothcert.datasets.base import Dataset
from smoothcert.errors import ModelError, RunError
from smoothcert.extras import require
from smoothcert.files import write_atomically
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.runs.layout import RunFiles, load_checkpoint, save_checkpoint
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import claim_run
from smoothcert.runs.side_files import EpochMetrics, write_epochs
from smoothcert.training.loop import Progress, State, TrainingDivergedError, train, training_threads
from smoothcert.training.plan import TrainPlan, check_learns
from smoothcert.training.processes import Processes
from smoothcert.training.recipe import Recipe
from smoothcert.training.steps import AcrCheck


class TensorBoard:
    """Writes each epoch's metrics as TensorBoard events."""

    def __init__(self, directory: Path) -> None:
        require("tensorboard", "writing TensorBoard events")
        from torch.utils.tensorboard import SummaryWriter

        # Made when there is something to write: a refused run gets no file.
        self._make_writer = lambda: SummaryWriter(str(directory))
        self._writer: SummaryWriter | None = None

    def __call__(self, metrics: EpochMetrics) -> None:
        """Write one epoch; it is on disk when this returns."""
        self._writer = self._writer or self._make_writer()  # type: ignore[no-untyped-call]
        for name in ("loss", "accuracy", "learning_rate", "seconds", "acr"):
            if (value := getattr(metrics, name)) is not None:
                self._writer.add_scalar(name, value, metrics.epoch)
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()


def save_state(directory: Path, state: State) -> None:
    """Replace the checkpoint."""
    history = [metrics.as_json() for metrics in state.history]
    save_checkpoint(directory, {"history": history, **state.tensors})


def load_state(directory: Path) -> State | None:
    """What was saved last, or None."""

    def state(saved: dict[str, Any]) -> State:
        history = tuple(EpochMetrics(**metrics) for metrics in saved.pop("history"))
        return State(history, saved)

    return load_checkpoint(directory, state, "train")


_LATER = ("optimizer", "nesterov", "decoupled_decay", "step_factor", "random_crops", "sigma_training_mode")
_THREADS = "threads"
_MOST_THREADS = 1024

EpochListener: TypeAlias = Callable[[EpochMetrics], None]
"""Called in the first process after each epoch's checkpoint is on disk."""


def default_architecture(input_shape: tuple[int, ...]) -> str:
    """A network that suits inputs of this shape: a ResNet for colour, LeNet from 16×16 on, else a small CNN."""
    if len(input_shape) == 3 and input_shape[0] == 3 and min(input_shape[1:]) >= 32:
        return "resnet50" if min(input_shape[1:]) >= 128 else "cifar_resnet20"
    return "lenet" if len(input_shape) == 3 and min(input_shape[1:]) >= 16 else "small-cnn"


def check_begins(out: Path, plan: TrainPlan) -> None:
    """Refuse to begin a training that learns nothing; one that was begun before that was refused goes on."""
    if not RunFiles(out).statement.exists():
        check_learns(plan)


def train_into(
    out: Path,
    recipe: Recipe,
    dataset: Dataset,
    *,
    test_set: Dataset | None = None,
    on_step: Progress | None = None,
    listeners: Sequence[EpochListener] = (),
    processes: Processes | None = None,
    data_dir: Path | None = None,
    acr_check: AcrCheck | None = None,
) -> tuple[EpochMetrics, ...]:
    """Carry out a recipe in ``out``, going on where it was interrupted; does nothing if it is finished.

    A kill at any moment costs at most the epoch under way, and on a CPU the weights at the end are those of an
    uninterrupted run: it continues with the threads it was begun with. Another recipe, data set or kind of device is
    refused, and so is a new run whose ramps would leave it without noise or steps. An ``acr_check`` only reports, and
    may be another one when a run goes on: each epoch notes the inputs and votes of its own. The statement keeps, for
    the record, the range of the inputs, and ``data_dir``, where the data set's files were said to be.
    """
    processes, files = processes or Processes(), RunFiles(out)
    dataset = dataset.first(recipe.inputs)
    model, spec, digest = _starting_point(recipe, dataset)
    plan = replace(recipe.plan, shards=recipe.plan.shards or processes.count)
    if plan.data_dependent and plan.sigma_warmup is None:
        # Weights that were trained at one σ have had their warm-up.
        plan = replace(plan, sigma_warmup=plan.warmup if recipe.start is None else 0)
    plan = replace(plan, threads=_settled_threads(out, plan))
    plan = replace(plan, threads=training_threads(model, dataset, plan, processes))
    recipe = replace(recipe, architecture=spec.architecture, plan=plan)
    manifest = _manifest(recipe, spec, dataset, processes, digest, data_dir)
    if processes.is_first:
        # To continue from a checkpoint, or to replace a model, takes a manifest.
        for path in (files.checkpoint, out / WEIGHTS_NAME):
            if path.exists() and not files.statement.exists():
                raise RunError(
                    f"{out} holds {path.name} but no {files.statement.name}: restore it, or choose another --out"
                )
        check_begins(out, recipe.plan)
        if acr_check is not None:
            acr_check.try_out(model, dataset, recipe.plan, processes.device)
    # One process writes; the others must not read before it has claimed the run.
    with claim_run(out, manifest) if processes.is_first else nullcontext():
        if processes.is_first:
            write_atomically(files.recipe, recipe.to_toml().encode())
        processes.wait()
        state = load_state(out) or State()

        def record(state: State) -> None:
            if processes.is_first:
                save_state(out, state)
                write_epochs(out, state.history)
                for listener in listeners:
                    listener(state.history[-1])

        try:
            history = train(
                model,
                dataset,
                recipe.plan,
                test_set=test_set,
                progress=on_step,
                after_epoch=record,
                state=state,
                processes=processes,
                acr_check=acr_check,
            )
        except TrainingDivergedError as error:
            left = "It was the first epoch: nothing was saved"
            if (kept := load_state(out)) is not None:
                last = kept.history[-1]
                left = (
                    f"The last good checkpoint, of epoch {last.epoch} (loss {last.loss:.4f}), is kept in {out}; "
                    "another plan needs another --out"
                )
            raise TrainingDivergedError(f"{error}. {left}") from None
        if processes.is_first:
            write_epochs(out, history)
            save_model(model.cpu(), spec, out)
        processes.wait()
    return history


def _settled_threads(out: Path, plan: TrainPlan) -> int | None:
    """The threads that the plan or the run under ``out`` states; None where neither does. Both, unlike, are refused.

    Kept with the versions: how sums are split is known for the record, and no reason to call a run another.
    """
    if not RunFiles(out).statement.exists():
        return plan.threads
    stated = Manifest.load(out).versions.get(_THREADS, "")
    begun = int(stated) if stated.isdecimal() and len(stated) <= len(str(_MOST_THREADS)) else 0
    if not 1 <= begun <= _MOST_THREADS:
        return plan.threads
    if plan.threads not in (None, begun):
        raise RunError(
            f"{out} was begun with {begun} threads, now {plan.threads}: its sums would round differently. Leave "
            "--threads out, or choose another --out"
        )
    return begun


def _starting_point(recipe: Recipe, dataset: Dataset) -> tuple[nn.Module, ModelSpec, str | None]:
    if recipe.start is None:
        architecture = recipe.architecture or default_architecture(dataset.input_shape)
        statistics = normalisation_for(dataset.name, dataset.input_shape[0]) if recipe.normalise else None
        spec = ModelSpec(architecture, dataset.input_shape, dataset.classes, *(statistics or ()))
        return initialise(spec, recipe.plan.seed), spec, None
    model, spec = load_model(recipe.start, architecture=recipe.architecture)
    if spec.input_shape != dataset.input_shape or len(spec.classes) != len(dataset.classes):
        raise ModelError(
            f"{recipe.start} takes inputs of shape {spec.input_shape} in {len(spec.classes)} classes, "
            f"{dataset.name} has {dataset.input_shape} in {len(dataset.classes)}: start from a model of its own kind"
        )
    return model, spec, TorchClassifier(model).fingerprint(spec.input_shape)


def _manifest(
    recipe: Recipe,
    spec: ModelSpec,
    dataset: Dataset,
    processes: Processes,
    digest: str | None,
    data_dir: Path | None,
) -> Manifest:
    plan = recipe.to_json()
    objective = plan.pop("objective")
    for about in ("source", "published_acr", "dataset", "architecture", "start"):
        del plan[about]
    # Runs that were begun before these were options go on: left out, they are what they were then.
    for name in _LATER:
        if plan[name] == getattr(TrainPlan, name):
            del plan[name]
    threads = plan.pop("threads")
    if recipe.plan.objective.batch_counts_inputs:
        plan["batch_counts"] = "inputs"
    model = spec.to_json() | {"classes": len(spec.classes)}
    if digest is not None:
        model["start_sha256"] = digest
    objective = {f"objective.{knob}": value for knob, value in objective.items()}
    plan |= {"objective": objective.pop("objective.name")} | objective
    return Manifest.of(
        kind="train",
        plan=plan | {"device": processes.device.type},
        model=model,
        data={"name": dataset.name, "sha256": dataset.fingerprint(), "inputs": len(dataset)},
        origin={
            "dataset": recipe.dataset,
            "data_dir": None if data_dir is None else str(data_dir),
            "input_range": list(dataset.value_range()),
        },
    ).made_now(**{_THREADS: str(threads)})
