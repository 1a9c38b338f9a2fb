"""HIPS autograd's transformations, with its names, arguments and results.

Each is one of tapegrad's under another name. A function that is applied before the transformation,
such as the real part, is made a method of the user's function: the derivative is cached with that.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np

from tapegrad import api, derivatives, loops, series
from tapegrad.autograd.core import (
    linearized,
    pullback,
    pushforward,
)
from tapegrad.autograd.derived import Argnum, as_floats, places, taking_integers
from tapegrad.autograd.vspace import vspace
from tapegrad.core.trees import flatten, unflatten
from tapegrad.errors import GradientError

Function = Callable[..., Any]


def _derived(
    how: Function, fun: Function, argnum: Argnum, of_objects: Any = None, **options: Any
) -> Any:
    argnum = tuple(argnum) if isinstance(argnum, list) else argnum
    return taking_integers(how(fun, argnum, **options), argnum, of_objects)


# ---- for objects with a VSpace: from the pullback and the value


def _gradient(pull: Function, value: Any) -> Any:
    space = vspace(value)
    if getattr(space, "size", None) != 1:
        raise GradientError(
            f"grad: the value is of {space}, but grad needs a real scalar. Sum it, or use make_vjp"
        )
    return pull(space.ones())


def _with_value(pull: Function, value: Any) -> Any:
    return value, _gradient(pull, value)


def _with_aux(pull: Function, value: Any) -> Any:
    y, aux = value
    return _gradient(lambda ct: pull((ct, _nothing(aux))), y), aux


def _nothing(value: Any) -> Any:
    leaves, structure = flatten(value)
    return unflatten(structure, [None] * len(leaves))


def _of_all(pull: Function, value: Any) -> Any:
    return pull(vspace(value).ones())


def grad(fun: Function, argnum: Argnum = 0) -> Any:
    """The gradient of a scalar function with respect to argument `argnum`; of several, in a tuple,
    for a list or tuple of numbers. See `tapegrad.grad`."""
    return _derived(api.grad, fun, argnum, _gradient)


def value_and_grad(fun: Function, argnum: Argnum = 0) -> Any:
    """The value and the gradient, in one pass. See `tapegrad.value_and_grad`."""
    return _derived(api.value_and_grad, fun, argnum, _with_value)


def grad_and_aux(fun: Function, argnum: Argnum = 0) -> Any:
    """For a function that returns `(value, aux)`: `(gradient, aux)`."""
    return _derived(api.grad, fun, argnum, _with_aux, has_aux=True)


def grad_named(fun: Function, argname: str) -> Any:
    """The gradient with respect to the argument of this name."""
    return api.grad(fun, argname)


def elementwise_grad(fun: Function, argnum: Argnum = 0) -> Any:
    """The gradient of the sum of all elements of the value: if each of them depends on one element
    of the argument, the derivative of each. See `tapegrad.elementwise_grad`."""
    return _derived(derivatives.elementwise_grad, fun, argnum, _of_all)


def jacobian(fun: Function, argnum: Argnum = 0) -> Any:
    """The Jacobian, of shape (*value's, *argument's). See `tapegrad.jacobian`."""
    return _derived(derivatives.jacobian, fun, argnum)


def hessian(fun: Function, argnum: Argnum = 0) -> Any:
    """The Jacobian of the Jacobian: for a scalar function, the Hessian."""
    return jacobian(jacobian(fun, argnum), argnum)


def holomorphic_grad(fun: Function, argnum: int = 0) -> Any:
    """The complex derivative of a holomorphic function: the gradient of its real part."""
    derived = _derived(api.grad, MethodType(_real_part, fun), argnum)

    def holomorphic(*args: Any, **kwargs: Any) -> Any:
        if not np.iscomplexobj(args[argnum]):
            warnings.warn("Input to holomorphic_grad is not complex", stacklevel=2)
        return derived(*args, **kwargs)

    return holomorphic


def _real_part(fun: Function, *args: Any, **kwargs: Any) -> Any:
    return np.real(fun(*args, **kwargs))


def deriv(fun: Function, argnum: Argnum = 0) -> Any:
    """The derivative along ones, by forward mode: for a function of a number, its derivative."""

    def derivative(*args: Any, **kwargs: Any) -> Any:
        x = args[argnum] if isinstance(argnum, int) else tuple([args[k] for k in argnum])
        return pushforward(fun, argnum, args, kwargs, vspace(x).ones())[1]

    return derivative


# ---- at a point


def make_vjp(fun: Function, argnum: Argnum = 0) -> Any:
    """`make_vjp(fun)(*args)` is `(vjp, value)`: vjp(g) is the cotangent of the argument for the
    cotangent g of the value."""
    return lambda *args, **kwargs: pullback(fun, argnum, args, kwargs)


def make_jvp(fun: Function, argnum: Argnum = 0) -> Any:
    """`make_jvp(fun)(*args)` is a function of a tangent v of the argument. It returns the value and
    J v."""

    def at(*args: Any, **kwargs: Any) -> Any:
        return lambda v: pushforward(fun, argnum, args, kwargs, v)

    return at


def make_jvp_reversemode(fun: Function, argnum: Argnum = 0) -> Any:
    """`make_jvp_reversemode(fun)(*args)` is the function v -> J v. Everything that doesn't depend
    on v is computed once."""
    return lambda *args, **kwargs: linearized(fun, argnum, args, kwargs)[0]


def make_hvp(fun: Function, argnum: Argnum = 0) -> Any:
    """`make_hvp(fun)(*args)` is `(hvp, gradient)`: hvp(v) is the product of the Hessian with v."""
    gradient = grad(fun, argnum)
    return lambda *args, **kwargs: linearized(gradient, argnum, args, kwargs)


def make_ggnvp(f: Function, g: Function | None = None, f_argnum: Argnum = 0) -> Any:
    """`make_ggnvp(f, g)(*args)` is the function v -> J^T H J v, with J the Jacobian of f and H the
    Hessian of g at f's value. Without g, it is half the sum of squares. See
    `tapegrad.gauss_newton_vp`."""
    argnums = f_argnum if isinstance(f_argnum, int) else tuple(f_argnum)
    product = series.gauss_newton_vp(f, g, argnums)

    def at(*args: Any, **kwargs: Any) -> Any:
        floats = as_floats(args, places(f_argnum))
        return lambda v: product(*floats, v, **kwargs)

    return at


# ---- products


def hessian_tensor_product(fun: Function, argnum: Argnum = 0) -> Any:
    """A function of the arguments and of a tensor of the argument's shape, which comes last: the
    product of the Hessian with the tensor. See `tapegrad.hvp`."""
    return _derived(derivatives.hvp, fun, argnum)


def tensor_jacobian_product(fun: Function, argnum: Argnum = 0) -> Any:
    """A function of the arguments and of a tensor, which comes last, with the value's leading axes:
    the tensor contracted with the Jacobian over these axes."""
    return jacobian(MethodType(_contracted, fun), argnum)


def _contracted(fun: Function, *args: Any, **kwargs: Any) -> Any:
    *own, tensor = args
    return np.tensordot(tensor, fun(*own, **kwargs), axes=np.ndim(tensor))


hessian_vector_product = hessian_tensor_product
vector_jacobian_product = tensor_jacobian_product


# ---- other forms


def multigrad_dict(fun: Function) -> Any:
    """The gradient with respect to all arguments, as a dict by their names. The names of `*args`
    and `**kwargs` have a tuple and a dict."""
    signature = inspect.signature(fun)
    gradient = api.grad(MethodType(_of_named, fun))

    def derived(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return gradient(dict(bound.arguments))

    return derived


def _of_named(fun: Function, arguments: dict[str, Any]) -> Any:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for p in inspect.signature(fun).parameters.values():
        value = arguments[p.name]
        if p.kind is p.VAR_POSITIONAL:
            args += value
        elif p.kind is p.VAR_KEYWORD:
            kwargs.update(value)
        elif p.kind is p.KEYWORD_ONLY:
            kwargs[p.name] = value
        else:
            args.append(value)
    return fun(*args, **kwargs)


def checkpoint(fun: Function) -> Any:
    """The function, whose intermediate values aren't kept for the derivative but computed again.
    See `tapegrad.checkpoint`."""
    return loops.checkpoint(fun)
