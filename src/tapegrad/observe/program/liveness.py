"""Liveness: the variables that a code may still read, at each of its instructions.

A variable that is written before it is read again is dead: its value makes no difference.
"""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from types import CodeType

from tapegrad.observe.program.exits import Loops

_OPERATIONS = ("BINARY_", "CALL", "COMPARE_OP", "STORE_SUBSCR", "UNARY_")
INNER = 8  # assumed trip count of an inner loop, as the real one isn't known
# By these names a program can read all of its variables.
_SEEING = frozenset(
    ["locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "inspect"]
)


class Flow(Loops):
    """The control flow of a code, with the variables that each instruction reads."""

    def __init__(self, code: CodeType) -> None:
        super().__init__(code)
        stack = any(i.opname == "LOAD_GLOBAL" and i.argval == "stack" for i in self.at.values())
        self.sees_all = stack or not _SEEING.isdisjoint(code.co_names)
        self._live = self._lives()

    def live(self, offset: int) -> frozenset[int]:
        """The numbers of the variables that may be read from this offset on before they are
        written."""
        return self._live[offset]

    def _lives(self) -> dict[int, frozenset[int]]:
        every = frozenset(range(self.code.co_nlocals)) if self.sees_all else frozenset()
        live = dict.fromkeys(self.at, every)
        leads = {offset: self.leads_to(offset) for offset in self.at}
        before: dict[int, list[int]] = {offset: [] for offset in self.at}
        for offset, targets in leads.items():
            for target in targets:
                before[target].append(offset)
        todo = list(self.at)
        while todo:
            offset = todo.pop()
            out = every.union(*[live[target] for target in leads[offset]])
            reads, writes = reads_and_writes(self.at[offset])
            reads = {k for k in reads if k < self.code.co_nlocals}  # cells aren't tracked
            found = frozenset(out - writes | reads) | every
            handler = self.handlers.get(offset)
            if handler is not None:  # the instruction may raise before it writes
                found |= live[handler[0]]
            if found != live[offset]:
                live[offset] = found
                todo += before[offset]
        return live

    def touched(self, place: int) -> frozenset[int]:
        """The numbers of the variables that a round of a `for` statement reads or sets. All of
        them, if that isn't known."""
        body = self.body(place)
        if self.sees_all or not body:
            return frozenset(range(self.code.co_nlocals))
        both = [reads_and_writes(self.at[o]) for o in body]
        return frozenset().union(*[reads | writes for reads, writes in both])

    def appended(self, place: int) -> frozenset[int]:
        """The numbers of the variables that a round of a `for` statement uses for calls of their
        method `append` alone."""
        return self._appends(place)[0]

    def grown(self, place: int) -> frozenset[int]:
        """The numbers of the variables that a round of a `for` statement appends to and reads,
        without calling another method of theirs."""
        return self._appends(place)[1]

    def _appends(self, place: int) -> tuple[frozenset[int], frozenset[int]]:
        found, read, others = set[int](), set[int](), set[int]()
        for offset in () if self.sees_all else self.body(place):
            reads, writes = reads_and_writes(self.at[offset])
            others |= writes
            one = self.at[offset].opname in ("LOAD_FAST", "LOAD_FAST_CHECK")
            method = self._looks_up(self.next[offset]) if one else ""
            if method == "append":
                found |= reads
            elif method:
                others |= reads
            else:
                read |= reads
        names, cells = self.code.co_varnames, self.code.co_cellvars
        found = {k for k in found - others if names[k] not in cells}
        return frozenset(found - read), frozenset(found & read)

    def _looks_up(self, offset: int) -> str:
        """The name of the method that an instruction looks up for a call; empty if it looks up
        none."""
        while self.at[offset].opname == "EXTENDED_ARG":
            offset = self.next[offset]
        i = self.at[offset]
        in_one = sys.version_info >= (3, 12) and i.opname == "LOAD_ATTR" and (i.arg or 0) & 1
        return str(i.argval) if i.opname == "LOAD_METHOD" or in_one else ""

    def chooses(self, place: int) -> bool:
        """Whether a round of a `for` statement makes tests and appends to lists. Then each path
        that all rounds take together would need a trace of its own."""
        appends = self.filled(place) or self.appended(place)
        return bool(appends) and any(self.test_at(o) == o for o in self.body(place))

    def weight(self, place: int) -> int:
        """The approximate number of operations in a round of a `for` statement, estimated from its
        code."""
        body = self.body(place)
        inner = [self.body(o) for o in body if self.at[o].opname == "FOR_ITER"]
        return sum(
            INNER ** sum(o in rounds for rounds in inner) * _operations(self.at[o]) for o in body
        )


def _operations(i: dis.Instruction) -> int:
    """The approximate number of operations of an instruction. One that loads a comprehension's code
    counts for all operations of the comprehension."""
    if type(i.argval) is CodeType and i.argval.co_varnames[:1] == (".0",):
        inner = flow_of(i.argval)
        place = inner.comprehension
        return INNER * inner.weight(place) if place is not None else 0
    return i.opname.startswith(_OPERATIONS)


def reads_and_writes(i: dis.Instruction) -> tuple[set[int], set[int]]:
    """The numbers of the variables that an instruction reads, and of those that it writes. A
    variable that is read after it was written counts as written alone."""
    name, arg = i.opname, i.arg or 0
    if name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CLOSURE"):
        return {arg}, set()
    if name == "LOAD_FAST_AND_CLEAR":
        return {arg}, {arg}
    if name == "STORE_FAST":
        return set(), {arg}
    if name == "DELETE_FAST":  # fails if the variable is unbound
        return {arg}, {arg}
    if name == "LOAD_FAST_LOAD_FAST":
        return {arg >> 4, arg & 15}, set()
    if name == "STORE_FAST_LOAD_FAST":
        return ({arg & 15} - {arg >> 4}), {arg >> 4}
    if name == "STORE_FAST_STORE_FAST":
        return set(), {arg >> 4, arg & 15}
    return set(), set()


@lru_cache(maxsize=256)
def flow_of(code: CodeType) -> Flow:
    """The control flow of a code."""
    return Flow(code)
