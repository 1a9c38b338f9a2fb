"""pandas' Series and DataFrames: what they do is held against pandas itself."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError, TapegradError, UnsupportedError

pd = pytest.importorskip("pandas")

X = np.array([1.0, 2.0, 3.0])
NAN = np.array([1.0, np.nan, 3.0])
UVW = list("uvw")

SERIES = {
    "float64": pd.Series(X, index=UVW, name="a"),
    "nan": pd.Series(NAN, index=UVW),
    "float32": pd.Series(X, dtype="f4", index=UVW),
    "integers": pd.Series([1, 2, 0], index=UVW, name=3),
    "bytes": pd.Series([1, 2, 200], dtype="u1", index=UVW),
    "booleans": pd.Series([True, False, True], index=UVW),
    "twice": pd.Series(X, index=list("uuv")),
    "dates": pd.Series(X, index=pd.date_range("2020", periods=3)),
}
OF_SERIES = {
    "arithmetic": lambda s: 1 - 2 * s / 3 + s**2 - (+s),
    "2 ** s": lambda s: 2.0**s,
    "signs": lambda s: abs(-(s * 1.0)),
    "conditions": lambda s: (s > 1) & ~(s == 3) | (s <= 0) ^ (s != 1),
    "methods": lambda s: s.add(1.0).mul(s).rsub(2.0).abs(),
    "further arguments": lambda s: s.add(1.0, fill_value=0.0),
    "quotients": lambda s: s // 2 + s % 2,
    "array": lambda s: np.array([1.0, 2.0, 3.0]) * s + [1.0, 2.0, 3.0],
    "array of one": lambda s: s * np.ones(1),
    "wrong array": lambda s: s * np.ones(2),
    "numpy's number": lambda s: s * np.float64(2.0),
    "numpy's integer": lambda s: s * np.int64(2),
    "exp": lambda s: np.exp(s / 2),
    "maximum": lambda s: np.maximum(s, s * 2),
    "modf": lambda s: np.modf(s / 2.0),
    "where": lambda s: np.where(s > 1, s, 0.0),
    "concatenate": lambda s: np.concatenate([s, s]),
    **{
        name: lambda s, name=name: getattr(s, name)()
        for name in ("sum", "mean", "std", "var", "prod", "max", "min")
    },
    "skipna": lambda s: s.sum(skipna=False),
    "ddof": lambda s: s.var(ddof=0),
    "np": lambda s: np.sum(s) + np.mean(s) + np.std(s) + np.max(s),
    "product": lambda s: s @ s,
    "products": lambda s: (s @ np.ones((3, 2)), np.ones((2, 3)) @ s, np.dot(s, X)),
    "out": lambda s: (s.to_numpy() * 2, s.values[:, None] * X),
    "float": lambda s: s.astype(float) * 2,
    "a label": lambda s: s["u"] * s.loc["w"],
    "labels": lambda s: s[["w", "u"]] * 2,
    "places": lambda s: (s.iloc[0] * s.iloc[-1], s.iloc[1:] * 2, s.iloc[[2, 0]] * 2),
    "positions": lambda s: s[0] * 1,
    "other order": lambda s: s * s.iloc[::-1],
    "entries": lambda s: np.multiply(1.0, sum(x * k for k, x in enumerate(s))),
    "names": lambda s: (s * len(s), s.name, "u" in s, isinstance(s, pd.Series)),
    "an outside one": lambda s: s * SERIES["float64"] + SERIES["float64"],
    "piped": lambda s: s.pipe(lambda t, by: t * by, 2.0),
    "a list of it": lambda s: [x * 1.0 for x in s.tolist()],
    "one entry": lambda s: s.iloc[1:2].item() * 1.0,
    "two entries": lambda s: s.iloc[:2].item(),
    "keys": lambda s: list((s * 1.0).keys()),
    "a list and it": lambda s: [1.0, 2.0, 3.0] @ (s * 1.0),
    "groups": lambda s: s * len(s.groupby([0, 0, 1])),
    "mask": lambda s: s[s > 1],
    "masks": lambda s: (s[(s > 1) & (s < 3)] * 2, s.loc[s < 3], s.loc["u":"v"] * 1, s[::2] * 1),
    "rolling": lambda s: s.rolling(2).sum(),
    "windows": lambda s: (s.rolling(2).mean() * 1, s.rolling(2).std(), s.rolling(4).max()),
    "up to each": lambda s: (s.expanding().mean(), s.expanding().sum(), s.ewm(span=3).mean()),
    "decay": lambda s: (s.ewm(alpha=0.3, adjust=False).mean(), s.ewm(com=1.5).mean()),
    "differences": lambda s: (s.diff(), s.diff().dropna() * 2, s.shift(1).fillna(0.5)),
    "returns": lambda s: (s * 1.0).pct_change(fill_method=None).dropna(),
    "cumulative": lambda s: (s.cumsum(), s.cumprod(), s.cummax(), s.cummin()),
    "clipped": lambda s: (s.clip(1.5, 2.5), s.clip(lower=2), s.round(1)),
    "elsewhere": lambda s: (s.where(s > 1, 0.5), s.mask(s > 1), s.where(s > 1, s * 2)),
    "missing": lambda s: (s.isna(), s.notna() & True, s.count()),
    "other labels": lambda s: (s.rename("k"), s.reindex(list("wux")), s.head(2), s.to_frame("k")),
    "pairs": lambda s: (s.corr(s**2), s.cov(s**2), s.median(), s.quantile(0.3)),
    "joined": lambda s: (pd.concat([s, s * 2]), pd.concat([s, s**2], axis=1)),
    "made": lambda s: (pd.Series(s.to_numpy() * 2, index=list("xyz"), name="k"), pd.Series(s)),
    "made of numbers": lambda s: (pd.Series([s.iloc[0] * 1.5, 2.0]), pd.Series({"k": s.sum() / 2})),
    "a frame": lambda s: pd.DataFrame({"a": s.to_numpy() * 1.0, "b": s.to_numpy() / 3}),
    "a frame of series": lambda s: pd.DataFrame({"a": s * 1.0, "b": s.iloc[:2] * 0.5}),
    "a frame of rows": lambda s: pd.DataFrame(
        [{"a": s.iloc[0] / 2}, {"a": 1.5, "b": s.iloc[1] / 3}]
    ),
    "of an array": lambda s: pd.DataFrame(s.to_numpy()[:, None] * X, columns=UVW, index=s.index),
    "a column more": lambda s: pd.DataFrame({"a": s / 2, "n": list("xyx")}).assign(b=s / 3),
    "by group": lambda s: (s / 2).groupby(list("xyx")).mean(),
    "each group": lambda s: [(n, x * 2) for n, x in (s / 2).groupby(list("yxy"), sort=False)],
}


def put(d: Any) -> Any:
    d["c"] = d["a"] ** 2
    d["a"] = 1.5
    return d


FRAMES = {
    "float64": pd.DataFrame({"a": X, "b": X + 3}, index=UVW),
    "nan": pd.DataFrame({"a": NAN, "b": X}),
    "mixed": pd.DataFrame({"a": X, "b": [4, 5, 6]}, index=UVW),
    "float32 too": pd.DataFrame({"a": X.astype("f4"), "b": X}),
    "float32": pd.DataFrame({"a": X, "b": X + 3}, dtype="f4"),
    "strings": pd.DataFrame({"a": X, "b": X + 3, "n": list("xyx")}, index=UVW),
    "booleans": pd.DataFrame({"a": X, "b": [True, False, True]}),
    "square": pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=list("ab"), columns=list("ab")),
    "twice": pd.DataFrame(np.stack([X, X + 1], 1), columns=["a", "a"]),
    "levels": pd.DataFrame(
        np.stack([X, X + 1], 1), columns=pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    ),
}
OF_FRAMES = {
    "columns": lambda d: (d["a"] * d.b, d[["b", "a"]] * 2),
    "piped": lambda d: d.pipe(lambda t: t * 2.0),
    "keys": lambda d: [d[k] * 2.0 for k in list(d.keys()) if k in d and "z" not in d],
    "a list and it": lambda d: [1.0, 2.0, 3.0] @ (d * 1.0),
    "out": lambda d: (d.values * 2, d[["a", "b"]].to_numpy()),
    "arithmetic": lambda d: 1 - 2 * d + d**2,
    "conditions": lambda d: (d > 2) & (d < 5),
    "exp": lambda d: np.exp(d),
    "maximum": lambda d: np.maximum(d, 2.0),
    "sums": lambda d: (d.sum(), d.sum(axis=1), d.mean(), d.mean(axis="columns")),
    "extremes": lambda d: (d.std(), d.max(), d.min(axis=1)),
    "both axes": lambda d: d.sum(axis=None),
    "np.sum": lambda d: np.sum(d),
    "standard": lambda d: (d - d.mean()) / d.std(),
    "rows": lambda d: d * np.array([1.0, 2.0]) + np.ones(d.shape),
    "a column as a row": lambda d: d * d["a"],
    "products": lambda d: (d @ np.array([1.0, 2.0]), d @ np.ones((2, 3)), d.T @ d, d @ d.T),
    "from the left": lambda d: np.ones((2, len(d))) @ d,
    "a series": lambda d: d @ pd.Series([1.0, 2.0], index=["a", "b"]),
    "places": lambda d: (d.iloc[0] * 1, d.iloc[1:, 0] * 1, d.iloc[1, 1] * 1, d.iloc[:2] * 1),
    "labels": lambda d: (d.loc[:, "b"] * 1, d.loc["u", "a"] * 1, d.loc["u"] * 1),
    "transposed": lambda d: d.T * 2,
    "each": lambda d: [s * len(c) for c, s in d.items()] + [d[c] * 1 for c in d],
    "strings": lambda d: (d["n"] == "x").to_numpy() * d["a"],
    "an outside one": lambda d: d * FRAMES["float64"] + FRAMES["float64"],
    "assign": lambda d: d.assign(c=1.0, e=lambda e: e["c"] * e["a"]),
    "put": lambda d: put(d.copy()),
    "rows by masks": lambda d: (d[d["a"] > 1] * 1, d.loc[d["a"] > 1, "b"] * 1, d.loc["v":]),
    "cumulative": lambda d: (d.cumsum(), d.diff(), d.rolling(2).mean(), d.shift(1)),
    "of pairs": lambda d: (d.cov(), d.corr()),
    "by group": lambda d: (d.groupby("n")["a"].mean(), d.groupby("n")[["a", "b"]].sum()),
    "in each group": lambda d: d["a"] - d.groupby("n")["a"].transform("mean"),
    "each group": lambda d: [(n, x["a"] * len(x)) for n, x in d.groupby("n")],
    "sorted": lambda d: (d.sort_index(ascending=False) * 1, d.drop(columns="a"), d.stack()),
    "joined": lambda d: pd.concat([d, d * 2], axis=1, keys=["x", "y"]),
}


def same(found: Any, expected: Any) -> None:
    """Equal with all labels and dtypes, up to rounding."""
    rtol = 1e-6
    if isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(found, expected, rtol=rtol)
    elif isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected, rtol=rtol)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert (np.shape(found), found.dtype) == (np.shape(expected), expected.dtype)
        np.testing.assert_allclose(found, expected, rtol=rtol)
    else:
        assert found == expected or (found != found and expected != expected)


def held_against_pandas(f: Any, x: Any, compile: str) -> bool:
    """Whether a function is followed; then it does what it does untraced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = f(x.copy())
        except Exception as error:
            with pytest.raises((type(error), TapegradError)):
                tg.jit(f, compile=compile)(x)
            return False
        try:
            found = tg.jit(f, compile=compile)(x)
        except TapegradError:
            return False
    same(found, expected)
    return True


