"""What loops do along rows that LLVM needn't make vectors of.

A loop may ask of each number that it reads whether it is moderate, beside what it computes:

    for j in range(220):
        total[j] += x[i, j]
        fits = fits & (moderate(x[i, j], 2.0**240))

LLVM takes as long for the question as for all else. So it is asked of the whole row before the
loop, by a function that kernels share. And where a loop does nothing but fill a vector with zeros,
or copy one, that is a call, too.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from tapegrad.backends.cpu.support.arrays import INT, POINTER, WORD, FixedArray, larger
from tapegrad.backends.cpu.support.blocks import Registers
from tapegrad.backends.cpu.support.outline import entries_of, length
from tapegrad.backends.cpu.support.shared import REALS, letter_of, shared_function
from tapegrad.backends.cpu.support.syntax import leaves_its_loop, nodes_of
from tapegrad.backends.cpu.support.unrolled import FLAG, VOID

LONG = 16  # rounds of a loop that is worth a call; no vector has more lanes
AT_ONCE = 4  # vectors


class Question(NamedTuple):
    """`found = found & moderate(element, bound)`, in each round of a loop."""

    found: str
    element: ast.Subscript
    bound: float


def may_be_row(loop: ast.For) -> bool:
    """Whether it is worth to look at a loop so closely."""
    steps = [x for x in loop.body if isinstance(x, ast.Assign)]
    if any(isinstance(x.value, ast.BinOp) and isinstance(x.value.op, ast.BitAnd) for x in steps):
        return True
    return len(loop.body) == len(steps) == 1 and isinstance(steps[0].targets[0], ast.Subscript)


class Row:
    """A loop, among arrays, which are each a part of another, and of a type. What is part of the
    function's `own` arguments overlaps no other's."""

    def __init__(
        self,
        loop: ast.For,
        arrays: Mapping[str, tuple[Any, int, FixedArray]],
        own: Sequence[Any],
    ) -> None:
        self.loop, self.arrays, self.own = loop, arrays, own
        self.index: str = loop.target.id  # type: ignore[attr-defined]
        nodes: list[Any] = nodes_of(loop)
        self.names = Counter(x.id for x in nodes if isinstance(x, ast.Name))
        stored = [x for x in nodes if isinstance(getattr(x, "ctx", None), ast.Store)]
        self.assigned = Counter(x.id for x in stored if isinstance(x, ast.Name))
        self.written = [self._base(x.value) for x in stored if isinstance(x, ast.Subscript)]
        # What is passed to a function may be written there.
        elements = sum(isinstance(x, ast.Subscript) and self._is_element(x) for x in nodes)
        passed = elements < sum(count for name, count in self.names.items() if name in arrays)
        apart = not passed and None not in self.written and not any(map(leaves_its_loop, nodes))
        self.is_whole = apart and length(loop) >= LONG

    def questions(self, total: Counter[str]) -> tuple[list[Question], list[ast.stmt]]:
        """What is asked of whole rows, and what else the loop does; in a kernel that has each name
        so often."""
        rest = [*self.loop.body]
        found: list[Question] = []
        if not self.is_whole or length(self.loop) == math.inf or "moderate" not in self.names:
            return found, rest
        for statement in self.loop.body:
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.BinOp(left=ast.Name(id=same), op=ast.BitAnd(), right=asked),
                ) if name == same and self.names[name] == 2:
                    gone: list[ast.stmt] = [statement]
                    if isinstance(asked, ast.Name) and self.names[asked.id] == total[asked.id] == 2:
                        gone += [x for x in rest if self._value(x, asked.id)]
                        asked = self._known(asked)
                    question = self._question(name, asked)
                    if question is not None:
                        found.append(question)
                        rest = [x for x in rest if x not in gone]
        return found, rest

    def _question(self, name: str, asked: ast.expr) -> Question | None:
        match asked:
            case ast.Call(func=ast.Name(id="moderate"), args=[x, ast.Constant(value=float(bound))]):
                x = self._known(x)
                if self._is_apart(x) and isinstance(self._kind(x).dtype, types.Float):
                    most = np.finfo(self._kind(x).dtype.name).max
                    return Question(name, x, bound) if 2.0 <= bound <= most else None
        return None

    def _known(self, x: ast.expr) -> ast.expr:
        """What a variable stands for that each round assigns once; all else is itself."""
        if isinstance(x, ast.Name) and self.assigned[x.id] == 1:
            values = (self._value(statement, x.id) for statement in self.loop.body)
            return next(filter(None, values), x)
        return x

    def _value(self, statement: ast.stmt, name: str) -> ast.expr | None:
        """What a statement assigns to a variable, if it does."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return value
        return None

    def filled(self) -> list[ast.Subscript]:
        """The vector that the loop does nothing but fill, if it does: with zeros, or else with the
        row that comes next."""
        match self.loop.body:
            case [ast.Assign(targets=[target], value=value)] if self.is_whole:
                # LLVM does better with rows of matrices, of which it sees what else is written.
                if isinstance(target, ast.Subscript) and len(entries_of(target.slice)) > 1:
                    return []
                if not self._is_row(target) or not isinstance(
                    self._kind(target).dtype, types.Number
                ):
                    pass
                elif isinstance(value, ast.Constant) and repr(value.value) in ("0", "0.0"):
                    return [target]
                elif self._is_apart(value) and self._kind(value).dtype == self._kind(target).dtype:
                    return [target, value]
        return []

    def _is_apart(self, x: ast.expr) -> TypeGuard[ast.Subscript]:
        """Whether this is an element of a row that the loop doesn't write."""
        return self._is_row(x) and self._base(x.value) not in self.written

    def _is_row(self, x: ast.expr) -> TypeGuard[ast.Subscript]:
        """Whether this is an element of an argument, and in each round the next one in memory."""
        if not isinstance(x, ast.Subscript) or not self._is_element(x):
            return False
        index, strides = entries_of(x.slice), self._kind(x).strides
        moving = [a for a, entry in enumerate(index) if self._moves(entry)]
        if len(moving) != 1 or strides[moving[0]] != 1 or self._base(x.value) is None:
            return False
        return self._follows(index[moving[0]])

    def _is_element(self, x: ast.Subscript) -> bool:
        """Whether this is a number of an array."""
        name = x.value.id if isinstance(x.value, ast.Name) else ""
        return name in self.arrays and len(entries_of(x.slice)) == len(self.arrays[name][2].shape)

    def _kind(self, x: ast.Subscript) -> FixedArray:
        return self.arrays[x.value.id][2]  # type: ignore[attr-defined]

    def _moves(self, x: ast.expr) -> bool:
        """Whether this is another one in each round."""
        names = (node.id for node in nodes_of(x) if isinstance(node, ast.Name))  # type: ignore[arg-type]
        return any(name in self.assigned for name in names)

    def _follows(self, x: ast.expr) -> bool:
        """Whether this is larger by one in each round."""
        match x:
            case ast.Name(id=name):
                return name == self.index
            case ast.BinOp(left=left, op=ast.Add(), right=right) if self._moves(right):
                return not self._moves(left) and self._follows(right)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return not self._moves(right) and self._follows(left)
        return False

    def _base(self, x: ast.expr) -> Any:
        """The argument that an array is a part of; None if that isn't known."""
        base = self.arrays[x.id][0] if isinstance(x, ast.Name) and x.id in self.arrays else None
        return base if base in self.own else None


