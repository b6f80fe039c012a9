"""Classifiers trained on masked copies: each library in its own way, and what the classifier inside is shown."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

from smoothcert import CertifyPlan, Hybrid, MaskedEstimator, SmoothedClassifier, fit_masked
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.columns import Columns
from smoothcert.regions.changes import ChangeRegion
from smoothcert.smoothing.classifier import UnmaskedModelWarning

from .tables import small_table

sklearn = pytest.importorskip("sklearn", reason="smoothcert[sklearn] is not installed")

FAMILIES = {
    "sklearn.ensemble:HistGradientBoostingClassifier": ({"max_iter": 30}, "codes"),
    "sklearn.ensemble:RandomForestClassifier": ({"n_estimators": 20}, "indicators"),
    "sklearn.linear_model:LogisticRegression": ({}, "indicators"),
    "xgboost:XGBClassifier": ({"n_estimators": 20, "n_jobs": 1}, "codes"),
    "lightgbm:LGBMClassifier": ({"n_estimators": 20, "n_jobs": 1, "verbose": -1}, "codes"),
    "catboost:CatBoostClassifier": (
        {"iterations": 30, "verbose": 0, "thread_count": 1, "allow_writing_files": False},
        "indicators",
    ),
}


def made(where: str, **options: Any) -> Any:
    module, _, name = where.partition(":")
    return getattr(pytest.importorskip(module), name)(**options)


@pytest.mark.parametrize("where", FAMILIES)
def test_each_family_learns_to_vote_under_masks(where: str) -> None:
    options, encoding = FAMILIES[where]
    table, classes = small_table()
    if "XGB" in where:  # which knows whole numbers alone
        classes = (classes == "low").astype(int)
    model = fit_masked(made(where, **options), table, classes, beta=0.6, copies=5)
    assert model.encoding == encoding
    noise = model.smoothcert_noise_
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=UnmaskedModelWarning)
        answers = SmoothedClassifier(model, noise=noise, n=500, seed=0).certify(table[:30])
    right = answers.label == classes[:30]
    assert right.mean() > 0.8
    assert sum(isinstance(one.region, ChangeRegion) and one.region.most_changes >= 1 for one in answers) > 10
    # As a table, as rows by name, and as numbers: the same answers; pickled as well.
    rows = noise.columns.rows(table[:30])
    again = pickle.loads(pickle.dumps(model))
    for given in (table[:30], table[:30].to_dict("records"), rows):
        assert (again.predict(given) == model.predict(rows)).all()
    assert model.score(table, classes) > 0.85


def test_a_mask_and_an_unknown_value_have_no_indicator() -> None:
    columns = Columns(("n", "c"), {"c": ("x", "y")})
    noise = Hybrid(columns, (1.0,), 0.5)
    rows = np.array([[1.0, 0], [3.0, 1], [5.0, np.nan], [3.0, 2]])
    found = MaskedEstimator(None, noise, "indicators", rows).encoded(rows)
    assert found[:, 1:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert found[:, 0].mean() == pytest.approx(0)
    assert found[:, 0].std() == pytest.approx(1)


def test_training_rows_have_masks_and_noise_of_these_shares() -> None:
    seen: list[np.ndarray[Any, Any]] = []

    class Keeps:
        classes_ = np.array([0, 1])

        def fit(self, rows: Any, labels: Any) -> None:
            seen.append(rows)
            assert len(rows) == len(labels) == 2400

    rows = np.column_stack([np.tile([1.0, 3.0], 60), np.tile([0.0, 1, 2], 40)])
    fit_masked(Keeps(), rows, np.tile([0, 1], 60), categorical=[1], beta=0.7, copies=20, encoding="codes")
    masked = np.isnan(seen[0][:, 1])
    assert masked.mean() == pytest.approx(0.7, abs=0.04)
    assert seen[0][:, 1][~masked].tolist() == np.tile(rows, (20, 1))[:, 1][~masked].tolist()
    assert (seen[0][:, 0] - np.tile(rows, (20, 1))[:, 0]).std() == pytest.approx(0.25, rel=0.1)
    assert rows[0].tolist() == [1.0, 0.0]


def test_pipelines_get_tables() -> None:
    compose = pytest.importorskip("sklearn.compose")
    pipeline = pytest.importorskip("sklearn.pipeline")
    encoder = made("sklearn.preprocessing:OneHotEncoder", handle_unknown="ignore")
    table, classes = small_table()
    text = ["colour", "size", "member"]
    steps = compose.make_column_transformer((encoder, text), remainder="passthrough")
    model = fit_masked(
        pipeline.make_pipeline(steps, made("sklearn.tree:DecisionTreeClassifier")), table, classes, beta=0.5
    )
    assert model.encoding == "table"
    answers = SmoothedClassifier(model, noise=model.smoothcert_noise_, n=300, seed=0).certify(table[:10])
    assert (answers.label == classes[:10]).mean() >= 0.8


def test_a_model_that_never_saw_masks_is_told_of() -> None:
    table, classes = small_table()
    noise = Hybrid.of(table, beta=0.6)
    rows = noise.columns.rows(table)
    plain = made("sklearn.ensemble:HistGradientBoostingClassifier", max_iter=5).fit(rows, classes)
    with pytest.warns(UnmaskedModelWarning, match="fit_masked"):
        SmoothedClassifier(plain, noise=noise)
    plain.smoothcert_noise_ = noise
    SmoothedClassifier(plain, noise=noise)
    with pytest.warns(UnmaskedModelWarning, match=r"0\.6"):
        SmoothedClassifier(plain, CertifyPlan(Hybrid.of(table, beta=0.9)))


def test_mistakes_are_named() -> None:
    table, classes = small_table(20)
    tree = made("sklearn.tree:DecisionTreeClassifier")
    with pytest.raises(InvalidValueError, match=r"y.*20"):
        fit_masked(tree, table, classes[:5])
    with pytest.raises(InvalidValueError, match="copies"):
        fit_masked(tree, table, classes, copies=0)
    with pytest.raises(InvalidValueError, match="encodings"):
        fit_masked(tree, table, classes, encoding="encodings")  # type: ignore[arg-type]
    noise = Hybrid.of(table)
    with pytest.raises(InvalidValueError, match="sigma"):
        SmoothedClassifier(tree, sigma=1.0, noise=noise)
    with pytest.raises(InvalidValueError, match="hold"):
        SmoothedClassifier(fit_masked(tree, table, classes), noise=noise, hold=[0])
