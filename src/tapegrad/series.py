"""The public derivatives of higher order: Taylor coefficients, the Laplacian, Gauss-Newton.

jet          c_0, ..., c_n of t -> f(x + t d)      n^2 / 2 times the value
laplacian    sum of d^2 f / d x_i^2                a pass of order 2 for each element
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

from tapegrad.core.late import LINEAR_MAPS, load
from tapegrad.core.request import describe, is_differentiable
from tapegrad.core.trees import flatten
from tapegrad.derivatives import hvp
from tapegrad.elsewhere import explained
from tapegrad.errors import ArgumentError, GradientError
from tapegrad.observe.observer import following
from tapegrad.runtime.argnums import Argnums, checked_argnums
from tapegrad.runtime.checks import checked_checkpoint
from tapegrad.runtime.derived import Derived, called
from tapegrad.runtime.taylor import Coefficients, Laplacian
from tapegrad.runtime.transformations import Jit
from tapegrad.typing import Compile

Function = Callable[..., Any]


@explained
def jet(
    f: Function,
    x: Any,
    n: int,
    direction: Any = None,
    has_aux: bool = False,
    *,
    compile: Compile = None,
) -> Any:
    """The Taylor coefficients c_0, ..., c_n of `t -> f(x + t * direction)` at t = 0.

        f(x + t d) = c_0 + c_1 t + c_2 t^2 + ... + c_n t^n + O(t^(n+1)),    c_k = f^(k) / k!

    They are found by the arithmetic of truncated power series (A. Griewank and A. Walther,
    "Evaluating derivatives", 2008, chapter 13), so the cost grows with n^2, where derivatives of
    derivatives cost 2^n. `jax.experimental.jet` has derivatives in their places: k! c_k.

        >>> jet(np.exp, 0.0, 4)
        array([1.        , 1.        , 0.5       , 0.16666667, 0.04166667])

    Parameters
    ----------
    f : a function of one argument, written with NumPy. It may return anything.
    x : its argument: a number, an array, or a tree of them.
    n : the highest order, 0 or more.
    direction : d, of the structure and the shapes of `x`; None in it stands for 0. If it isn't
        given it is 1 everywhere, as in `f(x + t)`: of a function that takes elements by themselves
        these are the coefficients at each of them.
    has_aux : `f` returns `(value, aux)`; the result is then `(coefficients, aux)`.
    compile : "auto", "always" or "never", as in `grad`.

    Returns
    -------
    The value of `f` with arrays of all coefficients in the places of its arrays and numbers: along
    a new first axis of length n + 1. What doesn't move has zeros behind c_0.

    Raises
    ------
    ArgumentError : `n` is no such number, or the direction doesn't fit `x`.
    GradientError : a primitive has no forward rule.
    TraceError : the function did what a trace can't follow; the message names the line.

    At a kink each coefficient is the mean of those for t > 0 and for t < 0.
    """
    try:
        order = operator.index(n)
    except TypeError:
        raise ArgumentError(f"jet: the order n is an integer, not {n!r}") from None
    if order < 0:
        raise ArgumentError(f"jet: the order n is {n}, and must be 0 or more")
    if direction is None:
        return called(f, _coefficients(1, bool(has_aux), order, False), compile, x)
    return called(f, _coefficients(1, bool(has_aux), order), compile, x, direction)


_coefficients = functools.lru_cache(Coefficients)  # the same again is found at once


@explained
def laplacian(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    compile: Compile = None,
) -> Any:
    """The Laplacian of a scalar function: the sum of its unmixed second derivatives.

        sum over i of d^2 f / d x_i^2,    the trace of the Hessian

    It is the sum of Taylor coefficients of second order along all unit vectors; the Hessian isn't
    formed. Up to 64 elements all directions are computed together, of more one after the other, in
    the memory of one of them.

        >>> laplacian(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
        np.float64(18.0)

    Parameters
    ----------
    f : a function as `grad` takes it. Works as a decorator too.
    argnums : the argument, by its number or its name; a tuple of them for the sum over all of their
        elements.
    has_aux : `f` returns `(value, aux)`; the result is then `(laplacian, aux)`.
    compile : "auto", "always" or "never", as in `grad`.

    Returns
    -------
    A function of the arguments of `f`, with a number for its result.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `grad` does.
    """
    transformation = Laplacian(checked_argnums(argnums), has_aux, checked_checkpoint("auto"))
    if f is None:
        return lambda g: Derived(g, transformation, compile)
    return Derived(f, transformation, compile)


@explained
def gauss_newton_vp(
    f: Function | None = None,
    loss: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    compile: Compile = None,
) -> Any:
    """Products with the Gauss-Newton matrix of `loss(f(x))`: `gauss_newton_vp(f, loss)(*args, v)`.

        J^T H J v,    J = d f / d x,    H the Hessian of the loss at the value of f

    It is the Hessian of `loss(f(x))` without the curvature of f: positive semidefinite where the
    loss is convex (N. Schraudolph, "Fast curvature matrix-vector products for second-order gradient
    descent", 2002). A pass forwards and one back share one tape; no matrix is formed.

        >>> def residuals(x):
        ...     return np.array([x[0] * x[1], x[1]])
        >>> gauss_newton_vp(residuals)(np.array([2.0, 3.0]), np.array([1.0, 0.0]))
        array([9., 6.])

    Parameters
    ----------
    f : a function written with NumPy that returns what the loss takes, nested as you like. Works as
        a decorator too.
    loss : a scalar function of the value of `f`. Without one it is half the sum of squares, for
        which H is the identity, and the product is J^T J v.
    argnums : the argument, by its number or its name, or a tuple of them: then `v` is a tuple, too.
    has_aux : `f` returns `(value, aux)`; the result is then `(product, aux)`.
    compile : "auto", "always" or "never", as in `grad`.

    Returns
    -------
    A function of the arguments of `f`, and behind the positional ones the vector, with the
    structure and shapes of the argument; it returns the product, of the same structure.

    Raises
    ------
    ArgumentError : the vector doesn't fit the argument, or there is no such argument.
    GradientError, TraceError : as `hvp` does.
    """
    product = _GaussNewton(checked_argnums(argnums), loss, bool(has_aux))
    if f is None:
        return lambda g: gauss_newton_vp(g, loss, argnums, has_aux, compile=compile)
    if not callable(f):
        raise ArgumentError(f"gauss_newton_vp needs a function, not {f!r}")
    # A method of the user's function, or of its object: what is derived is kept with that.
    if inspect.ismethod(f):
        bound = replace(product, method=f.__func__)
        return Derived(MethodType(bound, f.__self__), Jit(), compile)
    return Derived(MethodType(product, f), Jit(), compile)


@dataclass(frozen=True)
class _GaussNewton:
    """The product for a function, or for the `method` of an object, its arguments and a vector."""

    argnums: Any
    loss: Function | None
    has_aux: bool
    method: Function | None = None

    __name__ = "gauss_newton_vp"

    def __call__(self, of: Any, *args: Any, **kwargs: Any) -> Any:
        f = of if self.method is None else MethodType(self.method, of)
        load(LINEAR_MAPS)
        from tapegrad.runtime.pullback import both_ways

        if not args:
            raise ArgumentError("gauss_newton_vp: pass the function's arguments, then the vector")
        *own, v = args
        several = isinstance(self.argnums, tuple)
        each, vectors = (self.argnums, v) if several else ((self.argnums,), (v,))
        places = [_place(f, own, kwargs, k) for k in each]
        if len({*places}) < len(places):
            raise ArgumentError(
                f"gauss_newton_vp of {describe(f)}: argnums is {self.argnums}, which says an "
                "argument twice. Say each once"
            )

        @functools.wraps(f)
        def of_chosen(*xs: Any) -> Any:
            given, named = list(own), dict(kwargs)
            for place, x in zip(places, xs, strict=True):
                _holder(place, given, named)[place] = x
            return f(*given, **named)

        xs = [_holder(k, own, kwargs)[k] for k in places]
        value, moved, pullback, aux = both_ways(of_chosen, xs, vectors, self.has_aux)
        if not any(map(is_differentiable, flatten(value)[0])):
            raise GradientError(
                f"gauss_newton_vp: {describe(f)} returned no floats, and there is no derivative of "
                "anything else. Is a return missing?"
            )
        if self.loss is not None:
            if inspect.ismethod(self.loss) and (observer := following.observer) is not None:
                observer.reads.use_once(self.loss.__qualname__)  # the object isn't passed
            moved = hvp(self.loss)(value, moved)
        found = pullback(moved)
        product = found if several else found[0]
        return (product, aux) if self.has_aux else product


def _holder(place: int | str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return kwargs if isinstance(place, str) else args


def _place(f: Function, args: list[Any], kwargs: dict[str, Any], argnum: Any) -> int | str:
    """Where an argument is: its number among the positional ones, or its name."""
    if isinstance(argnum, str):
        if argnum in kwargs:
            return argnum
        names = list(inspect.signature(f).parameters)
        if argnum not in names:
            raise ArgumentError(
                f"gauss_newton_vp of {describe(f)}: argnums names {argnum!r}, and {describe(f)} "
                f"has no such argument. Its arguments are {', '.join(names)}"
            )
        argnum = names.index(argnum)
    if not -len(args) <= argnum < len(args):
        raise ArgumentError(
            f"gauss_newton_vp: there is no argument {argnum} among the {len(args)} that are passed "
            "before the vector"
        )
    return int(argnum) % len(args)
