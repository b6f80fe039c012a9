"""What models take and return beside floats and scores: taken where it is clear, refused in a line where it isn't."""

from __future__ import annotations

import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import Execution, SmoothedClassifier
from smoothcert.errors import DependentVotesError, InvalidValueError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.models.wrappers import WHOLE_TYPES, as_whole

WEIGHTS = torch.tensor([[1.0, -1.0, 0.5], [0.0, 2.0, -1.0]])
POINT = np.array([[0.3, 0.1]], dtype=np.float32)


class Returning(nn.Module):
    """Linear scores, handed out as ``shape`` makes them."""

    def __init__(self, shape: Callable[[torch.Tensor], Any] = lambda y: y) -> None:
        super().__init__()
        self.register_buffer("weights", WEIGHTS)
        self.shape = shape

    def forward(self, x: torch.Tensor) -> Any:
        return self.shape(x @ self.weights.to(x.dtype))


def counts(model: Any, x: np.ndarray = POINT, **options: Any) -> tuple[int, ...]:
    classifier = SmoothedClassifier(
        model, sigma=1.0, n=1000, seed=0, numerics=Numerics(chunk=64, block=64), **options
    )
    return classifier.certify(x, index=1)[0].estimation.counts


# ------------------------------------------------------------------------------------------------ several outputs

Named = namedtuple("Named", "hidden logits")


