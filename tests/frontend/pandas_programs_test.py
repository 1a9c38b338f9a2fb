"""Programs as analysts write them: tables that are written to, joined, turned, grouped and ordered.

Each is held against pandas (values, labels, dtypes) and against differences, as tables change.
"""

import warnings

import numpy as np
import pandas as pd
import pytest

import tapegrad as tg
from tapegrad.errors import TapegradError, UnsupportedError

DAYS = pd.date_range("2020-01-01", periods=12, freq="D")
K = pd.DataFrame(
    {"k": [0, 1, 2] * 4, "s": list("abcbacabccba"), "t": np.arange(12.0)[::-1]}, index=DAYS
)
PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def frame(seed):
    r = np.random.default_rng(seed)
    columns = {"x": r.normal(size=12), "y": r.normal(size=12) + 3, "w": r.normal(size=12)}
    return pd.DataFrame(columns, index=DAYS)


def total(r):
    """a sum that sees each entry, and leaves out what is missing"""
    if not isinstance(r, float | np.generic) and hasattr(r, "to_numpy"):
        r = r.to_numpy()
    weights = np.cos(np.arange(1, 1 + np.size(r))).reshape(np.shape(r))
    return np.sum(np.where(np.isnan(r), 0.0, r) * weights)


def with_keys(d):
    d = d.copy()
    d["s"] = K["s"]
    d["k"] = K["k"]
    return d


@program
def loc_write(d):
    d = d.copy()
    d.loc[d.index[2], "x"] = d["y"].sum()
    return d


@program
def iloc_write(d):
    d = d.copy()
    d.iloc[3, 1] = d.iloc[0, 0] * 2
    return d


@program
def at_write(d):
    d = d.copy()
    d.at[d.index[1], "w"] = 1.5
    d.iat[0, 0] = d["x"].mean()
    return d


@program
def mask_write(d):
    d = d.copy()
    d.loc[d["x"] > 0, "x"] = 0.0
    return d


@program
def mask_write_new(d):
    d = d.copy()
    d.loc[d["x"] > 0, "z"] = d["x"] * 2
    d["z"] = d["z"].fillna(0)
    return d


@program
def series_mask(d):
    s = d["x"].copy()
    s[s < 0] = 0.0
    return s


@program
def key_mask(d):
    d = with_keys(d)
    d.loc[d.s == "a", "x"] *= 2
    return d[["x", "y"]]


@program
def new_frame_loc(d):
    o = pd.DataFrame(index=d.index, columns=["a", "b"], dtype=float)
    o["a"] = d["x"]
    o.loc[:, "b"] = d["y"] * 2
    return o


@program
def made_loc(d):
    o = pd.DataFrame(0.0, index=d.index, columns=["a", "b"])
    for i in range(3):
        o.loc[o.index[i], "a"] = d["x"].iloc[i] ** 2
    return o


@program
def made_iloc(d):
    o = pd.Series(0.0, index=range(4))
    for i in range(4):
        o.iloc[i] = d["x"].iloc[i] ** 2
    return o


@program
def aug(d):
    s = pd.Series(np.ones(12), index=d.index)
    s += d["x"]
    return s


@program
def insert(d):
    d = d.copy()
    d.insert(0, "z", d["x"] * 2)
    return d


@program
def insert_plain(d):
    o = K[["t"]].copy()
    o.insert(0, "z", d["x"] * 2)
    return o


@program
def pop(d):
    d = d.copy()
    z = d.pop("x")
    d["q"] = z * d["y"]
    return d


@program
def dele(d):
    d = d.copy()
    del d["x"]
    return d


@program
def query(d):
    d = with_keys(d)
    return d.query("s == 'a' and k < 2")[["x", "y"]]


@program
def pivot(d):
    d = with_keys(d).reset_index(drop=True)
    d["i"] = np.arange(12) // 3
    d = d.drop_duplicates(["i", "k"])
    return d.pivot(index="i", columns="k", values="x")


@program
def pivot_table(d):
    return with_keys(d).pivot_table(index="s", columns="k", values="x", aggfunc="mean")


@program
def pivot_table_sum(d):
    return with_keys(d).pivot_table(
        index="s", columns="k", values=["x", "y"], aggfunc="sum", fill_value=0
    )


@program
def rank(d):
    return d["x"].rank() * d["y"]


