"""Users' own solvers, differentiated by what they solve: `custom_root`, `custom_fixed_point`."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.named import Named
from tapegrad.core.trees import flatten, is_array, unflatten
from tapegrad.errors import ArgumentError, GradientError
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.base import Value
from tapegrad.tracing.recording.trace import is_untraced, untraced

Solve = Callable[[Callable[[Any], Any], Any], Any]


def custom_root(
    F: Callable[..., Any], has_aux: bool = False, solve: Solve | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for a solver of F(x, *args) = 0, by which its result is differentiated.

        def gradient(x, A, b):
            return A @ x - b

        @custom_root(gradient)
        def descend(start, A, b):
            ...  # any Python: C code, `while` until it has converged
            return x

    The solver is called with plain values, whatever it does in there, also by compiled code; it
    isn't traced. What it returns is the x that depends on its arguments p, but for the first one,
    by F(x, p) = 0. So by the implicit function theorem

        dx = -(dF/dx)^-1 dF/dp dp,    cotangent of p = -(dF/dp)^T (dF/dx)^-T ct

    in forward and reverse mode; these can be differentiated again. The derivative by the first
    argument, where the solver starts, is zero.

    Parameters
    ----------
    F : `F(x, *args)` is zero at the result, for the solver's arguments after the first; of keyword
        arguments, too. It returns as many numbers as x has. It is traced, and may reach other
        traced values by itself; the solver has to be passed those that it uses.
    has_aux : whether the solver returns a pair: x, and what has no derivative.
    solve : `solve(matvec, b)` returns the v with M v = b, for products with a matrix, M v =
        `matvec(v)`; b has the structure of x. M is dF/dx in forward mode, its transpose in reverse
        mode. Without it the matrix is built and factored (LU), with n^2 numbers for n of x.

    Returns
    -------
    A decorator: of a function `solver(start, *args)` it makes a function of the same arguments.
    x may be nested, of real numbers and arrays of these.

    Raises
    ------
    ArgumentError : `F`, `solve` or the solver isn't a function.
    GradientError : later, where the solver uses a traced value that it wasn't passed, or F returns
        fewer or more numbers than x has.
    """
    return _decorator(F, has_aux, solve, "custom_root")


