"""A σ for each coordinate of each input: the ellipsoid around it with the largest volume, or else the best ball."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.errors import ModelError, check_count, check_not_negative, check_positive
from smoothcert.knobs import knob
from smoothcert.noise import diagonal_noise, draw_unit
from smoothcert.sampling.models.copies import Lending
from smoothcert.sampling.streams import BlockBits
from smoothcert.sampling.threads import one_openmp_thread
from smoothcert.sigma_search.ascent import soft_radius
from smoothcert.sigma_search.base import SEARCHES, Found, Numbered, SigmaSearch, count, votes_of
from smoothcert.sigma_search.curve import Curve
from smoothcert.sigma_search.ladder import LadderSearch
from smoothcert.sigma_search.problem import Problem, places
from smoothcert.sigma_search.votes import Booth, Evaluations, Request
from smoothcert.tally import Phase, Stream

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
        return self._ball_search.evaluations + self._ascent_rows + self._check_rows

    @property
    def _ball_search(self) -> LadderSearch:
        return LadderSearch(factor=self.factor, rescue=self.rescue)

    @property
    def _ascent_rows(self) -> int:
        return 2 * self.steps * self.samples

    @property
    def _check_rows(self) -> int:
        return self.check_votes * (len(_BALL) + len(_STRETCHED))

    def search(
        self, problem: Problem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
    ) -> list[Found]:
        """Balls, shapes, decisions."""
        balls = self._ball_search.search(problem, inputs, on_evaluations)
        # An input that can't be certified as a ball has no gap to climb from.
        alive = [place for place, ball in enumerate(balls) if ball.radius]
        found = dict(enumerate(balls))
        shapes = self._shapes(problem, inputs, balls, alive, on_evaluations)
        good = [place for place in alive if shapes[place] is not None]
        found |= dict(zip(good, self._decide(problem, inputs, balls, good, shapes, on_evaluations)))
        for place in alive:
            found[place] = replace(found[place], evaluations=found[place].evaluations + self._ascent_rows)
        return [found[place] for place in range(len(inputs))]

    def _shapes(
        self,
        problem: Problem,
        inputs: Sequence[Numbered],
        balls: Sequence[Found],
        alive: Sequence[int],
        on_evaluations: Evaluations | None,
    ) -> dict[int, Array | None]:
        """σ over its geometric mean for each input; None where the gradient wasn't a number."""
        modules = problem.lend(problem.module())
        slots = max(1, self.rows // self.samples)
        waves = [
            [alive[position] if position >= 0 else -1 for position in wave]
            for wave in places([inputs[place][0] for place in alive], slots)
        ]
        shapes: dict[int, Array | None] = {}
        with one_openmp_thread(), ThreadPoolExecutor(problem.execution.worker_count()) as pool:
            for wave in pool.map(lambda wave: self._ascend(problem, modules, inputs, balls, wave), waves):
                shapes |= wave
                if on_evaluations is not None:
                    on_evaluations(self._ascent_rows * len(wave))
        return shapes

    def _ascend(
        self,
        problem: Problem,
        modules: Lending[nn.Module],
        inputs: Sequence[Numbered],
        balls: Sequence[Found],
        wave: list[int],
    ) -> dict[int, Array | None]:
        with modules.borrowed() as module:
            return self._ascend_with(problem, module, inputs, balls, wave)

    def _ascend_with(
        self,
        problem: Problem,
        module: nn.Module,
        inputs: Sequence[Numbered],
        balls: Sequence[Found],
        wave: list[int],
    ) -> dict[int, Array | None]:
        used = [slot for slot, place in enumerate(wave) if place >= 0]
        # Empty slots repeat an input: zeros could make a model that divides by its input's norm fail.
        filled = [place if place >= 0 else wave[used[0]] for place in wave]
        device, shape = problem.execution.device, problem.prepared.input_shape
        x = torch.stack([problem.tensor(*inputs[place]) for place in filled]).to(device)
        start = torch.tensor([math.log(balls[place].sigma) for place in filled], dtype=torch.float64)
        start = start.reshape(-1, *[1] * len(shape)).expand(len(wave), *shape)
        theta, room = start.clone(), math.log(self.factor)
        unit = torch.zeros((self.samples, *x.shape), dtype=x.dtype)
        block = torch.empty((self.samples, *shape), dtype=x.dtype)
        bits = BlockBits()
        first, second = torch.zeros_like(theta), torch.zeros_like(theta)
        for step in range(self.steps):
            for slot in used:
                stream = Stream(problem.seed, inputs[wave[slot]][0], Phase.SEARCH)
                draw_unit(problem.noise, block, bits.seek(stream, _STEPS_FROM + step))
                unit[:, slot] = block
            slope = self._slope(problem, module, x, unit.to(device), theta)
            first.mul_(_BETAS[0]).add_(slope, alpha=1 - _BETAS[0])
            second.mul_(_BETAS[1]).addcmul_(slope, slope, value=1 - _BETAS[1])
            mean = first / (1 - _BETAS[0] ** (step + 1))
            size = (second / (1 - _BETAS[1] ** (step + 1))).sqrt() + _EPS
            theta = torch.clamp(theta + self.lr * mean / size, start - room, start + room)
        return {wave[slot]: _shape_of(theta[slot]) for slot in used}

    def _slope(self, problem: Problem, module: nn.Module, x: Tensor, unit: Tensor, theta: Tensor) -> Tensor:
        """The gradient of the logarithm of that sum in each input's ln σ; inputs don't share terms."""
        try:
            with torch.enable_grad():
                point = theta.to(device=x.device, dtype=x.dtype).requires_grad_()
                logits = module((x + unit * point.exp()).flatten(0, 1))
                means = logits.reshape(len(unit), len(x), -1).softmax(-1).mean(0)
                ahead, behind = means.topk(2, dim=1).values.unbind(1)
                flat = point.flatten(1)
                size = flat.mean(1).exp() + self.kappa * flat.amin(1).exp()
                radius = soft_radius(problem.noise.name, size, ahead, behind)
                (slope,) = torch.autograd.grad(radius.clamp(min=_LEAST_RADIUS).log().sum(), point)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"{problem.base.name} can't be differentiated ({reason}): use sigma search 'ladder' or 'grid'"
            ) from error
        return slope.double().cpu()

    def _decide(
        self,
        problem: Problem,
        inputs: Sequence[Numbered],
        balls: Sequence[Found],
        good: Sequence[int],
        shapes: dict[int, Array | None],
        on_evaluations: Evaluations | None,
    ) -> list[Found]:
        """Ball or ellipsoid, by the same fresh noise for both."""
        low, high = self.limits(problem)
        requests = []
        for place in good:
            index, x = inputs[place]
            sigma, stop = balls[place].sigma, _FRESH + self.check_votes
            for scales, shape in ((_BALL, None), (_STRETCHED, shapes[place])):
                levels = dict.fromkeys(min(sigma * scale, high) for scale in scales)
                requests.append(replace(Request.product(index, x, list(levels), _FRESH, stop), shape=shape))
        ballots = Booth(problem, on_evaluations).cast(requests)
        counted = [count(request, cast, problem.prepared.classes) for request, cast in zip(requests, ballots)]
        found = []
        for k, place in enumerate(good):
            rows = len(requests[2 * k]) + len(requests[2 * k + 1])
            ball, shape = replace(balls[place], evaluations=balls[place].evaluations + rows), shapes[place]
            assert shape is not None
            chosen = int(counted[2 * k][ball.sigma].argmax())
            round_votes = votes_of(counted[2 * k], self.check_votes, chosen)
            kept = Curve.through(problem, round_votes, ball.sigma).radius(ball.sigma)
            votes = votes_of(counted[2 * k + 1], self.check_votes, chosen)
            scale, _ = Curve.through(problem, votes, ball.sigma).best(
                np.unique(np.clip(ball.sigma * _FINE, low, high))
            )
            promised = Curve.through(problem, votes, scale).radius(scale)
            inscribed = promised * float(shape.min())
            if self._better(promised, inscribed, kept):
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
