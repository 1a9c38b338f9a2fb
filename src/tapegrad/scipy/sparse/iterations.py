"""Iterative solvers of scipy.sparse.linalg: linear systems, least squares, eigenvalues.

SciPy runs them on plain numbers. The result is differentiated by the equation that it solves, as
other solvers' results are (`primitives/implicit.py`). Each derivative solves one linear system by
products with the map or its transpose.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.sparse import linalg as theirs
from scipy.sparse.linalg import LinearOperator

from tapegrad.extending import (
    Untraced,
    any_traced,
    at_line,
    declare,
    is_traced,
    refusal,
    stands_for,
)
from tapegrad.extending.arrays import has_traced
from tapegrad.extending.primitives import Unfinished
from tapegrad.extending.runs import row_of
from tapegrad.extending.solvers import Implicit
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.optimize.roots import WHY, ending
from tapegrad.scipy.solver_calls import SolverCall
from tapegrad.scipy.sparse.operators import HOME, as_matrix, is_operator, product, reaches

PRECISION = 1e-10  # relative residual of the systems for derivatives
ACCEPTED_RESIDUAL = 1e-7  # accepted residual if rounding prevents that


class _Several:
    """The rules of a call with several results that each solve the same equation."""

    def __init__(self, rule: Implicit, count: int) -> None:
        self.rule, self.count = rule, count

    def backward(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        found: list[Any] = [None] * len(xs)
        for ct, out in zip(cts[: self.count], outs, strict=False):
            parts = [None] * len(xs) if ct is None else self.rule.backward([ct], [out], xs)
            found = [
                y if x is None else x if y is None else x + y
                for x, y in zip(found, parts, strict=True)
            ]
        return found

    def forward(self, ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        found = [self.rule.forward(ts, [out], xs)[0] for out in outs[: self.count]]
        return [*found, *[None] * (len(outs) - self.count)]


def _found(
    label: str,
    A: Any,
    find: Callable[..., Any],
    equation: Callable[[Any], Any],
    size: int,
    lead: Sequence[Any],
    solve: Any,
    both: bool = False,
    count: int = 1,
    helping: dict[str, Any] | None = None,
) -> list[Any] | None:
    """The results of `find(operator, values)`, for the values of `lead`; None if nothing is
    traced.

    The first `count` results are arrays that solve `equation`; the last one is the solver's
    status. With `both`, products with the transpose are available too. The operators `helping` are
    passed to `find` by their names.
    """
    helping = helping or {}
    m, n = A.shape
    callbacks = [Callback(lambda v: np.reshape(product(A, v), -1), [np.zeros(n)])]
    if both:
        callbacks.append(Callback(lambda v: np.reshape(product(A, v, True), -1), [np.zeros(m)]))
    first = len(callbacks)
    for M in helping.values():
        callbacks.append(Callback(lambda v, M=M: np.reshape(product(M, v), -1), [np.zeros(n)]))
    callbacks.append(Callback(equation, [np.ones(size)]))
    if not (any(c.is_traced for c in callbacks) or is_traced(list(lead))):
        return None

    def solver(fs: Any, values: Any) -> Any:
        matvec, *others = [lambda v, f=f: f(np.reshape(v, -1)) for f in fs]
        how = {"rmatvec": others[0]} if both else {}
        helps = {key: LinearOperator((n, n), others[first - 1 + k], dtype=float)
                 for k, key in enumerate(helping)}  # fmt: skip
        return find(LinearOperator((m, n), matvec, dtype=float, **how), values, **helps)

    outside = SolverCall(label, solver, callbacks, lead)
    if outside.state % 2:
        return outside.record(why=WHY)
    rule = outside.rule(lambda equations, x: equations.value(len(callbacks) - 1, x), solve=solve)
    return outside.record(rule if count == 1 else _Several(rule, count), visible=count)


def solving(method: Any, most: int = 0, **settings: Any) -> Any:
    """A function that solves M y = b by one of SciPy's iterations; NaN where that fails. b is
    scaled to a size around 1: squares must not overflow, and some iterations stop by absolute
    tolerances."""

    def solve(matvec: Any, b: Any) -> Any:
        size = np.frexp(np.max(np.abs(b), initial=0.0))[1]
        b = np.ldexp(np.reshape(b, -1), -size)
        operator = LinearOperator((b.size, b.size), matvec, dtype=float)
        most_steps = most or 20 * b.size
        y, _ = method(operator, b, rtol=PRECISION, maxiter=most_steps, **settings)
        rest = np.linalg.norm(matvec(y) - b)
        done = rest <= ACCEPTED_RESIDUAL * np.linalg.norm(b)
        return np.ldexp(y, size) if done else np.full_like(b, np.nan)

    return solve


_SYMMETRIC = ("cg", "minres")
SETTINGS = {
    *("rtol", "atol", "maxiter", "restart", "shift", "show", "check", "k", "m", "truncate"),
    *("discard_C", "inner_m", "outer_k", "store_outer_Av", "prepend_outer_v"),
}
_HELPING = ("M", "M1", "M2")  # preconditioners don't influence the result; M is called


def iterated(name: str, A: Any, b: Any, x0: Any, settings: dict[str, Any]) -> Any:
    """The x with A x = b, for an operator A, and the iteration's status."""
    original, helping = getattr(theirs, name), {}
    for key, value in settings.items():
        if value is None or key in SETTINGS:
            continue
        is_plain = not any_traced([value]) and not reaches(value)
        if key == "M" and not is_plain:
            helping[key] = as_matrix(value)
        elif not (key in _HELPING and is_plain):
            raise refusal(
                f"scipy.sparse.linalg.{name}(..., {key}=...) can't be traced{at_line()}, only "
                f"without {key}"
            )
    settings = {key: x for key, x in settings.items() if key not in helping}
    A = as_matrix(A)
    b = np.reshape(b if is_traced(b) else np.asarray(b), -1)
    start = np.zeros(A.shape[1]) if x0 is None else np.reshape(x0, -1)
    shift = settings.get("shift", 0.0)

    def enough(b: Any) -> Any:
        """The residual that is accepted. With a preconditioner some methods measure another
        residual, and `tfqmr` may end far away."""
        asked = settings.get("rtol", 1e-5) * np.linalg.norm(b)
        return 1e3 * max(asked, settings.get("atol", 0.0))

    def find(operator: Any, values: Any, **helps: Any) -> Any:
        start = np.array(values[1])
        x, info = original(operator, values[0], x0=start, **settings, **helps)
        rest = operator.matvec(x) - shift * x - values[0]
        return x, np.int64(info), ending(info == 0 and np.linalg.norm(rest) <= enough(values[0]))

    def equation(x: Any) -> Any:
        rest = np.reshape(product(A, x), -1) - b
        return rest - shift * x if shift else rest

    method = original if name in _SYMMETRIC else theirs.gmres
    how = {"M": settings.get("M")} if name in _SYMMETRIC else {"restart": min(b.size, 50)}
    both = name in ("bicg", "qmr")
    solve = solving(method, **how)
    lead = [b, start]
    found = _found(name, A, find, equation, A.shape[1], lead, solve, both, helping=helping)
    if found is None:
        raise Untraced
    return found[0], found[1]