@pytest.mark.every(16)
@pytest.mark.parametrize("name", OF_SERIES)
def test_series_do_what_they_do_in_pandas(name):
    f = OF_SERIES[name]
    followed = [held_against_pandas(f, s, "never") for s in SERIES.values()]
    assert followed[0] != (name in {*REFUSED, "wrong array", "positions", "two entries"})


@pytest.mark.every(16)
@pytest.mark.parametrize("name", OF_FRAMES)
def test_frames_do_what_they_do_in_pandas(name):
    f = OF_FRAMES[name]
    followed = [held_against_pandas(f, d, "never") for d in FRAMES.values()]
    strings = name in ("strings", "by group", "in each group", "each group")
    first = followed[list(FRAMES).index("strings" if strings else "float64")]
    assert first != (name in REFUSED)


REFUSED = ["quotients", "array of one", "both axes", "np.sum"]


def test_compiled():
    for name in ("arithmetic", "conditions", "exp", "std", "labels", "products"):
        assert held_against_pandas(OF_SERIES[name], SERIES["float64"], "always")
    for name in ("columns", "standard", "products", "sums"):
        assert held_against_pandas(OF_FRAMES[name], FRAMES["float64"], "always")
        held_against_pandas(OF_FRAMES[name], FRAMES["mixed"], "always")


