"""What JAX and HIPS autograd call it: names and options of theirs that are none of tapegrad's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])

_NAMES = {
    "egrad deriv": "elementwise_grad",
    "make_jvp": "jvp, which is called with the point: value, tangent = tapegrad.jvp(f, (x,), (t,))",
    "make_hvp hessian_vector_product hessian_tensor_product": "hvp: tapegrad.hvp(f)(x, v)",
    "tensor_jacobian_product vector_jacobian_product": "vjp: tapegrad.vjp(f, x)[1](ct)",
    "holomorphic_grad": "jacobian(f, holomorphic=True)",
    "pmap shard_map": "vmap, on this machine's cores",
    "make_vjp": "vjp, which is called with the point: value, pullback = tapegrad.vjp(f, x)",
    "value_and_grad_fun": "value_and_grad",
    "grad_and_aux": "grad(f, has_aux=True)",
    "custom_vjp custom_gradient defvjp_argnum defvjp_argnums": "primitive and defvjp, or Function",
    "custom_jvp defjvp_argnum defjvp_argnums def_linear": "primitive and defjvp, or Function",
    "remat": "checkpoint; grad(f, checkpoint=...) says what loops keep",
    "check_grads check_vjp test_util": "gradcheck",
    "make_jaxpr": "trace(f, *args), whose second result is the tape",
    "implicit_diff custom_linear_solve": "custom_root and custom_fixed_point",
    "fori_loop": "range, in a for statement, or scan",
    "lax": "cond, scan, map and while_loop, which are tapegrad's own; else plain NumPy",
    "tree_util register_pytree_node register_pytree_node_class": "register_tree",
    "set_mesh clear_caches": "clear_cache",
    "extend": "primitive and defvjp",
    "multigrad_dict": "grad(f), of a dict as the argument",
}
_MISSING = {
    "tree_map": "Gradients mirror nested arguments, so plain Python goes through both",
    "nn": "Layers are plain functions of arrays",
    "device_put device_get block_until_ready devices Array": (
        "Leave it out: results are NumPy's arrays, on the CPU"
    ),
    "config debug experimental": "Python's own tools work on traced functions",
}
_OPTIONS = {
    "argnum": "It is called argnums, which is a number or a name, or a tuple of such",
    "argnames": "argnums takes names too",
    "static_argnums static_argnames nondiff_argnums": (
        "Nothing needs declaring: an argument that holds no arrays and no floats is static by "
        "itself, and arguments are differentiated with respect to by argnums alone"
    ),
    "holomorphic": "It is an option of jacobian; and vjp(f, z)[1](1.0) is f'(z)",
    "allow_int": "Integers have no derivative: pass floats, x.astype(float)",
    "donate_argnums donate_argnames": "Leave it out: arguments are never written to",
    "modes order": "Leave it out: gradcheck(f, *args) checks the derivative that there is",
    "backend device inline keep_unused in_shardings out_shardings": (
        "Leave it out: compiled code runs on this machine's CPU"
    ),
    "in_axes out_axes": "They are options of vmap",
    "nopython parallel fastmath cache": "Leave it out: what is compiled is kept on disk by itself",
    "fullgraph dynamic mode": "Leave it out",
}


def _advice(table: dict[str, str], name: str) -> str:
    return next((advice for names, advice in table.items() if name in names.split()), "")


def missing(name: str) -> str:
    """What an AttributeError says after `module 'tapegrad' has no attribute ...`."""
    here = _advice(_NAMES, name)
    if here:
        return f". What JAX or HIPS autograd call so is here {here}"
    instead = _advice(_MISSING, name)
    return f". That of JAX or HIPS autograd isn't here. {instead}" if instead else ""


def explained(function: _F) -> _F:
    """A public function that makes derivatives of functions: its error for an option that it hasn't
    says what to do instead."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:  # of an option that it hasn't, or another one
            for name in kwargs:
                advice = "" if name in known else _advice(_OPTIONS, name)
                if advice:
                    raise TypeError(
                        f"{function.__name__}() got an unexpected keyword argument {name!r}. "
                        f"{advice}"
                    ) from None
            raise

    vars(called)["derives"] = True  # for who observes a function in which it is called

    return cast(_F, called)
