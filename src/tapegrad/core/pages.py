"""Parts of what notebooks show: HTML in one style, in which everything of the user's is escaped.

A notebook says which colours it has, dark or light, and they are inherited; other ones are mixed of
those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MAX_LINES = 400  # lines of a text: a notebook keeps them all in its file

_STYLE = """
.tapegrad {font-size: 13px; line-height: 1.45; color: inherit}
.tapegrad pre, .tapegrad code {font-size: 12px; color: inherit; background: none; padding: 0;
  text-align: left}
.tapegrad pre {margin: .3em 0; overflow-x: auto; white-space: pre}
.tapegrad .dim {opacity: .6}
.tapegrad summary {cursor: pointer; font-weight: 600; margin-top: .3em}
.tapegrad ul {margin: .2em 0 .2em 1.2em; padding: 0}
.tapegrad table {border-collapse: collapse; margin: .3em 0; font-size: 12px}
.tapegrad th, .tapegrad td {text-align: left; padding: .15em .8em .15em 0; vertical-align: top;
  border: none; border-bottom: 1px solid rgba(128, 128, 128, .3); background: none; color: inherit}
.tapegrad td.n {text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap}
.tapegrad .bar {background: linear-gradient(rgba(64, 128, 224, .35), rgba(64, 128, 224, .35))
  no-repeat left center}
"""


def page(head: str, *parts: str) -> str:
    """A page of parts, with what it is of as its first line."""
    return (
        f'<style>{_STYLE}</style><div class="tapegrad"><b>{escape(head)}</b>{"".join(parts)}</div>'
    )


def paragraph(text: str) -> str:
    return f"<div>{escape(text)}</div>"


def folded(title: str, *parts: str, is_open: bool = True) -> str:
    """Parts that fold under a title."""
    opened = " open" * is_open
    return f"<details{opened}><summary>{escape(title)}</summary>{''.join(parts)}</details>"


def listed(sentences: Iterable[str]) -> str:
    """Sentences, one below the other."""
    return f"<ul>{''.join(f'<li><code>{escape(x)}</code></li>' for x in sentences)}</ul>"


def code(text: str, how: str) -> str:
    """Lines of a tape, or of source, with comments that stand back. Of a long text `how` says where
    the rest is."""
    lines = text.split("\n")
    rows = []
    for line in lines[:MAX_LINES]:
        before, sign, comment = line.partition("  # ")
        rows.append(
            escape(before) + f'<span class="dim">{escape(sign + comment)}</span>' * bool(sign)
        )
    if len(lines) > MAX_LINES:
        rows.append(escape(f"... {len(lines) - MAX_LINES} more lines: {how}"))
    return "<pre>" + "\n".join(rows) + "</pre>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], share: int = -1) -> str:
    """Rows under the names of columns. What is a number, or a pair of its text and its part of a
    whole, stands at the right; of column number `share` the parts are drawn as bars."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = []
    for row in rows:
        cells = []
        for k, x in enumerate(row):
            part = x[1] if isinstance(x, tuple) else None
            text = escape(str(x[0] if isinstance(x, tuple) else x))
            bar = f' style="background-size: {100 * part:.1f}% 70%"' if part is not None else ""
            kinds = "n" * isinstance(x, (int, float, tuple)) + " bar" * (k == share)
            cells.append(f'<td class="{kinds}"{bar if k == share else ""}>{text}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tr>{heads}</tr>{''.join(body)}</table>"
