"""What a data set is to the rest of the library: inputs in the user's units, labels, and a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, InvalidValueError, check_count, check_positive
from smoothcert.registry import Registry


class LazySource(Protocol):
    """Stands for an array of inputs too large for memory: reads those that are indexed, when they are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array this stands for."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the array this stands for."""
        ...

    @property
    def ndim(self) -> int:
        """Number of dimensions of the array this stands for."""
        ...

    @property
    def size(self) -> int:
        """Number of values of the array this stands for."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, indices: slice | NDArray[np.int64] | list[int]) -> NDArray[Any]: ...

    def first(self, most: int) -> LazySource:
        """The first ``most`` inputs, none of them read."""
        ...

    def bounds(self) -> tuple[float, float]:
        """Values that no input exceeds, known without reading any."""
        ...

    def fingerprint_parts(self) -> Iterator[bytes]:
        """Piece by piece, bytes that differ where the inputs do."""
        ...


@dataclass(frozen=True, eq=False)
class Dataset:
    """One split of labelled inputs, kept as stored (often uint8) and scaled when an input is taken.

    ``scale`` maps stored values to the units in which noise is added: ``input = stored * scale``.
    """

    name: str
    stored: NDArray[np.generic] | LazySource
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(f"{self.name}: scale", self.scale)
        if len(self.stored) == 0:
            raise DataError(f"{self.name}: the data set is empty")
        if self.stored.ndim < 2 or self.stored.size == 0:
            raise DataError(
                f"{self.name}: inputs have shape {self.stored.shape}, "
                "expected (number of inputs, one or more dimensions none of which is 0)"
            )
        if self.labels.ndim != 1 or self.labels.dtype.kind not in "iu":
            raise DataError(
                f"{self.name}: labels are {self.labels.dtype} of shape {self.labels.shape}, "
                "expected one integer per input"
            )
        if len(self.stored) != len(self.labels):
            raise DataError(f"{self.name}: {len(self.stored)} inputs but {len(self.labels)} labels")
        bad = np.flatnonzero((self.labels < 0) | (self.labels >= len(self.classes)))
        if len(bad):
            raise DataError(
                f"{self.name}: label {self.labels[bad[0]]} of input {bad[0]} "
                f"is outside 0..{len(self.classes) - 1}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.stored.shape[1:])

    def inputs(self, indices: slice | NDArray[np.int64] | list[int]) -> NDArray[np.float32]:
        """A float32 batch of the chosen inputs, in the units noise is added in."""
        return np.asarray(self.stored[indices], dtype=np.float32) * np.float32(self.scale)

    def input(self, index: int) -> NDArray[np.float32]:
        """One float32 input, in the units noise is added in; no negative index, which a log can't name."""
        if not 0 <= index < len(self):
            raise InvalidValueError(f"{self.name}: input index must lie in 0..{len(self) - 1}, got {index}")
        batch = self.inputs(slice(index, index + 1))
        return batch.reshape(self.input_shape)

    def value_range(self) -> tuple[float, float]:
        """Smallest and largest input value (of lazy inputs: possible value), in the units noise is added in."""
        if isinstance(self.stored, np.ndarray):
            low, high = float(self.stored.min()), float(self.stored.max())
        else:
            low, high = self.stored.bounds()
        return low * self.scale, high * self.scale

    def first(self, most: int | None) -> Dataset:
        """The first ``most`` inputs (all of them for None)."""
        if most is None:
            return self
        check_count("max", most)
        stored = self.stored[:most] if isinstance(self.stored, np.ndarray) else self.stored.first(most)
        return replace(self, stored=stored, labels=self.labels[:most])

    def fingerprint(self) -> str:
        """SHA-256 over everything that can change a certificate: values, shape, scale and labels."""
        digest = hashlib.sha256(f"{self.stored.dtype.str} {self.stored.shape} {self.scale!r}".encode())
        if isinstance(self.stored, np.ndarray):
            digest.update(np.ascontiguousarray(self.stored).data)
        else:
            for part in self.stored.fingerprint_parts():
                digest.update(part)
        digest.update(np.ascontiguousarray(self.labels, dtype=np.int64).data)
        return digest.hexdigest()


class Loader(Protocol):
    """Reads one split of a named data set from ``root`` (None: the place the environment names)."""

    def __call__(self, split: str, root: Path | None) -> Dataset:
        """Read the split, which is ``train`` or ``test``."""
        ...


DATASETS: Registry[Loader] = Registry("data set")
