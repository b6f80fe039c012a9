"""Gradient passes: copies of a torch model, differentiated in worker threads on noise of named streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.noise import Noise
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.lanes import rounds, slot_of
from smoothcert.sampling.models import BaseClassifier, TorchClassifier
from smoothcert.sampling.models.copies import private_copy
from smoothcert.sampling.streams import BlockBits, unit_noise
from smoothcert.sampling.threads import Workers
from smoothcert.tally import Phase, Stream

T = TypeVar("T")
R = TypeVar("R")


def check_differentiable(base: BaseClassifier, asker: str, remedy: str) -> TorchClassifier:
    """The model itself; refused if its gradients can't be had, with what works instead."""
    if isinstance(base, TorchClassifier):
        return base
    raise InvalidValueError(
        f"{asker} needs the gradients of a torch module, and {base.name} ({type(base).__name__}) has none: {remedy}"
    )


@dataclass(frozen=True)
class Wave:
    """Inputs that ascend together, each in its own slot of every pass; slots not ``used`` repeat one of them.

    ``unit`` draws noise of standard deviation 1 from a block of each input's stream: (samples, slots, …).
    """

    module: nn.Module
    x: Tensor
    positions: list[int]
    """Which of all inputs each slot holds."""
    used: list[int]
    unit: Callable[[int], Tensor]


class GradientPasses(Workers):
    """Copies of a torch model, each used by one thread at a time; they share weights that need no gradient."""

    def __init__(
        self,
        base: TorchClassifier,
        execution: Execution,
        *,
        remedy: str | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
    ) -> None:
        """``remedy``: what to use instead of a model that fails; None leaves its errors as they are."""
        module = private_copy(base.module).to(device=execution.main_device, dtype=dtype)
        if channels_last:  # convolutions are faster with it, forward and backward
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.device = execution.main_device
        self.workers = min(execution.worker_count(), base.most_workers or execution.worker_count())
        self._base, self._remedy = base, remedy
        self._modules = base.lend(module)

    def map(
        self, pool: ThreadPoolExecutor, function: Callable[[nn.Module, T], R], tasks: Iterable[T]
    ) -> Iterator[R]:
        """The function's values in the order of the tasks, each computed with a copy of the model to itself."""

        def borrowing(task: T) -> R:
            try:
                with self._base.turn(), self._modules.borrowed() as module:
                    return function(module, task)
            except (RuntimeError, ModelError) as error:
                if self._remedy is None:
                    raise
                reason = (str(error) or type(error).__name__).splitlines()[0]
                raise ModelError(
                    f"{self._base.name} can't be differentiated ({reason}): {self._remedy}"
                ) from error

        return pool.map(borrowing, tasks)

    def ascend(
        self,
        inputs: Sequence[tuple[int, Tensor]],
        noise: Noise,
        seed: int,
        climb: Callable[[Wave], Sequence[R]],
        *,
        samples: int,
        rows: int,
        on_inputs: Callable[[int], None] | None = None,
    ) -> list[R]:
        """What ``climb`` finds for each (index, input): it is given waves and answers for every slot.

        A wave has as many slots as make ``rows`` rows with the samples of each. An input's slot follows from its index
        alone: same bits whatever its neighbours. ``on_inputs`` counts the inputs that waves have settled.
        """
        slots = max(1, rows // samples)

        def climbed(module: nn.Module, wave: list[int | None]) -> dict[int, R]:
            used = [slot for slot, position in enumerate(wave) if position is not None]
            real = next(position for position in wave if position is not None)
            # An empty slot repeats a real input, as zeros might trip the model.
            positions = [real if position is None else position for position in wave]
            x = torch.stack([inputs[position][1] for position in positions])
            drawn, bits = x.new_zeros((samples, *x.shape)), BlockBits()

            def unit(block: int) -> Tensor:
                for slot in used:
                    state = bits.seek(Stream(seed, inputs[positions[slot]][0], Phase.SEARCH), block)
                    drawn[:, slot] = unit_noise(noise, (samples, *x.shape[1:]), x.dtype, state)
                return drawn.to(self.device)

            found = climb(Wave(module, x.to(self.device), positions, used, unit))
            return {positions[slot]: found[slot] for slot in used}

        placed = ((slot_of(index, slots), position) for position, (index, _) in enumerate(inputs))
        results: dict[int, R] = {}
        with self.threads() as pool:
            for wave in self.map(pool, climbed, rounds(slots, placed)):
                results |= wave
                if on_inputs is not None:
                    on_inputs(len(wave))
        return [results[position] for position in range(len(inputs))]
