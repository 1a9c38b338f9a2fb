"""Linear filters: recurrences with constant coefficients, computed by SciPy between kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.values import OWN
from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import Slice, parametric, total
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.views import BroadcastTo, ExpandDims, GetItem


@parametric
class LinearFilter(Library):
    """The rows y with a_0 y_t + a_1 y_(t-1) + ... = b_0 x_t + b_1 x_(t-1) + ..., where elements
    before the first one are 0. The operands are b, a and x.

    With B(z) and A(z), polynomials in the delay z, y = B(z) / A(z) x. It is linear in x and b. Its
    transpose in x is the same filter, run backwards. The derivative along b_k is 1 / A(z) x,
    delayed by k, and along a_k it is -1 / A(z) y, delayed by k.
    """

    name = "linear_filter"
    cores = (1, 1, 1)
    memory = OWN

    def aval(self, *xs: Aval) -> Aval:
        b, a, x = xs
        if b.ndim != 1 or a.ndim != 1 or not (b.size and a.size and x.ndim):
            raise ValueError(f"{self.name}: {b} and {a} aren't coefficients for the rows of {x}")
        return x

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        return None if mapped[0] or mapped[1] else self(*xs)

    def evaluate(self, *xs: Any) -> Any:
        import scipy.signal

        b, a, x = xs
        if not x.size:
            return np.array(x)
        return np.asarray(scipy.signal.lfilter(b, a, x)).astype(x.dtype, copy=False)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = scipy.signal.lfilter({xs[0]}, {xs[1]}, {xs[2]})"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        b, a, x = xs
        ct_x = _reversed(self(b, a, _reversed(ct)))
        ct_b = _lagged(ct, self(_one(a), a, x), b.shape[0])
        ct_a = _lagged(ct, self(_one(a), a, out), a.shape[0])
        return ct_b, -ct_a, ct_x

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        b, a, x = xs
        tb, ta, tx = ts
        parts = (
            None if tx is None else self(b, a, tx),
            None if tb is None else self(tb, a, x),
            None if ta is None else -self(ta, a, out),
        )
        return total(parts)


def _one(x: Any) -> Any:
    return BroadcastTo((1,))(x.constant(1))


def _along(x: Any, start: int, count: int, step: int = 1) -> Any:
    """Every `step`-th element of the last axis from `start` on, `count` of them."""
    rest = [Slice(0, n, 1) for n in x.shape[:-1]]
    return GetItem((*rest, Slice(start, count, step)))(x)


def _reversed(x: Any) -> Any:
    n = x.shape[-1]
    return _along(x, n - 1, n, -1) if n else x


def _lagged(ct: Any, u: Any, lags: int) -> Any:
    """For each lag k, the sum of ct_t u_(t - k) over all rows."""
    n, every = ct.shape[-1], tuple(range(ct.ndim))
    sums = [Sum(every)(_along(ct, k, n - k) * _along(u, 0, n - k)) for k in range(min(lags, n))]
    parts = [ExpandDims((0,))(s) for s in sums]
    if lags > n:
        parts.append(BroadcastTo((lags - n,))(ct.constant(0)))
    return Concatenate(0)(*parts) if len(parts) > 1 else parts[0]
