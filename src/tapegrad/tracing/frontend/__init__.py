"""NumPy's functions on traced arrays: the table from function to implementation.

The front end is generous, as NumPy is: it normalises axes, keeps dimensions, promotes dtypes and
handles 0-d and 1-d cases, so that primitives can be strict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.tracing.frontend import (
    contracting,
    indexing,
    joining,
    misc,
    reducing,
    scattering,
    shaping,
)
from tapegrad.tracing.source import at_line

FUNCTIONS: dict[Any, Callable[..., Any]] = {
    # shapes and axes
    np.reshape: shaping.reshape,
    np.ravel: shaping.ravel,
    np.transpose: shaping.transpose,
    np.permute_dims: shaping.transpose,
    np.matrix_transpose: lambda x: shaping.swapaxes(x, -1, -2),
    np.swapaxes: shaping.swapaxes,
    np.moveaxis: shaping.moveaxis,
    np.rollaxis: shaping.rollaxis,
    np.squeeze: shaping.squeeze,
    np.expand_dims: shaping.expand_dims,
    np.atleast_1d: shaping.atleast_1d,
    np.atleast_2d: shaping.atleast_2d,
    np.atleast_3d: shaping.atleast_3d,
    np.broadcast_to: shaping.broadcast_to,
    np.broadcast_arrays: shaping.broadcast_arrays,
    np.flip: shaping.flip,
    np.fliplr: lambda m: shaping.flip(m, 1),
    np.flipud: lambda m: shaping.flip(m, 0),
    np.rot90: shaping.rot90,
    np.roll: shaping.roll,
    np.tile: shaping.tile,
    np.repeat: shaping.repeat,
    np.pad: shaping.pad,
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
    np.copy: shaping.copy,
    np.astype: shaping.astype,
    np.zeros_like: shaping.zeros_like,
    np.ones_like: shaping.ones_like,
    np.empty_like: shaping.zeros_like,
    np.full_like: shaping.full_like,
    np.real: lambda x: x,
    np.iscomplexobj: lambda x: False,
    np.isrealobj: lambda x: True,
    np.result_type: lambda *xs: np.result_type(*[getattr(x, "dtype", x) for x in xs]),
    np.can_cast: lambda a, to, casting="safe": np.can_cast(getattr(a, "dtype", a), to, casting),
    # matrices
    np.diag: shaping.diag,
    np.diagflat: shaping.diagflat,
    np.diagonal: shaping.diagonal,
    np.trace: shaping.trace,
    np.tril: shaping.tril,
    np.triu: shaping.triu,
    # joining and splitting
    np.concatenate: joining.concatenate,
    np.stack: joining.stack,
    np.vstack: joining.vstack,
    np.hstack: joining.hstack,
    np.dstack: joining.dstack,
    np.column_stack: joining.column_stack,
    np.append: joining.append,
    np.split: joining.split,
    np.array_split: joining.array_split,
    np.vsplit: joining.vsplit,
    np.hsplit: joining.hsplit,
    np.dsplit: joining.dsplit,
    # reductions
    np.sum: reducing.sum,
    np.prod: reducing.prod,
    np.mean: reducing.mean,
    np.average: reducing.average,
    np.var: reducing.var,
    np.std: reducing.std,
    np.max: reducing.max,
    np.amax: reducing.max,
    np.min: reducing.min,
    np.amin: reducing.min,
    np.ptp: reducing.ptp,
    np.any: reducing.any,
    np.all: reducing.all,
    np.argmax: reducing.argmax,
    np.argmin: reducing.argmin,
    np.count_nonzero: reducing.count_nonzero,
    np.cumsum: reducing.cumsum,
    np.cumprod: reducing.cumprod,
    np.diff: reducing.diff,
    # contractions
    np.dot: contracting.dot,
    np.vdot: contracting.vdot,
    np.inner: contracting.inner,
    np.outer: contracting.outer,
    np.tensordot: contracting.tensordot,
    np.einsum: contracting.einsum,
    np.kron: contracting.kron,
    np.cross: contracting.cross,
    np.linalg.norm: misc.norm,
    # indexing and writing
    np.take: indexing.take,
    np.take_along_axis: indexing.take_along_axis,
    np.put_along_axis: indexing.put_along_axis,
    np.nonzero: misc.nonzero,
    np.flatnonzero: misc.flatnonzero,
    np.copyto: scattering.copyto,
    np.put: scattering.put,
    # elementwise and composed
    np.where: misc.where,
    np.clip: misc.clip,
    np.round: misc.round_,
    np.around: misc.round_,
    np.fix: misc.fix,
    np.isclose: misc.isclose,
    np.allclose: misc.allclose,
    np.array_equal: misc.array_equal,
    np.nan_to_num: misc.nan_to_num,
    np.select: misc.select,
    np.sinc: misc.sinc,
    np.trapezoid: misc.trapezoid,
    np.meshgrid: misc.meshgrid,
}


def call_function(func: Any, args: Any, kwargs: Any) -> Any:
    """What NumPy calls for a function of its own with a tracer among the arguments."""
    implementation = FUNCTIONS.get(func)
    if implementation is not None:
        return implementation(*args, **kwargs)
    if func in (np.array2string, np.array_repr, np.array_str):
        return str(args[0])
    name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
    raise UnsupportedError(
        f"{name} has no derivative rule in tapegrad{at_line()}. Write it with functions that have "
        "one, or declare it with tapegrad.primitive and defvjp"
    )
