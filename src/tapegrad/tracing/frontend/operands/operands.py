"""Operands of NumPy's functions: promotion and casts by NEP 50, masks, and `out=`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tapegrad.core.arrays import KNOWN, computed_in, is_foreign, is_known
from tapegrad.core.trees import is_array
from tapegrad.errors import ArgumentError, ConversionError, UnsupportedError
from tapegrad.ir.tape import Literal
from tapegrad.observe.answers.answers import telling, tells_itself
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import following, note_root, observed
from tapegrad.observe.program.source import at_line
from tapegrad.primitives import complexes
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import broadcast_shapes
from tapegrad.primitives.views import BroadcastTo
from tapegrad.tracing.frontend.operands.parameters import truth
from tapegrad.tracing.recording.trace import current_trace, innermost, refusing
from tapegrad.tracing.tracers.tracer import Tracer, record, stand_in, to_operand
from tapegrad.tracing.tracers.union_numbers import check_elements


def is_weak(x: Any) -> bool:
    """Whether `x` is a Python number, whose dtype is that of the operands it is combined with."""
    if isinstance(x, Tracer):
        return x._weak and x._aval.dtype.kind != "b"
    return isinstance(x, (int, float, complex)) and not isinstance(x, (bool, np.generic))


def as_operand(x: Any) -> Any:
    """A tracer, array or number unchanged; a list or tuple as an array."""
    if isinstance(x, (Tracer, np.ndarray, np.generic, int, float, complex, bool)):
        return x
    if isinstance(x, (list, tuple)) and has_tracer(x):
        check_elements(x)
        return dispatch.stack([as_operand(e) for e in x])
    if dispatch.has_labels(x):
        return x.to_numpy()
    if (array := of_itself(x)) is not x:
        return array
    if is_foreign(x) or isinstance(x, bytearray):
        raise refusing(
            ArgumentError(
                f"an object of type {type(x).__name__}, which isn't an ndarray, meets a traced "
                f"value{at_line()}: what it holds would be read once, when the function is traced. "
                "Use np.asarray(x), outside of the function"
            )
        )
    array = np.asarray(x)
    check_dtype(array.dtype)
    return array


def of_itself(x: Any) -> Any:
    """The array that an object's Python `__array__` returns; other objects unchanged. The state
    that `__array__` reads is guarded."""
    here: Any = following.observer
    if here is None or not tells_itself(x):
        return x
    note = here.taken([x])
    note_root(type(x).__array__)
    before, telling.now = telling.now, True
    try:
        with observed():
            array = x.__array__()
    finally:
        telling.now = before
    if isinstance(array, Tracer):  # made of captured state that changes, which is an input
        return array
    if note is not None:
        note(array)
    return array


def has_tracer(x: Any) -> bool:
    """Whether a nested list or tuple has a traced value."""
    if isinstance(x, (list, tuple)):
        return any(has_tracer(e) for e in x)
    return isinstance(x, Tracer) or stands_for_labelled(x)


def stands_for_labelled(x: Any) -> bool:
    """Whether `x` is the proxy of a Series or DataFrame."""
    return getattr(type(x), "_labels_first", False)


def check_dtype(dtype: np.dtype) -> None:
    """Raise an error for dtypes that have no rules: object, strings, dates, longdouble, ..."""
    if not is_known(computed_in(dtype)):
        raise refusing(
            ArgumentError(
                f"an array of dtype {dtype} can't be traced{at_line()}; tapegrad knows {KNOWN}. "
                "Use astype first"
            )
        )


def dtype_of(x: Any) -> Any:
    """The dtype of an operand; for a Python number its type, as `resolve_dtypes` takes it."""
    if is_weak(x):
        if isinstance(x, Tracer):
            return {"c": complex, "f": float}.get(x._aval.dtype.kind, int)
        return complex if isinstance(x, complex) else float if isinstance(x, float) else int
    if isinstance(x, bool):
        return np.dtype(bool)
    return computed_in(x.dtype)


def common_dtype(*xs: Any) -> np.dtype:
    """The dtype to which operands are promoted: np.result_type, with weak Python numbers."""
    return np.result_type(*[t(0) if isinstance(t, type) else t for t in map(dtype_of, xs)])


def cast(x: Any, dtype: Any) -> Any:
    """A tracer or number in this dtype: a recorded cast, or a literal."""
    dtype = np.dtype(dtype)
    if isinstance(x, Tracer):
        own = x._aval.dtype
        if x._weak and own.kind == "i" and dtype.kind in "iu":
            _check_fits(x, dtype)
        if own.kind == "c" != dtype.kind:
            return cast(real_of(x, dtype), dtype)
        return x if own == dtype else ew.AsType(dtype)(x)
    return Literal(dtype.type(x))


def real_of(z: Any, dtype: np.dtype) -> Any:
    """Complex numbers cast to a real dtype: whether they are nonzero, or their real parts. NumPy's
    warning is issued at each trace."""
    if dtype.kind == "b":
        return np.not_equal(z, 0)
    _REAL_PART.astype(float)
    return complexes.real(z)


_REAL_PART = np.zeros(1, complex)  # NumPy warns when these become real


def _check_fits(x: Tracer, dtype: np.dtype) -> None:
    """Guard that the dtype holds a Python integer; raise NumPy's OverflowError if it doesn't."""
    held, own = np.iinfo(dtype), np.iinfo(np.int64)
    low, high = max(held.min, own.min), min(held.max, own.max)
    if (low, high) == (own.min, own.max) or x._read()[1] is None:
        return
    wide = ew.AsType(np.dtype(np.int64))(x)
    if not np.logical_and(wide >= np.int64(low), wide <= np.int64(high)):
        value = int(x._read()[1])
        raise OverflowError(f"Python integer {value} out of bounds for {dtype}{at_line()}")


def cast_all(xs: Sequence[Any], dtypes: Sequence[np.dtype]) -> list[Any]:
    """Operands in these dtypes. A captured array is cast on the tape, so that later writes to it
    are seen."""
    trace = innermost([x for x in xs if isinstance(x, Tracer)])
    done = []
    for x, dtype in zip(xs, dtypes, strict=False):
        if is_array(x):
            check_dtype(x.dtype)
            if x.dtype.kind == "c" != dtype.kind:
                done.append(cast(as_tracer(x, *xs), dtype))
                continue
            done.append(
                x if computed_in(x.dtype) == dtype else record(trace, ew.AsType(dtype), [x])
            )
        else:
            done.append(cast(x, dtype))
    return done


_COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)


@cache
def _resolved(ufunc: np.ufunc, given: tuple[Any, ...]) -> tuple[np.dtype, ...]:
    return ufunc.resolve_dtypes((*given, *(None,) * ufunc.nout))


def loop_dtypes(ufunc: np.ufunc, xs: Sequence[Any], dtype: Any = None) -> tuple[np.dtype, ...]:
    """The dtypes of operands and results of the inner loop that NumPy chooses for `ufunc(*xs)`."""
    given = tuple(dtype_of(x) for x in xs)
    whole = [t for t in given if isinstance(t, np.dtype) and t.kind in "iu"]
    weak = sum(t is int for t in given)
    if ufunc in _COMPARISONS and weak and len(whole) + weak == len(given) > 1:
        # NumPy compares Python integers of any size with integers of any dtype.
        wide = [t if isinstance(t, np.dtype) and t.itemsize == 8 else np.int64 for t in given]
        given = tuple(map(np.dtype, wide)) if whole else given
    if weak and all(t is int or t == np.bool_ for t in given):  # True counts as an integer
        given = tuple(np.dtype(np.int64) if t is int else t for t in given)
    if dtype is not None:
        loop = (np.dtype(dtype),) * (ufunc.nin + ufunc.nout)
    elif all(isinstance(t, type) for t in given):
        loop = _resolved(ufunc, tuple(np.dtype(t) for t in given))
    else:
        loop = _resolved(ufunc, given)
    for t in loop:
        if not is_known(t):
            names = ", ".join(t.__name__ if isinstance(t, type) else str(t) for t in given)
            raise UnsupportedError(
                f"np.{ufunc.__name__} of {names} works in {t}, in which nothing is computed"
                f"{at_line()}; tapegrad knows {KNOWN}. Convert the operands first, with "
                "x.astype(float)"
            )
    return loop


def promoted(ufunc: np.ufunc, *xs: Any) -> list[Any]:
    """The operands of a composed function: all but Python numbers in the dtype of NumPy's loop."""
    loop = loop_dtypes(ufunc, xs)
    strong = [k for k, x in enumerate(xs) if isinstance(x, (Tracer, np.ndarray, np.generic))]
    done = list(xs)
    for k, x in zip(
        strong, cast_all([xs[k] for k in strong], [loop[k] for k in strong]), strict=True
    ):
        done[k] = x.value if isinstance(x, Literal) else x
    return done


