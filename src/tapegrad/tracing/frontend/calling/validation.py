"""Calls are validated by NumPy and SciPy themselves, with their own errors.

The front end determines what a call records. The library determines whether the call is valid: its
code checks axes, orders, modes and shapes. So a call of a new kind is repeated by the library, on
plain copies of the present values. An error of the library is raised. If the front end has an error
in a valid call, or its result has another shape or dtype, the call is refused as not followed. A
result without axes becomes a NumPy scalar, a Python number or an array, like the library's result
(`result_kinds.py`).

Calls are of one kind if their operands have the same types and their parameters are equal. Errors
that depend on values (a singular matrix) are guarded by the front end itself.
"""

from __future__ import annotations

import array
import warnings
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from tapegrad.core.arrays import computed_in, read
from tapegrad.core.handlers import let_through, quiet
from tapegrad.errors import TapegradError, UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.calling.result_kinds import kinds_of, of_kinds
from tapegrad.tracing.recording.chains import is_writeable
from tapegrad.tracing.recording.trace import innermost, refusing, untraced
from tapegrad.tracing.runs.floating_errors import guard_refusal
from tapegrad.tracing.tracers.attributes import is_locked
from tapegrad.tracing.tracers.tracer import Tracer

CACHED_VERDICTS = 10_000  # entries in the cache
_MAX_KEY_ELEMENTS = 64  # elements of an array whose values are part of a key
_accepted: dict[Any, Any] = {}  # the kinds of the result's parts, by the call's key
_STATIC = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    np.generic,
    np.dtype,
    Enum,
)


class _Unknown(Exception):
    """An argument of a call can't be copied as a plain value."""


def accepted(
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    run: Callable[[], Any],
    name: str,
    lasts: bool = True,
) -> Any:
    """The result of `run()`, which records `func(*args, **kwargs)`; or the library's error. `lasts`
    is False for a method of a temporary object, which isn't cached."""
    try:
        if not lasts:
            raise _Unknown
        key = func, _key(args), _key(kwargs)
        known = key in _accepted
    except (_Unknown, TypeError):  # TypeError: an unhashable parameter
        key, known = None, False
    if known:
        try:
            return of_kinds(run(), _accepted[key])
        except (TapegradError, *_OF_VALUES):
            raise
        except Exception as error:
            let_through(error)
            _accepted.pop(key, None)
            return _settled(func, args, kwargs, error, name)
    try:
        found, refusal = _verdict(func, args, kwargs)
    except _Unknown:
        return run()
    tracers = [x for x in _leaves((args, kwargs)) if isinstance(x, Tracer)]
    if not tracers:  # they are within the library's objects
        return of_kinds(run(), kinds_of(found))
    trace, versions = innermost(tracers), [x._owner._version for x in tracers]
    before = trace.refusal
    try:
        result = run()
    except TapegradError:
        if refusal is None:
            raise
        trace.refusal = before
    except _OF_VALUES:
        raise
    except Exception as error:
        let_through(error)
        raise _error(error, refusal, func, args, kwargs, name) from None
    if refusal is not None:
        if versions != [x._owner._version for x in tracers]:
            _leave_unfinished(trace, name)
        raise _decided(refusal, func, args, kwargs, name)
    if not _is_like(result, found):
        raise refusing(
            UnsupportedError(
                f"this form of {name} can't be followed{at_line()}: its result has another shape "
                "or dtype than NumPy's. Call it in a function that is declared with "
                "tapegrad.primitive, and give its derivative with defvjp"
            )
        )
    kinds = kinds_of(found)
    if key is not None:
        if len(_accepted) >= CACHED_VERDICTS:
            _accepted.clear()
        _accepted[key] = kinds
    return of_kinds(result, kinds)


# Requested by np.errstate or a filter of warnings, which the verdict ignores
_OF_VALUES = (FloatingPointError, Warning)


def _settled(func: Any, args: Any, kwargs: Any, error: Exception, name: str) -> Any:
    """Raise the error for a failure of the front end in a call of an accepted kind."""
    try:
        _, refusal = _verdict(func, args, kwargs)
    except _Unknown:
        raise error from None
    raise _error(error, refusal, func, args, kwargs, name) from None


def _error(
    own: Exception, refusal: Exception | None, func: Any, args: Any, kwargs: Any, name: str
) -> Exception:
    """The error to raise for the front end's error `own` and the library's `refusal`, if any."""
    if refusal is None:
        return refusing(
            UnsupportedError(
                f"this form of {name} can't be followed{at_line()}: {type(own).__name__}: {own}. "
                "Call it in a function that is declared with tapegrad.primitive, and give its "
                "derivative with defvjp"
            )
        )
    if type(own) is type(refusal):
        return refusal  # the front end has guarded its cause
    return _decided(refusal, func, args, kwargs, name)