def _least_squares(name: str) -> None:
    original = getattr(theirs, name)
    is_lsqr = name == "lsqr"
    floats = (3, 4, 5, 6, 7, 8) if is_lsqr else (3, 4, 5, 6, 7)

    def found(A: Any, b: Any, damp: Any, x0: Any, **how: Any) -> Any:
        if not (any_traced([A, b, damp, x0]) or reaches(A)):
            raise Untraced
        A_ = as_matrix(A)
        m, n = A_.shape
        if m < n and not (has_traced(damp) or damp):
            raise refusal(
                f"scipy.sparse.linalg.{name} of fewer equations than unknowns can't be traced"
                f"{at_line()}: what it finds isn't told by the equations alone. Pass damp, or use "
                "scipy.linalg.lstsq"
            )
        b = np.reshape(b if is_traced(b) else np.asarray(b), -1)
        start = np.zeros(n) if x0 is None else x0

        def find(operator: Any, values: Any) -> Any:
            b, damp, x0 = values
            given = {} if start is None else {"x0": np.array(x0)}
            x, *told = original(operator, b, float(damp), **given, **how)
            is_done = told[0] not in _GAVE_UP or _is_least(told, is_lsqr)
            return x, *told[: floats[-1]], ending(is_done)

        def equation(x: Any) -> Any:
            rest = product(A_, product(A_, x) - b, True)
            size = np.maximum(damp, 0.0) if is_lsqr else damp  # as in SciPy
            return rest + size**2 * (x - start)

        lead = [b, damp, start]
        got = _found(name, A_, find, equation, n, lead, solving(theirs.cg), both=True)
        assert got is not None
        why = "its result number {} is told of the iteration; compute it from x"
        told = [
            Unfinished(f"sparse.linalg.{name}", why.format(k))(x) if k in floats else x
            for k, x in enumerate(got)
        ]
        return (*told, np.zeros(n)) if is_lsqr else tuple(told)

    if is_lsqr:

        def lsqr(
            A: Any, b: Any, damp: Any = 0.0, atol: Any = 1e-6, btol: Any = 1e-6,
            conlim: Any = 1e8, iter_lim: Any = None, show: Any = False, x0: Any = None,
        ) -> Any:  # fmt: skip
            how = {"atol": atol, "btol": btol, "conlim": conlim}
            return found(A, b, damp, x0, **how, iter_lim=iter_lim, show=show)

        _answered(lsqr)
    else:

        def lsmr(
            A: Any, b: Any, damp: Any = 0.0, atol: Any = 1e-6, btol: Any = 1e-6,
            conlim: Any = 1e8, maxiter: Any = None, show: Any = False, x0: Any = None,
        ) -> Any:  # fmt: skip
            how = {"atol": atol, "btol": btol, "conlim": conlim}
            return found(A, b, damp, x0, **how, maxiter=maxiter, show=show)

        _answered(lsmr)


