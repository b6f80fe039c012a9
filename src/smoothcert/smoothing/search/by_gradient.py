"""Searches by gradients: the papers' ascent on the radius, and ellipsoids of a shape found by ascent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from smoothcert.engine.schedule import VoteRequest
from smoothcert.errors import check_count, check_not_negative, check_positive
from smoothcert.knobs import knob
from smoothcert.perturb.diagonal import diagonal_noise
from smoothcert.runs.side_files import Reason, SearchResult
from smoothcert.smoothing.search.base import (
    SEARCHES,
    Array,
    Evaluations,
    Numbered,
    SearchProblem,
    SigmaSearch,
)
from smoothcert.smoothing.search.by_votes import LadderSearch
from smoothcert.smoothing.search.judging import (
    LEAST_MEAN,
    ComparedSearch,
    Curve,
    SigmaVotes,
    leading_means,
    radius_gradient,
    soft_radius,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from smoothcert.engine.samples import Wave

_SIGMA_STEPS = 1 << 40  # blocks of the stream: step k draws block _SIGMA_STEPS + k, votes draw low blocks
_SHAPE_STEPS = 1 << 41  # blocks of the stream: step k draws block _SHAPE_STEPS + k, votes draw low blocks
_FRESH = 1 << 20  # samples of the comparison, far beyond those that the ladder has seen
_BALL = (1.0, 2**0.5, 2.0)  # scales at which the ball is voted on, relative to its best σ
_STRETCHED = (1.0, 2**0.5, 2.0, 2 * 2**0.5)  # and the ellipsoid: it bears more noise
_FINE = np.geomspace(2**-0.5, 2 * 2**0.5, 17)
_BETAS, _EPS = (0.9, 0.999), 1e-8  # Adam's
_LEAST_RADIUS = 1e-6
_Contest = tuple[Numbered, SearchResult, Array]


@SEARCHES.register("gradient")
@dataclass(frozen=True, kw_only=True)
class GradientSearch(ComparedSearch):
    """``steps`` steps of ascent on R(σ) = σ/2 (Φ⁻¹(E_A) − Φ⁻¹(E_B)), E the mean softmax over fresh samples.

    A and B are the two classes ahead in E, both means clamped to [0.02, 0.98]; for uniform noise R = λ(E_A − E_B).
    Published: lr 1e-4, one sample (8 for MACER), up to 900 steps (1500), σ₀ the σ of training, and ``check_votes`` 0:
    where it ends is taken as it is, at the end of the range if it went beyond. The model is evaluated eagerly, in
    passes of ``rows`` rows whatever the batch: same bits regardless of the neighbours.
    """

    uses_gradients: ClassVar[bool] = True
    least_mean: ClassVar[float] = LEAST_MEAN

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
        self, problem: SearchProblem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
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
        results = dict(zip(good, compared))
        kept = (
            SearchResult(i, problem.start, ended[p][1], None, None, spent) for p, (i, _) in enumerate(inputs)
        )
        return [results.get(position, result) for position, result in enumerate(kept)]

    def _climb(self, problem: SearchProblem, wave: Wave) -> list[tuple[float, Reason]]:
        """Where σ of each input of a wave ended, and whether it got there in good order."""
        import torch

        low, high = self.limits(problem)
        sigma = torch.full((len(wave.x),), problem.start, dtype=torch.float64)
        reasons: list[Reason] = ["improved"] * len(sigma)
        for step in range(self.steps):
            unit = wave.unit(_SIGMA_STEPS + step)
            at = sigma.to(unit.device)
            _, gradient = radius_gradient(wave.module, wave.x, unit, at, problem.noise.name, self.least_mean)
            moved = sigma + self.lr * gradient.double().cpu()
            if self.check_votes == 0:
                moved = moved.clamp(low, high)
            for row in wave.used:
                if reasons[row] == "improved":
                    if not math.isfinite(moved[row]):
                        reasons[row] = "not finite"
                    elif not low <= float(moved[row]) <= high:
                        reasons[row] = "out of range"
                    else:
                        sigma[row] = moved[row]
            if all(reasons[row] != "improved" for row in wave.used):
                break
        return list(zip(sigma.tolist(), reasons))


@SEARCHES.register("ddsmoothing")
@dataclass(frozen=True, kw_only=True)
class PackageSearch(GradientSearch):
    """The ascent with the defaults of its authors' package, ddsmoothing: larger steps, more samples, a wider clamp.

    900 steps of 0.04 with 100 samples each, means clamped to [0.001, 0.999], and where it ends is taken as it is:
    180 000 rows an input, nearly twice those that certify it, and 400 times the papers' step.
    """

    least_mean: ClassVar[float] = 0.001

    factor: float = knob(64.0, "σ stays within this factor of where it starts")
    samples: int = knob(100, "fresh samples in each step")
    lr: float = knob(0.04, "step size of the ascent")
    check_votes: int = knob(
        0,
        "votes at each of four σ that decide whether the σ found beats the start; 0: it is taken (published)",
    )


@SEARCHES.register("ellipsoid")
@dataclass(frozen=True, kw_only=True)
class EllipsoidSearch(SigmaSearch):
    """The ladder's best ball first, then a shape by gradients, then votes that decide between the two.

    ``steps`` steps of Adam on ln σ climb gap·(geometric mean of σ + κ·least σ), the equal-volume radius plus κ times
    the inscribed one, by the mean softmax. Only the shape is taken from there; its scale, and whether it is better at
    all, are decided by hard votes that neither the ladder nor the ascent has seen. The ellipsoid is taken if they
    promise more than the ball in equal-volume radius, and in that plus κ times the inscribed radius; with ``cover``
    only if it also promises to hold the ball. Everything is settled before the first certifying vote.
    """

    uses_gradients: ClassVar[bool] = True

    steps: int = knob(100, "steps of gradient ascent")
    samples: int = knob(4, "fresh samples in each step")
    lr: float = knob(0.02, "step of ln σ, by Adam")
    rows: int = knob(
        32, "rows of every pass; the plan's, as shapes round differently (1: one input at a time)"
    )
    kappa: float = knob(0.0, "weight of the inscribed radius beside the equal-volume radius")
    cover: bool = knob(False, "take an ellipsoid only if it promises to hold the best ball")
    check_votes: int = knob(128, "votes at each of seven scales that decide between ball and ellipsoid")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("steps", "samples", "rows", "check_votes"):
            check_count(name, getattr(self, name))
        check_positive("lr", self.lr)
        check_not_negative("kappa", self.kappa)

    @property
    def evaluations(self) -> int:
        """Rows an input costs at most: the ladder, the ascent, the comparison."""
        compared = self.check_votes * (len(_BALL) + len(_STRETCHED))
        return self._ball_search.evaluations + self._ascent_rows + compared

    @property
    def _ball_search(self) -> LadderSearch:
        return LadderSearch(factor=self.factor, rescue=self.rescue)

    @property
    def _ascent_rows(self) -> int:
        return 2 * self.steps * self.samples

    def search(
        self, problem: SearchProblem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
    ) -> list[SearchResult]:
        """Balls, shapes, decisions."""
        balls = self._ball_search.search(problem, inputs, on_evaluations)
        # An input that can't be certified as a ball has no gap to climb from.
        alive = [position for position, ball in enumerate(balls) if ball.radius]
        sigmas = [balls[position].sigma for position in alive]
        shapes = self._shapes(problem, [inputs[position] for position in alive], sigmas, on_evaluations)
        for position in alive:
            ball = balls[position]
            balls[position] = replace(ball, evaluations=ball.evaluations + self._ascent_rows)
        shaped = {position: shape for position, shape in zip(alive, shapes) if shape is not None}
        contests = [(inputs[position], balls[position], shape) for position, shape in shaped.items()]
        for position, result in zip(shaped, self._decide(problem, contests, on_evaluations)):
            balls[position] = result
        return balls

    def _shapes(
        self,
        problem: SearchProblem,
        inputs: Sequence[Numbered],
        sigmas: Sequence[float],
        told: Evaluations | None = None,
    ) -> list[Array | None]:
        """σ over its geometric mean for each input; None where the gradient wasn't a number."""
        return problem.ascend(
            inputs,
            partial(self._climb, problem.noise.name, sigmas),
            samples=self.samples,
            rows=self.rows,
            on_inputs=told and (lambda settled: told(self._ascent_rows * settled)),
        )

    def _climb(self, noise: str, sigmas: Sequence[float], wave: Wave) -> list[Array | None]:
        import torch

        x, most = wave.x, math.log(self.factor)
        start = torch.tensor([math.log(sigmas[position]) for position in wave.positions], dtype=torch.float64)
        start = start.reshape(-1, *[1] * (x.ndim - 1)).expand(x.shape)
        theta = start.clone()
        first, second = torch.zeros_like(theta), torch.zeros_like(theta)
        for step in range(self.steps):
            slope = self._slope(noise, wave.module, x, wave.unit(_SHAPE_STEPS + step), theta)
            first.mul_(_BETAS[0]).add_(slope, alpha=1 - _BETAS[0])
            second.mul_(_BETAS[1]).addcmul_(slope, slope, value=1 - _BETAS[1])
            mean = first / (1 - _BETAS[0] ** (step + 1))
            size = (second / (1 - _BETAS[1] ** (step + 1))).sqrt() + _EPS
            theta = torch.clamp(theta + self.lr * mean / size, start - most, start + most)
        return [_shape_of(log_sigmas) for log_sigmas in theta]

    def _slope(self, noise: str, module: nn.Module, x: Tensor, unit: Tensor, theta: Tensor) -> Tensor:
        """The gradient of the logarithm of that sum in each input's ln σ; inputs don't share terms."""
        import torch

        with torch.enable_grad():
            point = theta.detach().to(device=x.device, dtype=x.dtype).requires_grad_()
            means = leading_means(module, x + unit * point.exp())
            flat = point.flatten(1)
            size = flat.mean(1).exp() + self.kappa * flat.amin(1).exp()
            radius = soft_radius(noise, size, *means)
            (slope,) = torch.autograd.grad(radius.clamp(min=_LEAST_RADIUS).log().sum(), point)
        return slope.double().cpu()

    def _decide(
        self, problem: SearchProblem, contests: Sequence[_Contest], on_evaluations: Evaluations | None
    ) -> list[SearchResult]:
        """Ball or ellipsoid of a shape, by the same fresh noise for both."""
        low, high = self.limits(problem)
        requests = []
        for (index, x), ball, stretch in contests:
            for scales, shape in ((_BALL, None), (_STRETCHED, stretch)):
                sigmas = list(dict.fromkeys(min(ball.sigma * scale, high) for scale in scales))
                request = VoteRequest.product(index, x, sigmas, _FRESH, _FRESH + self.check_votes)
                requests.append(replace(request, shape=shape))
        counted = problem.count(requests, on_evaluations)
        results = []
        for (_, ball, shape), of_ball, stretched in zip(contests, counted[::2], counted[1::2]):
            rows = self.check_votes * (len(of_ball.sigmas) + len(stretched.sigmas))
            ball = replace(ball, evaluations=ball.evaluations + rows)
            chosen = int(of_ball.at(ball.sigma).argmax())
            kept = Curve.through(problem, SigmaVotes.of(of_ball, chosen), ball.sigma).radius(ball.sigma)
            votes = SigmaVotes.of(stretched, chosen)
            fine = np.unique(np.clip(ball.sigma * _FINE, low, high))
            scale = Curve.through(problem, votes, ball.sigma).best(fine)
            promised = Curve.through(problem, votes, scale).radius(scale)
            if self._better(promised, promised * float(shape.min()), kept):
                noise = diagonal_noise(problem.noise.name, scale * shape)
                ball = replace(ball, sigma=noise.sigma, reason="improved", radius=promised, noise=noise)
            results.append(ball)
        return results

    def _better(self, volume: float, inscribed: float, ball: float) -> bool:
        """Whether an ellipsoid of these radii is to be taken instead of a ball."""
        enough = volume > ball and volume + self.kappa * inscribed > (1 + self.kappa) * ball
        return enough and (inscribed >= ball or not self.cover)


def _shape_of(log_sigmas: Tensor) -> Array | None:
    """σ over its geometric mean."""
    if not bool(log_sigmas.isfinite().all()):
        return None
    shape: Array = (log_sigmas - log_sigmas.mean()).exp().numpy()
    return shape
