"""Projected gradient ascent in ℓ2 (Madry et al., 2018; on smoothed classifiers Salman et al., 2019)."""

from __future__ import annotations

from torch import Tensor, nn

from smoothcert.attacks.steps import (
    at_rest,
    check_clippable,
    loss_gradient,
    stay_near,
    stein_direction,
    unit,
)
from smoothcert.errors import check_count, check_not_negative, check_positive


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    *,
    epsilon: float,
    steps: int,
    step_size: float | None = None,
    clip: bool = True,
    gradient_free: bool = False,
) -> Tensor:
    """The last point of :func:`pgd_path` within ``epsilon`` of ``x``; published step size: 2ε/steps.

    ``epsilon`` 0 gives ``x`` back without a pass.
    """
    check_not_negative("epsilon", epsilon)
    check_count("steps", steps)
    if epsilon == 0:
        return x.detach()
    return pgd_path(
        model,
        x,
        y,
        noise,
        steps=steps,
        step_size=2 * epsilon / steps if step_size is None else step_size,
        max_norm=epsilon,
        clip=clip,
        gradient_free=gradient_free,
    )[-1]


def pgd_path(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    *,
    steps: int,
    step_size: float,
    max_norm: float | None = None,
    clip: bool = True,
    gradient_free: bool = False,
) -> list[Tensor]:
    """The ``steps`` points of normalised ascent on ``−log((1/m) Σ F_y(x'+δ_i))`` from ``x``, ``x`` left out.

    Every step goes ``step_size`` along the normalised gradient (nowhere if that is zero), then back into
    [0, 1] if ``clip`` and the ball of radius ``max_norm`` if given. ``gradient_free`` estimates the
    direction from the values at the noise copies instead, which takes several of them to mean anything.

    Cost: ``steps`` forward passes of all copies, and as many backward passes to the inputs unless
    ``gradient_free``. The weights take no part: neither graph nor ``.grad`` is made for them.
    """
    check_count("steps", steps)
    check_positive("step_size", step_size)
    check_clippable(x, clip)
    x = x.detach()
    points = [x]
    with at_rest(model):
        for _ in range(steps):
            direction = (
                stein_direction(model, points[-1], y, noise)
                if gradient_free
                else loss_gradient(model, points[-1], y, noise)[0]
            )
            points.append(stay_near(points[-1] + step_size * unit(direction), x, max_norm, clip))
    return points[1:]
