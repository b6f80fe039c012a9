"""The training loop: batches, steps and metrics, the same for every objective."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.architectures.spec import seeded_fork
from smoothcert.datasets.base import Dataset
from smoothcert.datasets.images import TRIES, read_ahead
from smoothcert.errors import DataError, InvalidValueError, ModelError, SmoothcertError
from smoothcert.objectives import draw_noise
from smoothcert.objectives.base import BatchNoise, Scale
from smoothcert.perturb.base import NOISES
from smoothcert.runs.side_files import EpochMetrics, ValidationInputs
from smoothcert.threads import counted_pass, openmp_threads, threads_for
from smoothcert.training import steps
from smoothcert.training.batches import (
    BatchShard,
    EpochBatches,
    StreamPurpose,
    check_augmentable,
    split_holdout,
    stream,
    stream_seed,
    tensors,
)
from smoothcert.training.plan import Settings, TrainPlan
from smoothcert.training.processes import Processes
from smoothcert.training.steps import AcrCheck

Progress: TypeAlias = Callable[[int, int, int, int, float], None]
"""Called after each step with (epoch, epochs, batch, batches, loss), counted from 1; on an accelerator the loss is the
last that was read, some steps before."""

VALIDATION_INPUTS = 1000
"""At most this many inputs are voted on once each for an epoch's noisy accuracy."""


class TrainingDivergedError(SmoothcertError):
    """A loss that is no longer a finite number."""


@dataclass(frozen=True)
class State:
    """Training between two epochs: all that is needed to go on exactly."""

    history: tuple[EpochMetrics, ...] = ()
    tensors: dict[str, Any] = field(default_factory=dict)
    """State dicts of model, optimizer and loss scaler, and examples' σ; empty before the first epoch."""


def train(
    model: nn.Module,
    dataset: Dataset,
    plan: TrainPlan,
    *,
    test_set: Dataset | None = None,
    progress: Progress | None = None,
    after_epoch: Callable[[State], None] | None = None,
    state: State | None = None,
    processes: Processes | None = None,
    acr_check: AcrCheck | None = None,
) -> tuple[EpochMetrics, ...]:
    """Train ``model`` in place and leave it in eval mode on the processes' device.

    Every random draw comes from streams made of the plan's seed, the epoch and the shard, and the global
    stream is left as it was. So on one machine's CPU the same initial weights, data and plan give the same weights,
    whether or not training was interrupted between two epochs and continued from its ``state``, and however many
    threads torch may use: small networks train with one. Sums of large networks are split among several, and round
    differently for another number: ``plan.threads`` fixes it. Validation, an ``acr_check`` as well, only reports: on
    the holdout, or else the test set if given, or else training inputs.
    """
    trainer = _Trainer(model, dataset, plan, test_set, progress, processes or Processes(), acr_check)
    state = state or State()
    with openmp_threads(trainer.threads):
        trainer.restore(state)
        for epoch in range(len(state.history), plan.epochs):
            with seeded_fork(stream_seed(plan.seed, epoch, StreamPurpose.MODEL)):
                metrics = trainer.run_epoch(epoch)
            state = State((*state.history, metrics), trainer.snapshot() if after_epoch else {})
            if after_epoch is not None:
                after_epoch(state)
    model.eval()
    steps.restore_layout(model)
    return state.history


def training_threads(model: nn.Module, dataset: Dataset, plan: TrainPlan, processes: Processes) -> int:
    """Threads for each operation: the plan's, or by the work of a pass, as far as the machine has them.

    Data that don't fit the model are refused.
    """
    return _check_fit(model, dataset, plan, processes)[1]


