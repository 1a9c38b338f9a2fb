"""Calls on whole rows: test whether all numbers are moderate, and set them to zero."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.support.arrays import INT, POINTER, WORD, Intrinsic, word
from tapegrad.backends.cpu.support.blocks import Registers
from tapegrad.backends.cpu.support.shared import REALS, letter_of, shared_function
from tapegrad.backends.cpu.support.unrolled import FLAG, VOID

AT_ONCE = 4  # vectors


@Intrinsic
def clear(typingctx: Any, vector: Any) -> Any:
    """Set the numbers of a vector to 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = vector.dtype.bitwidth // 8
        count = builder.mul(word(builder, vector.shape[0]), WORD(size))
        cgutils.memset(builder, args[0], count, 0)
        return context.get_dummy_value()

    return signature(types.none, vector), codegen


@Intrinsic
def all_moderate(typingctx: Any, array: Any, first: Any, count: Any, bound: Any) -> Any:
    """Whether `count` consecutive numbers, from `first` on, are moderate: see
    `scalars.moderate`."""
    kind = array.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        real = context.get_data_type(kind)
        bits, exponent = ir.IntType(kind.bitwidth), np.finfo(kind.name).nmant
        one = int(np.ones((), kind.name).view(f"i{kind.bitwidth // 8}"))
        bound = context.cast(builder, args[3], sig.args[3], kind)
        high = builder.bitcast(bound, bits)
        low = builder.bitcast(builder.fdiv(ir.Constant(real, 1.0), bound), bits)
        # The exponents around that of 1: a power of two of them.
        most = builder.lshr(builder.sub(high, low), bits(exponent))
        wide = builder.sub(bits(kind.bitwidth - 1), builder.ctlz(most, FLAG(1)))
        many = builder.shl(bits(1 << exponent), wide)
        shift = builder.sub(builder.lshr(many, bits(1)), bits(one))
        far = builder.sub(bits(1 << (kind.bitwidth - 1)), many)
        place = builder.gep(args[0], [args[1]], inbounds=True)
        function = _all_moderate(builder.module, letter_of(real))
        return builder.call(function, [place, args[2], low, high, shift, far])

    return signature(types.boolean, array, types.int64, types.int64, bound), codegen


def _asking(letter: str) -> Any:
    """The type of the functions:

    bool moderate(real *x, long count, bits low, bits high, bits shift, bits far)
    """
    real = REALS[letter]
    bits = ir.IntType(32 if real == ir.FloatType() else 64)
    return ir.FunctionType(FLAG, [real.as_pointer(), WORD, *[bits] * 4])


@shared_function("moderate", _asking)
def _all_moderate(builder: Any, args: Sequence[Any], letter: str) -> None:
    """Whether each of `count` numbers is 0, or has a magnitude between those with the bits `low`
    and `high`."""
    _Magnitudes(builder, args).write()


