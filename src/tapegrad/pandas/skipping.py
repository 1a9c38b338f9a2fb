"""Methods of Series and DataFrames that leave out NaN: running sums, ranks, quantiles,
correlations. The places of NaN are guarded, if there are any; the computation uses the other
numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.extending import unobserved
from tapegrad.extending.arrays import Tracer, dispatch
from tapegrad.extending.tables import Labels, pandas
from tapegrad.pandas.labelled import (
    TracedSeries,
    made,
    plain_of,
    refused,
    same_index,
    stood_in,
)


def like(x: Any, values: Any) -> Any:
    """`values` with the labels of `x`."""
    if isinstance(x, TracedSeries):
        return x._with(values)
    return x._like(x._labels.index, x._labels.columns, values)


def of_columns(x: Any, values: Any) -> Any:
    """One number for each column of a DataFrame, or the number of a Series."""
    return values if isinstance(x, TracedSeries) else made(Labels(x._labels.columns), [values])


def check_numbers(x: Any, name: str) -> None:
    """Raise an error if anything is NaN, which pandas leaves out here."""
    if present(x.to_numpy()) is not None:
        raise refused(f"{x._kind}.{name} of what is NaN")


def floats(x: Any, name: str) -> Any:
    """The numbers in double precision, in which pandas computes."""
    values = x.to_numpy()
    if values.dtype == np.float32:
        return values.astype(np.float64)
    if values.dtype.kind not in "iu" and values.dtype != np.float64:
        raise refused(f"{x._kind}.{name} of {values.dtype}", "Let it be float64: x.astype(float)")
    return values * 1.0


def present(values: Any) -> np.ndarray | None:
    """A guarded mask of the numbers that aren't NaN; None if all aren't."""
    if values.dtype.kind != "f":
        return None
    missing: Any = np.isnan(values)
    if not bool(np.any(missing)):
        return None
    found: np.ndarray = ~(missing._guarded_array() if isinstance(missing, Tracer) else missing)
    return found


def in_places(values: Any, at: np.ndarray | None, f: Callable[..., Any], dtype: Any = None) -> Any:
    """`f` of the non-NaN numbers of each column, at their places; NaN at the others."""
    if values.ndim > 1:
        columns = [(values[:, k], None if at is None else at[:, k]) for k in range(len(values.T))]
        return np.stack([in_places(*c, f, dtype) for c in columns], axis=1)
    if at is None:
        return f(values)
    if not at.any():
        return np.full(values.shape, np.nan, dtype or values.dtype)
    return np.where(at, f(values[np.flatnonzero(at)])[np.cumsum(at) - 1], np.nan)


def _of_present(values: Any, at: np.ndarray | None, f: Callable[..., Any], none: Any) -> Any:
    """`f` of the non-NaN numbers of each column; `none` if there are none."""
    if at is None:
        return f(values)
    if values.ndim > 1:
        columns = [(values[:, k], at[:, k]) for k in range(len(values.T))]
        return np.stack([_of_present(*c, f, none) for c in columns], axis=-1)
    return f(values[np.flatnonzero(at)]) if at.any() else none


@unobserved
def pct_change(x: Any, periods: Any = 1, *, fill_method: Any = ...) -> Any:
    if fill_method is ... and int(pandas().__version__.partition(".")[0]) < 3:
        fill_method = "pad"
    if fill_method not in (..., None):
        check_numbers(x, "pct_change")
    a, b = x.to_numpy(), x.shift(periods).to_numpy()
    there = ~(np.isnan(a) | np.isnan(b))
    with np.errstate(all="ignore"):
        found = np.where(there, a, 1.0) / np.where(there, b, 1.0) - 1.0
    return like(x, np.where(there, found, np.nan))


def cumulative(name: str) -> Any:
    """The method of this name: `cumsum` and the like."""
    numpys: Any = {"cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}
    f = numpys[name] if name in numpys else getattr(np, name)

    @unobserved
    def method(x: Any) -> Any:
        values = x.to_numpy()
        at = present(values)
        return like(x, f(values, axis=0) if at is None else in_places(values, at, f))

    method.__name__ = name
    return method


@unobserved
def rank(x: Any, *, method: str = "average", ascending: bool = True, pct: bool = False) -> Any:
    """Ranks of the values, from 1 on: piecewise constant."""

    def ranks(values: Any) -> Any:
        values = values if ascending else -values
        ordered: Any = np.sort(values)
        before = np.searchsorted(ordered, values, side="left") + 1.0
        until = np.searchsorted(ordered, values, side="right") * 1.0
        found = {"average": 0.5 * (before + until), "min": before, "max": until}
        count = len(values)
        if method == "first":
            found[method] = np.argsort(np.argsort(values, kind="stable")) + 1.0
        elif method == "dense":  # equal numbers count once
            steps: Any = np.cumsum(np.concatenate([np.ones(1), ordered[1:] > ordered[:-1]]))
            found[method], count = steps[before.astype(int) - 1], steps[-1]
        return found[method] / count if pct else found[method]

    values = x.to_numpy()
    return like(x, in_places(values, present(values), ranks, np.float64))


@unobserved
def median(x: Any) -> Any:
    values = x.to_numpy()
    values = values if values.dtype == np.float32 else floats(x, "median")
    nan = values.dtype.type(np.nan)
    median = _of_present(values, present(values), lambda v: np.median(v, axis=0), nan)
    return of_columns(x, median)


def _moment(name: str) -> Any:
    """The method of this name: `sem`, `skew` or `kurt`."""

    @unobserved
    def method(x: Any) -> Any:
        values = floats(x, name)

        def found(values: Any) -> Any:
            n = values.shape[0]
            if n <= {"sem": 1, "skew": 2, "kurt": 3}[name]:
                return np.full(values.shape[1:], np.nan)[()]
            if name == "sem":
                return np.std(values, axis=0, ddof=1) / np.sqrt(n)
            apart = values - np.mean(values, axis=0)
            square: Any = np.sum(apart**2, axis=0)
            if bool(np.any(square < 1e-13)):  # where pandas takes it as 0
                raise refused(f"{x._kind}.{name} of numbers that are almost the same")
            if name == "skew":
                third = np.sum(apart**3, axis=0)
                return n * np.sqrt(n - 1.0) / (n - 2.0) * third / square**1.5
            fourth = n * (n + 1.0) * (n - 1.0) * np.sum(apart**4, axis=0) / square**2
            return (fourth - 3.0 * (n - 1.0) ** 2) / ((n - 2.0) * (n - 3.0))

        return of_columns(x, _of_present(values, present(values), found, np.float64(np.nan)))

    method.__name__ = name
    return method


sem, skew, kurt = map(_moment, ("sem", "skew", "kurt"))


@unobserved
def quantile(x: Any, q: Any = 0.5) -> Any:
    values = floats(x, "quantile")
    none = np.full(np.shape(q), np.nan)[()]
    found = _of_present(values, present(values), lambda v: np.quantile(v, q, axis=0), none)
    if x.to_numpy().dtype == np.float32:  # the result is float32 if any number is NaN
        found = found.astype(np.asarray(plain_of(x).quantile(plain_of(q))).dtype)
    if not np.ndim(q):
        if isinstance(x, TracedSeries):
            return found
        return made(Labels(x._labels.columns, name=q), [found])
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


@unobserved
def autocorr(x: Any, lag: Any = 1) -> Any:
    return corr(x, x.shift(lag))


@unobserved
def corrwith(x: Any, other: Any) -> Any:
    """The correlation of each column with a Series."""
    if not isinstance(stood_in(other), TracedSeries):
        raise refused(f"DataFrame.corrwith of a {type(other).__name__}")
    return of_columns(x, np.stack([corr(column, other) for _, column in x.items()]))


def _of_pairs(x: Any, other: Any, name: str) -> Any:
    if isinstance(x, TracedSeries):
        y = stood_in(other)
        if not isinstance(y, TracedSeries):
            raise refused(f"Series.{name} of a {type(other).__name__}")
        if not same_index(x._labels.index, y._labels.index):
            x, y = map(stood_in, dispatch.table_method(x, "align")(y, join="inner"))
        return _of_two(name, floats(x, name), floats(y, name))
    if other is not None:
        raise refused(f"DataFrame.{name} with these arguments")
    columns, values = x._labels.columns, floats(x, name)
    at, n = present(values), len(x._labels.columns)
    if at is not None and (at == at[:, :1]).all():
        values, at = values[np.flatnonzero(at[:, 0])], None
    if at is None:
        found = np.reshape(_NUMPYS[name](values.T), (n, n))
        return x._like(columns, columns, found)
    pairs = {
        (i, j): _of_two(name, values[:, i], values[:, j]) for i in range(n) for j in range(i + 1)
    }
    rows = [np.stack([pairs[max(i, j), min(i, j)] for j in range(n)]) for i in range(n)]
    return x._like(columns, columns, np.stack(rows))


_NUMPYS: dict[str, Any] = {"cov": np.cov, "corr": np.corrcoef}


def _of_two(name: str, x: Any, y: Any) -> Any:
    """The covariance or correlation of the rows where neither is NaN."""
    found = [at for at in (present(x), present(y)) if at is not None]
    if found:
        at = np.flatnonzero(np.logical_and.reduce(found))
        x, y = x[at], y[at]
    if len(x) == 0:
        return np.float64(np.nan)
    return _NUMPYS[name](x, y)[0, 1]


@unobserved
def interpolate(x: Any, method: str = "linear") -> Any:
    """Linear interpolation between the numbers that aren't NaN; constant after the last one."""
    values = x.to_numpy()
    if method != "linear" or values.dtype.kind != "f":
        raise refused(f"{x._kind}.interpolate by {method}, or of {values.dtype}")
    at = present(values)
    if at is None:
        return x.copy()

    def filled(values: Any, at: np.ndarray) -> Any:
        if not at.any():
            return values
        n, there = len(at), np.flatnonzero(at)
        k = np.searchsorted(there, np.arange(n), side="right") - 1
        low, high = there[np.maximum(k, 0)], there[np.minimum(k + 1, len(there) - 1)]
        part = ((np.arange(n) - low) / np.maximum(high - low, 1)).astype(values.dtype)
        between = values[low] + part * (values[high] - values[low])
        return np.where(at, values, np.where(k >= 0, between, np.nan))

    if values.ndim == 1:
        return like(x, filled(values, at))
    columns = [filled(values[:, k], at[:, k]) for k in range(values.shape[1])]
    return like(x, np.stack(columns, axis=1))


def place_of(name: str) -> Any:
    """The DataFrame method of this name, `idxmax` or `idxmin`. The positions of the extreme numbers
    are guarded, and pandas returns their labels."""

    @unobserved
    def method(x: Any, axis: Any = 0, skipna: bool = True) -> Any:
        values: Any = x.to_numpy()
        if present(values) is not None:
            values = np.where(np.isnan(values), -np.inf if name == "idxmax" else np.inf, values)
        f: Any = np.argmax if name == "idxmax" else np.argmin
        at = f(values, axis=1 if axis in (1, "columns") else 0)
        if isinstance(at, Tracer):
            at._guarded_array()
        return getattr(plain_of(x), name)(axis=axis, skipna=skipna)

    method.__name__ = name
    return method
