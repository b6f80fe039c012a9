"""Train any classifier of tables on masked, noisy copies of its rows, so that it can vote under :class:`Hybrid` noise.

Masks are missing values where the classifier has a use for these; else categories become indicators, which a mask sets
to 0 alike. The classifier then takes arrays, and a batch of votes needs no DataFrame.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.perturb.hybrid import Hybrid
from smoothcert.registry import check_name

Encoding = Literal["auto", "codes", "indicators", "table"]
"""What a classifier is given of a row. ``codes``: numbers as they are, codes of categories, NaN for a mask.
``indicators``: numbers scaled to variance 1, and a 0 or 1 for each category, all 0 for a mask. ``table``: a DataFrame
in which masks are missing values. ``auto``: codes for gradient boosting that knows categories, a table for pipelines,
else indicators."""

_MOST_CODES = 254
"""Categories of a column that scikit-learn's gradient boosting takes as such."""


class MaskedEstimator:
    """A classifier of masked rows, with the noise that it was trained for in ``smoothcert_noise_``.

    ``predict`` and ``predict_proba`` take what the noise does: DataFrames, rows by name, and arrays of codes in which
    a mask is NaN. Pickle it like any estimator.
    """

    def __init__(self, estimator: Any, noise: Hybrid, encoding: Encoding, rows: NDArray[np.float64]) -> None:
        self.estimator_ = estimator
        self.smoothcert_noise_ = noise
        self.encoding = encoding
        self.n_features_in_ = len(noise.columns.names)
        numbers = rows[:, list(noise.free)]
        spread = numbers.std(axis=0)
        self._center, self._spread = numbers.mean(axis=0), np.where(spread > 0, spread, 1.0)
        counts = [_categories_in(noise, rows, place) for place in noise.columns.categorical]
        self._offsets = np.cumsum([len(noise.free), *counts])
        self._counts = np.array(counts)

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, as the classifier inside has them."""
        return np.asarray(self.estimator_.classes_)

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels."""
        return np.asarray(self.estimator_.predict(self.encoded(X)))

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the classes."""
        return np.asarray(self.estimator_.predict_proba(self.encoded(X)))

    def score(self, X: Any, y: ArrayLike) -> float:
        """The share of rows that :meth:`predict` gets right."""
        return float(np.mean(self.predict(X).reshape(-1) == np.asarray(y)))

    def __repr__(self) -> str:
        """The classifier inside, and how it is given rows."""
        return f"MaskedEstimator({self.estimator_!r}, encoding={self.encoding!r})"

    def encoded(self, X: Any) -> Any:
        """What the classifier inside is given of these rows."""
        noise = self.smoothcert_noise_
        rows = np.asarray(noise.encoded(X), dtype=np.float64)
        if self.encoding == "table":
            return noise.columns.table(rows)
        if self.encoding == "codes":
            return rows
        made = np.zeros((len(rows), int(self._offsets[-1])))
        made[:, : len(noise.free)] = (rows[:, list(noise.free)] - self._center) / self._spread
        codes = rows[:, list(noise.columns.categorical)]
        known = (codes >= 0) & (codes < self._counts)  # not masks, which are NaN, nor values never seen
        at, column = np.nonzero(known)
        made[at, self._offsets[column] + codes[at, column].astype(np.intp)] = 1.0
        return made


def fit_masked(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    noise: Hybrid | None = None,
    *,
    sigma: float | Sequence[float] = 0.25,
    beta: float = 0.85,
    categorical: Sequence[str | int] | None = None,
    copies: int = 10,
    encoding: Encoding = "auto",
    seed: int = 0,
) -> MaskedEstimator:
    """A copy of ``estimator`` fitted to ``copies`` masked, noisy copies of every row of a table.

    Without a ``noise``, it is that of :meth:`Hybrid.of`: ``sigma`` in standard deviations of each number, and
    categories masked with probability ``beta``. Certify with the same noise: a classifier that never saw masks abstains
    nearly everywhere.

    Parameters
    ----------
    estimator
        scikit-learn's classifiers and pipelines, XGBoost's, LightGBM's and CatBoost's, or whatever has ``fit``,
        ``predict`` and ``classes_``. It is not fitted itself.
    X
        A DataFrame, or an array of rows whose ``categorical`` columns hold codes.
    y
        The class of each row.
    noise
        The noise to train for.
    sigma
        Noise on numbers, in standard deviations of each; one for all of them or one for each.
    beta
        Probability of a mask.
    categorical
        Columns of categories; by default those of texts, pandas' categories and truths.
    copies
        How often each row is shown, each time with fresh masks and noise.
    encoding
        What the classifier is given of a row.
    seed
        Of masks and noise.
    """
    check_count("copies", copies)
    check_name("encoding", encoding, get_args(Encoding))
    if not hasattr(estimator, "fit"):
        raise InvalidValueError(
            f"estimator must have fit and predict, got {type(estimator).__name__}: give one like scikit-learn's"
        )
    noise = noise or Hybrid.of(X, sigma, beta, categorical)
    rows, labels = np.asarray(noise.encoded(X), dtype=np.float64), np.asarray(y)
    if labels.shape != (len(rows),):
        raise InvalidValueError(f"y must hold a label for each of {len(rows)} rows, got shape {labels.shape}")
    if encoding == "auto":
        encoding = _encoding_for(estimator, noise, rows)
    made = MaskedEstimator(copy.deepcopy(estimator), noise, encoding, rows)
    noisy = noise.sample(np.random.default_rng(seed), np.tile(rows, (copies, 1)))
    options = _told_of_categories(made) if encoding == "codes" else {}
    made.estimator_.fit(made.encoded(noisy), np.tile(labels, copies), **options)
    return made


def _encoding_for(estimator: Any, noise: Hybrid, rows: NDArray[np.float64]) -> Encoding:
    if hasattr(estimator, "steps"):
        return "table"
    most = max(_categories_in(noise, rows, place) for place in noise.columns.categorical)
    kind = type(estimator).__name__
    knows = kind in ("XGBClassifier", "LGBMClassifier") or (
        kind == "HistGradientBoostingClassifier" and most <= _MOST_CODES
    )
    return "codes" if knows else "indicators"


def _told_of_categories(made: MaskedEstimator) -> dict[str, Any]:
    """Say which columns are categories in each library's own way, as a parameter or as an option of ``fit``."""
    inside, columns = made.estimator_, made.smoothcert_noise_.columns
    places, kind = list(columns.categorical), type(inside).__name__
    if kind == "HistGradientBoostingClassifier":
        inside.set_params(categorical_features=places)
    elif kind == "XGBClassifier":
        types = ["c" if place in places else "q" for place in range(len(columns.names))]
        inside.set_params(enable_categorical=True, feature_types=types)
    elif kind == "LGBMClassifier":
        return {"categorical_feature": places}
    return {}


def _categories_in(noise: Hybrid, rows: NDArray[np.float64], place: int) -> int:
    """How many there are: as stated, and one for values that aren't; else as many as codes in these rows say."""
    stated = noise.columns.categories[noise.columns.names[place]]
    if stated:
        return len(stated) + 1
    return int(np.nanmax(rows[:, place], initial=-1.0)) + 1
