"""Any Python function from a batch of arrays to labels, scores or probabilities."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from smoothcert.errors import InvalidValueError, ModelError, check_count
from smoothcert.registry import unknown_name
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sampling.models.base import BaseClassifier, probe_rows
from smoothcert.sampling.numerics import Numerics, rows_within

_BLOCK = 64  # votes that share a random state
_KINDS = ["labels", "probabilities", "scores"]


class FunctionClassifier(BaseClassifier):
    """``function(batch)`` with ``batch`` a NumPy array of shape (rows, *input shape).

    ``outputs`` says what comes back: "labels" (integers 0..classes−1, one a row), "scores" (higher is better)
    or "probabilities" (rows that sum to one); only the last two can be soft votes.
    """

    def __init__(
        self,
        function: Callable[[np.ndarray[Any, np.dtype[Any]]], Any],
        outputs: OutputKind = "scores",
        classes: int | None = None,
        name: str | None = None,
        input_shape: tuple[int, ...] | None = None,
    ) -> None:
        if outputs not in _KINDS:
            raise unknown_name("kind of output", outputs, _KINDS)
        if outputs == "labels":
            if classes is None:
                raise InvalidValueError("a model that returns labels needs classes=, the number of classes")
            check_count("classes", classes, least=2)
        self.function = function
        self.kind = outputs
        self.name = name or str(getattr(function, "__qualname__", type(function).__name__))
        self.input_shape = input_shape
        self._classes = classes

    def fingerprint(self) -> str:
        """Code can't be hashed: the name and the answers to fixed probe inputs stand for the function."""
        digest = hashlib.sha256(f"{self.name} {self.kind} {self._classes}".encode())
        if self.input_shape is not None:
            rows = probe_rows(64, self.input_shape, torch.float32)
            for scaled in (rows, 10 * rows - 5, 100 * rows):
                digest.update(np.round(np.asarray(self._call(scaled), dtype=np.float64), 6).tobytes())
        return digest.hexdigest()

    def open_route(
        self,
        numerics: Numerics,
        input_shape: tuple[int, ...],
        device: str,  # noqa: ARG002  (a function runs where it runs)
    ) -> tuple[Numerics, Callable[[torch.Tensor], torch.Tensor]]:
        """The function is its own route."""
        if numerics.route not in ("auto", "eager"):
            raise ModelError(f"{self.name}: a Python function has no route {numerics.route!r}; use auto")
        if self.input_shape is None:
            self.input_shape = tuple(input_shape)
        dtype = numerics.torch_dtype()

        def outputs(batch: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(self._call(batch.to(dtype))))

        return numerics.settled("eager", rows_within(4 * math.prod(input_shape)), _BLOCK), outputs

    def count_classes(self, outputs: torch.Tensor) -> int:
        """As given, or as many as there are scores in a row."""
        if self.kind == "labels":
            assert self._classes is not None  # refused by __init__ otherwise
            return self._classes
        found = super().count_classes(outputs)
        if self._classes is not None and found != self._classes:
            raise ModelError(f"{self.name} returned {found} scores a row, but classes={self._classes}")
        return found

    def _call(self, batch: torch.Tensor) -> np.ndarray[Any, np.dtype[Any]]:
        answer = self.function(batch.numpy())
        if isinstance(answer, torch.Tensor):
            answer = answer.detach().cpu().numpy()
        return np.asarray(answer)


class EstimatorClassifier(FunctionClassifier):
    """A fitted scikit-learn style classifier: hard votes are its ``predict``, soft ones its ``predict_proba``.

    Class c of a certificate is ``estimator.classes_[c]``.
    """

    def __init__(self, estimator: Any, soft: bool) -> None:
        labels = np.asarray(estimator.classes_)
        if soft and not hasattr(estimator, "predict_proba"):
            raise ModelError(
                f"{type(estimator).__name__} has no predict_proba: soft votes need probabilities"
            )

        def predicted(batch: np.ndarray[Any, np.dtype[Any]]) -> Any:
            return np.searchsorted(labels, estimator.predict(batch)).astype(np.int64)

        features = getattr(estimator, "n_features_in_", None)
        super().__init__(
            estimator.predict_proba if soft else predicted,
            outputs="probabilities" if soft else "labels",
            classes=len(labels),
            name=type(estimator).__name__,
            input_shape=None if features is None else (int(features),),
        )


def is_estimator(model: object) -> bool:
    """Whether a model follows scikit-learn's conventions for fitted classifiers."""
    return hasattr(model, "predict") and isinstance(getattr(model, "classes_", None), (np.ndarray, Sequence))
