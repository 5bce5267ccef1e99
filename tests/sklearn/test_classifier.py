"""The estimator as its users meet it: shapes, labels, words, files, Ctrl-C."""

from fractions import Fraction

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="the estimator needs scikit-learn")

from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import linfdist as ld
from linfdist.files import load_tensors
from linfdist.sklearn import LinfDistClassifier, training

QUICK = {"max_iter": 120, "width": 64, "random_state": 0}


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X, np.array(["malignant", "benign"])[y]


@pytest.fixture(scope="module")
def fitted(cancer):
    X, y = cancer
    return LinfDistClassifier(**QUICK).fit(X[:300], y[:300])


def test_it_learns_and_proves(fitted, cancer):
    X, y = (part[300:] for part in cancer)
    clean, proved = fitted.score(X, y), [fitted.certified_score(X, y, eps) for eps in (0, "0.02", 0.1)]
    assert clean > 0.85
    assert clean == proved[0] >= proved[1] > 0.6
    assert proved[1] > proved[2]
    answers = fitted.predict_certified(X, "0.02")
    sure = fitted.certify(X, "0.02").certified.numpy()
    assert answers.dtype == y.dtype
    assert answers.tolist() == np.where(sure, fitted.predict(X), "abstain").tolist()
    assert fitted.predict_certified(X, 0.02, abstain=-1)[~sure].tolist() == [-1] * int((~sure).sum())


def test_the_radius_of_the_estimator_is_the_default(fitted, cancer):
    X, y = (part[300:] for part in cancer)
    sure = fitted.certify(X, 0.05).certified
    proof = fitted.certify(X)
    assert torch.equal(proof.certified, sure)
    assert proof.eps == Fraction(0.05)
    assert fitted.certified_score(X, y) == fitted.certified_score(X, y, 0.05) < fitted.certified_score(X, y, 0.02)
    assert fitted.predict_certified(X).tolist() == fitted.predict_certified(X, 0.05).tolist()
    weights = np.arange(len(X))
    right = (fitted.predict(X) == y) & sure.numpy()
    assert fitted.certified_score(X, y, sample_weight=weights) == pytest.approx(np.average(right, weights=weights))


def test_certificates_speak_of_rows(fitted, cancer):
    X = cancer[0]
    text = repr(fitted.certify(X[:5]))
    assert text.startswith("<RowCertificate: 5 rows, ")
    assert " certified at 0.05, radius " in text
    assert text.endswith(", in ranges of the columns>")
    proof = fitted.certify(X[:5], {0: "1/3", 3: (0, 20), 7: 0.1, 8: 1, 9: 1})
    assert "for column 0 ±1/3, column 3 −0 +20, column 7 ±0.1 and 2 more, radius" in repr(proof[:1])
    assert repr(proof[:1]).startswith(f"<RowCertificate: 1 row of class {proof.names[0]}, ")
    with pytest.raises(IndexError, match="row 5 of a certificate of 5 rows"):
        proof[5]


LABELS = {
    "text": (["no", "yes"], None, "<U7", "abstain"),
    "words": (["no", "yes"], "nobody knows", "<U12", "nobody knows"),
    "objects": (np.array(["no", "yes"], dtype=object), None, "O", "abstain"),
    "bytes": (np.array([3, 200], dtype=np.uint8), None, "i2", -1),
    "floats": ([0.0, 1.0], None, "f8", -1.0),
    "float32": (np.array([0, 1], dtype=np.float32), -3, "f4", -3.0),
    "truth": ([False, True], None, "O", None),
    "text and a number": (["no", "yes"], -1, "O", -1),
    "numbers and text": ([0, 1], "?", "O", "?"),
    "numbers and a float": ([0, 1], 0.5, "O", 0.5),
    "too large": ([0, 1], 2**70, "O", 2**70),
}


@pytest.mark.parametrize(("labels", "abstain", "dtype", "expected"), LABELS.values(), ids=LABELS)
def test_abstention_keeps_the_type(cancer, labels, abstain, dtype, expected):
    X = cancer[0][:40]
    labels = np.asarray(labels)
    model = LinfDistClassifier(**QUICK | {"max_iter": 10}).fit(X, labels[np.arange(40) % 2])
    sure = model.certify(X, 0.02).certified.numpy()
    sure_later = model.certify(X, 0.9).certified.numpy()
    assert not sure_later.all()
    for eps, each in ((0.02, sure), (0.9, sure_later)):
        answers = model.predict_certified(X, eps, abstain)
        assert answers.dtype == np.dtype(dtype)
        assert (answers[each] == model.predict(X)[each]).all()
        assert all(answer == expected for answer in answers[~each])
    with pytest.raises(ValueError, match="is one of the classes"):
        model.predict_certified(X, 0.02, abstain=labels.tolist()[1])


