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
from tapegrad.tracing.tracers.either import check_elements
from tapegrad.tracing.tracers.tracer import Tracer, record, stand_in, to_operand


def is_traceable(dtype: np.dtype) -> bool:
    """Whether arrays of a dtype can be on a tape."""
    return is_known(dtype)


def uniform(trace: Trace, shape: tuple[int, ...], value: Any, dtype: np.dtype) -> Tracer:
    """A new array that holds one value everywhere."""
    # A view of one value isn't writable, but a copy of it is.
    return record(trace, ew.copy, [record(trace, BroadcastTo(shape), [literal(value, dtype)])])


def from_contents(trace: Trace, x: Any, dtype: Any = None) -> Any:
    """`np.array(x, dtype)`: numbers, arrays and traced values, in nested lists.

    A traced array is itself, as in np.asarray. An array from outside becomes a copy of it as it
    is at each call. Integers and booleans without a traced value stay a plain array.
    """
    dtype = None if dtype is None else np.dtype(dtype)
    if stands_for_labelled(x):
        x = x.to_numpy()
    if dtype is None:
        check_elements(x if isinstance(x, (list, tuple)) else [x])
    if isinstance(x, Tracer):
        made = copy_of(x) if x._is_scalar() else x
        return made if dtype is None else made.astype(dtype, copy=False)
    if has_tracer(x) or _holds_arrays(x):
        parts = [part if isinstance(part, Tracer) else from_contents(trace, part) for part in x]
        made = stack(list(map(strong, parts)))
        return made if dtype is None else made.astype(dtype, copy=False)
    plain = np.array(x, dtype)
    if plain.dtype.kind not in "fc" or not is_traceable(plain.dtype):
        return plain
    if not isinstance(x, np.ndarray):
        return _constant(trace, plain)
    made = record(trace, ew.copy, [_constant(trace, x)])
    return made if dtype is None else made.astype(dtype, copy=False)


def _holds_arrays(x: Any) -> bool:
    """Whether arrays are among the entries of a nested list."""
    if isinstance(x, (list, tuple)):
        return any(is_array(part) or _holds_arrays(part) for part in x)
    return False


def _constant(trace: Trace, plain: np.ndarray) -> Tracer:
    return stand_in(trace, *to_operand(trace, plain))