# ---- what is called


def without_rows(of: Any, loop: ast.For, start: Any, stop: Any) -> list[ast.stmt]:
    """What is left of the body of a loop of a translator's, that goes from start to stop, when what
    it does of whole rows has been done."""
    builder = of.builder
    row = Row(loop, of.arrays, builder.function.args)
    filled = row.filled()
    questions, rest = row.questions(of.total)
    if not filled and not questions:
        return rest
    count = larger(builder, builder.sub(stop, start), WORD(0))
    of.values[row.index] = start, types.int64
    if filled:
        (target, kind), *source = map(of.address, filled)
        size = kind.dtype.bitwidth // 8
        if source:
            cgutils.raw_memcpy(builder, target, source[0][0], count, size)
        else:
            cgutils.memset(builder, target, builder.mul(count, WORD(size)), 0)
        rest = []
    for name, element, bound in questions:
        fits = ask_row(builder, of.address(element)[0], count, bound), types.boolean
        of.store(ast.Name(name), *of.call(operator.and_, [of.variable(name), fits]))
    del of.values[row.index]
    return rest


def ask_row(builder: Any, place: Any, count: Any, bound: float) -> Any:
    """Whether so many numbers, at least as many as a vector has, are moderate."""
    real = place.type.pointee
    function = all_moderate(builder.module, letter_of(real))
    number = np.float32 if real == ir.FloatType() else np.float64
    bits = np.finfo(number).nmant
    low, high = (int(number(x).view(f"i{number().itemsize}")) for x in (1.0 / bound, bound))
    # The exponents around that of 1, as many as a number of some bits counts.
    wide = ((high - low) >> bits).bit_length() - 1
    first = (int(number(1.0).view(f"i{number().itemsize}")) >> bits) - 2 ** (wide - 1)
    far = 2 ** (8 * number().itemsize - 1) - 2 ** (wide + bits)
    given = [function.function_type.args[2](x) for x in (low, high, -first << bits, far)]
    return builder.call(function, [place, count, *given])


