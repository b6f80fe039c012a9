"""OpenVINO: ONNX graphs compiled for this machine's processor; every worker has a compiled graph with one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import ModelError
from smoothcert.extras import require
from smoothcert.models.capture import Lending

Evaluate = Callable[[Mapping[str, NDArray[Any]]], torch.Tensor]
"""The answers to inputs, each by its name."""

_PRECISIONS = {torch.float32: "f32", torch.bfloat16: "bf16"}


def compiled(
    model: bytes,
    target: str,
    precision: torch.dtype = torch.float32,
    name: str = "exported model",
    shape: tuple[str, tuple[int, ...]] | None = None,
) -> Evaluate:
    """A function that evaluates the output ``target`` of a graph; any number of threads may call it.

    ``precision`` is that of operations on floating-point numbers: left to itself, OpenVINO takes bfloat16 where the
    processor has it. ``shape``: an input's name and the shape that it always has.
    """
    openvino = require("openvino", "the route openvino")
    settings = {
        "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # scales of a batch's own would make rows depend on one another
    }
    try:
        core = openvino.Core()
        graph = core.read_model(model, b"")
        if shape is not None:
            graph.reshape({shape[0]: list(shape[1])})
    except Exception as error:  # OpenVINO's exceptions share no base class
        raise ModelError(f"{name}: not a model OpenVINO can open ({_first_line(error)})") from None

    def request() -> Any:
        # Requests of one compiled graph take turns: it has one thread.
        return core.compile_model(graph, "CPU", settings).create_infer_request()

    lending = Lending(request)

    def evaluate(inputs: Mapping[str, NDArray[Any]]) -> torch.Tensor:
        with lending.borrowed() as one:
            answer: NDArray[Any] = np.array(
                one.infer(dict(inputs), share_inputs=True, share_outputs=True)[target]
            )
        return torch.from_numpy(answer)

    return evaluate


def has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16; others take ten times as long as in float32."""
    openvino = require("openvino", "the route openvino")
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
