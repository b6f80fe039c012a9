"""torch modules: any `nn.Module` from a float batch to class scores (logits)."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable

import torch
from torch import nn

from smoothcert.errors import ModelError
from smoothcert.sampling.models.base import BaseClassifier, probe_rows
from smoothcert.sampling.numerics import Numerics
from smoothcert.sampling.routes import open_torch_route

_ACTIVATION_BYTES = 4 << 20  # largest activation of a pass: well under the allocator's and the caches' cliffs
_FEWEST_ROWS = 8  # below this, float32 kernels change with the number of rows


class TorchClassifier(BaseClassifier):
    """A module that returns logits; a copy of it is evaluated, in evaluation mode, without gradients."""

    kind = "scores"

    def __init__(self, module: nn.Module, name: str | None = None) -> None:
        self.module = copy.deepcopy(module).cpu().eval().requires_grad_(False)
        self.name = name or type(module).__name__

    def fingerprint(self) -> str:
        """SHA-256 over the structure and every tensor of the module."""
        digest = hashlib.sha256(repr(self.module).encode())
        for key, tensor in self.module.state_dict().items():
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def open_route(
        self, numerics: Numerics, input_shape: tuple[int, ...], device: str
    ) -> tuple[Numerics, Callable[[torch.Tensor], torch.Tensor]]:
        """Cast and move the module, choose the chunk from its largest activation, then open the route."""
        dtype = numerics.torch_dtype()
        module = copy.deepcopy(self.module).to(device=device, dtype=dtype)
        settled = numerics.settled(numerics.route, self._rows_for(input_shape))
        route, forward = open_torch_route(module, settled, input_shape, device)

        def outputs(batch: torch.Tensor) -> torch.Tensor:
            return forward(batch.to(device=device, dtype=dtype, non_blocking=True))

        return settled.settled(route, 0), outputs

    def _rows_for(self, input_shape: tuple[int, ...]) -> int:
        """The largest power of two of rows whose biggest activation stays within the limit."""
        sizes: list[int] = [4]

        def measure(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, torch.Tensor):
                sizes.append(output.numel() // _FEWEST_ROWS * 4)

        rows = probe_rows(_FEWEST_ROWS, input_shape, torch.float32)
        hooks = [part.register_forward_hook(measure) for part in self.module.modules()]
        try:
            with torch.inference_mode():
                self.module.float()(rows)
        except Exception as error:  # foreign code: see BaseClassifier._probe
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ModelError(
                f"{self.name} fails on a batch of shape {tuple(rows.shape)} ({reason}). "
                "Check the input shape; normalisation and reshaping belong inside the model"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()
        return max(_FEWEST_ROWS, 1 << (_ACTIVATION_BYTES // max(sizes)).bit_length() - 1)
