"""A network in int8, by static quantisation: another base classifier, which is certified like any other.

Ranges of activations are fixed in advance, from noisy training inputs. Dynamic quantisation would take them from each
batch: rows would depend on one another, and votes would not be independent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds.fixed import clopper_pearson_lower
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes
from smoothcert.errors import InvalidValueError, ModelError, check_count, check_positive
from smoothcert.extras import require
from smoothcert.files import make_folder, write_atomically
from smoothcert.models.adapt import adapt
from smoothcert.models.base import BaseClassifier, Prepared
from smoothcert.models.numerics import LARGEST_CHUNK, Numerics
from smoothcert.models.onnx_file import OnnxClassifier, session_from_bytes
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.rounding import normal_quantile_down
from smoothcert.smoothing.fits.plan import CALIBRATION, VALIDATION, VOTES

MODEL, STATEMENT = "model.onnx", "statement.json"
ALPHA = 0.001
"""Of the radii whose change is stated."""

_LAYERS = ("Conv", "Gemm", "MatMul")
_FEW = 256  # rows that layers are compared by


@dataclass(frozen=True)
class Int8Model:
    """A quantised network, and what is known of it."""

    onnx: bytes
    """QDQ: weights in int8, and the steps that every activation is rounded to."""
    statement: Mapping[str, Any]

    def save(self, directory: Path) -> Path:
        """Write ``model.onnx`` and ``statement.json``; returns the path of the model."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        make_folder(directory)
        write_atomically(directory / MODEL, self.onnx)
        write_atomically(directory / STATEMENT, (json.dumps(self.statement, indent=2) + "\n").encode())
        return directory / MODEL


def quantize(
    model: Any,
    inputs: ArrayLike,
    sigma: float,
    *,
    labels: ArrayLike | None = None,
    agreement: float | None = None,
    calibration: int = CALIBRATION,
    validation: int = VALIDATION,
    votes: int = VOTES,
    seed: int = 0,
) -> Int8Model:
    """The network in int8, calibrated on noisy copies of training inputs.

    Of ``inputs``, which should be of the training split, ``validation`` are held out: on ``votes`` noisy copies of
    each, the statement compares the votes of both networks, and the average certified radius. ``labels`` are the
    classes of the inputs; without them radii count where a vote is for the original's most frequent class.

    ``agreement``: the percentage of votes that should not change. Where fewer agree, the layers that change scores
    most stay in float32. They are chosen on inputs of their own, so that the statement's figures have seen none of it.
    """
    base = model if isinstance(model, BaseClassifier) else adapt(model, "hard")
    rows = np.asarray(inputs)
    check_positive("sigma", sigma)
    for name, count in (("calibration", calibration), ("validation", validation), ("votes", votes)):
        check_count(name, count)
    if agreement is not None and not 0 < agreement <= 100:
        raise InvalidValueError(f"agreement is a percentage above 0 and up to 100, got {agreement}")
    if len(rows) < 3 * validation:
        raise InvalidValueError(
            f"{len(rows)} inputs are too few to hold out {validation}: give at least {3 * validation}, or hold out "
            "fewer (--validation)"
        )
    order = np.random.default_rng(seed).permutation(len(rows))
    chosen, held_out, others = np.split(order, [validation, 2 * validation])
    noisy = _Noisy(rows, sigma, seed)
    quantiser = _Quantiser(base, noisy.copies(0, np.resize(others, calibration)))
    in_float: list[str] = []
    made = quantiser.quantised(in_float)
    if agreement is not None:
        asked = [noisy.of(1, place, votes) for place in chosen]
        sensitive: list[str] = []
        while 100 * np.equal(*_both_votes(quantiser.prepared, made, asked)).mean() < agreement:
            sensitive = sensitive or quantiser.sensitive_first()
            in_float = sensitive[: max(1, 2 * len(in_float))]
            if len(in_float) == len(sensitive):
                raise ModelError(
                    f"{base.name}: {agreement:g} % of votes agree only with every layer in float32; ask for less "
                    "(--agreement)"
                )
            made = quantiser.quantised(in_float)
    known = None if labels is None else np.asarray(labels)[held_out]
    kept = [noisy.of(2, place, votes) for place in held_out]
    compared = _compared(*_both_votes(quantiser.prepared, made, kept), known, sigma)
    statement = {
        "model": base.name,
        "model_fingerprint": base.fingerprint(rows.shape[1:]),
        "sha256": hashlib.sha256(made).hexdigest(),
        "sigma": sigma,
        "seed": seed,
        "calibration": {"rows": calibration, "sha256": quantiser.calibration_sha256},
        "layers": len(quantiser.layers),
        "in_float32": in_float,
        "agreement_asked": agreement,
        "held_out": {"inputs": validation, "votes": votes, **compared},
        "versions": {name: str(require(name, "int8").__version__) for name in ("onnx", "onnxruntime")},
    }
    return Int8Model(made, statement)


@dataclass(frozen=True)
class _Noisy:
    """Noisy copies of inputs; each purpose draws from a stream of its own."""

    inputs: NDArray[Any]
    sigma: float
    seed: int

    def copies(self, purpose: int, places: NDArray[np.integer]) -> NDArray[np.float32]:
        random = np.random.default_rng([self.seed, purpose, int(places[0])])
        noise = self.sigma * random.standard_normal((len(places), *self.inputs.shape[1:]), dtype=np.float32)
        return np.asarray(self.inputs[places], dtype=np.float32) + noise

    def of(self, purpose: int, place: int, count: int) -> NDArray[np.float32]:
        return self.copies(purpose, np.full(count, place))


