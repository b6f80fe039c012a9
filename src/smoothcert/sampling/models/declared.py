"""What was declared of a model, as a run states it: another declaration is another function."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

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
    return f" (the run declares {_shown(stated)}; here it is {_shown(declared)})"


def _hash(value: ArrayLike) -> str:
    array = np.ascontiguousarray(value)
    return hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes()).hexdigest()


def _shown(declared: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{name}={str(value)[:40]}" for name, value in sorted(declared.items()))
    return shown or "nothing"
