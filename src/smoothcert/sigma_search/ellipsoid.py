"""A σ for each coordinate of each input: the ellipsoid around it with the largest volume, or else the best ball."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.errors import check_count, check_not_negative, check_positive
from smoothcert.knobs import knob
from smoothcert.noise import diagonal_noise
from smoothcert.sampling.common_noise import VoteRequest
from smoothcert.sampling.gradients import Wave
from smoothcert.sigma_search.ascent import leading_means, soft_radius
from smoothcert.sigma_search.base import SEARCHES, SearchResult, SigmaSearch, count, votes_of
from smoothcert.sigma_search.curve import Curve
from smoothcert.sigma_search.ladder import LadderSearch
from smoothcert.sigma_search.problem import Evaluations, Numbered, Problem

_STEPS_FROM = 1 << 41  # blocks of the stream: step k draws block _STEPS_FROM + k, votes draw low blocks
_FRESH = 1 << 20  # samples of the comparison, far beyond those that the ladder has seen
_BALL = (1.0, 2**0.5, 2.0)  # scales at which the ball is voted on, relative to its best σ
_STRETCHED = (1.0, 2**0.5, 2.0, 2 * 2**0.5)  # and the ellipsoid: it bears more noise
_FINE = np.geomspace(2**-0.5, 2 * 2**0.5, 17)
_BETAS, _EPS = (0.9, 0.999), 1e-8  # Adam's
_LEAST_RADIUS = 1e-6

Array = NDArray[np.float64]


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
        self, problem: Problem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
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
        for position, one in zip(shaped, self._decide(problem, contests, on_evaluations)):
            balls[position] = one
        return balls

    def _shapes(
        self,
        problem: Problem,
        inputs: Sequence[Numbered],
        sigmas: Sequence[float],
        on_evaluations: Evaluations | None = None,
    ) -> list[Array | None]:
        """σ over its geometric mean for each input; None where the gradient wasn't a number."""
        return problem.ascend(
            inputs,
            partial(self._climb, problem.noise.name, sigmas),
            samples=self.samples,
            rows=self.rows,
            on_inputs=on_evaluations and (lambda settled: on_evaluations(self._ascent_rows * settled)),
        )

    def _climb(self, noise: str, sigmas: Sequence[float], wave: Wave) -> list[Array | None]:
        x, room = wave.x, math.log(self.factor)
        start = torch.tensor([math.log(sigmas[position]) for position in wave.positions], dtype=torch.float64)
        start = start.reshape(-1, *[1] * (x.ndim - 1)).expand(x.shape)
        theta = start.clone()
        first, second = torch.zeros_like(theta), torch.zeros_like(theta)
        for step in range(self.steps):
            slope = self._slope(noise, wave.module, x, wave.unit(_STEPS_FROM + step), theta)
            first.mul_(_BETAS[0]).add_(slope, alpha=1 - _BETAS[0])
            second.mul_(_BETAS[1]).addcmul_(slope, slope, value=1 - _BETAS[1])
            mean = first / (1 - _BETAS[0] ** (step + 1))
            size = (second / (1 - _BETAS[1] ** (step + 1))).sqrt() + _EPS
            theta = torch.clamp(theta + self.lr * mean / size, start - room, start + room)
        return [_shape_of(one) for one in theta]

    def _slope(self, noise: str, module: nn.Module, x: Tensor, unit: Tensor, theta: Tensor) -> Tensor:
        """The gradient of the logarithm of that sum in each input's ln σ; inputs don't share terms."""
        with torch.enable_grad():
            point = theta.detach().to(device=x.device, dtype=x.dtype).requires_grad_()
            means = leading_means(module, x + unit * point.exp())
            flat = point.flatten(1)
            size = flat.mean(1).exp() + self.kappa * flat.amin(1).exp()
            radius = soft_radius(noise, size, *means)
            (slope,) = torch.autograd.grad(radius.clamp(min=_LEAST_RADIUS).log().sum(), point)
        return slope.double().cpu()

    def _decide(
        self,
        problem: Problem,
        contests: Sequence[tuple[Numbered, SearchResult, Array]],
        on_evaluations: Evaluations | None,
    ) -> list[SearchResult]:
        """Ball or ellipsoid of a shape, by the same fresh noise for both."""
        low, high = self.limits(problem)
        requests = []
        for (index, x), ball, stretched in contests:
            for scales, shape in ((_BALL, None), (_STRETCHED, stretched)):
                levels = list(dict.fromkeys(min(ball.sigma * scale, high) for scale in scales))
                request = VoteRequest.product(index, x, levels, _FRESH, _FRESH + self.check_votes)
                requests.append(replace(request, shape=shape))
        ballots = problem.cast(requests, on_evaluations)
        counted = [count(request, cast, problem.prepared.classes) for request, cast in zip(requests, ballots)]
        found = []
        for k, (_, ball, shape) in enumerate(contests):
            rows = len(requests[2 * k]) + len(requests[2 * k + 1])
            ball = replace(ball, evaluations=ball.evaluations + rows)
            chosen = int(counted[2 * k][ball.sigma].argmax())
            round_votes = votes_of(counted[2 * k], self.check_votes, chosen)
            kept = Curve.through(problem, round_votes, ball.sigma).radius(ball.sigma)
            votes = votes_of(counted[2 * k + 1], self.check_votes, chosen)
            scale, _ = Curve.through(problem, votes, ball.sigma).best(
                np.unique(np.clip(ball.sigma * _FINE, low, high))
            )
            promised = Curve.through(problem, votes, scale).radius(scale)
            if self._better(promised, promised * float(shape.min()), kept):
                noise = diagonal_noise(problem.noise.name, scale * shape)
                ball = replace(ball, sigma=noise.sigma, reason="improved", radius=promised, noise=noise)
            found.append(ball)
        return found

    def _better(self, volume: float, inscribed: float, ball: float) -> bool:
        """Whether an ellipsoid of these radii is to be taken instead of a ball."""
        enough = volume > ball and volume + self.kappa * inscribed > (1 + self.kappa) * ball
        return enough and (inscribed >= ball or not self.cover)


def _shape_of(log_sigmas: Tensor) -> Array | None:
    """σ over its geometric mean."""
    if not bool(torch.isfinite(log_sigmas).all()):
        return None
    shape: Array = (log_sigmas - log_sigmas.mean()).exp().numpy()
    return shape
