"""Numbers that would be rounded, or lose their masks, on the way to float64: refused, as proofs are about those."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("sklearn")
from linfdist.sklearn import LinfDistClassifier
from linfdist.sklearn.scaling import check_exact

X = np.random.default_rng(0).random((40, 2))
Y = (X[:, 0] > 0.5).astype(int)


@pytest.fixture(scope="module")
def fitted():
    return LinfDistClassifier(width=8, depth=2, max_iter=20, random_state=0).fit(X, Y)


def wide(value):
    return [[value, 1]] * 3


@pytest.mark.parametrize(
    "table",
    [
        wide(2**53 + 1),
        wide(Fraction(1, 3)),
        np.array(wide(Decimal("0.1")), dtype=object),
        np.array(wide(2**53 + 1), dtype=np.uint64),
        np.full((3, 2), np.nextafter(np.longdouble(0.25), 1)),
    ],
)
def test_numbers_beyond_float64(fitted, table):
    with pytest.raises(ValueError, match=r"X: holds .*, beyond the numbers that float64 holds exactly"):
        fitted.certify(table)


class Table:
    """Columns with names, as pandas has them: all together, they have a type that holds none of them exactly."""

    columns, dtypes = ("a", "b"), (np.int64, np.float64)

    def __getitem__(self, column):
        return np.full(3, 2**53 + 1) if column == "a" else np.full(3, 0.5)

    def __array__(self, dtype=None, copy=None):
        return np.stack([self["a"], self["b"]], 1)


def test_columns_of_several_types():
    table = Table()
    assert np.asarray(table).dtype == np.float64
    with pytest.raises(ValueError, match=r"X\['a'\]: holds .*9007199254740993"):
        check_exact(table, "X")


def test_a_table_of_pandas(fitted):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [2**53 + 1] * 40, "b": [0.5] * 40})
    with pytest.raises(ValueError, match=r"X\['a'\]: holds .*9007199254740993"):
        LinfDistClassifier().fit(table, Y)
    named = LinfDistClassifier(width=8, depth=2, max_iter=20, random_state=0)
    named.fit(pandas.DataFrame(X, columns=["age", "income"]), Y)
    rows = pandas.DataFrame(X, columns=["age", "income"])
    by_name = named.certify(rows, pandas.Series([0.1, 0.2], index=["income", "age"]))
    assert by_name.certified.tolist() == named.certify(rows, {0: 0.2, 1: 0.1}).certified.tolist()
    with pytest.raises(ValueError, match="no column 'incme'; did you mean 'income'"):
        named.certify(rows, {"incme": 0.1})
    with pytest.raises(ValueError, match="without names; give positions from 0 to 1"):
        fitted.certify(X, {"age": 0.1})


def test_what_float64_holds_is_taken(fitted):
    expected = fitted.certify(np.full((3, 2), 0.25), 0.01).radius
    for table in (wide(0.25), wide(Fraction(1, 4)), np.full((3, 2), np.longdouble(0.25)), wide(Decimal("0.25"))):
        same = np.array(table, dtype=object) if isinstance(table, list) else table
        same = np.where(same == 1, same.flat[0], same)
        assert fitted.certify(same, 0.01).radius.tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["fit", "fit y", "predict", "certify", "score", "eps", "scale"])
def test_masks(fitted, name):
    masked, labels = np.ma.masked_array(X, mask=X > 0.5), np.ma.masked_array(Y, mask=Y > 0)
    calls = {
        "fit": lambda: LinfDistClassifier().fit(masked, Y),
        "fit y": lambda: LinfDistClassifier().fit(X, labels),
        "predict": lambda: fitted.predict(masked),
        "certify": lambda: fitted.certify(masked),
        "score": lambda: fitted.certified_score(X, labels, 0.1),
        "eps": lambda: fitted.certify(X, np.ma.masked_array([0.1, 0.2], mask=[True, False])),
        "scale": lambda: LinfDistClassifier(scale=np.ma.masked_array([1.0, 2.0], mask=[True, False])).fit(X, Y),
    }
    with pytest.raises(TypeError, match=r"masked array|MaskedArray"):
        calls[name]()


def test_radii_of_other_types_are_exact(fitted):
    above = np.nextafter(np.longdouble(0.25), 1)
    assert fitted.certify(X[:2], np.int64(1)).eps == 1
    assert fitted.certify(X[:2], Decimal("0.1")).eps == Fraction(1, 10)
    assert fitted.certify(X[:2], above).eps == Fraction(*above.as_integer_ratio())