@program
def rank_pct(d):
    return d["x"].rank(pct=True, ascending=False) * d["y"]


@program
def agg_dict(d):
    return with_keys(d).groupby("s").agg({"x": "sum", "y": "mean"})


@program
def agg_lists(d):
    return with_keys(d).groupby("s").agg({"x": ["sum", "std"], "y": ["mean"]})


@program
def agg_named(d):
    return with_keys(d).groupby("s").agg(a=("x", "sum"), b=("y", "max"))


@program
def agg_list(d):
    return with_keys(d).groupby("s")["x"].agg(["sum", "mean", "min"])


@program
def agg_fn(d):
    return with_keys(d).groupby("s")["x"].agg(lambda v: v.max() - v.min())


@program
def agg_np(d):
    return with_keys(d).groupby("s")["x"].agg(np.mean)


@program
def g_cumsum(d):
    return with_keys(d).groupby("s")["x"].cumsum()


@program
def g_shift(d):
    return with_keys(d).groupby("s")["x"].shift()


@program
def g_diff(d):
    return with_keys(d).groupby("s")["x"].diff()


@program
def g_apply(d):
    return (
        with_keys(d)
        .groupby("s")[["x", "y"]]
        .apply(lambda g: (g["x"] * g["y"]).sum() / g["y"].sum())
    )


@program
def g_apply_frame(d):
    return (
        with_keys(d)
        .groupby("s", group_keys=False)[["x", "y"]]
        .apply(lambda g: g.assign(z=g["x"] - g["x"].mean()))
    )


@program
def g_transform(d):
    return with_keys(d).groupby("s")["x"].transform("mean")


@program
def g_transform_fn(d):
    return with_keys(d).groupby("s")["x"].transform(lambda v: (v - v.mean()) / v.std())


@program
def g_int(d):
    return with_keys(d).groupby("k")["x"].sum()


@program
def g_two(d):
    return with_keys(d).groupby(["k", "s"])[["x", "y"]].sum()


@program
def g_asindex(d):
    return with_keys(d).groupby("k", as_index=False)[["x", "y"]].mean()


@program
def g_first(d):
    return with_keys(d).groupby("k")["x"].first()


@program
def g_std(d):
    return with_keys(d).groupby("s")[["x", "y"]].std()


@program
def g_median(d):
    return with_keys(d).groupby("s")["x"].median()


@program
def g_iter(d):
    return pd.concat([g["x"] * i for i, (k, g) in enumerate(with_keys(d).groupby("s"))])


@program
def g_dates(d):
    return d.groupby(d.index.month)["x"].sum()


@program
def merge(d):
    o = pd.DataFrame({"s": list("abc"), "v": [1.0, 2.0, 3.0]})
    m = with_keys(d).merge(o, on="s", how="left")
    return m["x"] * m["v"]


@program
def merge2(d):
    m = pd.merge(with_keys(d).reset_index(), K.reset_index()[["index", "t"]], on="index")
    return m["x"] * m["t"]


@program
def merge_outer(d):
    o = pd.DataFrame({"s": list("abz"), "v": [1.0, 2.0, 3.0]})
    m = with_keys(d).merge(o, on="s", how="outer")
    return m[["x", "v"]]


@program
def join(d):
    return d.join(K[["t"]])[["x", "t"]]


@program
def rolling(d):
    return d["x"].rolling(3).mean()


@program
def rolling_min(d):
    return d["x"].rolling(3, min_periods=1).mean()


@program
def rolling_center(d):
    return d["x"].rolling(3, center=True).sum()


@program
def rolling_time(d):
    return d["x"].rolling("3D").std()


@program
def rolling_apply(d):
    return d["x"].rolling(3).apply(lambda w: w[0] * w[-1], raw=True)


@program
def rolling_frame(d):
    return d[["x", "y"]].rolling(4, min_periods=2).max()


@program
def expanding(d):
    return d["x"].expanding().std()


@program
def ewm(d):
    return d["x"].ewm(span=5).mean()


@program
def resample(d):
    return d.resample("5D").sum()


@program
def resample_mean(d):
    return d["x"].resample("4D").mean()


@program
def apply1(d):
    return d.apply(lambda r: r["x"] * r["y"], axis=1)


@program
def itertuples(d):
    return pd.Series([r.x * r.y for r in d.itertuples()])


