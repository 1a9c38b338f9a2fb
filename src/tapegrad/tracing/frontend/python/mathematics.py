"""The functions of Python's `math` and `cmath` on traced numbers: computed by NumPy's functions,
with Python numbers as results, and with the errors of `math`.

`math` raises a domain or range error if the result for finite arguments isn't finite. So a finite
result is guarded; for other results, the finiteness of each argument is.
"""

from __future__ import annotations

import cmath
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.handlers import quiet
from tapegrad.core.installed import file_of_function, is_installed
from tapegrad.observe.answers.answers import declare, says
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.values.exact import is_of_integers
from tapegrad.primitives import special
from tapegrad.primitives.reductions import ExactSum
from tapegrad.tracing.frontend.indexing.indexing import as_python
from tapegrad.tracing.frontend.operands.operands import cast
from tapegrad.tracing.frontend.operands.parameters import whole
from tapegrad.tracing.memory.created import is_created
from tapegrad.tracing.operators import complexes
from tapegrad.tracing.operators.deciding import TO_FLOAT, has_varied
from tapegrad.tracing.recording.trace import innermost
from tapegrad.tracing.tracers.tracer import Tracer, record


def _is_traced(x: Any) -> bool:
    return isinstance(x, Tracer) and not is_created(x)


def is_followed(xs: Sequence[Any]) -> bool:
    """Whether a traced value is among arguments, except those computed from integers alone: these
    are guarded, and computations on them are plain until a later call finds other integers."""
    traced = [x for x in xs if _is_traced(x)]
    if not traced or innermost(traced).repeats:
        return bool(traced)
    if not all(is_of_integers(x._trace, x._read()[0]) for x in traced):
        return True
    return has_varied(TO_FLOAT)


def said(x: Any, names: Sequence[str] = ("__float__",)) -> Any:
    """The number that a Python object converts itself to, by the first of these methods that it
    has; any other object unchanged."""
    name = "" if isinstance(x, Tracer) else says(x, names)
    if not name:
        return x
    method = getattr(type(x), name)
    with observed():
        if is_installed(file_of_function(method)):  # Python's own are followed
            dispatch.root(method)
        number = method(x)
    kind = "int" if name == "__index__" else name.strip("_")
    if isinstance(number, {"float": float, "complex": complex, "int": int}[kind]):
        return number
    raise TypeError(
        f"{type(x).__name__}.{name} returned non-{kind} (type {number.__class__.__name__})"
    )


def said_complex(x: Any) -> Any:
    """The same for conversion to a complex number."""
    return said(x, ("__complex__", "__float__"))


def said_of(x: Any, dtype: Any) -> Any:
    """The same for entries of nested lists that are converted to an array of this dtype."""
    if type(x) not in (list, tuple) or dtype is None or np.dtype(dtype).kind not in "fc":
        return x
    found = [said_of(e, dtype) if type(e) in (list, tuple) else said(e) for e in x]
    return x if all(a is b for a, b in zip(found, x, strict=True)) else found


def _number(x: Any) -> Any:
    """An argument converted to float, as `math` does."""
    if not isinstance(x, Tracer):
        return float(x)
    if x.shape:
        float(np.ones(x.shape))  # NumPy's own error, unless it has one element
    if x.dtype.kind not in "fiub":
        raise TypeError(f"must be real number, not {x.__class__.__name__}")
    return cast(x._as_scalar(), np.float64)


def as_complex(x: Any) -> Any:
    """An argument converted to complex, as `cmath` does."""
    if not isinstance(x, Tracer):
        return complex(x)
    if x.shape:
        complex(np.ones(x.shape))  # NumPy's own error, unless it has one element
    return complexes.as_complex(as_python(x))


def _as_float(x: Any) -> Any:
    return as_python(x) if isinstance(x, Tracer) else float(x)


def _as_result(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(_as_result, x))
    return as_python(x) if isinstance(x, Tracer) else x


