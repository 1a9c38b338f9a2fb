"""Boundary value problems of scipy.integrate: solve_bvp.

Values and mesh are SciPy's own. On that mesh the values at the nodes and the unknown parameters
solve SciPy's collocation equations, a sparse system. They are differentiated implicitly by these
equations. SciPy calls the functions on whole meshes, which it refines: the functions are traced
for each size of a mesh.

Names: `x` a mesh of `m` nodes; `y` the `n` values at each node; `p` the unknown parameters; `f`
slopes; `h` the lengths between nodes; `z` the elements of y and p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.integrate as theirs
from scipy.integrate._bvp import BVPResult

from tapegrad.extending import Carrier, as_called, at_line, is_traced, refusal, stands_for
from tapegrad.extending.primitives import Unfinished
from tapegrad.scipy.callbacks import Callback, UntracedPath
from tapegrad.scipy.integrate.trajectories import HOME
from tapegrad.scipy.interpolate.piecewise import Piecewise, interval
from tapegrad.scipy.optimize.roots import WHY, ending, example, reaching
from tapegrad.scipy.solver_calls import SolverCall, stopped


class Boundary(BVPResult, Carrier):
    """The result of `solve_bvp`, with traced values."""


class _Sized:
    """A function that SciPy calls on meshes: one callback for each size of a mesh."""

    def __init__(self, f: Any, parts: int = 1) -> None:
        self.f, self.parts = f, parts
        self.callbacks: dict[int, Callback] = {}

    def at(self, x: Any, *rest: Any) -> Callback:
        size = len(x)
        if size not in self.callbacks:
            self.callbacks[size] = Callback(self.f, [x, *rest], self.parts)
        return self.callbacks[size]

    def __call__(self, *xs: Any) -> Any:
        return self.at(*xs)(*xs)

    def of(self, fs: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
        """The function, with `fs` in place of its callbacks."""
        known = dict(zip(self.callbacks, fs, strict=True))

        def called(x: Any, *rest: Any) -> Any:
            if len(x) not in known:
                raise UntracedPath
            return known[len(x)](x, *rest)

        return called


def _named(f: Any) -> Any:
    """The user's function, called as in a traced program and with its own name."""

    def called(*xs: Any) -> Any:
        return as_called(f)(*xs)

    called.__name__ = getattr(f, "__name__", type(f).__name__)
    return called


