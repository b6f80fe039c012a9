"""Which class of a model is which class of a data set, where both name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError
from smoothcert.sampling.models.base import BaseClassifier


def class_order(base: BaseClassifier, dataset: Dataset) -> tuple[int, ...] | None:
    """The model's number for every label of the data, then its other classes; None if they are numbered alike.

    Names are compared as text. A model whose names are whole numbers was taught labels, not names: its class 3 is
    label 3, wherever it stands among its classes. A class that the model doesn't know is refused. Where one side has no
    names, numbers are all there is.
    """
    if base.class_names is None:
        return None
    if len(dataset.classes) > len(base.class_names):
        raise DataError(
            f"{dataset.name} has {len(dataset.classes)} classes but {base.name} knows {len(base.class_names)}: they "
            "don't belong together"
        )
    values, numbered = [_whole(name) for name in base.class_names], [_whole(name) for name in dataset.classes]
    if None not in values:
        # Names of the data that are numbers too are compared as such; other names say nothing about numbers.
        wanted: Sequence[Any] = numbered if None not in numbered else range(len(dataset.classes))
        places = {value: place for place, value in enumerate(values)}
    elif numbered == list(range(len(dataset.classes))):
        return None
    else:
        wanted = dataset.classes
        places = {str(name): place for place, name in enumerate(base.class_names)}  # type: ignore[misc]
    unknown = [name for name, value in zip(dataset.classes, wanted) if value not in places]
    if unknown:
        raise DataError(
            f"{dataset.name} has the class {', '.join(map(repr, unknown[:5]))}, but {base.name} knows "
            f"{_shown(base.class_names)}: they don't belong together"
        )
    known = [places[value] for value in wanted]
    if len(set(known)) < len(known):
        raise DataError(
            f"{dataset.name} names a class twice: {', '.join(dataset.classes)}; give each a name of its own"
        )
    order = (*known, *(place for place in range(len(base.class_names)) if place not in known))
    return None if order == tuple(range(len(order))) else order


def labelled_for(base: BaseClassifier, dataset: Dataset) -> Dataset:
    """The same inputs with the model's own numbers for their labels."""
    order = class_order(base, dataset)
    if order is None:
        return dataset
    assert base.class_names is not None
    names = tuple(str(name) for name in base.class_names)
    return replace(dataset, labels=np.array(order, dtype=np.int64)[dataset.labels], classes=names)


def _whole(name: Any) -> int | None:
    """The whole number that a name is, written as a number or as text."""
    if isinstance(name, str):
        return int(name) if name.isascii() and name.isdigit() and str(int(name)) == name else None
    try:
        return int(name) if int(name) == name else None
    except (TypeError, ValueError, OverflowError):
        return None


def _shown(names: Sequence[Any]) -> str:
    return ", ".join(repr(str(name)) for name in names[:8]) + (", …" if len(names) > 8 else "")
