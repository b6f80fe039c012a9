"""Adapters: one per make of model, and the function that picks one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import nn

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError, check_count
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sampling.models.base import BaseClassifier
from smoothcert.sampling.models.class_names import class_order, labelled_for
from smoothcert.sampling.models.declared import as_stated
from smoothcert.sampling.models.function import EstimatorClassifier, FunctionClassifier, is_estimator
from smoothcert.sampling.models.onnx_file import OnnxClassifier
from smoothcert.sampling.models.prepared import Prepared
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
    input_dtype: str | None = None,
    constants: Mapping[str, ArrayLike] | None = None,
) -> BaseClassifier:
    """Wrap a torch module, an ``.onnx`` path, a scikit-learn classifier or any function of a batch.

    ``outputs`` says what the model returns; ``classes`` how many classes there are, where a function returns labels, or
    where one number a row tells two apart (``classes=2``, and ``outputs``); ``output`` which of several outputs of a
    module or an ONNX file votes. ``input_dtype`` ("uint8") is for models that take whole numbers, ``constants`` for the
    inputs of an ONNX file that aren't smoothed. ``thread_safe``: whether several threads may evaluate the model at
    once, each with a copy of a torch module; by default torch modules and ONNX files, not functions and estimators.
    What a make of model has no use for is refused.
    """
    output = None if output is None else str(output)
    if classes is not None:
        check_count("classes", classes, least=2)
    if not isinstance(model, str | Path):
        _refuse(type(model).__name__, "only ONNX files have inputs by name", constants=constants)
    base: BaseClassifier
    if isinstance(model, BaseClassifier):
        _refuse(
            model.name,
            "an adapted model says all of this itself",
            output=output,
            thread_safe=thread_safe,
            classes=classes,
            input_dtype=input_dtype,
        )
        if outputs not in (None, model.kind):
            raise InvalidValueError(
                f"{model.name} was adapted for outputs={model.kind!r}, got outputs={outputs!r}"
            )
        return model
    if isinstance(model, (str, Path)):
        if Path(model).suffix != ".onnx":
            raise InvalidValueError(
                f"a model given by path must be an .onnx file, got {str(model)!r}: load others yourself (torch.load, "
                "torch.jit.load, joblib.load) and give what comes back"
            )
        _refuse(str(model), "the file itself says what it takes", input_dtype=input_dtype)
        base = OnnxClassifier(Path(model), outputs, output, thread_safe, classes=classes, constants=constants)
    elif isinstance(model, nn.Module):
        base = TorchClassifier(
            model,
            outputs=outputs,
            thread_safe=thread_safe,
            output=output,
            classes=classes,
            input_dtype=input_dtype,
        )
    elif is_estimator(model):
        _refuse(type(model).__name__, "a fitted classifier knows its classes", output=output, classes=classes)
        base = EstimatorClassifier(model, votes, outputs, thread_safe, input_dtype=input_dtype)
    elif callable(model):
        _refuse("a function", "return the scores alone", output=output)
        name = str(getattr(model, "__qualname__", type(model).__name__))
        if isinstance(model, torch.jit.ScriptFunction):
            scripted: Any = model
            model, name = (lambda batch: scripted(torch.from_numpy(batch))), scripted.name
        base = FunctionClassifier(
            model, outputs, classes, name, thread_safe=thread_safe, input_dtype=input_dtype
        )
    elif hasattr(model, "predict"):
        raise InvalidValueError(
            f"can't use a {type(model).__name__} as a model: it has no classes_, so it isn't fitted, or no classifier "
            "by scikit-learn's conventions. Fit it, or give its predict as a function, with what that returns "
            '(outputs="probabilities", or outputs="labels" and classes=)'
        )
    else:
        raise InvalidValueError(
            f"can't use a {type(model).__name__} as a model: need a torch module, an .onnx path, a fitted "
            "scikit-learn classifier or a function from a batch to labels, scores or probabilities"
        )
    base.declared = as_stated(
        constants, outputs=outputs, classes=classes, output=output, input_dtype=input_dtype
    )
    return base


def _refuse(name: str, reason: str, **given: object) -> None:
    """Refuse what would be ignored."""
    for option, value in given.items():
        if value is not None:
            raise InvalidValueError(f"{option}={value!r} has no meaning for {name}: {reason}; leave it out")
