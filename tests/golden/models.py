"""Models, inputs and data whose arithmetic is exact on every processor.

Inputs are multiples of 1/16 and noise has steps of 1/256 (or finer, for smaller σ), weights are small whole numbers,
and no sum exceeds 2²⁴ steps. Then no addition rounds, in any order of summation, and float32 kernels agree to the last
bit. Kernels are 2×2 with stride 2: Winograd's algorithm, which divides by 6, applies to 3×3 with stride 1.

Softmax is not exact in general. The logits here are 0 or −512, so that probabilities are 1/k and 0; other models return
probabilities that are multiples of 1/8.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import nn

import smoothcert

LEVELS = 256
"""Inputs are multiples of 1/256 for a plan: its grid has steps of 1/256 where σ ≥ ¼."""
CLASSES = 3

_PIXEL = np.arange(36).reshape(6, 6)
IMAGES = np.stack([((_PIXEL * (i + 2) + 3 * i) % 17)[None] / 16 for i in range(6)]).astype(np.float32)
"""Six pictures of 1 × 6 × 6."""

POINTS = (
    np.array(
        [
            [16, 0, 4, 1, 0],
            [-16, 8, 4, 0, 1],
            [5, -3, 2, 1, 1],
            [-4, 2, 12, 0, 0],
            [0, 1, -1, 1, 0],
            [24, 24, 8, 0, 1],
        ],
        dtype=np.float32,
    )
    / 16
)
"""Six points of five features, near to and far from the borders of the classes."""


def _whole(shape: tuple[int, ...], step: int) -> torch.Tensor:
    """Weights −2 … 2 in a fixed pattern."""
    numbers = torch.arange(int(np.prod(shape)), dtype=torch.float32)
    return (numbers * step % 5 - 2).reshape(shape)


class ExactNet(nn.Module):
    """Convolution, batch norm (a factor of exactly ½), ReLU, linear: three classes."""

    def __init__(self, size: int = 6, classes: int = CLASSES) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 2, stride=2)
        self.norm = nn.BatchNorm2d(4, eps=2.0**-10)
        self.head = nn.Linear(4 * (size // 2) ** 2, classes)
        with torch.no_grad():
            self.conv.weight.copy_(_whole((4, 1, 2, 2), 3))
            self.conv.bias.copy_(_whole((4,), 2))
            self.norm.running_var.fill_(4 - 2.0**-10)
            self.norm.running_mean.copy_(_whole((4,), 1))
            self.head.weight.copy_(_whole(tuple(self.head.weight.shape), 7))
            self.head.bias.copy_(torch.arange(classes) - 2.0)
        self.eval()

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(x)


class SureNet(ExactNet):
    """Logits 0 for the best class and for those within 4 of it, −512 for others: softmax is exactly 1/k and 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.scores(x)
        return torch.where(scores >= scores.amax(1, keepdim=True) - 4, 0.0, -512.0)


