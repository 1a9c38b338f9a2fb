"""The user's program on the page: the functions with lines on a tape, highlighted."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from tapegrad.core.values import Source

WHOLE = 300  # up to so many lines, a file is shown whole
MAX_LINES = 4_000  # limit of the lines of all files


class Shown(NamedTuple):
    """A line of a file: its number (0 for omitted lines), and its text as HTML."""

    file: str
    number: int
    html: str


def program(sources: Iterable[Source]) -> list[Shown]:
    """The lines of the functions around these sources, by file."""
    lines: dict[str, set[int]] = {}
    for src in sources:
        lines.setdefault(src.file, set()).add(src.line)
    found: list[Shown] = []
    for file, wanted in lines.items():
        texts = _coloured("".join(linecache.getlines(file)))
        last = 0
        for number in sorted(_around(file, wanted, len(texts))):
            if number > last + 1:
                found.append(Shown(file, 0, ""))
            found.append(Shown(file, number, texts[number - 1] if number <= len(texts) else ""))
            last = number
        if last < len(texts):
            found.append(Shown(file, 0, ""))
    return found[:MAX_LINES]


def _around(file: str, wanted: set[int], count: int) -> set[int]:
    """The numbers of the lines of a file to show: all lines of a short file."""
    if 0 < count <= WHOLE:
        return {*range(1, count + 1)}
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # for example a notebook's magic
        return {near for line in wanted for near in range(max(1, line - 3), line + 4)}
    parts = [(node.lineno, node.end_lineno or node.lineno) for node in tree.body]
    around = [(a, b) for a, b in parts if any(a <= line <= b for line in wanted)]
    return wanted.union(*[range(a, b + 1) for a, b in around])


def _coloured(text: str) -> list[str]:
    """The lines of Python source as highlighted HTML."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    if not text:
        return []
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    lines = highlight(text, lexer, HtmlFormatter(nowrap=True)).split("\n")
    count = len(text.split("\n"))
    return lines[:count] if len(lines) >= count else [*map(escape, text.split("\n"))]


def colours(dark: bool) -> str:
    """The style sheet of the highlighting."""
    from pygments.formatters import HtmlFormatter

    style = "github-dark" if dark else "friendly"
    rules = HtmlFormatter(style=style, nobackground=True).get_style_defs(".code")
    return "\n".join(line for line in rules.splitlines() if line.startswith(".code ."))
