"""Arithmetic as numba's machine code does it, for use in a function's Python source.

`retyped.py` inserts calls of these where Python's arithmetic would have other results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.errors import ConversionError
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.indexing.indexing import as_python
from tapegrad.tracing.loops.stacking import strong
from tapegrad.tracing.operators.integer_bounds import fits
from tapegrad.tracing.operators.python import check_divisor, checked
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.tracers.tracer import Tracer

_BITS = 64
_FAR = 0x10000  # from this exponent on numba computes powers as floats


def _numpys(x: Any) -> Any:
    """A number as a NumPy scalar."""
    if isinstance(x, Tracer):
        return strong(x)
    return np.asarray(x)[()] if isinstance(x, (int, float, complex)) else x


def as_dtype(dtype: str, x: Any) -> Any:
    """A number or array in this dtype. 64-bit integers are Python's, as indices are."""
    if not isinstance(x, (Tracer, np.ndarray, np.generic, int, float, complex)):
        return x
    x, wanted = _numpys(x), np.dtype(dtype)
    x = x if x.dtype == wanted else x.astype(wanted)
    return _pythons(x) if wanted == np.int64 and np.ndim(x) == 0 else x


def _pythons(x: Any) -> Any:
    return as_python(x) if isinstance(x, Tracer) else x.item()


def divided(name: str, x: Any, y: Any) -> Any:
    """A quotient or remainder, with an error for the divisor 0."""
    if not (_is_pythons(x) and _is_pythons(y)):  # Python's operators raise it themselves
        _check_divisor(y)
    return _run(name)(x, y)


def divisor(y: Any) -> Any:
    _check_divisor(y)
    return y


def _check_divisor(y: Any) -> None:
    if isinstance(y, Tracer):
        checked(check_divisor, y, y)
    else:
        check_divisor(y, y)


def _is_pythons(x: Any) -> bool:
    return x._weak if isinstance(x, Tracer) else not isinstance(x, np.generic)


def divided_as_numpy(name: str, x: Any, y: Any) -> Any:
    return _run(name)(_numpys(x), y)


def _run(name: str) -> Callable[[Any, Any], Any]:
    return divmod if name == "divmod" else getattr(operator, name)


def power(raises: bool, x: Any, y: Any) -> Any:
    """A power of a float: NaN or infinite where Python's is complex or raises an error."""
    dtype = y.dtype if isinstance(y, Tracer) else np.asarray(y).dtype
    if raises and dtype.kind != "f" and y < 0:
        _check_divisor(x)
    return _numpys(x) ** y


def whole(name: str, x: Any, y: Any) -> Any:
    """An operation on 64-bit integers, which wraps around."""
    if name == "pow":
        if y < 0:
            _check_divisor(x)
            if x in (1, -1):
                return x if y % 2 else x * x
            return 0
        if y > _FAR:
            raise _undefined(f"a power by {_FAR} and more")
    elif name in ("lshift", "rshift") and not 0 <= y < _BITS:
        raise _undefined(f"a shift by what is negative, or {_BITS} and more,")
    run = getattr(operator, name)
    if not isinstance(x, Tracer) and not isinstance(y, Tracer):
        return (run(int(x), int(y)) + 2**63) % 2**64 - 2**63
    if name == "rshift" or (_is_pythons(x) and _is_pythons(y) and fits(name, x, y)):
        return run(x, y)
    return _pythons(run(_numpys(x), _numpys(y)))


def _undefined(asked: str) -> Exception:
    return refusing(
        ConversionError(
            f"numba's result of {asked} isn't defined{at_line()}, and a traced value is computed "
            "with it. Take another way there, or declare the function with tapegrad.primitive"
        )
    )


def mathematical(name: str, *xs: Any) -> Any:
    """A function of `math`: NaN or infinite where Python's raises an error."""
    return getattr(np, name)(*map(_numpys, xs))


def rounded(x: Any, digits: Any = 0) -> Any:
    """numba's `round(x, digits)`: x * 10**digits rounded to an integer, divided by 10**digits."""
    digits = int(digits)
    first, last = 10.0 ** min(abs(digits), 22), 10.0 ** max(abs(digits) - 22, 0)
    x = _numpys(x)
    if digits < 0:
        return np.rint(x / (first * last)) * (first * last)
    found = np.rint(x * last * first) / first / last
    return np.where(np.isfinite(x * last * first), found, x)[()]


def bounded(x: Any) -> Any:
    """The integer of a float, which must fit into 64 bits."""
    if type(x) is int and not -(2**63) <= x < 2**63:
        raise _undefined("the whole number of a float beyond 64 bits")
    return x


_ALL: tuple[Callable[..., Any], ...] = (as_dtype, divided, divided_as_numpy, power, whole)
_ALL += (mathematical, rounded, bounded, divisor)
HELPERS = {f.__name__: unobserved(f) for f in _ALL}
