"""The papers' search: stochastic gradient ascent on the radius (Alfarra et al. 2020, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from smoothcert.errors import check_count, check_positive
from smoothcert.knobs import knob
from smoothcert.sampling.gradients import Wave
from smoothcert.sigma_search.ascent import radius_gradient
from smoothcert.sigma_search.base import SEARCHES, Checked, Reason, SearchResult
from smoothcert.sigma_search.problem import Evaluations, Numbered, Problem

_STEPS_FROM = 1 << 40  # blocks of the stream: step k draws block _STEPS_FROM + k, votes draw low blocks


@SEARCHES.register("gradient")
@dataclass(frozen=True, kw_only=True)
class GradientSearch(Checked):
    """``steps`` steps of ascent on R(σ) = σ/2 (Φ⁻¹(E_A) − Φ⁻¹(E_B)), E the mean softmax over fresh samples.

    A and B are the two classes ahead in E, both means clamped to [0.02, 0.98]; for uniform noise R = λ(E_A − E_B).
    Published: lr 1e-4, one sample (8 for MACER), up to 900 steps (1500), σ₀ the σ of training, and ``check_votes`` 0:
    where it ends is taken as it is, at the end of the range if it went beyond. The model is evaluated eagerly, in
    passes of ``rows`` rows whatever the batch: same bits regardless of the neighbours.
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
        for name in ("steps", "samples", "rows"):
            check_count(name, getattr(self, name))
        check_positive("lr", self.lr)

    @property
    def evaluations(self) -> int:
        """Rows an input costs at most: a forward and a backward pass for each sample, then the comparison."""
        return 2 * self.steps * self.samples + self.check_evaluations

    def search(
        self, problem: Problem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
    ) -> list[SearchResult]:
        """Ascend, then compare with σ₀ by votes."""
        spent = 2 * self.steps * self.samples
        ended = problem.ascend(
            inputs,
            partial(self._climb, problem),
            samples=self.samples,
            rows=self.rows,
            channels_last=True,
            on_inputs=on_evaluations and (lambda settled: on_evaluations(spent * settled)),
        )
        good = [position for position, (_, reason) in enumerate(ended) if reason == "improved"]
        compared = self.compare(
            problem, [inputs[p] for p in good], [ended[p][0] for p in good], spent, on_evaluations
        )
        found = dict(zip(good, compared))
        return [
            found.get(p) or SearchResult(index, problem.start, ended[p][1], None, None, spent)
            for p, (index, _) in enumerate(inputs)
        ]

    def _climb(self, problem: Problem, wave: Wave) -> list[tuple[float, Reason]]:
        """Where σ of each input of a wave ended, and whether it got there in good order."""
        low, high = self.limits(problem)
        sigma = torch.full((len(wave.x),), problem.start, dtype=torch.float64)
        reasons: list[Reason] = ["improved"] * len(sigma)
        for step in range(self.steps):
            unit = wave.unit(_STEPS_FROM + step)
            _, gradient = radius_gradient(
                wave.module, wave.x, unit, sigma.to(unit.device), problem.noise.name
            )
            moved = sigma + self.lr * gradient.double().cpu()
            if self.check_votes == 0:
                moved = moved.clamp(low, high)
            for slot in wave.used:
                if reasons[slot] == "improved":
                    if not math.isfinite(moved[slot]):
                        reasons[slot] = "not finite"
                    elif not low <= float(moved[slot]) <= high:
                        reasons[slot] = "out of range"
                    else:
                        sigma[slot] = moved[slot]
            if all(reasons[slot] != "improved" for slot in wave.used):
                break
        return list(zip(sigma.tolist(), reasons))
