"""PREDICT and CERTIFY for arrays as users have them, made of PREDICT and CERTIFY for (index, input) pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.certifications import Certifications
from smoothcert.smoothing.inputs import as_array, class_numbers, naming_rows, numbered_inputs
from smoothcert.smoothing.progress import with_progress

Inputs = Iterable[tuple[int, NDArray[Any]]]
"""(index, input) pairs; an index names the input's random streams."""
OnVotes = Callable[[int], None]
"""Called with the number of votes just counted."""
Labels = Callable[[int], int]
"""The label that belongs to an index."""


class ArrayInterface(ABC):
    """One input or a batch of them in, one answer or as many out."""

    @property
    @abstractmethod
    def class_names(self) -> tuple[Any, ...] | None:
        """What the model calls its classes, in the order of their numbers here."""

    @abstractmethod
    def split(self, x: ArrayLike) -> tuple[NDArray[Any], bool]:
        """Inputs as a batch, and whether ``x`` was one of them alone."""

    def for_inputs(self, x: Any) -> tuple[ArrayInterface, Any]:
        """What votes on these inputs, and the inputs as it takes them."""
        return self, x

    @abstractmethod
    def certify_each(
        self, inputs: Inputs, on_votes: OnVotes | None = None, labels: Labels | None = None
    ) -> Iterator[Certification]:
        """CERTIFY for (index, input) pairs."""

    @abstractmethod
    def predict_each(
        self,
        inputs: Inputs,
        n: int = 1000,
        alpha: float | None = None,
        on_votes: OnVotes | None = None,
        until_decided: int | None = None,
    ) -> Iterator[Prediction]:
        """PREDICT for (index, input) pairs."""

    def certify(
        self,
        x: ArrayLike,
        index: int | None = None,
        labels: ArrayLike | None = None,
        *,
        progress: bool = False,
    ) -> Certification | Certifications:
        """Certify one input, or each input of a batch: then a list comes back, which has columns as well.

        Inputs are arrays, tensors, tables, or a torch ``DataLoader`` (whose targets aren't looked at). ``progress``
        shows a bar.

        One input is told from a batch by ``input_shape`` where it is known (given, or read from the model);
        otherwise arrays of 1 or 3 dimensions are one input, of 2 or 4 a batch. ``index`` names the random
        stream (of the first input); by default it follows from the input's values, so equal inputs get equal
        answers and different ones independent noise. ``labels``, as the model calls its classes, are for plans that
        stop at wrong ones.
        """
        voting, x = self.for_inputs(x)
        inputs, single = voting.split(x)
        answers = voting.certify_batch(inputs, index, labels, progress=progress)
        return answers[0] if single else answers

    def certify_batch(
        self,
        inputs: ArrayLike,
        index: int | None = None,
        labels: ArrayLike | None = None,
        *,
        progress: bool = False,
    ) -> Certifications:
        """Certify every input of a batch, in order."""
        numbered = numbered_inputs(as_array(inputs), index)
        label_of = (
            None if labels is None else labels_by_index([i for i, _ in numbered], labels, self.class_names)
        )
        with naming_rows(numbered, index):
            answers = self.certify_each(numbered, labels=label_of)
            if progress:
                answers = with_progress(answers, len(numbered))
            found = {answer.index: answer for answer in answers}
        return Certifications(
            (replace(found[i], row=row) for row, (i, _) in enumerate(numbered)), self.class_names
        )

    def predict(
        self,
        x: ArrayLike,
        n: int = 1000,
        alpha: float | None = None,
        index: int | None = None,
        *,
        until_decided: int | None = None,
    ) -> Prediction | list[Prediction]:
        """PREDICT for one input or a batch (see :meth:`certify`) with n votes at level alpha (the plan's).

        The test is of one number of votes: asking again with more of them until it answers is wrong more often than
        alpha. ``until_decided`` is made for that: votes are cast until an anytime-valid test answers, at most so many,
        and the answer is wrong with probability at most alpha whenever it comes. ``n`` takes no part then.

        It is about the same smoothed classifier as :meth:`certify`: where the plan's bound has soft votes, so has this.
        """
        voting, x = self.for_inputs(x)
        inputs, single = voting.split(x)
        numbered = numbered_inputs(inputs, index)
        with naming_rows(numbered, index):
            found = {
                answer.index: answer
                for answer in voting.predict_each(numbered, n, alpha, None, until_decided)
            }
        answers = [replace(found[i], row=row) for row, (i, _) in enumerate(numbered)]
        return answers[0] if single else answers


def labels_by_index(indices: list[int], labels: ArrayLike, names: tuple[Any, ...] | None) -> Labels:
    """Numbers of labels by index, as many as inputs; labels go by name where the model's classes have names."""
    given = class_numbers(labels, names)
    numbers = [number for _, number in given if number is not None]
    if not len(given) == len(numbers) == len(indices):
        known = "whole numbers" if names is None else f"of the classes {', '.join(map(repr, names[:8]))}"
        raise InvalidValueError(f"labels must be {len(indices)} {known}, got {labels!r}")
    found: dict[int, int] = {}
    for index, value in zip(indices, numbers):
        if found.setdefault(index, value) != value:
            raise InvalidValueError(
                f"two equal inputs have the labels {found[index]} and {value}: give one index="
            )
    return found.__getitem__
