"""Numerics: the shape, type and route in which the model sees samples.

They are part of the plan: float32 results can change in the last bit with any of them, and with the last bit
now and then a vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from smoothcert.errors import InvalidValueError, ModelError, check_count
from smoothcert.knobs import knob
from smoothcert.registry import check_name, suggesting_fields

if TYPE_CHECKING:
    import torch

Dtype = Literal["auto", "float32", "float64", "bfloat16", "float16", "autocast-bfloat16", "autocast-float16"]
Route = Literal["auto", "eager", "channels-last", "folded", "compiled", "graphs", "onnxruntime", "openvino"]
Generator = Literal["auto", "sfc64", "philox"]
AUTO_DTYPE = "auto"
SFC64, PHILOX = "sfc64", "philox"
DTYPES: list[str] = sorted(get_args(Dtype))
ROUTES: list[str] = sorted(get_args(Route))
GENERATORS: list[str] = sorted(get_args(Generator))

_AUTOCAST = "autocast-"
_DRAWN_ON_THE_HOST = ("cpu", "mps")  # Metal has no 64-bit floats, in which soft votes are counted

LARGEST_CHUNK = 1024
"""Of a CPU."""
_FEWEST_ROWS = 8  # below this, float32 kernels change with the number of rows
_LARGEST_ARRAY = 3 << 20  # bytes of a pass's largest array: well under the allocator's and the caches' cliffs


@dataclass(frozen=True)
class Layout:
    """How a round of votes is laid out: ``slots`` blocks of ``block`` votes, seen in ``passes`` passes.

    A pass has ``chunk`` rows. Small models see several blocks in one pass; of larger ones a block takes several
    passes, so that drawing and counting are done once for all of them.
    """

    chunk: int
    block: int

    @property
    def slots(self) -> int:
        """Blocks in a round."""
        return max(1, self.chunk // self.block)

    @property
    def passes(self) -> int:
        """Passes in a round."""
        return max(1, self.block // self.chunk)

    @property
    def rows(self) -> int:
        """Votes in a round."""
        return max(self.chunk, self.block)


@suggesting_fields
@dataclass(frozen=True)
class Numerics:
    """How the base classifier is evaluated.

    What is ``auto`` or None is settled when the model is prepared.
    """

    dtype: str = knob(
        "auto",
        "numeric type of the model; auto: float32, or float64 where noisy inputs aren't exact in it; autocast-…: 16 "
        "bits in the operations that torch finds suited",
    )
    route: str = knob(
        "auto",
        "which execution of a model; auto: onnxruntime (with batch norm), openvino, folded, channels-last or eager, "
        "the first that pays and works",
    )
    chunk: int | None = knob(
        None, "rows of every pass (default: from the model's size; measured on accelerators)"
    )
    block: int | None = None
    """Votes that share one random state, a multiple or a divisor of ``chunk``."""
    generator: str = knob(
        "auto",
        "what noise is drawn by: sfc64 on the CPU; philox where the model is; auto: philox on accelerators",
    )

    def __post_init__(self) -> None:
        # NumPy's and torch's types have these names as well.
        named = str(getattr(self.dtype, "__name__", self.dtype)).removeprefix("torch.")
        object.__setattr__(self, "dtype", named)
        for name, known in (("dtype", DTYPES), ("route", ROUTES), ("generator", GENERATORS)):
            check_name(name, getattr(self, name), known)
        if self.chunk is not None:
            check_count("chunk", self.chunk)
        if self.block is not None:
            check_count("block", self.block)
            if self.chunk is None or (self.chunk % self.block and self.block % self.chunk):
                raise InvalidValueError(
                    f"block must be a multiple or divisor of chunk {self.chunk}, got {self.block}"
                )

    def settled(self, route: str, rows: int, votes: int, *, most: int = LARGEST_CHUNK) -> Numerics:
        """The same with nothing left open: passes of ``rows`` rows, at ``most``, and blocks of about ``votes`` votes,
        unless something else was asked for.
        """
        chunk = self.chunk or min(most, rows)
        dtype = "float32" if self.dtype == AUTO_DTYPE else self.dtype
        if (block := self.block) is None and chunk < votes:
            block = votes // chunk * chunk
        elif block is None:
            block = next(block for block in range(votes, 0, -1) if chunk % block == 0)
        return replace(self, dtype=dtype, route=route, chunk=chunk, block=block)

    def drawn_on(self, device: str) -> Numerics:
        """The same with the generator of this device, where none was asked for."""
        if self.generator != "auto":
            return self
        host = device.partition(":")[0] in _DRAWN_ON_THE_HOST
        return replace(self, generator=SFC64 if host else PHILOX)

    def as_json(self) -> dict[str, Any]:
        """Every field in plain values. SFC64 goes without saying: it was there before others were."""
        stated = asdict(self)
        if self.generator == SFC64:
            del stated["generator"]
        return stated

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Numerics:
        """The inverse of :meth:`as_json`; KeyError names what isn't stated."""
        known = {"generator": SFC64} | dict(stated)
        return cls(**{one.name: known[one.name] for one in fields(cls)})

    def completed(self, settled: Numerics) -> Numerics:
        """The same with what is open here as it was settled before: so a run that is continued keeps its own."""
        opened = [each.name for each in fields(self) if getattr(self, each.name) in (None, "auto")]
        if self.chunk is not None and settled.chunk != self.chunk:
            opened = [name for name in opened if name != "block"]  # it belongs to the other chunk
        return replace(self, **{name: getattr(settled, name) for name in opened})

    def layout(self) -> Layout:
        """The layout of settled numerics."""
        if self.chunk is None or self.block is None:
            raise InvalidValueError("numerics must be settled before use: chunk and block are still open")
        return Layout(self.chunk, self.block)

    @property
    def autocast(self) -> bool:
        """Whether torch chooses the type of each operation, 16 bits where that is enough."""
        return self.dtype.startswith(_AUTOCAST)

    def coarsest_dtype(self) -> torch.dtype:
        """The coarsest type that an operation of the model may have."""
        return replace(self, dtype=self.dtype.removeprefix(_AUTOCAST)).torch_dtype()

    def torch_dtype(self) -> torch.dtype:
        """The type of the model's weights and of what it is given."""
        import torch

        named = "float32" if self.autocast or self.dtype == AUTO_DTYPE else self.dtype
        found: torch.dtype = getattr(torch, named)
        return found

    @property
    def noise_dtype_name(self) -> str:
        """The type in which noise is drawn and added: never coarser than float32."""
        return "float64" if self.dtype == "float64" else "float32"

    def noise_dtype(self) -> torch.dtype:
        """That type as torch has it."""
        import torch

        return torch.float64 if self.dtype == "float64" else torch.float32


def check_own_types(name: str, numerics: Numerics) -> None:
    """Refuse autocast for a model that torch doesn't evaluate."""
    if numerics.autocast:
        raise ModelError(f"{name}: {numerics.dtype} is for torch modules alone; drop --dtype")


def rows_within(bytes_per_row: int) -> int:
    """The largest power of two of rows whose largest array stays within what is fast."""
    return max(_FEWEST_ROWS, 1 << max(0, (_LARGEST_ARRAY // bytes_per_row).bit_length() - 1))


def settle_arithmetic(device: str) -> None:
    """On CUDA, float32 is float32: TF32, which torch uses in convolutions, is another function, and so is autotuning's.

    Kernels that are chosen by trying them out depend on what memory is free at that time.
    """
    if device.startswith("cuda"):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False


def check_device(device: str, *, here: bool = True) -> None:
    """Reject a device torch doesn't know or, where it is to be used ``here``, can't use."""
    import torch

    try:
        if here:
            torch.empty(1, device=device)
        else:
            torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidValueError(f"device {device!r} can't be used: {reason}. Use cpu (--device)") from None
