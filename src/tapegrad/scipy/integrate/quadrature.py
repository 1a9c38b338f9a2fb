"""Integrals by scipy.integrate: quad, quad_vec, fixed_quad.

The value is SciPy's own. Its derivatives are those of a sum of weights times values of the
integrand at the nodes of a Gauss-Kronrod rule, so they exist for all orders. The rule is applied
in SciPy's last intervals if the derivatives along the values that the integrand reads can be
integrated in these; else other intervals are found for the derivatives. The derivative along a
limit is the integrand there.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.integrate as theirs
from scipy import LowLevelCallable

from tapegrad.extending import (
    Untraced,
    as_called,
    at_line,
    is_traced,
    observed,
    refusal,
    stands_for,
)
from tapegrad.scipy.callbacks import Callback, as_floats, values_of
from tapegrad.scipy.integrate.integrals import (
    END_DISTANCE,
    NOTHING,
    Found,
    Integral,
    Range,
    in_intervals,
    rule,
    shaped,
)
from tapegrad.scipy.integrate.jumps import has_jump, jump_between
from tapegrad.scipy.optimize.roots import call_untraced, ending, example, watched
from tapegrad.scipy.results import Untold
from tapegrad.scipy.solver_calls import SolverCall, stopped

HOME = "scipy.integrate"
WHY = (
    "no intervals were found in which the derivatives of the integrand can be integrated. "
    "Substitute, so that the integrand is smooth"
)


class Mesh:
    """The nodes and weights by which an integral and its derivatives are computed.

    Their number is a power of 2, and the same at later calls; unused nodes have weight 0.
    """

    def __init__(self, epsabs: float, epsrel: float, callback: Callback) -> None:
        kinds = [np.asarray(x).dtype for x in values_of(callback.p)]
        rounded = max([np.finfo(k).eps for k in kinds if k.kind in "fc"], default=0.0)
        self.epsrel, self.rounding = max(epsrel, 100 * rounded), max(1e-9, 100 * rounded)
        self.epsabs, self.room = max(epsabs, 1e-14), 0

    def of(self, where: Range, ends: Any, name: str, f: Any, value: Any) -> Any:
        """A mesh in the intervals `ends` of t, or in others if the derivatives need them; with the
        intervals, and whether the rule is accurate enough in them."""
        done, tiny = True, _tiny(where, value)
        ends, does = self._cut(where, ends, name, f, value)
        if not does:
            _, _, info = theirs.quad_vec(
                where.integrand(_both(f, tiny)),
                0.0,
                1.0,
                epsabs=self.epsabs,
                epsrel=max(self.epsrel, 1e-12),
                norm="max",
                quadrature=name,
                full_output=True,
            )
            done = info.status in (0, 2)
            ends, _ = self._cut(where, np.sort(info.intervals, 1), name, f, value)
        t, w = map(np.ravel, in_intervals(name, ends))
        nodes, weights = where.placed(t, w)
        if any(where.kind):
            nodes, weights = _that_count(nodes, weights, f, name, np.size(value))
        most = max(len(nodes), len(ends), 2 * len(rule(name)[0]))
        self.room = room = max(self.room, 1 << (most - 1).bit_length())
        ends = _filled(np.sort(ends, 1), ends.max(), room)
        return _filled(nodes, nodes[0], room), _filled(weights, 0.0, room), ends, done

    def _error(self, total: Any) -> float:
        """The error that is allowed for integrals of this size."""
        return self.epsabs + self.epsrel * float(np.abs(total).max(initial=0.0))

    def _cut(self, where: Range, ends: Any, name: str, f: Any, value: Any) -> tuple[Any, bool]:
        """Intervals that also end where a slope jumps between an end and the nearest node, and
        whether the rule is accurate enough in them, compared with the rule in their halves. Such a
        jump shows in no sum, but at the end the polynomial through the nodes differs from the
        integrand."""
        _, weights = rule(name)
        tiny = _tiny(where, value)
        while True:
            size = ends[:, 1] - ends[:, 0]
            rows, halves, at_ends = _rows(where, ends, name, f, value, tiny)
            total, of_halves = [size @ (weights @ x) for x in (rows, halves)]
            most, apart = self._error(total), size[:, None] * _beside(name)
            rounding = self.rounding * np.abs(rows).max((0, 1))
            least = np.maximum(most / (END_DISTANCE + apart[:, :, None]), rounding)
            jumps = (np.abs(at_ends - _at_ends(name) @ rows) > least).any(2) & (
                apart > END_DISTANCE
            )
            cuts = []
            for k, last in np.argwhere(jumps) if jumps.any() else ():
                inside = np.array([END_DISTANCE, apart[k, last]]) * (-1 if last else 1)
                low, high = map(float, np.sort(ends[k, last] + inside))
                cut = jump_between(where.integrand(_both(f, tiny)), low, high, least[k, last], 1.0)
                cuts += [] if cut is None else [cut]
            if not cuts or len(ends) > MAX_INTERVALS:
                is_near = (np.abs(total - of_halves) <= most).all() or np.isnan(value).any()
                return ends, bool(is_near)
            ends = np.stack([*itertools.pairwise(np.unique([*np.ravel(ends), *cuts]))])


MAX_INTERVALS = 1000  # intervals


@functools.cache
def _at_ends(name: str) -> np.ndarray:
    """The matrix that extrapolates values at a rule's nodes to both ends of the interval from 0 to
    1: one row for each end."""
    nodes, _ = rule(name)
    apart = nodes[:, None] - nodes
    np.fill_diagonal(apart, 1.0)
    rows = []
    for end in (0.0, 1.0):
        to_end = np.tile(end - nodes, (len(nodes), 1))
        np.fill_diagonal(to_end, 1.0)
        rows.append(np.prod(to_end / apart, 1))
    return np.array(rows)


@functools.cache
def _beside(name: str) -> np.ndarray:
    """The distances of a rule's outermost nodes from both ends of the interval from 0 to 1."""
    nodes, _ = rule(name)
    return np.array([np.min(nodes), 1 - np.max(nodes)])