def test_scores(fitted, cancer):
    X = cancer[0]
    scores, decision = fitted.predict_proba(X), fitted.decision_function(X)
    assert scores.shape == (len(X), 2)
    assert scores.sum(1) == pytest.approx(1)
    assert ((decision > 0) == (fitted.predict(X) == fitted.classes_[1])).all()


def test_whole_labels_keep_their_type():
    X, y = load_digits(return_X_y=True)
    classifier = LinfDistClassifier(scale=16.0, **QUICK).fit(X[:200], y[:200])
    answers = classifier.predict_certified(X[:50], 0.01)
    assert answers.dtype == y.dtype
    assert set(answers) <= {-1, *range(10)}
    both = LinfDistClassifier(**QUICK).fit(X[:60], np.where(y[:60] > 4, 1, -1))
    with pytest.raises(ValueError, match="abstain = -1"):
        both.predict_certified(X[:3], 0.01)
    assert set(both.predict_certified(X[:9], 0.01, abstain=0)) <= {-1, 0, 1}
    assert both.predict_certified(X[:9], 0.01, abstain=0).dtype == np.int64


def test_images():
    X, y = load_digits(return_X_y=True)
    gray = np.rint(X.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)[:150]
    classifier = LinfDistClassifier("8/255", **QUICK).fit(gray, y[:150])
    assert float(classifier.scale_) == 255
    assert classifier.network_.shape == (1, 8, 8)
    proof = classifier.certify(gray, "8/255")
    ours = ld.certify(classifier.network_, torch.from_numpy(gray)[:, None].float() / 255, "8/255")
    assert torch.equal(proof.prediction, ours.prediction)
    assert (proof.radius - ours.radius).abs().max() < 1e-2
    colour = np.stack([gray, gray, 255 - gray], 3)
    classifier = LinfDistClassifier(**QUICK).fit(colour, y[:150])
    assert classifier.network_.shape == (3, 8, 8)
    assert classifier.predict(colour).shape == (150,)
    with pytest.raises(ValueError, match="fitted for"):
        classifier.predict(gray)


def test_the_same_seed_is_the_same_network(cancer):
    X, y = (part[:80] for part in cancer)
    one, other = (LinfDistClassifier(**{**QUICK, "max_iter": 5}).fit(X, y).decision_function(X) for _ in range(2))
    assert np.array_equal(one, other)
    third = LinfDistClassifier(**{**QUICK, "max_iter": 5, "random_state": 1}).fit(X, y)
    assert not np.array_equal(third.decision_function(X), one)


def test_progress_is_shown_if_wanted(cancer, capsys):
    X, y = (part[:80] for part in cancer)
    LinfDistClassifier(**{**QUICK, "max_iter": 20}).fit(X, y)
    assert capsys.readouterr().out == ""
    LinfDistClassifier(**{**QUICK, "max_iter": 20}, verbose=True).fit(X, y)
    assert "update 20 of 20  p inf" in capsys.readouterr().out


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_ctrl_c_leaves_a_fitted_estimator(cancer, monkeypatch, again):
    X, y = (part[:200] for part in cancer)
    step, calls = training.Trainer.step, []

    def interrupted(self, state=None):
        calls.append(self.done)
        if len(calls) == 40 or (again and len(calls) > 40):
            raise KeyboardInterrupt
        return step(self, state)

    monkeypatch.setattr(training.Trainer, "step", interrupted)
    classifier = LinfDistClassifier(**{**QUICK, "max_iter": 400})
    with pytest.warns(ConvergenceWarning, match="interrupted after 39 of 400"):
        classifier.fit(X, y)
    assert classifier.n_iter_ == (39 if again else 59)
    assert classifier.certify(X, 0.01).radius.shape == (200,)
    if not again:
        assert classifier.score(X, y) > 0.7


BAD = {
    "eps of the estimator": ({"eps": -1}, {}, ["eps = -1"]),
    "width": ({"width": 0}, {}, ["width = 0", "from 1 to"]),
    "depth": ({"depth": 1}, {}, ["depth = 1", "from 2 to"]),
    "steps": ({"max_iter": 2.5}, {}, ["max_iter = 2.5"]),
    "steps without end": ({"max_iter": 10**400}, {}, ["max_iter = 1000", "2,147,483,647"]),
    "outside": ({"outside": "fold"}, {}, ["'clip' or 'error'"]),
    "one class": ({}, {"y": np.zeros(40)}, ["one class"]),
    "not finite": ({}, {"X": np.full((40, 2), np.nan)}, ["NaN"]),
    "infinite": ({}, {"X": np.full((40, 2), np.inf)}, ["infinity"]),
    "five dimensions": ({}, {"X": np.zeros((40, 2, 2, 2, 2))}, ["(40, 2, 2, 2, 2)"]),
    "channels first": ({}, {"X": np.zeros((40, 3, 8, 8))}, ["channels", "(40, 3, 8, 8)"]),
    "continuous labels": ({}, {"y": np.linspace(0, 1, 40)}, ["continuous"]),
    "more than float64": ({}, {"X": np.full((40, 2), np.longdouble("0.1"))}, ["beyond the numbers"]),
}