def _answered(
    original: Callable[..., Any],
    function: Callable[..., Any],
    number: Callable[[Any], Any] = _number,
    result_of: Callable[[Any], Any] = _as_float,
) -> Callable[..., Any]:
    @functools.wraps(original)
    @unobserved
    def called(*args: Any) -> Any:
        args = tuple(map(said if number is _number else said_complex, args))
        if not is_followed(args):
            with observed():  # objects may define __index__
                return original(*args)
        numbers = [number(x) for x in args]
        result = quiet(function)(*numbers)
        if not all(map(is_finite, result if isinstance(result, tuple) else (result,))):
            for x in numbers:
                for part in (x.real, x.imag):
                    if not np.isfinite(part) and not np.isnan(part):
                        bool(part > 0)
            original(*[x._concrete if isinstance(x, Tracer) else x for x in numbers])
        return result_of(result)

    return called


def is_finite(x: Any) -> bool:
    """Whether a result is finite, or unknown. It is guarded."""
    if not isinstance(x, Tracer) or x._value is None:
        return True
    finite = np.isfinite(x)
    if x._trace.supposing:
        x._trace.guard(finite, True, "a result that is finite", fixed=True)
    return x._trace.supposing or bool(finite)


def _asked(
    original: Callable[..., Any],
    function: Callable[..., Any],
    number: Callable[[Any], Any] = _number,
) -> Callable[..., Any]:
    """The replacement for a predicate, whose result is guarded."""

    @functools.wraps(original)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(said if number is _number else said_complex, args))
        if not any(map(_is_traced, (*args, *kwargs.values()))):
            with observed():
                return original(*args, **kwargs)
        return bool(function(*[number(x) for x in args], **kwargs))

    return called


def _log(natural: Callable[..., Any]) -> Callable[..., Any]:
    """`log(x, base)`, by the natural logarithm."""

    @functools.wraps(natural)
    @unobserved
    def log(*args: Any) -> Any:
        if len(args) != 2:
            return natural(*args)
        x, base = map(natural, args)  # each may raise an error, and so may the quotient
        return x / base

    return log


def _hypot(*xs: Any) -> Any:
    return functools.reduce(np.hypot, xs if len(xs) > 1 else (0.0, *xs))


