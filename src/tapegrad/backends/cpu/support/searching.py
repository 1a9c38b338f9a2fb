"""Search for the places of numbers in a sorted vector.

A vector register's numbers are searched for at once, and several vectors in turn, so that none
waits for the loads of another. All halve the remaining part of the sorted vector in the same steps,
without a branch:

    half = left // 2
    start = start + half if a[start + half - 1] goes before v else start
    left = left - half

In NumPy's order, NaN comes last, and NaNs are equal.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.support.arrays import INT, WORD, FixedArray, Intrinsic
from tapegrad.backends.cpu.support.blocks import Registers
from tapegrad.backends.cpu.support.unrolled import FLAG, VOID

TOGETHER = 4  # vectors


@Intrinsic
def search_left(typingctx: Any, out: Any, a: Any, v: Any) -> Any:
    """out = the number of elements of a that come before each of v."""
    return _searched(out, a, v, False)


@Intrinsic
def search_right(typingctx: Any, out: Any, a: Any, v: Any) -> Any:
    """out = the number of elements of a that come before each of v, or are equal to it."""
    return _searched(out, a, v, True)


def _searched(out: FixedArray, a: FixedArray, v: FixedArray, right: bool) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = 1
        for extent in v.shape:
            size *= extent
        lanes = Registers(builder, args[1].type.pointee).lanes
        done = 0
        for width, together in ((lanes, TOGETHER), (lanes, 1), (1, 1)):
            times = (size - done) // (width * together)
            if times:
                search = _search_function(
                    builder.module, args[1].type, (a.shape[0], right), width, together
                )
                places = [builder.gep(x, [WORD(done)], inbounds=True) for x in (args[0], args[2])]
                builder.call(search, [places[0], args[1], places[1], WORD(times)])
                done += times * width * together
        return context.get_dummy_value()

    return signature(types.none, out, a, v), codegen


def _search_function(
    module: Any, pointer: Any, of: tuple[int, bool], lanes: int, together: int
) -> Any:
    """The function that searches for `together` vectors at once, as often as its argument says."""
    name = f"search {pointer} {of} {lanes} {together}"
    if name not in module.globals:
        kind = ir.FunctionType(VOID, [WORD.as_pointer(), pointer, pointer, WORD])
        function = ir.Function(module, kind, name)
        function.linkage = "internal"
        function.attributes.add("nounwind")
        function.attributes.add("noinline")
        for argument in function.args[:3]:
            argument.add_attribute("noalias")
        builder = ir.IRBuilder(function.append_basic_block())
        out, a, v, times = function.args
        with cgutils.for_range(builder, times) as loop:
            search = _Search(builder, a, lanes, *of)
            first = builder.mul(loop.index, WORD(lanes * together))
            starts = [builder.add(first, WORD(k * lanes)) for k in range(together)]
            found = search.run([search.load(search.after(v, (k, 1)), lanes) for k in starts])
            for k, places in zip(starts, found, strict=True):
                place = search.after(out, (k, 1))
                place = builder.bitcast(place, places.type.as_pointer())
                builder.store(places, place, align=8)
        builder.ret_void()
    return module.globals[name]


class _Search(Registers):
    """Writes the search for several vectors of numbers, or for single numbers."""

    def __init__(self, builder: Any, a: Any, lanes: int, count: int, right: bool) -> None:
        super().__init__(builder, a.type.pointee)
        self.a, self.lanes, self.count, self.right = a, lanes, count, right
        self.words = WORD if lanes == 1 else ir.VectorType(WORD, lanes)

    def run(self, wanted: list[Any]) -> list[Any]:
        builder = self.builder
        unordered = [builder.fcmp_unordered("uno", v, v) for v in wanted]
        starts = [self._word(0)] * len(wanted)
        left = self.count
        while left:
            half = max(1, left // 2)
            for k, (v, no_number) in enumerate(zip(wanted, unordered, strict=True)):
                element = self._elements(builder.add(starts[k], self._word(half - 1)))
                if self.right:
                    before = builder.or_(builder.fcmp_ordered("<=", element, v), no_number)
                else:
                    is_number = builder.fcmp_ordered("ord", element, element)
                    behind = builder.and_(no_number, is_number)
                    before = builder.or_(builder.fcmp_ordered("<", element, v), behind)
                moved = builder.add(starts[k], self._word(half))
                starts[k] = builder.select(before, moved, starts[k])
            left = left - half if left > 1 else 0
        return starts

    def _word(self, value: int) -> Any:
        one = WORD(value)
        return one if self.lanes == 1 else ir.Constant(self.words, [one] * self.lanes)

    def _elements(self, places: Any) -> Any:
        """The elements of the sorted vector at these places."""
        builder, lanes = self.builder, self.lanes
        if lanes == 1:
            return builder.load(self.after(self.a, (places, 1)))
        reals = ir.VectorType(self.real, lanes)
        pointers = ir.VectorType(self.a.type, lanes)
        flags = ir.VectorType(FLAG, lanes)
        gather = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(reals, [pointers, INT, flags, reals]),
            f"llvm.masked.gather.v{lanes}f{8 * self.size}.v{lanes}p0",
        )
        every, nothing = ir.Constant(flags, [1] * lanes), ir.Constant(reals, ir.Undefined)
        base = self.spread(builder.ptrtoint(self.a, WORD), self.words)
        far = builder.mul(places, self._word(self.size))
        at = builder.inttoptr(builder.add(base, far), pointers)
        return builder.call(gather, [at, INT(self.size), every, nothing])
