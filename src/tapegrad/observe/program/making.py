"""The line where the program has made an array, by the variable that holds it.

    K = np.exp(-(D**2))    <--
    return K @ x           reads it

The program's variables are searched for the array, from the running line outwards. The line is the
one that has set the variable, as far as the text of the program tells: the last one before the
running line in the same function; elsewhere, the only one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from linecache import getlines
from types import CellType, CodeType, FrameType
from typing import Any

import numpy as np

from tapegrad.core.listing import instructions_of
from tapegrad.core.values import Value
from tapegrad.ir.tape import Source
from tapegrad.observe.program.frames import address_of, is_described, local
from tapegrad.observe.program.source import source_of, user_frames

MOST = 1000  # attributes among which an array is searched for


def made_at(x: np.ndarray) -> Source | None:
    """The line that has made an array which the running function reads; None if unknown."""
    for frame in user_frames() if is_described() else ():
        code, own = frame.f_code, _variables(frame)
        for name, held in own.items():
            if _is(held, x):
                return _set_before(frame, name) or _only(code, name, False)
        used = {name: frame.f_globals.get(name) for name in code.co_names}
        for name, held in used.items():
            if _is(held, x):
                return _only(code, name, False)
        for held in (*own.values(), *used.values()):
            if found := _attribute(held, x):
                return _only(code, found, True)
    return None


def _variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a frame, read from memory: `f_locals` would hold them longer."""
    code, address = frame.f_code, address_of(frame)
    names = dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    found = {name: local(address, k) for k, name in enumerate(names)}
    return {name: _content(x) for name, x in found.items()}


def _content(x: Any) -> Any:
    return (x.cell_contents if x != CellType() else None) if type(x) is CellType else x


def _is(held: Any, x: np.ndarray) -> bool:
    """Whether a variable holds an array, or that of which it is a view; or what stands for such an
    array that the function makes."""
    if isinstance(held, Value) and held._is_constant():  # type: ignore[attr-defined]
        held = held._value  # type: ignore[attr-defined]
    return held is x or (x.base is not None and held is x.base)


def _attribute(held: Any, x: np.ndarray) -> str:
    """The name of the attribute of an object by which it leads to an array, or ""."""
    todo, seen = [("", held)], {id(held)}
    for name, y in todo:
        if name and _is(y, x):
            return name
        is_users = type(y).__flags__ & _OF_A_CLASS_STATEMENT and not isinstance(y, Value)
        parts = getattr(y, "__dict__", None) if is_users else None
        if type(parts) is dict and len(todo) < MOST:
            new = [(key, z) for key, z in parts.items() if id(z) not in seen]
            seen.update([id(z) for _, z in new])
            todo += new
    return ""


_OF_A_CLASS_STATEMENT = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def _set_before(frame: FrameType, name: str) -> Source | None:
    """The last line before the running one where the frame's code sets a variable of its own."""
    code, line = frame.f_code, frame.f_lineno
    found = 0
    for place in instructions_of(code):
        if place.opname in ("STORE_FAST", "STORE_DEREF", "STORE_NAME") and place.argval == name:
            at = place.positions.lineno if place.positions else None
            found = max(found, at or 0) if (at or 0) <= line else found
    return source_of(code, found) if found else None


def _only(code: CodeType, name: str, is_attribute: bool) -> Source | None:
    """The line of a code's file that sets a variable or an attribute, if one alone does."""
    lines = _setting("".join(getlines(code.co_filename))).get((name, is_attribute), [])
    return Source(code.co_filename, lines[0]) if len(lines) == 1 else None


@lru_cache(maxsize=16)
def _setting(text: str) -> dict[tuple[str, bool], list[int]]:
    """The lines of a program that set each variable and attribute."""
    found: dict[tuple[str, bool], list[int]] = {}
    try:
        nodes: Iterator[ast.AST] = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError):  # of a notebook's magic, say
        return found
    for node in nodes:
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            named = isinstance(node, ast.Attribute)
            key = (node.attr if isinstance(node, ast.Attribute) else node.id), named
            found.setdefault(key, []).append(node.lineno)
    return found
