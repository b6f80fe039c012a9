"""Routes: faster executions of a torch model, each compared with plain evaluation on fixed rows.

Routes are back ends of the captured graph; of a module that isn't captured there are fewer. A route changes logits in
their last bits, so the plan names it and a run keeps it.
"""

from __future__ import annotations

import copy
import io
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from smoothcert.errors import MissingExtraError, ModelError
from smoothcert.extras import installed, require
from smoothcert.models.capture import Lending, converted_copy, private_copy
from smoothcert.models.numerics import Numerics
from smoothcert.models.onnx_file import compiled, has_bfloat16, run_session, session_from_bytes
from smoothcert.models.outputs import memory_remedy, probe_rows, same_answers, short_of_memory
from smoothcert.threads import counted_pass


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


_ATEN = torch.ops.aten
_CONVOLUTIONS = tuple(
    overload
    for conv in (_ATEN.conv1d, _ATEN.conv2d, _ATEN.conv3d)
    for overload in (conv.default, conv.padding)
)
_TENSORS = ("weight", "bias", "running_mean", "running_var")


def folded(graph: fx.GraphModule) -> fx.GraphModule:
    """A copy of a captured graph without the batch norms that follow a layer whose result nothing else uses."""
    made = copy.deepcopy(graph)
    for norm in made.graph.find_nodes(op="call_function", target=_ATEN.batch_norm.default):
        given = _arguments(norm)
        layer = given["input"]
        if given["training"] or layer.op != "call_function" or len(layer.users) > 1:
            continue
        convolution = layer.target in _CONVOLUTIONS
        if not convolution and layer.target is not _ATEN.linear.default:
            continue
        before = _arguments(layer)
        nodes = before["weight"], before.get("bias"), *(given[name] for name in _TENSORS)
        if any(node is not None and node.op != "get_attr" for node in nodes):
            continue
        weight, bias, scale, shift, mean, variance = (_value(made, node) for node in nodes)
        if mean is None or variance is None or not (convolution or (scale is not None and shift is not None)):
            continue
        fuse = fuse_conv_bn_weights if convolution else fuse_linear_bn_weights
        fused = fuse(weight, bias, mean, variance, given["eps"], scale, shift)
        held = []
        for name, value in zip(("weight", "bias"), fused):
            attribute = f"_folded_{norm.name}_{name}"
            made.register_parameter(attribute, nn.Parameter(value, requires_grad=False))
            with made.graph.inserting_before(layer):
                held.append(made.graph.get_attr(attribute))
        others = [argument.name for argument in layer.target._schema.arguments[3:]]
        layer.args = (before["input"], *held, *(before[name] for name in others if name in before))
        layer.kwargs = {}
        norm.replace_all_uses_with(layer)
        made.graph.erase_node(norm)
    made.graph.eliminate_dead_code()
    made.delete_all_unused_submodules()
    made.recompile()
    return made


def _arguments(node: fx.Node) -> dict[str, Any]:
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    return dict(zip(names, node.args)) | node.kwargs


def _value(graph: fx.GraphModule, node: fx.Node | None) -> Any:
    """The tensor that a node stands for."""
    if node is None:
        return None
    found: Any = graph
    for name in str(node.target).split("."):
        found = getattr(found, name)
    return found


Step = Callable[[], Tensor]
Recorder = Callable[[Step], tuple[Callable[[], None], Tensor]]
"""Records a step: what replays it, and the tensor that every replay overwrites."""

_WARM_UPS = 3  # libraries choose kernels and take memory in their first calls, which can't be recorded


def recorder_for(device: torch.device) -> Recorder:
    """The recorder of a device; ModelError for one that has none."""
    if device.type != "cuda":
        raise ModelError(f"CUDA graphs need a CUDA device, got {device}")
    return partial(_record, device)


def replayed(
    forward: Callable[[Tensor], Tensor], rows: Tensor, record: Recorder
) -> Callable[[Tensor], Tensor]:
    """A function that replays ``forward`` for batches like ``rows``, and calls it for any other.

    A model that reads numbers on the host can't be recorded: CUDA refuses to wait while it records.
    """
    room = rows.clone()
    replay, held = record(lambda: forward(room))

    def call(batch: Tensor) -> Tensor:
        if batch.shape != room.shape or batch.dtype != room.dtype:
            return forward(batch)
        room.copy_(batch)
        replay()
        return held.clone()  # the next replay overwrites it

    return call


