"""torch modules: any `nn.Module` from a float batch to class scores (logits)."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable

import torch
from torch import nn

from smoothcert.sampling.models.base import BaseClassifier, probe_rows
from smoothcert.sampling.numerics import Numerics, rows_within
from smoothcert.sampling.routes import open_torch_route

_BLOCK, _LIGHT_BLOCK = 64, 256  # votes
_LIGHT_MODEL = 1 << 20  # bytes of all activations of a row


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
        sizes = self._activations(module, probe_rows(1, input_shape, dtype).to(device))
        # Bookkeeping costs the same for a pass of any length: light models share it among several passes.
        votes = _LIGHT_BLOCK if sum(sizes) < _LIGHT_MODEL else _BLOCK
        settled = numerics.settled(numerics.route, rows_within(max(sizes)), votes)
        route, forward = open_torch_route(module, settled, input_shape, device)

        def outputs(batch: torch.Tensor) -> torch.Tensor:
            return forward(batch.to(device=device, dtype=dtype, non_blocking=True))

        return settled.on_route(route), outputs

    def _activations(self, module: nn.Module, row: torch.Tensor) -> list[int]:
        """Bytes of each array that one row makes the module compute."""
        sizes = [row.nbytes]

        def measure(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, torch.Tensor):
                sizes.append(output.nbytes)

        hooks = [part.register_forward_hook(measure) for part in module.modules()]
        try:
            self.probe(module, row)
        finally:
            for hook in hooks:
                hook.remove()
        return sizes
