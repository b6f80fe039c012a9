"""A network written down as a graph, with stand-ins that pass for tensors wherever its code asks."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn


def traced(module: nn.Module) -> fx.GraphModule:
    """The module's graph. What looks at values can't be written down, and raises.

    torch's own stand-ins aren't tensors to ``isinstance`` and ``torch.is_tensor``: code behind such a question would be
    left out in silence, and with it a part of the function.
    """
    tracer = _Tracer()
    return fx.GraphModule(module, tracer.trace(module))


class _Stand(fx.Proxy):
    """Passes for the tensor that it stands for."""

    _is_param = False  # nn.Parameter asks tensors for it, and a proxy has every attribute

    @property
    def __class__(self) -> Any:
        return torch.Tensor

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise TypeError(f"a stand-in for a tensor can't become {value}")


class _Tracer(fx.Tracer):
    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Stand(node, self)

    def create_arg(self, a: Any) -> Any:
        # Before torch asks whether it is a parameter or a tensor of the module: it would pass for one.
        return a.node if issubclass(type(a), fx.Proxy) else super().create_arg(a)
