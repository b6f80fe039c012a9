"""Any Python function from a batch of arrays to labels, scores or probabilities, and fitted estimators."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds.base import VoteKind
from smoothcert.errors import InvalidValueError, ModelError, UnreachableModelError, check_count
from smoothcert.models.base import BaseClassifier, Opened
from smoothcert.models.numerics import Numerics, check_own_types, rows_within
from smoothcert.models.outputs import OutputKind, answer_bytes, probe_rows
from smoothcert.models.wrappers import as_whole, check_exact, two_columns, whole_type
from smoothcert.perturb.hybrid import noise_of_estimator
from smoothcert.registry import check_name


def is_masked(x: object) -> bool:
    """Whether NumPy would unmask something in it: its own values, or those of arrays in a list, however deep."""
    if np.ma.is_masked(x):
        return True
    inside = x if isinstance(x, Sequence) and not isinstance(x, str | bytes) else ()
    return any(is_masked(one) for one in inside if isinstance(one, Sequence | np.ma.MaskedArray))


_BLOCK = 64  # votes that share a random state
# Where rows cost less than the bookkeeping of a pass, passes and blocks are longer; what a row costs is read off the
# weights and never timed, because the votes depend on it.
_CHEAP_BLOCK, _CHEAP_CHUNK = 1024, 4096
_CHEAP_WEIGHTS = 1 << 14
_SHORT_TREE = 32  # questions
_PROBED = 64  # rows of a probe whose answers are hashed, at most
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # seconds before a failed call is repeated; each pause doubles
# Errors of code and values, which come back when the same call is repeated.
_MISTAKES = (
    *(TypeError, ValueError, LookupError, ArithmeticError, AttributeError, NameError, AssertionError),
    *(ImportError, NotImplementedError),
)
_KINDS = ["labels", "probabilities", "scores"]


class FunctionClassifier(BaseClassifier):
    """``function(batch)`` with ``batch`` a NumPy array of shape (rows, *input shape).

    ``outputs`` says what comes back: "labels" (integers 0..classes−1, one a row), "scores" (higher is better)
    or "probabilities" (rows that sum to one); only the last two can be soft votes. One worker calls the function,
    never two threads at once, unless it is declared ``thread_safe``. One number a row is the logit, or the probability,
    of the second of two classes if that is declared: ``classes=2`` and ``outputs``. With ``input_dtype`` the batch
    holds whole numbers: see :func:`~smoothcert.models.wrappers.as_whole`.
    """

    def __init__(
        self,
        function: Callable[[np.ndarray[Any, np.dtype[Any]]], Any],
        outputs: OutputKind | None = None,
        classes: int | None = None,
        name: str | None = None,
        input_shape: tuple[int, ...] | None = None,
        thread_safe: bool | None = None,
        *,
        input_dtype: str | None = None,
        retries: int = 0,
    ) -> None:
        check_count("retries", retries, least=0)
        self._one_number = classes == 2 and outputs in ("scores", "probabilities")
        outputs = outputs or "scores"
        check_name("kind of output", outputs, _KINDS)
        if outputs == "labels":
            if classes is None:
                raise InvalidValueError("a model that returns labels needs classes=, the number of classes")
            check_count("classes", classes, least=2)
        self.function, self._retries = function, retries
        self.kind = outputs
        self.name = name or str(getattr(function, "__qualname__", type(function).__name__))
        self.input_shape = input_shape
        self.thread_safe = bool(thread_safe)
        self.classes = classes
        self._input_dtype = whole_type(input_dtype)
        self._declared = "" if input_dtype is None else f" {input_dtype}"

    def identity(self) -> bytes:
        """Code can't be hashed: the name stands for the function, beside its answers."""
        return f"{self.name} {self.classes}{self._declared}".encode()

    def answers(self, input_shape: tuple[int, ...]) -> bytes:
        """Answers to probes at several scales, since the units of the inputs are unknown."""
        rows = probe_rows(min(_PROBED, rows_within(4 * math.prod(input_shape))), input_shape, torch.float32)
        found = [answer_bytes(self.probe(self._outputs, rows), self.kind, fine=False)]
        for batch in (2 * rows - 1, 10 * rows - 5, 100 * rows, 10_000 * rows):
            try:
                found.append(answer_bytes(self.probe(self._outputs, batch), self.kind, fine=False))
            except UnreachableModelError:
                raise
            except ModelError:  # a function may refuse what is out of its range
                found.append(b"refused")
        return b"".join(found)

    def open_route(
        self,
        numerics: Numerics,
        input_shape: tuple[int, ...],
        device: str,  # noqa: ARG002  (a function chooses its own device)
    ) -> Opened:
        """The function is its own route."""
        if numerics.route not in ("auto", "eager"):
            raise ModelError(f"{self.name}: a Python function has no route {numerics.route!r}; use auto")
        check_own_types(self.name, numerics)
        dtype = numerics.torch_dtype()
        check_exact(self.name, self._input_dtype, dtype)
        if dtype == torch.bfloat16:
            raise ModelError(f"{self.name}: functions get NumPy arrays, which have no bfloat16; drop --dtype")

        def outputs(batch: torch.Tensor) -> torch.Tensor:
            return self._outputs(batch.to(dtype))

        settled = self._settled(numerics, rows_within(4 * math.prod(input_shape)))
        return Opened(settled, outputs, thread_safe=bool(self.thread_safe))

    def _settled(self, numerics: Numerics, rows: int) -> Numerics:
        return numerics.settled("eager", rows, _BLOCK)

    def count_classes(self, outputs: torch.Tensor) -> int:
        """As given, or as many as there are scores in a row."""
        if self.kind == "labels":
            assert self.classes is not None  # refused by __init__ otherwise
            return self.classes
        return super().count_classes(outputs)

    def _outputs(self, batch: torch.Tensor) -> torch.Tensor:
        if self._input_dtype is not None:
            batch = as_whole(batch, self._input_dtype)
        answers = self._as_tensor(self._called(batch.numpy()), len(batch))
        if self.kind == "labels" and answers.ndim == 2 and answers.shape[1] == 1:
            return answers[:, 0]  # a column of labels, as some libraries return them
        return two_columns(answers, self.kind) if self._one_number else answers

    def _called(self, batch: NDArray[Any]) -> Any:
        """The function's answer; what failed and may succeed another time is repeated as often as allowed."""
        failed = 0
        while True:
            try:
                return self.function(batch.copy() if self._retries else batch)  # it may write to its batch
            except OSError as error:  # before mistakes: some libraries' errors are both
                failure: Exception = error
            except (ModelError, *_MISTAKES):
                raise
            except Exception as error:
                if not self._retries:
                    raise
                failure = error
            failed += 1
            if failed > self._retries:
                raise UnreachableModelError(
                    f"{self.name} failed {failed} times in a row ({type(failure).__name__}: {failure}): rerun to "
                    "resume a run, and raise retries (--retries) to repeat failed calls"
                ) from failure
            time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (failed - 1)))

    def _as_tensor(self, answer: Any, rows: int) -> torch.Tensor:
        if isinstance(answer, torch.Tensor):
            return answer.detach().cpu()
        array = np.ascontiguousarray(_unmasked(self.name, answer))
        if array.ndim == 0 or np.ndim(answer) == 0:
            raise ModelError(f"{self.name} returned {answer!r} for {rows} rows; expected one answer a row")
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise ModelError(f"{self.name} returned {array.dtype}: votes are of numbers of up to 64 bits")
        native = array.dtype.isnative
        return torch.from_numpy(array if native else array.astype(array.dtype.newbyteorder("=")))


