"""Tables with NaN in them, of float32, and windows: as analysts write them.

Each is held against pandas (values, labels, dtypes) and against differences, while the numbers and
which of them are NaN change from call to call.
"""

import numpy as np
import pandas as pd
import pytest

import tapegrad as tg

# Where bottleneck is installed, pandas' medians of a Series are Python's floats, and ours NumPy's.
pd.set_option("compute.use_bottleneck", False)

N = 9
DAYS = pd.date_range("2020-01-01", periods=N, freq="D")
MISSING = [[], [3], [0, 1], [8], [2, 3, 4], [3], [0, 4, 8], [5, 6, 7, 8], [1], []]
ONES = pd.DataFrame({"u": np.ones(N), "v": np.arange(1.0, 1 + N)}, index=DAYS)
LETTERS = pd.get_dummies(pd.Series(list("abcabcabc"), index=DAYS))
SMALL = pd.Series(np.arange(N, dtype=np.float32), index=DAYS)

KEYS = np.arange(N) % 2


def series(x, at):
    """with NaN in these places, one for each call"""
    return pd.Series(np.where(at, np.nan, x), index=DAYS, name="x")


def frame(x, at):
    return pd.DataFrame({"a": series(x, at), "b": x**2 + np.arange(N), "c": series(x, at[::-1])})


PROGRAMS = {
    "cumsum": lambda s, d: s.cumsum(),
    "cumprod": lambda s, d: s.cumprod(),
    "cummax": lambda s, d: s.cummax(),
    "cummin": lambda s, d: d.cummin(),
    "frame_cumsum": lambda s, d: d.cumsum(),
    "pct_change": lambda s, d: s.pct_change(fill_method=None),
    "pct_change_2": lambda s, d: d.pct_change(2, fill_method=None),
    "returns": lambda s, d: (1 + s.pct_change(fill_method=None)).cumprod(),
    "rank": lambda s, d: s.rank() * s,
    "rank_pct": lambda s, d: d.rank(pct=True, ascending=False) * d,
    "median": lambda s, d: s.median(),
    "frame_median": lambda s, d: d.median(),
    "quantile": lambda s, d: s.quantile(0.3),
    "quantiles": lambda s, d: s.quantile([0.1, 0.7]),
    "frame_quantile": lambda s, d: d.quantile(0.3),
    "frame_quantiles": lambda s, d: d.quantile([0.1, 0.7]),
    "corr": lambda s, d: s.corr(s.shift(1)),
    "autocorr": lambda s, d: s.autocorr(),
    "cov": lambda s, d: s.cov(d["b"]),
    "corr_of_some": lambda s, d: s.corr(d["b"].iloc[2:]),
    "corr_plain": lambda s, d: ONES["v"].corr(s),
    "frame_corr": lambda s, d: d.corr(),
    "frame_cov": lambda s, d: d.cov(),
    "shifted_corr": lambda s, d: d[["a", "b"]].shift(1).corr(),
    "volatility": lambda s, d: s.pct_change(fill_method=None).rolling(3).std(),
    "rolling_bands": lambda s, d: s.rolling(3).mean() + 2 * s.rolling(3).std(ddof=0),
    "rolling_min": lambda s, d: d.rolling(2).min(),
    "rolling_median": lambda s, d: s.rolling(3).median(),
    "rolling_infinite": lambda s, d: (1 / (s - s.iloc[2])).rolling(2).mean(),
    "rolling_quantile": lambda s, d: d.rolling(3).quantile(0.3),
    "rolling_cov": lambda s, d: s.rolling(3).cov(d["b"]),
    "rolling_corr": lambda s, d: d["b"].rolling(4).corr(ONES["v"]),
    "rolling_beta": lambda s, d: s.rolling(3).cov(d["c"].rename("x")) / d["c"].rolling(3).var(),
    "skew": lambda s, d: s.skew(),
    "kurt": lambda s, d: d.kurt(),
    "sem": lambda s, d: d.sem(),
    "corrwith": lambda s, d: d.corrwith(s),
    "infinite_dropped": lambda s, d: (1 / (s - s.iloc[2])).replace([np.inf, -np.inf], np.nan),
    "infinite_filled": lambda s, d: (1 / (d - d.iloc[7])).replace([np.inf, -np.inf], 0.5),
    "ewm": lambda s, d: s.ewm(span=4).mean(),
    "ewm_frame": lambda s, d: d.ewm(halflife=2.0).mean(),
    "ewm_least": lambda s, d: s.ewm(alpha=0.4, min_periods=3).mean(),
    "ewm_std": lambda s, d: s.ewm(span=4).std(),
    "ewm_var": lambda s, d: d.ewm(com=1.5).var(),
    "ewm_recursive": lambda s, d: d["b"].pct_change().ewm(span=3, adjust=False).mean(),
    "ewm_recursive_std": lambda s, d: d["b"].ewm(span=3, adjust=False).std(),
    "interpolate": lambda s, d: s.interpolate(),
    "frame_interpolate": lambda s, d: d.interpolate(),
    "idxmax": lambda s, d: d.loc[d.idxmax()["a"]],
    "idxmin": lambda s, d: d["b"] * (d.idxmin(axis=1) == "a"),
    "mul_plain": lambda s, d: LETTERS.mul(s, axis=0),
    "div_plain": lambda s, d: ONES.div(s, axis="index"),
    "add_plain": lambda s, d: ONES["u"].add(s, fill_value=0.0),
    "subtract_plain": lambda s, d: ONES["u"].subtract(s),
    "small_number": lambda s, d: d["b"].iloc[1] * SMALL,
    "several_rolling": lambda s, d: d.assign(k=np.arange(N)).rolling(2).sum(),
    "several_corr": lambda s, d: d.assign(k=np.arange(N)).corr(),
}


