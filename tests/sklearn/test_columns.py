"""Changes by column: some stay as they are, some only grow, each in its own units; attacked to the last float64."""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sklearn", reason="the estimator needs scikit-learn")

import linfdist as ld
from linfdist.sklearn import LinfDistClassifier
from linfdist.sklearn.columns import Columns

COLUMNS = 5
UNITS = np.array([1.0, 30.0, 1e-7, 1e6, 1.0])  # the last one holds categories
OFFSETS = np.array([0.0, 20.0, 1e3, -1e6, 0.0])
QUICK = {"max_iter": 60, "width": 16, "random_state": 0}


@functools.cache
def table():
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 3
    points = generator.uniform(0.2, 0.8, (3, COLUMNS))[labels] + 0.1 * generator.standard_normal((120, COLUMNS))
    points[:, 4] = generator.integers(0, 2, 120) * 0.5 + (labels == 1) * 0.5
    return points * UNITS + OFFSETS, labels


@functools.cache
def fitted(kind):
    options = {
        "plain": {},
        "fixed": {"fixed": (4, 1)},
        "mask": {"fixed": [False, True, False, False, True]},
        "by column": {"eps": {0: "1/20", 2: 2e-9, 3: (0, 5e4)}},
        "units": {"scale": 1e6, "eps": 0.01, "fixed": [0]},
    }[kind]
    return LinfDistClassifier(**QUICK, **options).fit(*table())


def last(start, change):
    """The last float64 x′ with x′ − start between 0 and change, in exact arithmetic."""
    moved = float(Fraction(start) + change)
    while abs(Fraction(moved) - Fraction(start)) > abs(change):
        moved = math.nextafter(moved, start)
    return moved


def attacked(classifier, samples, down, up, seed, tries=8):
    """(n,) bool: some point of the box has another class: corners, points towards other samples, and inner ones.

    down, up: exact, for each sample and column.
    """
    generator = np.random.default_rng(seed)
    classes, broken = classifier.predict(samples), np.zeros(len(samples), bool)
    ends = [
        np.array(
            [
                [last(x, sign * c) for x, c in zip(row, changes, strict=True)]
                for row, changes in zip(samples, side, strict=True)
            ]
        )
        for sign, side in ((-1, down), (1, up))
    ]
    for number in range(tries):
        others = samples[generator.permutation(len(samples))]
        choices = generator.random(samples.shape) < 0.5 if number % 2 else others > samples
        moved = np.where(choices, ends[1], ends[0])
        if number % 4 > 1:
            moved = np.clip(others, ends[0], ends[1])
        broken |= classifier.predict(moved) != classes
    return broken


changes = st.sampled_from(["0", "1e-300", "0.001", "1/30", "0.1", "0.4", "3"])


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["plain", "fixed", "by column", "units"]), seed=st.integers(0, 10**6),
    columns=st.dictionaries(st.integers(0, 4), st.tuples(changes, changes) | changes, max_size=5),
)  # fmt: skip
def test_no_point_of_the_stated_box_has_another_class(kind, seed, columns):
    classifier, samples = fitted(kind), table()[0][seed % 90 :][:30]
    units = [Fraction(float(unit)) for unit in UNITS]
    eps, down, up = {}, [Fraction(0)] * COLUMNS, [Fraction(0)] * COLUMNS
    for column, value in columns.items():
        pair = value if isinstance(value, tuple) else (value, value)
        down[column], up[column] = (Fraction(each) * units[column] for each in pair)
        eps[column] = (down[column], up[column]) if isinstance(value, tuple) else up[column]
    proof = classifier.certify(samples, eps)
    broken = attacked(classifier, samples, [down] * 30, [up] * 30, seed)
    assert not (broken & proof.certified.numpy()).any()
    if not eps:
        assert proof.certified.float().mean() > 0.9  # nothing moves


@pytest.mark.parametrize("kind", ["fixed", "by column", "units"])
def test_radii_beside_columns_that_stay(kind):
    """They are larger than with all columns moving, and no attack within them succeeds."""
    classifier, samples = fitted(kind), table()[0][:40]
    proof = classifier.certify(samples)
    finite = proof.radius.numpy().clip(max=3.0)
    scale = [Fraction(float(each)) for each in classifier.scale_]
    moves = [[Fraction(radius) * each for each in scale] for radius in finite]
    assert not attacked(classifier, samples, moves, moves, 0, 12).any()
    wide = [[3 * Fraction(max(radius, 0.01)) * each for each in scale] for radius in finite]
    assert attacked(classifier, samples, wide, wide, 0, 12).any()
    assert (classifier.scale_ == 0).any()
    uniform = ld.certify(classifier.network_, classifier._inputs(samples), None).radius.numpy()
    uniform *= classifier.scaling_.ratio
    assert (proof.radius.numpy() >= 0.99 * uniform).all()
    assert (proof.radius.numpy() > 1.2 * uniform).any()


