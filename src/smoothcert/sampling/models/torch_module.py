"""torch modules: any `nn.Module` from a float batch to class scores (logits) or probabilities."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.registry import unknown_name
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sampling.models.autocast import Autocast
from smoothcert.sampling.models.base import ACTIVATION_FACTOR, BaseClassifier
from smoothcert.sampling.models.copies import (
    Lending,
    converted_copy,
    private_copy,
    shares_weights,
    worker_copy,
)
from smoothcert.sampling.models.prepared import Opened
from smoothcert.sampling.models.probes import Outputs, answer_bytes, probe_rows
from smoothcert.sampling.models.voting_module import VotingModule
from smoothcert.sampling.models.whole_numbers import check_exact, whole_type
from smoothcert.sampling.numerics import LARGEST_CHUNK, Numerics, rows_within
from smoothcert.sampling.routes import Forward, ModuleForward, open_torch_route
from smoothcert.sampling.rows import MOST_ROWS, TorchGauge, fastest_rows, measured

_BLOCK, _LIGHT_BLOCK = 64, 256  # votes
_LIGHT_MODEL = 1 << 20  # bytes of all activations of a row
# Rows whose answers are hashed: few, because float64 is slow, and the weights are hashed whole.
_PROBED, _PROBED_LARGE = 8, 4
_LARGE = 1 << 14  # numbers of an input


class TorchClassifier(BaseClassifier):
    """A module that returns logits, or probabilities; copies of it are evaluated, in evaluation mode and without
    gradients.

    Every worker has a copy of its own, which shares the weights if they are large. ``thread_safe=False`` is for modules
    whose copies still meet somewhere: one worker does all the work.

    Of several outputs (a tuple, a mapping, a data class) ``output`` names the one that votes, by its name or its place;
    else it is ``logits``. A module that returns one number a row tells two classes apart if that is declared:
    ``classes=2``, with ``outputs`` to say whether the number is a logit or a probability. ``input_dtype`` is for
    modules that take whole numbers: see :func:`~smoothcert.sampling.models.whole_numbers.as_whole`.
    """

    def __init__(
        self,
        module: nn.Module,
        name: str | None = None,
        outputs: OutputKind | None = None,
        class_names: tuple[Any, ...] | None = None,
        thread_safe: bool | None = None,
        *,
        output: str | None = None,
        classes: int | None = None,
        input_dtype: str | None = None,
    ) -> None:
        if outputs == "labels":
            raise InvalidValueError(
                'a torch module must return scores or probabilities, not outputs="labels": return the scores that the '
                "labels are made from, or give a function that calls the module"
            )
        if outputs not in (None, "scores", "probabilities"):
            raise unknown_name("kind of output", outputs, ["probabilities", "scores"])
        self.name = name or type(module).__name__
        if any(
            isinstance(one, (UninitializedBuffer, UninitializedParameter))
            for one in chain(module.parameters(), module.buffers())
        ):
            raise ModelError(f"{self.name} has lazy layers without weights: evaluate it on a batch first")
        self.module = private_copy(module).cpu()
        self.module.eval()  # what it returns is its train()'s to say, which may be overridden
        for parameter in self.module.parameters():  # scripted modules have no requires_grad_ of their own
            parameter.requires_grad_(False)
        self.kind = outputs or "scores"
        self.class_names = class_names
        self.classes = classes
        self.most_workers = 1 if thread_safe is False else None
        self.one_number = classes == 2 and outputs is not None
        self._input_dtype = whole_type(input_dtype)
        self.differentiable = self._input_dtype is None  # rounding has no slope
        self._declared = "".join(f" {each}" for each in (output, input_dtype) if each is not None)
        if self._declared or self.one_number:
            self.module = self._voting_only(self.module, output)

    def identity(self) -> bytes:
        """SHA-256 over the structure and every tensor of the module, and what was declared of it."""
        module = self.module.module if isinstance(self.module, VotingModule) else self.module
        # Addresses of objects that a representation mentions are others in every process.
        shown = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(module)) + self._declared
        digest = hashlib.sha256(shown.encode())
        held = dict(module.named_buffers()) | module.state_dict()  # buffers may be left out of the state
        for key, value in sorted(held.items()):
            if isinstance(value, torch.Tensor):
                digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(_bytes_of(value))
            else:  # extra state of a module's own
                digest.update(re.sub(r" at 0x[0-9a-fA-F]+", "", f"{key} {value!r}").encode())
        return digest.digest()

    def answers(self, input_shape: tuple[int, ...]) -> bytes:
        """Plain attributes and code are known by their answers, in float64 where the module computes in it."""
        rows = probe_rows(
            _PROBED if torch.Size(input_shape).numel() < _LARGE else _PROBED_LARGE, input_shape, torch.float32
        )
        spread, half, quarter = rows.clone(), len(rows) // 2, len(rows) // 4
        spread[half : half + quarter] = 10 * spread[half : half + quarter] - 5
        spread[half + quarter :] *= 100
        # Types and ranges may be written into the code: float32 then, and values in [0, 1) alone.
        tried = [(dtype, batch) for dtype in (torch.float64, torch.float32) for batch in (spread, rows)]
        for attempt, (dtype, batch) in enumerate(tried, start=1):
            try:
                module = self._one_tensor(converted_copy(self.module, dtype=dtype), batch[:1].to(dtype))
                answer = self.probe(module, batch.to(dtype))
                break
            except ModelError:
                if attempt == len(tried):
                    raise
        self.count_classes(answer)
        return answer_bytes(answer, self.kind, fine=answer.dtype == torch.float64)

    def open_route(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Opened:
        """Cast and move the module, choose the chunk from its largest activation, then open the route."""
        dtype = numerics.torch_dtype()
        check_exact(self.name, self._input_dtype, dtype)
        self._check_statistics()
        row = probe_rows(1, input_shape, dtype).to(device)
        module = self._one_tensor(converted_copy(self.module, device=device, dtype=dtype), row)
        if numerics.autocast:
            module = Autocast(module, device, numerics.coarsest_dtype())
        sizes = self._activations(module, row)
        # Bookkeeping costs the same for a pass of any length: light models share it among several passes.
        votes = _LIGHT_BLOCK if sum(sizes) < _LIGHT_MODEL else _BLOCK
        rows, most = rows_within(max(sizes)), LARGEST_CHUNK
        if measured(device) and numerics.chunk is None:
            rows, most = fastest_rows(TorchGauge(module, row)), MOST_ROWS
        settled = numerics.settled(numerics.route, rows, votes, most=most)
        route, make = open_torch_route(module, settled, input_shape, device)
        fresh = make()
        weights, writes = _weights_of(fresh), _writes_to(fresh)
        evaluated = _evaluated_module(fresh)  # folding changes what there is to share
        shared = self.most_workers != 1 and evaluated is not None and shares_weights(evaluated)

        def check(used: list[Outputs]) -> None:
            if changed := _differing(weights, map(_weights_of, used)):
                raise ModelError(
                    f"{self.name} changes its own {changed} while it is evaluated: its answers depend on what it was "
                    "asked before. Keep such values in local variables; if they are only set up in its first pass, "
                    "evaluate it once before"
                )
            if shared and (written := _differing(writes, map(_writes_to, used))):
                raise ModelError(
                    f"{self.name} writes to its own {written} while it is evaluated, and puts back what was there. "
                    "The copies of all workers share parameters as large as these, so that a pass would meet what "
                    "another has written: keep such values in local variables or in a buffer, or let one worker do "
                    "the work: thread_safe=False (--no-thread-safe)"
                )

        def placed() -> Outputs:
            return _Placed(make(), device, dtype)

        return Opened(replace(settled, route=route), placed, check, device)

    def _check_statistics(self) -> None:
        """Refuse layers that normalise by the batch even in evaluation mode, before they fail on a batch of one."""
        for name, part in self.module.named_modules():
            if isinstance(part, _BatchNorm) and part.running_mean is None and part.running_var is None:
                raise ModelError(
                    f"{self.name}: its layer {name or 'itself'} ({type(part).__name__}) has no running statistics and "
                    "normalises by the batch, so that a row's answer depends on the others; votes must be independent. "
                    "Train it with track_running_stats=True"
                )

    def mixing_cause(self) -> str:
        """No layer is in training mode: the copies that are evaluated never are."""
        if any("quantized.dynamic" in type(part).__module__ for part in self.module.modules()):
            return "dynamic quantisation, which scales a row by the whole batch: quantise it statically"
        return "statistics that its forward computes over the batch (it was evaluated in evaluation mode)"

    def lend(self, module: nn.Module) -> Lending[nn.Module]:
        """Copies of a module made from this one's, each for one thread at a time; they share large weights."""
        return Lending(lambda: worker_copy(module), self.most_workers)

    def _voting_only(self, module: nn.Module, output: str | None = None) -> VotingModule:
        return VotingModule(module, self.kind, output, self._input_dtype, one_number=self.one_number)

    def _one_tensor(self, module: nn.Module, row: torch.Tensor) -> nn.Module:
        """The module as it is if it returns a tensor, else the same that returns its scores alone."""
        if isinstance(module, VotingModule):
            return module
        try:
            answer = private_copy(module, sharing_weights=True)(row.clone())
        except Exception:  # reported by the probe that follows
            return module
        if isinstance(answer, torch.Tensor):
            return module
        if not isinstance(self.module, VotingModule):
            self.module = self._voting_only(self.module)  # gradients need the scores alone as well
        return self._voting_only(module)

    def _activations(self, module: nn.Module, row: torch.Tensor) -> list[int]:
        """Bytes of each array that one row makes the module compute."""
        sizes = [row.nbytes]
        module = private_copy(module, sharing_weights=True)

        def measure(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, torch.Tensor) and output.layout is torch.strided:
                sizes.append(output.nbytes)

        for part in module.modules():
            if isinstance(part, torch.jit.ScriptModule):  # takes no hooks
                sizes.append(row.nbytes * ACTIVATION_FACTOR)
            else:
                part.register_forward_hook(measure)
        self.probe(module, row)
        return sizes


