"""ONNX files, evaluated by onnxruntime or OpenVINO with one thread a worker.

What a file holds is read, hashed and checked by :mod:`smoothcert.models.onnx_reading`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import ModelError
from smoothcert.extras import installed, require
from smoothcert.models.base import ACTIVATION_FACTOR, BaseClassifier, Opened, scores_kind
from smoothcert.models.capture import Lending
from smoothcert.models.numerics import LARGEST_CHUNK, Numerics, check_own_types, rows_within
from smoothcert.models.onnx_reading import check_operators, read_model
from smoothcert.models.outputs import OutputKind, Outputs, probe_rows, same_answers
from smoothcert.models.wrappers import WHOLE_TYPES, as_whole, two_columns, whole_type
from smoothcert.registry import unknown_name

_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
_WHOLE = {
    f"tensor({name})": np.dtype(name).type
    for name in (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
}
_GIVEN = _TYPES | _WHOLE | {"tensor(bool)": np.bool_}
_FILE_ROUTES = ("onnxruntime", "openvino")
# Of the scores' standard deviation, on average: how far evaluations of an int8 graph may differ.
_STEPS_APART = 0.01
_BLOCK = 128  # votes that share a random state


class _Input(NamedTuple):
    """An input as the graph declares it; sizes that are open have a name, or none."""

    name: str
    type: str
    shape: tuple[Any, ...]


class OnnxClassifier(BaseClassifier):
    """A graph with one input of shape (rows, …) and an output of shape (rows, classes) that holds scores.

    Inputs beside the one that is smoothed are ``constants``, given by name: the same for every row. An input of whole
    numbers gets them by the rule of :func:`~smoothcert.models.wrappers.as_whole`.

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
        *,
        classes: int | None = None,
        constants: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        self.name = path.name
        self.kind = scores_kind("an ONNX file", outputs, "leave that out")
        self.thread_safe = thread_safe
        self.content, self._sha256 = read_model(path)
        """The graph with all of its weights."""
        operators = check_operators(self.content, path.name)
        self._quantised = any(("", name) in operators for name in ("QuantizeLinear", "QLinearConv"))
        self._session = session_from_bytes(self.content, path.name)
        self.classes, self._one_number = classes, classes == 2 and outputs is not None
        smoothed, others = _smoothed_input(self._session, path.name, constants or {})
        self._input = _Input(smoothed.name, smoothed.type, tuple(smoothed.shape))
        given, rows = constants or {}, self._input.shape[0]
        self._constants = {one.name: _constant(path.name, one, given[one.name], rows) for one in others}
        self._whole = whole_type(self._input.type[7:-1]) if self._input.type in _WHOLE else None
        self._output = _scores_output(self._session, path.name, output)
        shape = self._input.shape[1:]
        self.input_shape = tuple(shape) if all(isinstance(size, int) for size in shape) else None

    def __getstate__(self) -> dict[str, Any]:
        """Sent to another process, it opens its session there, from the same bytes."""
        return vars(self) | {"_session": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._session = session_from_bytes(self.content, self.name)

    def identity(self) -> bytes:
        """SHA-256 of the file and of every file it takes weights from, which output votes, and the constants."""
        told = b"".join(
            f" {name} {one.dtype.str} {one.shape} ".encode() + one.tobytes()
            for name, (one, _) in sorted(self._constants.items())
        )
        return f"{self._sha256} {self._output}".encode() + told

    def answers(self, input_shape: tuple[int, ...]) -> bytes:  # noqa: ARG002
        """Nothing: all that decides an answer has been hashed byte for byte, and answers would add their rounding."""
        return b""

    def open_route(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Opened:
        """The route, and a batch size fixed in the graph as the chunk.

        ``auto`` takes OpenVINO for quantised graphs, where it is installed and works, else onnxruntime.
        """
        if device != "cpu":
            raise ModelError(f"{self.name}: ONNX files are evaluated on the CPU; got device {device!r}")
        if numerics.route not in ("auto", *_FILE_ROUTES):
            raise ModelError(f"{self.name}: an ONNX file has no route {numerics.route!r}; use auto")
        check_own_types(self.name, numerics)
        fixed, rows = self._input.shape[0], rows_within(4 * math.prod(input_shape) * ACTIVATION_FACTOR)
        if isinstance(fixed, int):
            rows = fixed
            if numerics.chunk not in (None, fixed):
                raise ModelError(f"{self.name}: the graph's batch size is fixed at {fixed}; drop --chunk")
        most = max(LARGEST_CHUNK, rows)
        evaluate: Outputs = self._by_onnxruntime
        route = "onnxruntime"
        preferred = numerics.route == "auto" and self._quantised and installed("openvino")
        if numerics.route == "openvino" or preferred:
            try:
                settled = numerics.settled("openvino", rows, _BLOCK, most=most)
                evaluate, route = self._by_openvino(settled, input_shape), "openvino"
            except ModelError:
                if numerics.route == "openvino":
                    raise

        def outputs(batch: torch.Tensor) -> torch.Tensor:
            answers = evaluate(batch if self._whole is None else as_whole(batch, self._whole))
            return two_columns(answers, self.kind) if self._one_number else answers

        # A session keeps nothing between passes: the workers share it.
        settled = numerics.settled(route, rows, _BLOCK, most=most)
        return Opened(settled, outputs, thread_safe=self.thread_safe is not False)

    def _by_onnxruntime(self, batch: torch.Tensor) -> torch.Tensor:
        given = {
            name: np.broadcast_to(one, (len(batch), *one.shape)) if repeated else one
            for name, (one, repeated) in self._constants.items()
        }
        wanted = _GIVEN[self._input.type]
        return run_session(self._session, self._input.name, self._output, batch, wanted, given)

    def _by_openvino(self, settled: Numerics, input_shape: tuple[int, ...]) -> Outputs:
        """OpenVINO's function, which must answer as onnxruntime's."""
        wanted, precision = _GIVEN[self._input.type], settled.coarsest_dtype()
        if self._constants or wanted in (np.float64, np.float16) or precision == torch.float64:
            raise ModelError(
                f"{self.name}: OpenVINO evaluates files with one input, in float32 or bfloat16; use --route onnxruntime"
            )
        shape = settled.layout().chunk, *input_shape
        run = compiled(self.content, self._output, precision, self.name, (self._input.name, shape))

        def evaluate(batch: torch.Tensor) -> torch.Tensor:
            rows = batch.numpy()
            return run({self._input.name: rows if rows.dtype == wanted else rows.astype(wanted)})

        rows = probe_rows(shape[0], input_shape, settled.noise_dtype())
        rows = rows if self._whole is None else as_whole(rows, self._whole)
        expected, found = self.probe(self._by_onnxruntime, rows), self.probe(evaluate, rows)
        if self._quantised:  # a last bit before a rounding step is a whole step after it
            alike = bool((found - expected).abs().mean() <= _STEPS_APART * expected.std())
        else:
            alike = same_answers(expected, found, "scores", torch.finfo(precision).eps)
        if not alike:
            raise ModelError(
                f"{self.name}: OpenVINO's answers differ from onnxruntime's by more than rounding does; use --route "
                "onnxruntime"
            )
        return evaluate


def session_from_bytes(model: bytes, name: str = "exported model") -> Any:
    """An inference session with one thread of its own, to be shared by the workers."""
    onnxruntime = require("onnxruntime", "evaluating ONNX models")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions share no base class
        raise ModelError(f"{name}: not a model onnxruntime can open ({str(error).splitlines()[0]})") from None


def run_session(
    session: Any,
    source: str,
    target: str,
    batch: torch.Tensor,
    dtype: type = np.float32,
    constants: Mapping[str, NDArray[Any]] | None = None,
) -> torch.Tensor:
    """Evaluate a batch; arrays are shared with torch, not copied."""
    rows = batch.numpy()
    feed = {source: rows if rows.dtype == dtype else rows.astype(dtype), **(constants or {})}
    (answer,) = session.run([target], feed)
    return torch.from_numpy(answer)


def _smoothed_input(session: Any, name: str, constants: Mapping[str, object]) -> tuple[Any, list[Any]]:
    inputs = session.get_inputs()
    names = [str(one.name) for one in inputs]
    for unknown in constants.keys() - set(names):
        raise unknown_name(f"input of {name}", unknown, names)
    free = [one for one in inputs if one.name not in constants]
    if len(free) != 1:
        raise ModelError(
            f"{name} has the inputs {', '.join(names)}, of which {len(free)} are left to be smoothed, and that must be "
            f"one: give the others as constants={{{names[-1]!r}: array}} (--constants FILE.npz with an array "
            f"{names[-1]})"
        )
    if free[0].type not in _TYPES and free[0].type[7:-1] not in WHOLE_TYPES:
        raise ModelError(f"{name}: noise can't be added to the input {free[0].name} of {free[0].type}")
    return free[0], [one for one in inputs if one.name in constants]


def _constant(name: str, declared: Any, value: ArrayLike, rows: object) -> tuple[NDArray[Any], bool]:
    """The array in the graph's type, and whether it is given anew for every row.

    It is, where the graph's first dimension is as open as that of the rows: then the value is of one row.
    """
    if declared.type not in _GIVEN:
        raise ModelError(f"{name}: the input {declared.name} of {declared.type} can't be a constant")
    try:
        given = np.asarray(value)
        with np.errstate(invalid="ignore"):
            found = np.array(given, dtype=_GIVEN[declared.type], order="C")  # a copy: the caller's may change
        exact = found.dtype.kind == "f" or np.array_equal(found, given)
    except (OverflowError, TypeError, ValueError):
        exact = False
    if not exact:
        raise ModelError(f"{name}: the input {declared.name} of {declared.type} can't hold its constant")
    shape = list(declared.shape)
    repeated = bool(shape) and not isinstance(shape[0], int) and shape[0] == rows
    if repeated and found.ndim == len(shape) and found.shape[0] == 1:
        found = found[0]
    wanted = shape[1:] if repeated else shape
    fixed = [(size, held) for size, held in zip(wanted, found.shape) if isinstance(size, int)]
    if found.ndim != len(wanted) or any(size != held for size, held in fixed):
        raise ModelError(
            f"{name}: the constant {declared.name} must have shape {tuple(wanted)}"
            f"{' (that of one row)' if repeated else ''}, got {found.shape}"
        )
    return found, repeated


def _scores_output(session: Any, name: str, wanted: str | None) -> str:
    found = session.get_outputs()
    if wanted is not None:
        one = next((output for output in found if output.name == wanted), None)
        if one is None:
            raise unknown_name(f"output of {name}", wanted, [str(output.name) for output in found])
        if one.type not in _TYPES.keys() | _WHOLE or len(one.shape) != 2:
            raise ModelError(f"{name}: output {wanted} is {one.type} {one.shape}, not scores (rows, classes)")
        return wanted
    able = [str(output.name) for output in found if output.type in _TYPES and len(output.shape) == 2]
    if len(able) > 1:
        raise ModelError(
            f"{name}: each of the outputs {', '.join(able)} could hold the scores: choose by --model-output or output="
        )
    if not able:
        shapes = [(output.name, output.type, output.shape) for output in found]
        mapped = any("map(" in output.type for output in found)
        remedy = '. Scores in a map (ZipMap) are no array: convert the model with options={"zipmap": False}'
        raise ModelError(
            f"{name}: no output (rows, classes) of float scores, got {shapes}{remedy if mapped else ''}"
        )
    return able[0]


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
            answers = one.infer(dict(inputs), share_inputs=True, share_outputs=True)
            return torch.from_numpy(np.array(answers[target]))

    return evaluate


def has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16; others take ten times as long as in float32."""
    openvino = require("openvino", "the route openvino")
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
