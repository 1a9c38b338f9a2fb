"""`apply`, `map`, `agg` and `transform` with a function of the program's, of tables that are traced
and of plain ones, do what they do in pandas."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

from tapegrad import grad, jit

X = np.array([0.5, 2.0])
D = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.5, 1.5, 3.0]}, index=list("uvw"))
MIXED = D.assign(n=list("xyx"), k=[1, 2, 3])


def scaled(v, rate):
    return v * rate


def kept(c):
    if c.name == "b":
        raise ValueError("not this one")
    return c.sum()


PLAIN = {  # of a table from outside, whose numbers meet traced ones in the function
    "rows": lambda x: D.apply(lambda r: r["a"] * x[0] + r["b"] * x[1], axis=1),
    "columns": lambda x: D.apply(lambda c: c.sum() * x[0]),
    "columns as columns": lambda x: D.apply(lambda c: c * x[0]),
    "rows of several dtypes": lambda x: MIXED.apply(
        lambda r: r["a"] * x[0] if r["n"] == "x" else r["k"] * x[1], axis=1
    ),
    "some aren't traced": lambda x: D["a"].map(lambda v: v * x[0] if v > 1 else v / 3),
    "entries": lambda x: D["a"].map(lambda v: np.exp(-v * x[0])),
    "a method with arguments": lambda x: D["a"].apply(scaled, args=(x[0],)),
    "a keyword": lambda x: D["a"].apply(scaled, rate=x[1]),
    "a partial": lambda x: D["a"].apply(functools.partial(scaled, rate=x[0])),
    "each entry": lambda x: D.map(lambda v: v * x[0]),
    "lists": lambda x: D.apply(lambda r: [r["a"] * x[0], x[1]], axis=1, result_type="expand"),
    "series": lambda x: D.apply(lambda r: pd.Series({"u": r["a"] * x[0], "v": x[1]}), axis=1),
    "arrays": lambda x: D.apply(lambda c: np.sum(c[:2] * x), raw=True),
    "aggregated": lambda x: D.agg(lambda c: c.max() * x[0]),
    "transformed": lambda x: D.transform(lambda c: (c - c.mean()) * x[1]),
    "groups": lambda x: MIXED.groupby("n")["a"].apply(lambda s: np.sum(s.to_numpy() * x[0])),
    "groups aggregated": lambda x: MIXED.groupby("n")["a"].agg(lambda s: s.max() * x[1]),
    "windows": lambda x: D["a"].rolling(2).apply(lambda w: w[-1] * x[0] - w[0], raw=True),
    "a column more": lambda x: D.assign(c=lambda d: d["a"] * x[0], d=2.0)["c"],
    "a traced column more": lambda x: D.assign(c=D["a"] * x[0])["c"],
    "nothing traced": lambda x: D.apply(lambda c: c.quantile(0.3)) * x[0],
    "sorted by a key": lambda x: D.sort_values("a", key=lambda c: -c)["b"] * x[0],
}
TRACED = {  # of a traced table
    "rows": lambda d: d.apply(lambda r: r["a"] / r["b"], axis=1),
    "columns": lambda d: d.apply(lambda c: (c - c.mean()) / c.std()),
    "arrays": lambda d: d.apply(lambda c: np.sum(c**2), raw=True),
    "sums": lambda d: d.agg(lambda c: c.sum() ** 2),
    "names": lambda d: d.agg("sum"),
    "universal functions": lambda d: d.apply(np.exp),
    "transformed": lambda d: d.transform(lambda c: c - c.mean()),
    "each entry": lambda d: d.map(lambda v: v**2 if v > 1 else v),
    "a column's": lambda d: d["a"].map(lambda v: v**2 if v > 1 else -v),
    "more arguments": lambda d: d["a"].apply(scaled, args=(d["b"].sum(),)),
}


def numbers(x):
    return x.to_numpy() if isinstance(x, (pd.Series, pd.DataFrame)) else x


def held_against_pandas(f, x, compile):
    expected, found = f(x), jit(f, compile=compile)(x)
    if isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(found, expected)
    else:
        pd.testing.assert_frame_equal(found, expected)


@pytest.mark.every(8)
@pytest.mark.parametrize("name", PLAIN)
def test_tables_of_the_outside(name):
    f = PLAIN[name]
    held_against_pandas(f, X, "never")

    def loss(x):
        return np.nansum(numbers(f(x)) ** 2)

    dloss = grad(loss, compile="never")
    for k in range(4):
        x = X + k
        slopes = [(loss(x + d) - loss(x - d)) / 2e-5 for d in 1e-5 * np.eye(2)]
        np.testing.assert_allclose(dloss(x), slopes, rtol=1e-6, atol=1e-6)
    assert dloss.cache_info().traces == 1


@pytest.mark.every(2)
@pytest.mark.parametrize("name", TRACED)
def test_traced_tables(name):
    held_against_pandas(TRACED[name], D, "never")


def test_compiled():
    held_against_pandas(PLAIN["rows"], X, "always")
    held_against_pandas(TRACED["columns"], D, "always")


def test_later_calls():
    """what is in the table, or what the function reads, changes -> traced anew"""
    table, rates = D.copy(), {"rate": 2.0}

    def loss(x):
        return np.sum(table.apply(lambda c: c.sum() * x[0] * rates["rate"]).to_numpy())

    dloss = grad(loss, compile="never")
    assert dloss(X)[0] == 24.0
    table.loc["u", "a"] = 2.0
    assert dloss(X)[0] == 26.0
    rates["rate"] = 3.0
    assert dloss(X)[0] == 39.0


def test_errors_of_the_function():
    """they are raised as in pandas, and count among those that pandas catches"""
    with pytest.raises(ValueError, match="not this one"):
        grad(lambda x: np.sum(D.apply(lambda c: kept(c) * x[0]).to_numpy()))(X)