def total(r):
    """a sum that sees each entry, and leaves out what is missing"""
    r = r.to_numpy() if hasattr(r, "to_numpy") else r
    weights = np.cos(np.arange(1, 1 + np.size(r))).reshape(np.shape(r))
    return np.sum(np.where(np.isnan(r), 0.0, r) * weights)


def check_like(found, expected, **given):
    if isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(found, expected, **given)
    elif isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected, **given)
    else:
        assert type(found) is type(expected)
        np.testing.assert_allclose(found, expected, **given)


@pytest.mark.every(16)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_what_is_missing(name):
    f = PROGRAMS[name]

    def program(x, at):
        return f(series(x, at), frame(x, at))

    value, slope = tg.jit(program), tg.grad(lambda x, at: total(program(x, at)))
    for seed, places in enumerate(MISSING):
        x = np.random.default_rng(seed).uniform(0.5, 2.0, N)
        at = np.isin(np.arange(N), places)
        check_like(value(x, at), program(x, at), rtol=1e-6 if name == "small_number" else 1e-9)
        if name == "small_number":
            np.testing.assert_allclose(slope(x, at)[1], 2 * x[1] * total(SMALL), rtol=1e-5)
            continue
        h = 1e-6
        steps = [total(program(x + e, at)) - total(program(x - e, at)) for e in h * np.eye(N)]
        np.testing.assert_allclose(slope(x, at), np.array(steps) / (2 * h), rtol=1e-5, atol=1e-6)


SMALLS = {
    "rolling": lambda s, t: s.rolling(3).mean(),
    "rolling_std": lambda s, t: s.rolling(3).std(),
    "ewm": lambda s, t: s.ewm(span=3).mean(),
    "quantile": lambda s, t: s.quantile(0.3),
    "quantiles": lambda s, t: s.quantile([0.3, 0.5]),
    "median": lambda s, t: s.median(),
    "cumsum": lambda s, t: s.cumsum(),
    "pct_change": lambda s, t: s.pct_change(fill_method=None),
    "rank": lambda s, t: s.rank(),
    "corr": lambda s, t: s.corr(t),
    "cov": lambda s, t: s.cov(t),
    "frame_corr": lambda s, t: pd.DataFrame({"s": s, "t": t}).corr(),
    "frame_rolling": lambda s, t: pd.DataFrame({"s": s, "t": t}).rolling(2).sum(),
    "frame_median": lambda s, t: pd.DataFrame({"s": s, "u": s * 2}).median(),
    "frame_quantile": lambda s, t: pd.DataFrame({"s": s, "u": s * 2}).quantile(0.4),
    "frame_quantiles": lambda s, t: pd.DataFrame({"s": s, "u": s * 2}).quantile([0.4]),
    "number": lambda s, t: t.iloc[0] * s,
    "numbers_power": lambda s, t: s ** np.float64(1.5),
    "number_numpys": lambda s, t: np.multiply(t.iloc[0], s),
    "numbers_frame": lambda s, t: t.iloc[0] * pd.DataFrame({"s": s, "u": s * 2}),
    "numbers_int": lambda s, t: np.int64(3) * s,
    "interpolate": lambda s, t: s.interpolate(),
    "groups": lambda s, t: s.groupby(KEYS).mean(),
    "groups_std": lambda s, t: pd.DataFrame({"s": s, "t": t}).groupby(KEYS).std(),
    "groups_max": lambda s, t: pd.DataFrame({"s": s, "k": KEYS}).groupby("k")["s"].max(),
}


@pytest.mark.every(16)
@pytest.mark.parametrize("name", SMALLS)
@pytest.mark.filterwarnings("ignore")
def test_float32(name):
    def program(x, at, dtype=np.float32):
        s = pd.Series(np.where(at, np.nan, x), index=DAYS, name="s").astype(dtype)
        return SMALLS[name](s, pd.Series(x**2, index=DAYS, name="t"))

    value, slope = tg.jit(program), tg.grad(lambda x, at: total(program(x, at)))
    for seed, places in enumerate(MISSING):
        x = np.random.default_rng(seed).uniform(0.5, 2.0, N)
        at = np.isin(np.arange(N), places)
        check_like(value(x, at), program(x, at), rtol=1e-5)
        steps = [
            total(program(x + e, at, np.float64)) - total(program(x - e, at, np.float64))
            for e in 1e-6 * np.eye(N)
        ]
        np.testing.assert_allclose(slope(x, at), np.array(steps) / 2e-6, rtol=1e-3, atol=1e-3)
