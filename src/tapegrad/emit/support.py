"""What the emitted loops call: arrays of fixed shape, scalar functions, and BLAS, for numba.

This file is also the tail of every saved gradient function, so it imports NumPy, numba and SciPy
(which numba's linear algebra needs) and nothing of tapegrad.

A `FixedArray` is a bare pointer whose shape and strides are part of its type: indexing is constant
arithmetic, without bounds, reference counts or wraparound. It is checked once, when a function is
called. Scalar functions go to LLVM's intrinsics or to libm; on x86-64 with glibc they carry the
names of libmvec's vector variants, and LLVM vectorises the loops around them.
"""

from __future__ import annotations

import ctypes
import math
import operator
import platform
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils, compiler
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    infer_getattr,
    infer_global,
    signature,
)
from numba.extending import (
    NativeValue,
    get_cython_function_address,
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    unbox,
)

_word = ir.IntType(64)
_int = ir.IntType(32)
_byte = ir.IntType(8)

# ---- arrays of fixed shape


class FixedArray(types.Type):
    """A pointer to elements of one dtype, with shape and strides (in elements) in the type."""

    def __init__(self, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None):
        if strides is None:
            strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
        self.dtype, self.shape, self.strides = dtype, shape, strides
        super().__init__(f"FixedArray({dtype}, {shape}, {strides})")


@register_model(FixedArray)
class FixedArrayModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: FixedArray) -> None:
        element = manager.lookup(kind.dtype).get_data_type()
        super().__init__(manager, kind, element.as_pointer())


def _rank(index: Any) -> int:
    return len(index) if isinstance(index, types.BaseTuple) else 1


def _is_index(index: Any) -> bool:
    entries = list(index) if isinstance(index, types.BaseTuple) else [index]
    return all(isinstance(e, types.Integer) for e in entries)


