"""Mixed precision: the network's passes in 16 bits, everything around them in 32."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidValueError
from smoothcert.training.plan import Precision


class WithPrecision(nn.Module):
    """A network whose passes run in the given type and layout and whose logits come back in float32.

    Losses and attacks then work in float32, where a probability near 1 keeps the digits that matter.
    """

    def __init__(
        self,
        network: nn.Module,
        precision: Precision,
        device: torch.device,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        super().__init__()
        self.network = network
        self._layout = layout
        self._device_type = device.type
        self._dtype: torch.dtype = getattr(torch, precision)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, classes)."""
        x = x.contiguous(memory_format=self._layout)
        if self._dtype == torch.float32:
            logits: Tensor = self.network(x)
            return logits
        with torch.autocast(self._device_type, self._dtype):
            logits = self.network(x)
        return logits.float()


def check_precision(precision: Precision, device: torch.device) -> None:
    """Refuse float16 where losses can't be scaled for it."""
    if precision == "float16" and device.type != "cuda":
        raise InvalidValueError(
            f"precision float16 needs a CUDA device, got {device.type}: use bfloat16 or float32"
        )
