"""The public functions: they check arguments and call the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError
from tapegrad.ir.tape import Tape
from tapegrad.runtime.derived import CacheInfo, Derived, Recipe, all_derived, derived

Function = Callable[..., Any]


def _derive(f: Any, recipe: Recipe, compile: str) -> Any:
    if f is None:
        return lambda g: derived(g, recipe, compile)
    return derived(f, recipe, compile)


def _checked(argnums: int | Sequence[int]) -> int | tuple[int, ...]:
    if isinstance(argnums, (int, np.integer)) and not isinstance(argnums, bool):
        return int(argnums)
    if isinstance(argnums, (tuple, list)) and all(isinstance(a, (int, np.integer)) for a in argnums):
        return tuple(int(a) for a in argnums)
    raise ArgumentError(f"argnums is an integer or a tuple of integers, not {argnums!r}")


def grad(
    f: Function | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    compile: str = "auto",
) -> Any:
    """The gradient of a scalar function of arrays, as a function of the same arguments.

    `grad(f)(x, ...)` is df/dx, with the structure of `x`: an array for an array, a dict of arrays
    for a dict, and so on through lists, tuples, named tuples and dataclasses. Shapes and dtypes are
    those of the arguments.

    Parameters
    ----------
    f : a function written with NumPy that returns a real scalar. Works as a decorator too.
    argnums : the positional argument to differentiate with respect to; a tuple of them gives a
        tuple of gradients.
    has_aux : `f` returns `(value, aux)`; the result is then `(gradient, aux)`.
    compile : "auto" plays the tape with NumPy until compiling pays, "always" compiles at the first
        call, "never" only plays.

    Raises
    ------
    ArgumentError : an argument can't be differentiated (integers, strings, objects).
    GradientError : the result isn't a real scalar, or a primitive has no rule.
    TraceError : the function did what a trace can't follow; the message names the line.

    At kinks (`abs` and `norm` at 0, ties of `max`, bounds of `clip`) the result is a documented
    convention; see docs/conventions.md.
    """
    return _derive(f, Recipe("grad", _checked(argnums), has_aux), compile)


def value_and_grad(
    f: Function | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    compile: str = "auto",
) -> Any:
    """Like `grad`, with the function's value: returns `(value, gradient)`.

    With `has_aux` the result is `((value, aux), gradient)`. The value costs nothing extra, since
    the gradient needs it on the way.
    """
    return _derive(f, Recipe("value_and_grad", _checked(argnums), has_aux), compile)


def jit(f: Function | None = None, *, compile: str = "auto") -> Any:
    """The function itself, traced, optimised and compiled, without derivative."""
    return _derive(f, Recipe("jit"), compile)


def trace(f: Function, *args: Any, **kwargs: Any) -> tuple[Any, Tape]:
    """Run `f` once and return `(value, tape)`: its result, and the tape of what it did.

    The tape's inputs are the arrays and numbers among the arguments, then the arrays that `f`
    reached without being passed them.
    """
    from tapegrad.signature import check_leaf, leaf_names
    from tapegrad.tracing.run import trace_function
    from tapegrad.trees import flatten

    names, words = leaf_names(f, args, kwargs)
    for leaf, word in zip(flatten((args, kwargs))[0], words, strict=True):
        check_leaf(leaf, f"trace: {word}")
    traced = trace_function(f, args, kwargs, names)
    return traced.rebuild(_output_values(traced)), traced.bound_tape()


def _output_values(traced: Any) -> list[Any]:
    values: list[Any] = [None] * len(traced.tape.outputs)
    for at, leaf in zip(traced.outputs, traced.leaves, strict=True):
        if at is not None:
            values[at] = leaf
    return values


def vjp(f: Function, *args: Any) -> tuple[Any, Function]:
    """The value of `f(*args)`, and its pullback at these arguments.

    `pullback(ct)` takes a cotangent with the structure and shapes of the value and returns a tuple
    with a cotangent for each argument: ct^T J. Integer arguments get None.
    """
    from tapegrad.runtime.pullback import vjp as run

    return run(f, args)


def cache_info(f: Any = None) -> CacheInfo:
    """Counts of hits, misses, traces and compiles: of one derived function, or of all together."""
    if isinstance(f, Derived):
        return f.cache_info()
    infos = [d.cache_info() for d in all_derived() if f is None or d.f is f]
    return CacheInfo(*[sum(column) for column in zip(*infos, strict=True)] or [0] * 6)


def clear_cache(f: Any = None) -> None:
    """Forget tapes and compiled code: of one derived function, or of all."""
    for d in [f] if isinstance(f, Derived) else all_derived():
        if f is None or d is f or d.f is f:
            d.clear_cache()


def stop_gradient(x: Any) -> Any:
    """`x` itself, as a constant for derivatives: its cotangent goes no further.

    Takes arrays, numbers, and nested structures of them.
    """
    from tapegrad.primitives import elementwise
    from tapegrad.tracing.tracer import Tracer
    from tapegrad.trees import flatten, unflatten

    leaves, structure = flatten(x)
    stopped = [elementwise.stop_gradient(v) if isinstance(v, Tracer) else v for v in leaves]
    return unflatten(structure, stopped)