_RECORDING = threading.Lock()  # CUDA's allocator records into one graph at a time


def _record(device: torch.device, step: Step) -> tuple[Callable[[], None], Tensor]:
    with _RECORDING, torch.cuda.device(device):  # streams are the current device's, whichever the model is on
        return _recorded(step)


def _recorded(step: Step) -> tuple[Callable[[], None], Tensor]:
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(_WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # On a stream of its own: torch's default for graphs is one stream for all threads. Others go on meanwhile.
    with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
        held = step()
    return graph.replay, held


Forward = Callable[[torch.Tensor], torch.Tensor]

_WORTH_EXPORTING = 1 << 20
"""Multiply-adds of a row from which ``auto`` exports: below, the half second of it is most of many a job."""


def open_torch_route(
    module: nn.Module, graph: nn.Module | None, numerics: Numerics, input_shape: tuple[int, ...], device: str
) -> tuple[str, Forward]:
    """The route's name, and its function. ``graph`` is the captured module, None if it isn't captured.

    ``auto`` takes the first of :func:`_candidates` that works for the model, else eager, by a fixed rule and never by a
    clock: the same command gives the same plan. A route asked for by name that fails is an error that says so.
    """
    plain = private_copy(module) if graph is None else graph
    if numerics.route == "eager":
        return "eager", plain
    if numerics.route != "auto":
        return numerics.route, _probed(numerics.route, plain, numerics, input_shape, device)
    for route in _candidates(module, graph, numerics, input_shape, device):
        try:
            return route, _probed(route, plain, numerics, input_shape, device)
        except ModelError as error:
            if short_of_memory(error):  # of a fixed rule, not of what is free at the moment
                raise
    return "eager", plain


def _candidates(
    module: nn.Module, graph: nn.Module | None, numerics: Numerics, input_shape: tuple[int, ...], device: str
) -> list[str]:
    """For images: exported routes, then folded where there is batch norm to fold, then channels-last.

    Which exported routes, was measured (benchmarks/README.md): onnxruntime is the fastest for networks with batch norm
    in float32, OpenVINO for others and in bfloat16. They are left out where they aren't installed, can't evaluate the
    type or the device, or would take longer to open than they save. Modules with hooks, or that read numbers out of
    tensors, get channels-last: so it was when hooks weren't captured.
    """
    if len(input_shape) != 3:
        return []
    if graph is None or _hooked(module):
        return ["channels-last"]
    normalised = any(isinstance(part, nn.BatchNorm2d) for part in module.modules())
    row = probe_rows(1, input_shape, numerics.torch_dtype())
    exported = []
    if (
        device == "cpu"
        and not numerics.autocast
        and installed("onnx")
        and counted_pass(private_copy(module), row)[1] >= _WORTH_EXPORTING
        and not _reads_numbers(graph)
    ):
        if row.dtype == torch.float32 and normalised and installed("onnxruntime"):
            exported.append("onnxruntime")
        if installed("openvino"):
            fits = row.dtype == torch.float32 or (row.dtype == torch.bfloat16 and has_bfloat16())
            exported += ["openvino"] * fits
    return [*exported, *["folded"] * normalised, "channels-last"]


def _hooked(module: nn.Module) -> bool:
    kinds = ("_forward_hooks", "_forward_pre_hooks")
    return any(getattr(part, kind, None) for part in module.modules() for kind in kinds)


def _reads_numbers(graph: nn.Module) -> bool:
    """Whether Python gets numbers out of tensors, which an exporter would take for constants."""
    parts = (part for part in graph.modules() if isinstance(part, fx.GraphModule))
    targets = {node.target for part in parts for node in part.graph.nodes}
    return not targets.isdisjoint((_ATEN.item.default, _ATEN._local_scalar_dense.default))


def _probed(
    route: str, plain: nn.Module, numerics: Numerics, input_shape: tuple[int, ...], device: str
) -> Forward:
    rows = probe_rows(numerics.layout().chunk, input_shape, numerics.torch_dtype()).to(device)
    with torch.inference_mode():
        rows, expected = _asked_at_several_scales(private_copy(plain), rows)
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # exporters and compilers warn about themselves, not the model
            forward = _OPENERS[route](plain, rows)
            found = forward(rows.clone())
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
        if short_of_memory(error):
            raise ModelError(memory_remedy(len(rows))) from error
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(
            f"route {route!r} fails for this model ({reason}); use --route auto or eager"
        ) from error
    return forward


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


def _channels_last(plain: nn.Module, rows: torch.Tensor) -> Forward:
    if rows.ndim != 4:
        raise ModelError(f"channels-last needs inputs (channels, height, width), got {tuple(rows.shape[1:])}")
    layout = torch.channels_last
    laid_out = converted_copy(plain, memory_format=layout)
    return lambda batch: laid_out(batch.contiguous(memory_format=layout))


def _folded(plain: nn.Module, rows: torch.Tensor) -> Forward:
    graph = plain.module if isinstance(plain, Autocast) else plain
    if not isinstance(graph, fx.GraphModule):
        raise ModelError("the module couldn't be captured as a graph")
    made: nn.Module = folded(graph)
    if isinstance(plain, Autocast):
        made = plain.over(made)
    return _channels_last(made, rows) if rows.ndim == 4 else made


def _compiled(plain: nn.Module, rows: torch.Tensor) -> Forward:
    forward: Forward = torch.compile(private_copy(plain), dynamic=False)
    forward(rows.clone())  # compile now, and not in the first pass of votes
    return forward


def _graphs(plain: nn.Module, rows: torch.Tensor) -> Forward:
    """The fastest of the plain routes, recorded; threads that meet replay recordings of their own."""
    record = recorder_for(rows.device)
    forward: Forward = plain
    if rows.ndim == 4:
        try:
            forward = _folded(plain, rows)
        except ModelError:
            forward = _channels_last(plain, rows)
    lending = Lending(lambda: replayed(forward, rows, record))

    def lent(batch: torch.Tensor) -> torch.Tensor:
        with lending.borrowed() as replay:
            return replay(batch)

    return lent


def _onnxruntime(plain: nn.Module, rows: torch.Tensor) -> Forward:
    require("onnxruntime", "the route onnxruntime")
    session = session_from_bytes(exported("onnxruntime", plain, rows, (torch.float32,)))
    return lambda batch: run_session(session, "x", "scores", batch)


def _openvino(plain: nn.Module, rows: torch.Tensor) -> Forward:
    require("openvino", "the route openvino")
    model = exported("openvino", plain, rows, (torch.float32, torch.bfloat16))
    evaluate = compiled(model, "scores", rows.dtype)
    return lambda batch: evaluate({"x": batch.float().numpy()}).to(rows.dtype)


def exported(route: str, plain: nn.Module, rows: torch.Tensor, types: Sequence[torch.dtype]) -> bytes:
    """The graph as ONNX in float32, which holds weights of 16 bits exactly."""
    if rows.device.type != "cpu" or rows.dtype not in types or isinstance(plain, Autocast):
        kind = "autocast" if isinstance(plain, Autocast) else rows.dtype
        names = " and ".join(str(one).removeprefix("torch.") for one in types)
        raise ModelError(f"{route} evaluates {names} on the CPU here, got {kind} on {rows.device}")
    require("onnx", f"the route {route}", "openvino" if route == "openvino" else None)
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # the exporter warns about itself
        torch.onnx.export(
            converted_copy(plain, dtype=torch.float32),
            (rows.float(),),
            buffer,  # type: ignore[arg-type]  # the legacy exporter takes a buffer
            dynamo=False,
            input_names=["x"],
            output_names=["scores"],
        )
    return buffer.getvalue()


_OPENERS: dict[str, Callable[[nn.Module, torch.Tensor], Forward]] = {
    "channels-last": _channels_last,
    "folded": _folded,
    "compiled": _compiled,
    "graphs": _graphs,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
