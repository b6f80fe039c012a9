"""Adapters: one per make of model, and the function that picks one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sampling.models.base import BaseClassifier, Prepared
from smoothcert.sampling.models.function import EstimatorClassifier, FunctionClassifier, is_estimator
from smoothcert.sampling.models.onnx_file import OnnxClassifier
from smoothcert.sampling.models.torch_module import TorchClassifier

__all__ = [
    "BaseClassifier",
    "EstimatorClassifier",
    "FunctionClassifier",
    "OnnxClassifier",
    "Prepared",
    "TorchClassifier",
    "adapt",
]


def adapt(
    model: Any, votes: VoteKind, outputs: OutputKind | None = None, classes: int | None = None
) -> BaseClassifier:
    """Wrap a torch module, an ``.onnx`` path, a scikit-learn classifier or any function of a batch."""
    if isinstance(model, BaseClassifier):
        return model
    if isinstance(model, nn.Module):
        return TorchClassifier(model)
    if isinstance(model, (str, Path)):
        if Path(model).suffix != ".onnx":
            raise InvalidValueError(f"a model given by path must be an .onnx file, got {str(model)!r}")
        return OnnxClassifier(Path(model), probabilities=outputs == "probabilities")
    if is_estimator(model):
        return EstimatorClassifier(model, soft=votes == "soft")
    if callable(model):
        return FunctionClassifier(model, outputs or "scores", classes)
    raise InvalidValueError(
        f"can't use a {type(model).__name__} as a model: need a torch module, an .onnx path, a fitted "
        "scikit-learn classifier or a function from a batch to labels, scores or probabilities"
    )
