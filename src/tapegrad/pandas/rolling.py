"""Methods of Series and DataFrames that compute with their rows in order: differences, moving
windows, values where a condition holds. They are written in terms of NumPy's functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.extending import unobserved
from tapegrad.extending.arrays import Tracer
from tapegrad.extending.tables import Labels, is_series, pandas
from tapegrad.pandas.applying import APPLYING, applied
from tapegrad.pandas.dataframes import made_of_columns, together
from tapegrad.pandas.evaluated import evaluated, queried
from tapegrad.pandas.groups import checked, grouping
from tapegrad.pandas.keyed import asked, by_pandas
from tapegrad.pandas.labelled import (
    Labelled,
    TracedSeries,
    check_index,
    made,
    of_numbers,
    plain_of,
    refused,
    stood_in,
)
from tapegrad.pandas.skipping import (
    autocorr,
    corr,
    corrwith,
    cov,
    cumulative,
    floats,
    interpolate,
    kurt,
    like,
    median,
    of_columns,
    pct_change,
    place_of,
    present,
    quantile,
    rank,
    sem,
    skew,
)


def method_of(x: Any, name: str) -> Any:
    """The method of this name of a proxy of a Series or DataFrame; None if there is none."""
    if name in APPLYING:
        return functools.partial(applied, x, name)
    if name in _OF_FRAMES and x._labels.columns is not None:
        return _bound(_OF_FRAMES[name], x if name in _OF_ANY else together(x))
    if name in _METHODS and not (name == "autocorr" and x._labels.columns is not None):
        x = x if name in _OF_ANY else together(x)
        of_several = x._labels.columns is not None and not x._labels.whole
        if of_several and name in _BY_COLUMN:
            return functools.partial(_by_column, x, name)
        if of_several and name in _REDUCED:
            return unobserved(functools.partial(_reduced_by_column, x, name))
        if of_several and name not in _OF_ANY | _OF_FLOATS:
            raise refused(f"DataFrame.{name} of columns of several dtypes")
        return _bound(_METHODS[name], x)
    real = getattr(getattr(pandas(), x._kind), name, None)
    if name.startswith("_") or real is None:
        return None
    if not callable(real):
        return asked(lambda table: getattr(table, name), f"{x._kind}.{name}", x)
    return unobserved(functools.partial(by_pandas, x, name))


def _by_column(x: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    columns = [getattr(column, name)(*args, **kwargs) for _, column in x.items()]
    each = [stood_in(c)._branches[0] for c in columns]  # texts stay pandas' own
    return made_of_columns(x._labels.index, x._labels.columns, each)


def _reduced_by_column(x: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    plain = getattr(plain_of(x), name)(*args, **kwargs)
    x = of_numbers(x) if kwargs.pop("numeric_only", False) else x
    each = [getattr(column, name)(*args, **kwargs) for _, column in x.items()]
    if is_series(plain):
        found = made(Labels(plain.index, name=plain.name), [np.stack(each)])
    else:
        found = x._like(plain.index, plain.columns, np.stack([c.to_numpy() for c in each], axis=1))
    return checked(found, plain, f"DataFrame.{name} of columns of several dtypes")


_REDUCED = frozenset(["count", "kurt", "kurtosis", "median", "quantile", "sem", "skew"])
_OF_ANY = frozenset(["pipe", "groupby", "resample", "expanding", "eval", "query", "describe"])
_BY_COLUMN = frozenset(["clip", "cummax", "cummin", "cumprod", "cumsum", "diff", "fillna"])
_OF_FLOATS = frozenset(["corr", "cov", "ewm", "rolling"])  # whatever the columns' dtypes
_BY_COLUMN |= {"interpolate", "isna", "isnull", "notna", "notnull", "pct_change", "rank", "round"}


def _bound(f: Callable[..., Any], x: Any) -> Any:
    own = inspect.signature(f).parameters

    def method(*args: Any, **kwargs: Any) -> Any:
        if "numeric_only" in kwargs and "numeric_only" not in own and kwargs.pop("numeric_only"):
            return getattr(of_numbers(x), f.__name__)(*args, **kwargs)
        along = 0 if {"axis", "args"} & own.keys() else kwargs.pop("axis", 0)
        if along in (1, "columns") and x._labels.columns is not None:
            return getattr(x.T, f.__name__)(*args, **kwargs).T
        try:
            return f(x, *args, **kwargs)
        except TypeError as error:
            if f.__name__ in str(error) and "argument" in str(error):
                return by_pandas(x, f.__name__, *args, **kwargs)
            raise

    return method


def _values(x: Any) -> Any:
    return x.to_numpy()


def _check_no_booleans(x: Any, name: str) -> None:
    if _values(x).dtype.kind == "b":
        raise refused(f"{x._kind}.{name} of booleans")


@unobserved
def diff(x: Any, periods: Any = 1) -> Any:
    return x - x.shift(periods)


@unobserved
def isna(x: Any) -> Any:
    return like(x, np.isnan(_values(x)))


@unobserved
def notna(x: Any) -> Any:
    return like(x, ~np.isnan(_values(x)))


@unobserved
def count(x: Any) -> Any:
    return of_columns(x, np.sum(~np.isnan(_values(x)), axis=0))


@unobserved
def fillna(x: Any, value: Any) -> Any:
    if np.ndim(value) or isinstance(value, (Labelled, dict, str)) or is_series(value):
        return by_pandas(x, "fillna", value)
    return like(x, np.where(np.isnan(_values(x)), value, _values(x)))


@unobserved
def where(x: Any, cond: Any, other: Any = np.nan) -> Any:
    _check_no_booleans(x, "where")
    return like(x, np.where(_beside(x, cond), _values(x), _beside(x, other)))


@unobserved
def mask(x: Any, cond: Any, other: Any = np.nan) -> Any:
    _check_no_booleans(x, "mask")
    return like(x, np.where(_beside(x, cond), _beside(x, other), _values(x)))


def _beside(x: Any, y: Any) -> Any:
    """The numbers of `y`, if its labels are those of `x`."""
    y = stood_in(y)
    if not isinstance(y, Labelled):
        return y
    if y._kind != x._kind or not y._labels.index.equals(x._labels.index):
        raise refused("a condition with other labels")
    return _values(y)


def _bound_of(x: Any, y: Any, none: float) -> Any:
    """Bounds of the numbers of `x`, one for each; `none` in the place of NaN."""
    y = _beside(x, y) if np.ndim(y) or isinstance(y, Labelled) else y
    if np.ndim(y) and np.shape(y) != np.shape(_values(x)):
        raise refused(f"{x._kind}.clip by numbers of another shape")
    return np.where(np.isnan(y), none, y) if np.ndim(y) else y


@unobserved
def clip(x: Any, lower: Any = None, upper: Any = None) -> Any:
    _check_no_booleans(x, "clip")
    lower, upper = _bound_of(x, lower, -np.inf), _bound_of(x, upper, np.inf)
    if (
        lower is not None and upper is not None and not (np.ndim(lower) or np.ndim(upper))
    ):  # pandas sorts these bounds, NumPy doesn't
        if isinstance(lower, Tracer) or isinstance(upper, Tracer):
            lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
        elif upper < lower:
            lower, upper = upper, lower
    return like(x, np.clip(_values(x), lower, upper))


@unobserved
def between(x: Any, left: Any, right: Any, inclusive: str = "both") -> Any:
    above = x >= left if inclusive in ("both", "left") else x > left
    return above & (x <= right if inclusive in ("both", "right") else x < right)


@unobserved
def describe(x: Any, percentiles: Any = None, **kwargs: Any) -> Any:
    """Summaries of each column, in pandas' rows, checked against pandas' own."""
    plain = plain_of(x).describe(percentiles, **kwargs)
    at = [float(n[:-1]) / 100 for n in plain.index[4:-1]]

    def summary(s: Any) -> Any:
        first = [s.count(), s.mean(), s.std(), s.min()]
        return np.stack([*first, *(s.quantile(at) if at else ()), s.max()])

    if is_series(plain):
        found = x._with(summary(x), plain.index)
    else:
        columns = [summary(stood_in(c)) for _, c in of_numbers(x).items()]
        found = x._like(plain.index, plain.columns, np.stack(columns, axis=1))
    return checked(found, plain, f"{x._kind}.describe")


@unobserved
def round(x: Any, decimals: Any = 0) -> Any:
    _check_no_booleans(x, "round")
    return like(x, np.round(_values(x), decimals))


def pipe(x: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
    return f(x, *args, **kwargs)


@unobserved
def tolist(x: Any) -> Any:
    return list(x)


@unobserved
def item(x: Any) -> Any:
    return _values(x).item()


# ---- windows


class Windows:
    """Sums and other reductions of the rows in a window, for each position of its last row."""

    def __init__(self, x: Any, length: int) -> None:
        self._x, self._length = x, length

    def __getattr__(self, name: str) -> Any:
        if name not in ("sum", "mean", "std", "var", "min", "max", "median"):
            return getattr(_rolling(self._x, self._length), name)
        if name in ("std", "var"):
            return unobserved(lambda ddof=1: self._of(name, ddof=ddof))
        return unobserved(lambda: self._of(name))

    def _of(self, name: str, **given: Any) -> Any:
        f: Any = getattr(np, name)
        if name in ("sum", "mean"):
            return self._found(lambda rows: f(rows, axis=-1), self._x)
        return self._found(lambda rows: _where_all(lambda r: f(r, axis=-1, **given), rows), self._x)

    def _found(self, f: Callable[..., Any], *xs: Any) -> Any:
        """`f` of the windows of tables."""
        x, length = xs[0], self._length
        tables = [floats(y, "rolling") for y in xs]
        tables = [np.where(np.isinf(values), np.nan, values) for values in tables]  # as pandas does
        if len(x) < length:
            return like(x, np.full(tables[0].shape, np.nan))
        rows = [np.lib.stride_tricks.sliding_window_view(v, length, axis=0) for v in tables]
        before = np.full((length - 1, *tables[0].shape[1:]), np.nan)
        return like(x, np.concatenate([before, f(*rows)]))

    @unobserved
    def quantile(self, q: float) -> Any:
        def of(rows: Any) -> Any:
            return np.quantile(rows, q, axis=-1)

        return self._found(lambda rows: _where_all(of, rows), self._x)

    @unobserved
    def cov(self, other: Any = None) -> Any:
        return self._of_two(other, "cov", lambda x, y, n: np.sum(x * y, axis=-1) / (n - 1.0))

    @unobserved
    def corr(self, other: Any = None) -> Any:
        def found(x: Any, y: Any, n: int) -> Any:
            both = np.sum(x * x, axis=-1) * np.sum(y * y, axis=-1)
            return np.sum(x * y, axis=-1) / np.sqrt(both)

        return self._of_two(other, "corr", found)

    def _of_two(self, other: Any, name: str, f: Callable[..., Any]) -> Any:
        """`f` of the deviations of the numbers of two Series from the mean of each window."""
        x, y = self._x, stood_in(other)
        if not (isinstance(x, TracedSeries) and isinstance(y, TracedSeries)):
            raise refused(f"{x._kind}.rolling(...).{name} of a {type(other).__name__}")
        check_index(x._labels.index, y._labels.index, f"Series.rolling(...).{name}")

        def found(x: Any, y: Any) -> Any:
            apart = [r - np.mean(r, axis=-1, keepdims=True) for r in (x, y)]
            return f(*apart, self._length)

        result = self._found(lambda *rows: _where_all(found, *rows), x, y)
        return result.rename(None) if x.name != y.name else result


def _where_all(f: Callable[..., Any], *rows: Any) -> Any:
    """`f` of the windows without NaN; NaN for the others, with derivative 0: these are filled with
    other numbers first, so that no NaN enters the derivatives."""
    each: list[Any] = [np.any(np.isnan(r), axis=-1) for r in rows]
    missing = functools.reduce(np.logical_or, each)
    filled = np.arange(1.0 * rows[0].shape[-1])
    return np.where(missing, np.nan, f(*[np.where(missing[..., None], filled, r) for r in rows]))


@unobserved
def rolling(x: Any, window: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(window, int) and window > 0 and not (args or kwargs):
        return Windows(x, window)
    return _rolling(x, window, *args, **kwargs)


_rolling = grouping("rolling")


class Weighted:
    """Means of all rows up to each one, whose weights decay by a constant factor from row to
    row."""

    def __init__(self, x: Any, factor: Any, adjust: bool, least: int) -> None:
        self._x, self._factor, self._adjust, self._least = x, factor, adjust, max(least, 1)

    def _of_columns(self, f: Callable[[Any, Any], Any], least: int) -> Any:
        """`f(weights, numbers)` of each column, for the rows up to which there are enough
        numbers."""
        values = floats(self._x, "ewm")
        values = np.where(np.isinf(values), np.nan, values)  # as pandas does
        least, at = max(least, self._least), present(values)

        def found(values: Any, at: np.ndarray) -> Any:
            enough = np.cumsum(at) >= least
            if not enough.any():
                return np.full(len(at), np.nan)
            there, rows = np.flatnonzero(at), np.flatnonzero(enough)
            results = f(self._weights(at)[rows][:, there], values[there])
            return np.where(enough, results[np.cumsum(enough) - 1], np.nan)

        at = np.ones(values.shape, bool) if at is None else at
        if values.ndim == 1:
            return like(self._x, found(values, at))
        columns = [found(values[:, k], at[:, k]) for k in range(values.shape[1])]
        return like(self._x, np.stack(columns, axis=1))

    def _weights(self, at: np.ndarray) -> Any:
        """The weight of each row in the mean of each row."""
        n, first, factor = len(at), int(np.argmax(at)), self._factor
        age = np.arange(n)[:, None] - np.arange(n)
        weights = np.where((age >= 0) & at, factor ** np.maximum(age, 0.0), 0.0)[first:]
        if self._adjust:
            weights = weights / np.sum(weights, axis=1, keepdims=True)
        elif at[first:].all():
            weights = np.where(np.arange(n) > first, (1.0 - factor) * weights, weights)
        else:
            raise refused(f"{self._x._kind}.ewm without adjust, of what is NaN between numbers")
        return np.concatenate([np.zeros((first, n)), weights])

    @unobserved
    def mean(self) -> Any:
        return self._of_columns(lambda weights, values: weights @ values, 1)

    @unobserved
    def var(self) -> Any:
        return self._of_columns(_variance, 2)

    @unobserved
    def std(self) -> Any:
        return self._of_columns(lambda weights, values: np.sqrt(_variance(weights, values)), 2)

    def __getattr__(self, name: str) -> Any:
        raise refused(f"{self._x._kind}.ewm(...).{name}")


def _variance(weights: Any, values: Any) -> Any:
    """Unbiased variances, by weights that sum to one."""
    apart = values - (weights @ values)[:, None]
    return np.sum(weights * apart**2, axis=1) / (1.0 - np.sum(weights**2, axis=1))


MOST_ROWS = 2000  # each has weights of its own


@unobserved
def ewm(
    x: Any,
    com: Any = None,
    span: Any = None,
    halflife: Any = None,
    alpha: Any = None,
    min_periods: int | None = 0,
    adjust: bool = True,
) -> Any:
    given = {"com": com, "span": span, "halflife": halflife, "alpha": alpha}
    known = [(name, value) for name, value in given.items() if value is not None]
    if len(known) != 1 or len(x) > MOST_ROWS:
        raise refused(f"{x._kind}.ewm with these arguments, or of so many rows")
    name, value = known[0]
    if name == "alpha":
        factor = 1.0 - value
    elif name == "halflife":
        factor = 0.5 ** (1.0 / value)
    else:
        com = (value - 1.0) / 2.0 if name == "span" else value
        factor = com / (1.0 + com)
    return Weighted(x, factor, adjust, min_periods or 0)


_METHODS: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (diff, pct_change, isna, notna, count, fillna, where, mask, clip)},
    **{
        f.__name__: f
        for f in (between, describe, round, rank, median, quantile, cov, corr, pipe, autocorr)
    },
    **{f.__name__: f for f in (sem, skew, kurt, interpolate, tolist, item, rolling, ewm)},
    **{name: grouping(name) for name in ("groupby", "resample", "expanding")},
    **{name: cumulative(name) for name in ("cumsum", "cumprod", "cummax", "cummin")},
    **{"isnull": isna, "notnull": notna, "to_list": tolist},
}
_METHODS["kurtosis"] = kurt
_OF_FRAMES = {name: place_of(name) for name in ("idxmax", "idxmin")} | {"corrwith": corrwith}
_OF_FRAMES |= {"eval": evaluated, "query": queried}
