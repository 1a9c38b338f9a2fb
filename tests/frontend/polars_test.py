"""Polars' Series and DataFrames as arguments: what they do is held against Polars itself."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import grad, hvp, jacobian, jit, value_and_grad, vmap
from tapegrad.errors import ArgumentError, UnsupportedError

pl = pytest.importorskip("polars")

MODES = pytest.mark.parametrize("mode", ["never", "always"])
X = np.array([1.5, 2.0, 0.5, 3.0])


def series(shift=0.0):
    return pl.Series("x", X + shift)


def frame(shift=0.0):
    return pl.DataFrame(
        {"x": X + shift, "n": [1, 2, 3, 4], "who": ["a", "b", None, "d"], "y": X**2 - shift}
    )


def differences(f, x, h=1e-6):
    """The gradient of a function of a Series, by differences."""
    found = []
    for k in range(len(x)):
        step = h * (np.arange(len(x)) == k)
        a, b = pl.Series("x", x.to_numpy() + step), pl.Series("x", x.to_numpy() - step)
        found.append((f(a) - f(b)) / (2 * h))
    return found


OTHER = pl.Series("other", [1.0, 2.0, 3.0, 4.0])
OF_SERIES = {
    "arithmetic": lambda s: 1 - 2 * s / 3 + s**2 - (+s) * abs(-s),
    "powers": lambda s: 2.0**s + s**s,
    "captured": lambda s: OTHER.to_numpy() * s + s / OTHER.to_numpy(),
    "arrays": lambda s: X * s + s * X + np.float64(2.0) * s + np.array([1.0]) * s,
    "of one": lambda s: s * s[:1],
    "ufuncs": lambda s: np.tanh(s) + np.maximum(s, 1.0) + np.arctan2(s, X),
    "methods": lambda s: s.exp() + s.sqrt() + s.log() + s.abs(),
    "names": lambda s: s.alias("a") + s.rename("b"),
    "slices": lambda s: s[1:] + s[:-1] + s.head(3) + s.tail(3) + s[[0, 2, 1]] + s.tail(-1)[::-1],
    "array": lambda s: s.to_numpy() * np.asarray(s),
    "copy": lambda s: s.to_numpy(writable=True),
    "products": lambda s: s @ s + s.dot(s * 2) + s @ X,
    "product": lambda s: np.ones((2, 4)) @ s,
    "numpy": lambda s: np.dot(s, X) + np.linalg.norm(s) + np.prod(np.where(X > 1, s, 1.0)),
    "entries": lambda s: s[0] * s[-1] + float(len(s)) + s.shape[0],
    "facts": lambda s: s * (s.len() + (s.name == "x") + (s.dtype == pl.Float64)),
    **{
        name: lambda s, name=name: getattr(s, name)()
        for name in ("sum", "mean", "std", "var", "max", "min")
    },
    "ddof": lambda s: s.var(ddof=0) + s.std(2),
    "made again": lambda s: np.sum((s - s.mean()).to_numpy() ** 2),
}


@MODES
@pytest.mark.parametrize("name", OF_SERIES)
def test_series_do_what_polars_does(name, mode):
    f = OF_SERIES[name]
    compiled = jit(f, compile=mode)
    for s in (series(), series(0.25)):
        expected, found = f(s), compiled(s)
        if isinstance(expected, pl.Series):
            assert (
                isinstance(found, pl.Series)
                and found.name == expected.name
                and found.dtype == expected.dtype
            )
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12)

    def loss(s):
        return np.sum(np.asarray(f(s)) ** 2)

    gradient = grad(loss, compile=mode)(series())
    assert isinstance(gradient, pl.Series) and gradient.name == "x"
    np.testing.assert_allclose(gradient, differences(loss, series()), rtol=1e-5, atol=1e-6)


def misfit(d):
    z = d.with_columns(d["y"] * 2, z=d["x"] / d["n"])
    assert z.columns == ["x", "n", "who", "y", "z"] and z.shape == (4, 5) and d["who"][0] == "a"
    numbers = z.select("x", "y", "z").to_numpy()
    part = d[1:, ["x", "y"]]
    return (
        np.sum(numbers**2) + (part["x"] * part.get_column("y")).sum() + d[0, "y"] * d[:, 0].mean()
    )


@MODES
def test_frames(mode):
    derivative = value_and_grad(misfit, compile=mode)
    for shift in (0.0, 0.5):
        value, gradient = derivative(frame(shift))
        np.testing.assert_allclose(value, misfit(frame(shift)))
        assert isinstance(gradient, pl.DataFrame) and gradient.columns == ["x", "y"]
        for name in gradient.columns:
            column = frame(shift)[name]

            def of_column(x, name=name, shift=shift):
                return misfit(frame(shift).with_columns(x.alias(name)))

            np.testing.assert_allclose(gradient[name], differences(of_column, column), rtol=1e-6)


OF_FRAMES = {
    "select": lambda d: d.select("y", "x"),
    "listed": lambda d: d.select(["y", "who"]),
    "series": lambda d: d.select(d["x"] * 2, "n"),
    "names": lambda d: d[["x", "y"]],
    "several": lambda d: d["x", "n"],
    "rows": lambda d: d[1:3],
    "row": lambda d: d[-1],
    "places": lambda d: d[:2, [0, 1]],
    "with_columns": lambda d: d.with_columns([d["x"] + d["y"]], w=d["n"]),
    "none": lambda d: d.clone(),
}


@MODES
@pytest.mark.parametrize("name", OF_FRAMES)
def test_frames_do_what_polars_does(name, mode):
    f = OF_FRAMES[name]
    compiled = jit(f, compile=mode)
    for d in (frame(), frame(1.0)):
        found = compiled(d)
        assert found.equals(f(d)) and found.schema == f(d).schema


def test_what_they_stand_for():
    def f(d):
        assert isinstance(d, pl.DataFrame) and isinstance(d["x"], pl.Series)
        assert (d.height, d.width, len(d)) == (4, 4, 4) and "x" in d and "q" not in d
        assert d.dtypes == frame().dtypes and d.schema == frame().schema
        assert isinstance(d["x"].sum(), float)
        return d["x"].sum()

    assert grad(f)(frame())["x"].to_list() == [1.0] * 4


REFUSED = {
    "Series.diff": lambda d: d["x"].diff(),
    "Series.cum_sum with these arguments": lambda d: d["x"].cum_sum(reverse=True),
    "Series.str": lambda d: d["x"].str,
    "Series.__gt__": lambda d: d["x"] > 1.0,
    "Series.std with these arguments": lambda d: d["x"][:1].std(),
    "what Polars does with a traced Series": lambda d: pl.DataFrame({"x": d["x"]}),
    "Series.__setitem__": lambda d: d["x"].__setitem__(0, 1.0),
    "add of a Series and a Expr": lambda d: d["x"] + pl.col("y"),
    "add of a Series and a NoneType": lambda d: d["x"] + None,
    "add of a Series that comes to Int64": lambda d: d["n"] + d["n"],
    "pow of a Series that comes to Int64": lambda d: d["n"] ** 2,
    "DataFrame.group_by": lambda d: d.group_by("who"),
    "DataFrame.lazy": lambda d: d.lazy(),
    "DataFrame.filter": lambda d: d.filter(who="a"),
    "DataFrame.join": lambda d: d.join(d, on="n"),
    "DataFrame.__mul__": lambda d: d * 2,
    "DataFrame.select of anything but names": lambda d: d.select(pl.col("x")),
    "DataFrame.with_columns of anything but names": lambda d: d.with_columns(pl.col("x") * 2),
    "besides numbers": lambda d: d.to_numpy(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_all_else_is_refused_by_name(name):
    import re

    with pytest.raises(UnsupportedError, match=re.escape(name) + r".*polars_test.*x\.to_numpy\(\)"):
        jit(REFUSED[name])(frame())


def test_polars_own_errors():
    for f in (lambda d: d["q"], lambda d: d.select("q"), lambda d: d["x"] + d["y"][:2]):
        with pytest.raises(pl.exceptions.PolarsError):
            f(frame())
        with pytest.raises(pl.exceptions.PolarsError):
            jit(f)(frame())
    with pytest.raises(TypeError, match="axis"):
        np.sum(series())
    with pytest.raises(TypeError, match="axis"):
        jit(np.sum)(series())


def test_nulls_and_nan():
    with pytest.raises(ArgumentError, match=r"column 'x' has nulls.*fill_null.*drop_nulls"):
        grad(misfit)(frame().with_columns(x=pl.Series([1.0, None, 2.0, 3.0])))
    with_nan = pl.Series("x", [1.0, np.nan, 3.0])
    extremes = jit(lambda s: (s.max(), s.min(), s.sum()))
    assert extremes(pl.Series("x", [1.0, 2.0, 3.0])) == (3.0, 1.0, 6.0)
    np.testing.assert_array_equal(
        extremes(with_nan), (with_nan.max(), with_nan.min(), with_nan.sum())
    )


@MODES
def test_columns_that_are_no_numbers_are_compared(mode):
    f = jit(lambda d: d["x"] * float(d["who"].to_list().count("a")), compile=mode)
    a = pl.DataFrame({"x": [1.0, 2.0], "who": ["a", "b"]})
    b = pl.DataFrame({"x": [1.0, 2.0], "who": ["a", "a"]})
    assert f(a).to_list() == [1.0, 2.0] and f(b).to_list() == [2.0, 4.0]
    assert f(a).to_list() == [1.0, 2.0]


def test_equal_labels_are_not_traced_again():
    traced = []

    @grad
    def f(d):
        traced.append(1)
        return (d["x"] * d["y"] * d["n"]).sum()

    for k in range(4):
        d = frame(k).with_columns(n=pl.Series([k, 1, 2, 3]))
        np.testing.assert_allclose(f(d)["x"], (d["y"] * d["n"]).to_numpy())
    assert f.cache_info().misses == 1
    renamed = frame().rename({"x": "z"})
    with pytest.raises(pl.exceptions.PolarsError):
        f(renamed)


def test_arrays_and_integers_from_outside():
    outside, place = np.ones(4), np.array([0, 1])
    f = jit(lambda s, k: (s * outside)[place] * s[k])
    for change in (lambda: None, lambda: outside.fill(2.0), lambda: place.fill(3)):
        change()
        for k in (0, 3):
            expected = X[place] * outside[place] * X[k]
            np.testing.assert_allclose(f(series(), k), expected)
    texts = jit(lambda d: d["who"][place])
    with pytest.raises(UnsupportedError, match="with these arguments"):
        texts(frame())


def test_what_is_written_to_an_array_is_not_in_the_series():
    def f(s):
        a = s.to_numpy(writable=True)
        a[0] = 9.0
        return a.sum() * s.sum()

    np.testing.assert_allclose(jit(f)(series()), f(series()))


def test_texts_and_dates():
    d = frame().with_columns(
        day=pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 1, 4), eager=True)
    )

    def f(d):
        is_a = np.asarray(d["who"]) == "a"
        return np.where(is_a, d["x"], 0.0).sum() + d["day"][2].day * d["x"][1]

    derivative = value_and_grad(f)
    for _ in range(3):
        value, gradient = derivative(d)
        np.testing.assert_allclose(value, f(d))
        assert gradient["x"].to_list() == [1.0, 3.0, 0.0, 0.0]
    assert derivative.cache_info().misses == 1


def test_dtypes():
    d = pl.DataFrame({"f": pl.Series([1.0, 2.0], dtype=pl.Float32), "b": [True, False]})
    gradient = grad(lambda d: (d["f"] * d["f"]).sum())(d)
    assert gradient.schema == {"f": pl.Float32} and gradient["f"].to_list() == [2.0, 4.0]
    assert jit(lambda d: (d["b"].sum(), d["b"].mean(), d["f"].mean()))(d) == (1, 0.5, 1.5)


def test_other_transformations():
    s = series()

    def f(s):
        return (s**3).sum()

    np.testing.assert_allclose(hvp(f)(s, pl.Series("x", np.ones(4))), 6 * X)
    rows = vmap(grad(lambda w, s: (w * s**2).sum()), in_axes=(0, None))(np.ones(2), s)
    assert rows.shape == (2,)
    with pytest.raises(ArgumentError, match=r"would get numbers of shape .*pass x.to_numpy"):
        jacobian(lambda s: s.to_numpy())(s)
    with pytest.raises(ArgumentError, match=r"argument d\['n'\] is an array of dtype int64"):
        grad(lambda d: d["n"].sum() * 1.0)(pl.DataFrame({"n": [1, 2]}))


LEFT: list = []


@MODES
def test_what_is_left_behind_is_polars(mode):
    LEFT.clear()
    f = grad(lambda s: LEFT.append(s * 2) or s.sum(), compile=mode)
    for k in range(3):
        f(series(k))
    for k, x in enumerate(LEFT):
        assert type(x) is pl.Series and x.equals(series(k) * 2)


HELD = {}


@MODES
def test_captured_ones_are_what_they_are_at_the_call(mode):
    memory = np.ones(4)
    HELD["series"], HELD["frame"] = pl.Series("m", memory), frame()

    def f(s):
        return (s * HELD["series"].to_numpy()).sum() + np.sum(
            HELD["frame"]["x"].to_numpy() * s.to_numpy()
        )

    derivative = grad(f, compile=mode)
    for change in (
        lambda: None,
        lambda: memory.__setitem__(0, 5.0),  # which the Series shares
        lambda: HELD.update(series=pl.Series("m", X)),
        lambda: HELD["series"].scatter(1, 7.0),
        lambda: HELD["frame"].replace_column(0, pl.Series("x", X * 4)),
        lambda: HELD.update(frame=frame(3.0)),
    ):
        change()
        expected = HELD["series"].to_numpy() + HELD["frame"]["x"].to_numpy()
        for _ in range(2):
            np.testing.assert_allclose(derivative(series()), expected)
    count = derivative.cache_info().misses
    derivative(series(1.0))
    assert derivative.cache_info().misses == count
    for f in (lambda s: s * OTHER, lambda s: OTHER * s, lambda s: np.maximum(OTHER, s)):
        with pytest.raises(UnsupportedError, match=r"isn't traced meets one that is.*to_numpy"):
            jit(f)(series())
