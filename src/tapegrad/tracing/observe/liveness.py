"""Which variables a code reads later, from each of its instructions on; and which of its places are
the same: Python writes a `while` loop's condition twice.

A variable that is written before it is read again is dead: what it holds makes no difference.
"""

from __future__ import annotations

import dis
import sys
from functools import cached_property, lru_cache
from itertools import pairwise
from types import CodeType
from typing import Any, NamedTuple

from tapegrad.tracing.observe.heights import heights_of

_ENDS = frozenset(["RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"])
_RETURNS = ("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "SEND")
_STORING = ("STORE_", "DELETE_", "POP_TOP", "FOR_ITER", "GET_ITER", "YIELD", "SEND")
_OPERATIONS = ("BINARY_", "CALL", "COMPARE_OP", "STORE_SUBSCR", "UNARY_")
INNER = 8  # rounds that an inner loop makes, as long as nothing is known
_ALWAYS = frozenset(["JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"])
_JUMPING = frozenset([*dis.hasjrel, *dis.hasjabs])
_PASSED = frozenset(["NOP", "EXTENDED_ARG", "CACHE", "RESUME"])
# By these a program sees all of its variables.
_SEEING = frozenset(
    ["locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "inspect"]
)


class Exit(NamedTuple):
    """A test by which a loop may be left: the instructions of the loop, the outcome that stays in
    it, and the places of the test: Python writes the condition of a `while` loop twice."""

    body: frozenset[int]
    stays: bool
    places: frozenset[int]


class Flow:
    """How control flows through a code, and what it reads on the way."""

    def __init__(self, code: CodeType) -> None:
        listing = dis.Bytecode(code)
        text = list(listing)
        self.code = code
        self.heights = heights_of(code, listing)
        self.at = {i.offset: i for i in text}
        self.next = {i.offset: j.offset for i, j in pairwise(text)}
        self.handlers: dict[int, tuple[int, int, bool]] = {}
        entries: Any = listing.exception_entries  # type: ignore[attr-defined]
        for entry in entries:
            for offset in self.at:
                if entry.start <= offset < entry.end:
                    self.handlers[offset] = entry.target, entry.depth, entry.lasti
        stack = any(i.opname == "LOAD_GLOBAL" and i.argval == "stack" for i in text)
        self.sees_all = stack or not _SEEING.isdisjoint(code.co_names)
        self.variables = len({*code.co_varnames, *code.co_cellvars}) + len(code.co_freevars)
        jumps = (i for i in text if i.opcode in _JUMPING)
        self.loops = any(i.argval <= i.offset for i in jumps)
        # Who goes through a generator expression asks for its entries until it has come to its end
        self.leaving = {*_RETURNS} - {"YIELD_VALUE" if code.co_name == "<genexpr>" else ""}
        self._live = self._lives()
        self._same: dict[tuple[int, int], bool] = {}
        self._regions: dict[tuple[int, bool], frozenset[int]] = {}
        self._bodies: dict[int, frozenset[int]] = {}
        self._exits: dict[int, Exit | None] = {}
        self._loops: list[frozenset[int]] | None = None

    def height(self, offset: int) -> int:
        """How many variables, and entries of the stack, there are before an instruction."""
        assert self.heights is not None
        return self.heights[offset >> 1]

    def live(self, offset: int) -> frozenset[int]:
        """The numbers of the variables that may be read from here on, before they are written."""
        return self._live[offset]

    def after(self, offset: int) -> list[int]:
        """Where control may be after an instruction, but for what it raises."""
        i = self.at[offset]
        found = []
        if i.opname not in _ENDS | _ALWAYS and offset in self.next:
            found.append(self.next[offset])
        if i.opcode in _JUMPING:
            found.append(i.argval)
        return found

    def _lives(self) -> dict[int, frozenset[int]]:
        every = frozenset(range(self.code.co_nlocals)) if self.sees_all else frozenset()
        live = dict.fromkeys(self.at, every)
        before: dict[int, list[int]] = {offset: [] for offset in self.at}
        for offset in self.at:
            for target in self._leads_to(offset):
                before[target].append(offset)
        todo = list(self.at)
        while todo:
            offset = todo.pop()
            out = every.union(*[live[target] for target in self._leads_to(offset)])
            reads, writes = reads_and_writes(self.at[offset])
            found = frozenset(out - writes | reads) | every
            handler = self.handlers.get(offset)
            if handler is not None:  # it may raise before it writes
                found |= live[handler[0]]
            if found != live[offset]:
                live[offset] = found
                todo += before[offset]
        return live

    def _leads_to(self, offset: int) -> list[int]:
        handler = self.handlers.get(offset)
        return [*self.after(offset), *([handler[0]] if handler is not None else [])]

    # ---- loops

    def loop_at(self, offset: int) -> int | None:
        """The `for` statement that begins with the instruction at `offset`, which makes its
        iterator."""
        place = self.next.get(offset)
        while place is not None and self.at[place].opname in _PASSED:
            place = self.next.get(place)
        if place is None or self.at[place].opname != "FOR_ITER" or self.heights is None:
            return None
        if self.handlers.get(place) is not None:
            return None
        return place

    def is_called_on_iterator(self, offset: int) -> bool:
        """Whether what the instruction at `offset` makes, an iterator, is all that the function
        below it is called with: a comprehension is one, up to Python 3.11."""
        place = self.next.get(offset)
        while place is not None and self.at[place].opname in (*_PASSED, "PRECALL"):
            place = self.next.get(place)
        return place is not None and self.at[place].opname == "CALL" and not self.at[place].arg

    @cached_property
    def comprehension(self) -> int | None:
        """The first `for` of a list comprehension or generator expression, if this is the code of
        one."""
        if self.code.co_varnames[:1] != (".0",) or self.heights is None:
            return None
        place = next((o for o, i in self.at.items() if i.opname == "FOR_ITER"), None)
        known = self.code.co_name in ("<listcomp>", "<genexpr>")
        return place if known and self.handlers.get(place or 0) is None else None

    def filled(self, place: int) -> frozenset[int]:
        """The entries of the stack, counted from the bottom of it, that are lists which a round of
        a `for` statement appends to: comprehensions."""
        height = self.height(place)
        found = {
            self.height(o) - 1 - (self.at[o].arg or 0)
            for o in self.body(place)
            if self.at[o].opname == "LIST_APPEND"
        }
        return frozenset(k for k in found if k < height - 1)

    @cached_property
    def exits(self) -> dict[int, Exit]:
        """The tests by which loops are left."""
        found = {o: self.exit_of(o) for o in self._tests()} if self.loops else {}
        return {o: exit_ for o, exit_ in found.items() if exit_ is not None}

    def is_left_by_tests(self, place: int) -> bool:
        """Whether tests leave a `for` statement before it has come to its end."""
        return any(self.iterator_of(exit_) == place for exit_ in self.exits.values())

    def iterator_of(self, exit_: Exit) -> int | None:
        """The `for` statement that is left by a test; None where the loop is a `while`."""
        found = [o for o in exit_.body if self.at[o].opname == "FOR_ITER"]
        return next((o for o in found if self.at[o].argval not in exit_.body), None)

    def meets_end(self, jump: int) -> bool:
        """Whether a `for` statement that a test leaves goes on as it does at its end, and nothing
        is left of the round where the test doesn't leave it."""
        exit_ = self.exit_of(jump)
        place = None if exit_ is None else self.iterator_of(exit_)
        if exit_ is None or place is None or self.branch(jump, exit_.stays) != place:
            return False
        left = self.branch(jump, not exit_.stays)
        return self.at[left].opname == "POP_TOP" and self.alike(
            self.next[left], self.at[place].argval
        )

    def body(self, place: int) -> frozenset[int]:
        """The instructions of a round of a `for` statement, none if a round may leave it; or of the
        loop that a test may leave."""
        known = self._bodies.get(place)
        if known is None:
            is_for = self.at[place].opname == "FOR_ITER"
            exit_ = None if is_for else self.exit_of(place)
            body = self._body(place) if is_for else frozenset()
            known = self._bodies[place] = body if exit_ is None else exit_.body
        return known

    def _body(self, place: int) -> frozenset[int]:
        reached, todo, end = set(), [self.next[place]], self.at[place].argval
        while todo:
            offset = todo.pop()
            if offset == end or self.at[offset].opname in self.leaving:
                return frozenset()
            if offset != place and offset not in reached:
                reached.add(offset)
                todo += self.after(offset)
        return frozenset(reached)

    def exit_of(self, jump: int) -> Exit | None:
        """How a test may leave the innermost loop around it; None if it doesn't, or if the loop is
        one whose rounds a frame doesn't make in one go."""
        if jump not in self._exits:
            self._exits[jump] = self._exit_of(jump)
        return self._exits[jump]

    def _exit_of(self, jump: int) -> Exit | None:
        if self.heights is None or self.test_at(jump) != jump:
            return None
        direct = self._leaves(jump)
        line = _line_of(self.at[jump])
        tests = [o for o in self._tests() if _line_of(self.at[o]) == line]
        places = [o for o in tests if o == jump or self.is_same_test(jump, o)]
        found = [x for o in places if (x := self._leaves(o)) is not None]
        body, stays = direct or (found[0] if found else (frozenset(), False))
        if not body or any(self.at[o].opname in _RETURNS for o in body):
            return None
        if any(self.handlers.get(o) for o in places):
            return None
        return Exit(body, stays, frozenset(places))

    def _leaves(self, jump: int) -> tuple[frozenset[int], bool] | None:
        """The innermost loop around a test, and the outcome that stays in it, if the other one
        doesn't."""
        around = [body for body in self._rounds() if jump in body]
        if not around:
            return None
        body = min(around, key=len)
        stays = [truth for truth in (True, False) if self.branch(jump, truth) in body]
        return (body, stays[0]) if len(stays) == 1 else None

    def _tests(self) -> list[int]:
        return [o for o in self.at if self.test_at(o) == o]

    def _rounds(self) -> list[frozenset[int]]:
        """The instructions of each loop: those between where it begins and where it goes back."""
        if self._loops is None:
            ends: dict[int, set[int]] = {}
            before: dict[int, list[int]] = {}
            for offset in self.at:
                for target in self.after(offset):
                    before.setdefault(target, []).append(offset)
                    if target <= offset:
                        ends.setdefault(target, set()).add(offset)
            self._loops = []
            for begin, todo in ends.items():
                reached = {begin}
                while todo:
                    offset = todo.pop()
                    if offset not in reached:
                        reached.add(offset)
                        todo.update(before.get(offset, ()))
                self._loops.append(frozenset(reached))
        return self._loops

    def leads_on(self, jump: int) -> int | None:
        """The next test on the way that stays in the loop, if it leaves it for the same place, and
        nothing but its condition is computed in between: `while a and b`."""
        exit_ = self.exit_of(jump)
        if exit_ is None:
            return None
        offset = self.branch(jump, exit_.stays)
        while self.test_at(offset) != offset or self.at[offset].opname == "COMPARE_OP":
            i, after = self.at[offset], self.after(offset)
            if len(after) != 1 or i.opname.startswith(_STORING) or after[0] <= offset:
                return None
            offset = after[0]
        other = self.exit_of(offset)
        if other is None or other.body != exit_.body:
            return None
        ends = self.branch(jump, not exit_.stays), self.branch(offset, not other.stays)
        return offset if self.alike(*ends) else None

    def touched(self, place: int) -> frozenset[int]:
        """The numbers of the variables that a round of a `for` statement reads or sets, if that is
        known; else of all."""
        body = self.body(place)
        if self.sees_all or not body:
            return frozenset(range(self.code.co_nlocals))
        both = [reads_and_writes(self.at[o]) for o in body]
        return frozenset().union(*[reads | writes for reads, writes in both])

    def appended(self, place: int) -> frozenset[int]:
        """The numbers of the variables of which a round of a `for` statement does nothing but call
        their method `append`."""
        if self.sees_all:
            return frozenset()
        found, others = set(), set()
        for offset in self.body(place):
            reads, writes = reads_and_writes(self.at[offset])
            others |= writes
            one = self.at[offset].opname in ("LOAD_FAST", "LOAD_FAST_CHECK")
            if one and self._looks_up_append(self.next[offset]):
                found |= reads
            else:
                others |= reads
        names, cells = self.code.co_varnames, self.code.co_cellvars
        return frozenset(k for k in found - others if names[k] not in cells)

    def _looks_up_append(self, offset: int) -> bool:
        """Whether an instruction looks up the method `append`, to be called."""
        while self.at[offset].opname == "EXTENDED_ARG":
            offset = self.next[offset]
        i = self.at[offset]
        in_one = sys.version_info >= (3, 12) and i.opname == "LOAD_ATTR" and (i.arg or 0) & 1
        return bool(i.opname == "LOAD_METHOD" or in_one) and i.argval == "append"

    def weight(self, place: int) -> int:
        """About how many operations a round of a `for` statement makes, by its text."""
        body = self.body(place)
        inner = [self.body(o) for o in body if self.at[o].opname == "FOR_ITER"]
        return sum(
            INNER ** sum(o in rounds for rounds in inner) * _operations(self.at[o]) for o in body
        )

    # ---- tests

    def test_at(self, offset: int) -> int | None:
        """The conditional jump that takes the truth that the instruction at `offset` asks for."""
        if offset not in self.at or self.heights is None:
            return None
        while self.at[offset].opname in ("TO_BOOL", "COMPARE_OP", "CACHE"):  # of Python 3.13
            if offset not in self.next:
                return None
            offset = self.next[offset]
        name = self.at[offset].opname
        is_test = name.startswith("POP_JUMP") and name.endswith(("_IF_TRUE", "_IF_FALSE"))
        return offset if is_test else None

    def branch(self, jump: int, truth: bool) -> int:
        """Where a conditional jump leads to."""
        i = self.at[jump]
        jumps = i.opname.endswith("_IF_TRUE") == truth
        return self.along(i.argval if jumps else self.next[jump])

    def along(self, offset: int) -> int:
        """The first instruction from here on that does anything."""
        seen = set()
        while offset not in seen:
            seen.add(offset)
            i = self.at[offset]
            if i.opname in _ALWAYS:
                offset = i.argval
            elif i.opname in _PASSED and offset in self.next:
                offset = self.next[offset]
            else:
                break
        return offset

    def is_same_test(self, one: int, other: int) -> bool:
        """Whether a program does the same after both of these jumps."""
        if (one, other) not in self._same:
            self._same[one, other] = self.height(one) == self.height(other) and all(
                self.alike(self.branch(one, truth), self.branch(other, truth))
                for truth in (True, False)
            )
        return self._same[one, other]

    def region(self, jump: int, truth: bool) -> frozenset[int]:
        """The instructions of a round: those on a way from this outcome of a test to the test."""
        known = self._regions.get((jump, truth))
        if known is not None:
            return known
        tests = {jump} | {o for o in self.at if self.test_at(o) == o and self.is_same_test(jump, o)}
        before: dict[int, list[int]] = {}
        reached = {self.branch(jump, truth)}
        todo = list(reached)
        while todo:
            offset = todo.pop()
            for target in [] if offset in tests else self._leads_to(offset):
                before.setdefault(target, []).append(offset)
                if target not in reached:
                    reached.add(target)
                    todo.append(target)
        found = tests & reached
        todo = list(found)
        while todo:
            for offset in before.get(todo.pop(), ()):
                if offset not in found:
                    found.add(offset)
                    todo.append(offset)
        return self._regions.setdefault((jump, truth), frozenset(found))

    def alike(self, one: int, other: int) -> bool:
        """Whether a program does the same from both places on."""
        assumed: set[tuple[int, int]] = set()
        todo = [(one, other)]
        while todo:
            first, second = (self.along(offset) for offset in todo.pop())
            if first == second or (first, second) in assumed:
                continue
            assumed.add((first, second))
            i, j = self.at[first], self.at[second]
            if self.handlers.get(first) != self.handlers.get(second):
                return False
            if self.heights is None or self.heights[first >> 1] != self.heights[second >> 1]:
                return False
            if _line_of(i) != _line_of(j):
                return False  # the user's lines are part of what is recorded
            truths = [_asks(k.opname) for k in (i, j)]
            if None not in truths:
                if truths[0] != truths[1]:
                    return False
                todo += [
                    (self._side(first, side), self._side(second, side)) for side in (True, False)
                ]
                continue
            if i.opcode != j.opcode or (i.opcode not in _JUMPING and i.argrepr != j.argrepr):
                return False
            if i.opcode not in _JUMPING and i.arg != j.arg:
                return False
            after = self.after(first), self.after(second)
            if len(after[0]) != len(after[1]):
                return False
            todo += zip(*after, strict=True)
        return True

    def _side(self, offset: int, side: bool) -> int:
        i = self.at[offset]
        jumps = i.opname.endswith(("_IF_TRUE", "_IF_NONE")) == side
        target: int = i.argval if jumps else self.next[offset]
        return target


def _operations(i: dis.Instruction) -> int:
    """About how many operations an instruction makes; one that puts a comprehension on the stack
    stands for all that this makes."""
    if type(i.argval) is CodeType and i.argval.co_varnames[:1] == (".0",):
        inner = flow_of(i.argval)
        place = inner.comprehension
        return INNER * inner.weight(place) if place is not None else 0
    return i.opname.startswith(_OPERATIONS)


def _line_of(i: dis.Instruction) -> int | None:
    return None if i.positions is None else i.positions.lineno


def _asks(name: str) -> str | None:
    """What a conditional jump that drops its operand asks for."""
    if not name.startswith("POP_JUMP"):
        return None
    return "none" if name.endswith("NONE") else "truth"


def reads_and_writes(i: dis.Instruction) -> tuple[set[int], set[int]]:
    """The numbers of the variables that an instruction reads, and of those that it writes; one that
    it reads after it has written it counts as written alone."""
    name, arg = i.opname, i.arg or 0
    if name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CLOSURE"):
        return {arg}, set()
    if name == "LOAD_FAST_AND_CLEAR":
        return {arg}, {arg}
    if name == "STORE_FAST":
        return set(), {arg}
    if name == "DELETE_FAST":  # fails if it isn't there
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
    """How control flows through a code."""
    return Flow(code)
