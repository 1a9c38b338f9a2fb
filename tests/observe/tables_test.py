"""Tables from outside that a traced value is written to."""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tapegrad import grad
from tapegrad.errors import UnsupportedError

X = np.array([1.0, 2.0, 3.0])
AT = {
    "loc": lambda t, x: t.loc.__setitem__((1, "v"), float(x[0])),
    "setitem": lambda t, x: operator.setitem(t, "v", x * 2),
    "setattr": lambda t, x: setattr(t, "v", x),
    "insert": lambda t, x: t.insert(0, "first", x),
    "update": lambda t, x: t.update({"v": x}),
    "fillna": lambda t, x: t.fillna(float(x[0]), inplace=True),
}


def by_loc(t: Any, x: Any) -> None:
    t.loc[1, "v"] = float(x[0])


def by_at(t: Any, x: Any) -> None:
    t.at[1, "v"] = float(x[0])


def by_iloc(t: Any, x: Any) -> None:
    t.iloc[0:2, 0] = [float(x[0]), 2.0]


def by_column(t: Any, x: Any) -> None:
    t["v"] = x * 2


def by_new_column(t: Any, x: Any) -> None:
    t["w"] = t["v"] * x[0]


def by_attribute(t: Any, x: Any) -> None:
    t.v = x


def by_new_row(t: Any, x: Any) -> None:
    for k in range(3):
        t.loc[k + 3] = x[k]


def in_place(t: Any, x: Any) -> None:
    t += x[0]


WRITES = [by_loc, by_at, by_iloc, by_column, by_new_column, by_attribute, by_new_row, in_place]


@pytest.mark.parametrize("write", [*WRITES, *AT.values()])
def test_a_traced_value_is_refused_before_it_is_written(write):
    """The table is whole afterwards: it held tracers, in columns of objects."""
    table = pd.DataFrame({"v": [0.0, 0.0, 0.0]})

    def f(x):
        write(table, x)
        return np.sum(x**2)

    message = r"written to a Series or DataFrame from outside the function \(tables_test.py"
    with pytest.raises(UnsupportedError, match=message):
        grad(f, compile="never")(X)
    pd.testing.assert_frame_equal(table, pd.DataFrame({"v": [0.0, 0.0, 0.0]}))


def test_a_series_and_an_error_that_is_caught():
    series = pd.Series([0.0, 0.0], index=["a", "b"])

    def f(x):
        with contextlib.suppress(Exception):
            series["new"] = float(x[0])
        return np.sum(x**2)

    with pytest.raises(UnsupportedError, match="Series or DataFrame from outside"):
        grad(f, compile="never")(X)
    assert series.dtype == float and list(series.index) == ["a", "b"]


def test_plain_values_are_written():
    table = pd.DataFrame({"v": [0.0, 0.0, 0.0]})

    def f(x):
        table.loc[1, "v"] = 2.0
        table["w"] = np.linspace(0.0, 1.0, 3)
        return np.sum(x**2)

    np.testing.assert_allclose(grad(f, compile="never")(X), 2 * X)
    assert table["v"].tolist() == [0.0, 2.0, 0.0] and table["w"].tolist() == [0.0, 0.5, 1.0]
