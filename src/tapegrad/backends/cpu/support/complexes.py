"""Complex numbers in the emitted loops: pairs of real ones.

Functions are those of the C library, which NumPy calls as well. Arithmetic is written here as NumPy
computes it: a quotient by Smith's algorithm (R. L. Smith, "Algorithm 116", Communications of the
ACM 5 (1962)), a product without tests for infinities.
"""

# mypy: disable-error-code="call-arg,var-annotated,unreachable,no-any-return"
from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.support.arrays import Intrinsic
from tapegrad.backends.cpu.support.operators import OF_COMPLEX, TARGET, implementation
from tapegrad.backends.cpu.support.scalars import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cos,
    cosh,
    exp,
    exp2,
    expm1,
    hypot,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    plus,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    where,
)
from tapegrad.backends.cpu.support.syntax import tree_of
from tapegrad.backends.cpu.support.translation import Translator

WIDE = types.complex128
LN2, LOG2E, LOG10E = 0.6931471805599453, 1.4426950408889634, 0.4342944819032518


def _parts_of(builder: Any, z: Any) -> list[Any]:
    return [builder.extract_value(z, k) for k in (0, 1)]


def _paired(builder: Any, kind: Any, x: Any, y: Any) -> Any:
    z = TARGET.make_complex(builder, kind)
    z.real, z.imag = x, y
    return z._getvalue()


def _complex_type(*kinds: Any) -> Any:
    """The complex type of all operands."""
    narrow = all(k in (types.complex64, types.float32) for k in kinds)
    return types.complex64 if narrow else WIDE


# ---- parts


@Intrinsic
def real(typingctx: Any, z: Any) -> Any:
    """The real part."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.extract_value(args[0], 0)

    return signature(z.underlying_float, z), codegen


@Intrinsic
def imag(typingctx: Any, z: Any) -> Any:
    """The imaginary part."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.extract_value(args[0], 1)

    return signature(z.underlying_float, z), codegen


@Intrinsic
def conj(typingctx: Any, z: Any) -> Any:
    """The conjugate."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y = _parts_of(builder, args[0])
        return _paired(builder, z, x, builder.fneg(y))

    return signature(z, z), codegen


@Intrinsic
def cartesian(typingctx: Any, x: Any, y: Any) -> Any:
    """x + iy."""
    part = types.float32 if x == y == types.float32 else types.float64
    kind = types.complex64 if part == types.float32 else WIDE

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _paired(builder, kind, *args)

    return signature(kind, part, part), codegen


# ---- functions of C's library


def _of_library(name: str) -> Any:
    """A C function of one double complex. Its parts are passed, and returned, in two registers."""

    def emit(typingctx: Any, z: Any) -> Any:
        kind = _complex_type(z)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            double = ir.DoubleType()
            both = ir.LiteralStructType([double, double])
            function_type = ir.FunctionType(both, [double, double])
            function = cgutils.get_or_insert_function(builder.module, function_type, name)
            function.attributes.add("nounwind")
            wide = context.cast(builder, args[0], kind, WIDE)
            call = builder.call(function, _parts_of(builder, wide))
            call.attributes.add("nounwind")
            for attribute in ("readnone", "willreturn"):
                set.add(call.attributes, attribute)
            return context.cast(
                builder, _paired(builder, WIDE, *_parts_of(builder, call)), WIDE, kind
            )

        return signature(kind, kind), codegen

    emit.__name__ = name
    return Intrinsic(emit)


_OF_LIBRARY = (
    *(exp, log, sqrt, sin, cos, tan, asin, acos, atan),
    *(sinh, cosh, tanh, asinh, acosh, atanh),
)
OF_COMPLEX.update({function: _of_library(f"c{function.__name__}") for function in _OF_LIBRARY})


# ---- functions made of real ones


def pairwise(function: Any) -> Any:
    """A complex function, from a function of the parts of one or two complex numbers. Its body is
    assignments and a return of both parts of the result."""
    arity = function.__code__.co_argcount // 2

    def emit_one(typingctx: Any, z: Any) -> Any:
        return emit(z)

    def emit_two(typingctx: Any, z: Any, w: Any) -> Any:
        return emit(z, w)

    def emit(*kinds: Any) -> Any:
        kind = _complex_type(*kinds)
        part = kind.underlying_float

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            given = [x for z in args for x in _parts_of(builder, z)]
            found = builder.call(_translated_pair(builder.module, function, part), given)
            return _paired(builder, kind, *_parts_of(builder, found))

        return signature(kind, *[kind] * arity), codegen

    made: Any = emit_one if arity == 1 else emit_two
    made.__name__ = function.__name__
    return Intrinsic(made)


def _translated_pair(module: Any, function: Any, part: Any) -> Any:
    """The function in a module, where LLVM inlines it."""
    name = f"pairwise {function.__name__} {part}"
    if name not in module.globals:
        lltype = TARGET.get_value_type(part)
        tree = tree_of(function)
        both = ir.LiteralStructType([lltype, lltype])
        made = ir.Function(module, ir.FunctionType(both, [lltype] * len(tree.args.args)), name)
        made.linkage = "internal"
        made.attributes.add("alwaysinline")
        translator = Translator(function.__globals__, made)
        for parameter, argument in zip(tree.args.args, made.args, strict=True):
            translator.take(parameter.arg, argument, part)
        _, *statements, last = tree.body  # after the docstring
        translator.body(statements)
        result = ir.Constant(both, ir.Undefined)
        for k, x in enumerate(last.value.elts):  # type: ignore[attr-defined]
            value, kind = translator.expression(x)
            value = TARGET.cast(translator.builder, value, kind, part)
            result = translator.builder.insert_value(result, value, k)
        translator.builder.ret(result)
        translator.finish()
    return module.globals[name]


@pairwise
def added(a: Any, b: Any, c: Any, d: Any) -> Any:
    """(a + ib) + (c + id)."""
    return a + c, b + d


@pairwise
def subtracted(a: Any, b: Any, c: Any, d: Any) -> Any:
    """(a + ib) - (c + id)."""
    return a - c, b - d


@pairwise
def multiplied(a: Any, b: Any, c: Any, d: Any) -> Any:
    """(a + ib) (c + id)."""
    return a * c - b * d, a * d + b * c


@pairwise
def negative(a: Any, b: Any) -> Any:
    """-(a + ib)."""
    return -a, -b


@pairwise
def divided(a: Any, b: Any, c: Any, d: Any) -> Any:
    """(a + ib) / (c + id)."""
    flat = abs(c) >= abs(d)
    p = where(flat, c, d)
    q = where(flat, d, c)
    ratio = q / p
    scale = 1.0 / (p + q * ratio)
    x = where(flat, a + b * ratio, a * ratio + b) * scale
    y = where(flat, b - a * ratio, b * ratio - a) * scale
    nothing = (c == 0.0) & (d == 0.0)
    return where(nothing, a / abs(c), x), where(nothing, b / abs(d), y)


@pairwise
def reciprocal(c: Any, d: Any) -> Any:
    """1 / (c + id)."""
    flat = abs(d) <= abs(c)
    ratio = where(flat, d / c, c / d)
    size = where(flat, c + d * ratio, c * ratio + d)
    return where(flat, 1.0, ratio) / size, where(flat, -ratio, -1.0) / size


@pairwise
def complex_expm1(x: Any, y: Any) -> Any:
    """exp(z) - 1, by NumPy's formula."""
    half = sin(y * 0.5)
    return expm1(x) * cos(y) - 2.0 * half * half, exp(x) * sin(y)


