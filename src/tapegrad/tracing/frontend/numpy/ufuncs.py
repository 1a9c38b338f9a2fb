"""NumPy's and SciPy's universal functions on traced arrays.

Dtypes follow NumPy's own resolution (NEP 50), which the ufunc itself is queried for. Operands are
cast explicitly, so primitives see operands of one dtype only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from types import NoneType
from typing import Any

import numpy as np

from tapegrad.core.handlers import quiet
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Literal
from tapegrad.observe.answers.answers import original_of
from tapegrad.observe.program.source import at_line
from tapegrad.primitives import binary, kinked, primitives, special, special_bessel
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.complexes import cartesian, conj
from tapegrad.primitives.special_complex import OF_COMPLEX
from tapegrad.primitives.stated import Known
from tapegrad.tracing.frontend.algebra import contracting
from tapegrad.tracing.frontend.axes.folding import folded_dtype, ufunc_method
from tapegrad.tracing.frontend.calling import object_arrays
from tapegrad.tracing.frontend.calling.user_objects import elsewhere, meet, meets_object
from tapegrad.tracing.frontend.calling.validation import accepted
from tapegrad.tracing.frontend.numpy import ufunc_cache as known_calls
from tapegrad.tracing.frontend.operands.memory import scalar
from tapegrad.tracing.frontend.operands.on_complex import CHOICES, by_parts, sign_of, size_of
from tapegrad.tracing.frontend.operands.operands import (
    as_operand,
    as_tracer,
    cast,
    cast_all,
    chosen,
    dtype_of,
    loop_dtypes,
    mask_of,
    promoted,
    store,
)
from tapegrad.tracing.frontend.operands.parameters import letter, running
from tapegrad.tracing.operators.deciding import exponent as integer_exponent
from tapegrad.tracing.recording.layout import lay_out
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.runs.floating_errors import watching
from tapegrad.tracing.tracers.alternatives import use
from tapegrad.tracing.tracers.tracer import Tracer


def applied(primitive: Any, ufunc: np.ufunc, xs: Sequence[Any], dtype: Any = None) -> Tracer:
    """`primitive(*xs)` in the dtypes of NumPy's `ufunc(*xs)`."""
    loop = loop_dtypes(ufunc, xs, dtype)
    if loop[0] == np.bool_:
        primitive = _OF_BOOLEANS.get(ufunc, primitive)
    try:
        operands = cast_all(xs, loop)
    except OverflowError:  # NumPy compares with a Python integer that is out of the dtype's range
        if loop[-1] != np.bool_:
            raise
        operands = cast_all(xs, [np.dtype(np.int64)] * len(xs))
    return primitive(*operands)


# ---- the table


Handler = Callable[..., Any]


def _power(x: Any, y: Any, of_all: Any = ew.power_of_all) -> Tracer:
    """Powers. Constant exponents take NumPy's shortcuts: x**2 is x*x, x**0.5 is sqrt(x). `of_all`
    is the primitive for one traced exponent of all elements."""
    exponent: float | None = None
    if isinstance(y, Tracer):
        if y._weak and y.dtype.kind == "i" and isinstance(x, Tracer):
            y = integer_exponent(y, x)
            exponent = None if isinstance(y, Tracer) else y
    elif isinstance(y, (int, float, np.generic)) and not isinstance(y, (bool, np.complexfloating)):
        exponent = float(y)
    kind = x.dtype.kind if isinstance(x, Tracer) else ""
    if exponent == 2 and kind in "iu" and isinstance(y, int):
        return applied(ew.square, np.square, [x])
    if exponent in _SHORT and kind == "f":
        primitive, ufunc = _SHORT[exponent]
        return applied(primitive, ufunc, [cast(x, loop_dtypes(np.power, [x, y])[0])])
    if isinstance(y, (Tracer, np.ndarray)) and loop_dtypes(np.power, [x, y])[0].kind == "i":
        powers = as_tracer(y, x)
        result = applied(ew.power, np.power, [x, powers])  # NumPy refuses negative ones
        valid: Any = np.all(powers >= 0)
        valid._trace.guard(valid, True, "the sign of integer exponents", fixed=True)
        return result
    if isinstance(y, (Tracer, np.ndarray)) and loop_dtypes(np.power, [x, y])[0].kind == "f":
        larger = np.size(x) > 1 or 0 < np.ndim(x) != np.ndim(y)
        if not np.ndim(y) or (np.size(y) == 1 and larger):
            return applied(of_all, np.power, [x, y])
    return applied(ew.power, np.power, [x, y])


