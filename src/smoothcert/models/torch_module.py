"""torch modules: any `nn.Module` from a float batch to class scores (logits) or probabilities.

On the CPU the number of rows of a pass follows from the size of the model's activations (``rows_within``) and is the
same everywhere. An accelerator's is measured there, as long as more rows bring more and memory lasts: the plan states
it, and a run that is continued or replayed takes it from there.
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
import weakref
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from smoothcert.errors import ModelError
from smoothcert.models.base import ACTIVATION_FACTOR, BaseClassifier, Opened, scores_kind
from smoothcert.models.capture import NotCapturedError, capture, converted_copy, private_copy
from smoothcert.models.numerics import LARGEST_CHUNK, Numerics, rows_within, settle_arithmetic
from smoothcert.models.outputs import (
    OutputKind,
    Outputs,
    answer_bytes,
    memory_remedy,
    probe_rows,
    short_of_memory,
)
from smoothcert.models.routes import Autocast, exported, folded, open_torch_route
from smoothcert.models.wrappers import VotingModule, check_exact, whole_type

MOST_ROWS = 1 << 13
"""More would gain nothing and make the votes of few inputs wait for full passes."""

_FIRST = 64
_GAIN = 1.05  # in rows a second that doubling must bring
_SHARE = 0.8  # of the free memory that a pass may take: the route, and noise, need some
_TIMED = 3  # passes


def measured(device: str) -> bool:
    """Whether rows on this device are measured."""
    return torch.device(device).type != "cpu"


def fastest_rows(gauge: TorchGauge) -> int:
    """A power of two: doubled until that brings less than 5 % or memory is short, halved where even it is too many."""
    rows, before = _FIRST, gauge.free()
    while (seconds := gauge.seconds(rows)) is None:
        if rows == 1:
            raise ModelError("the device has no memory for a pass of one row: free some, or use --device cpu")
        rows //= 2
    if rows < _FIRST:  # twice as many didn't fit
        return rows
    pace = rows / seconds
    while rows < MOST_ROWS:
        free = gauge.free()
        if before is not None and free is not None and 2 * (before - free) > _SHARE * before:
            break
        seconds = gauge.seconds(2 * rows)
        if seconds is None or 2 * rows / seconds < _GAIN * pace:
            break
        rows, pace = 2 * rows, 2 * rows / seconds
    return rows


class TorchGauge:
    """A module on the device where a row of its input is."""

    def __init__(self, module: nn.Module, row: torch.Tensor) -> None:
        self._module, self._row = private_copy(module), row
        self._memory = row.device.type == "cuda"

    def seconds(self, rows: int) -> float | None:
        """The shortest of a few passes, after one that doesn't count: kernels are chosen in it. None: no room."""
        try:
            batch = self._row.expand(rows, *self._row.shape[1:]).contiguous()
            return min([self._pass(batch) for _ in range(1 + _TIMED)][1:])
        except torch.OutOfMemoryError:
            if self._memory:
                torch.cuda.empty_cache()
            return None
        except Exception as error:  # foreign code
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ModelError(
                f"the model fails on {rows} equal rows ({reason}), by which the size of a pass is measured: fix it, "
                "or say how many rows a pass has (--chunk)"
            ) from error

    def free(self) -> int | None:
        """Bytes left of a CUDA device, None of others; what torch keeps for the next pass counts as taken."""
        return torch.cuda.mem_get_info(self._row.device)[0] if self._memory else None

    def _pass(self, batch: torch.Tensor) -> float:
        began = time.perf_counter()
        self._module(batch.clone())  # it may write to its input
        if self._row.device.type != "cpu":
            torch.accelerator.synchronize(self._row.device)
        return time.perf_counter() - began


_BLOCK, _LIGHT_BLOCK = 64, 256  # votes
_LIGHT_MODEL = 1 << 20  # bytes of all activations of a row
# Rows whose answers are hashed: few, because float64 is slow, and the weights are hashed whole.
_PROBED, _PROBED_LARGE = 8, 4
_LARGE = 1 << 14  # numbers of an input


