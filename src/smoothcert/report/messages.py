"""Condensed runs as bytes that pass between processes: plain values and arrays, nothing that could run when read."""

from __future__ import annotations

import base64
import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from smoothcert.analysis.votes import VotesUsed
from smoothcert.errors import DataError, InvalidValueError, RunError, SmoothcertError
from smoothcert.report.condensed import Condensed, Votes
from smoothcert.runs import Manifest

_PARTS = {part.__name__: part for part in (Condensed, Votes, VotesUsed, Manifest)}
_ERRORS: dict[str, type[SmoothcertError]] = {
    error.__name__: error for error in (DataError, InvalidValueError, RunError)
}
_NUMBERS = "biuf"

Answer = Condensed | SmoothcertError


def encode(answers: list[Answer]) -> bytes:
    """JSON, with arrays as base64."""
    return json.dumps([_plain(one) for one in answers]).encode()


def decode(content: bytes) -> list[Answer]:
    """The inverse of :func:`encode`; ValueError, KeyError or TypeError for anything else."""
    answers = [_value(one) for one in json.loads(content)]
    if not all(isinstance(one, Condensed | SmoothcertError) for one in answers):
        raise TypeError("an answer is neither a run nor an error")
    return answers


def _plain(value: Any) -> Any:
    if isinstance(value, SmoothcertError):
        return {"error": type(value).__name__, "message": str(value)}
    if isinstance(value, np.ndarray):
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return {"array": value.dtype.str, "shape": list(value.shape), "content": content}
    if is_dataclass(value):
        assert type(value).__name__ in _PARTS
        named = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        return {"part": type(value).__name__, "fields": named}
    if isinstance(value, dict):
        return {"dict": [[key, _plain(one)] for key, one in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_plain(one) for one in value]}
    return value


def _value(plain: Any) -> Any:
    match plain:
        case {"error": name, "message": message}:
            return _ERRORS.get(name, SmoothcertError)(message)
        case {"array": code, "shape": shape, "content": content}:
            dtype = np.dtype(code)
            if dtype.kind not in _NUMBERS:
                raise ValueError(f"an array of {dtype}")
            return np.frombuffer(bytearray(base64.b64decode(content)), dtype).reshape(shape)
        case {"part": name, "fields": named}:
            return _PARTS[name](**{field: _value(one) for field, one in named.items()})
        case {"dict": pairs}:
            return {key: _value(one) for key, one in pairs}
        case {"list": items}:
            return [_value(one) for one in items]
        case {"tuple": items}:
            return tuple(_value(one) for one in items)
        case _:
            return plain
