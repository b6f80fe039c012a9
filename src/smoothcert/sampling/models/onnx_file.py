"""ONNX files, evaluated by onnxruntime with one thread a worker."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert.errors import MissingExtraError, ModelError
from smoothcert.sampling.models.base import BaseClassifier
from smoothcert.sampling.numerics import Numerics, rows_within

_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
_BLOCK = 128  # votes that share a random state
_ACTIVATION_FACTOR = 8  # how much larger than its input a network's largest activation tends to be


class OnnxClassifier(BaseClassifier):
    """A graph with one float input of shape (rows, …) whose first 2-D float output holds class scores.

    ``kind`` says whether those are scores (logits) or probabilities; only soft votes care.
    """

    def __init__(self, path: Path, probabilities: bool = False) -> None:
        try:
            self._bytes = path.read_bytes()
        except OSError as error:
            raise ModelError(f"{path}: can't be read ({error.strerror})") from None
        self.name = path.name
        self.kind = "probabilities" if probabilities else "scores"
        self._session = session_from_bytes(self._bytes, path.name)
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _TYPES:
            raise ModelError(
                f"{path.name}: needs exactly one float input, got {[(i.name, i.type) for i in inputs]}"
            )
        self._input = inputs[0]
        self._output = _scores_output(self._session, path.name)
        shape = self._input.shape[1:]
        self.input_shape = tuple(shape) if all(isinstance(size, int) for size in shape) else None

    def fingerprint(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self._bytes).hexdigest()

    def open_route(
        self, numerics: Numerics, input_shape: tuple[int, ...], device: str
    ) -> tuple[Numerics, Callable[[torch.Tensor], torch.Tensor]]:
        """The file is its own route; a batch size fixed in the graph becomes the chunk."""
        if device != "cpu":
            raise ModelError(f"{self.name}: ONNX files are evaluated on the CPU; got device {device!r}")
        if numerics.route not in ("auto", "onnxruntime"):
            raise ModelError(f"{self.name}: an ONNX file has no route {numerics.route!r}; use auto")
        fixed = self._input.shape[0]
        if isinstance(fixed, int) and numerics.chunk not in (None, fixed):
            raise ModelError(f"{self.name}: the graph's batch size is fixed at {fixed}; drop --chunk")
        rows = (
            fixed if isinstance(fixed, int) else rows_within(4 * math.prod(input_shape) * _ACTIVATION_FACTOR)
        )
        wanted = _TYPES[self._input.type]

        def outputs(batch: torch.Tensor) -> torch.Tensor:
            return run_session(self._session, self._input.name, self._output, batch, wanted)

        return numerics.settled("onnxruntime", rows, _BLOCK), outputs


def session_from_bytes(model: bytes, name: str = "exported model") -> Any:
    """An inference session with one thread of its own, to be shared by the workers."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnxruntime", "onnx", "evaluating ONNX models") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions share no base class
        raise ModelError(f"{name}: not a model onnxruntime can open ({str(error).splitlines()[0]})") from None


def run_session(
    session: Any, source: str, target: str, batch: torch.Tensor, dtype: type = np.float32
) -> torch.Tensor:
    """Evaluate a batch; arrays are shared with torch, not copied."""
    rows = batch.numpy()
    (answer,) = session.run([target], {source: rows if rows.dtype == dtype else rows.astype(dtype)})
    return torch.from_numpy(answer)


def _scores_output(session: Any, name: str) -> str:
    for output in session.get_outputs():
        if output.type in _TYPES and len(output.shape) == 2:
            return str(output.name)
    found = [(output.name, output.type, output.shape) for output in session.get_outputs()]
    raise ModelError(f"{name}: no output of shape (rows, classes) with float scores, got {found}")
