"""The scikit-learn estimator: scikit-learn's own checks, and PREDICT's promise behind predict."""

import importlib
import pickle
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator

from smoothcert import ABSTAIN, Numerics, SmoothedClassifier
from smoothcert.errors import InvalidValueError, MissingExtraError
from smoothcert.estimator import SmoothedEstimator

# All but the one for other array libraries, which needs a mode of scipy's that changes it for the whole process.
CHECKS = [
    (estimator, check)
    for estimator, check in estimator_checks_generator(
        SmoothedEstimator(LogisticRegression(), sigma=0.05, copies=2, votes=50, random_state=0), mark="skip"
    )
    if getattr(check, "func", check).__name__ != "check_array_api_input"
]


@pytest.mark.filterwarnings("ignore")  # scikit-learn's checks give data that its own estimators warn of
@pytest.mark.parametrize("check", CHECKS, ids=lambda pair: str(getattr(pair[1], "func", pair[1]).__name__))
def test_scikit_learns_own_checks(check):
    estimator, ask = check
    ask(estimator)


WINE, KINDS = load_wine(return_X_y=True)
WINE = StandardScaler().fit_transform(WINE)
NAMES = np.array(["barolo", "grignolino", "barbera"])[KINDS]
PART = slice(3, None, 5)  # two of these 35 rows (83 and 118) make the smoothed classifier abstain
SOME = WINE[PART]


def fitted(estimator: Any = None, X: Any = WINE, y: Any = NAMES, **options: Any) -> SmoothedEstimator:
    options = {"sigma": 0.5, "votes": 200, "n": 500, "random_state": 0} | options
    return SmoothedEstimator(estimator or LogisticRegression(), **options).fit(X, y)


def test_predict_is_predict():
    model = fitted()
    numerics = Numerics(dtype="float64")
    own = SmoothedClassifier(model.estimator_, sigma=0.5, n=500, seed=model.seed_, numerics=numerics)
    answers = own.predict(SOME, n=200)
    sure = [row for row, answer in enumerate(answers) if not answer.abstained]
    assert 30 < len(sure) < len(SOME), "some abstain"
    assert model.predict(SOME)[sure].tolist() == [answers[row].label for row in sure]
    assert model.abstains(SOME).tolist() == [answer.abstained for answer in answers]
    shares = model.predict_proba(SOME)
    assert shares.tolist() == [[votes / 200 for votes in answer.tally.counts] for answer in answers]
    assert model.predict(SOME).tolist() == model.classes_[shares.argmax(1)].tolist()
    certified = model.certify(SOME)
    assert certified.radius.tolist() == own.certify(SOME).radius.tolist()
    assert certified.accuracy(NAMES[PART]) > 0.7


def test_abstentions_get_the_label_that_was_asked_for():
    model = fitted(abstain_label="unsure")
    predicted, abstained = model.predict(SOME), model.abstains(SOME)
    assert set(predicted[abstained]) == {"unsure"}
    assert predicted[~abstained].tolist() == fitted().predict(SOME)[~abstained].tolist()
    assert model.score(SOME, NAMES[PART]) < fitted().score(SOME, NAMES[PART]), (
        "an abstention is no right answer"
    )
    mixed = fitted(abstain_label=ABSTAIN).predict(SOME)
    assert set(mixed[abstained]) == {ABSTAIN}, "a number stays a number"
    numbered = fitted(y=KINDS, abstain_label=ABSTAIN)
    assert set(numbered.predict(SOME)[numbered.abstains(SOME)].tolist()) == {ABSTAIN}


def test_answers_to_a_row_depend_on_the_row_alone():
    model = fitted()
    whole = model.predict_proba(WINE)
    assert model.predict_proba(WINE[5:9]).tolist() == whole[5:9].tolist()
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_proba(WINE[5:9]).tolist() == whole[5:9].tolist()
    assert again.certify(WINE[:3]).radius.tolist() == model.certify(WINE[:3]).radius.tolist()
    assert clone(model).fit(WINE, NAMES).predict_proba(WINE[5:9]).tolist() == whole[5:9].tolist()


def test_what_was_fitted_stays_until_the_next_fit():
    model = fitted()
    before = model.certify(WINE[:3]).radius.tolist()
    model.set_params(sigma=5.0, n=100, alpha=0.1, hold=[0])
    assert model.certify(WINE[:3]).radius.tolist() == before
    assert pickle.loads(pickle.dumps(model)).certify(WINE[:3]).radius.tolist() == before