def _asking(letter: str) -> Any:
    """The type of the functions:

    bool moderate(real *x, long count, bits low, bits high, bits shift, bits far)
    """
    real = REALS[letter]
    bits = ir.IntType(32 if real == ir.FloatType() else 64)
    return ir.FunctionType(FLAG, [real.as_pointer(), WORD, *[bits] * 4])


@shared_function("moderate", _asking)
def all_moderate(builder: Any, args: Sequence[Any], letter: str) -> None:
    """Whether each of so many numbers is 0, or has a magnitude between those with these bits."""
    _Magnitudes(builder, args).write()


class _Magnitudes(Registers):
    """Writes the function. Of floats without their signs the bits are in order.

    Most numbers are close to 1, which takes fewer instructions to see: their exponents, moved by
    `shift`, have none of the bits that say how `far` they are. So that is looked at first, until
    there is another; from there on whether numbers are that or zeros; and then exactly."""

    def __init__(self, builder: Any, args: Sequence[Any]) -> None:
        self.x, self.count, self.low, self.high, shift, far = args
        super().__init__(builder, self.x.type.pointee)
        self.word = shift.type
        self.words = ir.VectorType(self.word, self.lanes)
        self.shift, self.far = (self.spread(x, self.words) for x in (shift, far))

    def write(self) -> None:
        builder = self.builder
        many = builder.icmp_signed(">=", self.count, WORD(AT_ONCE * self.lanes))
        with builder.if_then(many):
            self._answer(AT_ONCE, self._first_far())
        self._answer(1, WORD(0))

    def _first_far(self) -> Any:
        """Where the first vectors are of which one has a number that isn't close to 1; before all
        that, return if there are none."""
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
        """Have so many vectors from a place on come from memory, while the loop goes on: of a
        matrix they are the next row. Nothing has to be there."""
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
        low, span = self.low, builder.sub(self.high, self.low)
        strays = functools.partial(self._strays, *(self.spread(x, self.words) for x in (low, span)))
        builder.ret(builder.not_(self._any(self._found(start, 1, strays))))

    def _found(self, start: Any, together: int, look: Callable[[Any], Any]) -> Any:
        """What is found in any vector from `start` on, so many at a time."""

        def also(p: Any, found: Sequence[Any]) -> list[Any]:
            vectors = map(look, self._vectors(p, together))
            return [functools.reduce(self.builder.or_, vectors, found[0])]

        step = together * self.lanes
        return self.repeated(start, self.count, step, [self._each(0)], also)[0]

    def _vectors(self, p: Any, together: int) -> list[Any]:
        """So many vectors from a place on; the last ones end where the numbers do."""
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

    def _strays(self, low: Any, span: Any, x: Any) -> Any:
        builder, size = self.builder, self._size(x)
        outside = builder.icmp_unsigned(">", builder.sub(size, low), span)
        stray = builder.and_(outside, builder.icmp_unsigned("!=", size, self._each(0)))
        return builder.sext(stray, self.words)

    def _size(self, x: Any) -> Any:
        return self.builder.and_(x, self._each(2 ** (self.word.width - 1) - 1))

    def _any(self, found: Any) -> Any:
        """Whether there is a bit in any of the words of a vector."""
        some = self.builder.icmp_unsigned("!=", found, self._each(0))
        bits = ir.IntType(self.lanes)
        return self.builder.icmp_unsigned("!=", self.builder.bitcast(some, bits), bits(0))

    def _each(self, value: int) -> Any:
        return ir.Constant(self.words, [self.word(value)] * self.lanes)
