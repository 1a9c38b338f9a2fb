"""Scalar functions for the emitted loops.

They call LLVM's intrinsics or libm. On x86-64 with glibc they carry the names of libmvec's vector
variants, and LLVM vectorises the loops around them.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.codegen import get_host_cpu_features
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.linking import vector_library
from tapegrad.backends.cpu.support.arrays import BYTE, INT, WORD, Intrinsic

# The processor feature that each set of variants needs, and their lanes by the numbers' width.
_VARIANTS = {"d": ("+avx2", {64: 4, 32: 8}), "e": ("+avx512f", {64: 8, 32: 16})}


@functools.cache
def features() -> frozenset[str]:
    """The processor features that code is compiled for, each with a sign."""
    chosen = config.CPU_FEATURES  # type: ignore[attr-defined]
    return frozenset((get_host_cpu_features() if chosen is None else chosen).split(","))


VECTORISED = vector_library() and "+avx2" in features()


def _common(*kinds: Any) -> Any:
    """float32 if all operands are, else float64."""
    return types.float32 if all(k == types.float32 for k in kinds) else types.float64


def _behind(module: Any, function: Any) -> Any:
    """A function of this module that only calls one of libm's.

    LLVM knows libm, and would replace some calls: `log(x)` by the intrinsic where x is known to be
    positive, `pow(2, x)` by that of exp2, `cos(-x)` by another cos. The replacements have no vector
    variants. LLVM doesn't know this function.
    """
    name = f"scalar_{function.name}"
    if name not in module.globals:
        made = ir.Function(module, function.function_type, name)
        made.linkage = "internal"
        for attribute in ("noinline", "nounwind"):
            made.attributes.add(attribute)
        builder = ir.IRBuilder(made.append_basic_block())
        builder.ret(builder.call(function, made.args, tail=True))
        _keep(module, made)  # and its parameters, even if all calls pass the same number
    return module.globals[name]


def _declare_variants(module: Any, name: str, lltype: Any, arity: int, bits: int) -> str:
    """Declare libmvec's variants of a function in the module. Returns the attribute that names them
    as variants of its `_behind` function. LLVM takes those with as many lanes as a loop, on any
    processor: those of AVX-512 for numbers that a loop over float32 computes in float64."""
    names = []
    for isa, (feature, lanes) in _VARIANTS.items():
        if feature not in features():
            continue
        kind = f"_ZGV{isa}N{lanes[bits]}{'v' * arity}_"
        symbol = kind + name
        names.append(f"{kind}scalar_{name}({symbol})")
        if symbol not in module.globals:
            vector = ir.VectorType(lltype, lanes[bits])
            function = ir.Function(module, ir.FunctionType(vector, [vector] * arity), symbol)
            _keep(module, function)
    return '"vector-function-abi-variant"="' + ",".join(names) + '"'


def _keep(module: Any, function: Any) -> None:
    """Add a function to the list of those that LLVM may neither drop nor change."""
    name, pointer = "llvm.compiler.used", BYTE.as_pointer()
    kept = [*module.globals[name].initializer.constant] if name in module.globals else []
    kept.append(function.bitcast(pointer))
    kind = ir.ArrayType(pointer, len(kept))
    if name not in module.globals:
        variable = ir.GlobalVariable(module, kind, name)
        variable.linkage, variable.section = "appending", "llvm.metadata"
    variable = module.globals[name]
    variable.value_type, variable.type = kind, kind.as_pointer()
    variable.initializer = ir.Constant(kind, kept)


def _intrinsic(emit: Any, name: str, arity: int) -> Any:
    """An intrinsic of one or two operands, each a parameter of its function."""

    def one(typingctx: Any, x: Any) -> Any:
        return emit(typingctx, x)

    def two(typingctx: Any, x: Any, y: Any) -> Any:
        return emit(typingctx, x, y)

    function: Any = one if arity == 1 else two
    function.__name__ = name
    return Intrinsic(function)


def _libm(name: str, arity: int = 1, vectorised: bool = True) -> Any:
    """A function of libm, with one width of operands and result."""

    def emit(typingctx: Any, *kinds: Any) -> Any:
        kind = _common(*kinds)
        bits = 32 if kind == types.float32 else 64
        symbol = name + ("f" if bits == 32 else "")

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            lltype = context.get_data_type(kind)
            function_type = ir.FunctionType(lltype, [lltype] * arity)
            function = cgutils.get_or_insert_function(builder.module, function_type, symbol)
            function.attributes.add("nounwind")
            varied = VECTORISED and vectorised
            call = builder.call(_behind(builder.module, function) if varied else function, args)
            call.attributes.add("nounwind")
            for attribute in ("readnone", "willreturn"):
                set.add(call.attributes, attribute)
            if varied:
                text = _declare_variants(builder.module, symbol, lltype, arity, bits)
                set.add(call.attributes, text)
            return call

        return signature(kind, *[kind] * arity), codegen

    return _intrinsic(emit, name, arity)


def _llvm(name: str, arity: int = 1) -> Any:
    """An intrinsic of LLVM, with one width of operands and result."""

    def emit(typingctx: Any, *kinds: Any) -> Any:
        kind = _common(*kinds)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            lltype = context.get_data_type(kind)
            function = builder.module.declare_intrinsic(
                f"llvm.{name}", [lltype], ir.FunctionType(lltype, [lltype] * arity)
            )
            return builder.call(function, args)

        return signature(kind, *[kind] * arity), codegen

    return _intrinsic(emit, name, arity)


exp, exp2, expm1 = _libm("exp"), _libm("exp2"), _libm("expm1")
log, log2, log10, log1p = _libm("log"), _libm("log2"), _libm("log10"), _libm("log1p")
sin, cos, tan = _libm("sin"), _libm("cos"), _libm("tan")
asin, acos, atan = _libm("asin"), _libm("acos"), _libm("atan")
sinh, cosh, tanh = _libm("sinh"), _libm("cosh"), _libm("tanh")
asinh, acosh, atanh = _libm("asinh"), _libm("acosh"), _libm("atanh")
erf, erfc, cbrt = _libm("erf"), _libm("erfc"), _libm("cbrt")
lgamma = _libm("lgamma", vectorised=False)
power, atan2, hypot = _libm("pow", 2), _libm("atan2", 2), _libm("hypot", 2)
sqrt, floor, ceil, trunc, rint = map(_llvm, ("sqrt", "floor", "ceil", "trunc", "rint"))
copysign = _llvm("copysign", 2)


@Intrinsic
def plus(typingctx: Any, x: Any, y: Any) -> Any:
    """x + y for sums whose order is free: LLVM may keep many partial sums.

    Without the flag "nsz": it would only drop the sign of a zero, but with it LLVM also
    reassociates the terms x and y themselves: x - x becomes 0 where x is infinite, and the factors
    of products are multiplied first, which may overflow.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fadd(*args, flags=("reassoc",))

    return signature(x, x, x), codegen


