"""ONNX files, evaluated by onnxruntime with one thread a worker.

Every byte that decides an answer is read and hashed, weights in other files included. Operators that draw random
numbers or scale a row by its batch are rejected by name.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import DependentVotesError, InvalidValueError, ModelError
from smoothcert.extras import require
from smoothcert.models.base import ACTIVATION_FACTOR, BaseClassifier, Opened
from smoothcert.models.numerics import Numerics, check_own_types, rows_within
from smoothcert.models.outputs import OutputKind
from smoothcert.models.wrappers import WHOLE_TYPES, as_whole, two_columns, whole_type
from smoothcert.registry import unknown_name

_LARGEST_MESSAGE = (1 << 31) - 1  # bytes of a protobuf


def read_model(path: Path) -> tuple[bytes, str]:
    """The model with all of its weights inside, and the SHA-256 of everything that was read for it.

    Weights in other files are looked for beside the model, never elsewhere, and are part of what is returned: whatever
    happens to the files afterwards, the hash is of the function that is evaluated.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: can't be read ({error.strerror})") from None
    digest = hashlib.sha256(content)
    if b"location" not in content:  # the key without which no weight is elsewhere
        return content, digest.hexdigest()
    onnx = require("onnx", "reading ONNX models with weights in other files")
    try:
        model = onnx.ModelProto.FromString(content)
    except Exception as error:  # protobuf's exceptions share no base class with anything
        raise ModelError(f"{path.name}: not a model onnxruntime can open ({error})") from None
    elsewhere = [tensor for tensor in _tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if not elsewhere:
        return content, digest.hexdigest()
    files: dict[str, bytes] = {}
    for tensor in elsewhere:
        _take_in(path, tensor, files)
    for location in sorted(files):
        digest.update(hashlib.sha256(location.encode()).digest() + hashlib.sha256(files[location]).digest())
    if model.ByteSize() > _LARGEST_MESSAGE:
        raise ModelError(
            f"{path.name}: its weights take more than 2 GiB, which onnxruntime can't be given at once"
        )
    return model.SerializeToString(), digest.hexdigest()


def _take_in(path: Path, tensor: Any, files: dict[str, bytes]) -> None:
    """Replace a reference to another file by the bytes there."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if location not in files:
        files[location] = _read_beside(path, location)
    whole = files[location]
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else len(whole) - offset
    except ValueError:
        raise ModelError(f"{path.name}: weight {tensor.name} has a damaged reference to {location}") from None
    if not (0 <= offset <= offset + length <= len(whole)):
        raise ModelError(
            f"{path.name}: weight {tensor.name} is at bytes {offset} to {offset + length} of {location}, which has "
            f"{len(whole)}: the files don't belong together"
        )
    tensor.raw_data = whole[offset : offset + length]
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _read_beside(path: Path, location: str) -> bytes:
    """A file beside the model; a link may lead to where the model itself lies, and nowhere else."""
    absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor
    if not location or absolute or ".." in (*PurePosixPath(location).parts, *PureWindowsPath(location).parts):
        raise ModelError(
            f"{path.name}: takes weights from {location!r}, outside its directory, which is refused; save it with its "
            "weights inside or beside it"
        )
    file = path.parent / location
    real = file.resolve()
    if not any(real.is_relative_to(folder) for folder in (path.parent.resolve(), path.resolve().parent)):
        raise ModelError(
            f"{path.name}: takes weights from {location!r}, a link that leaves its directory; copy the file"
        )
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path.name}: its weights in {location} can't be read ({error.strerror}); keep that file beside the model"
        ) from None


def _tensors(message: Any) -> Iterator[Any]:
    """Every tensor of a model, wherever it is: initializers, attributes, subgraphs, functions."""
    import onnx

    for field, value in message.ListFields():
        if field.message_type is None:  # numbers and text
            continue
        for one in [value] if hasattr(value, "ListFields") else list(value):
            if isinstance(one, onnx.TensorProto):
                yield one
            else:
                yield from _tensors(one)


_STANDARD = ("", "ai.onnx")
_MICROSOFT = "com.microsoft"
_RANDOM = {
    **dict.fromkeys(_STANDARD, ("Bernoulli", "Multinomial", "RandomNormal", "RandomUniform")),
    _MICROSOFT: ("BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", "Sampling"),
}
_BY_BATCH = dict.fromkeys((*_STANDARD, _MICROSOFT), ("DynamicQuantize",))

_MOST_NODES = 1 << 20
"""Of a graph whose local functions are written out: a small file may nest them to any size."""

Operator = tuple[str, str]
"""Domain and name."""


def check_operators(model: bytes, name: str) -> None:
    """Reject a model whose operators make a row's answer depend on chance or on other rows.

    Every graph and local function is looked at once, however often it is used.
    """
    onnx = require("onnx", "looking at the operators of ONNX models")
    try:
        proto = onnx.ModelProto.FromString(model)
    except Exception as error:  # protobuf's exceptions share no base class with anything
        raise ModelError(f"{name}: not a model onnxruntime can open ({error})") from None
    opsets = {one.domain: one.version for one in proto.opset_import}
    opset = next((opsets[domain] for domain in _STANDARD if domain in opsets), 0)
    bodies = {
        (function.domain, function.name): _called(name, opset, function.node, {})
        for function in proto.functions
    }
    _check_size(name, _called(name, opset, proto.graph.node, _initializers(proto.graph)), bodies)


def _called(name: str, opset: int, nodes: Sequence[Any], constants: dict[str, bool]) -> Counter[Operator]:
    """How often each operator occurs in nodes and the graphs inside of them, once each is known to be harmless.

    ``constants``: whether tensors hold anything but zeros, by name. Messages are nested a hundred deep at most.
    """
    constants = constants | {
        node.output[0]: _truth(attribute.t)
        for node in nodes
        if node.domain in _STANDARD and node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    found: Counter[Operator] = Counter()
    for node in nodes:
        found[node.domain, node.op_type] += 1
        _check(name, opset, node, constants)
        for attribute in node.attribute:
            for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                found += _called(name, opset, graph.node, constants | _initializers(graph))
    return found


def _check(name: str, opset: int, node: Any, constants: dict[str, bool]) -> None:
    operator, standard = node.op_type, node.domain in _STANDARD
    flag = node.input[2] if standard and operator == "Dropout" and len(node.input) > 2 else ""
    if operator.startswith(_RANDOM.get(node.domain, ())) or (flag and constants.get(flag, True)):
        raise DependentVotesError(
            f"{name}: its operator {operator} draws random numbers, and votes must be functions of their rows. Export "
            "the model in eval mode (model.eval())"
        )
    if operator.startswith(_BY_BATCH.get(node.domain, ())):
        raise DependentVotesError(
            f"{name}: its operator {operator} scales a row by the whole batch, and votes must be independent. Quantise "
            "the model statically"
        )
    if standard and operator == "BatchNormalization":
        training = any(one.name == "training_mode" and one.i for one in node.attribute)
        if training or (opset < 14 and sum(map(bool, node.output)) > 1):
            raise DependentVotesError(
                f"{name}: its operator {operator} is in training mode and normalises by the batch, and votes must be "
                "independent. Export the model in eval mode (model.eval())"
            )


def _check_size(name: str, main: Counter[Operator], bodies: dict[Operator, Counter[Operator]]) -> None:
    """onnxruntime writes local functions out wherever they are used: reject what that would never finish with."""
    sizes: dict[Operator, int] = {}
    waiting = set(bodies)
    while waiting:
        ready = {one for one in waiting if not waiting & bodies[one].keys()}
        if not ready:
            raise ModelError(f"{name}: its local functions call one another without end")
        for one in ready:
            sizes[one] = sum(times * sizes.get(called, 1) for called, times in bodies[one].items())
        waiting -= ready
    size = sum(times * sizes.get(called, 1) for called, times in main.items())
    if size > _MOST_NODES:
        raise ModelError(
            f"{name}: with its local functions written out it has {size:.1e} nodes, and at most {_MOST_NODES} are "
            "opened: export it without nested functions"
        )


def _initializers(graph: Any) -> dict[str, bool]:
    return {tensor.name: _truth(tensor) for tensor in graph.initializer}


def _truth(tensor: Any) -> bool:
    """Whether a tensor holds anything but zeros, as far as flags are kept: in raw_data or int32_data."""
    held = [*tensor.raw_data, *tensor.int32_data] if len(tensor.raw_data) < 64 else [1]
    return not held or any(held)


_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
_WHOLE = {
    f"tensor({name})": np.dtype(name).type
    for name in (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
}
_GIVEN = _TYPES | _WHOLE | {"tensor(bool)": np.bool_}
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
        if outputs == "labels":
            raise InvalidValueError(
                f'{path.name}: an ONNX file votes by scores or probabilities, not outputs="labels"; leave that out'
            )
        if outputs not in (None, "scores", "probabilities"):
            raise unknown_name("kind of output", outputs, ["probabilities", "scores"])
        self.name = path.name
        self.kind = outputs or "scores"
        self.thread_safe = thread_safe
        self._content, self._sha256 = read_model(path)
        check_operators(self._content, path.name)
        self._session = session_from_bytes(self._content, path.name)
        self.classes, self._one_number = classes, classes == 2 and outputs is not None
        smoothed, others = _smoothed_input(self._session, path.name, constants or {})
        self._input = _Input(smoothed.name, smoothed.type, tuple(smoothed.shape))
        self._constants = {
            one.name: _constant(path.name, one, (constants or {})[one.name], self._input.shape[0])
            for one in others
        }
        self._whole = whole_type(self._input.type[7:-1]) if self._input.type in _WHOLE else None
        self._output = _scores_output(self._session, path.name, output)
        shape = self._input.shape[1:]
        self.input_shape = tuple(shape) if all(isinstance(size, int) for size in shape) else None

    def __getstate__(self) -> dict[str, Any]:
        """Sent to another process, it opens its session there, from the same bytes."""
        return vars(self) | {"_session": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._session = session_from_bytes(self._content, self.name)

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
        """The file is its own route; a batch size fixed in the graph becomes the chunk."""
        if device != "cpu":
            raise ModelError(f"{self.name}: ONNX files are evaluated on the CPU; got device {device!r}")
        if numerics.route not in ("auto", "onnxruntime"):
            raise ModelError(f"{self.name}: an ONNX file has no route {numerics.route!r}; use auto")
        check_own_types(self.name, numerics)
        fixed = self._input.shape[0]
        if isinstance(fixed, int) and numerics.chunk not in (None, fixed):
            raise ModelError(f"{self.name}: the graph's batch size is fixed at {fixed}; drop --chunk")
        rows = (
            fixed if isinstance(fixed, int) else rows_within(4 * math.prod(input_shape) * ACTIVATION_FACTOR)
        )
        wanted = _GIVEN[self._input.type]

        def outputs(batch: torch.Tensor) -> torch.Tensor:
            batch = batch if self._whole is None else as_whole(batch, self._whole)
            given = {
                name: np.broadcast_to(one, (len(batch), *one.shape)) if repeated else one
                for name, (one, repeated) in self._constants.items()
            }
            answers = run_session(self._session, self._input.name, self._output, batch, wanted, given)
            return two_columns(answers, self.kind) if self._one_number else answers

        # A session keeps nothing between passes: the workers share it.
        settled = numerics.settled("onnxruntime", rows, _BLOCK)
        return Opened(settled, outputs, thread_safe=self.thread_safe is not False)


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
    """The one input that isn't given as a constant, and the others."""
    inputs = session.get_inputs()
    names = [str(one.name) for one in inputs]
    for unknown in constants.keys() - set(names):
        raise unknown_name(f"input of {name}", unknown, names)
    free = [one for one in inputs if one.name not in constants]
    if len(free) != 1:
        raise ModelError(
            f"{name} has the inputs {', '.join(names)}, of which {len(free)} are left to be smoothed, and that must be "
            "one: give the others as constants={name: array}"
        )
    if free[0].type not in _TYPES and free[0].type[7:-1] not in WHOLE_TYPES:
        raise ModelError(f"{name}: noise can't be added to the input {free[0].name} of {free[0].type}")
    return free[0], [one for one in inputs if one.name in constants]


def _constant(name: str, declared: Any, value: ArrayLike, rows: object) -> tuple[NDArray[Any], bool]:
    """The array in the graph's type, and whether it is given anew for every row.

    It is, where the graph's first dimension is as open as that of the rows: then the value is of one row.
    """
    if declared.type not in _GIVEN:
        raise ModelError(
            f"{name}: the input {declared.name} is of {declared.type}, which can't be a constant"
        )
    try:
        given = np.asarray(value)
        with np.errstate(invalid="ignore"):
            found = np.array(given, dtype=_GIVEN[declared.type], order="C")  # a copy: the caller's may change
        exact = found.dtype.kind == "f" or np.array_equal(found, given)
    except (OverflowError, TypeError, ValueError):
        exact = False
    if not exact:
        raise ModelError(
            f"{name}: the input {declared.name} is of {declared.type}, which can't hold the values of its constant"
        )
    shape = list(declared.shape)
    repeated = bool(shape) and not isinstance(shape[0], int) and shape[0] == rows
    if repeated and found.ndim == len(shape) and found.shape[0] == 1:
        found = found[0]
    wanted = shape[1:] if repeated else shape
    if found.ndim != len(wanted) or any(
        isinstance(size, int) and size != held for size, held in zip(wanted, found.shape)
    ):
        raise ModelError(
            f"{name}: the constant {declared.name} must have shape {tuple(wanted)}"
            f"{' (that of one row)' if repeated else ''}, got {found.shape}"
        )
    return found, repeated


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
            f"{name}: each of the outputs {', '.join(able)} could hold the scores: choose by --model-output or output="
        )
    if not able:
        shapes = [(output.name, output.type, output.shape) for output in found]
        mapped = any("map(" in output.type for output in found)
        remedy = '. Scores in a map (ZipMap) are no array: convert the model with options={"zipmap": False}'
        raise ModelError(
            f"{name}: no output of shape (rows, classes) with float scores, got {shapes}{remedy if mapped else ''}"
        )
    return able[0]
