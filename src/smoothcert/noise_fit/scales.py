"""What may vary in a σ vector: a scale for each group of coordinates, or a matrix of low rank for images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.errors import InvalidValueError, check_count, check_positive
from smoothcert.noise_fit.streams import Purpose, stream

Labels = NDArray[np.int64]


class Scales(ABC):
    """Parameters and the map from them to ln(σ/start). At the start σ is exactly the vector it was made with.

    Logarithms and not σ itself: σ can't become negative, and a step means the same for a coordinate in
    millimetres as for one in thousands of euros.
    """

    def __init__(self, start: NDArray[np.float64]) -> None:
        self.start = start

    @abstractmethod
    def parameters(self) -> list[Tensor]:
        """Where they start, in float64."""

    @abstractmethod
    def log_factors(self, parameters: Sequence[Tensor]) -> Tensor:
        """ln(σ/start), in the shape of an input."""

    def sigmas(self, parameters: Sequence[Tensor]) -> NDArray[np.float64]:
        """The vector itself."""
        return np.asarray(self.start * self.log_factors(parameters).detach().exp().numpy())


class GroupScales(Scales):
    """One factor for each group: σ_i = start_i · exp(θ of i's group)."""

    def __init__(self, start: NDArray[np.float64], labels: Labels) -> None:
        super().__init__(start)
        if labels.shape != start.shape:
            raise InvalidValueError(
                f"group labels of shape {labels.shape} don't fit inputs of shape {start.shape}"
            )
        self.labels = torch.from_numpy(np.ascontiguousarray(labels))
        self.groups = int(labels.max()) + 1

    def parameters(self) -> list[Tensor]:
        """Zero for every group."""
        return [torch.zeros(self.groups, dtype=torch.float64)]

    def log_factors(self, parameters: Sequence[Tensor]) -> Tensor:
        """Each coordinate's θ is its group's; so gradients are summed over a group."""
        (theta,) = parameters
        return theta[self.labels]


class LowRankScales(Scales):
    """For images: ln σ[c, i, j] = ln start + Σ_r u[c, i, r] v[c, j, r], with R·(height + width) numbers a channel.

    v starts at 0, so that σ starts where it should; u at ones for r = 0 (columns, and the overall scale) and at random
    signs for the others, because where both are 0 no gradient leaves.
    """

    def __init__(self, start: NDArray[np.float64], rank: int, seed: int) -> None:
        super().__init__(start)
        check_count("rank", rank)
        if start.ndim != 3:
            raise InvalidValueError(
                f"rank needs images of shape (channels, height, width), got inputs of shape {start.shape}; "
                "leave --rank out and use --groups"
            )
        if rank > min(start.shape[1:]):
            raise InvalidValueError(
                f"rank must be at most {min(start.shape[1:])}, the image's shorter side, got {rank}"
            )
        self.rank, self.seed = rank, seed

    def parameters(self) -> list[Tensor]:
        """u and v."""
        channels, height, width = self.start.shape
        signs = torch.randint(0, 2, (channels, height, self.rank), generator=stream(self.seed, Purpose.START))
        u = (2 * signs - 1).double()
        u[..., 0] = 1.0
        return [u, torch.zeros(channels, width, self.rank, dtype=torch.float64)]

    def log_factors(self, parameters: Sequence[Tensor]) -> Tensor:
        """The product."""
        u, v = parameters
        return u @ v.transpose(1, 2)


def starting_vector(
    shape: tuple[int, ...], init: float, spread: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """``init`` everywhere, or ``init`` times each coordinate's standard deviation."""
    check_positive("init", init)
    if spread is None:
        return np.full(shape, init, dtype=np.float64)
    if not (spread > 0).all():
        where = tuple(int(i) for i in np.argwhere(~(spread > 0))[0])
        raise InvalidValueError(
            f"coordinate {where} never changes in the data, so its σ can't start at a share of its spread: leave "
            "--scale out, or leave the coordinate out of the data"
        )
    return init * spread.astype(np.float64)