# ---- gradients, and later calls


def loss(d: Any) -> Any:
    return (d["a"] ** 2 * d["b"]).sum()


@pytest.mark.parametrize("compile", ["never", "always"])
def test_gradients_come_back_as_they_went_in(compile):
    d = pd.DataFrame({"a": X, "b": X + 10.0})
    g = tg.grad(loss, compile=compile)
    for x in (
        *(d, d[["b", "a"]], d.rename(columns={"a": "b", "b": "a"}), d.set_index(X), d),
        *(d.astype("f4"), d.astype({"b": "f4"}), d.assign(z=1.0), d.iloc[::-1], d.iloc[:2]),
        pd.DataFrame(np.asfortranarray(d.to_numpy()), columns=["a", "b"]),
    ):
        expected = x * 0
        expected["a"], expected["b"] = 2 * x["a"] * x["b"], x["a"] ** 2
        expected = expected.astype(x.dtypes)
        pd.testing.assert_frame_equal(g(x), expected)
    f = tg.grad(lambda s: s["u"] ** 2 * s.sum(), compile=compile)
    for index in (UVW, list("vuw"), list("wvu"), UVW):
        s = pd.Series(X, index=index, name="k")
        expected = pd.Series(s["u"] ** 2, index=index, name="k")
        expected["u"] += 2 * s["u"] * 6
        pd.testing.assert_series_equal(f(s), expected)
    assert f.cache_info().traces == 3


