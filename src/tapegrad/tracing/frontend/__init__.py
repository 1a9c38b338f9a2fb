"""NumPy's functions on traced arrays: the table from function to implementation.

The front end is generous, as NumPy is: it normalises axes, keeps dimensions, promotes dtypes and
handles 0-d and 1-d cases, so that primitives can be strict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.tracing.floating import watching
from tapegrad.tracing.frontend import (
    contracting,
    indexing,
    joining,
    linalg,
    memory,
    misc,
    nans,
    numerics,
    padding,
    quantiles,
    reducing,
    scattering,
    shaping,
    sorting,
)
from tapegrad.tracing.frontend.parameters import form_of, has_tracers, numbers_taken, taken
from tapegrad.tracing.layout import settle
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.source import at_line
from tapegrad.tracing.texts import tell

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
    np.pad: padding.pad,
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: shaping.size,
    np.copy: memory.copy_of,
    np.zeros_like: shaping.zeros_like,
    np.ones_like: shaping.ones_like,
    np.empty_like: shaping.zeros_like,
    np.full_like: shaping.full_like,
    np.real: lambda x: x,
    np.imag: misc.imag,
    np.real_if_close: lambda a, tol=100: a,
    np.iscomplex: lambda x: misc.constant(x, False),
    np.isreal: lambda x: misc.constant(x, True),
    np.iscomplexobj: lambda x: False,
    np.isrealobj: lambda x: True,
    np.isfortran: misc.isfortran,
    np.result_type: misc.result_type,
    np.can_cast: lambda a, to, casting="safe": np.can_cast(misc.dtype_shown(a), to, casting),
    np.min_scalar_type: misc.min_scalar_type,
    np.common_type: misc.common_type,
    np.may_share_memory: misc.may_share_memory,
    np.shares_memory: misc.may_share_memory,
    # matrices
    np.diag: shaping.diag,
    np.diagflat: shaping.diagflat,
    np.diagonal: shaping.diagonal,
    np.trace: shaping.trace,
    np.tril: shaping.tril,
    np.triu: shaping.triu,
    np.tril_indices_from: lambda arr, k=0: np.tril_indices_from(shaping.shaped_like(arr), k),
    np.triu_indices_from: lambda arr, k=0: np.triu_indices_from(shaping.shaped_like(arr), k),
    np.diag_indices_from: lambda arr: np.diag_indices_from(shaping.shaped_like(arr)),
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
    np.nansum: nans.nansum,
    np.nanprod: nans.nanprod,
    np.nanmean: nans.nanmean,
    np.nanvar: nans.nanvar,
    np.nanstd: nans.nanstd,
    np.nanmax: nans.nanmax,
    np.nanmin: nans.nanmin,
    np.nancumsum: nans.nancumsum,
    np.nancumprod: nans.nancumprod,
    # order
    np.sort: sorting.sort,
    np.argsort: sorting.argsort,
    np.median: quantiles.median,
    np.quantile: quantiles.quantile,
    np.percentile: quantiles.percentile,
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
    np.linalg.outer: linalg.outer,
    np.linalg.cross: linalg.cross,
    np.linalg.tensordot: lambda x1, x2, /, *, axes=2: contracting.tensordot(x1, x2, axes),
    np.linalg.vecdot: lambda x1, x2, /, *, axis=-1: contracting.vecdot(x1, x2, axis),
    # indexing and writing
    np.take: indexing.take,
    np.take_along_axis: indexing.take_along_axis,
    np.put_along_axis: scattering.put_along_axis,
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


INSTEAD: dict[Any, str] = {
    np.partition: "np.sort(x), which is partitioned, too",
    np.argpartition: "np.argsort(x)",
}


@unobserved
def call_function(func: Any, args: Any, kwargs: Any) -> Any:
    """What NumPy calls for a function of its own with a tracer among the arguments."""
    return watching(func, args, kwargs, lambda: _called(func, args, kwargs))


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    implementation = FUNCTIONS.get(func)
    if implementation is not None:
        form = form_of(implementation, func)
        given, named, found = taken(form, args, kwargs)
        if found and not has_tracers(given, named):
            return func(*given, **named)
        # How an einsum lies in memory follows from its operands' strides.
        result = implementation(*given, **form.own(named))
        return settle(result, given, certain=func is not np.einsum)
    if func in (np.array2string, np.array_repr, np.array_str):
        tell(args[0])
        return func(args[0]._concrete, *args[1:], **kwargs)
    numbers = numbers_taken(args, kwargs)
    if numbers is not None:
        return func(*numbers[0], **numbers[1])
    name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
    instead = f"Use {INSTEAD[func]}" if func in INSTEAD else "Write it with functions that have one"
    raise UnsupportedError(
        f"{name} has no derivative rule in tapegrad{at_line()}. {instead}, or declare it with "
        "tapegrad.primitive and defvjp"
    )