_SHORT: dict[float | None, Any] = {
    2: (ew.square, np.square),
    1: (ew.copy, np.positive),
    0.5: (ew.sqrt, np.sqrt),
    -1: (ew.reciprocal, np.reciprocal),
}


def _modf(x: Any) -> tuple[Any, Any]:
    (x,) = promoted(np.modf, x)
    whole = np.trunc(x)
    return np.copysign(np.where(np.isinf(x), 0.0, x - whole), x), whole


def _frexp(x: Any) -> tuple[Any, Any]:
    (x,) = promoted(np.frexp, x)
    n = binary.exponent(x)
    return binary.ldexp(np.negative(n), x), n


def _ldexp(x: Any, n: Any) -> Any:
    loop = loop_dtypes(np.ldexp, [x, n])
    x, n = cast_all([x, n], loop)
    return binary.ldexp(n, x)


def _logaddexp2(x: Any, y: Any) -> Any:
    x, y = promoted(np.logaddexp2, x, y)
    return np.logaddexp(x * ew.LN2, y * ew.LN2) / ew.LN2


def _float_power(x: Any, y: Any) -> Any:
    """C's pow: to the power 0.5, -0.0 is 0.0 and -inf is inf."""
    x, y = promoted(np.float_power, x, y)
    if isinstance(y, Tracer) or np.ndim(y) or y != 0.5 or x.dtype.kind != "f":
        return _power(x, y, ew.power)
    root: Tracer = ew.root(x)
    return root


def _heaviside(x: Any, h: Any) -> Any:
    """h at 0; NaN stays NaN."""
    x, h = promoted(np.heaviside, x, h)
    return np.where(x > 0, 1.0, np.where(x < 0, 0.0, np.where(x == 0, h, x)))


@quiet
def _pseudo_huber(delta: Any, r: Any) -> Any:
    value = delta * delta * np.expm1(0.5 * np.log1p(np.square(np.divide(r, delta))))
    value = np.where((delta == 0) | (r == 0), 0.0, value)
    value = Known()(value, delta * (np.hypot(delta, r) - delta))  # its derivative loses no digits
    return np.where(delta < 0, np.inf, value)


def _huber(delta: Any, r: Any) -> Any:
    size = np.abs(r)
    found = np.where(size <= delta, 0.5 * np.square(r), delta * (size - 0.5 * delta))
    return np.where(delta < 0, np.inf, found)


def _kelvin(x: Any) -> tuple[Any, ...]:
    """ber + i bei, ker + i kei, and their derivatives."""
    names = (("ber", "bei"), ("ker", "kei"), ("berp", "beip"), ("kerp", "keip"))
    found = [[getattr(special_bessel, name)(x) for name in pair] for pair in names]
    return tuple(cartesian(*pair) for pair in found)


def _integer_or_logical(bits: Any, logical: Any) -> Handler:
    """`&`, `|`, `^`, `~`: logical on booleans, bitwise on integers."""

    def handler(*xs: Any) -> Any:
        if all(dtype_of(x) == np.dtype(bool) for x in xs):
            return applied(logical[0], logical[1], xs)
        return applied(bits[0], bits[1], xs)

    return handler


def _truth(primitive: Any, ufunc: np.ufunc) -> Handler:
    """Logical functions of numbers, whose truth is that they are nonzero."""

    def handler(*xs: Any) -> Any:
        flags = [x if dtype_of(x) == np.dtype(bool) else np.not_equal(x, 0) for x in xs]
        return applied(primitive, ufunc, flags)

    return handler


def _contraction(name: str) -> Handler:
    """matmul and its relatives, looked up late, since `contracting` imports this module."""

    def handler(x: Any, y: Any, **kwargs: Any) -> Any:
        return getattr(contracting, name)(x, y, **kwargs)

    return handler


