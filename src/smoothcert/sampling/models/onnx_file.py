"""ONNX files, evaluated by onnxruntime with one thread a worker."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert.errors import InvalidValueError, MissingExtraError, ModelError
from smoothcert.registry import unknown_name
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sampling.models.base import ACTIVATION_FACTOR, BaseClassifier, Opened
from smoothcert.sampling.models.onnx_bytes import read_model
from smoothcert.sampling.numerics import Numerics, rows_within

_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
_WHOLE = {f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_BLOCK = 128  # votes that share a random state


class OnnxClassifier(BaseClassifier):
    """A graph with one float input of shape (rows, …) and an output of shape (rows, classes) that holds scores.

    Where several outputs could be the scores, ``output`` names the one that votes. ``kind`` says whether it holds
    scores (logits) or probabilities; only soft votes care. The session is made from the very bytes that the
    fingerprint is of, weights in other files included.
    """

    def __init__(
        self,
        path: Path,
        outputs: OutputKind | None = None,
        output: str | None = None,
        thread_safe: bool | None = None,
    ) -> None:
        if outputs == "labels":
            raise InvalidValueError(
                f'{path.name}: an ONNX file votes by scores or probabilities, not outputs="labels"; leave that out'
            )
        if outputs not in (None, "scores", "probabilities"):
            raise unknown_name("kind of output", outputs, ["probabilities", "scores"])
        self.name = path.name
        self.kind = outputs or "scores"
        self.most_workers = 1 if thread_safe is False else None
        content, self._sha256 = read_model(path)
        self._session = session_from_bytes(content, path.name)
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _TYPES:
            raise ModelError(
                f"{path.name}: needs exactly one float input, got {[(i.name, i.type) for i in inputs]}"
            )
        self._input = inputs[0]
        self._output = _scores_output(self._session, path.name, output)
        shape = self._input.shape[1:]
        self.input_shape = tuple(shape) if all(isinstance(size, int) for size in shape) else None

    def identity(self) -> bytes:
        """SHA-256 of the file and of every file it takes weights from, and which output votes."""
        return f"{self._sha256} {self._output}".encode()

    def answers(self, input_shape: tuple[int, ...]) -> bytes:  # noqa: ARG002
        """Nothing: all that decides an answer has been hashed byte for byte, and answers would add their rounding."""
        return b""

    def open_route(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Opened:
        """The file is its own route; a batch size fixed in the graph becomes the chunk."""
        if device != "cpu":
            raise ModelError(f"{self.name}: ONNX files are evaluated on the CPU; got device {device!r}")
        if numerics.route not in ("auto", "onnxruntime"):
            raise ModelError(f"{self.name}: an ONNX file has no route {numerics.route!r}; use auto")
        fixed = self._input.shape[0]
        if isinstance(fixed, int) and numerics.chunk not in (None, fixed):
            raise ModelError(f"{self.name}: the graph's batch size is fixed at {fixed}; drop --chunk")
        rows = (
            fixed if isinstance(fixed, int) else rows_within(4 * math.prod(input_shape) * ACTIVATION_FACTOR)
        )
        wanted = _TYPES[self._input.type]

        def outputs(batch: torch.Tensor) -> torch.Tensor:
            return run_session(self._session, self._input.name, self._output, batch, wanted)

        # A session keeps nothing between passes: the workers share it.
        return Opened(numerics.settled("onnxruntime", rows, _BLOCK), lambda: outputs)


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


def _scores_output(session: Any, name: str, wanted: str | None) -> str:
    """The output that votes: the one asked for, or the only one that could."""
    found = session.get_outputs()
    if wanted is not None:
        one = next((output for output in found if output.name == wanted), None)
        if one is None:
            raise unknown_name(f"output of {name}", wanted, [str(output.name) for output in found])
        if one.type not in _TYPES.keys() | _WHOLE or len(one.shape) != 2:
            raise ModelError(
                f"{name}: output {wanted} is {one.type} of shape {one.shape}, no scores of shape (rows, classes)"
            )
        return wanted
    able = [str(output.name) for output in found if output.type in _TYPES and len(output.shape) == 2]
    if len(able) > 1:
        raise ModelError(
            f"{name}: each of the outputs {', '.join(able)} could hold the scores: choose one with --output (output=)"
        )
    if not able:
        shapes = [(output.name, output.type, output.shape) for output in found]
        raise ModelError(f"{name}: no output of shape (rows, classes) with float scores, got {shapes}")
    return able[0]