def test_labels_are_compared_and_numbers_read_anew():
    g = tg.grad(lambda s: (s * np.asarray(s.index)).sum(), compile="never")
    for index in ([1, 2, 3], [4, 5, 6], [1, 2, 3]):
        assert g(pd.Series(X, index=index)).tolist() == index
    s = pd.Series(X.copy())
    square = tg.grad(lambda s: (s**2).sum(), compile="never")
    square(s)
    s.iloc[0] = 5.0
    assert square(s).tolist() == [10.0, 4.0, 6.0]
    s.index.name = "k"
    assert square(s).index.name == "k"


def test_what_is_nan_is_left_out_and_has_no_derivative():
    s = pd.Series(NAN)
    assert tg.grad(lambda s: s.sum(), compile="never")(s).tolist() == [1.0, 0.0, 1.0]
    assert tg.grad(lambda s: s.mean(), compile="never")(s).tolist() == [0.5, 0.0, 0.5]


@pytest.mark.parametrize("compile", ["never", "always"])
def test_columns_of_other_things_are_constants(compile):
    def f(w, d):
        return ((d["n"] == "x").to_numpy() * d["a"] * d["k"] * w).sum()

    d = pd.DataFrame({"a": X, "k": [1, 2, 3], "n": list("xyx")})
    g = tg.grad(f, compile=compile)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas' own work on strings can't be seen
        assert g(1.0, d) == 10.0
        d.loc[1, "n"] = "x"
        assert g(1.0, d) == 14.0
        d.loc[0, "a"] = 5.0
        assert g(1.0, d) == 18.0
    for argument in (d, d[["a", "n"]]):  # the gradient has the columns that have a derivative
        gradient = tg.grad(lambda d: d["a"].sum(), compile=compile)(argument)
        pd.testing.assert_frame_equal(gradient, pd.DataFrame({"a": np.ones(3)}))
    with pytest.raises(ArgumentError, match=r"argument 's' is a column of dtype Float64.*astype"):
        tg.grad(lambda s: s.sum(), compile="never")(pd.Series([1.0, None], dtype="Float64"))