@program
def iterrows(d):
    return pd.Series([r["x"] * r["y"] for i, r in d.iterrows()])


@program
def melt(d):
    return with_keys(d).melt(id_vars=["s"], value_vars=["x", "y"])["value"]


@program
def melt2(d):
    return pd.melt(with_keys(d), id_vars=["s"], value_vars=["x", "y"])["value"]


@program
def stack(d):
    return d.stack()


@program
def unstack(d):
    return d.unstack()


@program
def crosstab(d):
    return pd.crosstab(K["s"], K["k"], values=d["x"], aggfunc="sum")


@program
def cut(d):
    return d["x"].groupby(pd.cut(d["x"], [-10, -0.5, 0.5, 10]), observed=True).mean()


@program
def cut_labels(d):
    return d["y"] * pd.cut(d["x"], [-10, 0, 10], labels=False)


@program
def qcut(d):
    return d["y"] * pd.qcut(d["x"], 3, labels=False)


@program
def sort_traced(d):
    return d.sort_values("x")


@program
def sort_series(d):
    return d["x"].sort_values(ascending=False)


@program
def nlargest(d):
    return d.nlargest(3, "x")


@program
def idxmax(d):
    return d.loc[d["x"].idxmax(), "y"]


@program
def align(d):
    return d["x"] * d["y"].iloc[::-1]


@program
def align2(d):
    return d["x"].iloc[2:] + d["y"].iloc[:8]


@program
def sub0(d):
    return d.sub(d.mean(axis=1), axis=0)


@program
def div0(d):
    return d.div(d["y"], axis="index")


@program
def addfill(d):
    return d["x"].iloc[2:].add(d["y"].iloc[:8], fill_value=0)


@program
def zscore(d):
    return (d - d.mean()) / d.std()


@program
def corr(d):
    return d.corr()


@program
def dropna(d):
    r = d["x"].pct_change().dropna()
    return r


@program
def fill(d):
    return d["x"].shift(2).bfill()


@program
def interp(d):
    return d["x"].shift(1).fillna(d["y"])


@program
def to_dict(d):
    q = d.to_dict("list")
    return pd.Series(q["x"]) * 2


@program
def rename(d):
    return d.rename(columns={"x": "a"})["a"]


@program
def inplace(d):
    d = d.copy()
    d.rename(columns={"x": "a"}, inplace=True)
    d.drop(columns="y", inplace=True)
    d.reset_index(drop=True, inplace=True)
    return d


@program
def columns(d):
    d = d.copy()
    d.columns = ["a", "b", "c"]
    d.index = range(12)
    return d["a"] * d.b


@program
def multi(d):
    d = d.copy()
    d[["a", "b"]] = d[["x", "y"]] * 2
    return d


@program
def astype(d):
    return d.astype({"x": "float32"})["y"]


@program
def select(d):
    return with_keys(d).select_dtypes("number")["x"]


@program
def cond(d):
    d = d.copy()
    d["z"] = np.where(d["x"] > 0, d["x"], 0.1 * d["x"])
    return d


@program
def clipd(d):
    return d.clip(lower=0)


@program
def lag(d):
    d = d.copy()
    for l in (1, 2):
        d[f"l{l}"] = d["x"].shift(l)
    return d.dropna()


@program
def explode(d):
    return d["x"].repeat(2)


@program
def quantiles(d):
    return d["x"].quantile([0.25, 0.5])


@program
def cumret(d):
    return (1 + d["x"] * 0.01).cumprod().iloc[-1]


@program
def drawdown(d):
    c = (1 + d["x"] * 0.01).cumprod()
    return (c / c.cummax() - 1).min()


@program
def valuecounts(d):
    return K["s"].value_counts().mul(d["x"].iloc[0])


@program
def weighted(d):
    return (d["x"] * d["y"]).groupby(K["s"]).sum() / d["y"].groupby(K["s"]).sum()


@program
def mapped(d):
    return with_keys(d)["s"].map({"a": 1.0, "b": 2.0, "c": 3.0}) * d["x"]


@program
def assignl(d):
    return d.assign(z=lambda q: q.x * q.y)["z"]


@program
def locslice(d):
    return d.loc["2020-01-03":"2020-01-06", ["x", "y"]]


@program
def isin(d):
    e = with_keys(d)
    return e[e.s.isin(["a", "b"])]["x"]