def _infinite(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function with infinite results at both infinities, where NumPy's has others."""

    def called(x: Any) -> Any:
        found = function(x)
        return found if is_finite(found) else np.where(np.isinf(x), math.inf, found)

    return called


def _dist(p: Any, q: Any) -> Any:
    p, q = [said(x) for x in p], [said(x) for x in q]
    if not is_followed([*p, *q]):
        with observed():
            return math.dist(p, q)
    if len(p) != len(q):
        raise ValueError("both points must have the same number of dimensions")
    gaps = [_number(x) - _number(y) for x, y in zip(p, q, strict=True)]
    return _as_float(_hypot(*gaps))


def _is_close(a: Any, b: Any, rel_tol: float = 1e-09, abs_tol: float = 0.0) -> Any:
    near = abs(a - b) <= np.maximum(rel_tol * np.maximum(abs(a), abs(b)), abs_tol)
    return np.logical_or(a == b, np.logical_and(near, np.isfinite(a) & np.isfinite(b)))


def _modf(x: Any) -> Any:
    x = said(x)
    if not is_followed([x]):
        return math.modf(x)
    part, whole = np.modf(_number(x))
    return _as_float(part), _as_float(whole)


def _remainder(x: Any, y: Any) -> Any:
    """x - n y, with n the integer nearest to x / y; of two, the even one."""
    whole, step = np.abs(x), np.abs(y)
    below = np.fmod(whole, step)
    above = step - below
    even = np.fmod(0.5 * (whole - below), step) == 0
    nearest = np.where((below < above) | ((below == above) & even), below, -above)
    found = np.where(np.isinf(step) & np.isfinite(whole), whole, nearest)
    return np.copysign(1.0, x) * found


def _frexp(x: Any) -> Any:
    x = said(x)
    if not is_followed([x]):
        with observed():
            return math.frexp(x)
    part, exponent = np.frexp(_number(x))
    return _as_float(part), as_python(exponent)


def _nextafter(x: Any, y: Any, /, **steps: Any) -> Any:
    x, y = said(x), said(y)
    if steps or not is_followed([x, y]):
        with observed():
            return math.nextafter(x, y, **steps)
    return _as_float(np.nextafter(_number(x), _number(y)))


def _ldexp(x: Any, i: Any) -> Any:
    n = i if (found := whole(i)) is None else found
    math.ldexp(0.0, n)  # Python's own error
    most = max(-9999, min(n, 9999))  # NumPy takes C integers; larger ones have the same result
    return _answered(lambda x: math.ldexp(x, n), lambda x: np.ldexp(x, most))(x)


_UFUNCS: dict[str, Callable[..., Any]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "degrees": np.degrees,
    "erf": special.erf,
    "erfc": special.erfc,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fabs": np.fabs,
    "fmod": np.fmod,
    "gamma": special.gamma,
    "hypot": _hypot,
    "lgamma": _infinite(special.gammaln),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "pow": np.float_power,
    "radians": np.radians,
    "remainder": _remainder,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "ulp": _infinite(lambda x: np.spacing(np.abs(x))),
}
_QUESTIONS: dict[str, Callable[..., Any]] = {
    "isclose": _is_close,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
}


def _phase(z: Any) -> Any:
    return np.arctan2(z.imag, z.real)


@unobserved
def fsum(entries: Any, /) -> Any:
    if isinstance(entries, Tracer) and entries.ndim == 1 and is_followed([entries]):
        total = exact_sum(cast(entries, np.float64))
        if is_finite(total):
            return as_python(total)
    with observed():
        entries = list(entries)
    return _fsum(*entries)


def exact_sum(x: Any) -> Any:
    """The sum of a vector's elements, rounded once."""
    return record(x._trace, ExactSum(), [x]) if isinstance(x, Tracer) else math.fsum(x)


_fsum = _answered(lambda *xs: math.fsum(xs), lambda *xs: exact_sum(dispatch.as_operand(list(xs))))


def _rect(size: Any, phase: Any) -> Any:
    size, phase = _number(size), _number(phase)
    return size * np.cos(phase) + size * np.sin(phase) * 1j


_COMPLEX = """
    acos acosh asin asinh atan atanh cos cosh exp log log10 sin sinh sqrt tan tanh
"""
_OF_COMPLEX: dict[str, Callable[..., Any]] = {
    **{name: _UFUNCS[name] for name in _COMPLEX.split()},
    "phase": _phase,
    "polar": lambda z: (np.abs(z), _phase(z)),
}


def declare_all() -> None:
    """Register the replacements."""
    for name, function in _OF_COMPLEX.items():
        by = _answered(getattr(cmath, name), function, as_complex, _as_result)
        declare(cmath, name, by, traced=True)
    declare(cmath, "log", _log(_answered(cmath.log, np.log, as_complex, _as_result)), traced=True)
    declare(cmath, "rect", _answered(cmath.rect, _rect, _number, _as_result), traced=True)
    for name, function in _QUESTIONS.items():
        declare(cmath, name, _asked(getattr(cmath, name), function, as_complex), traced=True)
    for name, function in _UFUNCS.items():
        if hasattr(math, name):
            declare(math, name, _answered(getattr(math, name), function), traced=True)
    declare(math, "log", _log(_answered(math.log, np.log)), traced=True)
    for name, function in _QUESTIONS.items():
        declare(math, name, _asked(getattr(math, name), function), traced=True)
    declare(math, "modf", functools.wraps(math.modf)(unobserved(_modf)), traced=True)
    declare(math, "frexp", functools.wraps(math.frexp)(unobserved(_frexp)), traced=True)
    nextafter = functools.wraps(math.nextafter)(unobserved(_nextafter))
    declare(math, "nextafter", nextafter, traced=True)
    declare(math, "ldexp", functools.wraps(math.ldexp)(unobserved(_ldexp)), traced=True)
    declare(math, "fsum", functools.wraps(math.fsum)(fsum))
    declare(math, "dist", functools.wraps(math.dist)(unobserved(_dist)), traced=True)