class ModelOutput(OrderedDict[str, Any]):
    """As Hugging Face has it: a mapping whose keys are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Answer:
    hidden: torch.Tensor
    logits: torch.Tensor


class Plain:
    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


def test_logits_and_only_outputs_vote():
    for shape in [
        lambda y: {"hidden": -y, "logits": y},
        lambda y: Named(-y, y),
        lambda y: ModelOutput(hidden=-y, logits=y),
        lambda y: Answer(-y, y),
        Plain,
        lambda y: (y,),
        lambda y: {"only": y},
    ]:
        assert counts(Returning(shape)) == counts(Returning())
        base = adapt(Returning(shape), "hard")
        before = base.fingerprint((2,))
        base.prepare(Numerics(), (2,))
        assert base.fingerprint((2,)) == before


def test_an_output_is_chosen_by_name_or_place():
    expected, opposite = counts(Returning()), counts(Returning(torch.neg))
    pair = Returning(lambda y: (-y, y))
    assert counts(pair, output="1") == expected
    assert counts(pair, output="0") == opposite
    assert counts(Returning(lambda y: {"a": y, "logits": -y}), output="a") == expected
    prints = {adapt(pair, "hard", output=place).fingerprint((2,)) for place in ("0", "1")}
    assert len(prints) == 2


def test_doubtful_outputs_are_refused_in_a_line():
    for shape, options, message in [
        (lambda y: (y, y), {}, r"tuple.*\b0, 1\b.*'logits'.*output="),
        (lambda y: {"a": y, "b": y}, {}, r"dict.*\ba, b\b.*'logits'.*output="),
        (lambda y: {"a": y, "scores": y}, {"output": "score"}, "'score'.*'scores'"),
        (lambda y: {"logits": 3}, {}, r"\bint\b.*'logits'"),
        (lambda y: y, {"output": "logits"}, r"Tensor.*output='logits'"),
        (lambda y: {"out": {"logits": y}}, {}, r"\bdict\b.*'out'"),
        (lambda y: None, {}, "NoneType"),
        (lambda y: y[:, :1], {"classes": "2"}, "classes.*'2'"),
        (lambda y: {}, {}, "dict.*'logits'.*output="),
        (lambda y: y, {"classes": 2}, r"\b3\b.*classes=2"),
    ]:
        with pytest.raises((ModelError, InvalidValueError), match=message) as caught:
            counts(Returning(shape), **options)
        assert "\n" not in str(caught.value)


def test_searches_by_gradients_see_the_scores_alone():
    from smoothcert.smoothing.search.by_gradient import GradientSearch

    classifier = SmoothedClassifier(
        Returning(lambda y: {"logits": y, "a": y}), sigma=0.5, n=200, seed=0, search=GradientSearch()
    )
    assert classifier.certify(POINT, index=0)[0].search is not None


# ------------------------------------------------------------------------------------------------ makes of torch


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_functions_and_modules_vote():
    expected = counts(Returning())
    assert counts(torch.jit.trace(lambda x: x @ WEIGHTS, torch.zeros(2, 2))) == expected
    module = nn.Linear(2, 3, bias=False)
    module.weight.data = WEIGHTS.T.clone()
    assert counts(torch.jit.script(module)) == expected
    assert counts(torch.jit.freeze(torch.jit.script(module.eval()))) == expected


@pytest.mark.parametrize("device", ["cuda", "gpu"])
@pytest.mark.parametrize("model", [Returning(), lambda b: b])
def test_a_device_that_isnt_there_is_refused(model, device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("hardware: it is there")
    with pytest.raises(InvalidValueError, match=f"'{device}'.*--device"):
        counts(model, execution=Execution(device=device))


def test_refusals_name_the_true_cause():
    """A module, which was in eval mode, an estimator and a function have different causes, and random layers others."""

    class Centering(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(0)

    class Random(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand_like(x)

    class ByBatch:
        classes_ = np.array([0, 1])

        def predict(self, batch: np.ndarray) -> np.ndarray:
            return (batch[:, 0] > np.median(batch[:, 0])).astype(int)

    def centering(batch: np.ndarray) -> np.ndarray:
        return batch - batch.mean(0)

    reasons = set()
    for model in (Centering(), Random(), ByBatch(), centering):
        name = getattr(model, "__qualname__", type(model).__name__)
        with pytest.raises(DependentVotesError) as caught:
            counts(model)
        assert str(caught.value).startswith(name)
        reasons.add(str(caught.value).removeprefix(name))
    assert len(reasons) == 4


def test_layers_that_normalise_by_the_batch_are_named():
    network = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3))
    with pytest.raises(ModelError, match=r"\b1\b.*BatchNorm1d.*track_running_stats=True") as caught:
        counts(network)
    assert not isinstance(caught.value, DependentVotesError)
    network[1] = nn.BatchNorm1d(4)
    assert sum(counts(network.train())) == 1000, "copies are evaluated in evaluation mode"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantisation_is_static():
    quantization = torch.ao.quantization
    stubs = quantization.QuantStub(), quantization.DeQuantStub()
    network = nn.Sequential(stubs[0], nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3), stubs[1]).eval()
    network.qconfig = quantization.get_default_qconfig(torch.backends.quantized.engine)  # type: ignore[assignment]
    prepared = quantization.prepare(network)
    prepared(torch.randn(64, 2))
    assert sum(counts(quantization.convert(prepared))) == 1000
    network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(ModelError, match="dynamic"):
        counts(torch.ao.quantization.quantize_dynamic(network, {nn.Linear}))


# ------------------------------------------------------------------------------------------------ two classes


def test_one_number_a_row_is_two_classes_if_declared():
    def two(batch: np.ndarray) -> np.ndarray:
        return np.stack([np.zeros(len(batch), np.float32), batch[:, 0]], 1)

    class Logit(nn.Module):
        def __init__(self, flat: bool) -> None:
            super().__init__()
            self.flat = flat

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, 0] if self.flat else x[:, :1]

    expected = counts(two)
    for model in (Logit(True), Logit(False), lambda b: b[:, 0], lambda b: b[:, :1]):
        assert counts(model, classes=2, outputs="scores") == expected
        with pytest.raises(ModelError, match=r'classes=2.*outputs="scores".*outputs="probabilities"'):
            counts(model)
        with pytest.raises(
            ModelError, match=r'outputs="scores".*outputs="probabilities"'
        ):  # a logit or a probability?
            counts(model, classes=2)
    sigmoid = nn.Sequential(Logit(False), nn.Sigmoid())
    assert counts(sigmoid, classes=2, outputs="probabilities") == expected
    with pytest.raises(ModelError, match=r'outputs="probabilities".*outputs="scores"'):
        counts(Logit(False), classes=2, outputs="probabilities")
    soft = [
        SmoothedClassifier(model, sigma=1.0, n=1000, seed=0, bound="hoeffding", classes=2, outputs=kind)
        .certify(POINT, index=1)[0]
        .bounds.lower
        for model, kind in ((sigmoid, "probabilities"), (Logit(False), "scores"))
    ]
    assert soft[0] == pytest.approx(soft[1], abs=1e-6)


# ------------------------------------------------------------------------------------------------ whole numbers


@pytest.mark.parametrize("name", sorted(WHOLE_TYPES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rule_rounds_and_clips(name, dtype):
    kind = WHOLE_TYPES[name]
    least, most = torch.iinfo(kind).min, torch.iinfo(kind).max
    found = as_whole(torch.tensor([0.4, 0.5, 1.5, 2.5, 1e30, -1e30], dtype=dtype), kind)
    assert found.dtype == kind
    assert found[:4].tolist() == [0, 0, 2, 2]
    assert most - found[4].item() <= most * 2**-23  # no wrapping around
    assert found[5].item() == least
    everything = torch.arange(max(least, -300), min(most, 300) + 1, dtype=dtype)
    assert as_whole(everything, kind).tolist() == everything.tolist()


def test_models_of_whole_numbers_get_them():
    seen = set()

    class Bytes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype == torch.uint8
            seen.update(x.reshape(-1).tolist())
            return torch.stack([x[:, 0].float(), 255 - x[:, 0].float()], 1)

    def function(batch: np.ndarray) -> np.ndarray:
        assert batch.dtype == np.uint8
        return np.stack([batch[:, 0].astype(float), 255.0 - batch[:, 0]], 1)

    def by_hand(batch: np.ndarray) -> np.ndarray:
        return function(np.clip(np.rint(batch), 0, 255).astype(np.uint8))

    x = np.array([[130, 250]], dtype=np.uint8)

    def votes(model: Any, **options: Any) -> Any:
        options = {"numerics": Numerics(chunk=64, block=64)} | options
        classifier = SmoothedClassifier(model, sigma=20.0, n=2000, seed=0, levels=1, **options)
        return classifier.certify(x, index=0)[0].estimation.counts

    expected = votes(by_hand)
    assert votes(Bytes(), input_dtype="uint8") == expected
    assert votes(function, input_dtype="uint8") == expected
    assert {0, 255} <= seen
    names = {adapt(Bytes(), "hard", input_dtype=kind).identity() for kind in ("uint8", "int16", None)}
    assert len(names) == 3, "the rule is a part of the function"
    with pytest.raises(ModelError, match='input_dtype="uint8"'):
        votes(Bytes())
    with pytest.raises(InvalidValueError, match=r"'uint'.*uint8"):
        votes(Bytes(), input_dtype="uint")
    with pytest.raises(ModelError, match=r"uint8.*bfloat16.*--dtype"):
        votes(Bytes(), input_dtype="uint8", numerics=Numerics(dtype="bfloat16"))


# ------------------------------------------------------------------------------------------------ estimators


def test_estimators_of_several_targets_are_refused_and_a_column_of_labels_is_labels():
    ensemble = pytest.importorskip("sklearn.ensemble")
    x = np.random.default_rng(0).normal(size=(60, 2))
    targets = np.c_[x[:, 0] > 0, (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)]
    forest = ensemble.RandomForestClassifier(3).fit(x, targets)
    with pytest.raises(ModelError, match=r"RandomForestClassifier.*\b2\b.*classes_"):
        counts(forest)

    def labels(batch: np.ndarray) -> np.ndarray:
        return (batch @ WEIGHTS.numpy()).argmax(1)

    flat = counts(labels, outputs="labels", classes=3)
    assert counts(lambda b: labels(b)[:, None], outputs="labels", classes=3) == flat
    with pytest.raises(ModelError, match=r"int64.*\(64, 2\)"):
        counts(lambda b: np.stack([labels(b)] * 2, 1), outputs="labels", classes=3)


class Frame:
    """Enough of a DataFrame."""

    def __init__(self, values: Any, columns: list[str]) -> None:
        self.values, self.columns = np.asarray(values), columns

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.values, dtype=dtype)

    def __getitem__(self, names: list[str]) -> Frame:
        return Frame(self.values[:, [self.columns.index(name) for name in names]], names)


class ByColumn:
    """An estimator that looks its columns up by name, as a ColumnTransformer does."""

    classes_ = np.array(["no", "yes"])
    feature_names_in_ = np.array(["age", "weight"], dtype=object)
    n_features_in_ = 2

    def predict(self, batch: Any) -> np.ndarray:
        age = batch.values[:, batch.columns.index("age")]
        return self.classes_[(age > 0).astype(int)]


@pytest.fixture
def _frames(monkeypatch) -> None:
    pandas = ModuleType("pandas")
    pandas.DataFrame = Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)


def test_tables_and_other_libraries_work_without_a_warning():
    pandas = pytest.importorskip("pandas", reason="tables are pandas'")
    linear_model = pytest.importorskip("sklearn.linear_model")
    table = pandas.DataFrame({"a": [0.0, 1.0, 2.0, 3.0] * 5, "b": [1.0, 0.0] * 10})
    model = linear_model.LogisticRegression().fit(table, table["a"] > 1.5)
    answers = SmoothedClassifier(model, sigma=0.1, n=200, seed=0).certify(table[:5])
    assert list(answers.label) == [False, False, True, True, False]  # type: ignore[union-attr]
    table["b"] = "red"
    with pytest.raises(InvalidValueError, match=r"'b'.*hold=\['b'\]"):
        SmoothedClassifier(model, sigma=0.1, n=200, seed=0).certify(table[:5])


class Row(Frame):
    """Enough of a Series: a row of a table, which calls its columns an index."""

    ndim = 1

    def __init__(self, values: Any, index: list[Any]) -> None:
        self.values, self.index = np.asarray(values), index

    def __getattribute__(self, name: str) -> Any:
        if name == "columns":
            raise AttributeError(name)
        return super().__getattribute__(name)

    def __getitem__(self, names: list[str]) -> Row:
        return Row(self.values[[self.index.index(name) for name in names]], names)


@pytest.mark.usefixtures("_frames")
def test_tables_and_their_rows_go_by_name_not_by_place():
    classifier = SmoothedClassifier(ByColumn(), sigma=0.5, n=200, seed=0)
    for values, names in (([3.0, -3.0], ["age", "weight"]), ([-3.0, 3.0], ["weight", "age"])):
        (answer,) = classifier.certify(Frame([values], names))  # type: ignore[misc,arg-type]
        assert answer.label == "yes"
        assert classifier.certify(Row(values, names)).label == "yes"  # type: ignore[union-attr,arg-type]
    assert classifier.certify(Row([3.0, -3.0], [0, 1])).label == "yes"  # type: ignore[union-attr,arg-type]
    for unknown in (Frame([[-3.0, 3.0]], ["weight", "height"]), Row([-3.0, 3.0], ["weight", "height"])):
        with pytest.raises(InvalidValueError, match=r"'age'.*height"):
            classifier.certify(unknown)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ ONNX


Declared = tuple[str, str, list[Any]]
"""Name, type and shape of an input or an output."""


def onnx_file(
    path: Path,
    nodes: list[tuple[str, list[str], str, dict[str, Any]]],
    inputs: list[Declared],
    output: Any,
    **weights: Any,
) -> Path:
    """A graph of nodes: operator, inputs, the one output, attributes."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper = onnx.helper

    def declared(name: str, kind: str, shape: list[Any]) -> Any:
        return helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), shape)

    made = helper.make_graph(
        [
            helper.make_node(operator, given, [result], **options)
            for operator, given, result, options in nodes
        ],
        "graph",
        [declared(*one) for one in inputs],
        [declared(*output) if isinstance(output, tuple) else output],
        [onnx.numpy_helper.from_array(np.array(value, np.float32), name) for name, value in weights.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    path.write_bytes(helper.make_model(made, opset_imports=imports, ir_version=9).SerializeToString())
    return path


ROWS = ("x", "FLOAT", ["rows", 2])
TO_FLOAT = {"to": 1}


def linear_file(path: Path, kind: str = "FLOAT", per_row: bool = False) -> Path:
    """scores = cast(x) @ WEIGHTS + offset, x and offset being inputs."""
    nodes: list[Any] = [("Cast", ["x"], "float", TO_FLOAT), ("MatMul", ["float", "w"], "product", {})]
    nodes.append(("Add", ["product", "offset"], "scores", {}))
    inputs: list[Declared] = [("x", kind, ["rows", 2]), ("offset", "FLOAT", ["rows", 3] if per_row else [3])]
    return onnx_file(path, nodes, inputs, ("scores", "FLOAT", ["rows", 3]), w=WEIGHTS.numpy())


@pytest.mark.parametrize("per_row", [False, True])
def test_an_onnx_file_with_constants(tmp_path, per_row):
    path = linear_file(tmp_path / "m.onnx", per_row=per_row)
    assert counts(path, constants={"offset": [0.0, 0.0, 0.0]}) == counts(Returning())
    assert counts(path, constants={"offset": [99.0, 0.0, 0.0]}) == (1000, 0, 0)
    prints = {
        adapt(path, "hard", constants={"offset": [first, 0.0, 0.0]}).fingerprint((2,)) for first in (0, 9)
    }
    assert len(prints) == 2
    with pytest.raises(ModelError, match=r"\bx, offset\b.*\b2\b.*constants="):
        counts(path)
    with pytest.raises(InvalidValueError, match=r"'ofset'.*'offset'"):
        counts(path, constants={"ofset": [0.0]})
    with pytest.raises(ModelError, match=r"offset.*\(3,\).*\(2,\)"):
        counts(path, constants={"offset": [0.0, 1.0]})
    with pytest.raises(InvalidValueError, match=r"constants=.*Returning.*ONNX"):
        counts(Returning(), constants={"offset": 0})


def test_onnx_files_of_bytes_and_with_one_number_a_row(tmp_path):
    path = linear_file(tmp_path / "m.onnx", "UINT8")
    x = np.array([[3.0, 1.0]], dtype=np.float32)

    def by_hand(batch: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(batch), 0, 255) @ WEIGHTS.numpy()

    assert counts(path, x, constants={"offset": np.zeros(3)}) == counts(by_hand, x)
    path, logit = tmp_path / "m.onnx", ("logit", "FLOAT", ["rows", 1])
    onnx_file(path, [("MatMul", ["x", "w"], "logit", {})], [ROWS], logit, w=[[1.0], [0.0]])
    expected = counts(lambda b: b[:, 0], classes=2, outputs="scores")
    assert counts(path, classes=2, outputs="scores") == expected
    with pytest.raises(ModelError, match=r'classes=2.*outputs="scores"'):
        counts(path)


CHEAP = (
    "svm.LinearSVC linear_model.LogisticRegression neural_network.MLPClassifier tree.DecisionTreeClassifier"
)
DEAR = "svm.SVC neighbors.KNeighborsClassifier ensemble.RandomForestClassifier"


@pytest.mark.parametrize("name", [*CHEAP.split(), "naive_bayes.GaussianNB", *DEAR.split()])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_passes_are_longer_where_rows_are_cheap(name):
    pytest.importorskip("sklearn")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    longer = name not in DEAR
    x = np.random.default_rng(0).normal(size=(60, 2))
    kind: Any = resolve_name(f"sklearn.{name}")
    options = {"max_iter": 5} if "MLP" in name else {}
    for estimator in (kind(**options), make_pipeline(StandardScaler(), kind(**options))):
        base = adapt(estimator.fit(x, x[:, 0] > 0), "hard")
        layout = base.prepare(Numerics(), (2,)).numerics.layout()
        assert layout.block == (1024 if longer else 64)
        assert (layout.chunk > 1024) == longer
        asked = base.prepare(Numerics(chunk=32), (2,)).numerics.layout()
        assert asked.chunk == 32


def test_constants_of_whole_numbers_are_exact_and_may_be_a_single_one(tmp_path):
    nodes: list[Any] = [("Cast", ["k"], "f", TO_FLOAT), ("Sub", ["x", "f"], "scores", {})]
    path = onnx_file(tmp_path / "m.onnx", nodes, [ROWS, ("k", "UINT8", [])], ("scores", "FLOAT", ["rows", 2]))
    assert counts(path, constants={"k": 3}) == counts(lambda b: b - 3)
    for value in (2.5, 300, -1, float("nan"), "three", 2.0**80):
        with pytest.raises(ModelError, match=r"\bk\b.*uint8"):
            counts(path, constants={"k": value})  # type: ignore[dict-item]
    array = np.array(3)
    classifier = SmoothedClassifier(str(path), sigma=0.5, n=200, seed=0, constants={"k": array})
    before = classifier.base.fingerprint((2,))
    array[...] = 4
    assert classifier.base.fingerprint((2,)) == before


def test_scores_in_a_map_name_the_option_that_leaves_them_an_array(tmp_path):
    onnx = pytest.importorskip("onnx")
    types, helper = onnx.TensorProto, onnx.helper
    shares = helper.make_map_type_proto(types.INT64, helper.make_tensor_type_proto(types.FLOAT, []))
    output = helper.make_value_info("scores", helper.make_sequence_type_proto(shares))
    zipped = {"domain": "ai.onnx.ml", "classlabels_int64s": [0, 1]}
    path = onnx_file(tmp_path / "m.onnx", [("ZipMap", ["x"], "scores", zipped)], [ROWS], output)
    with pytest.raises(ModelError, match=r'ZipMap.*"zipmap": False'):
        counts(path)


# ------------------------------------------------------------------------------------------------ remote functions


class Service:
    """Answers of a network over a connection that fails at the calls given, counted from 1."""

    def __init__(self, fails: Callable[[int], bool], error: Exception) -> None:
        self.fails, self.error, self.calls = fails, error, 0

    def ask(self, batch: np.ndarray) -> np.ndarray:
        self.calls += 1
        if self.fails(self.calls):
            raise self.error
        return batch @ WEIGHTS.numpy()


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    made: list[float] = []
    monkeypatch.setattr("smoothcert.models.function.time.sleep", made.append)
    return made


def test_failed_calls_are_repeated_and_change_no_vote(pauses):
    votes = counts(Service(lambda _: False, OSError()).ask)
    for error in (ConnectionResetError("reset"), TimeoutError("late"), RuntimeError("503")):
        assert counts(Service(lambda call: call % 3 > 0, error).ask, retries=2) == votes
    assert set(pauses) == {0.5, 1.0}


def test_a_lost_connection_is_the_same_error_at_any_call(pauses):
    """Also where a function may reject probes: an outage must not change the model's fingerprint."""
    service = Service(lambda _: False, OSError())
    SmoothedClassifier(service.ask, sigma=1.0).base.fingerprint((2,))
    for lost in range(1, service.calls + 1):
        failing = Service(lambda call, lost=lost: call >= lost, ConnectionResetError("reset by peer"))
        with pytest.raises(ModelError, match=r"reset by peer.*--retries"):
            SmoothedClassifier(failing.ask, sigma=1.0).base.fingerprint((2,))
    failing = Service(lambda call: call > 3, ConnectionResetError("reset by peer"))
    with pytest.raises(ModelError, match=r"\b6 times.*reset by peer.*retries"):
        counts(failing.ask, retries=5)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_mistakes_are_not_repeated(pauses):
    broken = Service(lambda _: True, ValueError("13 rows"))
    with pytest.raises(ModelError, match="13 rows"):
        counts(broken.ask, retries=5)
    assert (broken.calls, pauses) == (1, [])
    for model, retries in [(Returning(), 5), (Service(lambda _: False, OSError()).ask, -1)]:
        with pytest.raises(InvalidValueError, match=f"retries.*{retries}"):
            counts(model, retries=retries)