class _Magnitudes(Registers):
    """Writes the function. Without their signs, floats are ordered like their bits.

    Most numbers are close to 1. That takes fewer instructions to see: their exponents, moved by
    `shift`, have none of the bits of `far`. So this is tested first, up to the first number that
    isn't; from there on, whether numbers are close to 1 or zeros; and then the exact condition.
    """

    def __init__(self, builder: Any, args: Sequence[Any]) -> None:
        self.x, self.count, self.low, self.high, shift, far = args
        super().__init__(builder, self.x.type.pointee)
        self.word = shift.type
        self.words = ir.VectorType(self.word, self.lanes)
        self.shift, self.far = (self.spread(x, self.words) for x in (shift, far))

    def write(self) -> None:
        builder = self.builder
        few = builder.icmp_signed("<", self.count, WORD(self.lanes))
        with builder.if_then(few, likely=False):
            there = self.mask(WORD(0), self.count, self.lanes)
            only = builder.bitcast(self.load(self.x, self.lanes, there), self.words)
            builder.ret(builder.not_(self._any(self._strays(only))))
        many = builder.icmp_signed(">=", self.count, WORD(AT_ONCE * self.lanes))
        with builder.if_then(many):
            self._answer(AT_ONCE, self._first_far())
        self._answer(1, WORD(0))

    def _first_far(self) -> Any:
        """The position of the first vectors with a number that isn't close to 1. If there is none,
        the function returns true here."""
        builder = self.builder
        before = builder.block
        head, body, back, after = (builder.append_basic_block() for _ in range(4))
        builder.branch(head)
        builder.position_at_end(head)
        p = builder.phi(WORD)
        p.add_incoming(WORD(0), before)
        builder.cbranch(builder.icmp_signed("<", p, self.count), body, back)
        builder.position_at_end(back)
        builder.ret(FLAG(1))
        builder.position_at_end(body)
        self._fetch(builder.add(p, self.count))
        found = functools.reduce(builder.or_, map(self._shifted, self._vectors(p, AT_ONCE)))
        p.add_incoming(builder.add(p, WORD(AT_ONCE * self.lanes)), body)
        builder.cbranch(self._any(builder.and_(found, self.far)), after, head)
        builder.position_at_end(after)
        return p

    def _fetch(self, p: Any) -> None:
        """Prefetch the vectors from `p` on, while the loop goes on: in a matrix they are the next
        row. The memory needn't exist."""
        kind = ir.FunctionType(VOID, [POINTER, INT, INT, INT])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        for k in range(AT_ONCE):
            at = self.builder.gep(self.x, [self.builder.add(p, WORD(k * self.lanes))])
            how = INT(0), INT(3), INT(1)  # to read, into the first cache, data
            self.builder.call(function, [self.builder.bitcast(at, POINTER), *how])

    def _answer(self, together: int, start: Any) -> None:
        """Return whether all numbers are moderate, as those before `start` are."""
        builder = self.builder
        far = builder.and_(self._found(start, together, self._shifted_unless_zero), self.far)
        with builder.if_then(builder.not_(self._any(far)), likely=True):
            builder.ret(FLAG(1))
        builder.ret(builder.not_(self._any(self._found(start, 1, self._strays))))

    def _found(self, start: Any, together: int, look: Callable[[Any], Any]) -> Any:
        """The union of what `look` finds in the vectors from `start` on, `together` of them at a
        time."""

        def also(p: Any, found: Sequence[Any]) -> list[Any]:
            vectors = map(look, self._vectors(p, together))
            return [functools.reduce(self.builder.or_, vectors, found[0])]

        step = together * self.lanes
        return self.repeated(start, self.count, step, [self._each(0)], also)[0]

    def _vectors(self, p: Any, together: int) -> list[Any]:
        """`together` vectors from `p` on; the last ones end where the numbers do."""
        builder, step = self.builder, together * self.lanes
        p = self.smaller(p, builder.sub(self.count, WORD(step)))
        places = (
            self.after(self.after(self.x, (p, 1)), (k, 1)) for k in range(0, step, self.lanes)
        )
        return [builder.bitcast(self.load(at, self.lanes), self.words) for at in places]

    def _shifted(self, x: Any) -> Any:
        return self.builder.add(x, self.shift)

    def _shifted_unless_zero(self, x: Any) -> Any:
        is_zero = self.builder.icmp_unsigned("==", self._size(x), self._each(0))
        return self.builder.select(is_zero, self._each(0), self._shifted(x))

    def _strays(self, x: Any) -> Any:
        builder, size = self.builder, self._size(x)
        low, high = self.spread(self.low, self.words), self.spread(self.high, self.words)
        span = builder.sub(high, low)
        outside = builder.icmp_unsigned(">", builder.sub(size, low), span)
        stray = builder.and_(outside, builder.icmp_unsigned("!=", size, self._each(0)))
        return builder.sext(stray, self.words)

    def _size(self, x: Any) -> Any:
        return self.builder.and_(x, self._each(2 ** (self.word.width - 1) - 1))

    def _any(self, found: Any) -> Any:
        """Whether any word of a vector has a bit set."""
        some = self.builder.icmp_unsigned("!=", found, self._each(0))
        bits = ir.IntType(self.lanes)
        return self.builder.icmp_unsigned("!=", self.builder.bitcast(some, bits), bits(0))

    def _each(self, value: int) -> Any:
        return ir.Constant(self.words, [self.word(value)] * self.lanes)
