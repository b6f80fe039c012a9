"""The base classifier as the engine sees it: rows in, labels or scores out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from textwrap import shorten
from types import MappingProxyType
from typing import Any, Literal

import torch
from numpy.typing import NDArray

from smoothcert.errors import ModelError
from smoothcert.sampling.ballots import OutputKind, read_ballots
from smoothcert.sampling.execution import check_device
from smoothcert.sampling.models.copies import Lending
from smoothcert.sampling.models.equal_copies import EqualCopies
from smoothcert.sampling.models.probes import (
    Outputs,
    Probe,
    check_again,
    check_draws,
    check_kept,
    check_rows,
    check_together,
    probe_rows,
    same_answers,
    telling,
)
from smoothcert.sampling.numerics import Numerics
from smoothcert.sampling.threads import in_a_worker
from smoothcert.sampling.turns import turn

_REASON = 240  # characters of a foreign message
ACTIVATION_FACTOR = 8  # how much larger than its input a network's largest activation tends to be


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

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the copies of the model, which belong to this process."""
        return vars(self) | {"lending": None}

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


class BaseClassifier(ABC):
    """A model of any make. It must score each row of a batch on its own; :meth:`prepare` checks that it does."""

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
    most_workers: int | None = None
    """How many threads may evaluate the model at once; None for any number."""

    @abstractmethod
    def identity(self) -> bytes:
        """What is known of the function without evaluating it: its name, its weights, its file."""

    @abstractmethod
    def answers(self, input_shape: tuple[int, ...]) -> bytes:
        """What the model says to fixed probes of this shape, rounded so that a last bit is unlikely to matter."""

    @abstractmethod
    def open_route(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Opened:
        """Settle the numerics, and say how the function of one worker is made."""

    def fingerprint(self, input_shape: tuple[int, ...]) -> str:
        """A hash that changes when the function changes, as far as bytes and answers to fixed probes show it.

        It is the same before and after use, in other processes, and for any number of workers.
        """
        self.check_shape(input_shape)
        digest = hashlib.sha256(self.kind.encode())
        digest.update(self.identity())

        def answers() -> bytes:
            with self.turn():
                return self.answers(tuple(input_shape))

        digest.update(in_a_worker(answers))
        return digest.hexdigest()

    def prepare(self, numerics: Numerics, input_shape: tuple[int, ...], device: str = "cpu") -> Prepared:
        """Settle route and shape, count the classes, and make sure that neither rows nor passes influence others."""
        self.check_shape(input_shape)
        check_device(device)
        # As workers do: compilers specialise on the number of threads, and the caller's context isn't the model's.
        return in_a_worker(partial(self._prepare, numerics, tuple(input_shape), device))

    def _prepare(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Prepared:
        generator = torch.get_rng_state()
        with self.turn():
            opened = self.open_route(numerics, input_shape, device)
            eps = torch.finfo(opened.numerics.coarsest_dtype()).eps
            copies = self.equal_copies(opened, input_shape)
            lending = Lending(copies, self.most_workers)

            def ask_in(room: torch.Tensor) -> torch.Tensor:
                with lending.borrowed() as outputs:
                    return self._evaluated(outputs, room)

            def ask(batch: torch.Tensor) -> torch.Tensor:
                return ask_in(batch.clone())  # the model may write to its input

            with lending.borrowed():  # the first copy is made
                first = copies.first()
            first = telling(ask, first)
            classes = self.count_classes(first.answers)
            together = self.most_workers != 1
            try:
                if not together:  # several workers ask the same rows again, and at once
                    check_again(self.name, ask, first, self.kind, eps)
                second, to_the_bit = check_rows(self.name, ask, first, self.kind, eps, self.mixing_cause())
            except ModelError:
                check_again(self.name, ask, first, self.kind, eps)  # randomness isn't to pass for mixed rows
                raise
            check_kept(self.name, ask_in, (first, second), self.kind, eps)
            copies.check_order(second)
            if together:
                check_draws(self.name, ask, first, generator)
                check_together(self.name, ask, (first, second), self.kind, eps)
            if opened.check is not None:
                opened.check(lending.idle)
            if eps > torch.finfo(torch.float32).eps:
                self._check_rows_finely(opened.numerics, first.rows, device, "float32")
            # A function may compute in float32 whatever it is given; a module is made to compute in float64.
            elif not to_the_bit and eps == torch.finfo(torch.float32).eps and self.differentiable:
                self._check_rows_finely(opened.numerics, first.rows, device, "float64")
        return Prepared(
            self.name,
            opened.numerics.drawn_on(opened.device),
            input_shape,
            classes,
            self.kind,
            lending,
            self,
            opened.device,
        )

    def opened(self, numerics: Numerics, input_shape: tuple[int, ...], device: str) -> Opened:
        """A route opened in the model's turn; called in a worker."""
        with self.turn():
            return self.open_route(numerics, input_shape, device)

    def equal_copies(self, opened: Opened, input_shape: tuple[int, ...]) -> EqualCopies:
        """What makes the functions of workers."""
        numerics = opened.numerics
        eps = torch.finfo(numerics.coarsest_dtype()).eps
        rows = partial(probe_rows, numerics.layout().chunk, input_shape, numerics.noise_dtype())
        same = partial(same_answers, kind=self.kind, eps=eps)
        return EqualCopies(self.name, opened.make, self.probe, rows, same)

    def _check_rows_finely(
        self, numerics: Numerics, rows: torch.Tensor, device: str, dtype: Literal["float32", "float64"]
    ) -> None:
        """Neighbours that move a score by less than its type rounds it are seen in a finer one, by the same network."""
        finer: torch.dtype = getattr(torch, dtype)
        rows = rows.to(finer)
        try:
            opened = self.open_route(
                replace(numerics, dtype=dtype, route="eager"), tuple(rows.shape[1:]), device
            )
            outputs = opened.make()
            first = Probe(rows, self.probe(outputs, rows))
        except ModelError:  # it may be made for its own type alone
            return
        if finer == torch.float64 and first.answers.dtype != finer:
            return  # it computes as it did before
        eps = torch.finfo(finer).eps
        check_rows(
            self.name, lambda batch: self.probe(outputs, batch), first, self.kind, eps, self.mixing_cause()
        )

    def turn(self) -> AbstractContextManager[None]:
        """What is held while the model is asked: one caller at a time in the process, where it can't have more."""
        return turn(thread_safe=self.most_workers is None)

    def mixing_cause(self) -> str:
        """What usually makes a model of this make answer a row by the rest of its batch."""
        return "statistics of the batch (a layer in training mode?)"

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs of another shape than the model says it takes."""
        if self.input_shape is not None and tuple(input_shape) != self.input_shape:
            raise ModelError(
                f"{self.name} takes inputs of shape {self.input_shape}, got {tuple(input_shape)}"
            )

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
            raise ModelError(
                f"{self.name} returned {found} scores a row, but names {len(self.class_names)} classes"
            )
        return found

    def probe(self, outputs: Outputs, rows: torch.Tensor) -> torch.Tensor:
        """Evaluate the model once; an error says what is wrong."""
        return self._evaluated(outputs, rows.clone())  # the model may write to its input

    def _evaluated(self, outputs: Outputs, rows: torch.Tensor) -> torch.Tensor:
        try:
            answer = outputs(rows)
        except ModelError:
            raise
        # Foreign code: what it raises is reported as the model's failure.
        except (Exception, SystemExit) as error:
            reason = shorten(f"{type(error).__name__}: {error}".splitlines()[0], _REASON, placeholder=" …")
            raise ModelError(
                f"{self.name} fails on a batch of shape {tuple(rows.shape)} ({reason}). "
                f"Check the input shape; {self.remedy}"
            ) from error
        check_answers(self.name, answer, len(rows))
        return answer.clone()


def check_answers(name: str, answers: object, rows: int) -> None:
    """Refuse anything but a tensor of real numbers with an answer for every row; asked after each pass."""
    if not isinstance(answers, torch.Tensor):
        raise ModelError(
            f"{name} returned a {type(answers).__name__}, not one tensor: wrap it so that it returns its scores alone"
        )
    if answers.is_complex():
        raise ModelError(f"{name} returned {answers.dtype}: votes are decided by real numbers")
    if answers.ndim == 0 or answers.shape[0] != rows:
        raise ModelError(
            f"{name} returned shape {tuple(answers.shape)} for {rows} rows; expected one answer a row"
        )