def _signbit(x: Any) -> Any:
    """np.signbit. NumPy computes it in float16 for booleans and small integers."""
    return np.less(x, 0) if x.dtype.kind in "bui" else applied(ew.signbit, np.signbit, [x])


def _scaled(ufunc: np.ufunc, factor: float) -> Handler:
    return lambda x: applied(ew.mul, np.multiply, [*promoted(ufunc, x), factor])


_VECDOT = np.vecdot


def _by_kind(primitive: Any, ufunc: np.ufunc, of_complex: Any = None, whole: str = "") -> Handler:
    """A handler by the kind of the dtype: a primitive for real numbers, a function for complex
    ones, and a copy for the kinds in `whole`."""

    def handler(x: Any) -> Any:
        kind = loop_dtypes(ufunc, [x])[0].kind
        if kind == "c":
            return of_complex(*promoted(ufunc, x))
        return applied(ew.copy if kind in whole else primitive, ufunc, [x])

    return handler


# Arithmetic on booleans
_OF_BOOLEANS: dict[np.ufunc, Any] = {
    np.add: ew.logical_or,
    np.multiply: ew.logical_and,
    np.maximum: ew.logical_or,
    np.minimum: ew.logical_and,
    np.fmax: ew.logical_or,
    np.fmin: ew.logical_and,
}

# ufunc -> function of tracers
_COMPOSED: dict[np.ufunc, Handler] = {
    np.matmul: _contraction("matmul"),
    np.vecdot: _contraction("vecdot"),
    np.power: _power,
    np.float_power: _float_power,
    np.absolute: _by_kind(kinked.absolute, np.absolute, size_of, "bu"),
    np.floor: _by_kind(ew.floor, np.floor, whole="bui"),
    np.ceil: _by_kind(ew.ceil, np.ceil, whole="bui"),
    np.trunc: _by_kind(ew.trunc, np.trunc, whole="bui"),
    np.sign: _by_kind(ew.sign, np.sign, sign_of),
    np.rint: _by_kind(ew.rint, np.rint, partial(by_parts, ew.rint)),
    np.conjugate: lambda x: applied(conj if x.dtype.kind == "c" else ew.copy, np.conjugate, [x]),
    np.signbit: _signbit,
    np.divmod: lambda x, y: (np.floor_divide(x, y), np.mod(x, y)),
    np.modf: _modf,
    np.frexp: _frexp,
    np.ldexp: _ldexp,
    np.logaddexp2: _logaddexp2,
    **{f: _scaled(f, np.pi / 180) for f in (np.deg2rad, np.radians)},
    **{f: _scaled(f, 180 / np.pi) for f in (np.rad2deg, np.degrees)},
    np.heaviside: _heaviside,
    np.logical_and: _truth(ew.logical_and, np.logical_and),
    np.logical_or: _truth(ew.logical_or, np.logical_or),
    np.logical_xor: _truth(ew.logical_xor, np.logical_xor),
    np.logical_not: _truth(ew.logical_not, np.logical_not),
    np.bitwise_and: _integer_or_logical(
        (ew.bitwise_and, np.bitwise_and), (ew.logical_and, np.logical_and)
    ),
    np.bitwise_or: _integer_or_logical(
        (ew.bitwise_or, np.bitwise_or), (ew.logical_or, np.logical_or)
    ),
    np.bitwise_xor: _integer_or_logical(
        (ew.bitwise_xor, np.bitwise_xor), (ew.logical_xor, np.logical_xor)
    ),
    np.invert: _integer_or_logical((ew.invert, np.invert), (ew.logical_not, np.logical_not)),
}

if hasattr(np, "matvec"):  # from NumPy 2.2 on
    _COMPOSED[np.matvec] = _contraction("matvec")
    _COMPOSED[np.vecmat] = _contraction("vecmat")

# ufunc -> the primitive that names it
_DIRECT: dict[np.ufunc, Any] = {
    np.positive: ew.copy,
    np.fabs: kinked.absolute,
    **{
        p.ufunc: p
        for p in primitives().values()
        if type(getattr(p, "ufunc", None)) is np.ufunc and p.ufunc not in _COMPOSED
    },
}

