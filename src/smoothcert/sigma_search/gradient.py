"""The papers' search: stochastic gradient ascent on the radius (Alfarra et al. 2020, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidValueError, ModelError, check_count, check_positive
from smoothcert.knobs import knob
from smoothcert.noise import draw_unit
from smoothcert.sampling.models.copies import Lending
from smoothcert.sampling.streams import BlockBits
from smoothcert.sampling.threads import one_openmp_thread
from smoothcert.sigma_search.ascent import radius_gradient
from smoothcert.sigma_search.base import SEARCHES, Checked, Found, Numbered, Reason
from smoothcert.sigma_search.problem import Problem, places
from smoothcert.sigma_search.votes import Evaluations
from smoothcert.tally import Phase, Stream

_STEPS_FROM = 1 << 40  # blocks of the stream: step k draws block _STEPS_FROM + k, votes draw low blocks


@SEARCHES.register("gradient")
@dataclass(frozen=True, kw_only=True)
class GradientSearch(Checked):
    """``steps`` steps of ascent on R(σ) = σ/2 (Φ⁻¹(E_A) − Φ⁻¹(E_B)), E the mean softmax over fresh samples.

    A and B are the two classes ahead in E, both means clamped to [0.02, 0.98]; for uniform noise R = λ(E_A − E_B).
    Published: lr 1e-4, one sample (8 for MACER), up to 900 steps (1500), σ₀ the σ of training. The model is
    evaluated eagerly, in passes of ``rows`` rows whatever the batch: same bits whoever the neighbours are.
    """

    uses_gradients: ClassVar[bool] = True

    steps: int = knob(900, "steps of gradient ascent")
    samples: int = knob(1, "fresh samples in each step")
    lr: float = knob(1e-4, "step size of the ascent")
    rows: int = knob(
        32, "rows of every pass; the plan's, as shapes round differently (1: one input at a time)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)
        check_count("samples", self.samples)
        check_positive("lr", self.lr)
        check_count("rows", self.rows)

    @property
    def evaluations(self) -> int:
        """Rows an input costs at most: a forward and a backward pass for each sample, then the comparison."""
        return 2 * self.steps * self.samples + self.check_evaluations

    def search(
        self, problem: Problem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
    ) -> list[Found]:
        """Ascend, then compare with σ₀ by votes."""
        modules = problem.lend(_laid_out(problem.module(), problem.prepared.input_shape))
        slots = max(1, self.rows // self.samples)
        waves = places([index for index, _ in inputs], slots)
        ended: dict[int, tuple[float, Reason]] = {}
        with one_openmp_thread(), ThreadPoolExecutor(problem.execution.worker_count()) as pool:
            for wave in pool.map(lambda wave: self._ascend(problem, modules, inputs, wave), waves):
                ended |= wave
                if on_evaluations is not None:
                    on_evaluations(2 * self.steps * self.samples * len(wave))
        good = [position for position in range(len(inputs)) if ended[position][1] == "improved"]
        spent = 2 * self.steps * self.samples
        compared = self.compare(
            problem, [inputs[p] for p in good], [ended[p][0] for p in good], spent, on_evaluations
        )
        found = dict(zip(good, compared))
        return [
            found.get(p) or Found(index, problem.start, ended[p][1], None, None, spent)
            for p, (index, _) in enumerate(inputs)
        ]

    def _ascend(
        self, problem: Problem, modules: Lending[nn.Module], inputs: Sequence[Numbered], wave: list[int]
    ) -> dict[int, tuple[float, Reason]]:
        """Where σ of each input of a wave ended, and whether it got there in good order."""
        with modules.borrowed() as module:
            return self._ascend_with(problem, module, inputs, wave)

    def _ascend_with(
        self, problem: Problem, module: nn.Module, inputs: Sequence[Numbered], wave: list[int]
    ) -> dict[int, tuple[float, Reason]]:
        used = [slot for slot, position in enumerate(wave) if position >= 0]
        shape, dtype = problem.prepared.input_shape, problem.prepared.numerics.noise_dtype()
        device = problem.execution.device
        # Empty slots repeat an input: zeros could make a model that divides by its input's norm fail.
        filled = [position if position >= 0 else wave[used[0]] for position in wave]
        x = torch.stack([problem.tensor(*inputs[position]) for position in filled])
        unit = torch.zeros((self.samples, len(wave), *shape), dtype=dtype)
        bits = BlockBits()
        low, high = self.limits(problem)
        sigma = torch.full((len(wave),), problem.start, dtype=torch.float64)
        reasons: dict[int, Reason] = dict.fromkeys(used, "improved")
        x = x.to(device)
        block = torch.empty((self.samples, *shape), dtype=dtype)
        for step in range(self.steps):
            for slot in used:
                stream = Stream(problem.seed, inputs[wave[slot]][0], Phase.SEARCH)
                draw_unit(problem.noise, block, bits.seek(stream, _STEPS_FROM + step))
                unit[:, slot] = block
            gradient = self._gradient(problem, module, x, unit.to(device), sigma.to(device))
            moved = sigma + self.lr * gradient.double().cpu()
            for slot in used:
                if reasons[slot] == "improved":
                    if not math.isfinite(moved[slot]):
                        reasons[slot] = "not finite"
                    elif not low <= float(moved[slot]) <= high:
                        reasons[slot] = "out of range"
                    else:
                        sigma[slot] = moved[slot]
            if all(reason != "improved" for reason in reasons.values()):
                break
        return {wave[slot]: (float(sigma[slot]), reasons[slot]) for slot in used}

    def _gradient(
        self, problem: Problem, module: nn.Module, x: Tensor, unit: Tensor, sigma: Tensor
    ) -> Tensor:
        try:
            return radius_gradient(module, x, unit, sigma, problem.noise.name)[1]
        except InvalidValueError:
            raise
        except (RuntimeError, ModelError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"{problem.base.name} can't be differentiated ({reason}): use sigma search 'ladder' or 'grid'"
            ) from error


def _laid_out(module: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Convolutions are faster with channels last, forward and backward; only where inputs are images."""
    if len(shape) != 3:
        return module
    moved: nn.Module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved
