"""Loops whose rounds can read nothing new: while they go round nobody need be called back.

Being called back before each instruction takes longer than most of a trace. Many loops only compute
with numbers and traced values that they have in local variables:

    for i in range(1, n):
        c[i] = -0.5 * k / (b + k * c[i - 1])

Of such values nothing is noted, and what operators and NumPy's functions make of them is either one
of them again or a new object, of which nothing is noted either, since it has no place outside. So
if a round has been noted once, and the variables that it reads hold such values before the next, no
later round can have anything to be noted: its instructions can't write anywhere but to local
variables and traced arrays, ask for a truth, or call what the user has written. Such a loop is
*closed*. Its frame is called back at each line only, to see where the loop ends, and goes on being
followed from there, or from an error.

A closed loop is a straight line of instructions, all of them known here. Names: `stack` what these
leave on the stack, as one of the kinds below.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, GeneratorType
from typing import Any, NamedTuple

import numpy as np

from tapegrad.tracing.observe.activation import Activation
from tapegrad.tracing.observe.frames import MISSING, local, operand
from tapegrad.tracing.observe.harmless import CALM
from tapegrad.tracing.observe.watching import CAN_REST

VALUE, NEW, NUMPY, FUNCTION, EMPTY = "value", "new", "numpy", "function", "empty"

# NumPy's functions, and methods, that give arrays and numbers alone
_NUMPYS = frozenset(
    """sum prod mean max min where dot clip outer concatenate stack zeros_like ones_like cumsum roll
    reshape transpose""".split()
)
_METHODS = frozenset("sum prod mean max min std var dot copy".split())
_NOTHING = frozenset(["NOP", "CACHE", "EXTENDED_ARG", "PRECALL", "RESUME"])
_UNARY = frozenset(["UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT"])


class Closed(NamedTuple):
    """A loop that may be closed, from the first to the last place of its code.

    `reads` are the numbers of the local variables that a round reads before it sets them, `cells`
    those of cells, `names` the global names of values, and `functions` of NumPy's that are called,
    by the names that NumPy has in the program.
    """

    first: int
    last: int
    reads: tuple[int, ...]
    cells: tuple[int, ...]
    names: tuple[str, ...]
    functions: tuple[tuple[str, str], ...]


@lru_cache(maxsize=8192)
def closed_loops(code: CodeType) -> dict[int, Closed]:
    """The loops of a code that may be closed, by the places where they ask for the next round."""
    if not CAN_REST:
        return {}
    text = list(dis.Bytecode(code))
    number = {i.offset: k for k, i in enumerate(text)}
    lines, line = [], 0
    for i in text:
        positions = i.positions
        line = positions.lineno if positions is not None and positions.lineno else line
        lines.append(line)
    targets = {i.argval for i in text if "JUMP" in i.opname or i.opname == "FOR_ITER"}
    found = {}
    for k, i in enumerate(text):
        if i.opname != "FOR_ITER":
            continue
        end = number[i.argval]
        back = text[end - 1]
        begin = k
        while begin and text[begin - 1].opname == "EXTENDED_ARG":
            begin -= 1
        jumps = back.opname == "JUMP_BACKWARD" and number[back.argval] in (begin, k)
        inside = [x for x in text[k + 1 : end] if x.offset in targets]
        # It is seen that the loop has ended if another line begins there, or it goes back at once.
        after = end
        while text[after].opname == "EXTENDED_ARG":
            after += 1
        ends = lines[end] != lines[k] or text[after].opname == "JUMP_BACKWARD"
        if jumps and ends and not inside:
            loop = _Round(code).told(text[k + 1 : end - 1], i.offset >> 1, back.offset >> 1)
            if loop is not None:
                found[i.offset >> 1] = loop
    return found


class _Round:
    """The instructions of a round, one after the other."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.stack: list[Any] = [VALUE]  # what the iterator gives
        self.stored: set[str] = set()
        self.reads: dict[int, None] = {}
        self.cells: dict[int, None] = {}
        self.names: dict[str, None] = {}
        self.functions: dict[tuple[str, str], None] = {}
        self.named: tuple[str, ...] = ()

    def told(self, text: Sequence[dis.Instruction], first: int, last: int) -> Closed | None:
        """The loop of this round, if all of it is known."""
        try:
            known = all(self._step(i) for i in text)
        except IndexError:  # it takes more from the stack than the round has put there
            return None
        if not known or self.stack:
            return None
        return Closed(
            first,
            last,
            tuple(self.reads),
            tuple(self.cells),
            tuple(self.names),
            tuple(self.functions),
        )

    def _take(self, count: int, *kinds: str) -> bool:
        """Take so many entries from the stack, which are all of these kinds."""
        return all([self.stack.pop() in kinds for _ in range(count)])

    def _step(self, i: dis.Instruction) -> bool:
        name, arg, stack = i.opname, i.arg or 0, self.stack
        if name in _NOTHING:
            return True
        if name == "LOAD_FAST":
            if i.argval not in self.stored:
                self.reads[arg] = None
            stack.append(VALUE)
        elif name == "STORE_FAST":
            self.stored.add(i.argval)
            return self._take(1, VALUE)
        elif name == "LOAD_CONST":
            stack.append(VALUE)
            return CALM[type(i.argval)]
        elif name == "LOAD_DEREF":
            self.cells[arg] = None
            stack.append(VALUE)
        elif name == "LOAD_GLOBAL":
            stack.append((NUMPY, i.argval))
            return not arg & 1  # else it is called
        elif name == "BINARY_OP" or name == "COMPARE_OP":
            return self._operator(2)
        elif name in _UNARY:
            return self._operator(1)
        elif name == "BINARY_SUBSCR":
            fits = self._take(1, VALUE, NEW)
            return fits and self._operator(1)
        elif name == "STORE_SUBSCR":
            return self._take(1, VALUE, NEW) and self._values(2)
        elif name in ("BUILD_SLICE", "BUILD_TUPLE", "BUILD_LIST"):
            fits = arg <= 8 and all([self._value(NEW) for _ in range(arg)])
            stack.append(NEW)
            return fits
        elif name == "COPY":
            stack.append(stack[-arg])
        elif name == "SWAP":
            stack[-1], stack[-arg] = stack[-arg], stack[-1]
        elif name == "POP_TOP":
            return self._values(1)
        elif name in ("LOAD_METHOD", "LOAD_ATTR"):
            return self._attribute(i.argval, name == "LOAD_METHOD")
        elif name == "KW_NAMES":
            self.named = self.code.co_consts[arg]
        elif name == "CALL":
            self.named = ()
            fits = all([self._value(NEW) for _ in range(arg)])
            callee, below = stack.pop(), stack.pop()
            stack.append(VALUE)
            return fits and callee == FUNCTION and below == EMPTY
        else:
            return False
        return True

    def _value(self, *others: str) -> bool:
        """Take a value from the stack. That of a global name is one if it isn't NumPy."""
        top = self.stack.pop()
        if type(top) is tuple:
            self.names[top[1]] = None
            return True
        return top == VALUE or top in others

    def _values(self, count: int) -> bool:
        return all([self._value() for _ in range(count)])

    def _operator(self, count: int) -> bool:
        fits = self._values(count)
        self.stack.append(VALUE)
        return fits

    def _attribute(self, name: str, is_called: bool) -> bool:
        """`np.exp` or `x.sum`, to be called."""
        x = self.stack.pop()
        self.stack += (EMPTY, FUNCTION)
        if type(x) is tuple:
            self.functions[x[1], name] = None
            return is_called
        return is_called and x == VALUE and name in _METHODS


