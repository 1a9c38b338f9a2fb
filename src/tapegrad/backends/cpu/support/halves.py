"""Numbers of half precision, which kernels hold as their 16 bits.

They are converted by integer arithmetic, which LLVM vectorises with the loops around it; between
float16 and float32 by x86-64's instructions, where the processor has them. Rounding is to nearest,
ties to even.

    float16    sign, 5 bits of exponent, 10 of fraction
    bfloat16   sign, 8 bits of exponent, 7 of fraction: the upper half of a float32
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.support.arrays import Intrinsic
from tapegrad.backends.cpu.support.scalars import features

_HALF, _BITS = ir.IntType(16), {32: ir.IntType(32), 64: ir.IntType(64)}
_REALS = {32: ir.FloatType(), 64: ir.DoubleType()}
_FRACTION = {32: 23, 64: 52}  # bits
_BIAS = {32: 127, 64: 1023}
_CONVERTS = "+f16c" in features()  # between float16 and float32


def _from(name: str, widen: Any) -> Any:
    def emit(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
            bits = b.zext(context.cast(b, args[0], sig.args[0], types.uint16), _BITS[32])
            return b.bitcast(widen(b, bits), _REALS[32])

        return signature(types.float32, types.uint16), codegen

    emit.__name__ = name
    return Intrinsic(emit)


def _to(name: str, narrow: Any) -> Any:
    def emit(typingctx: Any, x: Any) -> Any:
        kind = x if x in (types.float32, types.float64) else types.float32

        def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
            return narrow(b, args[0], kind.bitwidth)

        return signature(types.uint16, kind), codegen

    emit.__name__ = name
    return Intrinsic(emit)


def _of_float16(b: Any, bits: Any) -> Any:
    word = _BITS[32]
    if _CONVERTS:
        return b.bitcast(b.fpext(b.bitcast(b.trunc(bits, _HALF), ir.HalfType()), _REALS[32]), word)
    size = b.and_(bits, word(0x7FFF))
    shifted = b.shl(size, word(13))
    normal = b.add(shifted, word((127 - 15) << 23))
    no_number = b.or_(shifted, word(0x7F800000))
    small = b.fmul(b.uitofp(size, _REALS[32]), ir.Constant(_REALS[32], 2.0**-24))
    found = b.select(b.icmp_unsigned("<", size, word(0x7C00)), normal, no_number)
    found = b.select(b.icmp_unsigned("<", size, word(0x0400)), b.bitcast(small, word), found)
    return b.or_(found, b.shl(b.and_(bits, word(0x8000)), word(16)))


def _of_bfloat16(b: Any, bits: Any) -> Any:
    return b.shl(bits, _BITS[32](16))


def _to_float16(b: Any, x: Any, width: int) -> Any:
    if _CONVERTS and width == 32:
        return b.bitcast(b.fptrunc(x, ir.HalfType()), _HALF)
    word, real, fraction = _BITS[width], _REALS[width], _FRACTION[width]
    drop = fraction - 10  # bits of the fraction
    bits = b.bitcast(x, word)
    size = b.and_(bits, word(2 ** (width - 1) - 1))
    infinite, low = ((1 << width - fraction - 1) - 1) << fraction, _BIAS[width] - 15
    odd = b.and_(b.lshr(size, word(drop)), word(1))
    normal = b.add(b.sub(size, word(low << fraction)), word((1 << drop - 1) - 1))
    normal = b.lshr(b.add(normal, odd), word(drop))
    normal = b.select(b.icmp_unsigned("<", normal, word(0x7C00)), normal, word(0x7C00))
    # The last bits of a sum with this number are those of float16's subnormal numbers.
    step = ir.Constant(real, 2.0 ** (fraction - 24))
    small = b.bitcast(b.fadd(b.bitcast(size, real), step), word)
    small = b.sub(small, b.bitcast(step, word))
    found = b.select(b.icmp_unsigned("<", size, word(low + 1 << fraction)), small, normal)
    payload = b.and_(b.lshr(size, word(drop)), word(0x3FF))
    payload = b.select(b.icmp_unsigned("==", payload, word(0)), word(1), payload)
    is_none = b.icmp_unsigned(">", size, word(infinite))
    found = b.select(is_none, b.or_(payload, word(0x7C00)), found)
    sign = b.lshr(b.and_(bits, word(1 << width - 1)), word(width - 16))
    return b.trunc(b.or_(found, sign), _HALF)


def _to_bfloat16(b: Any, x: Any, width: int) -> Any:
    word = _BITS[32]
    bits = b.bitcast(x if width == 32 else b.fptrunc(x, _REALS[32]), word)
    odd = b.and_(b.lshr(bits, word(16)), word(1))
    near = b.lshr(b.add(b.add(bits, word(0x7FFF)), odd), word(16))
    size = b.and_(bits, word(0x7FFFFFFF))
    none = b.or_(b.lshr(b.and_(bits, word(0x80000000)), word(16)), word(0x7FC0))
    found = b.select(b.icmp_unsigned(">", size, word(0x7F800000)), none, near)
    return b.trunc(found, _HALF)


from_float16, to_float16 = _from("from_float16", _of_float16), _to("to_float16", _to_float16)
from_bfloat16, to_bfloat16 = _from("from_bfloat16", _of_bfloat16), _to("to_bfloat16", _to_bfloat16)