@pytest.mark.parametrize("compile", ["never", "always"])
def test_frames_of_the_outside_are_read_anew(compile):
    class Model:
        table = pd.DataFrame({"a": X, "b": X + 10})

        def squares(self, w):
            return ((self.table["a"] * w - self.table["b"]) ** 2).sum()

        def numbers(self, w):
            return (w * self.table["a"].to_numpy()).sum() * len(self.table)

        def turned(self, w):
            return np.sum(w * self.table.a) + np.dot(w * X, self.table["a"])

    for f in (Model.squares, Model.numbers, Model.turned):
        model, d = Model(), tg.grad(f, 1, compile=compile)

        def check(model=model, d=d, f=f):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is traced at each call
                slope = (f(model, 2.0 + 1e-6) - f(model, 2.0 - 1e-6)) / 2e-6
                np.testing.assert_allclose(d(model, 2.0), slope, rtol=1e-7)

        check()
        model.table.loc[0, "a"] = 7.0
        check()
        model.table["a"] = X * 3
        check()
        model.table = pd.DataFrame({"a": X, "b": X})
        check()


def test_cotangents_loops_and_trees():
    s = pd.Series(X, name="k")
    value, pullback = tg.vjp(lambda s: np.exp(s) * 2, s)
    pd.testing.assert_series_equal(pullback(value)[0], 4 * np.exp(2 * s))
    d = pd.DataFrame({"a": X, "n": [1, 2, 3]})
    (ct,) = tg.vjp(lambda d: d["a"] * d["n"], d)[1](pd.Series(X))
    pd.testing.assert_frame_equal(ct, pd.DataFrame({"a": X * [1, 2, 3]}))

    def scanned(s):
        s, sums = tg.scan(lambda s, x: (s * x, s.sum()), s, X)
        return s.sum() + sums.sum()

    np.testing.assert_array_equal(tg.grad(scanned, compile="never")(s), [10.0] * 3)
    twice = tg.grad(lambda s: tg.grad(lambda s: (s**3).sum())(s).sum(), compile="never")(s)
    pd.testing.assert_series_equal(twice, 6 * s)
    g = tg.grad(lambda p: (p["s"] * p["w"]).sum(), compile="never")({"s": s, "w": 2.0})
    assert (g["s"].name, g["w"]) == ("k", 6.0)
    assert tg.gradcheck(lambda s: (np.sin(s) * s.mean()).sum(), s)


def ranged(s):
    d, total = s * 2.0, 0.0
    for k in tg.range(5):
        d = d * 0.5 + s * k
        total = total + (d * d).sum()
    return total


def reordered(s):
    for _ in tg.range(4):
        s = (s * s.mean()).iloc[[2, 1, 0]]  # other labels in each round
    return (s * s["u"]).sum()


def waited(s):
    while s.sum() < 100:
        s = s * 2
    return s.sum() * s["u"]


def branched(s):
    for _ in range(20):
        if s.sum() < 50:
            s = s * 1.5
        else:
            s = s - s.mean() * 0.1
    return (s * s).sum()


@pytest.mark.every(8)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("f", [ranged, reordered, waited, branched])
def test_loops_and_branches(f, compile):
    df = tg.grad(f, compile=compile)
    for numbers in ([1.0, 2.0, 3.0], [3.0, 3.0, 1.0], [0.1, 0.2, 0.3]):
        s = pd.Series(numbers, index=UVW)
        steps = [pd.Series(np.eye(3)[k] * 1e-6, index=UVW) for k in range(3)]
        slopes = [(f(s + d) - f(s - d)) / 2e-6 for d in steps]
        np.testing.assert_allclose(df(s), slopes, rtol=1e-6)
    assert f is not ranged or df.cache_info().traces == 1


