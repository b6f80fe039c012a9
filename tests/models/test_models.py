"""Adapters: every make of model votes, and misfits are refused with a reason."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.masked import masked_tensor

from smoothcert import SmoothedClassifier
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.models.onnx_file import OnnxClassifier

WEIGHTS = np.array([[1.0, -1.0, 0.5], [0.0, 2.0, -1.0]], dtype=np.float32)


def scores(batch: np.ndarray) -> np.ndarray:
    return batch @ WEIGHTS


def linear() -> nn.Linear:
    module = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(WEIGHTS.T))
    return module


def exported(path: Path) -> Path:
    names = {"input_names": ["x"], "output_names": ["scores"]}
    axes = {"x": {0: "rows"}, "scores": {0: "rows"}}
    torch.onnx.export(linear(), (torch.zeros(4, 2),), str(path), dynamo=False, dynamic_axes=axes, **names)
    return path


def counts(model: Any, **options: Any) -> tuple[int, ...]:
    classifier = SmoothedClassifier(
        model, sigma=1.0, n=5000, seed=0, numerics=Numerics(chunk=64, block=64), **options
    )
    return classifier.certify(np.array([[0.3, 0.1]], dtype=np.float32), index=1)[0].estimation.counts


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_make_of_one_function_gives_the_same_votes(tmp_path):
    pytest.importorskip("onnxruntime")
    expected = counts(linear())
    assert counts(scores) == expected
    assert counts(lambda b: scores(b).argmax(1), outputs="labels", classes=3) == expected
    assert counts(lambda b: torch.from_numpy(scores(b))) == expected
    assert counts(str(exported(tmp_path / "m.onnx"))) == expected


def test_sklearn_classifiers_vote_with_their_own_predict():
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = np.random.default_rng(0).normal(size=(200, 2))
    estimator = linear_model.LogisticRegression().fit(x, np.where(x[:, 0] > 0, "yes", "no"))
    hard, soft = (
        SmoothedClassifier(estimator, sigma=0.5, n=2000, seed=0, bound=bound).certify(np.array([1.0, 0.0]))
        for bound in ("auto", "hoeffding")
    )
    assert estimator.classes_[hard.predicted] == "yes"  # type: ignore[union-attr]
    assert soft.radius > 0  # type: ignore[union-attr]


def test_a_torch_module_is_copied_not_changed():
    module = nn.Sequential(nn.Linear(2, 3), nn.Dropout()).train()
    SmoothedClassifier(module, sigma=1.0, n=100, seed=0).certify(np.zeros(2))
    assert module.training
    assert all(p.requires_grad for p in module.parameters())


def test_fingerprints_change_with_the_function():
    module = linear()
    before = adapt(module, "hard").fingerprint((2,))
    assert adapt(linear(), "hard").fingerprint((2,)) == before
    with torch.no_grad():
        module.weight[0, 0] += 1e-6
    assert adapt(module, "hard").fingerprint((2,)) != before

    def function_print(function: Any) -> str:
        base = adapt(function, "hard")
        base.name = "same"
        return base.fingerprint((2,))

    assert function_print(scores) == function_print(lambda b: scores(b))
    assert function_print(scores) != function_print(lambda b: -scores(b))


class Centering(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


def test_misfits_are_refused():
    for model, options, message in [
        (Centering(), {}, "Centering"),
        (nn.Linear(5, 3), {}, r"Linear.*\(1, 2\).*RuntimeError"),
        (lambda b: 1 / 0, {}, "ZeroDivisionError"),
        (lambda b: scores(b)[:3], {}, r"\(3, 3\).*\b1024\b"),
        (lambda b: scores(b)[:, :1], {}, "lambda.*classes=2"),
        (scores, {"classes": 7}, r"\b3\b.*classes=7"),
        (nn.Linear(2, 1), {}, "Linear.*classes=2"),
    ]:
        with pytest.raises(ModelError, match=message):
            SmoothedClassifier(model, sigma=1.0, n=100, **options).certify(np.zeros(2))


class Halves(nn.Module):
    """Two scores a row, in one of the tensors that aren't plain arrays."""

    def __init__(self, form: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.form(torch.cat([x[:, :1], -x[:, :1]], 1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("form", "called"),
    [
        (lambda scores: masked_tensor(scores, scores > -1), "masked"),
        (torch.Tensor.to_sparse, "sparse_coo"),
        (torch.Tensor.to_sparse_csr, "sparse_csr"),
        (torch.Tensor.to_mkldnn, "mkldnn"),
        (lambda scores: torch.quantize_per_tensor(scores, 0.1, 0, torch.qint8), "quantized"),
        (lambda scores: torch.nested.as_nested_tensor(list(scores)), "nested"),
        (lambda scores: torch.nested.as_nested_tensor(list(scores), layout=torch.jagged), "nested"),
    ],
)
def test_answers_that_are_no_plain_arrays_are_refused(form, called):
    with pytest.raises(ModelError, match=rf"\b{called}\b.*to_dense"):
        adapt(Halves(form), "hard").prepare(Numerics(), (2,))


def test_answers_without_numbers_are_refused_and_layers_inside_may_be_sparse():
    with pytest.raises(ModelError, match=r"\bmeta\b"):
        adapt(Halves(lambda scores: scores.to("meta")), "hard").prepare(Numerics(), (2,))

    class Dense(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to_dense()

    inside = nn.Sequential(Halves(torch.Tensor.to_sparse), Dense())
    assert adapt(inside, "hard").prepare(Numerics(), (2,)).classes == 2


def test_a_sort_of_model_nobody_knows_is_refused():
    class Booster:
        def predict(self, batch: np.ndarray) -> np.ndarray:
            return np.stack([batch[:, 0], 1 - batch[:, 0]], 1)

    for model, message in (
        (Booster(), r"Booster.*classes_.*\bpredict\b"),
        ("model.pt", r"\.onnx.*'model\.pt'.*torch\.load"),
        (3, r"\bint\b.*\.onnx"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            adapt(model, "hard")
    with pytest.raises(InvalidValueError, match="classes="):
        adapt(scores, "hard", "labels")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_bad_onnx_files_are_refused(tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "m.onnx"
    with pytest.raises(ModelError, match=re.escape(str(path))):
        OnnxClassifier(path)
    exported(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ModelError, match=r"m\.onnx"):
        OnnxClassifier(path)
    exported(path)
    with pytest.raises(ModelError, match=r"m\.onnx.*\(2,\).*\(3,\)"):
        SmoothedClassifier(path, sigma=1.0).prepare((3,))


def test_a_double_precision_module_keeps_its_digits():
    module = nn.Linear(2, 3).double()
    base = adapt(module, "hard")
    before = base.fingerprint((2,))
    base.prepare(Numerics(dtype="float64"), (2,))
    base.prepare(Numerics(dtype="float32"), (2,))
    assert base.fingerprint((2,)) == before


def test_large_inputs_get_small_passes():
    for size, chunk in ((4, 1024), (100_000, 8)):
        for model in (lambda batch: batch[:, :3], nn.Linear(size, 3)):
            assert adapt(model, "hard").prepare(Numerics(), (size,)).numerics.chunk == chunk
