"""Autocast: each operation in 16 bits or 32, as torch finds it suited; weights and inputs stay in 32."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn


class Autocast(nn.Module):
    """A module whose operations torch casts; its answers have the type that the last of them has."""

    def __init__(self, module: nn.Module, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module
        self._kind, self._dtype = torch.device(device).type, dtype

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        # Casts of weights aren't kept: what one pass leaves must not meet another.
        with torch.autocast(self._kind, self._dtype, cache_enabled=False):
            return cast(Tensor, self.module(x))

    def over(self, module: nn.Module) -> Autocast:
        """The same around another module."""
        return Autocast(module, self._kind, self._dtype)
