"""Training methods as losses, for loops of one's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.knobs import from_mapping
from smoothcert.noise import DEFAULT_NOISE, NOISES
from smoothcert.objectives.base import OBJECTIVES, BatchNoise, Objective, objective_name


class SmoothingLoss:
    """``criterion(model, x, y)``: the mean loss of a batch by one of the methods of ``smoothcert methods``.

    ``x`` are inputs without noise, in the units in which ``sigma`` is, and normalisation is the model's. The loss adds
    the noise itself, and calls the model as often as the method needs; it holds no weights. ``knobs`` are the method's
    (``copies=4``), with their published values as defaults; a method of one's own is given as an
    :class:`~smoothcert.objectives.Objective`.

    All that is random comes from ``generator``, seeded by ``seed`` or else by torch's own generator: what
    ``torch.manual_seed`` makes reproducible includes this. For a checkpoint keep ``generator.get_state()``.
    """

    def __init__(
        self,
        method: str | Objective = "gaussian",
        *,
        sigma: float,
        noise: str = DEFAULT_NOISE,
        seed: int | None = None,
        **knobs: Any,
    ) -> None:
        if isinstance(method, Objective):
            if knobs:
                raise InvalidValueError(
                    f"{', '.join(knobs)}: the knobs of a method that is given as an object are its own"
                )
            self.objective = method
        else:
            self.objective = from_mapping(OBJECTIVES[method], knobs, method)
        kind = NOISES[noise]
        self.noise = BatchNoise(kind(sigma).sigma, kind)
        if seed is None:
            seed = int(torch.randint(2**62, ()).item())
        check_count("seed", seed, least=0)
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The loss; call ``backward()`` on it."""
        return self.objective.loss(model, x, y, self.noise, self.generator)

    def __repr__(self) -> str:
        """Method, noise and σ."""
        name, kind = objective_name(self.objective), self.noise.kind.name
        return f"SmoothingLoss({name!r}, sigma={self.noise.sigma:g}, noise={kind!r})"