def rest(a: Activation, at: int) -> None:
    """A loop is about to ask for its next round: if it is closed the frame isn't called back before
    each instruction until it ends."""
    loop = a.loops.get(at)
    if loop is None:
        return
    iterator = operand(a.stack, 0)
    round_ = at, id(iterator)
    if a.looping != round_:  # the first round, or one that is looked at
        a.looping = round_
        return
    a.looping = None
    o = a.o
    if (
        o.effects is None
        and o.apart is None
        and a.sides is None
        and a.returning is None
        and not a.branches
        and _is_plain(iterator)
        and id(iterator) not in o.reads.places
        and _is_closed(loop, a)
    ):
        a.rest(loop.first, loop.last)


def _is_plain(iterator: Any) -> bool:
    """Whether this gives numbers, or rows of a traced array."""
    kind = type(iterator)
    if kind is GeneratorType:
        code: Any = iterator.gi_code
        return bool(code.co_qualname == _ROWS)
    return kind is _RANGE


_RANGE = type(iter(range(0)))
_ROWS = "ArrayTracer.__iter__.<locals>.<genexpr>"


def _is_closed(loop: Closed, a: Activation) -> bool:
    for k in loop.reads:
        if not CALM[type(local(a.address, k))]:
            return False
    for k in loop.cells:
        cell = local(a.address, k)
        try:
            if not CALM[type(cell.cell_contents)]:
                return False
        except (AttributeError, ValueError):
            return False
    known = a.frame.f_globals
    for name in loop.names:
        if not CALM[type(known.get(name, MISSING))]:
            return False
    for module, name in loop.functions:
        if known.get(module) is not np:
            return False
        f = vars(np).get(name)
        if not (name in _NUMPYS or (type(f) is np.ufunc and f.nout == 1)):
            return False
    return True