class DyadicNet(ExactNet):
    """Probabilities that are multiples of 1/8, by the distance between the first two scores."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.scores(x)
        first = torch.clamp(torch.floor(scores[:, 0] - scores[:, 1]) + 4, 0, 6) / 8
        return torch.stack([first, 0.75 - first, torch.full_like(first, 0.25)], 1)


def labels_of(batch: np.ndarray) -> np.ndarray:
    """The class of points, by the signs of two sums of features."""
    first = batch[:, 0] + 2 * batch[:, 1] - batch[:, 2] + batch[:, 3] > 0
    second = batch[:, 0] - batch[:, 2] + batch[:, 4] > 0.5
    return np.where(first, np.where(second, 2, 1), 0).astype(np.int64)


def thresholds(batch: np.ndarray) -> np.ndarray:
    """The same as scores: 1 for the class, 0 for others."""
    return np.eye(CLASSES)[labels_of(batch)]


def dyadic(batch: np.ndarray) -> np.ndarray:
    """Probabilities of points, multiples of 1/8."""
    first = np.clip(np.floor(2 * batch[:, 0].astype(np.float64) + batch[:, 1]) + 3, 0, 7) / 8
    return np.stack([first, 1 - first], 1)


LARGE = np.stack([np.arange(900).reshape(1, 30, 30) % 16 / 16, np.full((1, 30, 30), 0.5)]).astype(np.float32)
"""Two pictures of 1 × 30 × 30: a pass is not a whole number of the pieces in which the sampler draws."""


def halves(batch: np.ndarray) -> np.ndarray:
    """Probabilities, multiples of 1/8, by the sums of the upper and the lower half of a picture."""
    flat = batch.reshape(len(batch), 2, -1).astype(np.float64).sum(2)
    first = np.clip(np.floor((flat[:, 0] - flat[:, 1] + 5) / 4) + 4, 0, 8) / 8
    return np.stack([first, 1 - first], 1)


def by_second_feature(batch: np.ndarray) -> np.ndarray:
    """A chooser of three σ levels: scores by the second feature, below −½, up to ½ and above."""
    return np.eye(3)[np.searchsorted([-0.5, 0.5], batch[:, 1])]


@cache
def digit_weights() -> tuple[np.ndarray, np.ndarray]:
    """Weights and biases of a classifier of digits (1 × 8 × 8): the nearest mean digit, in whole sixteenths."""
    from smoothcert.datasets import load

    data = load("digits", "train")
    pixels = np.rint(data.inputs(slice(None)).reshape(len(data), -1) * 16).astype(np.int64)
    means = np.stack([pixels[data.labels == c].sum(0) // np.sum(data.labels == c) for c in range(10)], 1)
    return means.astype(np.float64), -(means * means).sum(0) / 32


def digit_scores(batch: np.ndarray) -> np.ndarray:
    """Scores of digits."""
    weights, biases = digit_weights()
    return batch.reshape(len(batch), -1).astype(np.float64) @ weights + biases


def digit_probabilities(batch: np.ndarray) -> np.ndarray:
    """Probabilities of digits: ⅝ for the best class, ¼ for the second, ⅛ for the third."""
    order = np.argsort(-digit_scores(batch), axis=1, kind="stable")
    probabilities = np.zeros(order.shape)
    np.put_along_axis(probabilities, order[:, :3], np.array([[0.625, 0.25, 0.125]]), axis=1)
    return probabilities


def digit_net() -> nn.Module:
    """The same scores from a torch module."""
    weights, biases = digit_weights()
    linear = nn.Linear(64, 10)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weights.T))
        linear.bias.copy_(torch.from_numpy(biases))
    return nn.Sequential(nn.Flatten(), linear).eval()


def __getattr__(name: str) -> nn.Module:
    """``DIGIT_NET``, for the command line; made when it is asked for."""
    if name != "DIGIT_NET":
        raise AttributeError(name)
    return digit_net()


class ThresholdEstimator(ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier that learns nothing but the names of its classes."""

    def fit(self, X: Any, y: Any) -> ThresholdEstimator:
        self.classes_ = np.unique(y)
        self.n_features_in_ = np.shape(X)[1]
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.eye(len(self.classes_))[labels_of(np.asarray(X, dtype=np.float64))]

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.classes_[labels_of(np.asarray(X, dtype=np.float64))])


class ByKind:
    """A model of tables: which of three columns decides depends on a fourth, which holds categories."""

    classes_ = np.array(["no", "yes"])
    feature_names_in_ = np.array(["a", "b", "c", "kind"], dtype=object)
    n_features_in_ = 4

    def predict(self, table: Any) -> np.ndarray:
        above = np.where(table["kind"].astype(object) == "x", table["a"] > table["b"], table["c"] > 0.25)
        return np.asarray(self.classes_[above.astype(int)])


def save_onnx(path: Path) -> Path:
    """A linear ONNX model of points with whole weights."""
    weights = np.array([[2, -1, 0], [1, 1, -3], [0, -2, 2], [-1, 0, 1], [1, 2, -1]])
    return _save_linear(path, (5,), weights, np.array([0.0, -0.5, 0.25]))


def save_digit_onnx(path: Path) -> Path:
    """The scores of digits as an ONNX file."""
    return _save_linear(path, (1, 8, 8), *digit_weights())


def _save_linear(path: Path, shape: tuple[int, ...], weights: np.ndarray, biases: np.ndarray) -> Path:
    from onnx import TensorProto, helper, save

    number = TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["flat"], axis=1),
            helper.make_node("MatMul", ["flat", "weights"], ["sums"]),
            helper.make_node("Add", ["sums", "biases"], ["scores"]),
        ],
        "exact",
        [helper.make_tensor_value_info("x", number, ["rows", *shape])],
        [helper.make_tensor_value_info("scores", number, ["rows", len(biases)])],
        [
            helper.make_tensor("weights", number, weights.shape, weights.ravel().tolist()),
            helper.make_tensor("biases", number, biases.shape, biases.tolist()),
        ],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def points_dataset() -> smoothcert.Dataset:
    """The points with labels, one of which the model gets wrong, twice over with small changes."""
    inputs = np.concatenate([POINTS, POINTS + np.float32(1 / 8)])
    labels = labels_of(inputs)
    labels[3] = (labels[3] + 1) % CLASSES
    return smoothcert.Dataset("golden-points", inputs, labels, ("a", "b", "c"))


def images_dataset() -> smoothcert.Dataset:
    """The pictures as whole numbers 0 … 16."""
    with torch.inference_mode():
        labels = ExactNet()(torch.from_numpy(IMAGES)).argmax(1).numpy()
    return smoothcert.Dataset(
        "golden-images", np.rint(IMAGES * 16).astype(np.uint8), labels, ("a", "b", "c"), 1 / 16
    )