@dataclass(frozen=True)
class _Placed:
    """A route's function, given batches on its device and in its type."""

    forward: Forward
    device: str
    dtype: torch.dtype

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        return self.forward(batch.to(device=self.device, dtype=self.dtype, non_blocking=True))


def _weights_of(outputs: Outputs) -> dict[str, bytes]:
    """A digest of every parameter and buffer, by name, of what is evaluated; empty where no module is."""
    module = _evaluated_module(outputs)
    named = () if module is None else chain(module.named_parameters(), module.named_buffers())
    return {key: hashlib.sha256(_bytes_of(tensor)).digest() for key, tensor in named}


def _writes_to(outputs: Outputs) -> dict[str, int]:
    """How often torch has written to each parameter, by name, through any copy that shares its memory.

    What goes through ``.data`` isn't counted, nor what torch doesn't know of.
    """
    module = _evaluated_module(outputs)
    named = () if module is None else module.named_parameters()
    return {key: -1 if one.is_inference() else one._version for key, one in named}


def _evaluated_module(outputs: Outputs) -> nn.Module | None:
    forward = outputs.forward if isinstance(outputs, _Placed) else outputs
    return forward.module if isinstance(forward, ModuleForward) else None


def _differing(before: Mapping[str, object], after: Iterable[Mapping[str, object]]) -> str:
    """The names whose values are others in any of them, in order."""
    return ", ".join(sorted({key for one in after for key, value in one.items() if before.get(key) != value}))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    if tensor.is_quantized:  # torch crashes where it looks at the bytes of one
        tensor = tensor.dequantize()
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    found: memoryview = plain.view(torch.uint8).numpy().data
    return found