@Intrinsic
def where(typingctx: Any, condition: Any, x: Any, y: Any) -> Any:
    """x if the condition holds, else y. Both are computed; there is no branch."""
    kind = x if x == y else typingctx.unify_types(x, y)
    kind = types.unliteral(kind)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        flag = context.cast(builder, args[0], sig.args[0], types.boolean)
        return builder.select(flag, args[1], args[2])

    return signature(kind, types.boolean, kind, kind), codegen


def _extremum(name: str, order: str, function: str = "", flags: tuple[str, ...] = ()) -> Any:
    """maximum and minimum as NumPy's: NaN if either operand is; of 0.0 and -0.0 the second operand.
    With `function`, LLVM's function of that name."""

    def emit(typingctx: Any, x: Any, y: Any) -> Any:
        kind = types.unliteral(x if x == y else typingctx.unify_types(x, y))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b = args
            if isinstance(kind, types.Float) and not function:
                chosen = builder.select(builder.fcmp_ordered(order, a, b), a, b)
                return builder.select(builder.fcmp_unordered("uno", a, a), a, chosen)
            if isinstance(kind, types.Float):
                lltype = context.get_data_type(kind)

                def called(name: str, lltype: Any, *args: Any, fastmath: Any = ()) -> Any:
                    form = ir.FunctionType(lltype, [lltype] * len(args))
                    function = builder.module.declare_intrinsic(f"llvm.{name}", [lltype], form)
                    return builder.call(function, args, fastmath=fastmath)

                if flags:  # the flags don't cover the computation of the new element: 0.0 + x
                    # In float64, since LLVM can't compile `canonicalize` of two float32 at once.
                    wide = ir.DoubleType()
                    b = b if lltype == wide else builder.fpext(b, wide)
                    b = called("canonicalize", wide, b)
                    b = b if lltype == wide else builder.fptrunc(b, lltype)
                return called(function, lltype, a, b, fastmath=flags)
            signed = isinstance(kind, types.Integer) and bool(getattr(kind, "signed", True))
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.select(compare(order, a, b), a, b)

        return signature(kind, kind, kind), codegen

    emit.__name__ = name
    return Intrinsic(emit)


