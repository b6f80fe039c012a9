"""The base classifier as the engine sees it: rows in, labels or scores out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from smoothcert.errors import ModelError
from smoothcert.sampling.ballots import OutputKind, read_ballots
from smoothcert.sampling.numerics import Numerics
from smoothcert.sampling.threads import one_openmp_thread

_PROBE_SEED = 20190208


@dataclass(frozen=True)
class Prepared:
    """A model ready for one input shape, with nothing about its numerics left open.

    ``outputs`` takes the fixed-shape batch on the CPU in the noise's type and may be called by several threads.
    """

    numerics: Numerics
    input_shape: tuple[int, ...]
    classes: int
    kind: OutputKind
    outputs: Callable[[torch.Tensor], torch.Tensor]

    def label_of(self, x: NDArray[Any]) -> int:
        """The model's class for one input as it is, in a pass of the same shape as votes are cast in."""
        row = torch.as_tensor(x).to(self.numerics.noise_dtype())
        with one_openmp_thread(), torch.inference_mode():
            rows = row.expand(self.numerics.layout().chunk, *row.shape).contiguous()
            return int(read_ballots(self.outputs(rows), self.kind, self.classes, "hard").labels[0])


class BaseClassifier(ABC):
    """A model of any make. It must score each row of a batch on its own; :meth:`prepare` checks that it does."""

    name: str
    kind: OutputKind
    input_shape: tuple[int, ...] | None = None
    """Shape of one input where the model says so; None where only the data can tell."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes when the function changes."""

    @abstractmethod
    def open_route(
        self, numerics: Numerics, input_shape: tuple[int, ...], device: str
    ) -> tuple[Numerics, Callable[[torch.Tensor], torch.Tensor]]:
        """Settle the numerics and return the function from a batch to outputs."""

    def prepare(self, numerics: Numerics, input_shape: tuple[int, ...], device: str = "cpu") -> Prepared:
        """Settle route and shape, count the classes, and make sure rows don't influence one another."""
        if self.input_shape is not None and tuple(input_shape) != self.input_shape:
            raise ModelError(
                f"{self.name} takes inputs of shape {self.input_shape}, got {tuple(input_shape)}"
            )
        # Under the settings of the workers: compilers specialise on the number of threads.
        with one_openmp_thread(), torch.inference_mode():
            settled, outputs = self.open_route(numerics, input_shape, device)
            rows = probe_rows(settled.layout().chunk, input_shape, settled.noise_dtype())
            first = self.probe(outputs, rows)
            rows[1:] = rows[1:].flip(0).neg()
            second = self.probe(outputs, rows)
        if not torch.allclose(first[0].double(), second[0].double(), rtol=1e-3, atol=1e-4, equal_nan=True):
            raise ModelError(
                f"{self.name} gives a row another answer when the rest of the batch changes; votes must be "
                "independent. Batch statistics (a layer in training mode?) are the usual cause"
            )
        return Prepared(settled, tuple(input_shape), self.count_classes(first), self.kind, outputs)

    def count_classes(self, outputs: torch.Tensor) -> int:
        """Number of classes, from the outputs of a probe."""
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            raise ModelError(
                f"{self.name} must return one score for each of at least two classes, got shape "
                f"{tuple(outputs.shape)} for {outputs.shape[0] if outputs.ndim else 0} rows"
            )
        return int(outputs.shape[1])

    def probe(self, outputs: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        """Ask the model once, and say clearly what is wrong if it can't answer."""
        try:
            answer = outputs(rows)
        except ModelError:
            raise
        except Exception as error:  # the model is foreign code: whatever it raises is reported as its failure
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ModelError(
                f"{self.name} fails on a batch of shape {tuple(rows.shape)} ({reason}). "
                "Check the input shape; normalisation and reshaping belong inside the model"
            ) from error
        if answer.ndim == 0 or answer.shape[0] != rows.shape[0]:
            raise ModelError(
                f"{self.name} returned shape {tuple(answer.shape)} for {rows.shape[0]} rows; expected one answer a row"
            )
        return answer


def probe_rows(rows: int, input_shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Fixed pseudo-random rows in [0, 1), for probing and fingerprinting models."""
    generator = torch.Generator().manual_seed(_PROBE_SEED)
    return torch.rand((rows, *input_shape), generator=generator, dtype=torch.float32).to(dtype)