# Functions of scipy.special by name: tracing without SciPy must not import it.
_SPECIAL: dict[str, Any] = {
    "psi": special.digamma,
    **{name: p for name, p in primitives().items() if isinstance(p, Elementwise)},
}
_SPECIAL_COMPOSED: dict[str, Handler] = {
    "exp10": lambda x: _power(10.0, x),
    "huber": _huber,
    "kelvin": _kelvin,
    # The principal branch: not a number for negative numbers, unlike gammaln.
    "loggamma": lambda x: np.where(x < 0, np.nan, special.gammaln(x)),
    "ndtr": lambda x: special.erfc(x * -math.sqrt(0.5)) * 0.5,
    "pseudo_huber": _pseudo_huber,
}


OTHERS: list[Callable[[np.ufunc], Any]] = []  # they look up handlers of other ufuncs


def call_plain(
    ufunc: np.ufunc,
    xs: Sequence[Any],
    dtype: Any = None,
    casting: Any = "same_kind",
    **kwargs: Any,
) -> Any:
    """`ufunc(*xs)` on tracers, without `out=` and `where=`; `kwargs` are vecdot's."""
    xs = [as_operand(x) for x in xs]
    if not any(isinstance(x, Tracer) for x in xs):
        return ufunc(*xs, dtype=dtype)  # only out= was traced
    if dtype is not None and np.dtype(dtype) == np.bool_ == loop_dtypes(ufunc, xs)[-1]:
        dtype = None  # the dtype of the result, which it has anyway; operands aren't cast to it
    primitive, handler = _DIRECT.get(ufunc), _COMPOSED.get(ufunc)
    if ufunc in CHOICES and any(map(np.iscomplexobj, xs)):
        primitive, handler, xs = None, CHOICES[ufunc], promoted(ufunc, *xs)
    if original_of(getattr(np, ufunc.__name__, None)) is not ufunc:  # NumPy's own
        name = ufunc.__name__ if known_calls.is_scipys(ufunc) else ""
        if ufunc.nout > 1 and f"{name}_0" in _SPECIAL:
            parts = [_SPECIAL[f"{name}_{k}"] for k in range(ufunc.nout)]
            return tuple(applied(part, ufunc, xs, dtype) for part in parts)
        primitive = OF_COMPLEX.get(name) if any(map(np.iscomplexobj, xs)) else None
        primitive = primitive or _SPECIAL.get(name)
        handler = None if primitive else _SPECIAL_COMPOSED.get(name)
        xs = xs if handler is None else promoted(ufunc, *xs)
    if primitive is not None:
        if dtype is not None:
            xs = _of_dtype(ufunc, xs, np.dtype(dtype), casting)
        return applied(primitive, ufunc, xs, dtype)
    if handler is None:
        handler = next(filter(None, [made_of(ufunc) for made_of in OTHERS]), None)
    if handler is None:
        raise refusing(
            UnsupportedError(
                f"{ufunc.__name__} has no derivative rule in tapegrad{at_line()}. {use(ufunc)}, or "
                "declare it with tapegrad.primitive and defvjp"
            )
        )
    if dtype is not None:
        xs = _of_dtype(ufunc, xs, np.dtype(dtype), casting)
    out = handler(*xs, **kwargs)
    if dtype is None:
        return out
    return tuple(cast(x, dtype) for x in out) if isinstance(out, tuple) else cast(out, dtype)


