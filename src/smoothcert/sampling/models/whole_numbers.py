"""Models that take whole numbers: noise is added in floating point, then made whole by a rule that is a part of f."""

from __future__ import annotations

import torch

from smoothcert.errors import ModelError
from smoothcert.registry import unknown_name

WHOLE_TYPES = {
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
}


def whole_type(name: str | None) -> torch.dtype | None:
    """The type of that name; None for floats, which need no rule."""
    if name is None:
        return None
    if name not in WHOLE_TYPES:
        raise unknown_name("input_dtype", name, list(WHOLE_TYPES))
    return WHOLE_TYPES[name]


def check_exact(name: str, whole: torch.dtype | None, dtype: torch.dtype) -> None:
    """Refuse a type in which noisy numbers would be rounded before they are made whole."""
    if whole is not None and dtype not in (torch.float32, torch.float64):
        raise ModelError(f"{name} takes {whole}, which {dtype} would round; drop --dtype")


def as_whole(batch: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Each number rounded to the nearest whole one (halves to the even one), then clipped to the type's range."""
    limits = torch.iinfo(dtype)
    return batch.round().clamp(_inside(limits.min, batch.dtype), _inside(limits.max, batch.dtype)).to(dtype)


def _inside(limit: int, dtype: torch.dtype) -> float:
    """The limit, or the float next to it towards zero: one beyond it would wrap around."""
    nearest = torch.tensor(float(limit), dtype=dtype)
    if abs(int(nearest.item())) > abs(limit):
        nearest = torch.nextafter(nearest, torch.zeros((), dtype=dtype))
    return float(nearest.item())
