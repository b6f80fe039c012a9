"""A copy of the model for each worker, so that nothing a module keeps between its layers meets another pass."""

from __future__ import annotations

import copy
import functools
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from smoothcert.errors import ModelError

T = TypeVar("T")

OWN_WEIGHTS = 1 << 24
"""Bytes of parameters up to which every worker has its own: they may be scratch paper, too."""

_COPIED = (list, dict, set, torch.Tensor, types.FunctionType, functools.partial)


class Lending(Generic[T]):
    """Lends each of several equal objects to one borrower at a time; makes another when none is idle.

    With ``most`` there are never more than that: borrowers wait their turn.
    """

    def __init__(self, make: Callable[[], T], most: int | None = None) -> None:
        self.most = most
        self.idle: list[T] = []
        self._make = make
        self._lock = threading.Lock()
        self._turns = nullcontext() if most is None else threading.BoundedSemaphore(most)

    @contextmanager
    def borrowed(self) -> Iterator[T]:
        """One of the objects, for exclusive use until it is given back."""
        with self._turns:
            with self._lock:
                one = self.idle.pop() if self.idle else None
            if one is None:
                one = self._make()
            yield one
            with self._lock:  # not after an error, which may have left it in the middle of something
                self.idle.append(one)


def shares_weights(module: nn.Module) -> bool:
    """Whether the copies of workers share the memory of parameters, because these are large."""
    return sum(one.numel() * one.element_size() for one in module.parameters()) > OWN_WEIGHTS


def worker_copy(module: nn.Module) -> nn.Module:
    """A copy for one worker to evaluate: nothing that a pass may write to is another's, or large parameters alone."""
    return private_copy(module, sharing_weights=shares_weights(module))


def converted_copy(module: nn.Module, **conversion: Any) -> nn.Module:
    """A copy with a state and weights of its own, given to ``nn.Module.to``."""
    copied = private_copy(module)
    with torch.inference_mode(False), torch.no_grad():
        return copied.to(**conversion)


def private_copy(module: nn.Module, *, sharing_weights: bool = False) -> nn.Module:
    """The same function with a state of its own; parameters have the same memory if ``sharing_weights``.

    Buffers never have: a module may use one as scratch paper, and leave it as it was. Nor are parameters the same
    objects: it may put another tensor in the place of one's data for a while.
    ``copy.deepcopy`` alone isn't enough: it leaves functions as they are, so that a hook or a replaced ``forward``
    that has the module in its closure would go on reading and writing the original.
    """
    memo: dict[int, Any] = {}
    if sharing_weights:
        memo |= {id(one): _same_memory(one) for one in module.parameters()}
    inside = {id(part) for part in module.modules()}
    rebound: list[tuple[types.FunctionType, types.FunctionType]] = []
    for part in module.modules():
        for value in vars(part).values():
            _detach_kept(value, memo)
            _rebind(value, memo, rebound)
    try:
        # Scripted modules clone their weights, which would be no leaves otherwise; in inference mode nobody would count
        # what is written to them.
        with torch.inference_mode(False), torch.no_grad():
            copied = copy.deepcopy(module, memo)
    except Exception as error:  # whatever a module holds may refuse to be copied
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(
            f"{type(module).__name__} can't be copied ({reason}), and it is evaluated on copies, so that neither "
            "passes nor later training disturb one another. Remove what can't be copied, or give a function that "
            "calls the module: it is used as it is, by one worker"
        ) from error
    if copied is module:
        raise ModelError(
            f"{type(module).__name__} copies as itself, and it is evaluated on copies, so that neither passes nor "
            "later training disturb one another: remove its __deepcopy__"
        )
    for before, after in rebound:
        _fill(before, after, memo, inside)
    if sharing_weights and any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        _share_storage(module, copied)
    return copied


def _same_memory(parameter: nn.Parameter) -> nn.Parameter:
    """Another object for the same memory, which counts the same writes; a subclass stays what it is."""
    if type(parameter) is not nn.Parameter:
        return parameter
    graded = parameter.requires_grad and not parameter.is_inference()
    with torch.inference_mode(False):
        twin = nn.Parameter(parameter.detach(), requires_grad=graded)
    twin.__dict__.update(parameter.__dict__)
    return twin


def _detach_kept(value: object, memo: dict[int, Any]) -> None:
    """Results that a module has kept are part of a graph, which deepcopy refuses."""
    for one in _values_of(value):
        if isinstance(one, torch.Tensor) and not one.is_leaf:
            memo[id(one)] = one.detach().clone()


def _rebind(
    value: object, memo: dict[int, Any], rebound: list[tuple[types.FunctionType, types.FunctionType]]
) -> None:
    """Put an empty twin into the memo for every function that has something of its own."""
    for one in _values_of(value):
        if isinstance(one, functools.partial):
            _rebind([one.func], memo, rebound)
        elif isinstance(one, types.FunctionType) and id(one) not in memo:
            if not (one.__closure__ or one.__defaults__ or one.__kwdefaults__):
                continue
            cells = None if one.__closure__ is None else tuple(types.CellType() for _ in one.__closure__)
            twin = types.FunctionType(one.__code__, one.__globals__, one.__name__, one.__defaults__, cells)
            twin.__kwdefaults__ = one.__kwdefaults__
            twin.__dict__.update(one.__dict__)
            memo[id(one)] = twin
            rebound.append((one, twin))
            _rebind(list(_contents(one)), memo, rebound)


def _contents(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that isn't bound yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _fill(
    before: types.FunctionType, after: types.FunctionType, memo: dict[int, Any], inside: set[int]
) -> None:
    def twin_of(one: Any) -> Any:
        """Parts of the module and containers are copied; anything else stays what it was."""
        if id(one) in memo:
            return memo[id(one)]
        if id(one) in inside or isinstance(one, (*_COPIED, types.MethodType)):
            with suppress(Exception):  # foreign things in a container are shared, which the probes look at
                return copy.deepcopy(one, memo)
        return one

    for old, new in zip(before.__closure__ or (), after.__closure__ or ()):
        try:
            new.cell_contents = twin_of(old.cell_contents)
        except ValueError:
            continue
    if before.__defaults__:
        after.__defaults__ = tuple(twin_of(one) for one in before.__defaults__)
    if before.__kwdefaults__:
        after.__kwdefaults__ = {key: twin_of(one) for key, one in before.__kwdefaults__.items()}


def _values_of(value: object) -> Iterable[object]:
    """A value, or what a plain container of a module holds."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, (list, tuple)) else [value]


def _share_storage(module: nn.Module, copied: nn.Module) -> None:
    """Scripted modules copy their tensors whatever the memo says: copies of parameters are let go again."""
    for old, new in zip(module.parameters(), copied.parameters()):
        if old.data_ptr() != new.data_ptr():
            new.data = old.data
