"""What JAX, HIPS autograd and PyTorch call it: names and options of theirs that are none of
tapegrad's."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from tapegrad.core.frames import shorten

_F = TypeVar("_F", bound=Callable[..., Any])

_NAMES = {
    "egrad deriv": "elementwise_grad",
    "make_jvp make_jvp_reversemode jacobian_vector_product": (
        "jvp, which is called with the point: value, tangent = tapegrad.jvp(f, (x,), (t,))"
    ),
    "make_hvp hessian_vector_product hessian_tensor_product vhp": "hvp: tapegrad.hvp(f)(x, v)",
    "tensor_jacobian_product vector_jacobian_product": "vjp: tapegrad.vjp(f, x)[1](ct)",
    "holomorphic_grad": "jacobian(f, holomorphic=True)",
    "pmap shard_map": "vmap, on this machine's cores",
    "make_vjp": "vjp, which is called with the point: value, pullback = tapegrad.vjp(f, x)",
    "value_and_grad_fun grad_and_value": "value_and_grad",
    "grad_named": "grad(f, argnums='name')",
    "make_ggnvp": "gauss_newton_vp",
    "linear_transpose fwd_and_bwd": "vjp: value, pullback = tapegrad.vjp(f, x)",
    "grad_and_aux": "grad(f, has_aux=True)",
    "defgrad defgrads defvjps": "defvjp",
    "pure_callback io_callback custom_op notrace_primitive register_notrace": (
        "primitive: a function that NumPy calls at each call"
    ),
    "no_grad detach inference_mode set_grad_enabled enable_grad": "stop_gradient(x)",
    "flatten_util flatten_func flatten ravel_pytree": "tapegrad.trees.flatten",
    "tree": "tapegrad.trees",
    "vspace VSpace Box Node Tracer forward_ad func functional": (
        "grad and its like; programs of HIPS autograd's import tapegrad.autograd"
    ),
    "gradgradcheck": "gradcheck(grad(f), x)",
    "disable_jit": "the option compile='never'",
    "log_compiles": "the variable of the environment TAPEGRAD_LOG=compile",
    "custom_vjp custom_gradient custom_derivatives defvjp_argnum defvjp_argnums": (
        "primitive and defvjp, or Function"
    ),
    "custom_jvp defjvp_argnum defjvp_argnums def_linear": "primitive and defjvp, or Function",
    "remat": "checkpoint; grad(f, checkpoint=...) says what loops keep",
    "check_grads check_vjp test_util": "gradcheck",
    "ShapeDtypeStruct": "ShapeDtype",
    "make_jaxpr": "trace(f, *args), whose second result is the tape",
    "implicit_diff custom_linear_solve": "custom_root and custom_fixed_point",
    "fori_loop": "range, in a for statement, or scan",
    "associative_scan": "scan",
    "switch": "Python's own if and match, or cond",
    "lax": "cond, scan, map and while_loop, which are tapegrad's own; else plain NumPy",
    "tree_util": "tapegrad.trees",
    "register_pytree_node register_pytree_node_class": "register_tree",
    "set_mesh clear_caches": "clear_cache",
    "extend": "primitive and defvjp",
    "multigrad_dict": "grad(f), of a dict as the argument",
}
_MISSING = {
    """device_put device_get block_until_ready devices Array Device default_device default_backend
    device_count local_devices local_device_count process_count process_index live_arrays sharding
    NamedSharding P make_mesh distributed Tensor tensor Variable from_numpy
    effects_barrier enable_x64 transfer_guard dlpack copy_to_host_async device_put_sharded
    device_put_replicated host_count host_id with_sharding_constraint optimization_barrier
    numpy_dtype_promotion numpy_rank_promotion default_matmul_precision""": (
        "Leave it out: arguments and results are NumPy's arrays, on the CPU, with NumPy's dtypes"
    ),
    """config debug experimental profiler debug_nans debug_infs checking_leaks check_tracer_leaks
    named_scope named_call detect_anomaly set_detect_anomaly hooks""": (
        "Python's own tools work on traced functions"
    ),
    """backward requires_grad requires_grad_ zero_grad retain_grad is_grad_enabled functional_call
    stack_module_state""": (
        "Nothing is accumulated: grad(f) is a function of the parameters, which returns gradients"
    ),
    "psum pmean pmax pmin ppermute all_gather all_to_all axis_index": (
        "One process has all rows: np.sum and its like go along their axis"
    ),
    """dynamic_slice dynamic_update_slice dynamic_index_in_dim dynamic_update_index_in_dim
    dynamic_slice_in_dim slice_in_dim index_in_dim gather scatter scatter_add index_update""": (
        "Plain NumPy reads and writes, x[i : i + n] and x[at] += y"
    ),
    "dot_general batch_matmul conv_general_dilated conv reduce_window": (
        "np.einsum, scipy.signal.convolve and np.lib.stride_tricks.sliding_window_view are followed"
    ),
    "erf erfc erf_inv lgamma digamma igamma igammac bessel_i0e logistic expit logsumexp": (
        "scipy.special's functions are followed"
    ),
    "clamp top_k rsqrt iota broadcasted_iota cummax cummin select_n": (
        "np.clip, np.argsort, np.arange, np.maximum.accumulate and np.where are followed"
    ),
    """functionalize once_differentiable mark_dirty save_for_backward saved_tensors_hooks
    closure_convert ensure_compile_time_eval custom_batching""": (
        "Nothing of the kind is needed: writes in place and what a function reaches are followed"
    ),
    "export xla_computation": "standalone(f, *args).save(path) writes a program",
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
        return f". What JAX, HIPS autograd or PyTorch call so is here {here}"
    instead = _advice(_MISSING, name)
    if instead:
        return f". That of JAX, HIPS autograd or PyTorch isn't here. {instead}"
    if name[:1] != "_" and hasattr(builtins, name):
        return f". Python's own {name} will do: traced values are what it says they are"
    return f". Functions of NumPy's are followed: np.{name}" if name in np.__all__ else ""


def explained(function: _F) -> _F:
    """A public function that makes derivatives of functions: its error for an option that it hasn't
    says what to do instead."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            for name in kwargs if isinstance(error, TypeError) else ():
                advice = "" if name in known else _advice(_OPTIONS, name)
                if advice:
                    raise TypeError(
                        f"{function.__name__}() got an unexpected keyword argument {name!r}. "
                        f"{advice}"
                    ) from None
            shorten(error)
            raise

    vars(called)["derives"] = True  # for who observes a function in which it is called

    return cast(_F, called)
