"""pandas' objects that a function reaches without being passed them, by what is in them."""

from __future__ import annotations

import contextlib
import cProfile

import numpy as np
import pandas as pd
import pytest

from tapegrad import grad, value_and_grad
from tapegrad.core.tables import Contents

X = np.array([0.5, 0.7])


def table():
    return pd.DataFrame(
        {"a": [1.0, 2.0, 4.0], "b": [0.5, 1.5, 3.0], "n": [1, 2, 3], "c": ["u", "v", "u"]}
    )


class Model:
    def __init__(self, df):
        self.df = df

    def loss(self, p):
        return np.sum(self.df["a"].to_numpy() * p[0]) + np.sum(self.df["b"] * p[1])


READS = {
    "values": lambda df: df["a"].values,
    "to_numpy": lambda df: df[["a", "b"]].to_numpy(),
    "a series": lambda df: df["a"],
    "asarray": lambda df: np.asarray(df["b"]),
    "mean": lambda df: df["a"].mean(),
    "loc": lambda df: df.loc[1, "a"],
    "iloc": lambda df: df.iloc[1, 0],
    "groups": lambda df: df.groupby("c")["a"].mean().iloc[0],
    "rolling": lambda df: df["a"].rolling(2).mean().iloc[1],
    "length": lambda df: len(df),
    "columns": lambda df: list(df.columns).index("b"),
    "rows": lambda df: sum(row.a for row in df.itertuples()),
    "labels": lambda df: len(df["c"].unique()),
    "mask": lambda df: df["a"][df["c"] == "u"].sum(),
    "index": lambda df: df.index.values,
    "categories": lambda df: pd.Categorical(df["c"]).codes,
}


