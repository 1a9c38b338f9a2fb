"""Jumps of functions. Where the place of a jump moves with a traced value, the derivative of an
integral isn't the integral of derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.extending.tapes import Aval, ForeignCall
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.optimize.roots import ending
from tapegrad.scipy.solver_calls import SolverCall, recorded

SHARE = 1e-3  # relative to a slope's mean: smaller jumps are ignored
WHY = (
    "the right-hand side jumps, where the state or a traced value says, and its derivatives tell "
    "nothing of that. Let an event end the solution there, and start another one"
)


def has_jump(
    g: Callable[[float], Any], ends: Any, share: float = 1e-6, limit: float | None = None
) -> bool:
    """Whether a function jumps within or between intervals by more than `share` of its mean; with
    `limit`, only whether it jumps next to that place. See `jump_between`."""
    size = ends[:, 1] - ends[:, 0]
    middles = [np.abs(g(float(t))) for t in ends.mean(1)]
    span = np.sum(size)
    least = share * sum(w * y for w, y in zip(size, middles, strict=True)) / span
    near = 1e-9 * span  # g may be infinite at limits and ends of intervals
    places = np.unique(ends)
    inside = [(x + near, y - near) for x, y in itertools.pairwise(places)]
    looked_at = [*((x - near, x + near) for x in places[1:-1]), *inside]
    first, last = places[0] + near, places[-1] - near
    looked_at = [(a, b) for a, b in looked_at if first <= a < b <= last]
    if limit is not None:
        looked_at = [(max(limit - near, places[0]), min(limit + near, places[-1]))]
    return any(jump_between(g, a, b, least, span) is not None for a, b in looked_at)


def jump_between(
    g: Callable[[float], Any], a: float, b: float, least: Any, span: float
) -> float | None:
    """The place where a function jumps by more than `least` between a and b, or None. The search
    splits the interval again and again, and goes on in the part whose ends differ more. `span` is
    the scale of the numbers."""
    low, high = g(a), g(b)
    wide: Any = np.inf  # the difference over a hundred times the length
    while b - a > 1e-12 * span and np.any(np.abs(high - low) > least):
        m = a + 0.4 * (b - a)
        middle = g(m)
        left = np.max(np.abs(middle - low)) >= np.max(np.abs(high - middle))
        wide = np.abs(high - low) if b - a > 1e-10 * span else wide
        a, low, b, high = (a, low, m, middle) if left else (m, middle, b, high)
    step = np.abs(high - low)
    jumps = np.any((step > least) & (step > 0.1 * wide)) and np.all(np.isfinite(step))
    return 0.5 * (a + b) if jumps else None


def along(callback: Callback, times: Any, states: Any) -> bool:
    """Whether the right-hand side of an equation jumps along a solution, between consecutive
    states. The answer is guarded at later calls."""
    if not callback.may_jump:
        return False

    def solver(fs: Sequence[Callable[..., Any]], values: Any) -> Any:
        t, y = values
        moving = np.flatnonzero(np.diff(t))
        if not moving.size:
            return (ending(True),)

        def g(s: float) -> Any:
            k = min(int(s), len(t) - 2)
            return np.asarray(fs[0](float(t[k] + (s - k) * (t[k + 1] - t[k])), _mid(y, k, s - k)))

        ends = np.stack([moving, moving + 1.0], 1)
        return (ending(not has_jump(g, ends, SHARE)),)

    outside = SolverCall("jumps of solve_ivp", solver, [callback], [times, states])
    outside.record()
    return outside.state % 2 == 1


def _mid(y: Any, k: int, share: float) -> Any:
    return y[k] + share * (y[k + 1] - y[k])


def barred(x: Any) -> Any:
    """The same value, whose derivative is an error."""
    value = np.asarray(x._read()[1])
    primitive = ForeignCall("solve_ivp", _same, (Aval(value.shape, value.dtype),), 1, None, WHY)
    return recorded(primitive, [x], [value])[0]


def _same(x: Any) -> Any:
    return [x]
