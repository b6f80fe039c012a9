"""The interface of a data set: inputs in the user's units, labels, and a fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.images import LazyImages, LazySource, decoding_threads, read_ahead
from smoothcert.errors import DataError, InvalidValueError, check_count, check_positive
from smoothcert.perturb.columns import Columns
from smoothcert.registry import Registry

_USUAL_LEVELS = (1, 16, 255, 256)
_EXACT_IN_FLOAT64 = 1 << 53
_AHEAD = 2  # inputs for each thread: enough that none waits for a slow one


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """One split of labelled inputs, kept as stored (often uint8) and scaled when an input is taken.

    ``scale`` maps stored values to the units in which noise is added: ``input = stored * scale``.
    """

    name: str
    """What tables call it."""
    stored: NDArray[np.generic] | LazySource
    """The inputs as they are kept, one after the other."""
    labels: NDArray[np.int64]
    """The class of each, by number."""
    classes: tuple[str, ...]
    """The names of the classes, in the order of their numbers."""
    scale: float = 1.0
    """An input is what is stored times this."""
    columns: Columns | None = None
    """Of a table: the names of its columns, and the values that codes stand for."""

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.input_shape))
        return f"Dataset({self.name!r}, {len(self)} inputs of {shape}, {len(self.classes)} classes)"

    def __post_init__(self) -> None:
        check_positive(f"{self.name}: scale", self.scale)
        if len(self.stored) == 0:
            raise DataError(f"{self.name}: the data set is empty")
        if self.stored.ndim < 2 or self.stored.size == 0:
            raise DataError(
                f"{self.name}: inputs have shape {self.stored.shape}, "
                "expected (number of inputs, one or more dimensions none of which is 0)"
            )
        self._check_exact()
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

    def _check_exact(self) -> None:
        """Refuse numbers that float64, the finest that inputs are taken in, would round: to which point isn't said."""
        stored = self.stored
        if not isinstance(stored, np.ndarray) or stored.dtype.itemsize < 8:
            return
        whole = stored.dtype.kind in "iu"
        if whole and max(int(stored.max()), -int(stored.min())) > _EXACT_IN_FLOAT64:
            raise DataError(f"{self.name}: float64 rounds whole numbers beyond 2^53; subtract an offset")
        if not whole and stored.dtype.itemsize > 8:
            raise DataError(f"{self.name}: inputs are {stored.dtype}, expected floats of up to 64 bits")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.stored.shape[1:])

    @cached_property
    def levels(self) -> int | None:
        """The q for which every input is a multiple of 1/q: 255 for 8-bit pictures; None where there is none."""
        if self.stored.dtype.kind in "biu":
            levels = round(1 / self.scale)
            return levels if levels >= 1 and abs(levels * self.scale - 1) < 1e-12 else None
        if self.scale != 1.0 or not isinstance(self.stored, np.ndarray):
            return None
        return next((levels for levels in _USUAL_LEVELS if _multiples(self.stored, levels)), None)

    def inputs(self, indices: slice | NDArray[np.int64] | list[int]) -> NDArray[np.float32]:
        """A float32 batch of the chosen inputs, in the units noise is added in."""
        return self._scaled(self.stored[indices], np.float32)

    def parts(
        self, indices: slice | NDArray[np.int64] | list[int], draws: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Like :meth:`inputs`, of a part of each image that ``draws`` choose, for training; of images kept as files."""
        if not isinstance(self.stored, LazyImages):
            raise InvalidValueError(
                f"random_crops are cut from images kept as files, {self.name} is kept at its final size: use shift"
            )
        return self._scaled(self.stored.parts(indices, draws), np.float32)

    def input(self, index: int) -> NDArray[np.float32] | NDArray[np.float64]:
        """One input, in the units noise is added in, as float32, or as float64 where it is stored more finely.

        Negative indices are refused: logs have none.
        """
        if not 0 <= index < len(self):
            raise InvalidValueError(f"{self.name}: input index must lie in 0..{len(self) - 1}, got {index}")
        dtype = self.stored.dtype
        fine = dtype.itemsize > (4 if dtype.kind == "f" else 2)
        batch = self._scaled(self.stored[slice(index, index + 1)], np.float64 if fine else np.float32)
        return batch.reshape(self.input_shape)

    def each(self, indices: Iterable[int]) -> Generator[tuple[int, NDArray[Any]]]:
        """(index, input) pairs in order; inputs that are read from disk are read ahead, a few for each thread."""
        if isinstance(self.stored, np.ndarray):
            return ((index, self.input(index)) for index in indices)
        threads = decoding_threads()
        return read_ahead(indices, self.input, ahead=_AHEAD * threads, threads=threads)

    def _scaled(self, stored: NDArray[Any], dtype: type[Any]) -> NDArray[Any]:
        values = np.asarray(stored, dtype=dtype)
        # Division rounds k/255 as other libraries do; a product with 1/255 sometimes differs in the last bit.
        whole = self.levels is not None
        return np.asarray(values / dtype(round(1 / self.scale)) if whole else values * dtype(self.scale))

    def value_range(self) -> tuple[float, float]:
        """Smallest and largest input value (of lazy inputs: possible value), in the units noise is added in."""
        if isinstance(self.stored, np.ndarray):
            low, high = float(self.stored.min()), float(self.stored.max())
        else:
            low, high = self.stored.bounds()
        return low * self.scale, high * self.scale

    @property
    def largest(self) -> float:
        """The largest absolute value of an input."""
        return max(abs(bound) for bound in self.value_range())

    def first(self, most: int | None) -> Dataset:
        """The first ``most`` inputs (all of them for None)."""
        if most is None:
            return self
        check_count("max", most)
        stored = self.stored[:most] if isinstance(self.stored, np.ndarray) else self.stored.first(most)
        return replace(self, stored=stored, labels=self.labels[:most])

    def encoded_by(self, columns: Columns) -> Dataset:
        """A table as a model has it: its columns by name, in the model's order and with the model's codes."""
        from smoothcert.datasets.tables import recoded

        return recoded(self, columns)

    def fingerprint(self) -> str:
        """SHA-256 over everything that can change a certificate: values, shape, scale, columns and labels."""
        digest = hashlib.sha256(f"{self.stored.dtype.str} {self.stored.shape} {self.scale!r}".encode())
        if self.columns is not None:
            digest.update(json.dumps(self.columns.as_json(), ensure_ascii=False).encode())
        if isinstance(self.stored, np.ndarray):
            digest.update(np.ascontiguousarray(self.stored).data)
        else:
            for part in self.stored.fingerprint_parts():
                digest.update(part)
        digest.update(np.ascontiguousarray(self.labels, dtype=np.int64).data)
        return digest.hexdigest()

    def check_contents(self, stated: object, of: str) -> None:
        """Refuse it for the run ``of`` that name, which states this SHA-256 of its inputs."""
        if (here := self.fingerprint()) != stated:
            raise DataError(
                f"{self.name} does not hold the inputs that {of} was certified on: its sha256 is {here[:12]}…, the "
                f"run's is {str(stated)[:12]}…; give that data set, split and folder with --dataset, --split and "
                "--data-dir"
            )


def _multiples(values: NDArray[Any], levels: int) -> bool:
    from smoothcert.perturb.grid import same_to_precision

    steps = values.astype(np.float64) * levels
    return bool((np.abs(steps - np.rint(steps)) <= same_to_precision(values, levels)).all())


class Loader(Protocol):
    """Reads one split of a named data set from ``root`` (None: the place the environment names)."""

    def __call__(self, split: str, root: Path | None) -> Dataset:
        """Read the split, which is ``train`` or ``test``."""
        ...


DATASETS: Registry[Loader] = Registry("data set", __package__)
PATH_FORMS: Registry[Callable[[Path, str], Dataset]] = Registry("form of data", __package__)
"""What may stand before a path: ``npz:PATH``. Each reads a split from there."""