@program
def concat(d):
    return pd.concat([d["x"], d["y"]], axis=1, keys=["p", "q"])


@program
def appendrow(d):
    d = d.copy()
    d.loc[pd.Timestamp("2021-01-01")] = d.mean()
    return d


@program
def query_numbers(d):
    return d.query("x > 0 and y < 4")


@program
def query_local(d):
    least = d["x"].mean()  # noqa: F841
    return d.query("x > @least")


@program
def query_texts(d):
    return with_keys(d).query("s in ['a', 'b'] & y > -9")[["x", "y"]]


@program
def eval_text(d):
    weight = d["y"].sum()  # noqa: F841
    return d.eval("x * y + 2 * w * @weight - sin(x)")


@program
def eval_columns(d):
    return d.eval("z = x + y ** 2\nq = z * w")


@program
def describe(d):
    return d.describe()


@program
def describe_mixed(d):
    return with_keys(d).describe(percentiles=[0.1, 0.9]).T["mean"]


@program
def describe_series(d):
    return d["x"].describe()


@program
def iterrows_texts(d):
    s = 0.0
    for _, r in with_keys(d).iterrows():
        s += r["x"] * r.y if r["s"] == "a" else r[["x", "w"]].sum() * r.get("zz", 2.0)
    return s


@program
def iterrows_kept(d):
    s = 0.0
    for _, r in with_keys(d).iterrows():
        r["x"] = r.to_dict()["y"] * 2
        s += sum(v for k, v in r.drop("s").items() if k != "w") + r.drop("s").astype(float)["x"]
    return s


@program
def apply_texts(d):
    weights = {"a": 1.0, "b": 2.0, "c": 3.0}
    return with_keys(d).apply(lambda r: weights[r["s"]] * r["x"] + r.k, axis=1)


@program
def apply_texts_table(d):
    return with_keys(d).apply(lambda r: pd.Series({"a": r.x * r.y, "b": r.w}), axis=1)


@program
def row_of_texts(d):
    e = with_keys(d)
    return e.loc["2020-01-05"]["x"] + e.iloc[-1].y * e.iloc[0]["k"]


@program
def tuples_without_names(d):
    return sum(x * y for x, y in d[["x", "y"]].itertuples(index=False, name=None))


@program
def records(d):
    return pd.DataFrame([{"n": r.s, "v": r.x**2} for r in with_keys(d).itertuples()])["v"]


@program
def along_rows(d):
    return d.rank(axis=1) * d + d.cumsum(axis=1) - d.diff(axis=1).fillna(0.0)


@program
def of_rows(d):
    return d.median(axis=1) + d.quantile(0.3, axis=1) - d.skew(axis=1)


@program
def only_numbers(d):
    e = with_keys(d)
    return e.mean(numeric_only=True) + e.median(numeric_only=True) - e.skew(numeric_only=True)


@program
def only_numbers_corr(d):
    return with_keys(d).corr(numeric_only=True)


@program
def ranks(d):
    return d["x"].rank(method="dense") * d["y"] + d["x"].rank(method="first", ascending=False)


@program
def between(d):
    return d["y"][d["x"].between(-1, 1)]


@program
def clip_by_another(d):
    return d["x"].clip(lower=d["w"].shift(1), upper=d["y"])


@program
def product_with_list(d):
    return d.mul([1.0, 2.0, 3.0], axis=1) + [1, 2, 3]


@program
def portfolio(d):
    w = pd.Series({"x": 0.2, "y": 0.5, "w": 0.3})
    return np.sqrt(w @ d.cov() @ w)


@program
def numpys(d):
    x, y = d["x"], d["y"]
    z = np.select([x > 0, d["w"] > 0], [y, x], default=0.0)
    return np.average(x, weights=y) + np.cov(x, y)[0, 1] + np.polyfit(x, y, 1)[0] + np.median(z)


@program
def numpys_matrices(d):
    return np.linalg.solve(d.cov(), np.mean(d, axis=0)) + np.linalg.eigh(d.cov())[0]


@program
def numpys_repeated(d):
    return np.repeat(d["x"], 2)


@program
def g_quantile(d):
    return with_keys(d).groupby("s")["x"].quantile(0.25)


@program
def g_nth(d):
    return with_keys(d).groupby("s")["x"].nth(1)