class _Trainer:
    def __init__(
        self,
        model: nn.Module,
        dataset: Dataset,
        plan: TrainPlan,
        test_set: Dataset | None,
        progress: Progress | None,
        processes: Processes,
        acr_check: AcrCheck | None,
    ) -> None:
        self.plan, self.processes, self._progress = plan, processes, progress
        self._acr_check = acr_check if processes.is_first else None
        self._model = model.to(processes.device)
        self._dataset = dataset
        check_augmentable(dataset.input_shape, plan.flip, plan.shift)
        if plan.random_crops:
            dataset.parts([0], np.zeros((1, TRIES, 4)))  # refused now, not when the first batch is read
        if plan.precision == "float16" and processes.device.type != "cuda":  # losses are scaled there alone
            raise InvalidValueError(
                f"precision float16 needs a CUDA device, got {processes.device.type}: use bfloat16 or float32"
            )
        sample, self.threads = _check_fit(model, dataset, plan, processes)
        layout = steps.settle_layout(model, sample)
        self._network = steps.WithPrecision(model, plan.precision, processes.device, layout)
        self._inputs, held_out = split_holdout(len(dataset), plan.holdout, plan.seed)
        self._validation = _Validation("train", dataset, self._inputs)
        if len(held_out):
            self._validation = _Validation("holdout", dataset, held_out)
        elif test_set is not None:
            self._validation = _Validation("test", test_set, np.arange(len(test_set)))
        self._shards = plan.shards or processes.count
        if self._shards % processes.count:
            raise InvalidValueError(
                f"shards must be a multiple of the processes, {processes.count}; got {self._shards}"
            )
        if len(EpochBatches(dataset, self._inputs, plan, 0, self._shards)) == 0:
            raise InvalidValueError(
                f"shards must not exceed the {min(plan.inputs_per_step, len(self._inputs))} inputs of a batch, "
                f"got {self._shards}"
            )
        if self._acr_check is not None:
            self._acr_check.try_out(model, dataset, plan, processes.device)
        self._optimizer = steps.make_optimizer(model.parameters(), plan)
        self._sigmas = steps.SigmaTable(len(dataset), plan) if plan.data_dependent else None
        self._scaler = torch.amp.GradScaler(processes.device.type, enabled=plan.precision == "float16")

    def snapshot(self) -> dict[str, Any]:
        # Copies: the next epoch changes the tensors in place.
        kept: dict[str, Any] = {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
        }
        return copy.deepcopy(kept if self._sigmas is None else kept | {"sigmas": self._sigmas.values})

    def restore(self, state: State) -> None:
        if state.history:
            self._model.load_state_dict(state.tensors["model"])
            self._optimizer.load_state_dict(copy.deepcopy(state.tensors["optimizer"]))
            self._scaler.load_state_dict(state.tensors["scaler"])
            if self._sigmas is not None:
                self._sigmas.values = state.tensors["sigmas"].clone()

    def run_epoch(self, epoch: int) -> EpochMetrics:
        started = time.perf_counter()
        settings = self.plan.at(epoch)
        for group in self._optimizer.param_groups:
            group["lr"] = settings.lr
        loss = self._train(epoch, settings)
        if self._sigmas is not None:
            self._sigmas.share(self.processes)
        self._share_statistics()
        self._check_weights(epoch, settings)
        # At the plan's σ, which the model is for, also while a ramp has it elsewhere: epochs compare with each other.
        accuracy = self._noisy_accuracy(epoch, settings.of(self.plan.sigma))
        metrics = EpochMetrics(
            epoch + 1, loss, accuracy, self._validation.kind, settings.lr, time.perf_counter() - started
        )
        metrics = replace(metrics, sigma=self.plan.sigma, norm=NOISES[self.plan.noise].norm)
        check, on = self._acr_check, self._validation
        if check is None or not check.due(metrics.epoch, self.plan.epochs):
            return metrics
        acr = check.measure(
            self._model, on.dataset, on.inputs, self.plan, self.processes.device, self.threads
        )
        return replace(metrics, acr=acr, acr_inputs=check.counted(len(on.inputs)), acr_votes=check.votes)

    def _train(self, epoch: int, settings: Settings) -> float:
        batches = EpochBatches(self._dataset, self._inputs, self.plan, epoch, self._shards)
        device, per_process = self.processes.device, self._shards // self.processes.count
        mine = range(self.processes.rank * per_process, (self.processes.rank + 1) * per_process)
        searching = self._sigmas is not None and epoch >= self.plan.warmup
        draws = {shard: _Draws.of(self.plan.seed, epoch, shard, device, searching) for shard in mine}

        def refuse(batch: int, loss: float) -> None:
            raise TrainingDivergedError(
                f"the loss of objective {self.plan.objective_name!r} became {loss} in epoch {epoch + 1}, batch {batch} "
                f"of {len(batches)}: try a learning rate below {settings.lr:g}"
            )

        losses = steps.Losses.on(device, refuse)
        self._model.train()
        for number, shards in enumerate(batches.read(mine, device), start=1):
            try:
                self._step(number, shards, settings, draws, losses)
            except Exception:
                losses.read()  # what went wrong may follow from a loss that hasn't been read yet
                raise
            if self._progress is not None:
                self._progress(epoch + 1, self.plan.epochs, number, len(batches), losses.latest)
        total = losses.sums()
        self.processes.sum([total])
        return float(total[0] / total[1])

    def _step(
        self,
        number: int,
        shards: list[BatchShard],
        settings: Settings,
        draws: dict[int, _Draws],
        losses: steps.Losses,
    ) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        for shard in shards:
            streams = draws[shard.number]
            torch.default_generator.set_state(streams.model)
            sigma: Scale = settings.sigma
            if self._sigmas is not None and streams.search is not None:
                sigma = self._sigmas.step(self._network, shard, streams.search)
            loss = settings.objective.loss(self._network, shard.x, shard.y, settings.of(sigma), streams.noise)
            streams.model = torch.default_generator.get_state()
            losses.add(number, loss, len(shard.y))
            self._scaler.scale(loss * shard.weight).backward()  # type: ignore[no-untyped-call]
        self.processes.sum([p.grad for p in self._model.parameters() if p.grad is not None])
        self._scaler.step(self._optimizer)
        self._scaler.update()

    @torch.no_grad()
    def _share_statistics(self) -> None:
        """Average batch-norm statistics over the processes, so that all continue with one model."""
        statistics = [buffer for buffer in self._model.buffers() if buffer.is_floating_point()]
        self.processes.sum(statistics)
        if self.processes.count > 1:
            for buffer in statistics:
                buffer /= self.processes.count

    @torch.no_grad()
    def _check_weights(self, epoch: int, settings: Settings) -> None:
        """Refuse to go on, and to save, when the last step of an epoch went to infinity."""
        state = self._model.state_dict().values()
        if not all(bool(torch.isfinite(tensor).all()) for tensor in state):
            raise TrainingDivergedError(
                f"the weights of objective {self.plan.objective_name!r} are no longer finite after epoch {epoch + 1}: "
                f"try a learning rate below {settings.lr:g}"
            )

    @torch.no_grad()
    def _noisy_accuracy(self, epoch: int, noise: BatchNoise) -> float:
        self._model.eval()
        dataset, inputs = self._validation.dataset, self._validation.inputs
        chooser = stream(self.plan.seed, epoch, StreamPurpose.VALIDATION)
        sample = inputs[torch.randperm(len(inputs), generator=chooser)[:VALIDATION_INPUTS].numpy()]
        draws = stream(self.plan.seed, epoch, StreamPurpose.VALIDATION_NOISE, device=self.processes.device)
        right = torch.zeros((), dtype=torch.int64, device=self.processes.device)
        size, device = self.plan.batch_size, self.processes.device
        batches = (sample[start : start + size] for start in range(0, len(sample), size))
        for _, (x, y) in read_ahead(batches, lambda of: tensors(dataset, of, device), ahead=1, threads=1):
            right += (self._network(x + draw_noise(x, noise, draws)).argmax(1) == y).sum()
        return int(right) / len(sample)