def test_copies_and_texts(capsys):
    s = pd.Series(X)
    assert tg.jit(lambda s: copy.copy(s).sum() + copy.deepcopy(s).sum(), compile="never")(s) == 12.0
    tg.jit(lambda s: print(s) or s.sum(), compile="never")(s)
    assert capsys.readouterr().out == f"{s}\n"
    with pytest.raises(TapegradError, match="a text is made of a traced value"):
        tg.jit(lambda s: f"{s}", compile="never")(s)


@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (
            lambda s: s.ewm(span=3).cov(s),
            UnsupportedError,
            "Series.ewm\\(...\\).cov isn't followed",
        ),
        (lambda s: pd.merge(s, s), ValueError, "Cannot merge a Series without a name"),
        (lambda s: s @ s[::-1].set_axis([0, 1, 2]), UnsupportedError, "different labels"),
        (
            lambda s: s.rolling(3, win_type="triang").sum(),
            UnsupportedError,
            r"rolling\(...\).sum isn't",
        ),
        (lambda s: np.flip(s), UnsupportedError, "np.flip of a Series isn't followed.*to_numpy"),
        (lambda s: np.add.reduce(s), UnsupportedError, "np.add.reduce of a Series"),
        (lambda s: s.nothing, AttributeError, "'Series' object has no attribute 'nothing'"),
        (lambda s: 1.0 if s else 2.0, ValueError, "truth value of a Series is ambiguous"),
        (lambda s: s.iloc[:1], TapegradError, "returned a Series with one value"),
    ],
)
def test_what_isnt_followed_is_refused_by_name(f, error, message):
    with pytest.raises(error, match=message):
        tg.grad(f, compile="never")(pd.Series(X, index=UVW))


def test_nobody_imports_pandas():
    program = (
        "import sys, numpy as np, tapegrad; tapegrad.grad(np.sum)(np.ones(3));"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_arrays_are_made_of_them() -> None:
    def whole(weights: pd.Series, table: pd.DataFrame) -> Any:
        own = np.array(weights)
        own[0] *= 3.0
        both = np.array([weights, table.x.to_numpy()[:2]]) * np.asarray(table, dtype=float)[:2]
        return (
            np.sum(own**2) + np.sum(both) * weights.b + np.sum([weights, weights]) * weights.sum()
        )

    weights = pd.Series([0.5, 2.0], index=["a", "b"])
    table = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0]})
    value, (slope, _) = tg.value_and_grad(whole, argnums=(0, 1))(weights, table)
    assert value == whole(weights, table)
    steps = [pd.Series(row, weights.index) for row in 1e-6 * np.eye(2)]
    found = [(whole(weights + h, table) - whole(weights - h, table)) / 2e-6 for h in steps]
    np.testing.assert_allclose(slope, found, rtol=1e-6)


def test_an_entry_of_a_series_as_an_attribute() -> None:
    weights = pd.Series({"a": 0.5, "b": 2.0, "size": 3.0})
    assert tg.grad(lambda w: w.a * w.b * w.size)(weights).tolist() == [6.0, 1.5, 0.0]
    assert tg.grad(lambda w: w.a if hasattr(w, "c") else w.b)(weights).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_plain_one_beside_a_traced_array(compile: Any) -> None:
    """as an operand on either side, and by its methods; what is in it is compared at each call"""
    table = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0], "who": list("abc")})

    def misfit(w: Any) -> Any:
        both = table[["x", "y"]]
        rows = (w[:, None] * both - both.mul(w[:2])).to_numpy()
        off = table.y - table.x * w
        return (off**2).sum() + np.sum(rows**2) + table.x.dot(w) + np.sum(both.T @ w)

    g = tg.value_and_grad(misfit, compile=compile)
    for k in range(4):
        if k == 2:
            table.loc[1, "y"] = 50.0
        value, slope = g(X)
        assert value == pytest.approx(misfit(X), rel=1e-14)
        found = [(misfit(X + h) - misfit(X - h)) / 2e-5 for h in 1e-5 * np.eye(3)]
        np.testing.assert_allclose(slope, found, rtol=1e-6)
    assert g.cache_info().traces == 2


