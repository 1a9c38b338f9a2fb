"""Reductions, running sums and products: all forms of axis, keepdims, dtype, out, where, ddof."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.check import check, check_value, normal, positive, source_line

from tapegrad import grad, jit

X = normal(2, 3, 4)
MASK = normal(2, 3, 4, seed=3) > -0.5
W = positive(2, 3, 4, seed=4)

CASES = [
    lambda x: np.nanmean(np.where(x > 2, np.nan, x), axis=(0, 1), where=MASK),
    lambda x: np.nanvar(x, axis=(0, 1), where=MASK, ddof=1),
    lambda x: np.nanmax(x, axis=1, initial=0.5, where=MASK),
    lambda x: np.logaddexp.reduce(x, axis=1, initial=0.5, where=MASK),
    lambda x: np.hypot.reduce(x, axis=-1, initial=0.5, where=MASK),
    lambda x: np.fmax.reduce(x, axis=0),
    lambda x: np.quantile(x, 0.3, axis=1, method="hazen"),
    lambda x: np.quantile(x, 0.3, method="nearest"),
    lambda x: np.percentile(W[0, 0], 50 + 20 * x[0, 0, 0]),
    lambda x: np.cov(x[0], x[1], aweights=W[0, 0], fweights=[1, 2, 3, 1]),
    lambda x: np.cov(W[0], aweights=np.exp(x[0, 0]), ddof=0),
    lambda x: np.corrcoef(x[0]),
    lambda x: np.unwrap(5 * x),
    lambda x: np.correlate(x[0, 0, :2], x[0].ravel(), "same"),
    lambda x: x.item(3) * x + x.item(0, 1, 2) * sum(x.ravel().tolist()),
    lambda x: np.sum(x),
    lambda x: np.sum(x, axis=0),
    lambda x: np.sum(x, axis=-1),
    lambda x: np.sum(x, axis=(0, 2)),
    lambda x: np.sum(x, axis=(2, 0)),
    lambda x: np.sum(x, axis=(-1, 0), keepdims=True),
    lambda x: np.sum(x, axis=()),
    lambda x: np.sum(x, 1, None, None, True),
    lambda x: np.sum(x, keepdims=True),
    lambda x: np.sum(x, axis=1, keepdims=False),
    lambda x: np.sum(x, dtype=np.float32),
    lambda x: np.sum(x, axis=0, dtype=np.float64),
    lambda x: np.sum(x, initial=5.0),
    lambda x: np.sum(x, axis=1, initial=5),
    lambda x: np.sum(x, where=x > 0),
    lambda x: np.sum(x, axis=1, where=MASK, keepdims=True),
    lambda x: np.sum(x, axis=1, where=MASK[0, 0]),
    lambda x: np.sum(x, axis=0, out=np.zeros_like(x[0])),
    lambda x: np.sum(x > 0),
    lambda x: np.sum(x > 0, axis=1),
    lambda x: np.sum(x[0, 0, 0]),
    lambda x: np.sum(x[0, 0, 0], axis=0),
    lambda x: np.sum(x[0, 0, 0], axis=-1, keepdims=True),
    lambda x: np.sum(x[:, :0], axis=1),
    lambda x: np.sum(x[:, :0]),
    lambda x: np.mean(x),
    lambda x: np.mean(x, axis=1),
    lambda x: np.mean(x, axis=(0, 2), keepdims=True),
    lambda x: np.mean(x, dtype=np.float32),
    lambda x: np.mean(x, axis=1, where=MASK),
    lambda x: np.mean(x, axis=1, where=x > -1, keepdims=True),
    lambda x: np.mean(x > 0, axis=0),
    lambda x: np.mean(x, axis=0, out=np.zeros_like(x[0])),
    lambda x: np.mean(x[0, 0, 0]),
    lambda x: np.prod(x),
    lambda x: np.prod(x, axis=1),
    lambda x: np.prod(x, axis=(0, -1)),
    lambda x: np.prod(x, axis=(0, 2), keepdims=True),
    lambda x: np.prod(x, axis=()),
    lambda x: np.prod(x, where=MASK),
    lambda x: np.prod(x, axis=0, initial=2.0),
    lambda x: np.prod(x[:, :0], axis=1),
    lambda x: np.prod(x[:, :1], axis=1),
    lambda x: np.prod(x[..., :3], axis=2, dtype=np.float64),
    lambda x: np.max(x),
    lambda x: np.max(x, axis=1),
    lambda x: np.max(x, axis=(0, -1)),
    lambda x: np.max(x, axis=(0, 2), keepdims=True),
    lambda x: np.max(x, axis=()),
    lambda x: np.max(x, initial=0.5),
    lambda x: np.max(x, axis=1, initial=-9.0, where=MASK),
    lambda x: np.max(x[:, :0], axis=1, initial=-1.0),
    lambda x: np.max(x, axis=0, out=np.zeros_like(x[0])),
    lambda x: np.max(x[0, 0, 0]),
    lambda x: np.amax(x, axis=2),
    lambda x: np.amin(x, axis=2),
    lambda x: np.min(x),
    lambda x: np.min(x, axis=-2, keepdims=True),
    lambda x: np.min(x, axis=1, initial=9.0, where=x > 0),
    lambda x: np.max(x > 0, axis=0),
    lambda x: np.min(x > 0, axis=0),
    lambda x: np.var(x),
    lambda x: np.var(x, axis=1),
    lambda x: np.var(x, axis=(0, 2), ddof=1),
    lambda x: np.var(x, axis=1, ddof=0.5, keepdims=True),
    lambda x: np.var(x, axis=1, correction=1),
    lambda x: np.var(x, axis=1, mean=np.mean(x, axis=1, keepdims=True)),
    lambda x: np.var(x, axis=1, where=MASK),
    lambda x: np.var(x, axis=1, where=x > -1, ddof=1),
    lambda x: np.var(x, dtype=np.float32),
    lambda x: np.var(x > 0),
    lambda x: np.var(x, axis=0, out=np.zeros_like(x[0])),
    lambda x: np.std(x),
    lambda x: np.std(x, axis=-1),
    lambda x: np.std(x, axis=(1, 2), ddof=1, keepdims=True),
    lambda x: np.std(x, 0, None, None, 1),
    lambda x: np.std(x, axis=1, where=MASK),
    lambda x: np.average(x),
    lambda x: np.average(x, axis=1),
    lambda x: np.average(x, weights=W),
    lambda x: np.average(x, axis=1, weights=W, keepdims=True),
    lambda x: np.average(x, axis=2, weights=np.arange(1.0, 5.0)),
    lambda x: np.average(x, axis=2, weights=x[0, 0] ** 2),
    lambda x: np.average(x, axis=1, weights=np.exp(x), returned=True),
    lambda x: np.average(np.ones((2, 3, 4)), axis=1, weights=np.exp(x)),
    lambda x: np.ptp(x),
    lambda x: np.ptp(x, axis=1),
    lambda x: np.ptp(x, axis=1, keepdims=True),
    lambda x: np.any(x > 1),
    lambda x: np.any(x > 1, axis=0),
    lambda x: np.any(x, axis=(0, 1), keepdims=True),
    lambda x: np.any(x > 1, where=MASK),
    lambda x: np.all(x > -1),
    lambda x: np.all(x > -1, axis=-1),
    lambda x: np.all(x > -1, axis=1, where=MASK),
    lambda x: np.argmax(x),
    lambda x: np.argmax(x, axis=0),
    lambda x: np.argmax(x, axis=-1, keepdims=True),
    lambda x: np.argmax(x, keepdims=True),
    lambda x: np.argmin(x, axis=1),
    lambda x: np.argmax(x > 0, axis=2),
    lambda x: np.count_nonzero(x > 0),
    lambda x: np.count_nonzero(x > 0, axis=1),
    lambda x: np.count_nonzero(x, axis=(0, 1), keepdims=True),
    lambda x: np.cumsum(x),
    lambda x: np.cumsum(x, axis=1),
    lambda x: np.cumsum(x, axis=-1, dtype=np.float32),
    lambda x: np.cumsum(x > 0, axis=0),
    lambda x: np.cumsum(x, axis=1, out=np.zeros_like(x)),
    lambda x: np.cumsum(x[0, 0, 0]),
    lambda x: np.cumsum(x[:, :0], axis=1),
    lambda x: np.cumprod(x),
    lambda x: np.cumprod(x, axis=0),
    lambda x: np.cumprod(x, -1),
    lambda x: np.cumprod(x[:, :0], axis=1),
    lambda x: np.cumprod(x > 0, axis=2),
    lambda x: np.diff(x),
    lambda x: np.diff(x, axis=0),
    lambda x: np.diff(x, n=2, axis=1),
    lambda x: np.diff(x, n=0),
    lambda x: np.diff(x, n=9),
    lambda x: np.diff(x, prepend=0.0),
    lambda x: np.diff(x, axis=1, prepend=x[:, :1], append=1),
    lambda x: np.diff(x > 0, axis=2),
    lambda x: np.ediff1d(x),
    lambda x: np.unwrap(5 * x),
    lambda x: np.unwrap(2 * x, discont=2.0, axis=0, period=3.0),
    lambda x: np.ediff1d(x, to_end=[1.0, 2.0], to_begin=0),
    lambda x: np.gradient(x[0, 0]),
    lambda x: np.gradient(x, 0.5, axis=1),
    lambda x: np.gradient(x[0]),
    lambda x: np.gradient(x, axis=(0, 2), edge_order=1),
    lambda x: np.gradient(x, 2.0, edge_order=2, axis=-1),
    lambda x: np.gradient(x[0, 0], np.array([0.0, 1.0, 1.5, 3.0])),
    lambda x: np.trapezoid(x),
    lambda x: np.trapezoid(x, dx=0.5, axis=0),
    lambda x: np.trapezoid(x, np.array([0.0, 1.0, 3.0]), axis=1),
    lambda x: np.trapezoid(x, np.cumsum(x**2, axis=2)),
    lambda x: np.trapezoid(np.ones(4), np.cumsum(x[0, 0] ** 2)),
    lambda x: np.nansum(x),
    lambda x: np.nansum(x, axis=1, keepdims=True),
    lambda x: np.nanmean(x, axis=0),
    lambda x: np.nanmax(x, axis=1),
    lambda x: np.nanmin(x),
    lambda x: np.nanprod(x, axis=2),
    lambda x: np.nanvar(x, axis=0, ddof=1),
    lambda x: np.nanstd(x),
    lambda x: np.nancumsum(x, axis=1),
    lambda x: np.cov(x[0]),
    lambda x: np.cov(x[0, 0]),
    lambda x: np.cov(x[0], rowvar=False, ddof=0),
    lambda x: np.cov(x[0], x[1], bias=True),
    lambda x: np.corrcoef(x[0]),
    lambda x: np.corrcoef(x[0, 0], x[1, 1]),
    lambda x: np.linalg.norm(x),
    lambda x: np.linalg.norm(x[0, 0]),
    lambda x: np.linalg.norm(x[0]),
    lambda x: np.linalg.norm(x, axis=1),
    lambda x: np.linalg.norm(x, axis=-1, keepdims=True),
    lambda x: np.linalg.norm(x, axis=(0, 2)),
    lambda x: np.linalg.norm(x, "fro", axis=(1, 2), keepdims=True),
    lambda x: np.linalg.norm(x[0], "fro"),
    lambda x: np.linalg.norm(x[0], 1),
    lambda x: np.linalg.norm(x[0], -1),
    lambda x: np.linalg.norm(x[0], np.inf),
    lambda x: np.linalg.norm(x, -np.inf, axis=(2, 0)),
    lambda x: np.linalg.norm(x, 1, axis=1),
    lambda x: np.linalg.norm(x[0, 0], 1),
    lambda x: np.linalg.norm(x[0, 0], 2),
    lambda x: np.linalg.norm(x, 3, axis=2, keepdims=True),
    lambda x: np.linalg.norm(x, 0.5, axis=2),
    lambda x: np.linalg.norm(x, np.inf, axis=0),
    lambda x: np.linalg.norm(x, -np.inf, axis=0),
    lambda x: np.linalg.norm(x, 0, axis=2),
    lambda x: np.linalg.norm(x, keepdims=True),
    lambda x: np.linalg.vector_norm(x, axis=(0, 1)),
    lambda x: np.linalg.vector_norm(x, ord=3),
    lambda x: np.linalg.matrix_norm(x),
]

METHODS = [
    lambda x: x.sum(),
    lambda x: x.sum(0),
    lambda x: x.sum(axis=(1, 2), keepdims=True),
    lambda x: x.mean(axis=-1),
    lambda x: x.mean(-1, keepdims=True),
    lambda x: x.prod(axis=1),
    lambda x: x.max(),
    lambda x: x.max(axis=0),
    lambda x: x.min(axis=(0, 2)),
    lambda x: x.var(axis=0, ddof=1),
    lambda x: x.std(axis=(0, 2), ddof=1, keepdims=True),
    lambda x: x.argmax(),
    lambda x: x.argmin(axis=1, keepdims=True),
    lambda x: (x > 0).any(axis=1),
    lambda x: (x > 0).all(),
    lambda x: x.cumsum(),
    lambda x: x.cumsum(axis=1),
    lambda x: x.cumprod(-1),
    lambda x: x.sum(axis=0, out=np.zeros_like(x[0])),
    lambda x: x.sum(where=MASK, initial=1.0),
    lambda x: (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True),
    lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x).sum(-1, keepdims=True),
]

FLAT = [f for f in CASES + METHODS if "x[" not in (source_line(f) or "")]


@pytest.mark.parametrize("f", CASES, ids=source_line)
def test_function(f: Any) -> None:
    check(f, X)


@pytest.mark.parametrize("f", METHODS, ids=source_line)
def test_method(f: Any) -> None:
    check(f, X)


@pytest.mark.every(8)
@pytest.mark.parametrize("f", CASES + METHODS, ids=source_line)
def test_float32(f: Any) -> None:
    check_value(f, X.astype(np.float32))


@pytest.mark.every(8)
@pytest.mark.parametrize("f", CASES + METHODS, ids=source_line)
def test_integers(f: Any) -> None:
    for dtype in (np.int64, np.int16, np.int32):
        x = np.arange(1, 25).reshape(2, 3, 4).astype(dtype) % 5
        try:
            with np.errstate(all="ignore"):
                f(x)
        except (TypeError, ValueError):
            continue
        if (
            "out=" in (source_line(f) or "")
            and f(x).dtype.kind == "i"
            and "sum" not in source_line(f)
        ):
            continue
        with np.errstate(all="ignore"):
            check_value(f, x)


def test_layouts() -> None:
    for x in (X.transpose(2, 0, 1), X[:, ::-1], X[::1, ::2, 1::2], np.asfortranarray(X)):
        check(lambda t: np.sum(np.sin(t), axis=1), x)
        check(lambda t: np.max(t, axis=0) * np.var(t, axis=0), x)
        check(lambda t: np.prod(t, axis=2).cumsum(axis=1), x)


def test_ties_share_their_cotangent() -> None:
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    gradient = grad(lambda t: np.sum(np.max(t, axis=1)), compile="never")(x)
    np.testing.assert_allclose(gradient, [[0, 0.5, 0.5], [1 / 3] * 3])


def test_nan_reductions() -> None:
    x = np.where(MASK, X, np.nan)
    for f in (np.nansum, np.nanmean, np.nanmax, np.nanmin, np.nanprod, np.nanvar, np.nanstd):
        check_value(lambda t, f=f: f(t, axis=1), x)
        gradient = grad(lambda t, f=f: np.sum(f(t, axis=1)), compile="never")(x)
        assert np.all(np.isfinite(gradient))
        assert np.all(gradient[~MASK] == 0)


@pytest.mark.parametrize("ufunc", [np.logaddexp, np.add])
def test_nothing_is_reduced_without_an_initial_value(ufunc: np.ufunc) -> None:
    def f(x: Any) -> Any:
        return ufunc.reduce(x, initial=None)

    for function in (f, jit(f)):
        with pytest.raises(ValueError, match=f"{ufunc.__name__} which has no identity"):
            function(np.zeros(0))
        np.testing.assert_allclose(function(np.ones(2)), ufunc(1.0, 1.0))
