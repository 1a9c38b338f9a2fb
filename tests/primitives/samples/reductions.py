"""Of sums, extrema, running sums, filters and correlations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tests.primitives.samples.drawn import A, B, Reference, Sample, each, normal

from tapegrad.primitives.base import Primitive
from tapegrad.primitives.correlation import Correlate
from tapegrad.primitives.reductions import (
    CumLinear,
    CumProd,
    CumSum,
    ExactSum,
    Prod,
    Sum,
)
from tapegrad.primitives.softmax import LogSumExp


def _loop_sum(x: Any, axes: Sequence[int], start: float, step: Callable[..., Any]) -> Any:
    """A fold written as a loop over elements."""
    kept = [k for k in range(x.ndim) if k not in axes]
    out = np.full([x.shape[k] for k in kept], start, x.dtype)
    for at in np.ndindex(x.shape):
        place = tuple(at[k] for k in kept)
        out[place] = step(out[place], x[at])
    return out


def _folds(make: Callable[..., Primitive], start: float, step: Any) -> Iterator[Sample]:
    for x, axes in (
        (B, (0,)),
        (B, (2,)),
        (B, (0, 2)),
        (B, (0, 1, 2)),
        (A, ()),
        (normal(3, 1), (1,)),
        (normal(5), (0,)),
        (normal(7), (0,)),
    ):
        yield Sample(
            make(axes),
            (x,),
            lambda x, axes=axes: _loop_sum(x, axes, start, step),
            label=f"{x.shape}{axes}",
        )


def of_sum() -> Iterator[Sample]:
    yield from _folds(Sum, 0.0, lambda a, x: a + x)
    reference = each(lambda x: x)
    yield Sample(Sum((0,)), (normal(0, 3),), lambda x: np.zeros(3), label="empty")
    yield Sample(Sum((1,)), (np.arange(6).reshape(2, 3),), lambda x: np.array([3, 12]))
    yield Sample(Sum(()), (normal(3),), reference, label="no axes")


def exact_sum() -> Iterator[Sample]:
    def reference(x: Any) -> Any:
        return np.array(math.fsum(x) if x.ndim == 1 else [math.fsum(row) for row in x])

    for shape in ((4,), (2, 3), (1,), (2, 0)):
        yield Sample(ExactSum(), (normal(*shape),), reference)
    yield Sample(ExactSum(), (np.array([1e100, 1.0, -1e100]),), reference, smooth=False)
    infinite = np.array([[np.inf, 1.0], [np.nan, 1.0]])
    yield Sample(ExactSum(), (infinite,), reference, smooth=False, label="infinite")


def of_prod() -> Iterator[Sample]:
    yield from _folds(Prod, 1.0, lambda a, x: a * x)
    yield Sample(Prod((0,)), (normal(0, 3),), lambda x: np.ones(3), label="empty")
    zeros = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [4.0, 7.0, 1.0]])
    for axes in ((0,), (1,), (0, 1)):
        yield Sample(
            Prod(axes),
            (zeros,),
            lambda x, axes=axes: _loop_sum(x, axes, 1.0, lambda a, b: a * b),
            label=f"zeros{axes}",
        )


def extremum(make: Callable[..., Primitive], pick: Any, start: float) -> Iterator[Sample]:
    yield from _folds(make, start, pick)
    ties = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    plain = lambda x: pick_over_rows(x, pick)  # noqa: E731
    yield Sample(make((1,)), (ties,), plain, smooth=False, label="ties")
    edge = np.array([[-np.inf, -np.inf], [np.inf, 1.0], [-np.inf, 2.0]])
    yield Sample(make((1,)), (edge,), plain, smooth=False, label="infinities")


def pick_over_rows(x: Any, pick: Any) -> Any:
    out = x[:, 0]
    for k in range(1, x.shape[1]):
        out = np.array([pick(a, b) for a, b in zip(out, x[:, k], strict=True)])
    return out


def log_sum_exp() -> Iterator[Sample]:
    def plainly(axes: tuple[int, ...]) -> Reference:
        return lambda x: np.log(np.sum(np.exp(x), axes))

    for axes in ((0,), (1,), (0, 1), ()):
        yield Sample(LogSumExp(axes), (A,), plainly(axes), label=str(axes))
    yield Sample(LogSumExp((1,)), (normal(2, 1),), plainly((1,)), label="one")
    yield Sample(LogSumExp((0,)), (np.zeros((0, 3)),), plainly((0,)), False, label="empty")
    large = np.array([[1e3, 1e3 - 1], [-1e3, -1e3], [800.0, -800.0]])
    yield Sample(LogSumExp((1,)), (large,), lambda x: np.logaddexp.reduce(x, axis=1), label="large")
    edges = np.array([[-np.inf, -np.inf], [np.inf, 0.0], [np.inf, -np.inf], [np.nan, 1.0]])
    yield Sample(
        LogSumExp((1,)), (edges,), lambda x: np.logaddexp.reduce(x, axis=1), False, label="edges"
    )


def shares(make: Any, plain: Callable[..., Any]) -> Iterator[Sample]:
    """Softmax and its logarithm; where elements tie, and where all but one are next to nothing."""
    for axes in ((0,), (1,), (0, 1), ()):
        yield Sample(make(axes), (A,), lambda x, axes=axes: plain(x, axes), label=str(axes))
    few = np.array([[1.0, 1.0, 0.3], [0.0, 3.0, -2.0], [2.0, 2.0, 2.0]])
    yield Sample(make((1,)), (few,), lambda x: plain(x, (1,)), label="ties")
    large = np.array([[1e3, 1e3 - 1], [-1e3, -1e3], [800.0, -800.0]])
    yield Sample(make((1,)), (large,), lambda x: plain(x, (1,)), False, label="large")
    yield Sample(make((1,)), (np.zeros((2, 0)),), lambda x: x, False, label="empty")


def of_flags(make: Callable[..., Primitive], fold: Any) -> Iterator[Sample]:
    flags = np.array([[True, False], [True, True], [False, False]])
    yield Sample(make((1,)), (flags,), lambda x: np.array([fold(row) for row in x]))
    yield Sample(make((0, 1)), (flags,), lambda x: np.bool_(fold(x.ravel())))
    yield Sample(make((0,)), (flags[:0],), lambda x: np.array([fold([])] * 2))


def arg(make: Callable[..., Primitive], sign: int) -> Iterator[Sample]:
    def reference(x: Any, axis: int) -> Any:
        rows = np.moveaxis(x, axis, -1)
        found = [
            max(range(rows.shape[-1]), key=lambda k: (sign * row[k], -k))
            for row in rows.reshape(-1, rows.shape[-1])
        ]
        return np.array(found).reshape(rows.shape[:-1])

    for x, axis in ((B, 0), (B, 2), (np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]), 1)):
        yield Sample(make(axis), (x,), lambda x, axis=axis: reference(x, axis))


def running(make: Callable[..., Primitive], step: Any) -> Iterator[Sample]:
    def reference(x: Any, axis: int, reverse: bool) -> Any:
        rows = np.moveaxis(np.array(x), axis, 0)
        rows = rows[::-1] if reverse else rows
        for k in range(1, len(rows)):
            rows[k] = step(rows[k - 1], rows[k])
        return np.moveaxis(rows[::-1] if reverse else rows, 0, axis)

    backward = [False, True] if make is CumSum else [False]
    for x, axis in ((B, 0), (B, 2), (normal(7), 0), (normal(3, 0), 1), (normal(3, 1), 1)):
        for r in backward:
            primitive = CumSum(axis, r) if make is CumSum else CumProd(axis)
            yield Sample(
                primitive,
                (x,),
                lambda x, axis=axis, r=r: reference(x, axis, r),
                label=f"{x.shape}{axis}{'-reverse' * r}",
            )
    if make is CumProd:
        zeros = np.array([2.0, 0.0, 3.0, 0.0, 5.0])
        yield Sample(CumProd(0), (zeros,), lambda x: reference(x, 0, False), label="zeros")


def recurrences() -> Iterator[Sample]:
    def reference(factors: Any, x: Any, axis: int, reverse: bool) -> Any:
        factors, rows = np.moveaxis(factors, axis, 0), np.moveaxis(np.array(x), axis, 0)
        if reverse:
            factors, rows = factors[::-1], rows[::-1]
        for k in range(1, len(rows)):
            rows[k] = rows[k] + factors[k - 1] * rows[k - 1]
        return np.moveaxis(rows[::-1] if reverse else rows, 0, axis)

    for shape, axis in (
        ((7,), 0),
        ((2, 3, 4), 1),
        ((3, 4), 1),
        ((1,), 0),
        ((3, 0), 1),
        ((2, 2), 0),
    ):
        between = tuple(max(0, n - 1) if a == axis else n for a, n in enumerate(shape))
        for reverse in (False, True):
            yield Sample(
                CumLinear(axis, reverse),
                (normal(*between, seed=1), normal(*shape)),
                lambda f, x, axis=axis, reverse=reverse: reference(f, x, axis, reverse),
                label=f"{shape}{axis}{'-reverse' * reverse}",
            )
    # What comes first is multiplied by nothing, and a factor of 0 forgets.
    factors = np.array([0.0, 2.0, 0.0])
    yield Sample(CumLinear(0), (factors, A[0]), lambda f, x: reference(f, x, 0, False), label="0")


def correlations() -> Iterator[Sample]:
    def reference(x: Any, v: Any, before: int, count: int) -> Any:
        found = np.zeros(count, x.dtype)
        for k in range(count):
            for j in range(len(v)):
                if 0 <= k + j - before < len(x):
                    found[k] += v[j] * x[k + j - before]
        return found

    # Full, same and valid ones; of the longer one the other way round; with few or no terms.
    for n, m, before, count in (
        (7, 3, 2, 9),
        (7, 3, 1, 7),
        (7, 3, 0, 5),
        (3, 7, 6, 9),
        (3, 7, 4, 5),
        (5, 9, 4, 3),
        (1, 1, 0, 1),
        (4, 3, 6, 12),
        (40, 19, 11, 41),
    ):
        yield Sample(
            Correlate(before, count),
            (normal(n), normal(m, seed=1)),
            lambda x, v, b=before, c=count: reference(x, v, b, c),
            label=f"{n},{m},{before},{count}",
        )