def test_a_plain_one_that_pandas_refuses_beside_an_array() -> None:
    table = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0]})
    for f in (lambda w: np.sum(table.x * w[:2]), lambda w: np.sum(table * w)):
        with pytest.raises(ValueError):
            f(X)
        with pytest.raises(ValueError):
            tg.grad(f)(X)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_those_that_a_function_makes(compile: Any) -> None:
    """of traced values: they are traced once, and have slopes"""
    days = pd.date_range("2020", periods=6)

    def risk(w: Any) -> Any:
        prices = pd.DataFrame({"p": np.cumprod(1 + w), "q": np.exp(w)}, index=days)
        returns = prices.pct_change(fill_method=None).dropna()
        smooth = pd.Series(w, index=days).rolling(3).mean().dropna()
        prices["r"] = prices["p"] * prices["q"]
        groups = prices.groupby([1, 2, 1, 2, 3, 3])["r"].mean()
        late = prices.loc["2020-01-04":, "r"]
        return (
            returns.std().sum()
            + (smooth**2).sum()
            + groups.loc[2] * late.iloc[-1]
            + returns.q.sum()
        )

    g = tg.value_and_grad(risk, compile=compile)
    for k in range(3):
        w = 0.1 * np.sin(np.arange(6.0) + k)
        value, slope = g(w)
        assert value == pytest.approx(risk(w), rel=1e-13)
        found = [(risk(w + h) - risk(w - h)) / 2e-6 for h in 1e-6 * np.eye(6)]
        np.testing.assert_allclose(slope, found, rtol=1e-6, atol=1e-8)
    assert g.cache_info().traces == 1


def test_one_that_is_made_has_numbers_of_its_own() -> None:
    def f(x: Any) -> Any:
        own = x * 1.0
        table = pd.DataFrame({"a": own})
        own[0] = 7.0
        copy = table.copy()
        table["a"] = table["a"] * 2
        return table["a"].sum() + copy["a"].iloc[0]

    value, slope = tg.value_and_grad(f, compile="never")(X)
    assert (value, slope.tolist()) == (f(X), [3.0, 2.0, 2.0])


def test_masks_are_guarded() -> None:
    g = tg.grad(lambda s: (s[s > 2] ** 2).sum(), compile="never")
    for numbers in ([1.0, 2.0, 3.0], [3.0, 1.0, 4.0], [5.0, 5.0, 5.0], [0.0, 0.0, 0.0]):
        x = np.array(numbers)
        np.testing.assert_array_equal(g(pd.Series(x)), np.where(x > 2, 2 * x, 0.0))


@pytest.mark.parametrize(
    "f",
    [
        lambda s: np.clip(s, 1.5, 2.6),
        lambda s: np.clip(s, 1.5, None),
        lambda s: np.cumsum(s) ** 2,
        lambda s: np.cumprod(s),
        lambda s: np.round(s, 1) * s,
    ],
)
def test_functions_of_numpys_that_are_methods(f):
    """of pandas' objects: NumPy asks for theirs"""
    given = pd.Series([1.0, 2.0, 3.0], index=list("abc"))
    for table in (given, pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})):

        def total(x, table=table):
            return np.sum(f(table * x).to_numpy() * 1.5)

        for x in (1.12, 0.71):
            value, found = tg.value_and_grad(total, compile="never")(x)
            np.testing.assert_allclose(value, total(x))
            np.testing.assert_allclose(found, (total(x + 1e-6) - total(x - 1e-6)) / 2e-6, rtol=1e-6)