@infer_global(operator.getitem)
class FixedArrayGetItem(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        array, index = args
        if not isinstance(array, FixedArray) or not _is_index(index):
            return None
        rank = _rank(index)
        if rank == len(array.shape):
            return signature(array.dtype, array, index)
        rest = FixedArray(array.dtype, array.shape[rank:], array.strides[rank:])
        return signature(rest, array, index)


@infer_global(operator.setitem)
class FixedArraySetItem(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        array, index, _ = args
        if isinstance(array, FixedArray) and _rank(index) == len(array.shape):
            return signature(types.none, array, index, array.dtype)
        return None


def _address(context: Any, builder: Any, kinds: Any, array: Any, index: Any) -> Any:
    kind, index_kind = kinds[0], kinds[1]
    if isinstance(index_kind, types.BaseTuple):
        entries = list(zip(cgutils.unpack_tuple(builder, index, len(index_kind)), index_kind))
    else:
        entries = [(index, index_kind)]
    offset = None
    for (entry, entry_kind), stride in zip(entries, kind.strides):
        entry = context.cast(builder, entry, entry_kind, types.int64)
        term = entry if stride == 1 else builder.mul(entry, _word(stride), flags=("nsw",))
        offset = term if offset is None else builder.add(offset, term, flags=("nsw",))
    return array if offset is None else builder.gep(array, [offset], inbounds=True)


@lower_builtin(operator.getitem, FixedArray, types.Any)
def _lower_getitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    place = _address(context, builder, sig.args, *args)
    if isinstance(sig.return_type, FixedArray):
        return place
    return context.unpack_value(builder, sig.args[0].dtype, place)


@lower_builtin(operator.setitem, FixedArray, types.Any, types.Any)
def _lower_setitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array, index, value = args
    place = _address(context, builder, sig.args, array, index)
    context.pack_value(builder, sig.args[0].dtype, value, place)
    return context.get_dummy_value()


@infer_getattr
class FixedArrayAttributes(AttributeTemplate):
    key = FixedArray

    def resolve_T(self, array: FixedArray) -> FixedArray:
        return FixedArray(array.dtype, array.shape[::-1], array.strides[::-1])


@lower_getattr_generic(FixedArray)
def _lower_attribute(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    return value  # a transpose is the same pointer under another type


@intrinsic(prefer_literal=True)
def reshaped(typingctx: Any, array: Any, shape: Any) -> Any:
    """The start of a row-major array under another shape."""
    dims = tuple(e.literal_value for e in shape)
    kind = FixedArray(array.dtype, dims)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return args[0]

    return signature(kind, array, shape), codegen


# The fields of NumPy's array object and dtype that are read here are public C structures.
_DATA, _NDIM, _DIMENSIONS, _STRIDES, _DTYPE, _FLAGS = 16, 24, 32, 40, 56, 64
_BYTEORDER, _TYPE_NUMBER = 26, 28
_ALIGNED = 0x0100
binding.add_symbol("tapegrad_ndarray_type", id(np.ndarray))


def _load(builder: Any, base: Any, offset: int, kind: Any) -> Any:
    place = builder.gep(base, [_word(offset)])
    return builder.load(builder.bitcast(place, kind.as_pointer()))


@unbox(FixedArray)
def _unbox_fixed_array(kind: Any, value: Any, c: Any) -> Any:
    """The data pointer of an ndarray of exactly this type; a BufferError for anything else."""
    b = c.builder
    pointer = _byte.as_pointer()
    base = b.bitcast(value, pointer)
    name = "tapegrad_ndarray_type"
    if name in b.module.globals:
        wanted = b.module.globals[name]
    else:
        wanted = ir.GlobalVariable(b.module, _byte, name)
    ok = b.icmp_unsigned("==", _load(b, base, 8, pointer), wanted)
    result = cgutils.alloca_once_value(b, c.context.get_constant_null(kind))
    failed = cgutils.alloca_once_value(b, cgutils.true_bit)
    with b.if_then(ok):
        fits = b.icmp_signed("==", _load(b, base, _NDIM, _int), _int(len(kind.shape)))
        with b.if_then(fits):
            dtype = _load(b, base, _DTYPE, pointer)
            number = np.dtype(str(kind.dtype) if kind.dtype != types.boolean else "bool").num
            fits = b.icmp_signed("==", _load(b, dtype, _TYPE_NUMBER, _int), _int(number))
            swapped = b.icmp_signed("==", _load(b, dtype, _BYTEORDER, _byte), _byte(ord(">")))
            fits = b.and_(fits, b.not_(swapped))
            aligned = b.and_(_load(b, base, _FLAGS, _int), _int(_ALIGNED))
            fits = b.and_(fits, b.icmp_signed("!=", aligned, _int(0)))
            dims = _load(b, base, _DIMENSIONS, pointer)
            steps = _load(b, base, _STRIDES, pointer)
            width = c.context.get_abi_sizeof(c.context.get_data_type(kind.dtype))
            for k, (n, stride) in enumerate(zip(kind.shape, kind.strides)):
                same = b.icmp_signed("==", _load(b, dims, 8 * k, _word), _word(n))
                fits = b.and_(fits, same)
                if n != 1 and 0 not in kind.shape:
                    same = b.icmp_signed("==", _load(b, steps, 8 * k, _word), _word(stride * width))
                    fits = b.and_(fits, same)
            with b.if_then(fits):
                data = _load(b, base, _DATA, pointer)
                b.store(b.bitcast(data, c.context.get_value_type(kind)), result)
                b.store(cgutils.false_bit, failed)
    is_error = b.load(failed)
    with b.if_then(is_error, likely=False):
        c.pyapi.err_set_string("PyExc_BufferError", "another array than the compiled one")
    return NativeValue(b.load(result), is_error=is_error)


# ---- scalar functions


def _vector_library() -> bool:
    """Whether glibc's libmvec is here, and loaded."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    try:
        ctypes.CDLL("libmvec.so.1")
        binding.load_library_permanently("libmvec.so.1")
    except (OSError, RuntimeError):
        return False
    return binding.address_of_symbol("_ZGVdN4v_tanh") is not None


VECTORISED = _vector_library()
_VARIANTS = {"d": {64: 4, 32: 8}, "e": {64: 8, 32: 16}}  # AVX2 and AVX-512: lanes for a width


def _float_type(kind: Any) -> Any:
    return kind if isinstance(kind, types.Float) else types.float64


def _common(*kinds: Any) -> Any:
    """float32 if all operands are, else float64."""
    return types.float32 if all(k == types.float32 for k in kinds) else types.float64


def _declare_variants(module: Any, name: str, lltype: Any, arity: int, bits: int) -> str:
    """Declare libmvec's variants of a function in the module; the attribute that names them."""
    names = []
    for isa, lanes in _VARIANTS.items():
        symbol = f"_ZGV{isa}N{lanes[bits]}{'v' * arity}_{name}"
        names.append(f"{symbol}({symbol})")
        if symbol not in module.globals:
            vector = ir.VectorType(lltype, lanes[bits])
            function = ir.Function(module, ir.FunctionType(vector, [vector] * arity), symbol)
            _keep(module, function)
    return '"vector-function-abi-variant"="' + ",".join(names) + '"'


def _keep(module: Any, function: Any) -> None:
    """Put a declaration on the list of what LLVM may not drop."""
    name, pointer = "llvm.compiler.used", _byte.as_pointer()
    kept = [*module.globals[name].initializer.constant] if name in module.globals else []
    kept.append(function.bitcast(pointer))
    kind = ir.ArrayType(pointer, len(kept))
    if name not in module.globals:
        variable = ir.GlobalVariable(module, kind, name)
        variable.linkage, variable.section = "appending", "llvm.metadata"
    variable = module.globals[name]
    variable.value_type, variable.type = kind, kind.as_pointer()
    variable.initializer = ir.Constant(kind, kept)


def _libm(name: str, arity: int = 1, vectorised: bool = True) -> Any:
    """A function of libm, of one width in and out."""

    def emit(typingctx: Any, *kinds: Any) -> Any:
        kind = _common(*kinds)
        bits = 32 if kind == types.float32 else 64
        symbol = name + ("f" if bits == 32 else "")

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            lltype = context.get_data_type(kind)
            function_type = ir.FunctionType(lltype, [lltype] * arity)
            function = cgutils.get_or_insert_function(builder.module, function_type, symbol)
            function.attributes.add("nounwind")
            call = builder.call(function, args)
            call.attributes.add("nounwind")
            for attribute in ("readnone", "willreturn"):
                set.add(call.attributes, attribute)
            if VECTORISED and vectorised:
                text = _declare_variants(builder.module, symbol, lltype, arity, bits)
                set.add(call.attributes, text)
            return call

        return signature(kind, *[kind] * arity), codegen

    if arity == 1:

        def one(typingctx: Any, x: Any) -> Any:
            return emit(typingctx, x)

        one.__name__ = name
        return intrinsic(one)

    def two(typingctx: Any, x: Any, y: Any) -> Any:
        return emit(typingctx, x, y)

    two.__name__ = name
    return intrinsic(two)


def _llvm(name: str, arity: int = 1) -> Any:
    """An intrinsic of LLVM, of one width in and out."""

    def emit(typingctx: Any, *kinds: Any) -> Any:
        kind = _common(*kinds)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            lltype = context.get_data_type(kind)
            function = builder.module.declare_intrinsic(
                f"llvm.{name}", [lltype], ir.FunctionType(lltype, [lltype] * arity)
            )
            return builder.call(function, args)

        return signature(kind, *[kind] * arity), codegen

    if arity == 1:

        def one(typingctx: Any, x: Any) -> Any:
            return emit(typingctx, x)

        one.__name__ = name
        return intrinsic(one)

    def two(typingctx: Any, x: Any, y: Any) -> Any:
        return emit(typingctx, x, y)

    two.__name__ = name
    return intrinsic(two)


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


@intrinsic
def plus(typingctx: Any, x: Any, y: Any) -> Any:
    """x + y for sums whose order is free: LLVM may keep many partial sums."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fadd(*args, flags=("reassoc", "nsz"))

    return signature(x, x, x), codegen


@intrinsic
def where(typingctx: Any, condition: Any, x: Any, y: Any) -> Any:
    """x if the condition holds, else y: both are computed, none decides a branch."""
    kind = x if x == y else typingctx.unify_types(x, y)
    kind = types.unliteral(kind)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        flag = context.cast(builder, args[0], sig.args[0], types.boolean)
        return builder.select(flag, args[1], args[2])

    return signature(kind, types.boolean, kind, kind), codegen


def _extremum(name: str, function: str, order: str) -> Any:
    """maximum and minimum: NaN if either is; of integers, the larger or smaller."""

    def emit(typingctx: Any, x: Any, y: Any) -> Any:
        kind = types.unliteral(x if x == y else typingctx.unify_types(x, y))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b = args
            if isinstance(kind, types.Float):
                lltype = context.get_data_type(kind)
                call = builder.module.declare_intrinsic(
                    f"llvm.{function}", [lltype], ir.FunctionType(lltype, [lltype, lltype])
                )
                return builder.call(call, args)
            signed = isinstance(kind, types.Integer) and kind.signed
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.select(compare(order, a, b), a, b)

        return signature(kind, kind, kind), codegen

    emit.__name__ = name
    return intrinsic(emit)


maximum = _extremum("maximum", "maximum", ">")
minimum = _extremum("minimum", "minimum", "<")
fmax = _extremum("fmax", "maxnum", ">")
fmin = _extremum("fmin", "minnum", "<")


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
    return intrinsic(emit)


isnan = _test("isnan", lambda b, size, inf: b.fcmp_unordered("uno", size, size))
isinf = _test("isinf", lambda b, size, inf: b.fcmp_ordered("==", size, inf))
isfinite = _test("isfinite", lambda b, size, inf: b.fcmp_ordered("<", size, inf))


@intrinsic
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
    return intrinsic(emit)


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
    """The quotient rounded down, its remainder, and C's remainder. Division by 0 gives 0, as in
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


def _cast(name: str, kind: Any) -> Any:
    """Conversion as in C, and as NumPy's astype does it; a number is true unless it is 0."""

    def emit(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return context.cast(builder, args[0], sig.args[0], kind)

        return signature(kind, types.unliteral(x)), codegen

    emit.__name__ = name
    return intrinsic(emit)


as_f4, as_f8, as_b1 = (
    _cast("as_f4", types.float32),
    _cast("as_f8", types.float64),
    _cast("as_b1", types.boolean),
)
as_i1, as_i2 = _cast("as_i1", types.int8), _cast("as_i2", types.int16)
as_i4, as_i8 = _cast("as_i4", types.int32), _cast("as_i8", types.int64)
as_u1, as_u2 = _cast("as_u1", types.uint8), _cast("as_u2", types.uint16)
as_u4, as_u8 = _cast("as_u4", types.uint32), _cast("as_u8", types.uint64)


@intrinsic
def rolled(typingctx: Any, extent: Any) -> Any:
    """The extent of a short inner loop, hidden from LLVM: knowing it, LLVM unrolls the loop whole
    and then gathers elements across rows, ten times slower than vectorising along the row."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.asm(ir.FunctionType(_word, [_word]), "", "=r,0", args, False)

    return signature(types.int64, types.int64), codegen


@intrinsic
def wrapped(typingctx: Any, k: Any, extent: Any) -> Any:
    """An index that may count from the end, as one that counts from the start."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at, n = args
        return builder.select(builder.icmp_signed("<", at, _word(0)), builder.add(at, n), at)

    return signature(types.int64, types.int64, types.int64), codegen


# ---- BLAS

_BLAS_NAMES = {types.float64: "dgemm", types.float32: "sgemm"}


def _blas(kind: Any) -> str:
    """The symbol of SciPy's gemm for this type, registered with LLVM at its first use."""
    name = _BLAS_NAMES[kind]
    symbol = f"tapegrad_{name}"
    if binding.address_of_symbol(symbol) is None:
        binding.add_symbol(symbol, get_cython_function_address("scipy.linalg.cython_blas", name))
    return symbol


def load_blas() -> None:
    """Register all BLAS symbols: code that was compiled earlier calls them by name."""
    for kind in _BLAS_NAMES:
        _blas(kind)


@intrinsic
def matmul(typingctx: Any, x: Any, y: Any, out: Any) -> Any:
    """out = x @ y for matrices; x and y may be transposes of row-major ones."""

    def flag(matrix: Any) -> tuple[str, int]:
        (rows, columns), (down, along) = matrix.shape, matrix.strides
        if along == 1 and (rows == 1 or down >= columns):
            return "N", max(down, columns)
        return "T", max(along, rows)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lltype = context.get_data_type(out.dtype)
        pointer, integer, char = lltype.as_pointer(), _int.as_pointer(), _byte.as_pointer()
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(
                ir.VoidType(),
                [char, char, integer, integer, integer, pointer, pointer, integer, pointer, integer,
                 pointer, pointer, integer],
            ),
            _blas(out.dtype),
        )  # fmt: skip

        def number(value: int) -> Any:
            return cgutils.alloca_once_value(builder, _int(value))

        def letter(value: str) -> Any:
            return cgutils.alloca_once_value(builder, _byte(ord(value)))

        def real(value: float) -> Any:
            return cgutils.alloca_once_value(builder, ir.Constant(lltype, value))

        # BLAS counts columns first, so it is asked for out.T = y.T @ x.T.
        (m, k), n = x.shape, y.shape[1]
        (flag_x, lead_x), (flag_y, lead_y) = flag(x), flag(y)
        builder.call(
            function,
            [letter(flag_y), letter(flag_x), number(n), number(m), number(k), real(1.0), args[1],
             number(lead_y), args[0], number(lead_x), real(0.0), args[2], number(out.strides[0])],
        )  # fmt: skip
        return context.get_dummy_value()

    return signature(types.none, x, y, out), codegen


# ---- arguments


def argument(x: Any, shape: tuple[int, ...], dtype: Any, name: str) -> Any:
    """`x` as a row-major array of this dtype, if it has this shape; a ValueError if not."""
    array = np.asarray(x)
    if array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(
            f"{name} has shape {array.shape} and dtype {array.dtype}, but this function was made "
            f"for shape {shape} and dtype {np.dtype(dtype)}"
        )
    return np.require(array, dtype, ["C", "A"])


# ---- compiling


class Compiler(compiler.CompilerBase):
    """numba's pipeline, told that no two arguments overlap; the caller sees to that."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return [compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)]


def kernel_type(passed: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """numba's type of a parameter that is passed as a "scalar" or as an "array"."""
    element = types.boolean if np.dtype(dtype) == np.bool_ else getattr(types, np.dtype(dtype).name)
    return element if passed == "scalar" else FixedArray(element, tuple(shape))


def compiled(function: Any, parameters: Any) -> Any:
    """The machine code of a kernel, as a plain callable that takes exactly these types."""
    kinds = tuple(kernel_type(*p) for p in parameters)
    dispatcher = njit(
        [types.int64(*kinds)],
        pipeline_class=Compiler,
        error_model="numpy",
        nogil=True,
        _nrt=False,
        no_cfunc_wrapper=True,
    )(function)
    return dispatcher.overloads[kinds].entry_point, dispatcher
