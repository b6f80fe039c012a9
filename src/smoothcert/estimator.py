"""A scikit-learn estimator whose ``predict`` is the smoothed classifier of another."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError, MissingExtraError, check_count
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.base import DEFAULT_NOISE, Noise
from smoothcert.smoothing.answers import Certifications, Prediction
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.inputs import held_mask, noise_on_columns
from smoothcert.smoothing.plan import CertifyPlan

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.metrics import accuracy_score
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError("scikit-learn 1.6 or later", "sklearn", "smoothcert.estimator") from None

__all__ = ["SmoothedEstimator"]


class SmoothedEstimator(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """g(x) = the class that a fitted copy of ``estimator`` most often gives to x + noise.

    :meth:`certify` gives, with probability at least 1−``alpha`` each, the answers and how far they hold;
    :meth:`predict` is PREDICT with ``votes`` votes at the same level, input by input. Where that abstains it answers
    ``abstain_label``; by default the class with the most votes, for which nothing is promised.

    Parameters
    ----------
    estimator
        A classifier of features that are numbers. A :class:`sklearn.frozen.FrozenEstimator` is used as it was fitted.
    sigma
        Standard deviation of the noise, in the units of the features; or one for each feature; or one for each of some,
        ``{"age": 5, "income": 5000}``: features without one are held.
    noise
        ``gaussian`` (certifies ℓ2 balls) or ``uniform`` (ℓ1).
    copies
        ``fit`` shows the estimator every row so many times, each with fresh noise, so that it learns to stand it; 0:
        once, as it is.
    votes
        Votes of a prediction.
    n0
        Votes that choose the class of a certificate.
    n
        Fresh votes that bound its probability.
    alpha
        The probability that the certificate is wrong.
    hold
        Features without noise (numbers or names): categories, say. Certificates are about changes of the others.
    abstain_label
        What ``predict`` answers where the votes are too close; None for the class with the most.
    random_state
        Of the noise in ``fit`` and the seed of all votes. None takes one from the operating system: who knows the seed
        can look for inputs that it flatters.

    Attributes
    ----------
    estimator_
        The fitted copy.
    classes_
        Its classes; class c of a certificate is ``classes_[c]``.
    smoothed_
        The :class:`~smoothcert.SmoothedClassifier` that votes, with everything else that it can do.
    seed_
        The seed of its votes.
    plan_, held_
        What is certified, as it was when it was fitted, and which features have no noise (None: all have).
    n_features_in_, feature_names_in_
        As in every estimator.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        sigma: float | ArrayLike | Mapping[str, float] | Mapping[int, float] = 0.25,
        noise: str = DEFAULT_NOISE,
        copies: int = 10,
        votes: int = 1000,
        n0: int = 100,
        n: int = 10_000,
        alpha: float = 0.001,
        hold: ArrayLike | None = None,
        abstain_label: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.sigma = sigma
        self.noise = noise
        self.copies = copies
        self.votes = votes
        self.n0 = n0
        self.n = n
        self.alpha = alpha
        self.hold = hold
        self.abstain_label = abstain_label
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> SmoothedEstimator:
        """Fit a copy of the estimator to noisy copies of the rows, and smooth it."""
        check_count("copies", self.copies, least=0)
        check_count("votes", self.votes)
        rows, y = validate_data(self, X, y, dtype="numeric")
        check_classification_targets(y)
        if len(np.unique(y)) < 2:
            raise InvalidValueError(
                f"a classifier needs two classes or more, y has one class: {y.tolist()[0]!r}"
            )
        self.seed_ = secrets.randbits(63)
        if self.random_state is not None:
            self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        names, shape = getattr(self, "feature_names_in_", None), (self.n_features_in_,)
        noise, hold = noise_on_columns(self.noise, self.sigma, self.hold, shape, names)
        self.held_ = None if hold is None else held_mask(hold, shape, names)
        # Features in units of their own may be large beside σ, and must be exact.
        numerics = Numerics(dtype="float64")
        votes: dict[str, Any] = {"n0": self.n0, "n": self.n, "alpha": self.alpha, "seed": self.seed_}
        self.plan_ = CertifyPlan(noise, **votes, numerics=numerics)
        noisy = self._with_noise(np.asarray(rows, dtype=np.float64), noise)
        self.estimator_ = clone(self.estimator)
        self.estimator_.fit(self._as_given(noisy), np.tile(y, max(1, self.copies)))
        self.classes_ = np.asarray(self.estimator_.classes_)
        if any(self.abstain_label == name for name in self.classes_.tolist()):
            raise InvalidValueError(f"abstain_label={self.abstain_label!r} is a class: choose another")
        self.smoothed_ = self._smoothed()
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """PREDICT for every row; where it abstains, as ``abstain_label`` says."""
        answers = self._answers(X)
        labels = self.classes_[[_most_voted(answer) for answer in answers]]
        if self.abstain_label is None:
            return np.asarray(labels)
        pairs = zip(answers, labels.tolist())
        told = [self.abstain_label if answer.abstained else label for answer, label in pairs]
        # NumPy would make text of a number among texts.
        mixed = isinstance(self.abstain_label, str) != (labels.dtype.kind in "US")
        return np.array(told, dtype=object if mixed or labels.dtype == object else None)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows that :meth:`predict` gets right; an abstention is wrong where it has a label of its own."""
        if self.abstain_label is None:
            return float(super().score(X, y, sample_weight))
        answers = self._answers(X)
        labels = self.classes_[[_most_voted(answer) for answer in answers]]
        weights = np.ones(len(answers)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        answered = np.array([not answer.abstained for answer in answers])
        if not (weights * answered).any():
            return 0.0
        # Not by comparing what predict returns: scikit-learn can't compare text with numbers.
        right = accuracy_score(y, labels, normalize=False, sample_weight=weights * answered)
        return float(right / weights.sum())

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The share of each class in the votes of :meth:`predict`: what was counted, no bound of anything."""
        return np.array([answer.tally.counts for answer in self._answers(X)], dtype=np.float64) / self.votes

    def abstains(self, X: Any) -> NDArray[np.bool_]:
        """Where PREDICT finds the votes too close to tell the smoothed classifier's class."""
        return np.array([answer.abstained for answer in self._answers(X)], dtype=np.bool_)

    def certify(self, X: Any) -> Certifications:
        """CERTIFY for every row: see :class:`~smoothcert.Certifications`; ``acr`` and ``accuracy`` take ``y`` as is."""
        rows = self._checked(X)  # where it is not fitted, says so
        return self.smoothed_.certify(rows)

    def __getstate__(self) -> dict[str, Any]:
        # Threads, locks and functions of a voting classifier can't be pickled, and follow from the rest.
        return {key: value for key, value in super().__getstate__().items() if key != "smoothed_"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "estimator_"):
            self.smoothed_ = self._smoothed()

    def _smoothed(self) -> SmoothedClassifier:
        shape = (self.n_features_in_,)
        return SmoothedClassifier(self.estimator_, self.plan_, hold=self.held_, input_shape=shape)

    def _with_noise(self, rows: NDArray[np.float64], noise: Noise) -> NDArray[np.float64]:
        free = np.ones(rows.shape[1], dtype=bool) if self.held_ is None else ~self.held_
        noise.check_shape((int(free.sum()),))
        if self.copies == 0:
            return rows
        noisy = np.tile(rows, (self.copies, 1))
        drawn = noise.sample(np.random.default_rng(self.seed_), noisy.shape)
        noisy[:, free] += drawn[:, free] * noise.scales()
        return noisy

    def _as_given(self, rows: NDArray[np.float64]) -> Any:
        """Rows as a table where the estimator is given tables: some look their columns up by name."""
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return rows
        try:
            from pandas import DataFrame  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            return rows
        return DataFrame(rows, columns=names)

    def _checked(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, dtype="numeric"), dtype=np.float64)

    def _answers(self, X: Any) -> list[Prediction]:
        rows = self._checked(X)
        return self.smoothed_.predict(rows, n=self.votes)


def _most_voted(answer: Prediction) -> int:
    return int(np.argmax(answer.tally.counts))
