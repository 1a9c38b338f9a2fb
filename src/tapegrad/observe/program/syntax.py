"""The syntax nodes around the position that a frame is at."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType

CACHED_POSITIONS = 1000  # maximal number of cached positions in codes
# Keyed by the code's id and the offset: the code, the lines of its file, and the nodes.
_known: dict[tuple[int, int], tuple[CodeType, list[str], Sequence[ast.AST]]] = {}


def enclosing(frame: FrameType) -> Sequence[ast.AST]:
    """The syntax nodes around the position that a frame is at, outermost first; empty if
    unknown."""
    code, place = frame.f_code, (id(frame.f_code), frame.f_lasti)
    lines = linecache.getlines(code.co_filename)
    known = _known.get(place)
    if known is None or (lines and lines is not known[1]):
        if len(_known) >= CACHED_POSITIONS:
            _known.clear()
        known = _known[place] = code, lines, tuple(_around(code, frame.f_lasti // 2, lines))
    return known[2]


def _around(code: CodeType, at: int, lines: Sequence[str]) -> Iterator[ast.AST]:
    position = next((p for k, p in enumerate(code.co_positions()) if k == at), None)
    if position is None or None in position:
        return
    line, end, column, end_column = position
    text = "".join(lines)
    syntax = _syntax(text) if text else None  # parsed once for all codes of a file
    yield from down(syntax, line, column, end, end_column)


def down(node: ast.AST | None, *span: int | None) -> Iterator[ast.AST]:
    """The nodes from `node` down to the innermost one that contains the span."""
    while node is not None:
        if isinstance(node, ast.Assert) and node.msg is not None and _contains(node.msg, *span):
            yield ast.Raise()  # the message is only evaluated if the condition fails
        yield node
        children = ast.iter_child_nodes(node)
        node = next((c for c in children if _contains(c, *span)), None)


def span_of(node: ast.expr) -> tuple[int | None, ...]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _contains(node: ast.AST, *span: int | None) -> bool:
    line, column, end, end_column = span
    if not hasattr(node, "lineno"):  # function arguments, or a clause of a comprehension
        return any(_contains(c, *span) for c in ast.iter_child_nodes(node))
    start, stop = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    return start <= (line, column) and (end, end_column) <= stop


@lru_cache(maxsize=16)
def _syntax(text: str) -> ast.AST | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None
