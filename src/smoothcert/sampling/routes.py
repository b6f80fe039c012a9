"""Routes: faster executions of the same torch module, each probed against plain eager evaluation.

A route changes logits in their last bits, so the plan names it and a run keeps it.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable

import torch
from torch import nn

from smoothcert.errors import MissingExtraError, ModelError
from smoothcert.sampling.models.base import probe_rows
from smoothcert.sampling.numerics import Numerics

Forward = Callable[[torch.Tensor], torch.Tensor]

_TOLERANCE = 1e-3  # relative to the largest logit; routes seen differ by some 1e-5


def open_torch_route(
    module: nn.Module, numerics: Numerics, input_shape: tuple[int, ...], device: str
) -> tuple[str, Forward]:
    """The route's name and function.

    ``auto`` takes the first of folded (where there is batch norm to fold), channels-last and eager that works for
    the model; a route asked for by name that fails is an error that says so.
    """
    if numerics.route == "eager":
        return "eager", module
    if numerics.route != "auto":
        return numerics.route, _probed(numerics.route, module, numerics, input_shape, device)
    for route in _candidates(module, input_shape):
        try:
            return route, _probed(route, module, numerics, input_shape, device)
        except ModelError:
            continue
    return "eager", module


def _candidates(module: nn.Module, input_shape: tuple[int, ...]) -> list[str]:
    if len(input_shape) != 3:
        return []
    normalised = any(isinstance(part, nn.BatchNorm2d) for part in module.modules())
    return ["folded", "channels-last"] if normalised else ["channels-last"]


def _probed(
    route: str, module: nn.Module, numerics: Numerics, input_shape: tuple[int, ...], device: str
) -> Forward:
    dtype = numerics.torch_dtype()
    rows = probe_rows(numerics.layout().chunk, input_shape, dtype).to(device)
    with torch.inference_mode():
        expected = module(rows)
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter(
                "ignore"
            )  # exporters and compilers warn about themselves, not about the model
            forward = _OPENERS[route](module, rows)
            found = forward(rows)
        scale = expected.abs().max().clamp(min=1.0)
        tolerance = max(_TOLERANCE, 8 * torch.finfo(dtype).eps) * scale
        if found.shape != expected.shape or bool((found - expected).abs().max() > tolerance):
            raise ModelError(f"its outputs differ from eager ones by more than {float(tolerance):.1e}")
    except MissingExtraError:
        raise
    except Exception as error:  # compilers and exporters fail in many ways; all mean "not this route"
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(
            f"route {route!r} doesn't work for this model ({reason}); use --route auto or eager"
        ) from error
    return forward


def _channels_last(module: nn.Module, rows: torch.Tensor) -> Forward:
    if rows.ndim != 4:
        raise ModelError(
            f"channels-last needs inputs of shape (channels, height, width), got {tuple(rows.shape[1:])}"
        )
    laid_out = copy.deepcopy(module).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = laid_out(batch.contiguous(memory_format=torch.channels_last))
        return answer

    return forward


def _folded(module: nn.Module, rows: torch.Tensor) -> Forward:
    from torch.fx.experimental.optimization import fuse

    folded = fuse(module)
    return _channels_last(folded, rows) if rows.ndim == 4 else folded


def _compiled(module: nn.Module, rows: torch.Tensor) -> Forward:
    compiled: Forward = torch.compile(module, dynamic=False)
    compiled(rows)  # compile now, in this thread; workers only run the result
    return compiled


def _onnxruntime(module: nn.Module, rows: torch.Tensor) -> Forward:
    from smoothcert.sampling.models.onnx_file import run_session, session_from_bytes

    if rows.device.type != "cpu" or rows.dtype != torch.float32:
        raise ModelError(f"onnxruntime evaluates float32 on the CPU here, got {rows.dtype} on {rows.device}")
    buffer = io.BytesIO()
    torch.onnx.export(
        module,
        (rows,),
        buffer,  # type: ignore[arg-type]  # the legacy exporter takes a buffer
        dynamo=False,
        input_names=["x"],
        output_names=["scores"],
    )
    session = session_from_bytes(buffer.getvalue())

    def forward(batch: torch.Tensor) -> torch.Tensor:
        return run_session(session, "x", "scores", batch)

    return forward


_OPENERS: dict[str, Callable[[nn.Module, torch.Tensor], Forward]] = {
    "channels-last": _channels_last,
    "folded": _folded,
    "compiled": _compiled,
    "onnxruntime": _onnxruntime,
}
