"""The base classifier, rows in and labels or scores out, and the same made ready for one input shape."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from textwrap import shorten
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.masked import MaskedTensor

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.numerics import Numerics, check_device
from smoothcert.models.outputs import (
    OutputKind,
    Outputs,
    memory_remedy,
    probe_rows,
    read_ballots,
    short_of_memory,
)
from smoothcert.registry import check_name
from smoothcert.threads import in_a_worker, one_caller


@dataclass(frozen=True)
class Opened:
    """A route: its settled numerics, the function that evaluates a pass, and where it computes."""

    numerics: Numerics
    function: Outputs
    device: str = "cpu"
    thread_safe: bool = True
    """Whether several threads may evaluate the function at once."""
    opaque: str | None = None
    """Why a torch module isn't captured; None if it is, and for other models."""


@dataclass(frozen=True)
class Prepared:
    """A model ready for one input shape, with nothing about its numerics left open."""

    name: str
    numerics: Numerics
    input_shape: tuple[int, ...]
    classes: int
    kind: OutputKind
    opened: Opened | None
    """The function; None after it was sent to another process, until :meth:`reopened`."""
    base: BaseClassifier
    """What was prepared, for workers elsewhere to open again."""
    device: str = "cpu"
    """Where it computes."""
    order: tuple[int, ...] | None = None
    """Class c of the votes is the model's class order[c]; None if they are numbered alike."""

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the function, which belongs to this process."""
        return vars(self) | {"opened": None}

    @property
    def eps(self) -> float:
        """How finely its coarsest arithmetic rounds."""
        return torch.finfo(self.numerics.coarsest_dtype()).eps

    def reopened(self, device: str) -> Prepared:
        """The same, settled and checked elsewhere, for one worker on this device."""

        def open_route() -> Opened:
            with self.base.asked():
                return self.base.open_route(self.numerics, self.input_shape, device)

        opened = in_a_worker(open_route)
        if opened.numerics != self.numerics:
            raise ModelError(f"{self.name} was prepared as {self.numerics}, a worker has {opened.numerics}")
        return replace(self, opened=opened, device=opened.device)

    @contextmanager
    def evaluating(self) -> Iterator[Outputs]:
        """The function, with the process-wide lock held if the model isn't thread-safe."""
        assert self.opened is not None  # else it was sent and not reopened
        with nullcontext() if self.opened.thread_safe else one_caller():
            yield self.opened.function

    def outputs(self, batch: torch.Tensor) -> torch.Tensor:
        """The answers to one pass: a fixed-shape batch on the CPU in the noise's type, which the model may change.

        Any number of threads may call this; the answers are private to the caller, one for every row.
        """
        with self.evaluating() as function:
            answers = function(batch)
            check_answers(self.name, answers, len(batch))
            # Copied with the lock held: it may be the model's own memory, or its input, that others write to.
            answers = answers.clone()
        return self.in_order(answers)

    def outputs_of(self, rows: torch.Tensor) -> torch.Tensor:
        """The answers to at most a pass of rows, padded to its shape by the last of them."""
        chunk = self.numerics.layout().chunk
        padding = rows[-1:].expand(chunk - len(rows), *rows.shape[1:])
        return self.outputs(torch.cat([rows, padding]).contiguous())[: len(rows)]

    def in_order(self, answers: torch.Tensor) -> torch.Tensor:
        """The model's answers with classes numbered as in votes."""
        if self.order is None:
            return answers
        order = torch.tensor(self.order)
        if self.kind != "labels":
            read_ballots(answers, self.kind, self.classes, "hard")  # as many as there are places to put them
            return answers[:, order]
        labels = torch.from_numpy(read_ballots(answers, self.kind, self.classes, "hard").labels)
        return order.argsort()[labels]

    def workers(self, wanted: int) -> int:
        """How many of the threads asked for the model can keep busy."""
        return wanted if self.opened is not None and self.opened.thread_safe else 1

    def label_of(self, x: NDArray[Any]) -> int:
        """The model's class for one input as it is, in a pass of the same shape as votes are cast in."""
        row = torch.as_tensor(x).to(self.numerics.noise_dtype())
        answers = in_a_worker(lambda: self.outputs_of(row[None]))
        return int(read_ballots(answers, self.kind, self.classes, "hard").labels[0])