@pytest.mark.parametrize(("parameters", "given", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_refused(parameters, given, words):
    X = np.random.default_rng(0).random((40, 2))
    data = {"X": X, "y": np.arange(40) % 2, **given}
    with pytest.raises((ValueError, TypeError)) as caught:
        LinfDistClassifier(**{**QUICK, **parameters}).fit(**data)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("eps", "words"),
    [
        (8, "more than 1, the whole range"), ("8", "more than 1"), (-0.1, "negative"), (np.nan, "finite"),
        (np.full(3, 0.1), "does not fit"), ([0.1, "a"], "array of numbers"), ("many", "not a number"),
        (np.full(30, 1.5), "more than 1"), (np.full(30, -1.0), "negative"),
    ],
)  # fmt: skip
def test_what_is_no_radius_is_refused(fitted, cancer, eps, words):
    with pytest.raises((ValueError, TypeError), match=words):
        fitted.certify(cancer[0][:2], eps)


def test_before_fit():
    for call in ("certify", "predict_certified", "save"):
        arguments = {"certify": ([[1.0]],), "predict_certified": ([[1.0]], 0.1), "save": ("x",)}[call]
        with pytest.raises(NotFittedError):
            getattr(LinfDistClassifier(), call)(*arguments)


def test_files(fitted, cancer, tmp_path):
    X, path = cancer[0], tmp_path / "cancer.safetensors"
    fitted.save(str(path))
    loaded = LinfDistClassifier.load(path)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.predict(X).tolist() == fitted.predict(X).tolist()
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert torch.equal(loaded.certify(X[:40], 0.02).radius, fitted.certify(X[:40], 0.02).radius)
    assert ld.load(path).classes == 2
    network = ld.load(path)
    ld.models.save(network, tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match="no classifier"):
        LinfDistClassifier.load(tmp_path / "bare.safetensors")
    header = load_tensors(path)[1]["sklearn"]
    for key, value in (
        ("span", [-1.0] * 30),
        ("span", [1e-300] * 30),
        ("low", [0.0]),
        ("classes", 3),
        ("shape", [8, 8]),
    ):
        ld.models.save(network, tmp_path / "bad.safetensors", {"sklearn": {**header, key: value}})
        with pytest.raises(ValueError, match=r"bad\.safetensors"):
            LinfDistClassifier.load(tmp_path / "bad.safetensors")


def test_without_scikit_learn_the_extra_is_named():
    from ..ops.processes import python

    program = "import sys\nsys.modules['sklearn'] = None\nimport linfdist.sklearn"
    run = python("-c", program)
    assert "pip install scikit-learn" in run.stderr


def test_whatever_abstains_is_no_class(cancer):
    X, _ = cancer
    labels = np.where(np.arange(40) % 2, 2.0**53, 0.0)
    model = LinfDistClassifier(**QUICK | {"max_iter": 10}).fit(X[:40], labels)
    unsure = ~model.certify(X[:40], 0.9).certified.numpy()
    assert unsure.any()
    assert set(model.predict_certified(X[:40], 0.9, abstain=2**53 + 1)[unsure]) == {2**53 + 1}
    small = LinfDistClassifier(**QUICK | {"max_iter": 10}).fit(X[:40], (labels > 0).astype(np.int8))
    assert set(small.predict_certified(X[:40], 0.9, abstain=300)) <= {0, 1, 300}


def test_labels_are_counted_one_by_one(fitted, cancer):
    X, y = (part[300:360] for part in cancer)
    right = fitted.certified_score(X, y, 0.01)
    with pytest.warns(Warning, match="column-vector"):
        assert fitted.certified_score(X, y[:, None], 0.01) == right
    with pytest.raises(ValueError, match="1 labels for 60 samples"):
        fitted.certified_score(X, y[:1], 0.01)
    with pytest.raises(ValueError, match=r"eps: holds .* beyond the numbers"):
        fitted.certify(X, np.full(X.shape[1], 2**53 + 1))


def test_parameters_of_numpy_and_scales_that_round(cancer, tmp_path):
    X, y = cancer
    rng = np.random.default_rng(0)
    for _ in range(40):
        scale = [np.float32(each) for each in rng.random(3) + 0.1]
        model = LinfDistClassifier(scale=scale, outside="error", width=np.int64(4), max_iter=np.int64(1))
        model.fit(X[:20, :3], y[:20]).predict(X[:20, :3])
    model.save(tmp_path / "file")
    assert (LinfDistClassifier.load(tmp_path / "file").predict(X[:20, :3]) == model.predict(X[:20, :3])).all()
