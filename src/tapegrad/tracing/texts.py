"""What a text that is made of traced values is for.

One that is printed, logged or part of an error message tells the user what the trace sees. Any
other (compared, a key of a dict, kept) may decide what the function computes.
"""

from __future__ import annotations

import ast
import dis
import io
import linecache
import os
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from tapegrad.errors import ConversionError
from tapegrad.tracing.exact import is_exact
from tapegrad.tracing.source import at_line, user_frames

_SHOWING = {"print", "write", "display", "log", "debug", "info", "warning", "warn"}
_SHOWING |= {"error", "critical", "exception", "fail"}
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_REMAINDER = [k for k, (_, sign) in enumerate(getattr(dis, "_nb_ops", ())) if sign in ("%", "%=")]


def formats_text() -> bool:
    """Whether a program is in the middle of `text % x`, logging for instance. No number is
    computed there: a traced operand of `%` would have been asked for `__rmod__`."""
    frame = next(user_frames(), None)
    if frame is None or frame.f_lasti < 0:
        return False
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at] == dis.opmap["BINARY_OP"] and code[at + 1] in _REMAINDER


def tell(x: Any) -> None:
    """Guard the value of a tracer that a text is made of, unless the text is only shown."""
    if not x._trace.alive or _is_shown():
        return
    operand, value = x._read()
    certain = x.dtype.kind in "iub" or is_exact(x._trace, operand)
    if x.ndim or not certain:
        raise x._trace.refused(
            ConversionError(
                f"a text is made of a traced value ({x._aval}){at_line()}, and neither printed, "
                "logged nor raised. It would be the same at each later call. Make it outside of "
                "the function, of what it returns"
            )
        )
    x._trace.guard(x, value, "a number in a text")


def _is_shown() -> bool:
    """Whether the text that is being made is printed, logged or raised."""
    for frame in user_frames():
        file = frame.f_code.co_filename
        if file.startswith(_LIBRARY) and "site-packages" not in file:
            if os.path.basename(os.path.dirname(file)) == "logging":
                return True
            continue  # of Python's own library: look who called it
        nodes = list(enclosing(frame))
        return _is_in_error(frame) or _shows(nodes, frame) or _is_kept_to_show(nodes, frame)
    return True  # nobody's program


def _is_in_error(frame: FrameType) -> bool:
    """Whether an exception of the user's is being made, which puts its message together itself."""
    code = frame.f_code
    self = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return isinstance(self, BaseException)


def _shows(nodes: list[ast.AST], frame: FrameType) -> bool:
    """Whether this is an error that is raised, `print`, or a call like it whose result nobody uses:
    a statement, perhaps behind `verbose and`, or the body of a lambda."""
    unused = False
    for node in nodes:
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call):
            named = node.func
            name = getattr(named, "id", None) or getattr(named, "attr", None)
            files = [k.value for k in node.keywords if k.arg == "file"]
            files += [named.value] if isinstance(named, ast.Attribute) else []
            shows = name in _SHOWING and (unused or name == "print")
            if shows and not any(_is_text(x, frame) for x in files):
                return True
        unused = isinstance(node, (ast.Expr, ast.Lambda)) or (
            unused and isinstance(node, (ast.BoolOp, ast.IfExp, ast.Await))
        )
    return False


def _is_kept_to_show(nodes: list[ast.AST], frame: FrameType) -> bool:
    """Whether the text gets a name of the function's own, under which it is only shown."""
    homes = [n for n in nodes if isinstance(n, ast.FunctionDef)]
    kept = [n.targets for n in nodes if isinstance(n, ast.Assign)]
    if not homes or not kept or len(kept[-1]) != 1 or not isinstance(kept[-1][0], ast.Name):
        return False
    name, home = kept[-1][0].id, homes[-1]
    if name not in frame.f_code.co_varnames:
        return False
    uses = [n for n in ast.walk(home) if isinstance(n, ast.Name) and n.id == name]
    read = [n for n in uses if isinstance(n.ctx, ast.Load)]
    return all(_shows(list(_down(home, *_span(n))), frame) for n in read)


def _is_text(node: ast.expr, frame: FrameType) -> bool:
    """Whether a name stands for what collects a text, to be read later."""
    name = getattr(node, "id", "")
    found = frame.f_locals.get(name, frame.f_globals.get(name))
    return isinstance(found, io.StringIO)


def enclosing(frame: FrameType) -> Iterator[ast.AST]:
    """The nodes of the program's syntax around what a frame is at, as far as it can be told."""
    code, at = frame.f_code, frame.f_lasti // 2
    position = next((p for k, p in enumerate(code.co_positions()) if k == at), None)
    if position is None or None in position:
        return
    line, end, column, end_column = position
    yield from _down(_syntax(code), line, column, end, end_column)


def _down(node: ast.AST | None, *span: int | None) -> Iterator[ast.AST]:
    """The nodes from this one to the innermost around a piece of the program."""
    while node is not None:
        if isinstance(node, ast.Assert) and node.msg is not None and _contains(node.msg, *span):
            yield ast.Raise()  # the message is made when the condition doesn't hold
        yield node
        children = ast.iter_child_nodes(node)
        node = next((c for c in children if _contains(c, *span)), None)


def _span(node: ast.expr) -> tuple[int | None, ...]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _contains(node: ast.AST, *span: int | None) -> bool:
    line, column, end, end_column = span
    if not hasattr(node, "lineno"):  # arguments, a comprehension's clause
        return any(_contains(c, *span) for c in ast.iter_child_nodes(node))
    start, stop = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    return start <= (line, column) and (end, end_column) <= stop


@lru_cache(maxsize=64)
def _syntax(code: CodeType) -> ast.AST | None:
    try:
        return ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return None