def check_answers(name: str, answers: object, rows: int) -> None:
    """Refuse anything but a tensor of real numbers with an answer for every row; asked after each pass."""
    if not isinstance(answers, torch.Tensor):
        raise ModelError(
            f"{name} returned a {type(answers).__name__}: wrap it to return one tensor of scores"
        )
    if (kind := _other_kind(answers)) is not None:
        raise ModelError(
            f"{name} returned a {kind} tensor: return a plain one, with a score for every class (dequantize, to_dense, "
            "to_tensor or to_padded_tensor make one)"
        )
    if answers.is_complex():
        raise ModelError(f"{name} returned {answers.dtype}: votes are decided by real numbers")
    if answers.ndim == 0 or answers.shape[0] != rows:
        raise ModelError(f"{name} returned {tuple(answers.shape)} for {rows} rows, not one answer a row")


def _other_kind(answers: torch.Tensor) -> str | None:
    """What a tensor is that isn't an array of numbers in memory; None if it is one."""
    if isinstance(answers, MaskedTensor):
        return "masked"
    if answers.is_quantized or answers.is_nested:
        return "quantized" if answers.is_quantized else "nested"
    return None if answers.layout is torch.strided else str(answers.layout).removeprefix("torch.").strip("_")


def scores_kind(what: str, outputs: OutputKind | None, remedy: str) -> OutputKind:
    """Scores, unless probabilities were declared; the remedy is for those who declare labels."""
    if outputs == "labels":
        raise InvalidValueError(f'{what} returns scores or probabilities, not outputs="labels": {remedy}')
    check_name("kind of output", outputs or "scores", ["probabilities", "scores"])
    return outputs or "scores"


_REASON = 240  # characters of a foreign message
_WITHOUT_GRADIENTS = ("does not require grad", "inference tensor")  # what torch says of them
ACTIVATION_FACTOR = 8  # how much larger than its input a network's largest activation tends to be


Held = tuple[NDArray[np.bool_], NDArray[Any]]
"""Which coordinates have no noise, and an input."""