def _decided(refusal: Exception, func: Any, args: Any, kwargs: Any, name: str) -> Exception:
    """The library's error. Its cause may be in the values, so it is guarded, or each call repeats
    the check."""
    trace = innermost([x for x in _leaves((args, kwargs)) if isinstance(x, Tracer)])
    trace.raised = ""
    if not guard_refusal(func, args, kwargs, refusal):
        trace.note_raised(name)
    return refusal


def error_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> Exception | None:
    """The library's error for a call that isn't followed; None if the call is valid."""
    try:
        refusal = _verdict(func, args, kwargs)[1]
    except _Unknown:
        return None
    tracers = any(isinstance(x, Tracer) for x in _leaves((args, kwargs)))
    return _decided(refusal, func, args, kwargs, name) if refusal is not None and tracers else None


def _leave_unfinished(trace: Any, name: str) -> None:
    """Mark the trace as unusable: the front end has written something that the library wouldn't
    have written."""
    trace.unfinished = trace.unfinished or UnsupportedError(
        f"an error that {name} raised was caught{at_line()}. What it would have written to by then "
        "isn't followed. Test the arguments before the call"
    )


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        x = list(x.values())
    return [y for part in x for y in _leaves(part)] if isinstance(x, (list, tuple)) else [x]


# ---- the library's own verdict


@quiet
def _verdict(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The library's result for the call, and its error; one of them is None."""
    given = [plain_copy(x) for x in args]
    named = {key: plain_copy(x) for key, x in kwargs.items()}
    with warnings.catch_warnings(), untraced():
        warnings.simplefilter("ignore")
        try:
            return func(*given, **named), None
        except Exception as error:
            let_through(error)
            return None, error.with_traceback(None)


def plain_copy(x: Any) -> Any:
    """A plain copy of an argument, which the library may write to."""
    if isinstance(x, Tracer):
        copy = np.array(_value(x))
        copy.flags.writeable = is_writeable(x._chain) and not is_locked(x._owner)
        return copy.item() if x._weak else copy[()] if x._is_scalar() else copy
    if type(x) is np.ndarray:
        copy = read(x).copy(order="K")
        copy.flags.writeable = x.flags.writeable
        return copy
    if type(x) in (list, tuple):
        return type(x)(map(plain_copy, x))
    if type(x) is array.array:
        return x[:]
    if type(x) is dict:
        return {key: plain_copy(part) for key, part in x.items()}
    if type(x) is slice:
        return slice(plain_copy(x.start), plain_copy(x.stop), plain_copy(x.step))
    if isinstance(x, _STATIC) or _is_numpys(x):
        return read(x)
    raise _Unknown


def _value(x: Tracer) -> Any:
    value = x._read()[1] if x._trace.alive and not x._trace.idle else None
    if value is None:
        raise _Unknown
    return value


def _is_numpys(x: Any) -> bool:
    """Whether `x` is a function or type of NumPy's, or a builtin type."""
    home = getattr(x, "__module__", None) or ""
    return isinstance(x, np.ufunc) or (
        callable(x)
        and (home.partition(".")[0] == "numpy" or (isinstance(x, type) and home == "builtins"))
    )


def _key(x: Any) -> Any:
    """The cache key of an argument."""
    kind = type(x)
    if isinstance(x, Tracer):
        if x._aval.shape or x._aval.dtype.kind not in "iub":
            return kind, x._aval
        return kind, x._aval, np.asarray(_value(x)).tobytes()
    if kind is np.ndarray:
        whole = x.dtype.kind in "iub"
        if whole and x.size > _MAX_KEY_ELEMENTS:
            raise _Unknown
        return kind, x.shape, x.dtype, x.tobytes() if whole else None
    if kind is list or kind is tuple:
        return kind, *map(_key, x)
    if kind is dict:
        return kind, *x, *map(_key, x.values())
    if kind is slice:
        return kind, _key(x.start), _key(x.stop), _key(x.step)
    return kind, x


def _is_like(result: Any, found: Any) -> bool:
    """Whether a result has the shape and dtype of the library's."""
    if isinstance(found, (list, tuple)):
        if not isinstance(result, (list, tuple)) or len(result) != len(found):
            return not isinstance(result, Tracer)
        return all(map(_is_like, result, found))
    if not isinstance(result, Tracer) or not isinstance(found, (np.ndarray, np.generic)):
        return True
    return bool(result.shape == found.shape and result.dtype == computed_in(found.dtype))
