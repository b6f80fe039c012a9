"""Which class of a model is which class of a data set, where both name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    names, or only 0, 1, 2, …, numbers are all there is.
    """
    names, classes = base.class_names, dataset.classes
    if names is None:
        return None
    if len(classes) > len(names):
        raise DataError(
            f"{dataset.name} has {len(classes)} classes but {base.name} knows {len(names)}: they don't belong together"
        )
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
