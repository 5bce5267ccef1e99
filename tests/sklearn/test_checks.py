"""scikit-learn's own tests of estimators, and the company that estimators keep."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the estimator needs scikit-learn")

from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from linfdist.sklearn import LinfDistClassifier

SMALL = LinfDistClassifier(max_iter=60, width=64, random_state=0)
CHECKS = list(estimator_checks_generator(LinfDistClassifier(random_state=0)))  # the defaults: 50 fits, 20 s in all


def name_of(pair):
    return pair.func.__name__ if hasattr(pair, "func") else ""


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=name_of)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_pipelines_searches_and_clones():
    X, y = load_iris(return_X_y=True)
    longer = clone(SMALL).set_params(max_iter=150)
    scores = cross_val_score(make_pipeline(StandardScaler(), longer), X, y, cv=3)
    assert scores.min() > 0.8
    search = GridSearchCV(longer, {"eps": [0.02, "1/10"]}, cv=2).fit(X, y)
    assert search.best_params_["eps"] in (0.02, "1/10")
    assert search.best_estimator_.certified_score(X, y, 0.01) > 0.6
    search.set_params(estimator__scale=np.ones(4))
    assert clone(search).estimator.scale.shape == (4,)


def test_certified_scores_can_be_searched_for():
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(
        SMALL, {"width": [16]}, cv=2, scoring=lambda model, X, y: model.certified_score(X, y, 0.05)
    ).fit(X, y)
    assert 0 < search.best_score_ <= search.best_estimator_.score(X, y)


def test_pickles_are_whole():
    X, y = load_iris(return_X_y=True)
    fitted = clone(SMALL).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.decision_function(X), fitted.decision_function(X))
    assert np.array_equal(again.certify(X).radius, fitted.certify(X).radius)
