"""Routes: faster executions of the same torch module, each probed against plain eager evaluation.

A route changes logits in their last bits, so the plan names it and a run keeps it.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from smoothcert.errors import MissingExtraError, ModelError
from smoothcert.extras import installed, require
from smoothcert.sampling import graphs
from smoothcert.sampling.models.autocast import Autocast
from smoothcert.sampling.models.copies import converted_copy, private_copy, worker_copy
from smoothcert.sampling.models.probes import probe_rows, same_answers
from smoothcert.sampling.numerics import Numerics
from smoothcert.sampling.threads import counted_pass
from smoothcert.sampling.tracing import traced

Forward = Callable[[torch.Tensor], torch.Tensor]

Maker = Callable[[], Forward]
"""Makes the function that one worker evaluates; what is made shares large weights and nothing else."""

_WORTH_EXPORTING = 1 << 20
"""Multiply-adds of a row from which ``auto`` exports: below, the half second of it is most of many a job."""


@dataclass(frozen=True)
class ModuleForward:
    """A worker's own copy of a module, and the function that evaluates it."""

    module: nn.Module
    call: Forward

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """Evaluate one pass."""
        return self.call(batch)


def open_torch_route(
    module: nn.Module, numerics: Numerics, input_shape: tuple[int, ...], device: str
) -> tuple[str, Maker]:
    """The route's name, and what makes its function for a worker. ``module`` itself is never evaluated.

    ``auto`` takes the first of :func:`_candidates` that works for the model, else eager, by a fixed rule and never by a
    clock: the same command gives the same plan. A route asked for by name that fails is an error that says so.
    """
    if numerics.route == "eager":
        return "eager", _eager(module)
    if numerics.route != "auto":
        return numerics.route, _probed(numerics.route, module, numerics, input_shape, device)
    for route in _candidates(module, numerics, input_shape, device):
        try:
            return route, _probed(route, module, numerics, input_shape, device)
        except ModelError:
            continue
    return "eager", _eager(module)


def _candidates(
    module: nn.Module, numerics: Numerics, input_shape: tuple[int, ...], device: str
) -> list[str]:
    """For images: onnxruntime and folded where there is batch norm to fold, then channels-last.

    onnxruntime is left out where it isn't installed, can't evaluate the type or the device, or would take longer to
    open than it saves. Networks without batch norm gain nothing from it (benchmarks/README.md).
    """
    if len(input_shape) != 3:
        return []
    if not any(isinstance(part, nn.BatchNorm2d) for part in module.modules()):
        return ["channels-last"]
    row = probe_rows(1, input_shape, numerics.torch_dtype())
    exported = (
        device == "cpu"
        and numerics.torch_dtype() == torch.float32
        and installed("onnx", "onnxruntime")
        and counted_pass(private_copy(module, sharing_weights=True), row)[1] >= _WORTH_EXPORTING
        and _straight(module)
    )
    return ["onnxruntime"] * exported + ["folded", "channels-last"]


def _straight(module: nn.Module) -> bool:
    """Whether an export that follows one pass is the whole function: nothing in it looks at values.

    The exporter writes down the branches that its rows took, and the numbers that Python read from them. Probes may
    take the same branches where votes wouldn't, so such models are never exported unasked. Into hooks the tracer
    doesn't look.
    """
    if _hooked(module):
        return False
    try:
        graph = traced(private_copy(module, sharing_weights=True)).graph
    except Exception:  # whatever a tracer can't follow
        return False
    return not any(node.target in _READERS for node in graph.nodes)


def _hooked(module: nn.Module) -> bool:
    """Whether hooks take part in the function, which a tracer loses or doesn't look into."""
    return any(
        getattr(part, kind, None)
        for part in module.modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks")
    )


_READERS = ("item", "tolist", "numpy")
"""Methods that take numbers out of tensors: a tracer follows them, an exporter freezes what they gave."""


def _probed(
    route: str, module: nn.Module, numerics: Numerics, input_shape: tuple[int, ...], device: str
) -> Maker:
    dtype = numerics.torch_dtype()
    rows = probe_rows(numerics.layout().chunk, input_shape, dtype).to(device)
    with torch.inference_mode():
        rows, expected = _asked_at_several_scales(_eager(module)(), rows)
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # exporters and compilers warn about themselves, not the model
            make = _OPENERS[route](module, rows)
            found = make()(rows.clone())
        eps = torch.finfo(numerics.coarsest_dtype()).eps
        for start in range(min(len(rows), len(_SCALES))):
            own, others = expected[start :: len(_SCALES)], found[start :: len(_SCALES)]
            if start and not bool((own < torch.inf).all()):  # beyond the type's range nothing can be compared
                continue
            if not same_answers(own, others, "scores", eps):
                raise ModelError("its outputs differ from eager ones by more than rounding does")
    except MissingExtraError:
        raise
    except Exception as error:  # compilers and exporters fail in many ways; all mean "not this route"
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(
            f"route {route!r} doesn't work for this model ({reason}); use --route auto or eager"
        ) from error
    return make