def _of_dtype(ufunc: np.ufunc, xs: Sequence[Any], dtype: np.dtype, casting: Any) -> list[Any]:
    """The operands of `ufunc(*xs, dtype=dtype)`, cast as NumPy does."""
    for x in xs:
        given = dtype_of(x)
        if not isinstance(given, type) and not np.can_cast(given, dtype, casting):
            raise TypeError(
                f"Cannot cast ufunc {ufunc.__name__!r} input from {given!r} to {dtype!r} with "
                f"casting rule {casting!r}"
            )
    cast_xs = cast_all(xs, [dtype] * len(xs))
    return [x.value if isinstance(x, Literal) else x for x in cast_xs]


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The entry from NumPy's `__array_ufunc__` protocol, for a ufunc or a method of one."""
    if method == "__call__" and not kwargs:
        return _call_plainly(ufunc, inputs)
    func = ufunc if method == "__call__" else getattr(ufunc, method)
    found = elsewhere(ufunc, method, inputs, kwargs)
    if found:
        return found[0]

    def run() -> Any:
        return watching(func, inputs, kwargs, lambda: _called(ufunc, method, inputs, dict(kwargs)))

    if running.numpys or object_arrays.is_of_function(ufunc):
        return run()
    name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    return accepted(func, inputs, kwargs, run, name)


def _call_plainly(ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """`ufunc(*inputs)`."""
    kinds = known_calls.kinds_of(inputs)
    known = known_calls.KNOWN.get((ufunc, kinds)) if kinds else None
    if known is not None:
        found = known_calls.again(known, inputs)
        if found is not None:
            return found

    def run() -> Any:
        return watching(ufunc, inputs, {}, lambda: _called(ufunc, "__call__", inputs, {}))

    if kinds and ufunc in _DIRECT:
        result = run()
        if known is None:
            known_calls.learn(ufunc, _DIRECT[ufunc], kinds, inputs, result)
        return result
    found = elsewhere(ufunc, "__call__", inputs, {})
    if found:
        return found[0]

    def met() -> Any:
        if meets_object(ufunc, inputs):
            return meet(ufunc, inputs)
        return run()

    if any(map(_is_no_number, inputs)) and not running.numpys:
        return accepted(ufunc, inputs, {}, met, f"np.{ufunc.__name__}")
    return met()


def _is_no_number(x: Any) -> bool:
    """Whether `x` is an object that most ufuncs refuse, with their own error."""
    return type(x) in (NoneType, str, bytes, dict) or (
        type(x) is np.ndarray and x.dtype.kind in "OSUV"
    )


def _called(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if object_arrays.is_of_function(ufunc):
        return object_arrays.call(ufunc, method, inputs, kwargs)
    if method == "__call__" and not kwargs:
        return scalar(call_plain(ufunc, inputs))
    out = kwargs.pop("out", None)
    where = kwargs.pop("where", True)
    where = where if where is True else mask_of(where)
    casting = kwargs.pop("casting", "same_kind")
    kwargs.pop("subok", None)
    order = letter(kwargs.pop("order", "K"))
    if method == "__call__":
        dtype = kwargs.pop("dtype", None)
        if isinstance(dtype, type) and issubclass(dtype, np.dtype):  # np.dtypes.Float64DType
            dtype = dtype.type
        if ufunc is not _VECDOT or set(kwargs) != {"axis"}:
            _no_more(ufunc, kwargs)
        result = call_plain(ufunc, inputs, dtype, casting, **kwargs)
    else:
        if where is not True:
            kwargs["where"] = where
            where = True
        if out is not None and kwargs.get("dtype") is None and method != "outer":
            kwargs["dtype"] = folded_dtype(ufunc, inputs[0], out)
        result = ufunc_method(ufunc, method, inputs, kwargs)
    if out is None:
        return scalar(_ordered(chosen(where, result), order))
    outs = out if isinstance(out, tuple) else (out,)
    results = result if isinstance(result, tuple) else (result,)
    stored = tuple(
        r if o is None else store(o, r, where, casting) for o, r in zip(outs, results, strict=True)
    )
    return stored[0] if len(stored) == 1 else stored


def _ordered(result: Any, order: str) -> Any:
    """New results in this memory order."""
    for x in result if isinstance(result, tuple) else (result,):
        if order in ("C", "F"):
            lay_out(x, order)
        elif order == "A":
            x._ordered = x.ndim < 2
    return result


def _no_more(ufunc: np.ufunc, kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise UnsupportedError(
            f"np.{ufunc.__name__} with {', '.join(kwargs)}= isn't supported on traced "
            f"arrays{at_line()}. Use np.moveaxis or astype before"
        )
