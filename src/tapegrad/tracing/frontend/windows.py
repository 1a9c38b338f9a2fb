"""Methods of Series and DataFrames that compute with their rows in order: differences, windows that
move along, values where a condition holds. They are in terms of NumPy's functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.core.tables import Labels, is_series, pandas
from tapegrad.tracing.frontend.applying import APPLYING, applied
from tapegrad.tracing.frontend.cells import asked, by_pandas
from tapegrad.tracing.frontend.frames import made_of_columns, together
from tapegrad.tracing.frontend.groups import Groups, groupby, resample
from tapegrad.tracing.frontend.labelled import (
    Labelled,
    TracedSeries,
    check_index,
    made,
    refused,
    stood_in,
)
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.tracer import Tracer


def method_of(x: Any, name: str) -> Any:
    """The method of this name of what stands for a Series or DataFrame; None if there is none."""
    if name in APPLYING:
        return functools.partial(applied, x, name)
    if name in _METHODS:
        x = x if name in _OF_ANY else together(x)
        of_several = x._labels.columns is not None and not x._labels.whole
        if of_several and name in _BY_COLUMN:
            return functools.partial(_by_column, x, name)
        if of_several and name not in _OF_ANY:
            raise refused(f"DataFrame.{name} of columns of several dtypes")
        return _bound(_METHODS[name], x)
    real = getattr(getattr(pandas(), x._kind), name, None)
    if name.startswith("_") or real is None:
        return None
    if not callable(real):
        return asked(lambda table: getattr(table, name), f"{x._kind}.{name}", x)
    return unobserved(functools.partial(by_pandas, x, name))


def _by_column(x: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    columns = [getattr(column, name)(*args, **kwargs) for _, column in x.items()]
    each = [stood_in(c)._branches[0] for c in columns]  # texts stay pandas' own
    return made_of_columns(x._labels.index, x._labels.columns, each)


_OF_ANY = frozenset(["pipe", "groupby", "resample", "expanding"])
_BY_COLUMN = frozenset(["clip", "cummax", "cummin", "cumprod", "cumsum", "diff", "fillna"])
_BY_COLUMN |= {"isna", "isnull", "notna", "notnull", "pct_change", "rank", "round"}


def _bound(f: Callable[..., Any], x: Any) -> Any:
    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(x, *args, **kwargs)
        except TypeError as error:
            if f.__name__ in str(error) and "argument" in str(error):
                return by_pandas(x, f.__name__, *args, **kwargs)
            raise

    return method


def _values(x: Any) -> Any:
    return x.to_numpy()


def _like(x: Any, values: Any) -> Any:
    """With the same labels."""
    if isinstance(x, TracedSeries):
        return x._with(values)
    return x._like(x._labels.index, x._labels.columns, values)


def _of_columns(x: Any, values: Any) -> Any:
    """One number for each column, or that of a Series."""
    return values if isinstance(x, TracedSeries) else made(Labels(x._labels.columns), [values])


def _check_numbers(x: Any, name: str) -> None:
    """An error where anything is NaN, which pandas leaves out here."""
    values = _values(x)
    if values.dtype.kind == "f" and bool(np.any(np.isnan(values))):
        raise refused(f"{x._kind}.{name} of what is NaN")


def _floats(x: Any, name: str) -> Any:
    """The numbers, with which pandas computes in double precision."""
    values = _values(x)
    if values.dtype.kind not in "iu" and values.dtype != np.float64:
        raise refused(f"{x._kind}.{name} of {values.dtype}", "Let it be float64: x.astype(float)")
    return values * 1.0


def _check_no_booleans(x: Any, name: str) -> None:
    if _values(x).dtype.kind == "b":
        raise refused(f"{x._kind}.{name} of booleans")


@unobserved
def diff(x: Any, periods: Any = 1) -> Any:
    return x - x.shift(periods)


@unobserved
def pct_change(x: Any, periods: Any = 1, *, fill_method: Any = None) -> Any:
    _check_numbers(x, "pct_change")
    return x / x.shift(periods) - 1.0


def _cumulative(name: str) -> Any:
    numpys = {"cummax": "maximum", "cummin": "minimum"}

    @unobserved
    def method(x: Any) -> Any:
        _check_numbers(x, name)
        if name in numpys:
            return _like(x, getattr(np, numpys[name]).accumulate(_values(x), axis=0))
        return _like(x, getattr(np, name)(_values(x), axis=0))

    method.__name__ = name
    return method


@unobserved
def isna(x: Any) -> Any:
    return _like(x, np.isnan(_values(x)))


@unobserved
def notna(x: Any) -> Any:
    return _like(x, ~np.isnan(_values(x)))


@unobserved
def count(x: Any) -> Any:
    return _of_columns(x, np.sum(~np.isnan(_values(x)), axis=0))


@unobserved
def fillna(x: Any, value: Any) -> Any:
    if np.ndim(value) or isinstance(value, (Labelled, dict, str)) or is_series(value):
        return by_pandas(x, "fillna", value)
    return _like(x, np.where(np.isnan(_values(x)), value, _values(x)))


@unobserved
def where(x: Any, cond: Any, other: Any = np.nan) -> Any:
    _check_no_booleans(x, "where")
    return _like(x, np.where(_beside(x, cond), _values(x), _beside(x, other)))


@unobserved
def mask(x: Any, cond: Any, other: Any = np.nan) -> Any:
    _check_no_booleans(x, "mask")
    return _like(x, np.where(_beside(x, cond), _beside(x, other), _values(x)))


def _beside(x: Any, y: Any) -> Any:
    """The numbers of `y` that meet those of `x`, with the same labels."""
    y = stood_in(y)
    if not isinstance(y, Labelled):
        return y
    if y._kind != x._kind or not y._labels.index.equals(x._labels.index):
        raise refused("a condition with other labels")
    return _values(y)


@unobserved
def clip(x: Any, lower: Any = None, upper: Any = None) -> Any:
    if any(np.ndim(b) or isinstance(b, Labelled) for b in (lower, upper) if b is not None):
        raise refused(f"{x._kind}.clip by more than two numbers")
    _check_no_booleans(x, "clip")
    if lower is not None and upper is not None:  # pandas puts these in order, and NumPy doesn't
        if isinstance(lower, Tracer) or isinstance(upper, Tracer):
            lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
        elif upper < lower:
            lower, upper = upper, lower
    return _like(x, np.clip(_values(x), lower, upper))


@unobserved
def round(x: Any, decimals: Any = 0) -> Any:
    _check_no_booleans(x, "round")
    return _like(x, np.round(_values(x), decimals))


@unobserved
def rank(x: Any, *, method: str = "average", ascending: bool = True, pct: bool = False) -> Any:
    """Places in the order of values, from 1 on: piecewise constant."""
    _check_numbers(x, "rank")
    if method not in ("average", "min", "max") or not isinstance(x, TracedSeries):
        raise refused(f"{x._kind}.rank by {method}")
    values = _values(x) if ascending else -_values(x)
    ordered = np.sort(values)
    before = np.searchsorted(ordered, values, side="left") + 1.0
    until = np.searchsorted(ordered, values, side="right") * 1.0
    found = {"average": 0.5 * (before + until), "min": before, "max": until}[method]
    return x._with(found / len(x) if pct else found)


@unobserved
def median(x: Any) -> Any:
    _check_numbers(x, "median")
    return _of_columns(x, np.median(_floats(x, "median"), axis=0))


@unobserved
def quantile(x: Any, q: Any = 0.5) -> Any:
    _check_numbers(x, "quantile")
    found = np.quantile(_floats(x, "quantile"), q, axis=0)
    if not np.ndim(q):
        return (
            found
            if isinstance(x, TracedSeries)
            else made(Labels(x._labels.columns, name=q), [found])
        )
    rows = pandas().Index(q)
    if isinstance(x, TracedSeries):
        return x._with(found, rows)
    return x._like(rows, x._labels.columns, found)


@unobserved
def cov(x: Any, other: Any = None) -> Any:
    return _of_pairs(x, other, "cov")


@unobserved
def corr(x: Any, other: Any = None) -> Any:
    return _of_pairs(x, other, "corr")


def _of_pairs(x: Any, other: Any, name: str) -> Any:
    f: Any = np.cov if name == "cov" else np.corrcoef
    _check_numbers(x, name)
    if isinstance(x, TracedSeries):
        y = stood_in(other)
        if not isinstance(y, TracedSeries):
            raise refused(f"Series.{name} of a {type(other).__name__}")
        check_index(x._labels.index, y._labels.index, f"Series.{name}")
        _check_numbers(y, name)
        return f(_floats(x, name), _floats(y, name))[0, 1]
    if other is not None:
        raise refused(f"DataFrame.{name} with these arguments")
    columns = x._labels.columns
    return x._like(columns, columns, np.reshape(f(_floats(x, name).T), (len(columns),) * 2))


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
    """Sums and the like of the rows that are in a window, for each place of its last row."""

    def __init__(self, x: Any, length: int) -> None:
        self._x, self._length = x, length

    def __getattr__(self, name: str) -> Any:
        if name not in ("sum", "mean", "std", "var", "min", "max", "median"):
            return getattr(_rolling(self._x, self._length), name)
        return unobserved(lambda: self._of(name))

    def _of(self, name: str) -> Any:
        x, length = self._x, self._length
        values = _floats(x, "rolling")
        if values.shape[0] < length:
            return _like(x, np.full(values.shape, np.nan))
        rows = np.lib.stride_tricks.sliding_window_view(values, length, axis=0)
        ddof = {"ddof": 1} if name in ("std", "var") else {}
        found = getattr(np, name)(rows, axis=-1, **ddof)
        before = np.full((length - 1, *values.shape[1:]), np.nan)
        return _like(x, np.concatenate([before, found]))


@unobserved
def rolling(x: Any, window: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(window, int) and window > 0 and not (args or kwargs):
        return Windows(x, window)
    return _rolling(x, window, *args, **kwargs)


def _rolling(x: Any, *args: Any, **kwargs: Any) -> Any:
    return Groups(
        f"{x._kind}.rolling(...)",
        lambda table, args, kwargs: table.rolling(*args, **kwargs),
        *(x, [*args], kwargs),
    )


@unobserved
def expanding(x: Any, *args: Any, **kwargs: Any) -> Any:
    return Groups(
        f"{x._kind}.expanding(...)",
        lambda table, args, kwargs: table.expanding(*args, **kwargs),
        *(x, [*args], kwargs),
    )


class Weighted:
    """Means of all rows up to each one, whose weights decay by a factor from row to row."""

    def __init__(self, x: Any, factor: Any, adjust: bool) -> None:
        self._x, self._factor, self._adjust = x, factor, adjust

    @unobserved
    def mean(self) -> Any:
        _check_numbers(self._x, "ewm")
        values, factor = _floats(self._x, "ewm"), self._factor
        n = len(self._x)
        age = np.arange(n)[:, None] - np.arange(n)
        weights = np.where(age >= 0, factor ** np.maximum(age, 0.0), 0.0)
        if self._adjust:
            weights = weights / np.sum(weights, axis=1, keepdims=True)
        else:
            weights = np.where(np.arange(n) > 0, (1.0 - factor) * weights, weights)
        return _like(self._x, weights @ values)

    def __getattr__(self, name: str) -> Any:
        raise refused(f"{self._x._kind}.ewm(...).{name}")


MOST_ROWS = 2000  # of which each has weights of its own


@unobserved
def ewm(
    x: Any,
    com: Any = None,
    span: Any = None,
    halflife: Any = None,
    alpha: Any = None,
    *,
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
    return Weighted(x, factor, adjust)


_METHODS: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (diff, pct_change, isna, notna, count, fillna, where, mask, clip)},
    **{f.__name__: f for f in (round, rank, median, quantile, cov, corr, pipe)},
    **{f.__name__: f for f in (tolist, item, rolling, expanding, ewm, groupby, resample)},
    **{name: _cumulative(name) for name in ("cumsum", "cumprod", "cummax", "cummin")},
    **{"isnull": isna, "notnull": notna, "to_list": tolist},
}
