"""Loops whose rounds can read nothing new, so their frames need no callback at each instruction.

A callback before each instruction takes longer than most of a trace. Many loops only compute with
numbers and traced values in local variables:

    for i in range(1, n):
        c[i] = -0.5 * k / (b + k * c[i - 1])

Reads of such values aren't recorded. Operators and NumPy's functions return one of these values, or
a new object, which isn't recorded either since it has no place outside the function. So after one
round has been recorded, if the variables that a round reads hold such values again, no later round
has anything to record: its instructions write only to local variables and traced arrays, read no
truth and call nothing that the user has written. Such a loop is *closed*. Its frame is called back
at each line only, to notice where the loop ends. From there, or from an error, it is followed as
before.

A closed loop is a straight line of instructions, all of them known here. `stack` simulates the
frame's stack with the kinds below.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, GeneratorType
from typing import Any, NamedTuple

import numpy as np

from tapegrad.core.listing import instructions_of
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.answers import answer_of
from tapegrad.observe.objects.purity import INERT
from tapegrad.observe.program.frames import MISSING, local, operand
from tapegrad.observe.program.watching import CAN_REST

VALUE, NEW, NUMPY, EMPTY = "value", "new", "numpy", "empty"

# NumPy's functions and methods that return nothing but arrays and numbers
_NUMPYS = frozenset(
    [
        "sum",
        "prod",
        "mean",
        "max",
        "min",
        "where",
        "dot",
        "clip",
        "outer",
        "concatenate",
        "stack",
        "zeros_like",
        "ones_like",
        "cumsum",
        "roll",
        "reshape",
        "transpose",
    ]
)
_METHODS = frozenset(["sum", "prod", "mean", "max", "min", "std", "var", "dot", "copy"])
_NOTHING = frozenset(["NOP", "CACHE", "EXTENDED_ARG", "PRECALL", "RESUME"])
_UNARY = frozenset(["UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT"])


class Closed(NamedTuple):
    """A loop that may be closed, between the first and last offset of its code.

    `reads` are the numbers of the local variables that a round reads before it sets them, `cells`
    the numbers of the cells, and `names` the global names of values. `functions` are the NumPy
    functions that are called: the program's name for NumPy, the function's name, and whether it is
    passed lists.
    """

    first: int
    last: int
    reads: tuple[int, ...]
    cells: tuple[int, ...]
    names: tuple[str, ...]
    functions: tuple[tuple[str, str, bool], ...]


class Callee(NamedTuple):
    """A stack entry: a function of a global name that should be NumPy, or a method."""

    module: str
    name: str


@lru_cache(maxsize=8192)
def closed_loops(code: CodeType) -> dict[int, Closed]:
    """The loops of a code that may be closed, by the offsets of their `FOR_ITER` instructions."""
    if not CAN_REST:
        return {}
    text = instructions_of(code)
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
        # The end of the loop is noticed if another line begins there, or a jump back follows at
        # once.
        after = end
        while text[after].opname == "EXTENDED_ARG":
            after += 1
        ends = lines[end] != lines[k] or text[after].opname == "JUMP_BACKWARD"
        if jumps and ends and not inside:
            loop = _Round().told(text[k + 1 : end - 1], i.offset >> 1, back.offset >> 1)
            if loop is not None:
                found[i.offset >> 1] = loop
    return found


class _Round:
    """Simulates one round of a loop, instruction by instruction."""

    def __init__(self) -> None:
        self.stack: list[Any] = [VALUE]  # the iterator's value
        self.stored: set[str] = set()
        self.reads: dict[int, None] = {}
        self.cells: dict[int, None] = {}
        self.names: dict[str, None] = {}
        self.functions: dict[tuple[str, str, bool], None] = {}

    def told(self, text: Sequence[dis.Instruction], first: int, last: int) -> Closed | None:
        """The `Closed` loop of this round, or None if an instruction isn't known."""
        try:
            known = all(self._step(i) for i in text)
        except IndexError:  # it takes more from the stack than the round has pushed
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

    def _pop(self, count: int) -> list[Any]:
        return [self.stack.pop() for _ in range(count)]

    def _are_values(self, taken: Sequence[Any], *others: str) -> bool:
        """Whether all of `taken` are values, or of the other kinds. A global name counts as a
        value: `_is_closed` checks it before the loop is closed."""
        for x in taken:
            if type(x) is tuple:
                self.names[x[1]] = None
            elif x != VALUE and x not in others:
                return False
        return True

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
            return self._are_values(self._pop(1))
        elif name == "LOAD_CONST":
            stack.append(VALUE)
            return INERT[type(i.argval)]
        elif name == "LOAD_DEREF":
            self.cells[arg] = None
            stack.append(VALUE)
        elif name == "LOAD_GLOBAL":
            stack += [EMPTY] * (arg & 1) + [(NUMPY, i.argval)]
        elif name in ("BINARY_OP", "COMPARE_OP"):
            return self._made(VALUE, self._pop(2))
        elif name in _UNARY:
            return self._made(VALUE, self._pop(1))
        elif name == "BINARY_SUBSCR":
            return self._are_values(self._pop(1), NEW) and self._made(VALUE, self._pop(1))
        elif name == "STORE_SUBSCR":
            return self._are_values(self._pop(1), NEW) and self._are_values(self._pop(2))
        elif name in ("BUILD_SLICE", "BUILD_TUPLE", "BUILD_LIST"):
            return arg <= 8 and self._made(NEW, self._pop(arg), NEW)
        elif name == "COPY":
            stack.append(stack[-arg])
        elif name == "SWAP":
            stack[-1], stack[-arg] = stack[-arg], stack[-1]
        elif name == "POP_TOP":
            return self._are_values(self._pop(1))
        elif name == "LOAD_METHOD":
            return self._method(i.argval)
        elif name == "LOAD_ATTR":
            (x,) = self._pop(1)
            return type(x) is tuple and self._function(x[1], i.argval)
        elif name == "CALL":
            given, (callee, below) = self._pop(arg), self._pop(2)
            if type(callee) is not Callee or below != EMPTY:
                return False
            if callee.module:
                self.functions[(*callee, NEW in given)] = None
            return self._made(VALUE, given, NEW)
        else:
            return name == "KW_NAMES"
        return True

    def _made(self, kind: str, taken: Sequence[Any], *others: str) -> bool:
        self.stack.append(kind)
        return self._are_values(taken, *others)

    def _method(self, name: str) -> bool:
        """Simulate loading `np.exp` or `x.sum` for a call."""
        (x,) = self._pop(1)
        self.stack.append(EMPTY)
        if type(x) is tuple:
            return self._function(x[1], name)
        self.stack.append(Callee("", name))
        return x == VALUE and name in _METHODS

    def _function(self, module: str, name: str) -> bool:
        self.stack.append(Callee(module, name))
        return True


