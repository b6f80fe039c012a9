"""Certificates are about the model that was given, whatever it returns, and its classes go by name."""

import itertools
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.empirical.attacker import attack_run
from smoothcert.empirical.results import AttackPlan
from smoothcert.engine.execution import Execution
from smoothcert.errors import DataError, InvalidValueError, ModelError, RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.models.adapt import adapt, class_order
from smoothcert.models.numerics import Numerics
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.smoothing.fits.fit import fit_into
from smoothcert.smoothing.fits.plan import FitPlan
from tests.guarantees.toys import POINTS, Signed, mirrored, scores, votes

# ------------------------------------------------------------------------------------------ what a model returns


def test_a_pass_that_loses_or_gains_rows_is_refused_whenever_it_happens():
    def dropping(batch: np.ndarray) -> np.ndarray:
        return scores(batch[batch[:, 0] < 200])

    def doubling(batch: np.ndarray) -> np.ndarray:
        return scores(np.concatenate([batch, batch[batch[:, 0] > 200]]))

    for model in (dropping, doubling):
        with pytest.raises(ModelError, match=rf"\b0\b.*\b{model.__name__}\b"):
            SmoothedClassifier(model, sigma=1.0, n=1000, seed=0).certify(np.array([200.0, 0.0]), index=0)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_whole_numbers_are_compared_as_whole_numbers(dtype):
    """Class 1 always wins by one: float32 can't tell 2**24 and 2**24 + 1 apart, float64 not 2**53 and 2**53 + 1."""
    large = 2**24 if np.dtype(dtype).itemsize == 4 else 2**53

    def model(batch: np.ndarray) -> np.ndarray:
        return np.tile(np.array([large, large + 1], dtype=dtype), (len(batch), 1))

    answer = SmoothedClassifier(model, sigma=1.0, n=500, seed=0).certify(np.zeros((1, 2)), index=0)[0]
    assert answer.estimation.counts == (0, 500)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.bfloat16, torch.float64])
def test_every_real_type_votes_for_its_largest_number(dtype):
    def model(batch: np.ndarray) -> torch.Tensor:
        low = torch.from_numpy(batch[:, 0]) < 0  # 0 is a tie, which goes to the first class
        return torch.stack([~low, low], 1).to(dtype)

    assert votes(model, 1, n=800) == votes(scores, 1, n=800)


def complex_scores(batch: np.ndarray) -> np.ndarray:
    return scores(batch) * 1j


