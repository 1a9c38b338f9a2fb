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
    linalg,
    memory,
    misc,
    numerics,
    reducing,
    scattering,
    shaping,
    sorting,
)
from tapegrad.tracing.layout import settle
from tapegrad.tracing.observe.observer import unobserved
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
    np.copy: memory.copy_of,
    np.zeros_like: shaping.zeros_like,
    np.ones_like: shaping.ones_like,
    np.empty_like: shaping.zeros_like,
    np.full_like: shaping.full_like,
    np.real: lambda x: x,
    np.imag: misc.imag,
    np.iscomplexobj: lambda x: False,
    np.isrealobj: lambda x: True,
    np.result_type: lambda *xs: np.result_type(*[getattr(x, "dtype", x) for x in xs]),
    np.can_cast: lambda a, to, casting="safe": np.can_cast(a.dtype, to, casting),
    # matrices
    np.diag: shaping.diag,
    np.diagflat: shaping.diagflat,
    np.diagonal: shaping.diagonal,
    np.trace: shaping.trace,
    np.tril: shaping.tril,
    np.triu: shaping.triu,
    np.tril_indices_from: lambda arr, k=0: np.tril_indices(arr.shape[-2], k, arr.shape[-1]),
    np.triu_indices_from: lambda arr, k=0: np.triu_indices(arr.shape[-2], k, arr.shape[-1]),
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
    np.block: joining.block,
    np.insert: joining.insert,
    np.delete: joining.delete,
    np.resize: shaping.resize,
    np.apply_along_axis: shaping.apply_along_axis,
    np.apply_over_axes: shaping.apply_over_axes,
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
    np.any: reducing.any_,
    np.all: reducing.all_,
    np.argmax: reducing.argmax,
    np.argmin: reducing.argmin,
    np.count_nonzero: reducing.count_nonzero,
    np.cumsum: reducing.cumsum,
    np.cumprod: reducing.cumprod,
    np.nansum: reducing.nansum,
    np.nanprod: reducing.nanprod,
    np.nanmean: reducing.nanmean,
    np.nanvar: reducing.nanvar,
    np.nanstd: reducing.nanstd,
    np.nanmax: reducing.nanmax,
    np.nanmin: reducing.nanmin,
    np.nancumsum: reducing.nancumsum,
    np.nancumprod: reducing.nancumprod,
    # order
    np.sort: sorting.sort,
    np.argsort: sorting.argsort,
    np.median: sorting.median,
    np.quantile: sorting.quantile,
    np.percentile: sorting.percentile,
    np.searchsorted: sorting.searchsorted,
    np.digitize: sorting.digitize,
    # numerical recipes
    np.linspace: numerics.linspace,
    np.diff: numerics.diff,
    np.ediff1d: numerics.ediff1d,
    np.gradient: numerics.gradient,
    np.trapezoid: numerics.trapezoid,
    np.unwrap: numerics.unwrap,
    np.interp: numerics.interp,
    np.convolve: numerics.convolve,
    np.correlate: numerics.correlate,
    np.bincount: numerics.bincount,
    np.piecewise: numerics.piecewise,
    np.polyval: numerics.polyval,
    np.vander: numerics.vander,
    np.cov: numerics.cov,
    np.corrcoef: numerics.corrcoef,
    np.select: numerics.select,
    np.sinc: numerics.sinc,
    # contractions
    np.dot: contracting.dot,
    np.vdot: contracting.vdot,
    np.inner: contracting.inner,
    np.outer: contracting.outer,
    np.tensordot: contracting.tensordot,
    np.einsum: contracting.einsum,
    np.kron: contracting.kron,
    np.cross: contracting.cross,
    np.linalg.norm: linalg.norm,
    np.linalg.vector_norm: linalg.vector_norm,
    np.linalg.matrix_norm: linalg.matrix_norm,
    np.linalg.matrix_power: linalg.matrix_power,
    np.linalg.multi_dot: linalg.multi_dot,
    np.linalg.cholesky: linalg.cholesky,
    np.linalg.solve: linalg.solve,
    np.linalg.inv: linalg.inv,
    np.linalg.det: linalg.det,
    np.linalg.slogdet: linalg.slogdet,
    np.linalg.tensorsolve: linalg.tensorsolve,
    np.linalg.tensorinv: linalg.tensorinv,
    np.linalg.eigh: linalg.eigh,
    np.linalg.eigvalsh: linalg.eigvalsh,
    np.linalg.svd: linalg.svd,
    np.linalg.svdvals: linalg.svdvals,
    np.linalg.qr: linalg.qr,
    np.linalg.pinv: linalg.pinv,
    np.linalg.lstsq: linalg.lstsq,
    np.linalg.matrix_rank: linalg.matrix_rank,
    np.linalg.cond: linalg.cond,
    np.linalg.matrix_transpose: lambda x, /: shaping.swapaxes(x, -1, -2),
    np.linalg.diagonal: lambda x, /, *, offset=0: shaping.diagonal(x, offset, -2, -1),
    np.linalg.trace: lambda x, /, *, offset=0, dtype=None: shaping.trace(x, offset, -2, -1, dtype),
    np.linalg.matmul: contracting.matmul,
    np.linalg.outer: contracting.outer,
    np.linalg.cross: lambda x1, x2, /, *, axis=-1: contracting.cross(x1, x2, axis=axis),
    np.linalg.tensordot: lambda x1, x2, /, *, axes=2: contracting.tensordot(x1, x2, axes),
    np.linalg.vecdot: lambda x1, x2, /, *, axis=-1: contracting.vecdot(x1, x2, axis),
    # indexing and writing
    np.take: indexing.take,
    np.take_along_axis: indexing.take_along_axis,
    np.put_along_axis: indexing.put_along_axis,
    np.compress: indexing.compress,
    np.extract: indexing.extract,
    np.choose: indexing.choose,
    np.nonzero: indexing.nonzero,
    np.flatnonzero: indexing.flatnonzero,
    np.argwhere: indexing.argwhere,
    np.copyto: scattering.copyto,
    np.put: scattering.put,
    np.putmask: scattering.putmask,
    np.place: scattering.place,
    np.fill_diagonal: scattering.fill_diagonal,
    # elementwise and composed
    np.where: misc.where,
    np.clip: misc.clip,
    np.round: misc.round_,
    np.around: misc.round_,
    np.fix: misc.fix,
    np.isclose: misc.isclose,
    np.allclose: misc.allclose,
    np.isneginf: misc.isneginf,
    np.isposinf: misc.isposinf,
    np.array_equal: misc.array_equal,
    np.array_equiv: misc.array_equiv,
    np.nan_to_num: misc.nan_to_num,
    np.meshgrid: misc.meshgrid,
}
if hasattr(np, "unstack"):  # from NumPy 2.1 on
    FUNCTIONS[np.unstack] = joining.unstack
    FUNCTIONS[np.astype] = shaping.astype


@unobserved
def call_function(func: Any, args: Any, kwargs: Any) -> Any:
    """What NumPy calls for a function of its own with a tracer among the arguments."""
    implementation = FUNCTIONS.get(func)
    if implementation is not None:
        # How an einsum lies in memory follows from its operands' strides.
        return settle(implementation(*args, **kwargs), args, certain=func is not np.einsum)
    if func in (np.array2string, np.array_repr, np.array_str):
        return str(args[0])
    name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
    raise UnsupportedError(
        f"{name} has no derivative rule in tapegrad{at_line()}. Write it with functions that have "
        "one, or declare it with tapegrad.primitive and defvjp"
    )
