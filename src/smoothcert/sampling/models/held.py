"""A model with some coordinates of its input held at given values: a function of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.sampling.models.base import BaseClassifier
from smoothcert.sampling.models.prepared import Opened
from smoothcert.sampling.models.probes import Outputs
from smoothcert.sampling.numerics import Numerics


class HeldClassifier(BaseClassifier):
    """u ↦ f(u, v): rows hold the coordinates where ``held`` is False, in their order; the others are ``values``.

    The model gets these very values, or they are refused: nothing is said of how f moves with v, so that no rounding of
    it is small. Equal values are the same function: −0 is given to the model as 0.
    """

    def __init__(self, base: BaseClassifier, held: NDArray[np.bool_], values: NDArray[Any]) -> None:
        if not (exact := exact_in(values, np.float64)).all():
            raise InvalidValueError(
                f"a value that is held, {values[~exact][0]!s}, isn't exact in float64, in which the model would get "
                "it: hold it in a column of a table, or subtract an offset"
            )
        self.base, self.held = base, held
        self.values = np.ascontiguousarray(values, dtype=np.float64) + 0.0
        self.name, self.kind = base.name, base.kind
        self.input_shape = (int(held.size - held.sum()),)
        self.class_names, self.classes, self.most_workers = base.class_names, base.classes, base.most_workers
        self.declared = base.declared

    def identity(self) -> bytes:
        """The model, which coordinates are held, and at what."""
        told = repr(self.held.shape).encode() + self.held.tobytes() + self.values.tobytes()
        return self.base.identity() + told

    def answers(self, input_shape: tuple[int, ...]) -> bytes:  # noqa: ARG002
        """The model's own."""
        return self.base.answers(self.held.shape)

    def open_route(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Opened:  # noqa: ARG002
        """The model's own route, on whole rows."""
        opened = self.base.open_route(numerics, self.held.shape, device)
        row = torch.zeros(self.held.shape, dtype=torch.float64)
        row[torch.from_numpy(self.held.copy())] = torch.from_numpy(self.values)
        whole = row.to(opened.numerics.noise_dtype())
        if not bool(whole.isfinite().all()):
            raise ModelError(
                f"{self.name}: a value that is held, {row[~whole.isfinite()][0]:g}, is too large for {whole.dtype}; "
                "use float64 (--dtype float64)"
            )
        if not bool((same := whole.to(torch.float64) == row).all()):
            raise ModelError(
                f"{self.name}: a value that is held, {row[~same][0].item()!r}, isn't exact in {whole.dtype}, and the "
                'model would get another one: use float64 (Numerics("float64"), --dtype float64), or round it yourself '
                "(x.astype(np.float32))"
            )
        free = torch.from_numpy(np.flatnonzero(~self.held)).to(opened.device)
        own = opened.check
        check = None if own is None else lambda used: own([one.outputs for one in used])
        filled = whole.reshape(-1).to(opened.device)
        return Opened(
            opened.numerics,
            lambda: _Filled(opened.make(), filled, free, self.held.shape),
            check,
            opened.device,
        )

    def count_classes(self, outputs: torch.Tensor) -> int:
        """As the model does."""
        return self.base.count_classes(outputs)

    def mixing_cause(self) -> str:
        """The model's."""
        return self.base.mixing_cause()


def exact_in(values: NDArray[Any], kind: type[np.float32] | type[np.float64]) -> NDArray[np.bool_]:
    """Which of these numbers the type has."""
    with np.errstate(over="ignore"):
        near = values.astype(kind)
    if values.dtype.kind == "f":
        return np.asarray(near == values)  # compared in the finer type
    digits = np.finfo(kind).nmant + 1
    if not values.size or -(1 << digits) <= int(values.min()) <= int(values.max()) <= 1 << digits:
        return np.ones(values.shape, dtype=bool)
    # Python's whole numbers: NumPy would compare after rounding.
    return np.array([int(a) == b for a, b in zip(near.ravel().tolist(), values.ravel().tolist())]).reshape(
        values.shape
    )


@dataclass(frozen=True)
class _Filled:
    """A function of whole rows, given the coordinates that aren't held."""

    outputs: Outputs
    row: torch.Tensor
    free: torch.Tensor
    shape: tuple[int, ...]

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        batch = batch.to(self.row.device, non_blocking=True)
        rows = self.row.to(batch.dtype).expand(len(batch), -1).index_copy(1, self.free, batch)
        return self.outputs(rows.view(-1, *self.shape))
