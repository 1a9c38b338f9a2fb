"""Sums of products of a vector with shifted parts of another one.

Neighbouring sums read neighbouring numbers, so a block of sums stays in registers during the loop
over the shorter vector, and each sum adds its terms in order:

    for j in range(first, last):
        block[k:k + lanes] += v[j] * x[k + j - before:][:lanes]

At the ends, some sums of a block have a term j and others don't. There each lane reads x, and adds
to its sum, only if it has the term: padding would become NaN where v is infinite. A long vector is
processed in parts, each of which all blocks read while it is in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.support.arrays import INT, WORD, Intrinsic, is_open, larger, word
from tapegrad.backends.cpu.support.blocks import Registers, registers
from tapegrad.backends.cpu.support.unrolled import FLAG, VOID

STRETCH = 1024  # elements of a long vector that are processed at once


@Intrinsic
def correlate(typingctx: Any, out: Any, x: Any, v: Any, before: Any) -> Any:
    """out[k] = sum of v[j] * x[k + j - before], over the terms for which x has an element."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (count,), (n,), (m,) = out.shape, x.shape, v.shape
        size, many = registers()
        lanes = size * 8 // int(x.dtype.bitwidth)
        blocks = _blocks(builder, count, lanes, many // 4 * lanes)
        n, last = word(builder, n), word(builder, m)

        def run(first: Any, last: Any, adds: Any) -> None:
            for start, times, width in blocks:
                block = _correlated(builder.module, args[0].type, width)
                with cgutils.for_range(builder, times) as loop:
                    k = builder.add(builder.mul(loop.index, WORD(width)), start)
                    place = builder.gep(args[0], [k], inbounds=True)
                    at = builder.sub(k, args[3])
                    builder.call(block, [place, args[1], args[2], at, n, first, last, adds])

        if is_open(m) or m > STRETCH:
            times = builder.sdiv(builder.add(last, WORD(STRETCH - 1)), WORD(STRETCH))
            with cgutils.for_range(builder, times) as loop:
                first = builder.mul(loop.index, WORD(STRETCH))
                end = _smaller(builder, builder.add(first, WORD(STRETCH)), last)
                run(first, end, builder.icmp_signed("!=", first, WORD(0)))
        else:
            run(WORD(0), last, FLAG(0))
        return context.get_dummy_value()

    return signature(types.none, out, x, v, types.int64), codegen


def _blocks(builder: Any, count: Any, lanes: int, most: int) -> list[tuple[Any, Any, int]]:
    """Blocks of `count` sums: for each width the first sum, the number of blocks, and the width. If
    the count is known, blocks have about the same width. If it is open, the remainder of the widest
    blocks is vectors, and then single numbers."""
    if not is_open(count):
        wide = min(most, -(-count // max(1, -(-count // most)) // lanes) * lanes)
        whole, left = divmod(count, wide) if count else (0, 0)
        found = [(0, whole, wide), (count - left, 1, left)]
        return [
            (WORD(start), WORD(times), width) for start, times, width in found if times and width
        ]
    blocks, start, left = [], WORD(0), word(builder, count)
    for width in (most, lanes, 1):
        times = builder.sdiv(left, WORD(width))
        blocks.append((start, times, width))
        taken = builder.mul(times, WORD(width))
        start, left = builder.add(start, taken), builder.sub(left, taken)
    return blocks


def _smaller(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.icmp_signed("<", x, y), x, y)


def _correlated(module: Any, pointer: Any, width: int) -> Any:
    """The function that adds the terms first, ..., last - 1 to `width` sums. The first sum has the
    term v[0] * x[at]."""
    name = f"correlated {pointer} {width}"
    if name not in module.globals:
        kind = ir.FunctionType(VOID, [pointer] * 3 + [WORD] * 4 + [FLAG])
        function = ir.Function(module, kind, name)
        function.linkage = "internal"
        function.attributes.add("nounwind")
        function.attributes.add("noinline")
        for argument in function.args[:3]:
            argument.add_attribute("noalias")
        builder = ir.IRBuilder(function.append_basic_block())
        _Correlation(builder, function.args, width).write()
        builder.ret_void()
    return module.globals[name]


class _Correlation(Registers):
    """Writes the function of a block."""

    def __init__(self, builder: Any, args: Sequence[Any], width: int) -> None:
        out, self.x, self.v, self.at, self.n, self.first, self.last, self.adds = args
        super().__init__(builder, out.type.pointee)
        starts = range(0, width, self.lanes)
        self.vectors = [(c, min(self.lanes, width - c)) for c in starts]
        self.out, self.width = out, width

    def write(self) -> None:
        builder = self.builder
        # All sums of the block have the terms from `low` to `high`.
        low = builder.sub(WORD(0), self.at)
        low = _smaller(builder, larger(builder, low, self.first), self.last)
        high = builder.sub(self.n, builder.add(self.at, WORD(self.width - 1)))
        high = larger(builder, _smaller(builder, high, self.last), low)
        # Some of them have these.
        begin = builder.sub(WORD(1 - self.width), self.at)
        begin = _smaller(builder, larger(builder, begin, self.first), low)
        end = builder.sub(self.n, self.at)
        end = larger(builder, _smaller(builder, end, self.last), high)
        totals = [
            builder.select(self.adds, self.load(self.after(self.out, (c, 1)), k), self.zero(k))
            for c, k in self.vectors
        ]
        totals = self.repeated(begin, low, 1, totals, self.some)
        totals = self.repeated(low, high, 1, totals, self.all)
        totals = self.repeated(high, end, 1, totals, self.some)
        for (c, _), total in zip(self.vectors, totals, strict=True):
            self.store(total, self.after(self.out, (c, 1)))

    def all(self, j: Any, totals: Sequence[Any]) -> list[Any]:
        """Add the term j to all sums."""
        factor = self.load(self.after(self.v, (j, 1)), 1)
        start = self.after(self.x, (self.builder.add(self.at, j), 1))
        found = []
        for (c, lanes), total in zip(self.vectors, totals, strict=True):
            x = self.load(self.after(start, (c, 1)), lanes)
            found.append(self.plus(total, (self.spread(factor, x.type), x)))
        return found

    def some(self, j: Any, totals: Sequence[Any]) -> list[Any]:
        """Add the term j to the sums that have it."""
        builder = self.builder
        factor = self.load(self.after(self.v, (j, 1)), 1)
        at = builder.add(self.at, j)
        found = []
        for (c, lanes), total in zip(self.vectors, totals, strict=True):
            place = builder.add(at, WORD(c))
            x, there = self._there(place, lanes)
            sums = self.plus(total, (self.spread(factor, x.type), x))
            found.append(builder.select(there, sums, total))
        return found

    def _there(self, place: Any, lanes: int) -> Sequence[Any]:
        """The elements of x from `place` on, and a mask of those that exist."""
        there = self.mask(place, self.n, lanes)
        found = self.load(self.builder.gep(self.x, [place]), lanes, there)
        if lanes > 1:
            return found, there
        return [self.builder.extract_element(value, INT(0)) for value in (found, there)]