@pairwise
def complex_log1p(x: Any, y: Any) -> Any:
    """log(1 + z), by NumPy's formula."""
    return log(hypot(x + 1.0, y)), atan2(y, x + 1.0)


@pairwise
def complex_sum(a: Any, b: Any, c: Any, d: Any) -> Any:
    """A sum whose order is free."""
    return plus(a, c), plus(b, d)


def _scaled(name: str, function: Any, before: float, after: float) -> Any:
    """function(z * before) * after."""

    def emit(typingctx: Any, z: Any) -> Any:
        kind = _complex_type(z)
        wide = OF_COMPLEX[function]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            def times(value: Any, factor: float) -> Any:
                number = ir.Constant(ir.DoubleType(), factor)
                return _paired(
                    builder, WIDE, *(builder.fmul(x, number) for x in _parts_of(builder, value))
                )

            value = times(context.cast(builder, args[0], kind, WIDE), before)
            value = implementation(wide, (WIDE,))[0](builder, [value])
            return context.cast(builder, times(value, after), WIDE, kind)

        return signature(kind, kind), codegen

    emit.__name__ = name
    return Intrinsic(emit)


def _tested(test: Any, joined: str) -> Any:
    """Whether a test holds for either part, or for both."""

    def emit(typingctx: Any, z: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            run, _ = implementation(test, (z.underlying_float,))
            flags = [run(builder, [x]) for x in _parts_of(builder, args[0])]
            return getattr(builder, joined)(*flags)

        return signature(types.boolean, z), codegen

    emit.__name__ = f"complex_{test.__name__}"
    return Intrinsic(emit)


OF_COMPLEX.update(
    {
        operator.add: added,
        operator.sub: subtracted,
        operator.mul: multiplied,
        operator.neg: negative,
        operator.truediv: divided,
        expm1: complex_expm1,
        log1p: complex_log1p,
        plus: complex_sum,
        exp2: _scaled("complex_exp2", exp, LN2, 1.0),
        log2: _scaled("complex_log2", log, 1.0, LOG2E),
        log10: _scaled("complex_log10", log, 1.0, LOG10E),
        isnan: _tested(isnan, "or_"),
        isinf: _tested(isinf, "or_"),
        isfinite: _tested(isfinite, "and_"),
    }
)