def custom_fixed_point(
    T: Callable[..., Any], has_aux: bool = False, solve: Solve | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for a solver of x = T(x, *args), by which its result is differentiated.

        @custom_fixed_point(lambda x, a: (x + a / x) / 2)
        def root(start, a):
            ...
            return x

    It is `custom_root` of F = T - x, so dx = (I - dT/dx)^-1 dT/dp dp.

    Parameters
    ----------
    T : `T(x, *args)` is x at the result, for the solver's arguments after the first. It has the
        structure of x.
    has_aux, solve : as `custom_root` takes them; M is dT/dx - I, or its transpose.

    Returns
    -------
    A decorator, as `custom_root` returns it.

    Raises
    ------
    ArgumentError, GradientError : as `custom_root` raises them.
    """
    return _decorator(T, has_aux, solve, "custom_fixed_point")


def _decorator(F: Any, has_aux: bool, solve: Any, name: str) -> Any:
    for f, what in ((F, "a function"), (solve, "a function for solve")):
        if not callable(f) and not (f is None and f is solve):
            raise ArgumentError(f"{name} needs {what}, not {f!r}")

    def decorator(solver: Any) -> Any:
        if not callable(solver):
            raise ArgumentError(f"{name} decorates a function, not {solver!r}")
        return Root(solver, F, has_aux, solve, name == "custom_fixed_point")

    return decorator


class Root(Named):
    """A solver that is differentiated by the equation that it solves."""

    def __init__(self, solver: Any, F: Any, has_aux: bool, solve: Any, is_fixed: bool) -> None:
        functools.update_wrapper(self, solver)
        self.solver, self.F, self.has_aux, self.solve = solver, F, has_aux, solve
        self.is_fixed = is_fixed
        self.label = getattr(solver, "__name__", type(solver).__name__)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a decorated method: its instance comes first, for F, too."""
        if instance is None:
            return self
        solver, F = [
            types.MethodType(f, instance) if type(f) is types.FunctionType else f
            for f in (self.solver, self.F)
        ]
        return Root(solver, F, self.has_aux, self.solve, self.is_fixed)

    def __repr__(self) -> str:
        return f"<tapegrad solver {self.label}>"

    @unobserved
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_untraced((args, kwargs)):
            return self.solver(*args, **kwargs)
        try:
            bound = inspect.signature(self.solver).bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        except ValueError:  # a function in C may have no signature
            pass
        return self._recorded(args, kwargs)

    def _recorded(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from tapegrad.scipy.callbacks import Callback, values_of
        from tapegrad.scipy.solver_calls import SolverCall

        leaves, structure = flatten((args, kwargs))
        at = [k for k, x in enumerate(leaves) if isinstance(x, Value) or _is_numbers(x)]
        lead = [leaves[k] for k in at]
        as_given = [_kind_of(x) for x in lead]
        found = [self._found(structure, leaves, at, as_given, values_of(lead))]
        x = found[0]

        def solver(fs: Any, values: Any) -> Any:
            now = found.pop() if found else self._found(structure, leaves, at, as_given, values)
            return now.flat, *now.aux, np.int64(now.number)

        callback = Callback(lambda v: self._equation(v, x, args, kwargs), [x.flat])
        if callback.shape != x.flat.shape:
            raise GradientError(
                f"the equation of {self.label} has {int(np.prod(callback.shape))} numbers"
                f"{at_line()}, and what it finds has {x.flat.size}. There has to be one equation "
                "for each unknown"
            )
        outside = SolverCall(self.label, solver, [callback], lead)
        if not (callback.is_traced or any(isinstance(y, Value) for y in lead)):
            return self._told(x, x.flat, x.aux)
        rule = outside.rule(lambda equations, v: equations.value(0, v), solve=self._flat_solve(x))
        flat, *aux = outside.record(rule)
        return self._told(x, flat, aux)

    def _found(self, structure: Any, leaves: Any, at: Any, kinds: Any, values: Any) -> _Found:
        """What the solver finds for these values of the leaves at some places."""
        given = list(leaves)
        for k, kind, value in zip(at, kinds, values, strict=True):
            given[k] = kind(value)
        args, kwargs = unflatten(structure, given)
        with untraced():  # and not observed: each call runs it anew
            result = self.solver(*args, **kwargs)
        return _Found(self.label, result, self.has_aux)

    def _equation(self, v: Any, x: _Found, args: Any, kwargs: Any) -> Any:
        """F, of the flat x."""
        with observed():
            found = self.F(x.tree(v), *args[1:], **kwargs)
        parts = [np.reshape(part, -1) for part in flatten(found)[0]]
        flat = np.concatenate(parts) if len(parts) != 1 else parts[0]
        return flat - v if self.is_fixed else flat

    def _flat_solve(self, x: _Found) -> Any:
        """The user's way to solve linear systems, of flat vectors."""
        if self.solve is None:
            return None

        def solve(matvec: Any, b: Any) -> Any:
            with untraced():
                found = self.solve(lambda v: x.tree(matvec(_flat(v))), x.tree(b))
            return _flat(found)

        return solve

    def _told(self, x: _Found, flat: Any, aux: Sequence[Any]) -> Any:
        """What the solver returns, of these numbers."""
        found = x.tree(flat, own=True)
        return (found, x.aux_tree(aux)) if self.has_aux else found


class _Found:
    """What a solver has returned, as one vector, and arrays that have no derivative."""

    def __init__(self, label: str, result: Any, has_aux: bool) -> None:
        rest: Any = ()
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise ArgumentError(
                    f"{label} is declared with has_aux=True and returned {type(result).__name__}. "
                    "Return a pair: the solution, and what has no derivative"
                )
            result, rest = result
        self.leaves, self.structure = flatten(result)
        self.aux_leaves, self.aux_structure = flatten(rest)
        for x in (*self.leaves, *self.aux_leaves):
            if isinstance(x, Value):
                raise GradientError(
                    f"{label} uses a traced value that it wasn't passed{at_line()}, so its "
                    "solution has no derivative by that. Pass it as an argument"
                )
        for x in self.leaves:
            if not _is_numbers(x) or np.asarray(x).dtype.kind not in "fiub":
                raise ArgumentError(
                    f"{label} returned a {type(x).__name__}{at_line()}, and what solves an "
                    "equation here is made of real numbers and arrays of these"
                )
        self.flat = _flat(result)
        self.aux = [np.asarray(x) for x in self.aux_leaves if _is_numbers(x)]
        self.number = _number((self.structure, [np.shape(x) for x in self.leaves]))
        others = [x for x in self.aux_leaves if not _is_numbers(x)]
        self.number ^= _number((self.aux_structure, others))

    def tree(self, flat: Any, own: bool = False) -> Any:
        """A vector with the structure of the solution, with its `own` dtypes."""
        parts, start = [], 0
        for x in self.leaves:
            part = np.reshape(flat[start : start + np.size(x)], np.shape(x))
            dtype = np.asarray(x).dtype
            if own and type(x) is float:
                part = part.item()
            elif own and dtype.kind == "f":
                part = part.astype(dtype)
            parts.append(part)
            start += np.size(x)
        return unflatten(self.structure, parts)

    def aux_tree(self, aux: Sequence[Any]) -> Any:
        numbers = iter(aux)
        leaves = [next(numbers) if _is_numbers(x) else x for x in self.aux_leaves]
        return unflatten(self.aux_structure, leaves)


def _is_numbers(x: Any) -> bool:
    kinds = (np.generic, bool, int, float)
    return (is_array(x) and x.dtype.kind in "fiubc") or isinstance(x, kinds)


def _kind_of(x: Any) -> Any:
    """What makes a value of an argument's kind of a NumPy value."""
    if isinstance(x, Value) or not isinstance(x, (bool, int, float)):
        weak = getattr(x, "_weak", False)
        return (lambda v: np.asarray(v).item()) if weak else (lambda v: np.array(v)[()])
    return lambda v: np.asarray(v).item()


def _flat(tree: Any) -> Any:
    parts = [np.reshape(np.asarray(x, float), -1) for x in flatten(tree)[0]]
    return np.concatenate([np.zeros(0), *parts])


def _number(facts: Any) -> int:
    import zlib

    return 2 * zlib.crc32(repr(facts).encode())