_SCALES = ((1.0, 0.0), (10.0, -5.0), (200.0, -100.0), (2e4, -1e4))
"""Widths and lower ends of what a route is probed with: limits written into a model show only beyond them."""


def _asked_at_several_scales(eager: Forward, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of every scale in turn, and a module's answers; of [0, 1) alone where it refuses others."""
    spread = rows.clone()
    for start, (width, low) in enumerate(_SCALES):
        spread[start :: len(_SCALES)] = width * rows[start :: len(_SCALES)] + low
    try:
        return spread, eager(spread.clone())
    except Exception:  # foreign code, which may check the range of its inputs
        return rows, eager(rows.clone())


def _maker(module: nn.Module, forward_of: Callable[[nn.Module], Forward]) -> Maker:
    """For each worker a copy of the module, evaluated by the function that ``forward_of`` makes of it."""

    def make() -> Forward:
        own = worker_copy(module)
        return ModuleForward(own, forward_of(own))

    return make


def _eager(module: nn.Module) -> Maker:
    return _maker(module, lambda own: own)


def _channels_last(module: nn.Module, rows: torch.Tensor) -> Maker:
    if rows.ndim != 4:
        raise ModelError(
            f"channels-last needs inputs of shape (channels, height, width), got {tuple(rows.shape[1:])}"
        )
    layout = torch.channels_last
    laid_out = converted_copy(module, memory_format=layout)
    return _maker(laid_out, lambda own: lambda batch: own(batch.contiguous(memory_format=layout)))


def _folded(module: nn.Module, rows: torch.Tensor) -> Maker:
    from torch.fx.experimental.optimization import fuse

    if _hooked(module):
        raise ModelError("the module has hooks, which tracing would lose")
    if isinstance(module, Autocast):  # tracing would lose it
        folded: nn.Module = module.over(fuse(traced(private_copy(module.module)), no_trace=True))
    else:
        folded = fuse(traced(private_copy(module)), no_trace=True)
    return _channels_last(folded, rows) if rows.ndim == 4 else _eager(folded)


def _compiled(module: nn.Module, rows: torch.Tensor) -> Maker:
    def compiled(own: nn.Module) -> Forward:
        forward: Forward = torch.compile(own, dynamic=False)
        forward(rows.clone())  # compile now, and not in the first pass of votes
        return forward

    return _maker(module, compiled)


def _graphs(module: nn.Module, rows: torch.Tensor) -> Maker:
    """The fastest of the plain routes, recorded: each worker replays a pass of its own."""
    record = graphs.recorder_for(rows.device)
    if rows.ndim != 4:
        plain = _eager(module)
    elif any(isinstance(part, nn.BatchNorm2d) for part in module.modules()):
        plain = _folded(module, rows)
    else:
        plain = _channels_last(module, rows)

    def make() -> Forward:
        own = plain()
        assert isinstance(own, ModuleForward)  # all of the three are
        return ModuleForward(own.module, graphs.replayed(own, rows, record))

    return make


def _onnxruntime(module: nn.Module, rows: torch.Tensor) -> Maker:
    from smoothcert.sampling.models.onnx_file import run_session, session_from_bytes

    if rows.device.type != "cpu" or rows.dtype != torch.float32 or isinstance(module, Autocast):
        kind = "autocast" if isinstance(module, Autocast) else rows.dtype
        raise ModelError(f"onnxruntime evaluates float32 on the CPU here, got {kind} on {rows.device}")
    for package in ("onnx", "onnxruntime"):
        require(package, "the route onnxruntime")
    buffer = io.BytesIO()
    torch.onnx.export(
        private_copy(module),
        (rows,),
        buffer,  # type: ignore[arg-type]  # the legacy exporter takes a buffer
        dynamo=False,
        input_names=["x"],
        output_names=["scores"],
    )
    session = session_from_bytes(buffer.getvalue())

    def forward(batch: torch.Tensor) -> torch.Tensor:
        return run_session(session, "x", "scores", batch)

    return lambda: forward  # a session keeps nothing between passes: the workers share it


_OPENERS: dict[str, Callable[[nn.Module, torch.Tensor], Maker]] = {
    "channels-last": _channels_last,
    "folded": _folded,
    "compiled": _compiled,
    "graphs": _graphs,
    "onnxruntime": _onnxruntime,
}