def rest(a: Activation, at: int) -> None:
    """Stop the callbacks at each instruction until the loop ends, if the loop that is about to ask
    for its next round is closed."""
    loop = a.loops.get(at)
    if loop is None:
        return
    iterator = operand(a.stack, 0)
    round_ = at, id(iterator)
    if a.looping != round_:  # this is the first round, or one that has to be followed
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
    """Whether an iterator returns numbers, or rows of a traced array."""
    kind = type(iterator)
    if kind is GeneratorType:
        code: Any = iterator.gi_code
        return bool(code.co_qualname == _ROWS)
    return kind is _RANGE


_RANGE = type(iter(range(0)))
_ROWS = "ArrayTracer.__iter__.<locals>.<genexpr>"


def _is_closed(loop: Closed, a: Activation) -> bool:
    for k in loop.reads:
        if not INERT[type(local(a.address, k))]:
            return False
    for k in loop.cells:
        cell = local(a.address, k)
        try:
            if not INERT[type(cell.cell_contents)]:
                return False
        except (AttributeError, ValueError):
            return False
    known = a.frame.f_globals
    for name in loop.names:
        if not INERT[type(known.get(name, MISSING))]:
            return False
    for module, name, lists in loop.functions:
        if known.get(module) is not np:
            return False
        f = vars(np).get(name)
        answer = answer_of(f)  # an answer replaces a function only in calls that are followed
        if answer is not None and (lists or not answer.lists):
            return False
        if not (name in _NUMPYS or (type(f) is np.ufunc and f.nout == 1)):
            return False
    return True
