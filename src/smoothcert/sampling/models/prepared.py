"""A model made ready for one input shape: what the engine asks, and the answers that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch.masked import MaskedTensor

from smoothcert.errors import ModelError
from smoothcert.sampling.ballots import OutputKind, read_ballots
from smoothcert.sampling.checking import RowCheck
from smoothcert.sampling.models.copies import Lending
from smoothcert.sampling.models.probes import Outputs
from smoothcert.sampling.numerics import Numerics
from smoothcert.sampling.threads import in_a_worker

if TYPE_CHECKING:
    from smoothcert.sampling.models.base import BaseClassifier


@dataclass(frozen=True)
class Opened:
    """A route: its settled numerics, and how to make the function that one worker evaluates.

    ``check`` is asked after the probes whether evaluating the model has changed it; ``device`` is where it computes.
    """

    numerics: Numerics
    make: Callable[[], Outputs]
    check: Callable[[list[Outputs]], None] | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class Prepared:
    """A model ready for one input shape, with nothing about its numerics left open."""

    name: str
    numerics: Numerics
    input_shape: tuple[int, ...]
    classes: int
    kind: OutputKind
    lending: Lending[Outputs]
    base: BaseClassifier
    """What was prepared, for workers elsewhere to open again."""
    device: str = "cpu"
    """Where it computes."""
    order: tuple[int, ...] | None = None
    """Class c of the votes is the model's class order[c]; None if they are numbered alike."""
    rows: RowCheck = field(default_factory=RowCheck)
    """What was seen of it on the rows of runs."""

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the copies of the model, which belong to this process."""
        return vars(self) | {"lending": None}

    @property
    def eps(self) -> float:
        """How finely its coarsest arithmetic rounds."""
        return torch.finfo(self.numerics.coarsest_dtype()).eps

    def reopened(self, device: str) -> Prepared:
        """The same, settled and checked elsewhere, for one worker on this device."""
        opened = in_a_worker(partial(self.base.opened, self.numerics, self.input_shape, device))
        if opened.numerics != self.numerics:
            raise ModelError(f"{self.name} was prepared as {self.numerics}, a worker has {opened.numerics}")
        copies = self.base.equal_copies(opened, self.input_shape)
        return replace(self, lending=Lending(copies, most=1), device=opened.device)

    def outputs(self, batch: torch.Tensor) -> torch.Tensor:
        """The answers to one pass: a fixed-shape batch on the CPU in the noise's type, which the model may change.

        Any number of threads may call this. Each pass has a copy of the model to itself, or waits for its turn; the
        answers are private to the caller, one for every row.
        """
        return self.outputs_each([batch])[0]

    def outputs_each(self, batches: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """The same for passes one after the other, for which one copy of the model is borrowed once."""
        found = []
        with self.base.turn(), self.lending.borrowed() as model:
            for batch in batches:
                answers = model(batch)
                check_answers(self.name, answers, len(batch))
                # Taken within the turn: it may be something of the model's own, or its input, that others write to.
                found.append(answers.clone())
        return found if self.order is None else [self._in_order(answers) for answers in found]

    def outputs_of(self, rows: torch.Tensor) -> torch.Tensor:
        """The answers to at most a pass of rows, padded to its shape by the last of them."""
        chunk = self.numerics.layout().chunk
        padding = rows[-1:].expand(chunk - len(rows), *rows.shape[1:])
        return self.outputs(torch.cat([rows, padding]).contiguous())[: len(rows)]

    def _in_order(self, answers: torch.Tensor) -> torch.Tensor:
        order = torch.tensor(self.order)
        if self.kind != "labels":
            read_ballots(answers, self.kind, self.classes, "hard")  # as many as there are places to put them
            return answers[:, order]
        labels = torch.from_numpy(read_ballots(answers, self.kind, self.classes, "hard").labels)
        return order.argsort()[labels]

    def workers(self, wanted: int) -> int:
        """How many of the workers asked for the model can keep busy."""
        return wanted if self.lending.most is None else min(wanted, self.lending.most)

    def label_of(self, x: NDArray[Any]) -> int:
        """The model's class for one input as it is, in a pass of the same shape as votes are cast in."""
        row = torch.as_tensor(x).to(self.numerics.noise_dtype())
        answers = in_a_worker(lambda: self.outputs_of(row[None]))
        return int(read_ballots(answers, self.kind, self.classes, "hard").labels[0])


def check_answers(name: str, answers: object, rows: int) -> None:
    """Refuse anything but a tensor of real numbers with an answer for every row; asked after each pass."""
    if not isinstance(answers, torch.Tensor):
        raise ModelError(
            f"{name} returned a {type(answers).__name__}, not one tensor: wrap it so that it returns its scores alone"
        )
    if (kind := _other_kind(answers)) is not None:
        raise ModelError(
            f"{name} returned a {kind} tensor: return a plain one, with a score for every class (dequantize, to_dense, "
            "to_tensor or to_padded_tensor make one)"
        )
    if answers.is_complex():
        raise ModelError(f"{name} returned {answers.dtype}: votes are decided by real numbers")
    if answers.ndim == 0 or answers.shape[0] != rows:
        raise ModelError(
            f"{name} returned shape {tuple(answers.shape)} for {rows} rows; expected one answer a row"
        )


def _other_kind(answers: torch.Tensor) -> str | None:
    """What a tensor is that isn't an array of numbers in memory; None if it is one."""
    if isinstance(answers, MaskedTensor):
        return "masked"
    if answers.is_quantized or answers.is_nested:
        return "quantized" if answers.is_quantized else "nested"
    return None if answers.layout is torch.strided else str(answers.layout).removeprefix("torch.").strip("_")
