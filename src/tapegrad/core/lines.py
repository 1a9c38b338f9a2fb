"""The text that stands for a line of a program: the line, or, where that is a piece of something
longer, all of what begins there, on one line.

    y = np.sum(
        [                                                [np.sin(x[k]) for k in range(3)]
            np.sin(x[k])          the second line -->
            for k in range(3)
        ]
    )
"""

from __future__ import annotations

import ast
import linecache
import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

LONGEST = 100  # letters of what stands on several lines
_trees: dict[str, tuple[Sequence[str], list[Any]]] = {}  # by file: its lines, and what is in them


def text_of(file: str, line: int) -> str:
    """The text of a line; empty if the file can't be read."""
    whole = linecache.getline(file, line)
    text = whole.strip()
    if not text or _is_whole(text):
        return text
    lines = linecache.getlines(file)
    nodes = [x for x in _nodes(file, lines) if x.lineno <= line <= x.end_lineno]
    place = line, len(whole) - len(whole.lstrip())
    starting = [x for x in nodes if (x.lineno, x.col_offset) == place]
    # All that begins here, or the least on several lines that this one is of
    several = [x for x in nodes if x.end_lineno > x.lineno]
    found = starting[:1] or sorted(several, key=lambda x: x.end_lineno - x.lineno)[:1]
    if not found:
        return text
    first, last = found[0].lineno, _end(found[0])
    joined = " ".join(re.sub(r"(^|\s+)#.*$", "", x).strip() for x in lines[first - 1 : last])
    joined = re.sub(r"([(\[{]) +| *,? +(?=[)\]}])", r"\1", joined).strip()
    return joined if len(joined) <= LONGEST else joined[: LONGEST - 3] + "..."


@lru_cache(maxsize=1024)
def _is_whole(text: str) -> bool:
    """Whether a line is an expression, a statement or the head of one."""
    return any(_parsed(x).body for x in (text, f"{text} pass"))


def _parsed(text: str) -> ast.Module:
    """The syntax of a text; an empty one where it has faults, as that of a notebook's magic."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of "\\d", say, which Python has told already
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _nodes(file: str, lines: Sequence[str]) -> list[Any]:
    """The statements and expressions of a file, outer ones first."""
    known = _trees.get(file)
    if known is None or known[0] is not lines:
        kinds = ast.stmt, ast.expr, ast.excepthandler
        found = [x for x in ast.walk(_parsed("".join(lines))) if isinstance(x, kinds)]
        known = _trees[file] = lines, found
    return known[1]


def _end(node: Any) -> int:
    """The last line of a node; that of the head of a statement with others in it."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and body[0].lineno > node.lineno:
        return int(body[0].lineno) - 1
    return int(node.end_lineno)
