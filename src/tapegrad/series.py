"""The public derivatives of higher order: Taylor coefficients, and the Laplacian.

jet          c_0, ..., c_n of t -> f(x + t d)      n^2 / 2 times the value
laplacian    sum of d^2 f / d x_i^2                a pass of order 2 for each element
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tapegrad.elsewhere import explained
from tapegrad.errors import ArgumentError
from tapegrad.runtime.checks import checked_checkpoint
from tapegrad.runtime.chosen import Argnums, checked_argnums
from tapegrad.runtime.derived import Derived
from tapegrad.runtime.taylor import Coefficients, Laplacian
from tapegrad.typing import Compile

Function = Callable[..., Any]


@explained
def jet(f: Function, x: Any, n: int, direction: Any = None, *, compile: Compile = "auto") -> Any:
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
        return Derived(f, Coefficients(1, order, given=False), compile)(x)
    return Derived(f, Coefficients(1, order), compile)(x, direction)


@explained
def laplacian(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    compile: Compile = "auto",
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
