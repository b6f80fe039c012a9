"""Sending a model to another process: by reference where that can be imported there, else by value."""

from __future__ import annotations

import io
import pickle
import types
from collections import ChainMap
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar, cast

import torch
import torch.multiprocessing  # lets tensors be sent as memory that processes share

from smoothcert.errors import DependentVotesError, ModelError
from smoothcert.extras import require

T = TypeVar("T")


class _Trial(pickle.Pickler):
    """Finds out whether, and how, something can be sent; tensors always can."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.from_main = False

    def reducer_override(self, one: object) -> Any:
        if isinstance(one, torch.Tensor):
            return int, ()
        if isinstance(one, (type, types.FunctionType)) and one.__module__ == "__main__":
            self.from_main = True
        return NotImplemented


def portable(one: T, name: str, extra: str = "processes") -> T:
    """The same, or something that becomes the same when it arrives; refused where ``name`` can't be sent."""
    trial = _Trial()
    try:
        trial.dump(one)
        if not trial.from_main:
            return one
    except Exception:  # lambdas and the like: by value; and whatever a model's own methods raise
        pass
    purpose = f"sending {name}, which is defined where other processes can't import it,"
    cloudpickle = require("cloudpickle", purpose, extra)
    try:
        cloudpickle.dumps(one)
    except Exception as error:  # whatever a model holds may refuse, in its own way
        raise unsendable(name, "processes", error, "use threads (--backend threads), or ") from error
    return cast(T, _ByValue(one))


class _ByValue:
    """Becomes what it holds when it arrives, code included; tensors still go as shared memory."""

    def __init__(self, one: object) -> None:
        self._one = one

    def __reduce__(self) -> Any:
        import cloudpickle

        content = io.BytesIO()
        pickler = cloudpickle.Pickler(content)
        # As multiprocessing's own pickler does; it is asked while a process is being started.
        pickler.dispatch_table = ChainMap(ForkingPickler._extra_reducers, pickler.dispatch_table)  # type: ignore[attr-defined]
        pickler.dump(self._one)
        return pickle.loads, (content.getvalue(),)


def arriving(one: T, name: str) -> T | ModelError:
    """The same when it arrives, or a ModelError: a process would die of another exception, and so would the next."""
    return cast(T, _Arriving(one, name))


class _Arriving:
    """Becomes what it holds, or says why it can't."""

    def __init__(self, one: object, name: str) -> None:
        self._one, self._name = one, name

    def __reduce__(self) -> Any:
        content = io.BytesIO()
        ForkingPickler(content).dump(self._one)
        return _arrived, (content.getvalue(), self._name)


def _arrived(content: bytes, name: str) -> object:
    try:
        return pickle.loads(content)
    except Exception as error:
        return ModelError(
            f"{name} was sent to another process and can't be opened there ({type(error).__name__}: {error}): use "
            "threads (--backend threads)"
        )


def unsendable(name: str, where: str, error: Exception, remedy: str = "") -> ModelError:
    """That a model can't be sent, with what stands in the way."""
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return ModelError(
        f"{name} can't be sent to other {where} ({reason}): {remedy}remove what can't be sent, such as open files, "
        "locks and sessions"
    )


def sendable(error: Exception) -> ModelError:
    """An error of a worker's as one that survives being sent: exceptions of foreign classes may not."""
    if type(error) in (ModelError, DependentVotesError):
        assert isinstance(error, ModelError)
        return error
    return ModelError(f"a worker failed ({type(error).__name__}: {error})")
