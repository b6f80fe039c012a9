"""Adapting a model of any make: what was declared of it, and which of its classes is which of a data set."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from smoothcert.bounds.base import VoteKind
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, InvalidValueError, check_count
from smoothcert.models.base import BaseClassifier
from smoothcert.models.function import EstimatorClassifier, FunctionClassifier, is_estimator
from smoothcert.models.onnx_file import OnnxClassifier
from smoothcert.models.outputs import OutputKind
from smoothcert.models.torch_module import TorchClassifier

TAKEN_OVER = {"outputs": str, "output": str, "classes": int, "input_dtype": str}
"""Declarations that may be taken over from a run when its model is loaded: none of them opens anything."""


def as_stated(constants: Mapping[str, ArrayLike] | None = None, **declared: Any) -> dict[str, Any]:
    """Those that were made, as plain values; of constants a hash."""
    stated = {name: value for name, value in declared.items() if value is not None}
    if constants is not None:
        stated["constants"] = {name: _hash(value) for name, value in sorted(constants.items())}
    return stated


def taken_over(stated: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a run of any origin states of those that weren't ``given``; what can't be one is left out."""
    found = stated if isinstance(stated, dict) else {}
    return {
        name: found[name]
        for name, kind in TAKEN_OVER.items()
        if given.get(name) is None and type(found.get(name)) is kind
    }


def difference(stated: object, declared: Mapping[str, Any]) -> str:
    """How a run's declaration differs from another, as the end of a sentence; empty if it doesn't, or states none."""
    if not isinstance(stated, dict) or stated == declared:
        return ""
    return f" (the run declares {_fields(stated)}; here it is {_fields(declared)})"


def _hash(value: ArrayLike) -> str:
    array = np.ascontiguousarray(value)
    return hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes()).hexdigest()


def _fields(declared: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{name}={str(value)[:40]}" for name, value in sorted(declared.items()))
    return shown or "nothing"


def class_order(base: BaseClassifier, dataset: Dataset) -> tuple[int, ...] | None:
    """The model's number for every label of the data, then its other classes; None if they are numbered alike.

    Names are compared as text. A model whose names are whole numbers was taught labels, not names: its class 3 is
    label 3, wherever it stands among its classes. A class that the model doesn't know is refused. Where one side has no
    names, or only 0, 1, 2, …, numbers are all there is.
    """
    names, classes = base.class_names, dataset.classes
    if names is None:
        return None
    if len(classes) > len(names):
        raise DataError(f"{dataset.name} has {len(classes)} classes, {base.name} only {len(names)}")
    values = [_whole(name) for name in names]
    if None in values:
        found = _matched([str(name) for name in names], classes)
        if found is None and (_unnamed(names) or _unnamed(classes)):
            _check_spelling(base, dataset)
            return None
    else:
        found = _matched(values, range(len(classes)))
        by_name = _matched([str(value) for value in values], classes)
        if found is not None and by_name is not None and found != by_name:
            raise DataError(
                f"{dataset.name} names its classes {', '.join(classes[:5])}, and {base.name} {_shown(names)}: labels "
                "and names are both numbers and don't agree; name the classes in words"
            )
        found = found or by_name
    if found is None:
        known = {str(name) for name in names}
        unknown = [name for name in classes if name not in known] or list(classes)
        raise DataError(
            f"{dataset.name} has the class {', '.join(map(repr, unknown[:5]))}, but {base.name} knows {_shown(names)}: "
            "they don't belong together"
        )
    order = (*found, *(place for place in range(len(names)) if place not in found))
    return None if order == tuple(range(len(order))) else order


def _check_spelling(base: BaseClassifier, dataset: Dataset) -> None:
    """Refuse names that spell other numbers than their own where labels are numbers alone."""
    names = [str(name) for name in base.class_names or ()]
    for place, name in enumerate(names):
        if name not in map(str, range(len(dataset.classes))) or int(name) == place:
            continue
        raise DataError(
            f"{dataset.name} has numbers for labels, and {base.name} knows {_shown(names)}: label {name} may be the "
            f"class {name!r}, or the one with that number, {names[int(name)]!r}. Name the classes of the data"
        )


def _matched(names: Sequence[Any], wanted: Iterable[Any]) -> tuple[int, ...] | None:
    """The place of each that is wanted, if each has one of its own."""
    places = {name: place for place, name in enumerate(names)}
    found = tuple(places.get(name, -1) for name in wanted)
    return found if -1 not in found and len(set(found)) == len(found) else None


def _unnamed(names: Sequence[Any]) -> bool:
    return list(names) == [str(number) for number in range(len(names))]


def labelled_for(base: BaseClassifier, dataset: Dataset) -> Dataset:
    """The same inputs with the model's own numbers for their labels."""
    order = class_order(base, dataset)
    if order is None:
        return dataset
    assert base.class_names is not None
    names = tuple(str(name) for name in base.class_names)
    return replace(dataset, labels=np.array(order, dtype=np.int64)[dataset.labels], classes=names)


def _whole(name: Any) -> int | None:
    """The whole number that a label is; text is a name, whatever it spells."""
    try:
        return int(name) if not isinstance(name, str) and int(name) == name else None
    except (TypeError, ValueError, OverflowError):
        return None


def _shown(names: Sequence[Any]) -> str:
    return ", ".join(repr(str(name)) for name in names[:8]) + (", …" if len(names) > 8 else "")


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
    retries: int | None = None,
) -> BaseClassifier:
    """Wrap a torch module, an ``.onnx`` path, a scikit-learn classifier or any function of a batch.

    The options are those of :class:`~smoothcert.smoothing.classifier.SmoothedClassifier`. Options that do not apply to
    a model type are rejected.
    """
    output = None if output is None else str(output)
    if classes is not None:
        check_count("classes", classes, least=2)
    if not isinstance(model, str | Path):
        _refuse(type(model).__name__, "only ONNX files have inputs by name", constants=constants)
    if isinstance(model, str | Path | nn.Module | BaseClassifier) or is_estimator(model):
        _refuse(
            str(getattr(model, "name", type(model).__name__)),
            "only calls of a function are repeated",
            retries=retries,
        )
    base: BaseClassifier
    if isinstance(model, BaseClassifier):
        given = {"output": output, "thread_safe": thread_safe, "classes": classes, "input_dtype": input_dtype}
        _refuse(model.name, "an adapted model says all of this itself", **given)
        if outputs not in (None, model.kind):
            raise InvalidValueError(f"{model.name} was adapted for {model.kind!r}, got outputs={outputs!r}")
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
            model, None, outputs, None, thread_safe, output=output, classes=classes, input_dtype=input_dtype
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
            model,
            outputs,
            classes,
            name,
            thread_safe=thread_safe,
            input_dtype=input_dtype,
            retries=retries or 0,
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
    for option, value in given.items():
        if value is not None:
            raise InvalidValueError(f"{option}={value!r} has no meaning for {name}: {reason}; leave it out")
