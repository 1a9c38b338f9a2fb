"""Series and DataFrames"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tapegrad import grad
from tapegrad.errors import UnsupportedError

pd = pytest.importorskip("pandas")

X = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize("compile", ["never", "always"])
def test_labels(compile):
    """the index or the columns of an argument are others, or in another order -> traced anew"""
    df = grad(lambda d: d["a"].iloc[0] * d.loc[1, "b"], compile=compile)
    frame = pd.DataFrame({"a": X, "b": X + 3})
    turned = frame.iloc[::-1]
    for x in (frame, frame[["b", "a"]], turned, frame.set_axis(["b", "a"], axis=1), frame):
        expected = x * 0.0
        expected.iloc[0, list(x.columns).index("a")] = x.loc[1, "b"]
        expected.loc[1, "b"] += x["a"].iloc[0]
        pd.testing.assert_frame_equal(df(x), expected)
    assert df.cache_info().traces <= 4


@pytest.mark.parametrize("compile", ["never", "always"])
def test_numbers_that_change_in_place(compile):
    """the numbers of an argument change in place -> read anew"""
    df = grad(lambda s: (s**2).sum(), compile=compile)
    s = pd.Series(X.copy(), name="k")
    for value in (1.0, 5.0, 7.0):
        s.iloc[0] = value
        pd.testing.assert_series_equal(df(s), 2 * s)
    assert df.cache_info().traces == 1


@pytest.mark.parametrize("compile", ["never", "always"])
def test_columns_of_other_things(compile):
    """a column of strings, dates or categories of an argument changes, in place too
    -> traced anew"""
    df = grad(
        lambda w, d: (d["x"] * (d["n"] == d["n"].iloc[0]).to_numpy() * w).sum(), compile=compile
    )
    days = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-01"])
    for column in (list("aba"), days, pd.Categorical(list("aba")), [None, "b", "a"]):
        d = pd.DataFrame({"x": X, "n": column})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is traced again and again
            for last in (column[2], column[1], column[0]):
                d.loc[2, "n"] = last
                same = (d["n"] == d["n"].iloc[0]).to_numpy()
                assert df(2.0, d) == np.sum(X * same)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_tables_of_the_outside(compile):
    """one from outside takes part, and changes in place -> traced anew, as what is in it is
    compared; its numbers, if they are taken out before, are read anew"""
    table = pd.DataFrame({"a": X, "b": X + 3})
    df = grad(lambda w: (w * table["a"] + table["b"]).sum() * len(table), compile=compile)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert df(2.0) == 18.0
        table.loc[0, "a"] = 5.0
        assert df(2.0) == 30.0
        table.drop(index=0, inplace=True)
        assert df(2.0) == 10.0
    numbers = table["a"].to_numpy(copy=True)
    df = grad(lambda w: np.sum(w * numbers), compile=compile)
    assert df(2.0) == 5.0
    numbers[0] = 7.0
    assert (df(2.0), df.cache_info().traces) == (10.0, 1)


def test_other_labels_meet():
    """two with different labels are added or multiplied -> brought into one order, as in pandas"""
    s, t = pd.Series(X), pd.Series(X + 1, [2, 0, 7])
    for f in (lambda s, t: s * t, lambda s, t: s.add(t, fill_value=0.0), np.maximum):
        df = grad(lambda s, t, f=f: f(s, t).sum(), compile="never")
        found = df(s, t)
        for k in range(3):
            h = pd.Series(1e-6 * np.eye(3)[k])
            expected = (f(s + h, t).sum() - f(s - h, t).sum()) / 2e-6
            np.testing.assert_allclose(found[k], expected, rtol=1e-6)
    with pytest.raises(ValueError, match="identically-labeled"):
        grad(lambda s, t: np.sum(s < t), compile="never")(s, t)
    with pytest.raises(UnsupportedError, match="with different labels isn't followed"):
        grad(lambda s, t: s @ t, compile="never")(s, t)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_entries_that_move(compile):
    """a method of pandas' moves entries: `merge`, `pivot`, writes by `loc` -> right: pandas does
    it, and which entry went where is read off"""

    def f(s):
        d = pd.DataFrame({"a": s, "k": list("uvu")}).merge(
            pd.DataFrame({"k": list("uv"), "c": [2.0, 3.0]}), on="k"
        )
        d.loc[0, "a"] = s.iloc[2] ** 2
        return (d["a"] * d["c"]).sum()

    df = grad(f, compile=compile)
    for x in (X, X + 1):
        np.testing.assert_allclose(df(pd.Series(x)), [0.0, 3.0, 4 * x[2] + 2.0])
    assert df.cache_info().traces == 1


def test_entries_that_are_looked_at():
    """it looks at integers, at which entries are NaN, or at the order of entries -> right; traced
    anew where these change"""
    df = grad(lambda s: (s.sort_values().dropna() * np.arange(2.0)).sum(), compile="never")
    for x, expected in (
        ([1.0, np.nan, 2.0], [0, 0, 1]),
        ([2.0, np.nan, 1.0], [1, 0, 0]),
        ([5.0, 7.0, np.nan], [0, 1, 0]),
    ):
        np.testing.assert_array_equal(df(pd.Series(x)), expected)


def test_entries_that_are_computed_with():
    """it computes with entries, and isn't known: `combine` -> refused"""
    with pytest.raises(UnsupportedError, match=r"Series\.combine of traced numbers"):
        grad(lambda s: s.combine(-s, np.maximum), compile="never")(pd.Series(X))


LIMIT = 1.5


@pytest.mark.parametrize("compile", ["never", "always"])
def test_texts_that_pandas_evaluates_of_traced_columns(compile, monkeypatch):
    """`table.query("a > @limit")` and `eval` of traced columns, where the limit
    changes -> right"""
    table = pd.DataFrame({"a": X, "b": X + 3})
    df = grad(
        lambda d: d.eval("a * @LIMIT").sum() + d.query("a > @LIMIT")["b"].sum(), compile=compile
    )
    for limit in (1.5, 1.5, 2.5):
        monkeypatch.setitem(globals(), "LIMIT", limit)
        found = df(table)
        assert list(found["a"]) == [limit] * len(X)
        assert list(found["b"]) == list(1.0 * (limit < X))


@pytest.mark.parametrize("compile", ["never", "always"])
def test_texts_that_pandas_evaluates(compile, monkeypatch):
    """`table.query("a > @limit")` and `eval` of a table from outside, where the limit
    changes -> traced anew"""
    table = pd.DataFrame({"a": X, "b": X + 3})
    df = grad(lambda w: w * table.query("a > @LIMIT")["b"].sum(), compile=compile)
    for limit in (1.5, 1.5, 2.5):
        monkeypatch.setitem(globals(), "LIMIT", limit)
        assert df(2.0) == table["b"][table["a"] > limit].sum()


@pytest.mark.parametrize("compile", ["never", "always"])
def test_functions_that_pandas_calls(compile):
    """`table.apply(f)` of a function that returns traced values, or reads what changes -> right"""
    table, rate = pd.DataFrame({"a": X, "b": X + 3}), [1.0]
    df = grad(lambda w: table.apply(lambda c: c.sum() * w * rate[0]).sum(), compile=compile)
    for rate[0] in (1.0, 1.0, 2.0):
        assert df(2.0) == 21.0 * rate[0]