def test_fixed_columns_are_exact():
    classifier, samples = fitted("fixed"), table()[0][:40]
    assert classifier.scale_[[1, 4]].tolist() == [0, 0]
    low, high = classifier.scaling_.box(samples, *classifier._change(0.1, samples))
    assert np.array_equal(low[:, [1, 4]], high[:, [1, 4]])
    assert (low[:, [0, 2, 3]] < high[:, [0, 2, 3]]).all()
    assert (classifier.scale_ == fitted("mask").scale_).all()
    plain = fitted("plain").certify(samples, np.array([0.1, 0.0, 0.1, 0.1, 0.0])).certified
    assert (plain >= fitted("plain").certify(samples, 0.1).certified).all()


def test_one_side_is_easier_than_both():
    classifier, samples = fitted("plain"), table()[0]
    both = classifier.certify(samples, {0: 0.1, 1: 3}).certified
    grows, falls = (classifier.certify(samples, {0: pair, 1: 3}).certified for pair in ((0, 0.1), (0.1, 0)))
    assert (grows & falls >= both).all()
    assert (grows > both).any()
    assert (falls > both).any()


def test_changes_by_column_become_the_scale():
    classifier, samples = fitted("by column"), table()[0]
    assert classifier.scale_ == pytest.approx([0.05, 0, 2e-9, 5e4, 0])
    one_sided, both = classifier.certify(samples), classifier.certify(samples, 1)
    assert (one_sided.certified >= both.certified).all()
    assert (both.radius[both.certified] >= 1).all()
    same = classifier.certify(samples, {0: "1/20", 2: 2e-9, 3: 5e4})
    assert same.certified.tolist() == both.certified.tolist()
    assert (same.radius[same.certified] >= 1).all()
    assert 0.1 < classifier.certified_score(samples, table()[1]) <= classifier.score(samples, table()[1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"eps": {0: 1}, "scale": 2.0}, "leave scale and"), ({"eps": {0: 1}, "fixed": [1]}, "leave scale and"),
        ({"eps": {}}, "no column may"), ({"eps": {0: 0}}, "no column may change"), ({"eps": {7: 1}}, "no column 7"),
        ({"eps": {0: -1}}, "eps of column 0 = -1: is negative"), ({"eps": {0: "1e301"}}, "more than 1e300"),
        ({"eps": 10**305}, "^eps: is more than 1e300, which float64 has no room for$"), ({"eps": {True: 1}}, "True"),
        ({"eps": {0: (1, 2, 3)}}, "or two: how far it may fall"), ({"eps": {"age": 1}}, "without names"),
        ({"fixed": [5]}, "fixed: there is no column 5; positions go from 0 to 4"), ({"fixed": "age"}, "without names"),
        ({"fixed": range(5)}, "none is left"), ({"fixed": [0.5]}, "a name or a position"),
    ],
)  # fmt: skip
def test_what_says_nothing_of_columns_is_refused(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        LinfDistClassifier(**QUICK, **options).fit(*table())


def test_names():
    columns = Columns(3, ("age", "income", "postcode"))
    assert [each.tolist() for each in columns.changes({"income": (0, 2), "age": "1/2"})] == [[0.5, 0, 0], [0.5, 2, 0]]
    assert columns.mask(["postcode"], "fixed").tolist() == [False, False, True]
    assert columns.in_words({"income": (0, 2), "age": "1/3"}) == "'income' −0 +2, 'age' ±1/3"
    for key, words in (("incme", "did you mean 'income'"), ("zzz", "there are 'age', 'income', 'postcode'")):
        with pytest.raises(ValueError, match=words):
            columns.changes({key: 1})
    with pytest.raises(ValueError, match="'age' is there twice"):
        columns.changes({"age": 1, 0: 2})


def test_images_have_no_columns():
    images = np.random.default_rng(0).random((20, 3, 3))
    with pytest.raises(ValueError, match="images, which have no columns"):
        LinfDistClassifier(eps={0: 1}, **QUICK).fit(images, np.arange(20) % 2)


def test_files_keep_columns(tmp_path):
    for kind in ("by column", "fixed"):
        classifier, samples = fitted(kind), table()[0][:20]
        classifier.save(tmp_path / "file")
        loaded = LinfDistClassifier.load(tmp_path / "file")
        assert loaded.certify(samples).to_dict() == classifier.certify(samples).to_dict()
        assert repr(loaded.certify(samples)) == repr(classifier.certify(samples))