@functools.cache
def _places(name: str) -> np.ndarray:
    """The nodes of a rule on the interval from 0 to 1, and those on its halves."""
    nodes, _ = rule(name)
    return np.concatenate([nodes, 0.5 * nodes, 0.5 + 0.5 * nodes])


def _rows(where: Range, ends: Any, name: str, f: Any, value: Any, tiny: float) -> Any:
    """`_both` as a function of t: at the nodes of each interval; at those of its halves, averaged;
    and near its ends."""
    places, low, high = _places(name), ends[:, :1], ends[:, 1:]
    size, count = high - low, len(places) // 3
    near = np.minimum(END_DISTANCE, 1e-3 * size)
    t = np.concatenate([low + size * places, low + near, high - near], 1)
    x, factors = where.placed(t.ravel(), np.ones(t.size))
    table = _table(f, x, t.shape[1], np.size(value), tiny) * factors[:, None]
    sides = table.reshape(-1, *t.shape, table.shape[1])
    found = sides.sum(0) if len(sides) > 1 else sides[0]
    halves = 0.5 * (found[:, count : 2 * count] + found[:, 2 * count : -2])
    return found[:, :count], halves, found[:, -2:]


def _filled(x: Any, fill: Any, room: int) -> np.ndarray:
    """An array of `room` rows that begins with `x` and continues with `fill`."""
    found = np.full((room, *x.shape[1:]), fill)
    found[: len(x)] = x
    return found


def _tiny(where: Range, value: Any) -> float:
    """The size of an integrand below which slopes that overflow are replaced by their limit, 0. It
    applies to ranges with an infinite end; for others it is -1."""
    return float(np.max(np.abs(value), initial=0.0)) * NOTHING**3 if any(where.kind) else -1.0


def _both(f: Any, tiny: float) -> Callable[[float], np.ndarray]:
    """A function's value, and its derivatives along all values that it reads."""

    def g(t: float) -> np.ndarray:
        value, slopes = np.reshape(f(t), -1), f.slopes(t)
        if np.all(np.abs(value) <= tiny):
            slopes = np.where(np.isfinite(slopes), slopes, 0.0)
        return np.concatenate([value, slopes])

    return g


