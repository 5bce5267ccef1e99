"""Samples and classes that count more than others."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the estimator needs scikit-learn")

from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from linfdist.sklearn import LinfDistClassifier

QUICK = {"max_iter": 300, "width": 64, "random_state": 0}


def test_a_rare_class_is_found():
    """Of 95 : 5 samples, most of the few are given up; with balanced classes, most are found and many are proved."""
    X, y = make_classification(2000, 10, n_informative=6, weights=[0.95], flip_y=0, random_state=0)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    rare = y_test == 1
    plain = LinfDistClassifier(**QUICK).fit(X, y)
    balanced = LinfDistClassifier(class_weight="balanced", **QUICK).fit(X, y)
    assert plain.score(X_test[rare], y_test[rare]) < 0.4
    assert balanced.score(X_test[rare], y_test[rare]) > 0.7
    assert balanced.certified_score(X_test[rare], y_test[rare], 0.02) > 0.5
    assert balanced.score(X_test[~rare], y_test[~rare]) > 0.8
    by_hand = LinfDistClassifier(**QUICK).fit(
        X, y, sample_weight=np.where(y == 1, 0.5 / (y == 1).mean(), 0.5 / (y == 0).mean())
    )
    assert (by_hand.predict(X_test) == balanced.predict(X_test)).mean() > 0.98


def blobs(rows=40):
    generator = np.random.default_rng(1)
    y = np.arange(rows) % 2
    return generator.random((rows, 3)) + y[:, None] * 0.3, y


def test_weights_are_numbers_of_copies():
    """Exactly: the order is another one, samples with weight 0 lie far outside, and classes are balanced as well."""
    X, y = blobs()
    weight = np.random.default_rng(2).integers(0, 4, len(X))
    far = np.where(weight[:, None] == 0, 100.0, X)
    options = {**QUICK, "max_iter": 20, "class_weight": "balanced"}
    weighted = LinfDistClassifier(**options).fit(far[::-1], y[::-1], sample_weight=weight[::-1])
    copies = LinfDistClassifier(**options).fit(X.repeat(weight, 0), y.repeat(weight))
    assert np.array_equal(weighted.decision_function(X), copies.decision_function(X))
    assert np.array_equal(weighted.predict_proba(X), copies.predict_proba(X))


def test_equal_weights_change_nothing():
    X, y = blobs()
    options = {**QUICK, "max_iter": 20}
    plain, weighted = LinfDistClassifier(**options).fit(X, y), LinfDistClassifier(**options)
    assert np.array_equal(weighted.fit(X, y, np.full(40, 0.3)).predict_proba(X), plain.predict_proba(X))
    weighted.set_params(class_weight={0: 1, 1: 1})
    assert np.array_equal(weighted.fit(X, y).predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize(
    ("class_weight", "sample_weight", "words"),
    [
        ("even", None, "'balanced', a dict"), ([1, 2], None, "a dict"), ({0: -1, 1: 1}, None, "none negative"),
        ({0: np.nan, 1: 1}, None, "finite"), ({0: 1, 1: 0}, None, "two at least"), (None, np.zeros(40), " 0|zero"),
        (None, -np.ones(40), "egative"), (None, np.ones(39), "shape"), (None, np.full(40, np.nan), "NaN"),
        (None, np.arange(40) % 2, "one class"), (None, np.ma.masked_array(np.ones(40), np.ones(40)), "masked"),
        ({0: 1, 7: 1}, None, "not in class_weight"),
    ],
)  # fmt: skip
def test_what_is_no_weight_is_refused(class_weight, sample_weight, words):
    X, y = blobs()
    with pytest.raises((ValueError, TypeError), match=words):
        LinfDistClassifier(class_weight=class_weight, **QUICK).fit(X, y, sample_weight=sample_weight)


def test_classes_of_text_with_weights_are_saved(tmp_path):
    X, y = blobs()
    given = {"no": 1, "yes": np.float64(3)}
    fitted = LinfDistClassifier(class_weight=given, **QUICK).fit(X, np.array(["no", "yes"])[y])
    fitted.save(tmp_path / "file")
    assert LinfDistClassifier.load(tmp_path / "file").class_weight == given
    fitted = LinfDistClassifier(class_weight={np.int64(0): 1, 1: 3}, **QUICK).fit(X, y)
    fitted.save(tmp_path / "file")
    assert LinfDistClassifier.load(tmp_path / "file").class_weight == {0: 1, 1: 3}