class _Quantiser:
    """A network in float32 as an ONNX graph, and the rows that its ranges are taken from."""

    def __init__(self, base: BaseClassifier, rows: NDArray[np.float32]) -> None:
        self._rows = rows
        self.calibration_sha256 = hashlib.sha256(rows.tobytes()).hexdigest()
        self.prepared = base.prepare(Numerics("float32"), rows.shape[1:])
        if isinstance(base, TorchClassifier):
            # Activations are a quarter as large, so that a pass may have four times as many rows.
            most = min(LARGEST_CHUNK, 4 * self.prepared.numerics.layout().chunk)
            exported = base.as_onnx(rows.shape[1:], most)
        elif isinstance(base, OnnxClassifier):
            exported = base.content
        else:
            raise ModelError(f"{base.name} is not a network: int8 is for torch modules and ONNX files")
        onnx = require("onnx", "int8")
        preparation = require("onnxruntime.quantization.shape_inference", "int8")
        with _quiet(), tempfile.TemporaryDirectory() as folder:
            before, after = Path(folder, "float.onnx"), Path(folder, "ready.onnx")
            before.write_bytes(exported)
            preparation.quant_pre_process(str(before), str(after), skip_symbolic_shape=True)
            self._float = after.read_bytes()
        graph = onnx.ModelProto.FromString(self._float).graph
        self._input = graph.input[0].name
        declared = graph.input[0].type.tensor_type.shape.dim[0].dim_value
        self.rows = declared or self.prepared.numerics.layout().chunk
        self.layers = [node.name for node in graph.node if node.op_type in _LAYERS]
        if any(node.op_type in ("QuantizeLinear", "QLinearConv") for node in graph.node):
            raise ModelError(f"{base.name} is quantised already: give the network it was made from")
        if not self.layers or len(set(self.layers)) < len(self.layers):
            raise ModelError(f"{base.name} has no named layers ({', '.join(_LAYERS)}) that int8 is for")

    def quantised(self, in_float: Sequence[str]) -> bytes:
        """The graph with all layers in int8 but these."""
        return self._made(self._rows, {"nodes_to_exclude": list(in_float)})

    def sensitive_first(self) -> list[str]:
        """The layers, by how much scores change where one layer alone is in int8."""
        few = self._rows[:_FEW]
        expected = self.scores(self._float, few)

        def change(layer: str) -> float:
            alone = self._made(few, {"nodes_to_quantize": [layer]})
            return float(np.square(self.scores(alone, few) - expected).mean())

        return sorted(self.layers, key=change, reverse=True)

    def scores(self, model: bytes, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        session = session_from_bytes(model)
        return np.concatenate([session.run(None, {self._input: part})[0] for part in self._passes(rows)])

    def _passes(self, rows: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        for start in range(0, len(rows), self.rows):
            yield np.resize(rows[start : start + self.rows], (self.rows, *rows.shape[1:]))

    def _made(self, rows: NDArray[np.float32], which: Mapping[str, Any]) -> bytes:
        package = require("onnxruntime.quantization", "int8")
        passes = ({self._input: part} for part in self._passes(rows))
        with _quiet(), tempfile.TemporaryDirectory() as folder:
            before, after = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
            before.write_bytes(self._float)
            package.quantize_static(
                str(before),
                str(after),
                SimpleNamespace(get_next=partial(next, passes, None)),
                quant_format=package.QuantFormat.QDQ,
                activation_type=package.QuantType.QUInt8,
                weight_type=package.QuantType.QInt8,
                per_channel=True,
                # Scores stay as they are: rounded, the two largest would often be equal.
                extra_options={"OpTypesToExcludeOutputQuantization": ["Gemm", "MatMul"]},
                **which,
            )
            return after.read_bytes()


def _both_votes(
    original: Prepared, made: bytes, rows: Sequence[NDArray[np.float32]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The votes of the network and of an int8 version on the same rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, MODEL)
        path.write_bytes(made)
        int8 = OnnxClassifier(path).prepare(Numerics("float32"), original.input_shape)
    together = torch.from_numpy(np.concatenate(rows))
    found = []
    for prepared in (original, int8):
        passes = Passes(prepared, "hard", Execution())
        with passes.threads() as pool:
            found.append(passes.labels(pool, together).reshape(len(rows), -1))
    return found[0], found[1]


def _compared(
    before: NDArray[np.int64], after: NDArray[np.int64], labels: NDArray[np.integer] | None, sigma: float
) -> dict[str, Any]:
    if labels is None:
        labels = np.array([np.bincount(row).argmax() for row in before])
    right = np.stack([(votes == labels[:, None]).sum(axis=1) for votes in (before, after)], axis=1)

    def radius(successes: int) -> float:
        lower = clopper_pearson_lower(successes, before.shape[1], ALPHA)
        return sigma * max(0.0, normal_quantile_down(lower))

    radii = np.array([list(map(radius, both)) for both in right.tolist()])
    return {
        "agreement_percent": _interval(100.0 * (before == after).mean(axis=1)),
        "acr_float32": float(radii[:, 0].mean()),
        "acr_int8": float(radii[:, 1].mean()),
        "acr_change": _interval(radii[:, 1] - radii[:, 0]),
    }


def _interval(values: NDArray[np.float64]) -> dict[str, float]:
    from scipy.special import stdtrit

    mean, count = float(values.mean()), len(values)
    half = (
        float(stdtrit(count - 1, 0.975)) * float(values.std(ddof=1)) / math.sqrt(count)
        if count > 1
        else math.inf
    )
    return {"mean": mean, "low": mean - half, "high": mean + half}


@contextmanager
def _quiet() -> Iterator[None]:
    """onnxruntime's advice on its own preparation goes to the root logger, which belongs to the program."""
    root, before = logging.getLogger(), len(logging.getLogger().handlers)

    def drop(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    root.addFilter(drop)
    try:
        yield
    finally:
        root.removeFilter(drop)
        del root.handlers[before:]
