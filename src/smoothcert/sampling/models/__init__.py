"""Adapters: one per make of model, and the function that picks one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sampling.models.base import BaseClassifier, Prepared
from smoothcert.sampling.models.class_names import class_order, labelled_for
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
    "class_order",
    "labelled_for",
]


def adapt(
    model: Any,
    votes: VoteKind,
    outputs: OutputKind | None = None,
    classes: int | None = None,
    *,
    output: str | None = None,
    thread_safe: bool | None = None,
) -> BaseClassifier:
    """Wrap a torch module, an ``.onnx`` path, a scikit-learn classifier or any function of a batch.

    ``outputs`` says what the model returns, ``classes`` how many classes a function that returns labels has,
    ``output`` which output of an ONNX file votes. ``thread_safe``: whether several threads may evaluate the model at
    once, each with a copy of a torch module; by default torch modules and ONNX files, not functions and estimators.
    What a make of model has no use for is refused.
    """
    if isinstance(model, BaseClassifier):
        _refuse(model.name, "an adapted model says all of this itself", output, thread_safe, classes)
        if outputs not in (None, model.kind):
            raise InvalidValueError(
                f"{model.name} was adapted for outputs={model.kind!r}, got outputs={outputs!r}"
            )
        return model
    if isinstance(model, (str, Path)):
        if Path(model).suffix != ".onnx":
            raise InvalidValueError(f"a model given by path must be an .onnx file, got {str(model)!r}")
        _refuse(str(model), "the file itself says how many there are", classes=classes)
        return OnnxClassifier(Path(model), outputs, output, thread_safe)
    if isinstance(model, nn.Module):
        _refuse(
            type(model).__name__, "it has one output and as many classes as that has", output, classes=classes
        )
        return TorchClassifier(model, outputs=outputs, thread_safe=thread_safe)
    if is_estimator(model):
        _refuse(type(model).__name__, "a fitted classifier knows its classes", output, classes=classes)
        return EstimatorClassifier(model, votes, outputs, thread_safe)
    if callable(model):
        _refuse("a function", "return the scores alone", output)
        return FunctionClassifier(model, outputs or "scores", classes, thread_safe=thread_safe)
    raise InvalidValueError(
        f"can't use a {type(model).__name__} as a model: need a torch module, an .onnx path, a fitted "
        "scikit-learn classifier or a function from a batch to labels, scores or probabilities"
    )


def _refuse(
    name: str,
    reason: str,
    output: str | None = None,
    thread_safe: bool | None = None,
    classes: int | None = None,
) -> None:
    """Refuse what would be ignored."""
    given = {"output": output, "thread_safe": thread_safe, "classes": classes}
    for option, value in given.items():
        if value is not None:
            raise InvalidValueError(f"{option}={value!r} has no meaning for {name}: {reason}; leave it out")
