"""A σ for each column: what is certified, stored and verified is the ellipsoid of those scales, held columns apart."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, norm

from smoothcert import Dataset, SmoothedClassifier, certify_dataset
from smoothcert.errors import InvalidValueError
from smoothcert_verify import verify_run

SIGMA = {"age": 5.0, "income": 5000.0}
COLUMNS = ("age", "income", "kind")


class Scored:
    """Class 1 where age/5 + income/5000 is above 2·kind; fitted with named columns."""

    classes_ = np.array([0, 1])
    feature_names_in_ = np.array(COLUMNS, dtype=object)
    n_features_in_ = 3

    def predict(self, table: Any) -> Any:
        rows = np.asarray(table)
        return (rows[:, 0] / 5 + rows[:, 1] / 5000 > 2 * rows[:, 2]).astype(int)


ROW = np.array([15.0, 5000.0, 1.0])  # 2 above the line in units of σ, where the noise has √2


def smoothed(sigma: Any = SIGMA, **options: Any) -> SmoothedClassifier:
    return SmoothedClassifier(Scored(), sigma=sigma, n=2000, seed=3, bound="clopper-pearson", **options)


def test_the_region_has_each_columns_own_scale():
    for options in [
        {},
        {"hold": ["kind"]},
        {"hold": [2]},
        {"sigma": {0: 5.0, 1: 5000.0}},
        {"sigma": [5, 5000, 1], "hold": ["kind"]},
        {"sigma": {"income": np.float32(5000), "age": np.int64(5)}},
    ]:
        answer = smoothed(**options).certify_one(ROW)
        count = answer.evidence.votes[1]
        assert abs(count / 2000 - norm.cdf(2 / np.sqrt(2))) < 0.03
        gap = norm.ppf(beta.ppf(0.001, count, 2000 - count + 1))
        assert answer.radius == pytest.approx(5 * gap, rel=1e-9)
        assert answer.covers(ROW - [0, -0.99 * 5000 * gap, 0])
        assert answer.covers(ROW - [0.99 * 5 * gap, 0, 0])
        assert not answer.covers(ROW - [0, -1.01 * 5000 * gap, 0])
        assert not answer.covers(ROW - [0, 0, 1e-9])  # a held column: nothing is said


def test_a_run_of_such_a_classifier_is_verified(tmp_path):
    rows = np.stack([ROW, ROW * [-1, 1, 1], ROW * [1, 1, 0]])
    data = Dataset("rows", rows, np.array([1, 0, 1]), ("no", "yes"))
    run = certify_dataset(smoothed(), data, tmp_path / "run")
    assert verify_run(tmp_path / "run").report.exit_code == 0
    assert certify_dataset(smoothed(), data, tmp_path / "run").records.digest == run.records.digest


def test_scales_that_fit_no_column_are_refused():
    for options, named in [
        ({"sigma": {"age": 5.0}, "hold": ["kind"]}, "income"),
        ({"sigma": {"age": 5.0, "income": 1.0}, "hold": ["kind", "age"]}, "age"),
        ({"sigma": {"agee": 5.0}}, "'age'"),
        ({"sigma": {}}, "sigma"),
        ({"sigma": {"age": 5.0, 0: 5.0}}, "twice"),
        ({"sigma": {"age": -5.0}}, r"-5\.0"),
        ({"sigma": [5.0, 5.0], "hold": ["kind"]}, r"\b2\b"),
        ({"hold": ["knid"]}, "'kind'"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            smoothed(**options)


def test_the_estimator_takes_the_same_scales():
    pandas, linear = pytest.importorskip("pandas"), pytest.importorskip("sklearn.linear_model")
    from smoothcert.estimator import SmoothedEstimator

    rng = np.random.default_rng(0)
    table = pandas.DataFrame(
        {"age": rng.normal(40, 10, 300), "income": rng.normal(3e4, 1e4, 300), "kind": rng.integers(0, 2, 300)}
    )
    y = (table.age / 5 + table.income / 5000 > 14).astype(int)
    model = SmoothedEstimator(linear.LogisticRegression(), sigma=SIGMA, n=1000, random_state=0).fit(table, y)
    assert model.held_.tolist() == [False, False, True]
    answers = model.certify(table[:5])
    axes = [answer.region.semi_axes for answer in answers if not answer.abstained]
    assert axes
    assert all(axis[1] / axis[0] == pytest.approx(1000) for axis in axes)
