"""The loops of a code, and the tests that leave them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from types import CodeType
from typing import NamedTuple

from tapegrad.observe.program.control import JUMPING, PASSED, Control, line_of

_RETURNS = ("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "SEND")
_BEGINS = ("LOAD_FAST_AND_CLEAR", "SWAP", "BUILD_LIST", "GET_ITER")
_STORING = ("STORE_", "DELETE_", "POP_TOP", "FOR_ITER", "GET_ITER", "YIELD", "SEND")


class Exit(NamedTuple):
    """A test that may leave a loop: the instructions of the loop, the outcome that stays in it, and
    the offsets of the test. Python compiles the condition of a `while` loop twice."""

    body: frozenset[int]
    stays: bool
    places: frozenset[int]


class Loops(Control):
    """The control flow of a code with its loops."""

    def __init__(self, code: CodeType) -> None:
        super().__init__(code)
        jumps = (i for i in self.at.values() if i.opcode in JUMPING)
        self.loops = any(i.argval <= i.offset for i in jumps)
        # The consumer of a generator expression is assumed to exhaust it.
        self.leaving = {*_RETURNS} - {"YIELD_VALUE" if code.co_name == "<genexpr>" else ""}
        self._bodies: dict[int, frozenset[int]] = {}
        self._exits: dict[int, Exit | None] = {}
        self._known: list[frozenset[int]] | None = None

    def loop_at(self, offset: int) -> int | None:
        """The offset of the `for` statement whose iterator is made by the instruction at `offset`;
        or of a comprehension's first `for`. From Python 3.12 on, comprehensions are inlined: their
        variables are saved and an empty list is pushed below the iterator first."""
        place = self.next.get(offset)
        while place is not None and self.at[place].opname in (*PASSED, *_BEGINS):
            place = self.next.get(place)
        if place is None or self.at[place].opname != "FOR_ITER" or self.heights is None:
            return None
        return place

    def is_called_on_iterator(self, offset: int) -> bool:
        """Whether the iterator made by the instruction at `offset` is the only argument of the
        function below it on the stack. Comprehensions are called in this way up to Python 3.11."""
        place = self.next.get(offset)
        while place is not None and self.at[place].opname in (*PASSED, "PRECALL"):
            place = self.next.get(place)
        return place is not None and self.at[place].opname == "CALL" and not self.at[place].arg

    def is_called_on_expression(self, offset: int) -> bool:
        """Whether the call at `offset` has a single argument, a generator expression written in
        place."""
        passed = (*PASSED, "PRECALL")
        before = [i for o, i in self.at.items() if o < offset and i.opname not in passed][-2:]
        return [i.opname for i in before] == ["GET_ITER", "CALL"] and not before[1].arg

    @cached_property
    def comprehension(self) -> int | None:
        """The first `for` of a list comprehension or generator expression, if this is the code of
        one."""
        if self.code.co_varnames[:1] != (".0",) or self.heights is None:
            return None
        place = next((o for o, i in self.at.items() if i.opname == "FOR_ITER"), None)
        known = self.code.co_name in ("<listcomp>", "<genexpr>")
        handler = self.handlers.get(place or 0)
        # From Python 3.12 on, a handler turns StopIteration into another error.
        turns = handler is not None and self.at[handler[0]].opname == "CALL_INTRINSIC_1"
        return place if known and (handler is None or turns) else None

    def filled(self, place: int) -> frozenset[int]:
        """The stack entries, counted from the bottom, of lists that a round of a `for` statement
        appends to: the lists of comprehensions."""
        return frozenset(self.fills(self.body(place), self.height(place) - 1).values())

    def fills(self, offsets: Iterable[int], height: int) -> dict[int, int]:
        """The instructions among these that append to lists below `height` on the stack, each with
        the list's stack entry, counted from the bottom."""
        found = {
            o: self.height(o) - 1 - (self.at[o].arg or 0)
            for o in offsets
            if self.at[o].opname == "LIST_APPEND"
        }
        return {o: k for o, k in found.items() if k < height}

    @cached_property
    def exits(self) -> dict[int, Exit]:
        """The tests that leave loops."""
        found = {o: self.exit_of(o) for o in self._tests()} if self.loops else {}
        return {o: exit_ for o, exit_ in found.items() if exit_ is not None}

    def is_left_by_tests(self, place: int) -> bool:
        """Whether tests leave a `for` statement before its end."""
        return any(self.iterator_of(exit_) == place for exit_ in self.exits.values())

    def iterator_of(self, exit_: Exit) -> int | None:
        """The `for` statement that a test leaves; None for a `while` loop."""
        found = [o for o in exit_.body if self.at[o].opname == "FOR_ITER"]
        return next((o for o in found if self.at[o].argval not in exit_.body), None)

    def meets_end(self, jump: int) -> bool:
        """Whether a `for` statement that a test leaves continues as it does at its end, and the
        test is the last part of a round."""
        exit_ = self.exit_of(jump)
        place = None if exit_ is None else self.iterator_of(exit_)
        if exit_ is None or place is None or self.branch(jump, exit_.stays) != place:
            return False
        left = self.branch(jump, not exit_.stays)
        return self.at[left].opname == "POP_TOP" and self.alike(
            self.next[left], self.at[place].argval
        )

    def body(self, place: int) -> frozenset[int]:
        """The instructions of a round of a `for` statement, empty if a round may leave it; or of
        the loop that a test may leave."""
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
        """The `Exit` of a test that may leave its innermost loop. None if it doesn't leave it, or
        if a frame may return or yield in the middle of the loop."""
        if jump not in self._exits:
            self._exits[jump] = self._exit_of(jump)
        return self._exits[jump]

    def _exit_of(self, jump: int) -> Exit | None:
        if self.heights is None or self.test_at(jump) != jump:
            return None
        direct = self._leaves(jump)
        line = line_of(self.at[jump])
        tests = [o for o in self._tests() if line_of(self.at[o]) == line]
        places = [o for o in tests if o == jump or self.is_same_test(jump, o)]
        found = [x for o in places if (x := self._leaves(o)) is not None]
        body, stays = direct or (found[0] if found else (frozenset(), False))
        if not body or any(self.at[o].opname in _RETURNS for o in body):
            return None
        return Exit(body, stays, frozenset(places))

    def _leaves(self, jump: int) -> tuple[frozenset[int], bool] | None:
        """The innermost loop around a test, and the outcome that stays in it. None unless exactly
        one outcome stays."""
        around = [body for body in self._rounds() if jump in body]
        if not around:
            return None
        body = min(around, key=len)
        stays = [truth for truth in (True, False) if self.branch(jump, truth) in body]
        return (body, stays[0]) if len(stays) == 1 else None

    def _tests(self) -> list[int]:
        return [o for o in self.at if self.test_at(o) == o]

    def _rounds(self) -> list[frozenset[int]]:
        """The instructions of each loop: all between its head and its jumps back."""
        if self._known is None:
            ends: dict[int, set[int]] = {}
            before: dict[int, list[int]] = {}
            for offset in self.at:
                for target in self.after(offset):
                    before.setdefault(target, []).append(offset)
                    if target <= offset:
                        ends.setdefault(target, set()).add(offset)
            self._known = []
            for begin, todo in ends.items():
                reached = {begin}
                while todo:
                    offset = todo.pop()
                    if offset not in reached:
                        reached.add(offset)
                        todo.update(before.get(offset, ()))
                self._known.append(frozenset(reached))
        return self._known

    def leads_on(self, jump: int) -> int | None:
        """The next test after the outcome that stays in the loop, as in `while a and b`. None
        unless it leaves the loop for the same instruction, and only its condition is computed in
        between."""
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