@dataclass
class _Draws:
    """What a shard's random numbers of an epoch come from: its own, whichever process works on it."""

    noise: torch.Generator
    search: torch.Generator | None
    model: Tensor
    """The state that the model itself draws from (dropout)."""

    @classmethod
    def of(cls, seed: int, epoch: int, shard: int, device: torch.device, searching: bool) -> _Draws:
        """At the beginning of an epoch."""
        return cls(
            stream(seed, epoch, StreamPurpose.NOISE, shard, device),
            stream(seed, epoch, StreamPurpose.SIGMA, shard, device) if searching else None,
            stream(seed, epoch, StreamPurpose.MODEL, shard).get_state(),
        )


@dataclass(frozen=True)
class _Validation:
    kind: ValidationInputs
    dataset: Dataset
    inputs: NDArray[np.int64]


def _check_fit(
    model: nn.Module, dataset: Dataset, plan: TrainPlan, processes: Processes
) -> tuple[Tensor, int]:
    """Refuse data whose inputs the model can't take or whose labels it has no logit for.

    Returns the input tried, and the threads that the work of a step deserves.
    """
    model.to(processes.device).eval()
    sample = torch.from_numpy(dataset.inputs([0])).to(processes.device)
    try:
        logits, work = counted_pass(model, sample)
    except RuntimeError as error:
        raise ModelError(
            f"the model can't take {dataset.name}, of shape {dataset.input_shape}: {error}"
        ) from error
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ModelError(f"the model must give logits of shape (n, classes), it gave {shape} for one input")
    highest = int(dataset.labels.max())
    if highest >= logits.shape[1]:
        raise DataError(
            f"{dataset.name} has label {highest} but the model knows {logits.shape[1]} classes "
            f"(0..{logits.shape[1] - 1}): build it for {len(dataset.classes)} classes"
        )
    if plan.threads is not None or processes.device.type != "cpu":
        return sample, plan.threads or torch.get_num_threads()
    rows = plan.inputs_per_step * plan.objective.draws // (plan.shards or processes.count)
    return sample, threads_for(rows * work)
