"""The public derivatives besides `grad`: forwards, at a point, whole matrices.

Of a function f with values y of m elements, of arguments x of n elements:

    jvp        J t              one tangent, forwards         1 pass
    vjp        ct^T J           one cotangent, back           1 pass
    linearize  t -> J t         kept at a point               1 pass for each tangent
    jacobian   J, (m, n)        n passes forwards, or m back, in one kernel
    hvp        H v              of a scalar function          1 pass, forwards over back
    hessian    H, (n, n)                                      n passes, forwards over back
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVarTuple, overload

from tapegrad.core.late import LINEAR_MAPS, load
from tapegrad.elsewhere import explained
from tapegrad.errors import ArgumentError
from tapegrad.runtime.argnums import Argnums, checked_argnums
from tapegrad.runtime.checks import checked_checkpoint
from tapegrad.runtime.derived import called, derived
from tapegrad.runtime.directional import HessianProduct, Pushforward
from tapegrad.runtime.jacobians import (
    ElementwiseGradient,
    Hessian,
    Jacobian,
    ValueAndJacobian,
    ValueGradientAndHessian,
)
from tapegrad.typing import Checkpoint, Compile, Pullback, R, X

Function = Callable[..., Any]
Ts = TypeVarTuple("Ts")


# ---- at a point


@overload
def jvp(
    f: Callable[..., R],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: Literal[False] = False,
    *,
    compile: Compile = None,
) -> tuple[R, Any]: ...
@overload
def jvp(
    f: Callable[..., tuple[R, X]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: Literal[True],
    *,
    compile: Compile = None,
) -> tuple[R, Any, X]: ...
@explained
def jvp(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
    *,
    compile: Compile = None,
) -> Any:
    """The value of `f(*primals)`, and its derivative along `tangents`, by forward mode.

    With J the Jacobian of `f`, the second result is J t: how the value changes if the arguments
    move along t. It costs about as much as the value once more, and no memory for the way back.

        >>> jvp(lambda x: x**2, (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),))
        (array([1., 4.]), array([ 2., 40.]))

    Parameters
    ----------
    f : a function written with NumPy. It may return anything.
    primals : a tuple of its positional arguments, nested as you like.
    tangents : a tuple with a tangent of each: its structure and its shapes. None stands for a
        tangent that is 0, and for those of integers and of what isn't an array or a number.
    has_aux : `f` returns `(value, aux)`; aux comes last in the result, without a derivative.
    compile : "auto", "always" or "never", as in `grad`.

    Returns
    -------
    The value, and its tangent, in the structure of the value: None for what isn't real in it.

    Raises
    ------
    ArgumentError : a tangent doesn't fit its argument.
    GradientError : a primitive has no forward rule.
    TraceError : the function did what a trace can't follow; the message names the line.
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(
            "jvp takes a tuple of arguments and a tuple of tangents: jvp(f, (x,), (t,))"
        )
    if len(primals) != len(tangents):
        raise ArgumentError(
            f"jvp: {len(primals)} arguments were passed, and {len(tangents)} tangents. Pass a "
            "tangent for each, None for one that is 0"
        )
    return called(f, _pushforward(len(primals), bool(has_aux)), compile, *primals, *tangents)


_pushforward = functools.lru_cache(Pushforward)  # the same again is found at once


@overload
def linearize(
    f: Callable[..., R], *primals: Any, has_aux: Literal[False] = False, compile: Compile = None
) -> tuple[R, Callable[..., Any]]: ...
@overload
def linearize(
    f: Callable[..., tuple[R, X]], *primals: Any, has_aux: Literal[True], compile: Compile = None
) -> tuple[R, Callable[..., Any], X]: ...
@explained
def linearize(
    f: Callable[..., Any], *primals: Any, has_aux: bool = False, compile: Compile = None
) -> Any:
    """The value of `f(*primals)`, and its derivative there, as a linear function of tangents.

    With J the Jacobian of `f` at the arguments, `f_jvp(*tangents)` is J t, as from `jvp`. What
    doesn't depend on the tangents is computed once and kept, so each call does the linear part
    alone, but for loops: they find what their rounds need anew, so that nothing is kept of each.

        >>> value, f_jvp = linearize(lambda x: x**2, np.array([1.0, 2.0]))
        >>> f_jvp(np.array([1.0, 10.0]))
        array([ 2., 40.])

    Parameters
    ----------
    f : a function written with NumPy. It may return anything.
    primals : its positional arguments, nested as you like.
    has_aux : `f` returns `(value, aux)`; aux comes last in the result, without a derivative.
    compile : "auto", "always" or "never", as in `grad`, for the value and the linear function.

    Returns
    -------
    The value of `f`, and a function of tangents, one for each argument, None for one that is 0.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `jvp` does.
    """
    return load(LINEAR_MAPS).linearize(f, primals, compile, bool(has_aux))