def _table(f: Any, nodes: Any, count: int, size: int, tiny: float) -> np.ndarray:
    """`_both` at the nodes, a multiple of `count`: a row for each, of `size` values and the
    derivatives."""
    found: np.ndarray = f.many(nodes, count)
    if tiny < 0:
        return found
    far = np.all(np.abs(found[:, :size]) <= tiny, 1)[:, None] & ~np.isfinite(found)
    far[:, :size] = False
    return np.where(far, 0.0, found)


def _that_count(nodes: Any, weights: Any, f: Any, name: str, size: int) -> tuple[Any, Any]:
    """The nodes without those at which neither the integrand nor its slopes matter: far out,
    derivatives of any order may overflow on their way to 0."""
    with np.errstate(all="ignore"):
        parts = np.abs(weights[:, None] * _table(f, nodes, len(rule(name)[0]), size, np.inf))
        counts = np.any(parts > NOTHING * np.max(parts, 0, initial=0.0), 1)
    return (nodes[counts], weights[counts]) if np.any(counts) else (nodes, weights)


def _result(solver: Any, callback: Callback, a: Any, b: Any) -> list[Any]:
    """The integral, and the estimate of its error, which is a constant. `solver(f, a, b)` returns
    both, a mesh, and its status."""
    a, b = [as_floats(x) if is_traced(x) else x for x in (a, b)]  # the integrand's type
    moving = [is_traced(x) and bool(np.isfinite(example(x))) for x in (a, b)]

    def solved(fs: Sequence[Callable[..., Any]], values: Any) -> Any:
        lower, upper = map(float, values)
        for moves, end in zip(moving, (lower, upper), strict=True):
            if moves and np.isfinite(end):
                fs[0](end)  # traces the path that f takes there
        value, error, (*mesh, done) = solver(fs[0], lower, upper)
        where = Range(lower, upper)
        if fs[0] is callback and callback.may_jump:
            has_jump(where.integrand(callback), mesh[-1])  # traces all paths that it takes there
        return value, *mesh, error, ending(done, where.kind)

    outside = SolverCall(solver.__name__, solved, [callback], [a, b])
    if outside.state % 2:
        value, *_, error = outside.record(why=WHY)
    else:
        tape = shaped(callback.tape, np.shape(outside.values[0]))
        name = f"{HOME}.{solver.__name__}"
        integral = Integral(tape, 0, name, at_line(), (moving[0], moving[1]))
        value, *_, error = outside.record(Found(integral), visible=len(outside.values))
    return [outside.own(value), outside.own(stopped(error), -2)]


@stands_for(HOME, callbacks=True, parameters="limit full_output", lists="args points")
def quad(
    func: Any,
    a: Any,
    b: Any,
    args: Any = (),
    full_output: Any = 0,
    epsabs: Any = 1.49e-8,
    epsrel: Any = 1.49e-8,
    limit: Any = 50,
    points: Any = None,
    weight: Any = None,
    wvar: Any = None,
) -> Any:
    how = {"epsabs": epsabs, "epsrel": epsrel, "limit": limit, "points": points}
    if isinstance(func, LowLevelCallable):
        if is_traced((a, b, args, points, wvar)):
            raise refusal(f"scipy.integrate.quad of a LowLevelCallable can't be traced{at_line()}")
        raise Untraced
    if weight is not None:
        watched([func], args, inside(*[float(example(x)) for x in (a, b)]), a, b, wvar)
        f, wave = as_called(func), _wave(weight, a, b)
        return quad(lambda x, *more: f(x, *more) * wave(wvar * x), a, b, args, full_output, **how)
    if is_traced(points):
        raise refusal(
            f"scipy.integrate.quad(..., points) can't be traced{at_line()}. Add "
            "integrals, from each of these points to the next one"
        )
    ends = [float(example(x)) for x in (a, b)]
    start = inside(*ends)
    (callback,) = watched([func], args, start, a, b, points)
    if callback.shape not in ((), (1,)):
        raise refusal(f"scipy.integrate.quad of a function of several numbers{at_line()}")
    mesh = Mesh(epsabs, epsrel, callback)

    def solver(f: Any, lower: float, upper: float) -> Any:
        value, error, info, *message = theirs.quad(f, lower, upper, full_output=1, **how)
        if message and full_output:
            raise refusal(f"scipy.integrate.quad returns a message where it fails: {message[0]}")
        if message:
            warnings.warn(message[0], theirs.IntegrationWarning, stacklevel=2)
        count, where = info["last"], Range(lower, upper)
        cut = where.within(np.stack([info["alist"][:count], info["blist"][:count]], 1))
        return value, error, mesh.of(where, cut, where.rule, f, value)

    solver.__name__ = "quad"
    found = tuple(_result(solver, callback, a, b))
    return (*found, Untold("scipy.integrate.quad")) if full_output else found


