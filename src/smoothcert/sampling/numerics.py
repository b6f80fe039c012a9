"""Numerics: the shape, type and route in which the model sees samples.

They are part of the plan: float32 results can change in the last bit with any of them, and with the last bit
now and then a vote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.registry import unknown_name

if TYPE_CHECKING:
    import torch

DTYPES = ["bfloat16", "float16", "float32", "float64"]
ROUTES = ["auto", "channels-last", "compiled", "eager", "folded", "onnxruntime"]

_LARGEST_CHUNK = 1024
_LARGEST_BLOCK = 64
_FEWEST_ROWS = 8  # below this, float32 kernels change with the number of rows
_LARGEST_ARRAY = 4 << 20  # bytes of a pass's largest array: well under the allocator's and the caches' cliffs


@dataclass(frozen=True)
class Numerics:
    """How the base classifier is evaluated.

    ``dtype``: numeric type of the model. ``route``: which execution of the model; ``auto`` is settled when the
    model is prepared. ``chunk``: rows of every forward pass. ``block``: votes that share one random state; a
    pass is made of ``chunk / block`` blocks, of one input or of several. None lets the model's size decide.
    """

    dtype: str = "float32"
    route: str = "auto"
    chunk: int | None = None
    block: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise unknown_name("dtype", self.dtype, DTYPES)
        if self.route not in ROUTES:
            raise unknown_name("route", self.route, ROUTES)
        if self.chunk is not None:
            check_count("chunk", self.chunk)
        if self.block is not None:
            check_count("block", self.block)
            if self.chunk is None or self.chunk % self.block:
                raise InvalidValueError(
                    f"chunk must be a multiple of block, got {self.chunk} and {self.block}"
                )

    def settled(self, route: str, rows: int) -> Numerics:
        """The same with nothing left open: ``rows`` is used where no chunk was asked for."""
        chunk = self.chunk or min(_LARGEST_CHUNK, rows)
        block = self.block or next(b for b in range(min(chunk, _LARGEST_BLOCK), 0, -1) if chunk % b == 0)
        return Numerics(self.dtype, route, chunk, block)

    def shape(self) -> tuple[int, int]:
        """(blocks per pass, votes per block) of settled numerics."""
        if self.chunk is None or self.block is None:
            raise InvalidValueError("numerics must be settled before use: chunk and block are still open")
        return self.chunk // self.block, self.block

    def torch_dtype(self) -> torch.dtype:
        """The type the model computes in."""
        import torch

        return {
            "bfloat16": torch.bfloat16,
            "float16": torch.float16,
            "float32": torch.float32,
            "float64": torch.float64,
        }[self.dtype]

    def noise_dtype(self) -> torch.dtype:
        """The type in which noise is drawn and added: never coarser than float32."""
        import torch

        return torch.float64 if self.dtype == "float64" else torch.float32


def rows_within(bytes_per_row: int) -> int:
    """The largest power of two of rows whose largest array stays within what is fast."""
    return max(_FEWEST_ROWS, 1 << max(0, (_LARGEST_ARRAY // bytes_per_row).bit_length() - 1))
