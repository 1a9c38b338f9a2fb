"""New arrays in a running trace: traced constants, which can be filled with traced values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.core.arrays import is_known
from tapegrad.core.trees import is_array
from tapegrad.ir.tape import literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.views import BroadcastTo
from tapegrad.tracing.frontend.operands.memory import copy_of
from tapegrad.tracing.frontend.operands.operands import has_tracer, stands_for_labelled
from tapegrad.tracing.frontend.shapes.joining import stack
from tapegrad.tracing.loops.stacking import strong
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import Tracer, record, stand_in, to_operand
from tapegrad.tracing.tracers.union_numbers import check_elements


def is_traceable(dtype: np.dtype) -> bool:
    """Whether arrays of a dtype can be on a tape."""
    return is_known(dtype)


def uniform(trace: Trace, shape: tuple[int, ...], value: Any, dtype: np.dtype) -> Tracer:
    """A new array that holds one value everywhere."""
    # A view of one value isn't writable, but a copy of it is.
    return record(trace, ew.copy, [record(trace, BroadcastTo(shape), [literal(value, dtype)])])


def from_contents(trace: Trace, x: Any, dtype: Any = None) -> Any:
    """`np.array(x, dtype)`: numbers, arrays and traced values, in nested lists.

    A traced array is returned itself, as by np.asarray. A captured array is copied on the tape,
    with its contents at each call. Integers and booleans without a traced value stay a plain
    array.
    """
    dtype = None if dtype is None else np.dtype(dtype)
    if stands_for_labelled(x):
        x = x.to_numpy()
    if dtype is None:
        check_elements(x if isinstance(x, (list, tuple)) else [x])
    if isinstance(x, Tracer):
        check_fits([x] if x._weak else [], dtype)
        made = copy_of(x) if x._is_scalar() else x
        return made if dtype is None else made.astype(dtype, copy=False)
    if has_tracer(x) or _holds_arrays(x):
        inner = dtype if dtype is not None and dtype.kind in "iu" else None
        parts = [
            part if isinstance(part, Tracer) else from_contents(trace, part, inner) for part in x
        ]
        check_fits([part for part in parts if isinstance(part, Tracer)], dtype)
        made = stack(list(map(strong, parts)))
        return made if dtype is None else made.astype(dtype, copy=False)
    plain = np.array(x, dtype)
    if plain.dtype.kind not in "fc" or not is_traceable(plain.dtype):
        return plain
    if not isinstance(x, np.ndarray):
        return _constant(trace, plain)
    made = record(trace, ew.copy, [_constant(trace, x)])
    return made if dtype is None else made.astype(dtype, copy=False)


def check_fits(xs: list[Tracer], dtype: Any) -> None:
    """Raise NumPy's error where single floats become integers and one is not finite or out of
    range. That all fit is guarded. NumPy's own float scalars wrap around in unsigned types."""
    if dtype is None or np.dtype(dtype).kind not in "iu":
        return
    found = [x for x in xs if x.dtype.kind == "f" and (x._weak or x._is_scalar())]
    if np.dtype(dtype).kind == "u":
        found = [x for x in found if x._weak]
    if not found or any(x._read()[1] is None for x in found):
        return
    held, floats = np.iinfo(dtype), stack([strong(x) for x in found])
    whole: Any = np.trunc(floats)
    fits: Any = np.all(np.logical_and(whole >= float(held.min), whole < float(held.max) + 1))
    valid = bool(fits._concrete)
    fits._trace.guard(fits, valid, "that integers hold floats", fixed=valid)
    if not valid:
        np.array(floats._concrete.tolist(), dtype)  # NumPy's own error


def _holds_arrays(x: Any) -> bool:
    """Whether arrays are among the entries of a nested list."""
    if isinstance(x, (list, tuple)):
        return any(is_array(part) or _holds_arrays(part) for part in x)
    return False


def _constant(trace: Trace, plain: np.ndarray) -> Tracer:
    return stand_in(trace, *to_operand(trace, plain))