@program
def g_rolling(d):
    return with_keys(d).groupby("s")["x"].rolling(2).mean()


@program
def g_resample(d):
    return with_keys(d).groupby("s")["x"].resample("4D").sum()


@program
def g_skew(d):
    return with_keys(d).groupby("s")["x"].skew()


@program
def rolling_skew(d):
    return d["x"].rolling(5).skew() - d["x"].rolling(5).kurt()


@program
def rolling_rank(d):
    return d["x"].rolling(4).rank() * d["y"]


# These look at the order of traced numbers, or between which edges they are.
LOOKING = {"cut", "cut_labels", "qcut", "sort_traced", "sort_series", "nlargest", "idxmax"}
LOOKING |= {"query_numbers", "query_local", "between", "rolling_rank"}


@pytest.mark.every(12)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    f = PROGRAMS[name]

    def number(d):
        return total(f(d))

    df, same = tg.value_and_grad(number, compile="never"), tg.jit(f, compile="never")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(3):
            d = frame(seed)
            before = d.copy()
            value, found = df(d)
            np.testing.assert_allclose(value, number(d), rtol=1e-10, atol=1e-10)
            for i, j in [(0, 0), (3, 1), (5, 0), (7, 2)]:
                step = pd.DataFrame(0.0, d.index, d.columns)
                step.iloc[i, j] = 1e-6
                expected = (number(d + step) - number(d - step)) / 2e-6
                np.testing.assert_allclose(found.iloc[i, j], expected, rtol=1e-4, atol=1e-5)
            if seed == 0 or name in LOOKING:  # a table is a new trace each time: one tells of all
                expected = f(d)
                if isinstance(expected, pd.DataFrame):
                    pd.testing.assert_frame_equal(same(d), expected, rtol=1e-9)
                elif isinstance(expected, pd.Series):
                    pd.testing.assert_series_equal(same(d), expected, rtol=1e-9)
            pd.testing.assert_frame_equal(d, before)
    assert df.cache_info().traces == (3 if name in LOOKING else 1)


def test_columns_of_texts_beside_numbers_stay_pandas_own():
    def f(x):
        d = pd.DataFrame({"a": x, "b": x**2, "g": ["u", "v", None, "v"]})
        whole = d.notna().all(axis=1)
        groups = d.fillna("w").groupby("g")["a"].sum()
        missing = d.isnull().sum()["g"] + d.round(1).isna().sum().sum()
        return d["b"][whole].sum() * missing + total(groups**2)

    df = tg.value_and_grad(f, compile="never")
    for x in (np.array([1.0, 2.5, 3.0, 4.0]), np.array([4.0, 1.2, 6.0, 2.0])):
        value, slopes = df(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-12)
        expected = [(f(x + e) - f(x - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
        np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-6)
    assert df.cache_info().traces == 1


LIMIT = 2.0


@pytest.mark.parametrize("plain", [False, True])
def test_variables_that_a_text_names_are_read_at_each_call(plain):
    def f(x):
        d = pd.DataFrame({"a": [1.0, 2.0, 3.0] if plain else 0.5 + x, "b": [2.0, 5.0, 7.0]})
        return d.eval("a * @LIMIT * @x[1]" if plain else "a * @LIMIT").sum()

    global LIMIT
    df = tg.value_and_grad(f, compile="never")
    x = np.array([1.0, 2.0, 3.0])
    for LIMIT in (2.0, 3.0):
        value, slopes = df(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-12)
        expected = [0.0, 6 * LIMIT, 0.0] if plain else [LIMIT] * 3
        np.testing.assert_allclose(slopes, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda d: with_keys(d).iloc[0] == "a", "a Series that is compared to a str"),
        (lambda d: with_keys(d).iloc[0] * 2, "a Series of dtype object among traced values"),
        (lambda d: d["x"].rolling(3, win_type="triang").mean(), r"rolling\(...\).mean"),
        (lambda d: np.flip(d["x"]), "np.flip of a Series"),
    ],
)
def test_what_isnt_followed_says_so(f, words):
    with pytest.raises(UnsupportedError, match=words):
        tg.jit(f, compile="never")(frame(0))


def test_a_row_of_texts_and_traced_numbers_isnt_returned():
    with pytest.raises(TapegradError):
        tg.jit(lambda d: with_keys(d).iloc[0], compile="never")(frame(0))
