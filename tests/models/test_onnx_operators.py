"""ONNX files whose operators draw random numbers or look at the batch are rejected when they are read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.errors import DependentVotesError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.onnx_reading import check_operators
from tests.guarantees.hostile import in_time

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper = onnx.helper

FLOAT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL
ROWS = helper.make_tensor_value_info("x", FLOAT, ["rows", 2])
SCORES = helper.make_tensor_value_info("y", FLOAT, ["rows", 2])


def flag(name: str, value: bool, raw: bool = True) -> Any:
    held = np.array(value)
    return onnx.numpy_helper.from_array(held, name) if raw else helper.make_tensor(name, BOOL, [], [value])


def model(
    nodes: list[Any], tensors: list[Any] | None = None, functions: list[Any] | None = None, opset: int = 17
) -> Any:
    graph = helper.make_graph(nodes, "graph", [ROWS], [SCORES], tensors or [])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions or [])
    return made.SerializeToString()


def node(operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(operator, inputs, outputs, **attributes)


def within_if(inner: Any) -> list[Any]:
    """The node behind a branch, as the first one of a graph of its own."""
    result = [helper.make_tensor_value_info("z", FLOAT, None)]
    branch = helper.make_graph([inner], "branch", [], result)
    other = helper.make_graph([node("Identity", ["x"], ["z"])], "other", [], result)
    return [node("If", ["flag"], ["y"], then_branch=branch, else_branch=other)]


def called(inner: Any) -> tuple[list[Any], None, list[Any]]:
    function = helper.make_function("own", "F", ["x"], ["z"], [inner], [helper.make_opsetid("", 17)])
    return [node("F", ["x"], ["y"], domain="own")], None, [function]


FOUR = [onnx.numpy_helper.from_array(np.ones(2, np.float32), each) for each in ("s", "b", "m", "v")]
RATIO = onnx.numpy_helper.from_array(np.float32(0.5), "ratio")

REJECTED: dict[str, Callable[[], Any]] = {
    "RandomNormal": lambda: model(
        [node("RandomNormal", [], ["r"], shape=[2]), node("Add", ["x", "r"], ["y"])]
    ),
    "RandomUniformLike": lambda: model([node("RandomUniformLike", ["x"], ["y"])]),
    "RandomNormalLike": lambda: model(
        within_if(node("RandomNormalLike", ["x"], ["z"])), [flag("flag", True)]
    ),
    "Bernoulli": lambda: model(*called(node("Bernoulli", ["x"], ["z"]))),
    "Multinomial": lambda: model([node("Multinomial", ["x"], ["i"]), node("Cast", ["i"], ["y"], to=FLOAT)]),
    "Dropout": lambda: model([node("Dropout", ["x", "ratio", "on"], ["y"])], [RATIO, flag("on", True)]),
    "Dropout of a computed flag": lambda: model(
        [node("Not", ["off"], ["on"]), node("Dropout", ["x", "ratio", "on"], ["y"])],
        [RATIO, flag("off", False)],
    ),
    "BatchNormalization": lambda: model(
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "m2", "v2"], training_mode=1)], FOUR
    ),
    "DynamicQuantizeLinear": lambda: model(
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
            node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        ]
    ),
    "DynamicQuantizeMatMul": lambda: model(
        [node("DynamicQuantizeMatMul", ["x", "w", "s", "z"], ["y"], domain="com.microsoft")]
    ),
}


@pytest.mark.parametrize("kind", REJECTED)
def test_operators_that_no_vote_can_depend_on_are_rejected_by_name(kind):
    with pytest.raises(DependentVotesError, match=rf"m\.onnx.*\b{kind.split()[0]}\b"):
        check_operators(REJECTED[kind](), "m.onnx")


@pytest.mark.parametrize("off", [flag("on", False), flag("on", False, raw=False)])
def test_dropout_and_batch_norm_of_a_model_in_eval_mode_vote(tmp_path, off):
    path = tmp_path / "m.onnx"
    norm = node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"])
    path.write_bytes(model([norm, node("Dropout", ["n", "ratio", "on"], ["y"])], [*FOUR, RATIO, off]))
    answer = SmoothedClassifier(path, sigma=0.5, n=100, seed=0).certify(np.array([3.0, 0.0]))
    assert answer.predicted == 0
    constant = node("Constant", [], ["on"], value=off)
    check_operators(model([constant, node("Dropout", ["x", "ratio", "on"], ["y"])], [RATIO]), "m.onnx")
    check_operators(model([node("Dropout", ["x"], ["y"])]), "m.onnx")


def test_such_a_file_is_rejected_when_it_is_opened(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(REJECTED["Dropout"]())
    with pytest.raises(DependentVotesError, match=r"m\.onnx.*Dropout"):
        adapt(path, "hard")


def nested(levels: int, last: str) -> bytes:
    """Functions that each use the next one twice."""
    functions = []
    for level in range(levels):
        inner = f"F{level + 1}" if level + 1 < levels else last
        body = [node(inner, ["x"], ["h"], domain="own"), node(inner, ["h"], ["z"], domain="own")]
        functions.append(
            helper.make_function("own", f"F{level}", ["x"], ["z"], body, [helper.make_opsetid("own", 1)])
        )
    found: bytes = model([node("F0", ["x"], ["y"], domain="own")], None, functions)
    return found


@pytest.mark.parametrize("last", ["Unknown", "F3"])
def test_functions_nested_without_end_take_no_time(tmp_path, last):
    path = tmp_path / "m.onnx"
    path.write_bytes(nested(40, last))
    assert path.stat().st_size < 5000
    # Followed one by one they would be 2^40: it would never end.
    with in_time(), pytest.raises(ModelError, match=r"m\.onnx"):
        adapt(path, "hard")


def message(number: int, content: bytes) -> bytes:
    size = len(content)
    return bytes([number << 3 | 2, size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + content


def test_what_is_no_protobuf_and_graphs_nested_too_deeply_are_rejected():
    graph = b""
    for _ in range(150):
        graph = message(1, message(5, message(6, graph)))  # a graph's node, its attribute, the graph in that
    for content in (b"\xff", b"\x3a\xff\xff\x03", b"\x0b", b"\xff" * 20, b"\x38", message(7, graph)):
        with pytest.raises(ModelError, match=r"m\.onnx"):
            check_operators(content, "m.onnx")
    check_operators(message(7, message(1, b"")), "m.onnx")