_GAVE_UP = (3, 6, 7)  # the condition number or the number of steps was too large


def _is_least(told: Any, is_lsqr: bool) -> bool:
    """Whether the residual is orthogonal to the columns, although the solver's status doesn't say
    so."""
    if is_lsqr:
        _, _, _, rest, size, _, product, *_ = told
    else:
        _, _, rest, product, size, *_ = told
    return bool(product <= ACCEPTED_RESIDUAL * size * rest)


def _answered(answer: Any) -> None:
    """Declare the answer to a function, also for operators."""
    stands_for(HOME, callbacks=True, parameters="k", lists="A")(answer)
    row = row_of(getattr(theirs, answer.__name__))
    assert row is not None
    declare(theirs, answer.__name__, row.by, when=is_operator)


for _name in ("lsqr", "lsmr"):
    _least_squares(_name)


# ---- eigenvalues and singular values


def _start(n: int) -> Any:
    """The start vector of an iteration. SciPy draws it at random; with a fixed one each call finds
    vectors of the same signs."""
    return np.random.default_rng(0).standard_normal(n)


def _rounded(found: list[Any], A: Any) -> list[Any]:
    """Results in SciPy's precision, the precision of the matrix; the iteration runs in float64."""
    return [z.astype(np.float32) for z in found] if A.dtype == np.float32 else found


def _drawing(method: Any, rng: Any) -> dict[str, Any]:
    """The keyword for the generator of an iteration, if this version of SciPy takes one."""
    known = "rng" in inspect.signature(method).parameters  # older SciPy versions have none
    return {"rng": np.random.default_rng(0) if rng is None else rng} if known else {}