def test_single_entries():
    """by `at` and `iat`"""
    given = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=["u", "v"])

    def f(x):
        table = given * x
        return table.at["v", "a"] * table.iat[0, 1] + table["b"].at["u"] * table["a"].iat[-1] ** 2

    value, found = tg.value_and_grad(f, compile="never")(1.5)
    np.testing.assert_allclose((value, found), (f(1.5), 6 * 2 * 1.5 + 12 * 3 * 1.5**2))
    for wrong in (lambda x: (given * x).iat[5, 0], lambda x: (given * x).at["w", "a"]):
        with pytest.raises((IndexError, KeyError)):
            tg.grad(wrong)(1.5)


def test_bounds_in_any_order() -> None:
    """pandas puts them in order, and NumPy doesn't."""
    s = pd.Series([1.0, -2.0, 3.0])
    for f in (lambda w, s: (s * w).clip(-w, 0.5).sum(), lambda w, s: (s * w).clip(2.0, -2.0).sum()):
        g = tg.value_and_grad(f, compile="never")
        for w in (-1.5, 1.5):
            assert g(w, s)[0] == pytest.approx(f(w, s))
            assert g(w, s)[1] == pytest.approx((f(w + 1e-6, s) - f(w - 1e-6, s)) / 2e-6, abs=1e-8)


def test_columns_of_objects_stay_so() -> None:
    d = pd.DataFrame({"a": [1.0, 2.0], "k": pd.Series(["x", "y"], dtype=object)})
    for f in (
        lambda w, d: d.assign(y=d.a * w).dtypes.k,
        lambda w, d: (d.set_index("k").a * w).index.dtype,
        lambda w, d: d.k.dtype,
    ):
        assert tg.jit(f, compile="never")(2.0, d) == f(2.0, d) == np.dtype(object)


def test_errors_of_numbers_and_labels() -> None:
    whole = tg.jit(lambda w, s: (s * w).astype(int).sum(), compile="never")
    for last in (2.0, np.nan, 3.0):
        s = pd.Series([1.0, last])
        if np.isnan(last):
            with pytest.raises(pd.errors.IntCastingNaNError):
                whole(2.0, s)
        else:
            assert whole(2.0, s) == (s * 2.0).astype(int).sum()

    def f(w, d):
        d = d.copy()
        d.loc[d.a > 0, "b"] = w * d.a
        return d.b.sum()

    d = pd.DataFrame({"a": [1.0, -2.0, 3.0], "b": 0.0}, index=[0, 1, 1])
    with pytest.raises(ValueError, match="duplicate labels"):
        tg.jit(f, compile="never")(2.0, d)
    assert tg.jit(f, compile="never")(2.0, d.reset_index(drop=True)) == 8.0


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "f",
    [
        lambda d: d["a"] * 2,
        lambda d: d.assign(double=2 * d["a"]),
        lambda d: d.reset_index(drop=True),
        lambda d: pd.Series(d["a"].to_numpy(), index=[*"xyz"], name="new"),
        lambda d: d[["a"]] + 1.0,
    ],
)
def test_tables_among_results_are_the_callers_own(f):
    """The function isn't run again for its labels; what a caller does to them is no other's."""
    d = pd.DataFrame({"a": X, "kind": [*"uvu"]}, index=pd.Index([5, 6, 7], name="place"))
    expected = f(d)
    g = tg.jit(f, compile="never")
    check = pd.testing.assert_series_equal if expected.ndim == 1 else pd.testing.assert_frame_equal
    for _ in range(3):
        found = g(d)
        check(found, expected)
        found.index.name = "renamed"
        if found.ndim == 2:
            found.columns.name = "renamed"
        if "kind" in found:
            found.loc[found.index[0], "kind"] = "changed"
    assert g.cache_info().traces == 1
    other = d.copy()
    other["kind"] = [*"vvv"]
    other.index = pd.Index([1, 2, 3], name="other")
    check(g(other), f(other))
    check(g(d), expected)


def test_objects_in_a_column_of_the_results_are_new_ones():
    """A column of lists is made anew at each call: a caller may change the lists."""
    g = tg.jit(lambda x: pd.DataFrame({"a": x, "held": [[1], [2], [3]]}), compile="never")
    for k in range(2):
        found = g(X + k)
        assert list(found.held) == [[1], [2], [3]]
        found.held[0].append(4)