class EstimatorClassifier(FunctionClassifier):
    """A fitted scikit-learn style classifier: hard votes are its ``predict``, soft ones its ``predict_proba``.

    Class c of a certificate is ``estimator.classes_[c]``. ``outputs="probabilities"`` lets ``predict_proba`` decide
    hard votes as well. In ``columns`` of its tables a row has the place of a value among those given, which are arrays
    in their own types; or they are what makes a table of rows.
    """

    remedy = (
        "scaling belongs into a pipeline. Columns that are categories get no noise, and stay what the model knows, if "
        "they are held: hold=[…] (--hold)"
    )

    def __init__(
        self,
        estimator: Any,
        votes: VoteKind,
        outputs: OutputKind | None = None,
        thread_safe: bool | None = None,
        *,
        input_dtype: str | None = None,
        columns: Mapping[str, Any] | Callable[[NDArray[Any]], Any] | None = None,
    ) -> None:
        name = type(estimator).__name__
        labels = _checked_classes(name, estimator.classes_)
        self.feature_names = _feature_names(estimator)
        given = columns if callable(columns) else _as_fitted(self.feature_names, columns or {})
        self._made = partial(
            EstimatorClassifier, estimator, votes, outputs, thread_safe, input_dtype=input_dtype
        )
        kind: OutputKind = outputs or ("probabilities" if votes == "soft" else "labels")
        if kind == "scores":
            raise InvalidValueError(
                f'{name} is asked for labels or probabilities, not outputs="scores"; give its decision_function'
            )
        if kind == "labels" and votes == "soft":
            raise InvalidValueError('soft votes need outputs="probabilities", got outputs="labels"')
        if kind == "probabilities" and not hasattr(estimator, "predict_proba"):
            raise ModelError(f"{name} has no predict_proba: soft votes need probabilities")

        def predicted(batch: np.ndarray[Any, np.dtype[Any]]) -> NDArray[np.int64]:
            return places_of(name, labels, estimator.predict(given(batch)))

        def shares(batch: np.ndarray[Any, np.dtype[Any]]) -> Any:
            if not np.array_equal(estimator.classes_, labels):  # columns go by their place
                raise ModelError(
                    f"{name} was fitted again and tells {_shown(np.asarray(estimator.classes_))} apart, where it was "
                    f"{_shown(labels)}: smooth it again"
                )
            return estimator.predict_proba(given(batch))

        features = getattr(estimator, "n_features_in_", None)
        super().__init__(
            shares if kind == "probabilities" else predicted,
            outputs=kind,
            classes=len(labels),
            name=name,
            input_shape=None if features is None else (int(features),),
            thread_safe=thread_safe,
            input_dtype=input_dtype,
        )
        self.class_names = tuple(labels.tolist())
        self._graded = _graded(estimator, given)
        self._cheap = _layers(estimator)
        self.trained_for = noise_of_estimator(estimator)
        # A single tree answers a row after few questions; forests ask many. A call costs tables as much as many rows.
        depth = getattr(getattr(_last_step(estimator), "tree_", None), "max_depth", None)
        tables = callable(columns) or self.trained_for is not None
        self._short = tables or (isinstance(depth, int) and depth <= _SHORT_TREE)

    def _settled(self, numerics: Numerics, rows: int) -> Numerics:
        if self._short:
            return numerics.settled("eager", rows, _CHEAP_BLOCK, most=_CHEAP_CHUNK)
        if not 0 < sum(layer.size for layer in self._cheap) <= _CHEAP_WEIGHTS:
            return super()._settled(numerics, rows)
        widest = max(max(layer.shape) for layer in self._cheap)
        return numerics.settled("eager", min(rows, rows_within(8 * widest)), _CHEAP_BLOCK, most=_CHEAP_CHUNK)

    def with_columns(self, columns: Mapping[str, Any] | Callable[[NDArray[Any]], Any]) -> EstimatorClassifier:
        """The same function of rows that have places of these values in these columns of its tables."""
        made = self._made(columns=columns)
        made.declared = self.declared
        return made

    def identity(self) -> bytes:
        """The names of the classes as well, in the order that certificates number them in."""
        return super().identity() + repr(self.class_names).encode()

    def mixing_cause(self) -> str:
        """Estimators have no training mode."""
        return "a step that scales or compares rows by the batch given, instead of what it was fitted to"

    def answers(self, input_shape: tuple[int, ...]) -> bytes:
        """Its confidence as well, which tells apart two fits that give the probes the same labels."""
        found = super().answers(input_shape)
        if self._graded is None:
            return found
        graded = FunctionClassifier(self._graded, name=self.name)
        graded._input_dtype = self._input_dtype
        return found + graded.answers(input_shape)


