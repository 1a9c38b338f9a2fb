"""The control flow of a code, and which of its instructions are duplicates of each other.

Python compiles the condition of a `while` loop twice.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from itertools import pairwise
from types import CodeType

from tapegrad.core.listing import listing_of
from tapegrad.observe.program.stack_heights import heights_of

_ENDS = frozenset(["RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"])
_ALWAYS = frozenset(["JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"])
_STOPS = _ENDS | _ALWAYS
JUMPING = frozenset([*dis.hasjrel, *dis.hasjabs])
PASSED = frozenset(["NOP", "EXTENDED_ARG", "CACHE", "RESUME"])


class Control:
    """The control flow between the instructions of a code."""

    def __init__(self, code: CodeType) -> None:
        text, handlers = listing_of(code)
        self.code = code
        self.heights = heights_of(code)
        self.at = {i.offset: i for i in text}
        self.next = {i.offset: j.offset for i, j in pairwise(text)}
        self.handlers: dict[int, tuple[int, int, bool]] = {}
        for entry in handlers:
            for offset in self.at:
                if entry.start <= offset < entry.end:
                    self.handlers[offset] = entry.target, entry.depth, entry.lasti
        self.variables = len({*code.co_varnames, *code.co_cellvars}) + len(code.co_freevars)
        self._after = {offset: self._goes_to(i) for offset, i in self.at.items()}
        self._same: dict[tuple[int, int], bool] = {}

    def height(self, offset: int) -> int:
        """The number of variables and stack entries before an instruction."""
        assert self.heights is not None
        return self.heights[offset >> 1]

    def after(self, offset: int) -> Sequence[int]:
        """The offsets that may run after an instruction, if it doesn't raise."""
        return self._after[offset]

    def _goes_to(self, i: dis.Instruction) -> Sequence[int]:
        goes_on = i.opname not in _STOPS and i.offset in self.next
        ahead = (self.next[i.offset],) if goes_on else ()
        return (*ahead, i.argval) if i.opcode in JUMPING else ahead

    def leads_to(self, offset: int) -> Sequence[int]:
        handler = self.handlers.get(offset)
        return self._after[offset] if handler is None else (*self._after[offset], handler[0])

    # ---- tests

    def test_at(self, offset: int) -> int | None:
        """The conditional jump that takes the truth computed by the instruction at `offset`, if
        there is one."""
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
        """The offset that a conditional jump leads to for this outcome."""
        i = self.at[jump]
        jumps = i.opname.endswith("_IF_TRUE") == truth
        return self.along(i.argval if jumps else self.next[jump])

    def along(self, offset: int) -> int:
        """The first instruction from `offset` on that isn't a no-op or an unconditional jump."""
        seen = set()
        while offset not in seen:
            seen.add(offset)
            i = self.at[offset]
            if i.opname in _ALWAYS:
                offset = i.argval
            elif i.opname in PASSED and offset in self.next:
                offset = self.next[offset]
            else:
                break
        return offset

    def is_same_test(self, one: int, other: int) -> bool:
        """Whether both jumps lead to the same behaviour, for each outcome."""
        if (one, other) not in self._same:
            self._same[one, other] = self.height(one) == self.height(other) and all(
                self.alike(self.branch(one, truth), self.branch(other, truth))
                for truth in (True, False)
            )
        return self._same[one, other]

    def alike(self, one: int, other: int) -> bool:
        """Whether a program behaves the same from both offsets on."""
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
            if line_of(i) != line_of(j):
                return False  # the user's lines are part of the record
            truths = [_asks(k.opname) for k in (i, j)]
            if None not in truths:
                if truths[0] != truths[1]:
                    return False
                todo += [
                    (self._side(first, side), self._side(second, side)) for side in (True, False)
                ]
                continue
            if i.opname != j.opname or (i.opcode not in JUMPING and i.argrepr != j.argrepr):
                return False
            if i.opcode not in JUMPING and i.arg != j.arg:
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


def line_of(i: dis.Instruction) -> int | None:
    return None if i.positions is None else i.positions.lineno


def _asks(name: str) -> str | None:
    """The condition of a jump that pops its operand: "none" or "truth". None for other
    instructions."""
    if not name.startswith("POP_JUMP"):
        return None
    return "none" if name.endswith("NONE") else "truth"
