"""Functions that are written with NumPy, in programs of JAX.

    from tapegrad.jax import as_jax

    log_density = as_jax(f)
    jax.jit(jax.value_and_grad(log_density))(theta)

JAX calls them back on the CPU, as tapegrad compiles them, and gets derivatives from there. This
module needs JAX, and tapegrad doesn't.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

try:
    import jax
except ImportError as error:
    raise ImportError("tapegrad.jax needs JAX: pip install jax") from error

from tapegrad.core.arrays import is_half
from tapegrad.core.request import describe
from tapegrad.errors import ArgumentError
from tapegrad.flat import Call, Flattened, is_array, is_real

__all__ = ["as_jax"]


def __dir__() -> list[str]:
    return __all__


def as_jax(f: Callable[..., Any], *, compile: str = "auto") -> Callable[..., Any]:
    """A function written with NumPy as one of JAX's arrays.

        def log_density(theta, data):
            return -0.5 * np.sum((data - theta["mean"]) ** 2)

        jax.jit(jax.grad(as_jax(log_density)))({"mean": jnp.ones(3)}, data)

    It works under `jax.jit`, under `jax.grad` and JAX's other reverse-mode transformations, of any
    order, and under `jax.vmap`, which `tapegrad.vmap` answers with one call for all rows. JAX calls
    it by `jax.pure_callback`, with derivatives by `jax.custom_vjp`. So JAX refuses forward mode
    (`jax.jvp`, `jax.jacfwd`, `jax.hessian`): `jax.jacrev(jax.grad(f))` is the Hessian.

    What `f` returns has the shapes and dtypes that `tapegrad.eval_shape` finds for its arguments'.
    Without JAX's option `jax_enable_x64`, what would be float64 is computed so, and then rounded.

    Parameters
    ----------
    f : a function written with NumPy. JAX takes it for pure: it may be called when and as often
        as JAX decides.
    compile : "auto", "always" or "never", as in `grad`.

    Returns
    -------
    A function of arrays of JAX's, NumPy's arrays, numbers, and trees of such. What isn't an array
    is passed as it is. Its value has the structure of that of `f`, with JAX's arrays in it.

    Raises
    ------
    ArgumentError : `f` isn't a function, or an array is of a dtype that tapegrad doesn't have.
    """
    if not callable(f):
        raise ArgumentError(f"as_jax needs a function, not {f!r}")
    flattened = Flattened(f, compile)

    @functools.wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        flat, leaves = flattened.of(args, kwargs)
        places = tuple([k for k, x in enumerate(leaves) if is_array(x)])
        arrays = [jax.numpy.asarray(leaves[k]) for k in places]
        for x in arrays:
            is_key = jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)
            if is_key or (x.dtype not in _DTYPES and not is_half(x.dtype)):
                raise ArgumentError(
                    f"as_jax of {describe(f)}: an array of {x.dtype}, which tapegrad doesn't have. "
                    f"Pass {'jax.random.key_data(x)' if is_key else 'x.astype(jnp.float32)'}"
                )
        call = Call(flat, places, tuple([None if is_array(x) else x for x in leaves]))
        return call.result(map(_type, arrays)).rebuilt(_applied(call, *arrays))

    return called


_DTYPES = [np.dtype(x) for x in "?bhilqBHILQfdFD"]


def _type(x: Any) -> Any:
    """The shape and the dtype of an array, as JAX has it."""
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))


@dataclass(frozen=True)
class _Callback:
    """What JAX calls, with arrays that may have axes of rows before their own."""

    call: Call
    ndims: tuple[int, ...]
    types: tuple[Any, ...]

    def __call__(self, *given: Any) -> Any:
        call, flat = self.call, self.call.flat
        arrays = [np.asarray(x) for x in given]
        fronts = [x.shape[: x.ndim - n] for x, n in zip(arrays, self.ndims, strict=True)]
        rows = np.broadcast_shapes(*fronts)
        for depth in reversed(range(len(rows))):
            axes: list[int | None] = [None for _ in call.others]
            for k, front in zip(call.places, fronts, strict=True):
                axes[k] = 0 if front[depth] == rows[depth] else None
            flat = flat.rows(axes)
        for k, front in enumerate(fronts):  # what is the same for all rows has axes of length 1
            own = [n for n, m in zip(front, rows, strict=True) if n == m]
            arrays[k] = arrays[k].reshape([*own, *arrays[k].shape[len(front) :]])
        found = flat.arrays(call.whole(arrays))
        for x, known in zip(found, self.types, strict=True):
            if x.shape != (*rows, *known.shape):
                raise ArgumentError(
                    f"{flat.f.__name__} returned an array of shape {x.shape[len(rows) :]}, and "
                    f"one of {known.shape} when JAX asked for its shape. The shapes of what JAX "
                    "calls depend on those of its arguments alone"
                )
        return tuple(
            [x.astype(t.dtype, copy=False) for x, t in zip(found, self.types, strict=True)]
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _applied(call: Call, *arrays: Any) -> Any:
    types = tuple([_type(x) for x in call.result(map(_type, arrays)).types])
    back = _Callback(call, tuple([x.ndim for x in arrays]), types)
    return jax.pure_callback(back, types, *arrays, vmap_method="expand_dims")


def _forward(call: Call, *given: Any) -> Any:
    """The value, and what finds the cotangents of the arrays that have one."""
    arrays = [x.value for x in given]
    wanted = tuple([k for k, x in enumerate(given) if x.perturbed and is_real(x.value)])
    if call.result(map(_type, arrays)).is_real_number:  # one call finds both
        value, *gradients = _applied(call.with_gradients(wanted), *arrays)
        return (value,), jax.tree_util.Partial(_Scaled(wanted), *gradients)
    return _applied(call, *arrays), jax.tree_util.Partial(_Pulled(call, wanted), *arrays)


def _backward(call: Call, pull: Any, cts: Any) -> Any:
    zero = jax.custom_derivatives.SymbolicZero
    known = [jax.numpy.zeros(x.shape, x.dtype) if isinstance(x, zero) else x for x in cts]
    found = pull(cts=[ct for ct in known if is_real(ct)])
    result: list[Any] = [None for _ in call.places]
    for k, x in zip(pull.func.wanted, found, strict=True):
        result[k] = x
    return tuple(result)


_applied.defvjp(_forward, _backward, symbolic_zeros=True)


@dataclass(frozen=True)
class _Scaled:
    """Gradients times the cotangent of a number."""

    wanted: tuple[int, ...]

    def __call__(self, *gradients: Any, cts: Any) -> Any:
        return [cts[0].astype(x.dtype) * x for x in gradients]


@dataclass(frozen=True)
class _Pulled:
    """Cotangents of arrays, for cotangents of a value."""

    call: Call
    wanted: tuple[int, ...]

    def __call__(self, *arrays: Any, cts: Any) -> Any:
        found = _applied(self.call.pulled(self.wanted, len(cts)), *arrays, *cts)
        return [x.astype(arrays[k].dtype) for k, x in zip(self.wanted, found, strict=True)]