def _last_step(estimator: Any) -> Any:
    """What decides in a pipeline; any other estimator decides itself."""
    return estimator.steps[-1][1] if isinstance(getattr(estimator, "steps", None), list) else estimator


def _layers(estimator: Any) -> list[NDArray[Any]]:
    """The matrices that a row meets in linear models, perceptrons, naive Bayes, and pipelines that end in one.

    None of any other estimator, which may compare a row with many: neighbours, support vectors.
    """
    last = _last_step(estimator)
    if hasattr(last, "support_vectors_"):
        return []
    found = getattr(last, "coefs_", None) or [getattr(last, name, None) for name in ("coef_", "theta_")]
    return [layer for layer in found if isinstance(layer, np.ndarray) and layer.ndim == 2]


def _feature_names(estimator: Any) -> tuple[str, ...] | None:
    """The columns that an estimator was fitted with, where they had names; CatBoost calls nameless ones 0, 1, …"""
    found = getattr(estimator, "feature_names_in_", None)
    if found is None and isinstance(theirs := getattr(estimator, "feature_names_", None), list):
        found = None if theirs == [str(place) for place in range(len(theirs))] else theirs
    return None if found is None else tuple(str(name) for name in found)


def _as_fitted(names: tuple[str, ...] | None, columns: Mapping[str, Any]) -> Callable[[NDArray[Any]], Any]:
    """Batches as the estimator was fitted: as a pandas DataFrame where its columns have names."""
    if names is None:
        return lambda batch: batch
    try:
        from pandas import DataFrame  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:  # it was fitted to something else with columns; it knows arrays, too
        return lambda batch: batch

    def table(batch: NDArray[Any]) -> Any:
        made = DataFrame(batch, columns=list(names))
        for name, values in columns.items():
            places = batch[:, names.index(name)].astype(np.intp)
            made[name] = values.take(places.clip(0, len(values) - 1))
        return made

    return table