@stands_for(HOME, callbacks=True, parameters="max_nodes verbose")
def solve_bvp(
    fun: Any,
    bc: Any,
    x: Any,
    y: Any,
    p: Any = None,
    S: Any = None,
    fun_jac: Any = None,
    bc_jac: Any = None,
    tol: Any = 1e-3,
    max_nodes: Any = 1000,
    verbose: Any = 0,
    bc_tol: Any = None,
) -> Any:
    """y' = fun(x, y, p) + S y / (x - a), bc(y(a), y(b), p) = 0."""
    if is_traced(S):
        raise refusal(
            f"scipy.integrate.solve_bvp can't be traced{at_line()} with a traced S. Pass plain "
            "numbers, or have fun compute the singular term, from x > a"
        )
    how = {"tol": tol, "max_nodes": max_nodes, "bc_tol": bc_tol, "S": S}
    mesh, guess = np.asarray(example(x)), np.asarray(example(y))
    start = np.asarray(example(() if p is None else p))
    k = start.size
    rest = [start] if k else []
    slopes = _Sized(_named(fun))
    edges = Callback(_named(bc), [guess[:, 0], guess[:, -1], *rest])
    reaching([slopes.at(mesh, guess, *rest), edges], x, y, p)
    of_slopes = _Sized(None if fun_jac is None else _named(fun_jac), 2 if k else 1)
    of_edges = [] if bc_jac is None else [Callback(_named(bc_jac), edges.xs, 3 if k else 2)]

    def solve(fs: Sequence[Any], values: Any, verbose: Any) -> Any:
        fun, bc, fun_jac, *bc_jac = fs
        x, y, *p = [np.array(v) for v in values]
        jacobians = {"bc_jac": bc_jac[0] if bc_jac else None}
        if of_slopes.f is not None:
            jacobians["fun_jac"] = fun_jac
        return theirs.solve_bvp(fun, bc, x, y, *p, **jacobians, verbose=verbose, **how)

    # Now the sizes of all meshes are known, and all branches that the functions take.
    found = solve([slopes, edges, of_slopes, *of_edges], [mesh, guess, *rest], 0)
    n, m = found.y.shape

    def parted(z: Any) -> tuple[Any, Any]:
        return np.reshape(z[: n * m], (n, m)), z[n * m :]

    def f_of(x: Any, y: Any, p: Any, of_nodes: bool) -> Any:
        f = slopes.at(x, y, p).applied(x, y, *([p] if k else []))
        return f if S is None else _with_singular(np.asarray(S, float), x, y, f, of_nodes, x0)

    def equations(z: Any, nodes: Any) -> Any:
        """The residuals of the collocation equations: in the middle of each interval the slope of
        the cubic polynomial equals `fun`, and the boundary conditions hold."""
        (y, p), x = parted(z), _moved(nodes, x0)
        h = np.diff(x)
        f = f_of(x, y, p, True)
        middle = 0.5 * (y[:, 1:] + y[:, :-1]) - 0.125 * h * (f[:, 1:] - f[:, :-1])
        f_middle = f_of(x[:-1] + 0.5 * h, middle, p, False)
        rest = y[:, 1:] - y[:, :-1] - h / 6 * (f[:, :-1] + f[:, 1:] + 4 * f_middle)
        conditions = edges.applied(y[:, 0], y[:, -1], *([p] if k else []))
        return np.concatenate([np.reshape(rest, -1), np.reshape(conditions, -1)])

    x0 = x if is_traced(x) else mesh
    z = np.concatenate([np.ravel(found.y), () if found.p is None else found.p])
    residuals = Callback(equations, [z, found.x])
    callbacks = [*slopes.callbacks.values(), *of_slopes.callbacks.values(), edges, *of_edges]
    callbacks.append(residuals)

    def solver(fs: Sequence[Callable[..., Any]], values: Any) -> Any:
        first, second = len(slopes.callbacks), len(of_slopes.callbacks)
        fun, fun_jac = slopes.of(fs[:first]), of_slopes.of(fs[first : first + second])
        bc, *bc_jac = fs[first + second : -1]
        r = solve([fun, bc, fun_jac, *bc_jac], values, verbose)
        if r.y.shape != (n, m):
            raise UntracedPath
        z = np.concatenate([np.ravel(r.y), () if r.p is None else r.p])
        ended = ending(r.success, r.status, r.message)
        return z, r.x, r.rms_residuals, np.int64(r.niter), ended

    last = len(callbacks) - 1
    outside = SolverCall("solve_bvp", solver, callbacks, [x, y, *([p] if k else [])], at=(last,))
    rule = None
    if found.success:
        rule = outside.rule(lambda made, *xs: made.value(last, *xs), 1, is_sparse=True)
    z, nodes, rms, count = outside.record(rule, "" if rule else WHY, len(outside.values))
    (y, p), x = parted(z), _moved(nodes, x0)
    f = f_of(x, y, p, True)
    why = "rms_residuals are told of its work. Compute them from sol"
    return Boundary(
        sol=_spline(x, y, f),
        p=p if k else None,
        x=x,
        y=y,
        yp=f,
        rms_residuals=Unfinished("integrate.solve_bvp", why)(rms),
        niter=count,
        **{name: found[name] for name in ("status", "message", "success")},
    )


def _moved(nodes: Any, x0: Any) -> Any:
    """The nodes of a refined mesh. Each lies between two nodes of the first mesh, and its
    derivative is interpolated from theirs."""
    if not is_traced(x0):
        return nodes
    at, first = stopped(nodes), stopped(x0)
    k = interval(first, at)
    share = (at - first[k]) / (first[k + 1] - first[k])
    moving = x0[k] * (1 - share) + x0[k + 1] * share
    return nodes + (moving - stopped(moving))


def _with_singular(S: Any, x: Any, y: Any, f: Any, of_nodes: bool, x0: Any) -> Any:
    """Slopes with the singular term, which is its limit at the start."""
    if not of_nodes:
        return f + (S @ y) / (x - x0[0])
    limit = np.linalg.pinv(np.identity(len(S)) - S) @ f[:, :1]
    return np.concatenate([limit, f[:, 1:] + (S @ y[:, 1:]) / (x[1:] - x0[0])], axis=1)


def _spline(x: Any, y: Any, f: Any) -> Piecewise:
    """The cubic polynomials with these values and slopes at the nodes."""
    h = np.diff(x)
    slope = (y[:, 1:] - y[:, :-1]) / h
    t = (f[:, :-1] + f[:, 1:] - 2 * slope) / h
    c = np.stack([t / h, (slope - f[:, :-1]) / h - t, f[:, :-1], y[:, :-1]])
    return Piecewise(np.moveaxis(c, 1, 2), x, True, 1)