class BaseClassifier(ABC):
    """A model of any make. It must score each row of a batch on its own."""

    name: str
    kind: OutputKind
    input_shape: tuple[int, ...] | None = None
    """Shape of one input where the model says so; None where only the data can tell."""
    class_names: tuple[Any, ...] | None = None
    """What the model itself calls its classes, in their order; None where it has only numbers."""
    classes: int | None = None
    """How many classes there are, where that was declared."""
    feature_names: tuple[str, ...] | None = None
    """What the model calls the columns of a table; None where they go by their place."""
    declared: Mapping[str, Any] = MappingProxyType({})
    """What the caller said of it, as a run states it."""
    remedy: str = (
        "normalisation and reshaping belong inside the model. One that takes whole numbers needs "
        'input_dtype="uint8" or another such type'
    )
    """What else may help where it fails on a probe."""
    differentiable: bool = False
    """Whether gradients can be had, and mean something."""
    thread_safe: bool | None = None
    """Whether several threads may call it at once, where that was declared; None leaves it to :class:`Opened`."""

    @abstractmethod
    def identity(self) -> bytes:
        """What is known of the function without evaluating it: its name, its weights, its file."""

    @abstractmethod
    def answers(self, input_shape: tuple[int, ...]) -> bytes:
        """What the model says to fixed probes of this shape, rounded so that a last bit is unlikely to matter."""

    @abstractmethod
    def open_route(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Opened:
        """Settle the numerics, and make the function that is evaluated."""

    def warn_if_changed(self) -> None:
        """Say so where the caller's object is another function by now than the one that votes."""
        return

    def reference(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Outputs | None:  # noqa: ARG002
        """The model itself, unused and without a route, where what votes was made from it; else None."""
        return None

    def fingerprint(self, input_shape: tuple[int, ...]) -> str:
        """A hash that changes when the function changes, as far as bytes and answers to fixed probes show it.

        It is the same before and after use, in other processes, and for any number of workers.
        """
        self.check_shape(input_shape)

        def answers() -> bytes:
            with self.asked():
                return self.answers(tuple(input_shape))

        return hashlib.sha256(self.kind.encode() + self.identity() + in_a_worker(answers)).hexdigest()

    def prepare(
        self, numerics: Numerics, input_shape: tuple[int, ...], device: str = "cpu", held: Held | None = None
    ) -> Prepared:
        """Settle route and shape, and count the classes in one pass of fixed rows; ``held``: where they are an input.

        Whether votes are independent is checked on the rows that vote (:mod:`smoothcert.engine.checking`).
        """
        self.check_shape(input_shape)
        check_device(device)
        # As workers do: compilers specialise on the number of threads, and the caller's context isn't the model's.
        return in_a_worker(partial(self._prepare, numerics, tuple(input_shape), device, held))

    def _prepare(
        self, numerics: Numerics, input_shape: tuple[int, ...], device: str, held: Held | None
    ) -> Prepared:
        with self.asked():
            opened = self.open_route(numerics, input_shape, device)
            chunk, dtype = opened.numerics.layout().chunk, opened.numerics.noise_dtype()
            rows = probe_rows(chunk, input_shape, dtype)
            if held is not None:
                mask, x = held
                values = torch.from_numpy(np.asarray(x[mask], np.float64))
                rows[:, torch.from_numpy(mask.copy())] = values.to(dtype)
            answers = self.probe(opened.function, rows)
        settled = opened.numerics.drawn_on(opened.device)
        classes = self.count_classes(answers)
        return Prepared(self.name, settled, input_shape, classes, self.kind, opened, self, opened.device)

    def asked(self) -> AbstractContextManager[None]:
        """What is held while foreign code runs: the process-wide lock, unless it was declared thread-safe."""
        return nullcontext() if self.thread_safe else one_caller()

    def mixing_cause(self) -> str:
        """What usually makes a model of this make answer a row by the rest of its batch."""
        return "statistics of the batch (a layer in training mode?)"

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs of another shape than the model says it takes."""
        if self.input_shape is not None and tuple(input_shape) != self.input_shape:
            raise ModelError(f"{self.name} takes inputs of {self.input_shape}, got {tuple(input_shape)}")

    def count_classes(self, outputs: torch.Tensor) -> int:
        """Number of classes, from the outputs of a probe."""
        if outputs.ndim == 1 or (outputs.ndim == 2 and outputs.shape[1] == 1):
            raise ModelError(
                f"{self.name} returned one number a row, and one score for each of at least two classes is needed. If "
                'it tells two classes apart, say so: classes=2 with outputs="scores" if the number is the logit of the '
                'second class, outputs="probabilities" if it is its probability'
            )
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            raise ModelError(
                f"{self.name} must return one score for each of at least two classes, got shape "
                f"{tuple(outputs.shape)} for {outputs.shape[0] if outputs.ndim else 0} rows"
            )
        found = int(outputs.shape[1])
        if self.classes not in (None, found):
            raise ModelError(f"{self.name} returned {found} scores a row, but classes={self.classes}")
        if self.class_names is not None and found != len(self.class_names):
            raise ModelError(f"{self.name} returned {found} scores for {len(self.class_names)} named classes")
        return found

    def probe(self, outputs: Outputs, rows: torch.Tensor) -> torch.Tensor:
        """Evaluate the model once; an error says what is wrong."""
        try:
            answer = outputs(rows.clone())  # the model may write to its input
        except ModelError:
            raise
        # Foreign code: what it raises is reported as the model's failure.
        except (Exception, SystemExit) as error:
            if short_of_memory(error):
                raise ModelError(f"{self.name}: {memory_remedy(len(rows))}") from error
            reason = shorten(f"{type(error).__name__}: {error}".splitlines()[0], _REASON, placeholder=" …")
            if any(words in str(error).lower() for words in _WITHOUT_GRADIENTS):
                raise ModelError(
                    f"{self.name} takes gradients while it is evaluated, and votes are cast in torch's inference "
                    f"mode ({reason}). Compute that part within `with torch.inference_mode(False), "
                    "torch.enable_grad():`, on a clone of the batch"
                ) from error
            raise ModelError(
                f"{self.name} fails on a batch of shape {tuple(rows.shape)} ({reason}). "
                f"Check the input shape; {self.remedy}"
            ) from error
        check_answers(self.name, answer, len(rows))
        if answer.is_meta:
            raise ModelError(f"{self.name} returned a tensor without numbers (meta): load its weights")
        return answer.clone()