def as_tracer(x: Any, *others: Any) -> Tracer:
    """`x` as a traced array, in the trace of the tracers among `others`, or in the innermost trace
    if those are within objects."""
    x = as_operand(x)
    if isinstance(x, Tracer):
        return x
    tracers = [o for o in _flat(others) if isinstance(o, Tracer)]
    here = None if tracers else current_trace()
    trace = here if here is not None else innermost(tracers)
    check_dtype(np.asarray(x).dtype)  # an integer of more than 64 bits has dtype object
    value = x if isinstance(x, np.ndarray) else np.asarray(x)[()]
    operand, _ = to_operand(trace, value)
    return stand_in(trace, operand, value)


def _flat(xs: Any) -> list[Any]:
    if isinstance(xs, (list, tuple)):
        return [e for x in xs for e in _flat(x)]
    return [xs]


def recorded(x: Tracer, primitive: Any, *operands: Any) -> Any:
    """Apply a primitive in the innermost trace of `x` and the operands, which may be plain."""
    return record(innermost([x, *operands]), primitive, operands)


def untraced(x: Tracer) -> Any:
    """The plain value of a tracer, for a call of NumPy that raises NumPy's own error."""
    found = x._read()[1]
    return found.item() if x._weak else found


def mask_of(where: Any) -> Any:
    """`where=` as an array of booleans, as NumPy takes it: of other objects, their truth."""
    listed, where = isinstance(where, (list, tuple)), as_operand(truth(where))
    is_scalar = where._is_scalar() if isinstance(where, Tracer) else not is_array(where)
    if getattr(where, "dtype", None) == np.bool_ or isinstance(where, bool):
        return where
    if listed or is_scalar:
        return np.not_equal(where, 0) if isinstance(where, Tracer) else np.asarray(where, bool)
    kind, wanted = "array data" if where.ndim else "scalar", np.dtype(bool)
    raise TypeError(
        f"Cannot cast {kind} from {where.dtype!r} to {wanted!r} according to the rule 'safe'"
    )


