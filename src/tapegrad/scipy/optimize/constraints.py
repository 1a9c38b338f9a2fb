"""Constraints of minima, in the forms that scipy.optimize.minimize takes.

At a minimum of f(x) with h(x) >= 0 the gradient is a sum of the gradients of the active
constraints (the conditions of Karush, Kuhn and Tucker). With g = df/dx, and h and A = dh/dx of the
active constraints alone, let

  F(x, p) = g - A^T m,   A A^T m = A g - h

F = 0 defines x as a function of p: A F = h, and where h = 0, m are the multipliers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize as theirs

from tapegrad.extending import Carrier, as_called, is_traced, seen, stands_for, unobserved
from tapegrad.extending.arrays import as_operand, record, stacked
from tapegrad.extending.tapes import METHODS, CallTape, Request, Tape, trace_function
from tapegrad.scipy.callbacks import Callback, values_of
from tapegrad.scipy.optimize.roots import with_args
from tapegrad.scipy.solver_calls import Equations, SolverCall

ACTIVE_DISTANCE = 1e-3  # a constraint farther from 0 isn't active
SLIGHT = 1e-7  # a multiplier too small to tell whether it is active


@dataclass
class Constraint:
    """One of SciPy's constraints: its functions, the bounds on their values, and `passed`, which
    makes the object for SciPy from proxies of these functions."""

    functions: list[Any]
    low: Any
    high: Any
    passed: Callable[..., Any]


def _of_dict(given: dict[str, Any]) -> Constraint:
    args, jac = (*given.get("args", ()),), given.get("jac")
    functions = [with_args(f, args) for f in (given["fun"], jac) if callable(f)]

    def passed(fun: Any, jac: Any = jac) -> Any:
        return {"type": given["type"], "fun": fun, **({} if jac is None else {"jac": jac})}

    return Constraint(functions, 0.0, 0.0 if given["type"].lower() == "eq" else np.inf, passed)


def _of_object(given: Any) -> Constraint:
    seen(given)
    if isinstance(given, theirs.LinearConstraint):
        matrix = given.A.toarray() if hasattr(given.A, "toarray") else np.atleast_2d(given.A)
        return Constraint([lambda x: matrix @ x], given.lb, given.ub, lambda fun: given)
    functions = [as_called(f) for f in (given.fun, given.jac) if callable(f)]

    def passed(fun: Any, jac: Any = given.jac) -> Any:
        how = {**vars(given), "fun": fun, "jac": jac}
        return theirs.NonlinearConstraint(**how)

    return Constraint(functions, given.lb, given.ub, passed)


class Movable(Carrier):
    """A constraint low <= fun(x) <= high with traced bounds.

    At each call SciPy is passed `made(functions, low, high, *others)` with the call's values,
    where the first of the functions is fun.
    """

    def __init__(self, functions: list[Any], low: Any, high: Any, made: Any, *others: Any) -> None:
        self.functions, self.made, self.others = functions, made, others
        self.ends = [as_operand(x) * 1.0 for x in (low, high)]

    def part(self, start: np.ndarray) -> Constraint:
        """The rows of the constraint: f(x) = 0 where both bounds are equal, and f(x) >= 0 for each
        finite bound."""
        fun, made = self.functions[0], self.made
        size = Callback(_flat(fun, 0), [start]).shape[0]
        low, high = [np.broadcast_to(x, (size,)) for x in self.ends]
        same = low == high
        kinds = same, np.isfinite(low) & ~same, np.isfinite(high) & ~same
        equal, above, below = [np.flatnonzero(np.asarray(x)) for x in kinds]  # guarded
        numbers = [low, high, *self.others]
        shapes = [np.shape(x) for x in numbers]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]

        def f(x: Any) -> Any:
            value = np.atleast_1d(stacked(fun(x)))
            rest = value - low, high - value
            return np.concatenate([rest[0][equal], rest[0][above], rest[1][below]])

        def all_numbers(x: Any) -> Any:
            return np.concatenate([np.reshape(n + 0.0 * x[0], (-1,)) for n in numbers])

        def passed(_: Any, at: Any, *functions: Any) -> Any:
            parts = np.split(at(start), ends)
            return made(functions, *map(np.reshape, parts, shapes))

        high_of = np.array([0.0] * len(equal) + [np.inf] * (len(above) + len(below)))
        return Constraint([f, all_numbers, *self.functions], 0.0, high_of, passed)


@stands_for("scipy.optimize")
def LinearConstraint(A: Any, lb: Any = -np.inf, ub: Any = np.inf) -> Any:
    def made(_: Any, low: Any, high: Any, matrix: Any) -> Any:
        return theirs.LinearConstraint(matrix, low, high)

    A = A if is_traced(A) else np.atleast_2d(np.asarray(A, float))
    A = np.reshape(A, (1, -1)) if np.ndim(A) == 1 else A
    return Movable([lambda x: A @ x], lb, ub, made, A)


@stands_for("scipy.optimize")
def NonlinearConstraint(fun: Any, lb: Any, ub: Any, jac: Any = "2-point") -> Any:
    def made(functions: Any, low: Any, high: Any) -> Any:
        return theirs.NonlinearConstraint(functions[0], low, high, (*functions, jac)[1])

    return Movable([as_called(f) for f in (fun, jac) if callable(f)], lb, ub, made)


def _part(x: Any, start: np.ndarray) -> Constraint:
    if isinstance(x, Movable):
        return x.part(start)
    return _of_dict(x) if isinstance(x, dict) else _of_object(x)


class Constraints:
    """All constraints of a minimum: a function C of x, and the rows h = sign (C - offset)."""

    def __init__(self, given: Any, start: np.ndarray) -> None:
        several = given if isinstance(given, (list, tuple)) else [given]
        self.parts = [_part(x, start) for x in several]
        self.callbacks: list[Callback] = []
        self.values: list[Callback] = []  # the callbacks whose results make up C
        rows: list[tuple[int, float, float, bool]] = []
        count = 0
        for part in self.parts:
            own = [Callback(_flat(f, k), [start]) for k, f in enumerate(part.functions)]
            self.callbacks += own
            self.values.append(own[0])
            size = own[0].shape[0]
            ends = zip(*(np.broadcast_to(x, size) for x in (part.low, part.high)), strict=True)
            for k, (low, high) in enumerate(ends, count):
                if low == high:
                    rows.append((k, 1.0, low, True))
                    continue
                rows += [(k, 1.0, low, False)] if np.isfinite(low) else []
                rows += [(k, -1.0, high, False)] if np.isfinite(high) else []
            count += size
        index, sign, offset, equal = zip(*rows, strict=True) if rows else ((),) * 4
        self.index, self.equal = np.array(index, int), np.array(equal, bool)
        self.sign, self.offset = np.array(sign), np.array(offset)

    @property
    def constants(self) -> list[np.ndarray]:
        """The constant arrays that F needs; the body of F may not capture arrays."""
        if not self.parts:
            return []
        return [self.index, self.sign, self.offset, *[np.eye(c.shape[0]) for c in self.values]]

    def passed(self, fs: Sequence[Any]) -> list[Any]:
        """The constraints for SciPy, with `fs` in place of the callbacks."""
        rest = iter(fs)
        return [part.passed(*[next(rest) for _ in part.functions]) for part in self.parts]

    def holding(
        self, f: Callback, fs: Sequence[Any], x: Any, side: Any
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """The active bounds and rows at a minimum, and whether that is certain. `fs` are proxies
        of `f` and the callbacks, and `side` tells at which bounds x is."""
        if not self.parts:
            return side, np.zeros(0, np.int64), True
        free = side == 0
        slope = slopes_of(f, fs[0], x)[0]
        own = [g for c, g in zip(self.callbacks, fs[1:], strict=True) if c in self.values]
        value = self.sign * (np.concatenate([g(x) for g in own])[self.index] - self.offset)

        def slopes(x: Any) -> np.ndarray:
            pairs = zip(self.values, own, strict=True)
            rows = np.concatenate([slopes_of(c, g, x) for c, g in pairs])[self.index]
            return self.sign[:, None] * rows

        matrix = slopes(x)
        at = np.flatnonzero(self.equal | (np.abs(value) < ACTIVE_DISTANCE))
        found = np.zeros(len(value), np.int64)
        if not at.size:
            return side, found, True
        multipliers, _, rank, _ = np.linalg.lstsq((matrix[at] * free).T, slope * free)
        if rank < len(at):
            held = self._spanning(slope, slopes, x, side, at)
            found[at] = held[len(x) :] if held is not None else self.equal[at]
            return (side if held is None else side * held[: len(x)]), found, held is not None
        slight = np.abs(multipliers) <= SLIGHT * (1 + np.max(np.abs(slope)))
        holds = self.equal[at] | ((multipliers > 0) & ~slight)
        found[at] = holds
        unclear = ~holds & ((np.abs(value[at]) < SLIGHT) | ~slight)
        return side, found, not np.any(unclear)

    def _spanning(
        self, slope: np.ndarray, slopes: Callable[[Any], np.ndarray], x: Any, side: Any, at: Any
    ) -> np.ndarray | None:
        """A subset of the bounds and of the rows `at` x that is enough to hold the minimum; None
        if it isn't certain. With the subset's gradients a_k and those of the others a_j,

          slope = sum of m_k a_k,  m_k > 0, a_j = sum of c_jk a_k

        and the second equation also holds near x along the surface of the others: they hold
        wherever the subset does. A constraint with traced values may violate this, so it has none.
        """
        if any(c.is_traced for c in self.callbacks):
            return None
        count, fixed = len(x), np.flatnonzero(side)
        equal = np.concatenate([np.zeros(len(fixed), bool), self.equal[at]])

        def normals(x: Any) -> np.ndarray:
            return np.concatenate([-side[fixed, None] * np.eye(count)[fixed], slopes(x)[at]])

        a, size = normals(x), 1 + np.max(np.abs(slope))
        m, rest = theirs.nnls(np.concatenate([a, -a[equal]]).T, slope)
        pushes = m[: len(a)] > SLIGHT * size
        pushes[equal] = True
        chosen: list[int] = []
        for k in [*np.flatnonzero(equal), *np.flatnonzero(pushes & ~equal)]:
            if np.linalg.matrix_rank(a[[*chosen, k]], 1e-9) > len(chosen):
                chosen.append(k)
        weights = np.linalg.lstsq(a[chosen].T, a.T)[0]
        along = np.linalg.svd(a[chosen])[2][len(chosen) :]
        for moved in (x, *(x + 1e-4 * (1 + np.max(np.abs(x))) * t for t in along)):
            here = normals(moved)
            if np.max(np.abs(here - weights.T @ here[chosen])) > 1e-7 * (1 + np.max(np.abs(a))):
                return None
        if rest > 1e-4 * size:
            return None
        held = np.zeros(count + len(at), np.int64)
        held[np.concatenate([fixed, count + np.arange(len(at))])[chosen]] = 1
        return held

    def equations(self, outside: SolverCall, bounded: bool) -> Callable[..., Any]:
        """The function that writes F for `Outside.rule`."""
        shape = outside.callbacks[0].shape
        slope = METHODS["pulled"](_bare(outside.callbacks[0].tape), (0,))
        tapes = [_bare(c.tape) for c in self.values]
        pulled = [METHODS["pulled"](tape, (0,)) for tape in tapes]
        ends, first = 2 * bounded, len(outside.given)
        counts = [len(c.p) for c in (outside.callbacks[0], *self.values)]

        @unobserved
        def body(x: Any, side: Any, active: Any, *rest: Any) -> Any:
            bounds, (index, sign, offset, *eyes) = rest[:ends], rest[ends:first]
            ps, start = [], first
            for count in counts:
                ps.append(rest[start : start + count])
                start += count
            trace, values, rows = x._trace, [], []
            one = np.reshape(sign[0] * sign[0], (1,) * len(shape))
            g = record(trace, CallTape(slope), [x, *ps[0], one])
            for tape, back, eye, p in zip(tapes, pulled, eyes, ps[1:], strict=True):
                values.append(record(trace, CallTape(tape), [x, *p]))
                rows += [record(trace, CallTape(back), [x, *p, seed]) for seed in eye]
            free, on = side == 0, active != 0
            h = sign * (np.concatenate(values)[index] - offset)
            a = sign[:, None] * np.stack(rows)[index]
            h, a = np.where(on, h, 0.0), np.where(on[:, None] & free, a, 0.0)
            gram = a @ a.T + np.diag(np.where(on, 0.0, 1.0))
            m = np.linalg.solve(gram, a @ g - h)
            found = g - a.T @ m
            return np.where(free, found, x - np.where(side < 0, *bounds)) if bounded else found

        p = [x for c in (outside.callbacks[0], *self.values) for x in c.p]
        values = [*outside.values[:3], *values_of([*outside.given, *p])]
        traced = trace_function(Request(body, values), repeats=True, apart=True)
        tape = replace(traced.tape, guards=())

        def write(equations: Equations, x: Any, side: Any, active: Any, *bounds: Any) -> Any:
            known = dict(zip(map(id, outside.callbacks), equations.p, strict=True))
            ps = [x for c in (outside.callbacks[0], *self.values) for x in known[id(c)]]
            return equations.apply(CallTape(tape), x, side, active, *bounds, *ps)

        return write


def _flat(f: Callable[[Any], Any], is_jacobian: int) -> Callable[[Any], Any]:
    """A constraint's function as one with an array of results."""
    return f if is_jacobian else lambda x: np.atleast_1d(stacked(f(x)))


def _bare(tape: Tape) -> Tape:
    return replace(tape, outputs=tape.outputs[:1], output_names=(), guards=())


def slopes_of(callback: Callback, f: Any, x: Any) -> np.ndarray:
    """The Jacobian of a callback's first result: a row for each element. `f` is a proxy of the
    callback."""
    tape = _bare(callback.tape)
    pulled = METHODS["pulled"](tape, (0,))
    shape = tape.outputs[0].shape
    seeds = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    return np.stack([METHODS["run"](pulled, [x, *f.values, seed])[0] for seed in seeds])