class _Source:
    """The module that a copy was made of, while it lives, and how often its tensors had been written to."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self._module = None if module is None else weakref.ref(module)
        self._writes = [] if module is None else _writes(module)

    def __reduce__(self) -> Any:
        return _Source, ()  # in another process, and of a copy, there is none

    def changed(self) -> bool:
        """Whether it was written to since."""
        module = None if self._module is None else self._module()
        return module is not None and _writes(module) != self._writes


def _writes(module: nn.Module) -> list[int]:
    tensors = chain(module.parameters(), module.buffers())
    return [tensor._version for tensor in tensors if not tensor.is_inference()]


class TorchClassifier(BaseClassifier):
    """A module that returns logits, or probabilities, in eval mode and without gradients.

    It is captured as a graph, which all workers share (:mod:`smoothcert.models.capture`). A module that can't
    be captured is evaluated as a copy, by one thread at a time unless ``thread_safe=True``.

    Of several outputs (a tuple, a mapping, a data class) ``output`` names the one that votes, by its name or its place;
    else it is ``logits``. One number a row is the logit or probability (``outputs``) of the second of ``classes=2``.
    ``input_dtype`` is for modules that take whole numbers: see :func:`~smoothcert.models.wrappers.as_whole`.
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
        self.name = name or type(module).__name__
        remedy = "return the scores that labels are made from, or give a function that calls the module"
        self.kind = scores_kind("a torch module", outputs, remedy)
        lazy = (UninitializedBuffer, UninitializedParameter)
        if any(isinstance(one, lazy) for one in chain(module.parameters(), module.buffers())):
            raise ModelError(f"{self.name} has lazy layers without weights: evaluate it on a batch first")
        self._source = _Source(module)
        self.module = private_copy(module).cpu()
        self.module.eval()  # what it returns is its train()'s to say, which may be overridden
        for parameter in self.module.parameters():  # scripted modules have no requires_grad_ of their own
            parameter.requires_grad_(False)
        self.class_names = class_names
        self.classes = classes
        self.thread_safe = thread_safe
        self.one_number = classes == 2 and outputs is not None
        self._input_dtype = whole_type(input_dtype)
        self.differentiable = self._input_dtype is None  # rounding has no slope
        self._declared = "".join(f" {each}" for each in (output, input_dtype) if each is not None)
        if self._declared or self.one_number:
            self.module = self._voting_only(self.module, output)

    def warn_if_changed(self) -> None:
        """The module's training went on, say, and this classifier's model is the one that was given."""
        if self._source.changed():
            self._source = _Source()  # once is enough
            warnings.warn(
                f"the weights of {self.name} have changed since it was given to this classifier, whose answers are "
                "about the model as it was then: make a new SmoothedClassifier for the present weights",
                UserWarning,
                stacklevel=2,
            )

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
        count = _PROBED if torch.Size(input_shape).numel() < _LARGE else _PROBED_LARGE
        rows = probe_rows(count, input_shape, torch.float32)
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
        """Cast and move the module, choose the chunk from its largest activation, capture it, then open the route."""
        dtype = numerics.torch_dtype()
        settle_arithmetic(device)
        check_exact(self.name, self._input_dtype, dtype)
        self._check_statistics()
        row = probe_rows(1, input_shape, dtype).to(device)
        module = self._converted(numerics, row)
        sizes = self._activations(module, row)
        # Bookkeeping costs the same for a pass of any length: light models share it among several passes.
        votes = _LIGHT_BLOCK if sum(sizes) < _LIGHT_MODEL else _BLOCK
        if numerics.chunk is not None or not measured(device):
            settled = numerics.settled(numerics.route, rows_within(max(sizes)), votes, most=LARGEST_CHUNK)
            return self._opened(module, settled, input_shape, device)
        rows = fastest_rows(TorchGauge(module, row))
        while True:  # a route may need more memory than the module that was measured
            settled = numerics.settled(numerics.route, rows, votes, most=MOST_ROWS)
            try:
                opened = self._opened(module, settled, input_shape, device)
                self.probe(opened.function, probe_rows(rows, input_shape, dtype))
                return opened
            except ModelError as error:
                if not short_of_memory(error) or rows == 1:
                    raise
            rows //= 2
            if row.device.type == "cuda":
                torch.cuda.empty_cache()

    def _opened(
        self, module: nn.Module, settled: Numerics, input_shape: tuple[int, ...], device: str
    ) -> Opened:
        graph, opaque = self._captured(module, settled, input_shape, device)
        route, forward = open_torch_route(module, graph, settled, input_shape, device)
        thread_safe = self.thread_safe is not False and (graph is not None or self.thread_safe is True)
        placed = _Placed(forward, device, settled.torch_dtype())
        return Opened(replace(settled, route=route), placed, device, thread_safe, opaque)

    def as_onnx(self, input_shape: tuple[int, ...], rows: int) -> bytes:
        """The graph, without the batch norms that can be folded, for passes of so many rows in float32."""
        numerics = Numerics("float32", chunk=rows, block=rows)
        module = self._converted(numerics, probe_rows(1, input_shape, torch.float32))
        graph, opaque = self._captured(module, numerics, input_shape, "cpu")
        if not isinstance(graph, fx.GraphModule):
            raise ModelError(f"{self.name} can't be captured as a graph ({opaque})")
        return exported("onnx", folded(graph), probe_rows(rows, input_shape, torch.float32), (torch.float32,))

    def reference(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Outputs:
        """The module itself in the plan's type, as a copy that has seen no batch."""
        dtype = numerics.torch_dtype()
        module = self._converted(numerics, probe_rows(1, input_shape, dtype).to(device))
        return _Placed(module, device, dtype)

    def _converted(self, numerics: Numerics, row: torch.Tensor) -> nn.Module:
        """A copy in the plan's type, on the row's device, that returns one tensor."""
        module = self._one_tensor(converted_copy(self.module, device=row.device, dtype=row.dtype), row)
        return Autocast(module, row.device.type, numerics.coarsest_dtype()) if numerics.autocast else module

    def _captured(
        self, module: nn.Module, numerics: Numerics, input_shape: tuple[int, ...], device: str
    ) -> tuple[nn.Module | None, str | None]:
        """The module's graph, or why there is none. Autocast is put around the graph: it acts on operators."""
        rows = probe_rows(numerics.layout().chunk, input_shape, numerics.torch_dtype()).to(device)
        plain = module.module if isinstance(module, Autocast) else module
        try:
            graph = capture(self.name, plain, rows)
        except NotCapturedError as error:
            if short_of_memory(error):
                raise ModelError(f"{self.name}: {memory_remedy(len(rows))}") from error
            return None, str(error)
        return (module.over(graph) if isinstance(module, Autocast) else graph), None

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
            return (
                "dynamic quantisation, which scales a row by the whole batch: quantise it statically (smoothcert fit "
                "int8)"
            )
        return "statistics that its forward computes over the batch (it was evaluated in evaluation mode)"

    def _voting_only(self, module: nn.Module, output: str | None = None) -> VotingModule:
        return VotingModule(module, self.kind, output, self._input_dtype, one_number=self.one_number)

    def _one_tensor(self, module: nn.Module, row: torch.Tensor) -> nn.Module:
        """The module as it is if it returns a tensor, else the same that returns its scores alone."""
        if isinstance(module, VotingModule):
            return module
        try:
            answer = private_copy(module)(row.clone())
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
        module = private_copy(module)

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

    forward: Outputs
    device: str
    dtype: torch.dtype

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        return self.forward(batch.to(device=self.device, dtype=self.dtype, non_blocking=True))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    if tensor.is_quantized:  # torch crashes where it looks at the bytes of one
        tensor = tensor.dequantize()
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    found: memoryview = plain.view(torch.uint8).numpy().data
    return found
