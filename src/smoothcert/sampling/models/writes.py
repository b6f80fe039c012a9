"""Which of its own parameters a module writes to in a pass, though it may put back what was there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class WatchedWrites(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own __init_subclass__
    """Notes in ``written`` the names of parameters whose memory an operation of this thread writes to.

    Views and ``.data`` are seen, because memory is compared, not tensors. What writes past torch (NumPy's view of a
    parameter, an extension) is not.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: set[str] = set()
        self._names = {place: name for name, one in module.named_parameters() if (place := _place(one))}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        for place in _written_places(func, args, kwargs):
            if place in self._names:
                self.written.add(self._names[place])
        return func(*args, **kwargs)


def _written_places(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[int]:
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, torch.Tensor):
                yield _place(one)


def _place(tensor: torch.Tensor) -> int:
    """Where a tensor's memory begins; 0 where it has none of its own."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a subclass that keeps its numbers elsewhere
        return 0