class Complex(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1j


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


def test_what_cant_be_a_vote_is_refused():
    for model, message in [
        (complex_scores, "complex64"),
        (Complex(), "complex64"),
        (Pair(), r"tuple.*\b0\b.*\b1\b.*output="),
        (lambda b: {"scores": b}, r"\{'scores':"),
        (lambda b: b.sum(), r"np\.float32\("),
        (lambda b: np.array(["yes", "no"] * (len(b) // 2)), "<U3"),
        (lambda b: b.astype(np.longdouble), str(np.dtype(np.longdouble))),
    ]:
        with pytest.raises(ModelError, match=message):
            SmoothedClassifier(model, sigma=1.0, n=100, seed=0).certify(np.zeros(2))


def test_soft_votes_of_infinite_or_inexact_scores_are_refused():
    for model, message in [
        (lambda batch: np.where(batch[:, :2] > 0, np.inf, 0.0), r"\b0\b"),
        (lambda batch: np.tile(np.array([2**60, 2**60 + 1]), (len(batch), 1)), r"2\*\*53"),
    ]:
        with pytest.raises(ModelError, match=message):
            SmoothedClassifier(model, sigma=1.0, n=100, seed=0, bound="hoeffding").certify(np.zeros(2))


def test_a_model_may_write_to_its_input_and_return_it():
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x[:, 1] = -x[:, 0]
            return x

    assert votes(InPlace(), 2, n=800) == votes(scores, 1, n=800)


class Frozen(nn.Sequential):
    def train(self, mode: bool = True) -> Any:
        super().train(False)


def test_a_module_whose_train_returns_nothing_works():
    model = Frozen(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert len(SmoothedClassifier(model, sigma=0.5, n=200, seed=0).certify(np.zeros((3, 2)))) == 3


class Saliency(nn.Module):
    def __init__(self, allowed: bool) -> None:
        super().__init__()
        self.body, self.allowed = nn.Linear(2, 2), allowed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.allowed:
            with torch.inference_mode(False), torch.enable_grad():
                return self.sloped(x.clone())
        return self.sloped(x)

    def sloped(self, x: torch.Tensor) -> torch.Tensor:
        x.requires_grad_(True)
        scores: torch.Tensor = self.body(x)
        (slope,) = torch.autograd.grad(scores.sum(), x)
        return (scores + slope).detach()


def test_gradients_in_forward_are_named_and_the_remedy_works():
    def saliency(allowed: bool) -> SmoothedClassifier:
        return SmoothedClassifier(Saliency(allowed), sigma=0.5, n=200, seed=0)

    with pytest.raises(ModelError, match=r"torch\.inference_mode\(False\)"):
        saliency(False).certify(np.zeros((2, 2)))
    assert len(saliency(True).certify(np.zeros((2, 2)))) == 2


def test_passes_that_answer_in_several_types_are_compared_in_their_own():
    """Joined in float32, 2**24 and 2**24 + 1 are a tie, which class 0 would win; class 1 always wins."""
    asked = itertools.count()

    def model(batch: np.ndarray) -> np.ndarray:
        answer = np.tile(np.array([2**24, 2**24 + 1]), (len(batch), 1))
        return answer if next(asked) % 4 or len(batch) != 32 else (answer - 2**24).astype(np.float32)

    smoothed = SmoothedClassifier(model, sigma=1.0, n=512, seed=0, numerics=Numerics(chunk=32, block=128))
    with pytest.MonkeyPatch.context() as patch:  # the check would see the types change
        patch.setattr("smoothcert.engine.checking.RowCheck.open", lambda *_: None)
        assert smoothed.certify(np.zeros(2)).estimation.counts == (0, 512)


# --------------------------------------------------------------------------------------------- estimators, names


class Estimator:
    """Predicts ``names[0]`` where x₀ > 0, with its classes in any order."""

    def __init__(self, names: list[Any], classes: list[Any], column: bool = False) -> None:
        self.names, self.column = names, column
        self.classes_ = np.array(classes)

    def predict(self, batch: np.ndarray) -> np.ndarray:
        found = np.array(self.names)[(batch[:, 0] <= 0).astype(int)]
        return found[:, None] if self.column else found


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize(
    ("names", "classes"), [([0, 1], [1, 0]), (["b", "a"], ["a", "b"]), ([0.5, -1.0], [0.5, -1.0])]
)
def test_an_estimators_labels_are_found_wherever_they_stand(names, classes, column):
    classifier = SmoothedClassifier(Estimator(names, classes, column), sigma=0.5, n=500, seed=0)
    answers = classifier.certify(POINTS[:2], index=0)
    assert [classes[answer.predicted] for answer in answers] == names
    assert [answer.label for answer in answers] == names
    predictions = classifier.predict(POINTS[:2])
    assert [prediction.label for prediction in predictions] == names


def test_an_estimator_fitted_again_to_other_classes_is_refused():
    """Its probabilities go by their place: what it calls 1 by now was certified as 0."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = np.random.default_rng(0).normal(size=(200, 2))
    y = (x[:, 0] > 0).astype(int) + (x[:, 0] > 1)
    estimator = linear_model.LogisticRegression().fit(x, y)
    smoothed = SmoothedClassifier(estimator, sigma=0.3, n=200, seed=0, outputs="probabilities")
    assert smoothed.certify(np.array([2.5, 0.0])).label == 2
    estimator.fit(x, 3 - y)
    with pytest.raises(ModelError, match=r"\[1, 2, 3\]"):
        smoothed.certify(np.array([2.5, 0.0]))
    labels = SmoothedClassifier(estimator, sigma=0.3, n=200, seed=0)
    assert labels.certify(np.array([2.5, 0.0])).label == 1
    estimator.fit(x, y)
    assert labels.certify(np.array([2.5, 0.0])).label == 2


def test_labels_an_estimator_doesnt_name_and_doubtful_ones_are_refused():
    with pytest.raises(ModelError, match=r"\b7\b.*classes_.*\[0, 1\]"):
        votes(Estimator([7, 1], [0, 1]), 1)
    with pytest.raises(ModelError, match=r"\[1, 1\]"):
        votes(Estimator([0, 1], [1, 1]), 1)

    class Wide(Estimator):
        def predict(self, batch: np.ndarray) -> np.ndarray:
            return np.zeros((len(batch), 2))

    with pytest.raises(ModelError, match=r"Wide\.predict.*, 2\)"):
        votes(Wide([0, 1], [0, 1]), 1)


def named_points(classes: tuple[str, ...]) -> Dataset:
    """Inputs with x₀ > 0 are of class "yes"."""
    values = np.array([[2.0, 0.0], [-2.0, 0.0], [3.0, 0.0]], dtype=np.float32)
    labels = np.array([classes.index("yes" if x > 0 else "no") for x in values[:, 0]])
    return Dataset("points", values, labels, classes)


@pytest.mark.parametrize("classes", [("no", "yes"), ("yes", "no")])
@pytest.mark.parametrize("kind", ["estimator", "torch", "whole numbers"])
def test_model_and_data_are_matched_by_name(classes, kind, tmp_path):
    model = {
        "estimator": Estimator(["yes", "no"], ["no", "yes"]),
        "torch": TorchClassifier(Signed(1.0), class_names=("yes", "no")),
        "whole numbers": Estimator([classes.index("yes"), classes.index("no")], [1, 0]),  # are labels
    }[kind]
    classifier = SmoothedClassifier(model, sigma=0.5, n=200, seed=0)
    data = named_points(classes)
    run = certify_dataset(classifier, data, tmp_path / "run")
    for told in (run.records.predicted, run.records.base, run.records.label):
        assert list(told) == data.labels.tolist()
    if kind == "whole numbers":
        return
    with pytest.raises(RunError):
        certify_dataset(classifier, named_points(classes[::-1]), tmp_path / "run")


def test_attacks_and_fits_go_by_name_too(tmp_path):
    """With classes mixed up every input would be wrong to begin with, and nothing could be fitted."""
    base = TorchClassifier(Signed(1.0), class_names=("yes", "no"))
    data = named_points(("no", "yes"))
    run = certify_dataset(SmoothedClassifier(base, sigma=0.5, n=500, seed=0), data, tmp_path / "run")
    report = attack_run(run, base, data, [0.25, 6.0], AttackPlan(n=1000, steps=10, copies=4))
    assert [one.broken_at for one in report.inputs] == [6.0] * 3
    plan = FitPlan(
        init=0.5, route="votes", sub_epochs=1, validation=1, votes=32, validation_n0=20, validation_n=200
    )
    fit = fit_into(tmp_path / "fit", base, data, plan)
    assert fit.history[-1].accuracy == 1.0


def test_which_class_is_which():
    for model, data, order in [
        (("0", "1"), ("no", "yes"), None),  # a model without names
        (("no", "yes"), ("0", "1"), None),  # data without names
        (("0", "1", "10", "2"), ("0", "1", "2"), (0, 1, 3, 2)),  # text, in the order of text
        ((7, 9), ("7", "9"), None),
        ((0, 1), ("7", "9"), None),
        ((2, 1, 0), ("a", "b"), (2, 1, 0)),
        ((False, True), ("no", "yes"), None),
        (("a", "b", "c"), ("c", "a"), (2, 0, 1)),
        (("1", "2", "3"), ("0", "1"), DataError),  # label 1: the class "1", or the second?
        (("4", "5"), ("0", "1"), None),
        ((0, 1), ("1", "0"), DataError),  # labels or names?
        ((0, 1), ("a", "b", "c"), DataError),
        (("a", "b"), ("a", "a"), DataError),
        ((1, 2), ("a", "b"), DataError),
    ]:
        base = TorchClassifier(Signed(1.0), class_names=model)
        dataset = Dataset("points", POINTS[:2], np.array([0, 1]), data)
        if order is DataError:
            with pytest.raises(DataError):
                class_order(base, dataset)
        else:
            assert class_order(base, dataset) == order


def test_a_class_the_model_doesnt_know_is_refused(tmp_path):
    classifier = SmoothedClassifier(Estimator(["yes", "no"], ["no", "yes"]), sigma=0.5, n=200, seed=0)
    data = Dataset("points", POINTS[:2], np.array([0, 1]), ("yes", "perhaps"))
    with pytest.raises(DataError, match=r"'perhaps'.*Estimator.*'no', 'yes'"):
        certify_dataset(classifier, data, tmp_path / "run")


# ---------------------------------------------------------------------------------------------------- whole numbers


def test_certificates_of_models_of_whole_numbers_end_where_the_rule_says():
    """f answers 1 where the byte is at least 130: g changes where x + ε, rounded to the grid's quarters, gets there."""

    class Bright(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype == torch.uint8
            bright = (x[:, :1] >= 130).float()
            return torch.cat([1 - bright, bright], 1)

    edge = 129.5 - 1 / 8  # 129.5 is rounded to 130, and from here on to 129.5
    inputs = np.array([[100], [120], [125], [134], [140], [200]], dtype=np.uint8)
    classifier = SmoothedClassifier(
        Bright(), sigma=16.0, n=200_000, seed=0, levels=1, input_dtype="uint8", execution=Execution(workers=1)
    )
    for x, answer in zip(inputs[:, 0].tolist(), classifier.certify(inputs, index=0)):
        assert answer.predicted == int(x > edge)
        assert answer.shift == 0
        assert answer.radius < abs(x - edge)
        if abs(x - edge) < 15:
            assert answer.radius > abs(x - edge) - 0.3, "truncation would move the edge by a half"


# ------------------------------------------------------------------------------------------------ what is asked for


def test_outputs_are_honoured_or_refused_for_every_kind_of_model():
    class Shares(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = 0.9 - 0 * x[:, :1]
            return torch.cat([first, 1 - first], 1)

    def mean_share(outputs: Any) -> float:
        answer = SmoothedClassifier(Shares(), sigma=1.0, n=2000, bound="hoeffding", outputs=outputs).certify(
            np.zeros((1, 2)), index=0
        )[0]
        return answer.bounds.lower

    assert mean_share("probabilities") > 0.8
    assert mean_share("scores") < 0.7  # softmax(.9, .1) = .69
    with pytest.raises(InvalidValueError, match='outputs="labels"'):
        adapt(Shares(), "hard", "labels")
    with pytest.raises(InvalidValueError, match='outputs="scores"'):
        adapt(Estimator([0, 1], [0, 1]), "hard", "scores")
    with pytest.raises(InvalidValueError, match="output='x'"):
        adapt(scores, "hard", output="x")
    with pytest.raises(InvalidValueError, match=r"'scores'.*outputs='labels'"):
        adapt(adapt(scores, "hard"), "hard", "labels")


# -------------------------------------------------------------------------------------------------------------- ONNX


def graph(path: Path, weights: np.ndarray, outputs: list[str], location: str | None = None) -> Path:
    """y = x @ weights for each of the outputs; weights in a file of their own if there is a location."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper = onnx.helper
    tensors, nodes = [], []
    for number, name in enumerate(outputs):
        values = weights if number == 0 else -weights
        tensors.append(onnx.numpy_helper.from_array(values.astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", ["x", f"w{number}"], [name]))
    described = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 2])],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", 2]) for name in outputs],
        tensors,
    )
    model = helper.make_model(described, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if location is not None:
        for tensor in model.graph.initializer:
            content = tensor.raw_data
            (path.parent / Path(location).name).write_bytes(content)
            onnx.external_data_helper.set_external_data(tensor, location, 0, len(content))
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
    path.write_bytes(model.SerializeToString())
    return path


PLUS = np.array([[1.0, -1.0], [0.0, 0.0]])


@pytest.mark.slow
def test_weights_beside_an_onnx_file_are_hashed_and_found_from_anywhere(tmp_path, monkeypatch):
    path = graph(tmp_path / "m.onnx", PLUS, ["scores"], "m.bin")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (elsewhere / "m.bin").write_bytes((-PLUS).astype(np.float32).tobytes())
    first = adapt(path, "hard")
    assert votes(first, 2) == votes(scores, 1)
    (tmp_path / "m.bin").write_bytes((-PLUS).astype(np.float32).tobytes())
    assert votes(first, 2) == votes(scores, 1), "the session is of the bytes that were hashed"
    second = adapt(path, "hard")
    assert second.fingerprint((2,)) != first.fingerprint((2,))
    assert mirrored(votes(second, 1), votes(scores, 1))


@pytest.mark.parametrize("location", ["../m.bin", "/m.bin", "C:\\m.bin", "..\\m.bin", "link.bin", "none.bin"])
def test_weights_outside_the_files_directory_are_refused(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    path = graph(folder / "m.onnx", PLUS, ["scores"], location)
    for file in set(folder.iterdir()) - {path}:
        file.rename(tmp_path / "m.bin")
    if location == "link.bin":
        (folder / "link.bin").symlink_to(tmp_path / "m.bin")
    with pytest.raises(ModelError, match=re.escape(PureWindowsPath(location).name)):
        adapt(path, "hard")


@pytest.mark.slow
def test_one_of_several_outputs_must_be_chosen(tmp_path):
    path = graph(tmp_path / "m.onnx", PLUS, ["embedding", "scores"])
    with pytest.raises(ModelError, match=r"embedding, scores.*--model-output"):
        adapt(path, "hard")
    assert votes(adapt(path, "hard", output="embedding"), 1) == votes(scores, 1)
    chosen = adapt(path, "hard", output="scores")
    assert mirrored(votes(chosen, 1), votes(scores, 1))
    assert chosen.fingerprint((2,)) != adapt(path, "hard", output="embedding").fingerprint((2,))
    with pytest.raises(InvalidValueError, match=r"'score'.*scores"):
        adapt(path, "hard", output="score")
    with pytest.raises(InvalidValueError, match='outputs="labels"'):
        adapt(path, "hard", "labels", output="scores")


@pytest.mark.parametrize("first", [0.5, 2.0])  # when it is probed, or in the midst of voting
def test_a_model_that_exits_has_failed(first):
    """sys.exit(0) would end `certify` with nothing said, and a batch queue would take the job for done."""

    def leaving(batch: np.ndarray) -> np.ndarray:
        if ((batch > first) & (batch < 2.5)).any():
            raise SystemExit(0)
        return np.stack([batch[:, 0], -batch[:, 0]], 1)

    with pytest.raises(ModelError, match="SystemExit: 0"):
        SmoothedClassifier(leaving, sigma=0.5, n=100, seed=0).certify(np.full(2, 2.25))


class AsArray:
    """What becomes a masked array when NumPy asks for one."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return len(self.held)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.held


class Unsure:
    """Says nothing near the edge."""

    classes_ = np.array([0, 1])

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        self.wrap = wrap

    def predict(self, rows: np.ndarray) -> Any:
        return self.wrap(np.ma.masked_array((rows[:, 0] > 0).astype(int), mask=np.abs(rows[:, 0]) < 0.5))


@pytest.mark.parametrize("wrap", [lambda rows: rows, list, tuple, deque, AsArray])
def test_masked_answers_are_no_votes(wrap):
    """NumPy unmasks them without a word, and what was masked would win."""

    def hiding(batch: np.ndarray) -> Any:
        return wrap(np.ma.masked_greater(np.stack([batch[:, 0], -batch[:, 0]], 1), 0.5))

    for model in (hiding, Unsure(wrap)):
        with pytest.raises(ModelError, match=r"hiding|Unsure"):
            SmoothedClassifier(model, sigma=0.5, n=100, seed=0).certify(np.zeros(2))
    smoothed = SmoothedClassifier(scores, sigma=0.5, n=100, seed=0)
    with pytest.raises(InvalidValueError):
        smoothed.certify(wrap(np.ma.masked_greater(np.eye(2), 0.5)))
    assert len(smoothed.certify(wrap(np.eye(2)))) == 2


# ------------------------------------------------------------------------------------------------------------ routes


def network(channels: int, side: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(channels * side * side, 3),
    ).eval()


class Clamped(nn.Module):
    """Clamps tensors, and not what a tracer may pass in their place."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.body, self.low, self.high = network(8, 8), low, high

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x.clamp(self.low, self.high) if isinstance(x, torch.Tensor) else x)


def clamped_by_a_hook(low: float, high: float) -> nn.Module:
    module = network(8, 8)
    module.register_forward_pre_hook(lambda _module, inputs: (inputs[0].clamp(low, high),))
    return module


@pytest.mark.parametrize("make", [Clamped, clamped_by_a_hook])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-50.0, 50.0), (-np.inf, 5000.0)])
def test_a_route_loses_no_limit_that_probes_between_0_and_1_keep(make, low, high):
    """Folding traced a network: what a tracer doesn't see was missing from the function that was certified."""
    size = min(high, 1e4)

    def counts(route: str) -> tuple[int, ...]:
        numerics = Numerics(route=route, chunk=64, block=64)
        classifier = SmoothedClassifier(make(low, high), sigma=size, n=500, seed=0, numerics=numerics)
        return classifier.certify(np.full((1, 8, 8), size / 2), index=0).estimation.counts

    assert counts("auto") == counts("folded") == counts("channels-last")


def test_hooks_that_look_at_values_are_not_exported_unasked():
    """The exporter would write down the branch that its own rows took."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")

    def network_of(hook: bool) -> nn.Module:
        module = network(32, 64)  # large enough to be exported
        if hook:
            module[0].register_forward_hook(lambda _m, _i, out: -out if float(out.max()) > 1e6 else out)
        return module

    def route_of(hook: bool) -> str:
        return adapt(network_of(hook), "hard").prepare(Numerics(chunk=8, block=8), (1, 64, 64)).numerics.route

    assert route_of(False) == "onnxruntime"
    assert route_of(True) == "channels-last"