maximum = _extremum("maximum", ">")
minimum = _extremum("minimum", "<")
# For folds, which LLVM may compute in many parts: the order of elements is free, and with it the
# sign of a zero.
largest = _extremum("largest", ">", "maximum", ("nsz",))
smallest = _extremum("smallest", "<", "minimum", ("nsz",))
fmax = _extremum("fmax", ">", "maxnum")
fmin = _extremum("fmin", "<", "minnum")


def _test(name: str, make: Any) -> Any:
    def emit(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if not isinstance(x, types.Float):
                return cgutils.true_bit if name == "isfinite" else cgutils.false_bit
            lltype = context.get_data_type(x)
            function = builder.module.declare_intrinsic(
                "llvm.fabs", [lltype], ir.FunctionType(lltype, [lltype])
            )
            size = builder.call(function, args)
            return make(builder, size, ir.Constant(lltype, float("inf")))

        return signature(types.boolean, x), codegen

    emit.__name__ = name
    return Intrinsic(emit)


isnan = _test("isnan", lambda b, size, inf: b.fcmp_unordered("uno", size, size))
isinf = _test("isinf", lambda b, size, inf: b.fcmp_ordered("==", size, inf))
isfinite = _test("isfinite", lambda b, size, inf: b.fcmp_ordered("<", size, inf))


@Intrinsic
def moderate(typingctx: Any, x: Any, bound: Any) -> Any:
    """Whether x is 0, or its magnitude is between 1 / bound and bound, a power of two. Without
    their signs, floats are ordered like their bits."""
    kind = types.unliteral(x)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lltype = context.get_data_type(kind)
        bits = ir.IntType(kind.bitwidth)
        high = context.cast(builder, args[1], sig.args[1], kind)
        low = builder.bitcast(builder.fdiv(ir.Constant(lltype, 1.0), high), bits)
        size = builder.and_(builder.bitcast(args[0], bits), bits(2 ** (kind.bitwidth - 1) - 1))
        span = builder.sub(builder.bitcast(high, bits), low)
        fits = builder.icmp_unsigned("<=", builder.sub(size, low), span)
        return builder.or_(fits, builder.icmp_unsigned("==", size, bits(0)))

    return signature(types.boolean, kind, bound), codegen


@Intrinsic
def sign(typingctx: Any, x: Any) -> Any:
    """-1, 0 or 1; NaN for NaN."""
    x = types.unliteral(x)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lltype = context.get_data_type(x)
        (value,) = args
        zero, one = ir.Constant(lltype, 0), ir.Constant(lltype, 1)
        if isinstance(x, types.Float):
            above, below = (builder.fcmp_ordered(order, value, zero) for order in "><")
            rest = builder.select(builder.fcmp_ordered("==", value, zero), zero, value)
        elif x.signed:
            above, below = (builder.icmp_signed(order, value, zero) for order in "><")
            rest = zero
        else:
            above, below = builder.icmp_unsigned(">", value, zero), cgutils.false_bit
            rest = zero
        minus = ir.Constant(lltype, -1)
        return builder.select(above, one, builder.select(below, minus, rest))

    return signature(x, x), codegen


def _division(name: str, of_floats: Any, of_integers: Any) -> Any:
    """mod and its relatives, of two numbers of one type."""

    def emit(typingctx: Any, x: Any, y: Any) -> Any:
        kind = types.unliteral(x if x == y else typingctx.unify_types(x, y))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            make = of_floats if isinstance(kind, types.Float) else of_integers
            return make(builder, kind, context.get_data_type(kind), *args)

        return signature(kind, kind, kind), codegen

    emit.__name__ = name
    return Intrinsic(emit)


def _fmod_of_floats(b: Any, kind: Any, lltype: Any, x: Any, y: Any) -> Any:
    name = "fmodf" if kind == types.float32 else "fmod"
    function_type = ir.FunctionType(lltype, [lltype, lltype])
    return b.call(cgutils.get_or_insert_function(b.module, function_type, name), [x, y])


def _divided_floats(b: Any, kind: Any, lltype: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """NumPy's quotient, rounded down, and remainder, with the sign of the divisor."""
    zero, one = ir.Constant(lltype, 0.0), ir.Constant(lltype, 1.0)

    def unary(name: str, *xs: Any) -> Any:
        kinds = ir.FunctionType(lltype, [lltype] * len(xs))
        return b.call(b.module.declare_intrinsic(f"llvm.{name}", [lltype], kinds), xs)

    rest = _fmod_of_floats(b, kind, lltype, x, y)
    left = b.fcmp_unordered("!=", rest, zero)
    other = b.xor(b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", rest, zero))
    moved = b.and_(left, other)
    exact = b.fdiv(b.fsub(x, rest), y)
    exact = b.select(moved, b.fsub(exact, one), exact)
    down = unary("floor", exact)
    near = b.fcmp_ordered(">", b.fsub(exact, down), ir.Constant(lltype, 0.5))
    down = b.select(near, b.fadd(down, one), down)
    down = b.select(
        b.fcmp_unordered("!=", exact, zero), down, unary("copysign", zero, b.fdiv(x, y))
    )
    down = b.select(b.fcmp_ordered("==", y, zero), b.fdiv(x, y), down)
    rest = b.select(moved, b.fadd(rest, y), rest)
    return down, b.select(left, rest, unary("copysign", zero, y))


def _divided_integers(b: Any, kind: Any, lltype: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """The quotient rounded down, its remainder, and C's remainder. Division by 0 returns 0, as in
    NumPy, and nothing traps."""
    zero, one = ir.Constant(lltype, 0), ir.Constant(lltype, 1)
    by_zero = b.icmp_signed("==", y, zero)
    if not kind.signed:
        safe = b.select(by_zero, one, y)
        rest = b.urem(x, safe)
        return b.select(by_zero, zero, b.udiv(x, safe)), rest, rest
    by_minus_one = b.icmp_signed("==", y, ir.Constant(lltype, -1))
    safe = b.select(b.or_(by_zero, by_minus_one), one, y)
    down, rest = b.sdiv(x, safe), b.srem(x, safe)
    other = b.xor(b.icmp_signed("<", y, zero), b.icmp_signed("<", rest, zero))
    moved = b.and_(b.icmp_signed("!=", rest, zero), other)
    down = b.select(moved, b.sub(down, one), b.select(by_minus_one, b.neg(down), down))
    return b.select(by_zero, zero, down), b.select(moved, b.add(rest, y), rest), rest


mod = _division("mod", lambda *xs: _divided_floats(*xs)[1], lambda *xs: _divided_integers(*xs)[1])
fmod = _division("fmod", _fmod_of_floats, lambda *xs: _divided_integers(*xs)[2])
floor_divide = _division(
    "floor_divide", lambda *xs: _divided_floats(*xs)[0], lambda *xs: _divided_integers(*xs)[0]
)


def _shift(name: str, make: Any) -> Any:
    """Shifts of two integers of one type, by any number of bits."""

    def emit(typingctx: Any, x: Any, y: Any) -> Any:
        kind = types.unliteral(x if x == y else typingctx.unify_types(x, y))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            lltype = context.get_data_type(kind)
            fits = builder.icmp_unsigned("<", args[1], ir.Constant(lltype, kind.bitwidth))
            return make(builder, kind, lltype, fits, *args)

        return signature(kind, kind, kind), codegen

    emit.__name__ = name
    return Intrinsic(emit)


def _shifted_left(b: Any, kind: Any, lltype: Any, fits: Any, x: Any, y: Any) -> Any:
    zero = ir.Constant(lltype, 0)
    return b.select(fits, b.shl(x, b.select(fits, y, zero)), zero)


def _shifted_right(b: Any, kind: Any, lltype: Any, fits: Any, x: Any, y: Any) -> Any:
    """A shift by too many bits leaves the sign: 0 or -1."""
    zero, last = ir.Constant(lltype, 0), ir.Constant(lltype, kind.bitwidth - 1)
    if kind.signed:
        return b.ashr(x, b.select(fits, y, last))
    return b.select(fits, b.lshr(x, b.select(fits, y, zero)), zero)


left_shift = _shift("left_shift", _shifted_left)
right_shift = _shift("right_shift", _shifted_right)


def _whole(b: Any, x: Any, lltype: Any, kind: Any) -> Any:
    """A float as an integer of this type. C leaves conversions out of range undefined. This is what
    compilers do on x86-64, and so NumPy: the low bits of a signed integer, and for the upper half
    of the unsigned ones the number less that half."""
    if kind.bitwidth < 32:
        return b.trunc(b.fptosi(x, INT), lltype)
    if kind.signed:
        return b.fptosi(x, lltype)
    half, top = 2.0 ** (kind.bitwidth - 1), ir.Constant(lltype, -(2 ** (kind.bitwidth - 1)))
    large = b.fcmp_ordered(">=", x, ir.Constant(x.type, half))
    upper = b.xor(b.fptosi(b.fsub(x, ir.Constant(x.type, half)), lltype), top)
    return b.select(large, upper, b.fptosi(x, lltype))


def _cast(name: str, kind: Any) -> Any:
    """Conversion as in C, and as in NumPy's astype; a number is true unless it is 0."""

    def emit(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if isinstance(x, types.Float) and isinstance(kind, types.Integer):
                return _whole(builder, args[0], context.get_data_type(kind), kind)
            return context.cast(builder, args[0], sig.args[0], kind)

        return signature(kind, types.unliteral(x)), codegen

    emit.__name__ = name
    return Intrinsic(emit)


as_f4, as_f8, as_b1 = (
    _cast("as_f4", types.float32),
    _cast("as_f8", types.float64),
    _cast("as_b1", types.boolean),
)
as_c8, as_c16 = _cast("as_c8", types.complex64), _cast("as_c16", types.complex128)
as_i1, as_i2 = _cast("as_i1", types.int8), _cast("as_i2", types.int16)
as_i4, as_i8 = _cast("as_i4", types.int32), _cast("as_i8", types.int64)
as_u1, as_u2 = _cast("as_u1", types.uint8), _cast("as_u2", types.uint16)
as_u4, as_u8 = _cast("as_u4", types.uint32), _cast("as_u8", types.uint64)


@Intrinsic
def rolled(typingctx: Any, extent: Any) -> Any:
    """The extent of a short inner loop, hidden from LLVM. If LLVM knew it, it would unroll the loop
    and then gather elements across rows, ten times slower than vectorising along the row."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.asm(ir.FunctionType(WORD, [WORD]), "", "=r,0", args, False)

    return signature(types.int64, types.int64), codegen


@Intrinsic
def shared(typingctx: Any, chunks: Any) -> Any:
    """The number of chunks of a loop in a round, whose chunks the cores share."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return args[0]

    return signature(types.int64, types.int64), codegen


@Intrinsic
def wrapped(typingctx: Any, k: Any, extent: Any) -> Any:
    """An index that may count from the end, as one that counts from the start. One out of range
    becomes 0: the kernel reports it at the end, and accesses no other memory until then."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at, n = args
        at = builder.select(builder.icmp_signed("<", at, WORD(0)), builder.add(at, n), at)
        return builder.select(builder.icmp_unsigned("<", at, n), at, WORD(0))

    return signature(types.int64, types.int64, types.int64), codegen