def test_features_that_are_large_and_seeds_that_nobody_gave():
    model = fitted(X=WINE + 1e6)
    assert model.certify(WINE[:3] + 1e6).predicted.tolist() == fitted().certify(WINE[:3]).predicted.tolist()
    # Two seeds of 63 bits are equal with a probability of 1e-19.
    assert fitted(random_state=None).seed_ != fitted(random_state=None).seed_


def test_noise_while_fitting_is_what_makes_it_stand_noise():
    tree = DecisionTreeClassifier(random_state=0)
    assert fitted(tree, copies=20).score(WINE, NAMES) > fitted(tree, copies=0).score(WINE, NAMES)


def test_a_scale_for_each_feature_and_features_that_are_held():
    scales = np.full(13, 0.5)
    scales[0] = 0.1
    stretched = fitted(sigma=scales).certify(WINE[:3])
    assert stretched[0].volume_radius is not None
    held = fitted(hold=[0, 12])
    answer = held.certify(WINE[:1])[0]
    moved = WINE[0].copy()
    moved[1] += answer.radius / 2
    assert answer.covers(moved)
    moved[0] += 1e-6
    assert not answer.covers(moved)
    assert held.predict(WINE[:2]).tolist() == ["barolo", "barolo"]


def test_a_fitted_model_stays_as_it_is():
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(WINE, NAMES)
    model = fitted(FrozenEstimator(pipeline))
    assert model.estimator_.estimator is pipeline
    assert model.score(WINE, NAMES) > 0.9


def test_scikit_learns_tools_take_it():
    model = SmoothedEstimator(LogisticRegression(), votes=50, copies=2, random_state=0)
    assert cross_val_score(model, WINE, NAMES, cv=3).mean() > 0.8
    search = GridSearchCV(model, {"sigma": [0.1, 3.0], "estimator__C": [1.0]}, cv=2).fit(WINE, NAMES)
    assert search.best_params_ == {"sigma": 0.1, "estimator__C": 1.0}
    assert "sigma=0.1" in repr(search.best_estimator_)


def test_mistakes_are_named():
    for options, named in [
        ({"sigma": -1.0}, r"sigma.*-1\.0"),
        ({"sigma": np.ones(5)}, r"\(13,\).*\(5,\)"),
        ({"votes": 0}, r"votes.*\b0\b"),
        ({"copies": -1}, r"copies.*-1\b"),
        ({"alpha": 2.0}, r"alpha.*2\.0"),
        ({"noise": "gausian"}, "'gausian'.*'gaussian'"),
        ({"hold": [13]}, r"\b12\b.*\b13\b"),
        ({"hold": ["age"]}, "'age'"),
        ({"y": ["one"] * len(WINE)}, r"\by\b.*'one'"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            fitted(**options)


def test_tables_keep_their_columns():
    pandas = pytest.importorskip("pandas", reason="tables are pandas'")
    table = pandas.DataFrame(WINE, columns=[f"c{k}" for k in range(13)])
    model = fitted(X=table, hold=["c0"])
    assert model.estimator_.feature_names_in_.tolist() == table.columns.tolist()
    assert model.predict(table.iloc[:3]).tolist() == ["barolo"] * 3
    assert model.certify(table.iloc[:3]).predicted.tolist() == model.certify(table[:3]).predicted.tolist()


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "smoothcert.estimator")
    with pytest.raises(
        MissingExtraError, match=r"smoothcert\.estimator.*scikit-learn 1\.6.*smoothcert\[sklearn\]"
    ):
        importlib.import_module("smoothcert.estimator")


def test_an_abstention_is_wrong_whatever_type_its_label_has():
    few = {"votes": 20, "abstain_label": "unsure"}
    kinds = KINDS[PART]
    named, numbered = fitted(**few), fitted(y=KINDS, **few)
    assert 0 < numbered.abstains(SOME).sum() < len(SOME)
    assert numbered.score(SOME, kinds) == named.score(SOME, NAMES[PART])
    assert numbered.score(SOME, kinds) == np.mean(numbered.predict(SOME) == kinds.astype(object))
    unsure = numbered.abstains(SOME)
    assert numbered.score(SOME, kinds, sample_weight=unsure) == 0.0
    assert numbered.score(SOME[unsure], kinds[unsure]) == 0.0


def test_an_abstention_has_no_class_for_a_label():
    with pytest.raises(InvalidValueError, match="abstain_label=1"):
        fitted(y=KINDS, abstain_label=1)
