"""The height of a frame's stack before each of its instructions.

Python 3.11 stores the height for a trace function, later versions don't. It follows from the code,
since all paths to an instruction lead to the same height.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from itertools import pairwise
from types import CodeType

from tapegrad.core.listing import listing_of

_ENDS = frozenset(["RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"])
_GOES_ON_ELSEWHERE = frozenset(["JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"])


@lru_cache(maxsize=1024)
def heights_of(code: CodeType) -> list[int] | None:
    """For each instruction of a code, the number of the frame's variables and stack entries; -1 at
    unreachable offsets. None if the heights can't be determined."""
    text, handlers = listing_of(code)
    heights = [-1] * (len(code.co_code) // 2 + 1)
    following = {i.offset: j for i, j in pairwise(text)}
    instructions = {i.offset: i for i in text}
    variables = variables_of(code)
    todo = [(0, variables)]
    for entry in handlers:  # a raised error is pushed on the stack
        todo.append((entry.target, variables + entry.depth + entry.lasti + 1))
    while todo:
        offset, height = todo.pop()
        known = heights[offset >> 1]
        if known == height:
            continue
        if known >= 0 or not variables <= height <= variables + code.co_stacksize:
            return None
        heights[offset >> 1] = height
        i = instructions[offset]
        if i.opname not in _ENDS | _GOES_ON_ELSEWHERE and offset in following:
            todo.append((following[offset].offset, height + _effect(i, False)))
        if i.opcode in _JUMPING:
            todo.append((i.argval, height + _effect(i, True)))
    return heights


def variables_of(code: CodeType) -> int:
    """The number of variables in front of a frame's stack."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return len(code.co_varnames) + len(cells) + len(code.co_freevars)


_JUMPING = frozenset([*dis.hasjrel, *dis.hasjabs])


def _effect(i: dis.Instruction, jumps: bool) -> int:
    """The change of the stack's height by an instruction."""
    if i.opname in _EFFECTS:
        return _EFFECTS[i.opname](i.arg or 0)
    return dis.stack_effect(i.opcode, i.arg, jump=jumps)


# Corrections where `dis.stack_effect` counts several instructions together, or omits the value that
# is sent to a resumed generator.
_EFFECTS = {
    "EXTENDED_ARG": lambda arg: 0,
    "PRECALL": lambda arg: 0,
    "CALL": lambda arg: -1 - arg,
    "RETURN_GENERATOR": lambda arg: 1,
}