def _graded(
    estimator: Any, given: Callable[[NDArray[Any]], Any]
) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
    """Its probabilities or margins, a row of them for each input; None if it has neither."""
    method = getattr(estimator, "predict_proba", None) or getattr(estimator, "decision_function", None)
    if method is None:
        return None
    return lambda batch: np.asarray(method(given(batch))).reshape(len(batch), -1)


def _unmasked(name: str, answer: Any) -> NDArray[Any]:
    """An answer as an array; refused where it has masked values, by which a model says that it says nothing."""
    found = None if is_masked(answer) else np.asanyarray(answer)
    if found is None or is_masked(found):  # what isn't an array may become a masked one
        raise ModelError(f"{name} returned masked values, which are not votes: fill them in")
    return np.asarray(found)


def places_of(name: str, labels: NDArray[Any], predicted: Any) -> NDArray[np.int64]:
    """The place of each predicted label among ``labels``, whatever their order; one that isn't there is refused."""
    found = _unmasked(name, predicted)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise ModelError(
            f"{name}.predict returned shape {found.shape}, not one label a row: certify one target"
        )
    if found.dtype == labels.dtype and found.dtype.kind in "biufU":  # NaN among them is left to what follows
        order = labels.argsort()
        place = np.minimum(np.searchsorted(labels[order], found), len(labels) - 1)
        if (labels[order][place] == found).all():
            return np.asarray(order[place], dtype=np.int64)
    places = {label: place for place, label in enumerate(labels.tolist())}
    try:
        return np.array([places[label] for label in found.tolist()], dtype=np.int64)
    except (KeyError, TypeError):
        # By comparison: a list or an array can't be looked up.
        unknown = next(label for label in found.tolist() if label not in list(places))
        raise ModelError(f"{name}.predict returned {unknown!r}, its classes_ are {_shown(labels)}") from None


def _checked_classes(name: str, classes: Any) -> NDArray[Any]:
    if any(np.ndim(one) > 0 for one in classes):
        raise ModelError(
            f"{name} predicts {len(classes)} targets at once (classes_ holds the classes of each), and a certificate "
            "is about one of them: fit a classifier for each, or give a function that returns the labels of one"
        )
    labels = np.array(classes)
    if labels.ndim != 1 or len(labels) < 2:
        raise ModelError(f"{name} must tell two classes apart or more, got classes_ of shape {labels.shape}")
    if len(set(labels.tolist())) < len(labels):
        raise ModelError(f"{name} names a class twice: {_shown(labels)}")
    return labels


def _shown(labels: NDArray[Any]) -> str:
    shown = ", ".join(repr(label) for label in labels.tolist()[:8])
    return f"[{shown}{', …' if len(labels) > 8 else ''}]"


def is_estimator(model: object) -> bool:
    """Whether a model follows scikit-learn's conventions for fitted classifiers."""
    return hasattr(model, "predict") and isinstance(getattr(model, "classes_", None), (np.ndarray, Sequence))
