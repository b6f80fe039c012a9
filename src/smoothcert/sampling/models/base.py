"""The base classifier as the engine sees it: rows in, labels or scores out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from textwrap import shorten
from types import MappingProxyType
from typing import Any, Literal

import torch

from smoothcert.errors import ModelError
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sampling.execution import check_device
from smoothcert.sampling.models.copies import Lending
from smoothcert.sampling.models.equal_copies import EqualCopies
from smoothcert.sampling.models.prepared import Opened, Prepared, check_answers
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
_WITHOUT_GRADIENTS = ("does not require grad", "inference tensor")  # what torch says of them
ACTIVATION_FACTOR = 8  # how much larger than its input a network's largest activation tends to be


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
                with lending.borrowed(), lending.borrowed():
                    pass  # both copies are made, and compared, before passes can meet
                check_together(self.name, ask, (first, second), self.kind, eps)
            if opened.check is not None:
                opened.check(lending.idle)
            self._check_in_finer_type(opened.numerics, first.rows, device, to_the_bit)
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

    def check_finely(self, prepared: Prepared, rows: torch.Tensor) -> None:
        """Refuse a model whose rows are moved by others by less than its type rounds; called in a worker."""
        with self.turn():
            self._check_in_finer_type(prepared.numerics, rows, prepared.device, to_the_bit=False)

    def _check_in_finer_type(
        self, numerics: Numerics, rows: torch.Tensor, device: str, to_the_bit: bool
    ) -> None:
        eps = torch.finfo(numerics.coarsest_dtype()).eps
        if eps > torch.finfo(torch.float32).eps:
            self._check_rows_finely(numerics, rows, device, "float32")
        # A function may compute in float32 whatever it is given; a module is made to compute in float64.
        elif not to_the_bit and eps == torch.finfo(torch.float32).eps and self.differentiable:
            self._check_rows_finely(numerics, rows, device, "float64")

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
            raise ModelError(
                f"{self.name} returned a tensor of torch's device without numbers (meta): load its weights"
            )
        return answer.clone()