def slope(f, x):
    return np.array([(f(x + d) - f(x - d)) / 2e-6 for d in 1e-6 * np.eye(2)])


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore:grad_")  # of several changes in a row
@pytest.mark.parametrize("name", READS)
def test_a_table_that_stays_the_same_needs_no_other_trace(name):
    """Ten calls are traced once; what is written in place, in the table or by way of an array of
    its memory, is noticed."""
    df, read = table(), READS[name]

    def f(x):
        return np.sum(x[0] * x[1] * read(df))

    g = grad(f)
    for _ in range(10):
        np.testing.assert_allclose(g(X), slope(f, X), rtol=1e-6)
    assert g.cache_info().traces == 1
    for change in (
        lambda: df.__setitem__("a", df["a"] * 2),
        lambda: df.iloc.__setitem__((1, 0), 9.0),
        lambda: df.loc.__setitem__((0, "c"), "w"),
        lambda: df["b"].values.__setitem__(0, 7.0),
        lambda: df.insert(0, "first", 3.0),
        lambda: df.pop("n"),
    ):
        with contextlib.suppress(ValueError):  # pandas may not let an array be written to
            change()
        np.testing.assert_allclose(g(X), slope(f, X), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:grad_")
@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_table_of_an_object(compile):
    """A closed-over one, `self.df`, an attribute of an argument: another table with other numbers
    in it is noticed, one with the same isn't."""
    model = Model(table())
    bound = grad(model.loss, compile=compile)
    passed = grad(lambda p, model: model.loss(p), compile=compile)
    for factor in (1.0, 1.0, 3.0):
        model.df = table()
        model.df["a"] *= factor
        expected = [7.0 * factor, 5.0]
        np.testing.assert_allclose(bound(X), expected)
        np.testing.assert_allclose(passed(X, model), expected)
        np.testing.assert_allclose(passed(X, Model(table())), [7.0, 5.0])
    before = passed.cache_info().traces
    for _ in range(3):
        passed(X, model)
    assert passed.cache_info().traces == before


LIMIT = 1.5
LOOKED_FOR = {
    "query": lambda df, x: df.query("a > @LIMIT")["b"].sum() * x[0],
    "eval": lambda df, x: df.eval("a * @LIMIT").sum() * x[0],
    "pd.eval": lambda df, x: pd.eval("LIMIT * 2") * x[0],
}


@pytest.mark.parametrize("name", LOOKED_FOR)
def test_variables_that_pandas_looks_for(name, monkeypatch):
    """`query` and `eval` find variables of who calls them by names in a text: these are read."""
    monkeypatch.setitem(globals(), "LIMIT", 1.5)
    df = table()

    def f(x):
        return LOOKED_FOR[name](df, x)

    g = grad(f, compile="never")
    for _ in range(3):
        assert g(X)[0] * X[0] == pytest.approx(f(X))
    assert g.cache_info().traces == 1
    monkeypatch.setitem(globals(), "LIMIT", 3.5)
    assert g(X)[0] * X[0] == pytest.approx(f(X))
    limit = [1.5]

    def local(x):
        least = limit[0] + 0.0  # noqa: F841
        return df.query("a > @least")["b"].sum() * x[0]

    g = grad(local, compile="never")
    assert [g(X)[0], limit.__setitem__(0, 3.5), g(X)[0]] == [4.5, None, 3.0]


def test_a_table_that_has_again_what_was_in_it_once():
    """Arrays that pandas had made of it before share memory that has changed since."""
    df = table()
    g = grad(lambda x: np.sum(df["a"].to_numpy() * x[0]))
    for change in (
        lambda: None,
        lambda: df.loc.__setitem__((0, "a"), 7.0),
        lambda: df.__setitem__("a", [1.0, 2.0, 4.0]),
    ):
        change()
        np.testing.assert_allclose(g(X), [df["a"].sum(), 0.0])
        g(X)


def test_a_table_that_the_function_makes_or_changes():
    """What it makes is its own; one from outside changes as often as in plain pandas."""
    df = table()

    def made(x):
        own = pd.DataFrame({"a": [1.0, 2.0]})
        own["b"] = own["a"] * 3
        return np.sum(own["b"].to_numpy() * x)

    g = grad(made)
    for _ in range(3):
        np.testing.assert_allclose(g(X), [3.0, 6.0])
    assert g.cache_info().traces == 1

    def changed(x):
        df["a"] = df["a"] + 1
        return np.sum(df["a"].to_numpy()) * np.sum(x)

    g = grad(changed)
    np.testing.assert_allclose(g(X), 10.0)
    np.testing.assert_allclose(g(X), 13.0)


RATE = 2.0


def test_what_pandas_calls_or_draws_is_noticed(monkeypatch):
    """A function of the user's, a sample of the rows."""
    df = table()
    g = grad(lambda x: np.sum(x) * df["a"].apply(lambda a: RATE * a).sum())
    np.testing.assert_allclose(g(X), 14.0)
    monkeypatch.setitem(globals(), "RATE", 3.0)
    np.testing.assert_allclose(g(X), 21.0)

    def sampled(x):
        return np.sum(x) * df["a"].sample(1).iloc[0]

    np.random.seed(0)
    g = grad(sampled)
    found = [g(X)[0] for _ in range(2)]
    np.random.seed(0)
    np.testing.assert_allclose(found, [sampled(X) / np.sum(X) for _ in range(2)])


def test_rows_that_a_traced_condition_chooses():
    """pandas is passed a traced mask, whose values are guarded."""
    df = table()

    def f(x, entries):
        return np.sum(df["a"][entries > 0].to_numpy()) * np.sum(x)

    g = grad(f)
    for entries, expected in (
        ([0.0, 1.0, 1.0], 6.0),
        ([0.0, 2.0, 1.0], 6.0),
        ([1.0, 0.0, 0.0], 1.0),
    ):
        np.testing.assert_allclose(g(X, np.array(entries)), expected)
    assert g.cache_info().traces == 2


@pytest.mark.parametrize("now", [lambda: pd.Timestamp.now(), lambda: pd.Timestamp("now")])
def test_the_time_that_it_tells_is_that_of_each_call(now):
    """It isn't one of the functions that depend on their arguments."""
    f = value_and_grad(lambda x: np.sum(x) * 0 + now().timestamp())
    assert f(np.ones(2))[0] < f(np.ones(2))[0]


SHAPED = {
    "one column of an array of rows": lambda: pd.DataFrame(np.arange(6.0).reshape(3, 2)[:, :1]),
    "an index of floats": lambda: pd.DataFrame({"a": [1.0, 2.0]}, index=[0.5, 1.5]),
    "numbers of NumPy's among objects": lambda: pd.Series([np.float64(1.0), "a"], dtype=object),
}


@pytest.mark.parametrize("name", SHAPED)
def test_a_table_is_like_another_with_the_same_in_it(name):
    """However it lies in memory, and whatever its labels are."""
    held = [SHAPED[name]()]
    dloss = grad(lambda x: np.sum(x) * held[0].iloc[0].sum(), compile="never")
    for _ in range(4):
        np.testing.assert_array_equal(dloss(X), held[0].iloc[0].sum() * np.ones(2))
    assert dloss.cache_info().traces == 1
    known = Contents(held[0])
    assert known.are_in(SHAPED[name]())


N = 5000
LONG = {
    "texts": pd.Series([str(k) for k in range(N)], dtype=object),
    "numbers among texts": pd.Series(["a", 1.5, None, 0.0] * (N // 4), dtype=object),
    "a few numbers in an empty column": pd.Series(
        pd.arrays.SparseArray([1.0, 0.0, 2.0, *[np.nan] * (N - 3)])
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_long_columns_are_compared_without_a_step_for_each_element(name):
    """So they can stand in a function: nothing but what has changed is looked at one by one."""
    x = LONG[name].copy()
    known, profile = Contents(x), cProfile.Profile()
    assert profile.runcall(known.are_in, x)
    assert sum(entry.callcount for entry in profile.getstats()) < N / 10


@pytest.mark.parametrize(
    ("start", "later"),
    [([1, "a"], [True, "a"]), ([0.0, "a"], [-0.0, "a"]), ([1.0, "a"], [1, "a"]), ([[1]], [[1]])],
)
def test_objects_that_are_equal_are_others(start, later):
    """What counts is whether a function could tell them apart; of a list nothing is known."""
    known = Contents(pd.Series(start, dtype=object))
    assert not known.are_in(pd.Series(later, dtype=object))


def test_a_sparse_column_is_another_where_its_numbers_or_their_places_are():
    made = lambda *x: pd.Series(pd.arrays.SparseArray(x))  # noqa: E731
    known = Contents(made(1.0, 0.0, np.nan))
    assert known.are_in(made(1.0, 0.0, np.nan))
    others = [(1.0, -0.0, np.nan), (1.0, np.nan, 0.0), (1.0, 0.0), (2.0, 0.0, np.nan)]
    assert not any(known.are_in(made(*x)) for x in others)
