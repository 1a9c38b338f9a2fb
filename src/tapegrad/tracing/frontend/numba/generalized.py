"""Functions of arrays compiled by numba: guvectorize and stencil.

guvectorize, "(n),(n)->()"       the Python source for each row; it writes to a result array
stencil, 0.5 * (a[-1] + a[1])    the Python source once, on the array shifted by -1 and by 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.observe.observer import observed
from tapegrad.tracing.frontend.calling.object_arrays import vectorized
from tapegrad.tracing.frontend.numba.typed import (
    alike,
    argument_dtypes,
    compared,
    python_of,
    python_of_stencil,
)
from tapegrad.tracing.frontend.numpy.undispatched import has_traced
from tapegrad.tracing.frontend.operands.operands import dtype_of
from tapegrad.tracing.frontend.shapes.making import uniform
from tapegrad.tracing.recording.trace import current_trace
from tapegrad.tracing.tracers.tracer import Tracer


def is_followed(args: Sequence[Any]) -> bool:
    return any(map(has_traced, args))


# ---- guvectorize


def by_rows(within: Callable[[], Any], is_first: bool, f: Any, *args: Any, **kwargs: Any) -> Any:
    """A call of a numba.guvectorize function. Its Python source runs in the context `within`. The
    outermost numba function (`is_first`) is compared with numba's result."""
    count, signature = f.ufunc.nin if f.ufunc else f.nin, f.gufunc_builder.signature
    given, outs = args[:count], args[count:] or _listed(kwargs.get("out"))
    if not is_followed((*args, *kwargs.values())) or set(kwargs) - {"out"}:
        with observed():
            return f(*args, **kwargs)
    compiled = _row_compiled(f, given, outs)
    python, kinds = python_of(f._dispatcher, compiled), compiled.signature.args
    inputs, results = [part.split("),(") for part in signature.replace(" ", "").split("->")]
    names = [[x for x in dims.strip("()").split(",") if x] for dims in (*inputs, *results)]

    def row(*xs: Any) -> Any:
        sizes = {
            n: s
            for dims, x in zip(names, xs, strict=False)
            for n, s in zip(dims, np.shape(x), strict=True)
        }
        read = [
            np.reshape(x, (1,)) if hasattr(kind, "ndim") and not np.ndim(x) else x
            for kind, x in zip(kinds, xs[:count], strict=False)
        ]
        trace: Any = current_trace()
        written = []
        for k, dims in enumerate(names[count:]):
            shape = tuple([sizes[n] for n in dims]) or (1,)
            out = uniform(trace, shape, 0, dtypes[count + k])
            if outs:
                out[...] = xs[count + k]
            written.append(out)
        with within():
            python(*read, *written)
        found = [x if dims else x[0] for x, dims in zip(written, names[count:], strict=True)]
        return found[0] if len(found) == 1 else tuple(found)

    dtypes = argument_dtypes(compiled)
    whole = (
        signature if not outs else f"{','.join(signature.split('->'))}->{signature.split('->')[1]}"
    )

    def run() -> Any:
        cast = [x if isinstance(x, Tracer) else np.asarray(x) for x in (*given, *outs)]
        cast = [x if x.dtype == t else x.astype(t) for x, t in zip(cast, dtypes, strict=False)]
        found = vectorized(np.vectorize(row, signature=whole), *cast)
        if not outs:
            return found
        for out, x in zip(outs, _listed(found), strict=True):
            out[...] = x
        return outs[0] if len(outs) == 1 else tuple(outs)

    return alike(f, compiled, args, kwargs, run) if is_first else run()


def _listed(x: Any) -> tuple[Any, ...]:
    return () if x is None else x if isinstance(x, tuple) else (x,)


def _row_compiled(f: Any, given: Sequence[Any], outs: Sequence[Any]) -> Any:
    """The function compiled for arguments of these dtypes. It is compiled now if needed."""
    if f.is_dynamic and not f._frozen:
        plain = [np.zeros(np.shape(x), dtype_of(x)) for x in (*given, *outs)]
        f(*plain)
    nothing = [None] * f.ufunc.nout
    loop = f.ufunc.resolve_dtypes((*map(dtype_of, given), *nothing))
    return next(x for x in f._dispatcher.overloads.values() if argument_dtypes(x) == loop)


# ---- stencil


class _Moved:
    """An array without the border that lacks neighbours: `a[-1]` is the array shifted by -1."""

    def __init__(self, x: Any, reach: Any) -> None:
        self._x, self._reach = x, reach

    def __getitem__(self, offsets: Any) -> Any:
        offsets = offsets if isinstance(offsets, tuple) else (offsets,)
        moved = zip(offsets, self._reach, strict=True)
        return self._x[tuple([slice(first + k, last + k) for k, (first, last) in moved])]


class _Reached:
    """A probe that records the range of offsets read in each dimension."""

    def __init__(self, ends: list[list[int]]) -> None:
        self._ends = ends

    def __getitem__(self, offsets: Any) -> Any:
        offsets = offsets if isinstance(offsets, tuple) else (offsets,)
        for k, ends in zip(offsets, self._ends, strict=True):
            ends[:] = min(ends[0], k), max(ends[1], k)
        return 1.0


def by_neighbours(
    within: Callable[[], Any], is_first: bool, f: Any, *args: Any, **kwargs: Any
) -> Any:
    """A call of a numba.stencil function."""
    if kwargs or not is_followed(args):
        with observed():
            return f(*args, **kwargs)
    python = python_of_stencil(f, args)
    names, whole = f.kernel_ir.arg_names, f.options.get("standard_indexing", ())
    moves = [np.ndim(x) > 0 and name not in whole for name, x in zip(names, args, strict=True)]
    shape = np.shape(args[0])

    def run() -> Any:
        ends = [list(x) for x in f.neighborhood or [(0, 0)] * len(shape)]
        with within():
            if f.neighborhood is None:
                noted = _Reached(ends)
                python(*[noted if m else x for m, x in zip(moves, args, strict=True)])
            reach = [(-first, size - last) for size, (first, last) in zip(shape, ends, strict=True)]
            moved = [_Moved(x, reach) if m else x for m, x in zip(moves, args, strict=True)]
            found = python(*moved)
        trace: Any = current_trace()
        out = uniform(trace, shape, f.options.get("cval", 0), np.dtype(float))
        if all(first < last for first, last in reach):
            out[tuple([slice(*x) for x in reach])] = found
        return out

    return compared(f, python.__name__, (*args, kwargs), run) if is_first else run()