def _wave(weight: str, a: Any, b: Any) -> Any:
    """The function by which SciPy's `weight` multiplies an integrand, between finite limits."""
    if weight in ("cos", "sin") and np.isfinite(example(a)) and np.isfinite(example(b)):
        return np.cos if weight == "cos" else np.sin
    raise refusal(
        f"scipy.integrate.quad(..., weight={weight!r}) can't be traced{at_line()}, but by 'cos' "
        "and 'sin' between finite limits. Write the weight into the integrand"
    )


def inside(a: float, b: float) -> float:
    """A number between the limits."""
    if np.isfinite(a) and np.isfinite(b):
        return 0.5 * (a + b)
    if np.isfinite(a):
        return a + float(np.sign(b))
    return b - 1.0 if np.isfinite(b) else 0.0


@stands_for(HOME, callbacks=True, parameters="limit full_output", lists="args points")
def quad_vec(
    f: Any,
    a: Any,
    b: Any,
    epsabs: Any = 1e-200,
    epsrel: Any = 1e-8,
    norm: Any = "2",
    cache_size: Any = 100e6,
    limit: Any = 10000,
    points: Any = None,
    quadrature: Any = None,
    full_output: Any = False,
    *,
    args: Any = (),
) -> Any:
    how: dict[str, Any] = {"epsabs": epsabs, "epsrel": epsrel, "norm": norm, "limit": limit}
    how |= {"cache_size": cache_size, "points": points, "quadrature": quadrature}
    ends = [float(example(x)) for x in (a, b)]
    start = inside(*ends)
    (callback,) = watched([f], args, start, a, b, points)
    if full_output or quadrature == "trapezoid":
        raise refusal(
            f"scipy.integrate.quad_vec can't be traced{at_line()} with full_output, or by the "
            "trapezoidal rule"
        )
    mesh = Mesh(max(epsabs, 1e-10), epsrel, callback)

    def solver(f: Any, lower: float, upper: float) -> Any:
        value, error, info = theirs.quad_vec(f, lower, upper, full_output=True, **how)
        where = Range(lower, upper)
        ends = np.sort(info.intervals, 1)
        if all(where.kind):  # t from -1 to 1: both sides
            ends = np.unique(np.abs(ends), axis=0)
            ends = np.unique(ends).repeat(2)[1:-1].reshape(-1, 2)
        return value, error, mesh.of(where, where.within(ends), quadrature or where.rule, f, value)

    solver.__name__ = "quad_vec"
    return tuple(_result(solver, callback, a, b))


@stands_for(HOME, callbacks=True, lists="args")
def fixed_quad(func: Any, a: Any, b: Any, args: Any = (), n: Any = 5) -> Any:
    """Gauss' rule of order n, traced like any NumPy code."""
    from scipy.special import roots_legendre

    if is_traced((a, b)) and any(np.isinf(example(x)) for x in (a, b)):
        call_untraced(
            theirs.fixed_quad, func, *map(example, (a, b)), args, n
        )  # raises SciPy's own error
    x, w = roots_legendre(n)
    if not is_traced((a, b)) and np.isinf([a, b]).any():
        call_untraced(theirs.fixed_quad, func, a, b, args, n)
    y = (b - a) * (np.real(x) + 1) / 2.0 + a
    with observed():
        values = as_called(func)(y, *args)
    return (b - a) / 2.0 * np.sum(w * values, axis=-1), None
