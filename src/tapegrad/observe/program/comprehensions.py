"""Generator expressions that are consumed to the end, rewritten as list comprehensions.

    RETURN_GENERATOR, POP_TOP, RESUME     -->    NOP, RESUME, BUILD_LIST
    YIELD_VALUE, RESUME, POP_TOP          -->    LIST_APPEND, NOP, NOP
    LOAD_CONST None, RETURN_VALUE         -->    NOP, RETURN_VALUE

All other instructions stay at their offsets, so lines and offsets are the same.
"""

from __future__ import annotations

import dis
import inspect
from functools import lru_cache
from types import CodeType

from tapegrad.observe.program.liveness import flow_of

_BEGINS = ["RETURN_GENERATOR", "POP_TOP", "RESUME"]
_YIELDS = ["YIELD_VALUE", "RESUME", "POP_TOP"]


@lru_cache(maxsize=256)
def as_list(code: CodeType) -> CodeType | None:
    """The code of a function that returns the list of a generator expression's values. None if the
    expression's code has another form."""
    flow, text = flow_of(code), bytearray(code.co_code)
    if flow.comprehension is None:
        return None
    offsets = [*flow.at]
    names = [flow.at[o].opname for o in offsets]
    for k, (o, name) in enumerate(zip(offsets, names, strict=True)):
        puts: list[tuple[str, int]] = []
        if names[k : k + 3] == _BEGINS:
            puts = [("NOP", 0), ("RESUME", 0), ("BUILD_LIST", 0)]
        elif names[k : k + 3] == _YIELDS:
            puts = [("LIST_APPEND", flow.height(o) - flow.variables), ("NOP", 0), ("NOP", 0)]
        elif names[k : k + 2] == ["LOAD_CONST", "RETURN_VALUE"]:
            puts = [("NOP", 0)]
        elif name == "RETURN_CONST":
            puts = [("RETURN_VALUE", 0)]
        elif name in ("RETURN_GENERATOR", "YIELD_VALUE"):
            return None
        for at, (put, arg) in zip(offsets[k:], puts, strict=False):
            text[at : at + 2] = bytes([dis.opmap[put], arg])
    return code.replace(
        co_code=bytes(text),
        co_flags=code.co_flags & ~inspect.CO_GENERATOR,
        co_stacksize=code.co_stacksize + 1,
    )