def chosen(where: Any, result: Any) -> Any:
    """A result where the mask is true, and zeros elsewhere, where NumPy leaves it undefined."""
    if isinstance(result, tuple):
        return tuple(chosen(where, x) for x in result)
    return result if where is True else np.where(where, result, result.dtype.type(0))


def written_into_plain(by: str) -> ConversionError:
    return ConversionError(
        f"a traced value can't be written into a plain NumPy array{at_line()}, by {by} or an "
        "in-place operator. Make the array in the function, with np.zeros(n) or np.array(a), "
        "or write y = y + x instead of y += x"
    )


def store(out: Any, result: Any, where: Any = True, casting: Any = "same_kind") -> Any:
    """Write a result into `out=`. A plain array can't hold a traced value."""
    if not isinstance(out, Tracer):
        raise written_into_plain("out=")
    if out._is_scalar():  # a NumPy scalar or a Python number, not an array of no axes
        raise TypeError("return arrays must be of ArrayType")
    if not np.can_cast(result.dtype, out.dtype, casting):
        raise TypeError(
            f"Cannot cast ufunc output from {result.dtype!r} to {out.dtype!r} with casting rule "
            f"{casting!r}"
        )
    if broadcast_shapes(out.shape, result.shape) != out.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {out.shape} doesn't match the "
            f"broadcast shape {broadcast_shapes(out.shape, result.shape)}"
        )
    if where is not True:
        result = np.where(where, result, out)
    if result.shape != out.shape:
        result = BroadcastTo(out.shape)(result)
    dispatch.setitem(out, Ellipsis, result)
    return out