def eigsh(
    A: Any, k: Any = 6, sigma: Any = None, which: Any = "LM", v0: Any = None, ncv: Any = None,
    maxiter: Any = None, tol: Any = 0, return_eigenvectors: Any = True, rng: Any = None,
) -> Any:  # fmt: skip
    """A v = lambda v with v of length 1: F = (A v - lambda v, (1 - v v) / 2)."""
    how = {"which": which, "ncv": ncv, "maxiter": maxiter, "tol": tol}
    if not (any_traced([A]) or reaches(A)):
        raise Untraced
    if sigma is not None:
        raise refusal(
            f"scipy.sparse.linalg.eigsh(..., sigma=...) can't be traced{at_line()}, only without "
            "sigma. Use which='SA' or 'SM', or scipy.linalg.eigh of the dense matrix"
        )
    A, how = as_matrix(A), how | _drawing(theirs.eigsh, rng)
    n = A.shape[0]

    def find(operator: Any, values: Any) -> Any:
        start = {"v0": np.array(values[0]) if values else _start(n)}
        w, v = theirs.eigsh(operator, k, **start, **how)
        if not return_eigenvectors:  # SciPy orders them differently then
            order = theirs.eigsh(operator, k, return_eigenvectors=False, **start, **how)
            chosen = np.argsort(w)[np.argsort(np.argsort(order))]
            w, v = w[chosen], v[:, chosen]
        return *[np.append(v[:, i], w[i]) for i in range(len(w))], ending(True)

    def equation(z: Any) -> Any:
        v, w = z[:n], z[n]
        rest = np.reshape(product(A, v), -1) - w * v
        return np.append(rest, (1 - np.sum(v * v)) / 2)

    lead = [] if v0 is None else [v0]
    found = _found("eigsh", A, find, equation, n + 1, lead, solving(theirs.minres), count=k)
    assert found is not None
    found = _rounded(found, A)
    w = np.stack([z[n] for z in found])
    return (w, np.stack([z[:n] for z in found], 1)) if return_eigenvectors else w


def svds(
    A: Any, k: Any = 6, ncv: Any = None, tol: Any = 0, which: Any = "LM", v0: Any = None,
    maxiter: Any = None, return_singular_vectors: Any = True, solver: Any = "arpack",
    rng: Any = None,
) -> Any:  # fmt: skip
    """A v = s u and A^T u = s v: F consists of these two and 1 - (u u + v v) / 2."""
    how = {"ncv": ncv, "tol": tol, "which": which, "maxiter": maxiter, "solver": solver}
    if not (any_traced([A]) or reaches(A)):
        raise Untraced
    A, how = as_matrix(A), how | _drawing(theirs.svds, rng)
    m, n = A.shape

    def find(operator: Any, values: Any) -> Any:
        start = np.array(values[0]) if values else _start(min(m, n)) if solver != "lobpcg" else None
        u, s, vh = theirs.svds(operator, k, v0=start, **how)
        found = [np.concatenate([u[:, i], vh[i], s[i : i + 1]]) for i in range(len(s))]
        return *found, ending(True)

    def equation(z: Any) -> Any:
        u, v, s = z[:m], z[m : m + n], z[m + n]
        first = np.reshape(product(A, v), -1) - s * u
        second = np.reshape(product(A, u, True), -1) - s * v
        length = 1 - (np.sum(u * u) + np.sum(v * v)) / 2
        return np.concatenate([first, second, np.reshape(length, 1)])

    lead = [] if v0 is None else [v0]
    solve = solving(theirs.minres)
    found = _found("svds", A, find, equation, m + n + 1, lead, solve, both=True, count=k)
    assert found is not None
    found = _rounded(found, A)
    s = np.stack([z[m + n] for z in found])
    if return_singular_vectors is False:
        return s
    u = np.stack([z[:m] for z in found], 1) if return_singular_vectors != "vh" else None
    vh = np.stack([z[m : m + n] for z in found]) if return_singular_vectors != "u" else None
    return u, s, vh


for _answer in (eigsh, svds):
    _answered(_answer)