@overload
def vjp(
    f: Callable[[*Ts], R],
    *args: *Ts,
    has_aux: Literal[False] = False,
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> tuple[R, Pullback[*Ts]]: ...
@overload
def vjp(
    f: Callable[[*Ts], tuple[R, X]],
    *args: *Ts,
    has_aux: Literal[True],
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> tuple[R, Pullback[*Ts], X]: ...
@explained
def vjp(
    f: Callable[[*Ts], Any],
    *args: *Ts,
    has_aux: bool = False,
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> Any:
    """The value of `f(*args)`, and its pullback at these arguments.

    With J the Jacobian of `f` there, the pullback is the linear map from a cotangent `ct` of the
    value to ct^T J. It holds what it needs of the arguments, and may be called as often as needed.
    The tapes of both are kept with `f`, and compiled, as those of `grad` are.

        >>> value, pullback = vjp(lambda x: x**2, np.array([1.0, 2.0]))
        >>> pullback(np.array([1.0, 10.0]))
        (array([ 2., 40.]),)

    Parameters
    ----------
    f : a function written with NumPy. It may return anything.
    args : its positional arguments, nested as you like.
    has_aux : `f` returns `(value, aux)`; aux comes last in the result, without a derivative.
    compile : "auto", "always" or "never", as in `grad`, for the value and the pullback.
    checkpoint : what loops keep: "auto", "never", "sqrt" or a number, as in `grad`.

    Returns
    -------
    The value of `f`, and its pullback. `pullback(ct)` takes a cotangent with the structure and the
    shapes of the value (None will do for a result that isn't real) and returns a tuple with a
    cotangent for each argument, None for integers and for what isn't an array or a number.

    Raises
    ------
    ArgumentError : `f` isn't a function, or an argument is an array that can't be traced; from the
        pullback, that the cotangent isn't put together as the value is.
    GradientError : a primitive has no rule.
    TraceError : the function did what a trace can't follow; the message names the line.
    """
    return load(LINEAR_MAPS).vjp(f, args, checked_checkpoint(checkpoint), compile, bool(has_aux))


@explained
def hvp(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> Any:
    """Products of the Hessian of a scalar function with vectors: `hvp(f)(*args, v)` is H v.

    It is the derivative of the gradient along `v`, forward over reverse: about twice the cost of a
    gradient, whatever the number of elements. H is never formed.

        >>> hvp(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.array([1.0, 10.0]))
        array([  6., 120.])

    Parameters
    ----------
    f : a function as `grad` takes it. Works as a decorator too.
    argnums : the argument, by its number or its name, or a tuple of them: then `v` is a tuple, too.
    has_aux : `f` returns `(value, aux)`; the result is then `(product, aux)`.
    compile : "auto", "always" or "never", as in `grad`.
    checkpoint : what loops keep: "auto", "never", "sqrt" or a number, as in `grad`.

    Returns
    -------
    A function of the arguments of `f`, and behind the positional ones the vector, with the
    structure and shapes of the argument; it returns the product, of the same structure.

    Raises
    ------
    ArgumentError : the vector doesn't fit the argument.
    GradientError, TraceError : as `grad` does.
    """
    found = HessianProduct(checked_argnums(argnums), has_aux, checked_checkpoint(checkpoint))
    return derived(f, found, compile)


# ---- matrices


def _jacobian(
    kind: type[Jacobian],
    f: Any,
    argnums: Argnums,
    has_aux: bool,
    mode: str,
    holomorphic: bool,
    compile: Compile,
    checkpoint: Any,
) -> Any:
    if mode not in ("auto", "forward", "reverse"):
        raise ArgumentError(f'mode is "auto", "forward" or "reverse", not {mode!r}')
    kept = checked_checkpoint(checkpoint)
    return derived(f, kind(checked_argnums(argnums), has_aux, kept, mode, holomorphic), compile)


@explained
def jacobian(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    mode: str = "auto",
    holomorphic: bool = False,
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> Any:
    """The Jacobian of a function of arrays: each element of its value by each of its argument's.

        J[i..., j...] = d y[i...] / d x[j...],    J.shape == (*y.shape, *x.shape)

    All passes are rows of one kernel: what they share is computed once, and compiling takes no
    longer for many of them.

        >>> jacobian(lambda x: np.array([x[0] * x[1], x[1]]))(np.array([2.0, 3.0]))
        array([[3., 2.],
               [0., 1.]])

    Parameters
    ----------
    f : a function written with NumPy. It may return arrays nested as you like. Works as a decorator
        too.
    argnums : the argument, by its number or its name, or a tuple of them, as in `grad`.
    has_aux : `f` returns `(value, aux)`; the result is then `(jacobian, aux)`.
    mode : "forward", a pass for each element of the argument; "reverse", one for each element of
        the value; "auto" takes what needs fewer.
    holomorphic : `f` takes complex numbers to complex ones and has a complex derivative, which the
        result is. Of a real value of complex z = x + iy it is dy/dx - i dy/dy, as from `grad`; of a
        complex value of real numbers the derivative of its real part, plus i times that of the
        imaginary one.
    compile : "auto", "always" or "never", as in `grad`.
    checkpoint : what loops keep in reverse mode, as in `grad`.

    Returns
    -------
    A function of the arguments of `f`. Its result has the structure of the value, with that of the
    argument in the place of each leaf: None for leaves that have no derivative.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `grad` does.
    """
    return _jacobian(Jacobian, f, argnums, has_aux, mode, holomorphic, compile, checkpoint)


def jacfwd(
    f: Function | None = None, argnums: Argnums = 0, has_aux: bool = False, **options: Any
) -> Any:
    """The Jacobian by forward mode: `jacobian(f, ..., mode="forward")`.

    Parameters
    ----------
    f, argnums, has_aux, options : as in `jacobian`, but for `mode`.

    Returns
    -------
    A function of the arguments of `f`, as from `jacobian`.
    """
    return jacobian(f, argnums, has_aux, mode="forward", **options)


def jacrev(
    f: Function | None = None, argnums: Argnums = 0, has_aux: bool = False, **options: Any
) -> Any:
    """The Jacobian by reverse mode: `jacobian(f, ..., mode="reverse")`.

    Parameters
    ----------
    f, argnums, has_aux, options : as in `jacobian`, but for `mode`.

    Returns
    -------
    A function of the arguments of `f`, as from `jacobian`.
    """
    return jacobian(f, argnums, has_aux, mode="reverse", **options)


@explained
def value_and_jacobian(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    mode: str = "auto",
    holomorphic: bool = False,
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> Any:
    """Like `jacobian`, with the function's value: returns `(value, jacobian)`, or, with `has_aux`,
    `((value, aux), jacobian)`. The value is computed on the way.

        >>> value_and_jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
        (array([1., 4.]), array([[2., 0.],
               [0., 4.]]))

    Parameters
    ----------
    f, argnums, has_aux, mode, holomorphic, compile, checkpoint : as in `jacobian`.

    Returns
    -------
    A function of the arguments of `f`, as from `jacobian`.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `jacobian` does.
    """
    return _jacobian(ValueAndJacobian, f, argnums, has_aux, mode, holomorphic, compile, checkpoint)


@explained
def elementwise_grad(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> Any:
    """The derivative of each element of a function that takes elements by themselves.

        y[i] = f(x[i])    -->    dy[i] / dx[i]

    It is the gradient of the sum of all elements of the value. Of a function whose elements depend
    on others, it adds up what they have: then `jacobian` tells them apart.

        >>> elementwise_grad(np.sin)(np.array([0.0, np.pi]))
        array([ 1., -1.])

    Parameters
    ----------
    f : a function written with NumPy, of real values. Works as a decorator too.
    argnums : the argument, by its number or its name, or a tuple of them, as in `grad`.
    has_aux : `f` returns `(value, aux)`; the result is then `(derivative, aux)`.
    compile, checkpoint : as in `grad`.

    Returns
    -------
    A function of the arguments of `f`; its result has the structure and shapes of the argument.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `grad` does.
    """
    kept = checked_checkpoint(checkpoint)
    return derived(f, ElementwiseGradient(checked_argnums(argnums), has_aux, kept), compile)


@explained
def hessian(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    holomorphic: bool = False,
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> Any:
    """The second derivatives of a scalar function, by forward over reverse mode.

        H[i..., j...] = d^2 f / (d x[i...] d x[j...]),    H.shape == (*x.shape, *x.shape)

        >>> hessian(lambda x: x[0] ** 2 * x[1])(np.array([2.0, 3.0]))
        array([[6., 4.],
               [4., 0.]])

    Parameters
    ----------
    f : a function as `grad` takes it. Works as a decorator too.
    argnums : the argument, by its number or its name, or a tuple of them.
    has_aux : `f` returns `(value, aux)`; the result is then `(hessian, aux)`.
    holomorphic : `f` takes complex numbers to a complex one and has a complex derivative, whose
        complex derivatives H are. Of a complex value u + iv of real numbers, H is that of u plus
        i times that of v. A real value of complex numbers has no such H: what its gradient changes
        by takes two matrices, A dz + B conj(dz); `hvp` has it along a direction.
    compile, checkpoint : as in `grad`.

    Returns
    -------
    A function of the arguments of `f`. Its result has the structure of the argument, with the same
    structure in the place of each leaf. For a tuple of arguments it is a tuple of tuples.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `grad` does.

    It takes a pass for each element; for products with vectors see `hvp`.
    """
    kept = checked_checkpoint(checkpoint)
    found = Hessian(checked_argnums(argnums), has_aux, kept, holomorphic)
    return derived(f, found, compile)


@explained
def value_grad_and_hessian(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    holomorphic: bool = False,
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> Any:
    """The value, the gradient and the Hessian of a scalar function, computed together: returns
    `(value, gradient, hessian)`. With `has_aux` the value is `(value, aux)`.

        >>> value_grad_and_hessian(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
        (np.float64(9.0), array([ 3., 12.]), array([[ 6.,  0.],
               [ 0., 12.]]))

    Parameters
    ----------
    f, argnums, has_aux, holomorphic, compile, checkpoint : as in `hessian`.

    Returns
    -------
    A function of the arguments of `f`, as from `hessian`.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `grad` does.
    """
    kept = checked_checkpoint(checkpoint)
    found = ValueGradientAndHessian(checked_argnums(argnums), has_aux, kept, holomorphic)
    return derived(f, found, compile)
