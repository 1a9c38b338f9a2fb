"""Drawings of tapes, opened in the browser."""

from __future__ import annotations

import html
import os
import shutil
import subprocess
import tempfile
import webbrowser
from pathlib import Path

PAGE = """<!doctype html>
<meta charset="utf-8"><title>tapegrad</title>
<style>
  :root {{ color-scheme: light dark }} body {{ font-family: monospace }} b {{ color: red }}
  svg {{ background: white; max-width: 100%; height: auto }}
</style>
<pre>{head}</pre>
{drawing}
"""


SECONDS = 20.0  # time limit of Graphviz: nobody reads a drawing of thousands of calls anyway
NONE = (
    "As text: `dot`, which is Graphviz's, draws it where that is installed (graphviz.org/download)."
)
LONG = "As text: Graphviz takes more than {:g} s to draw so much."


def opened(dot: str, head: str, text: str, marked: str) -> str:
    """Open a page with a heading and a drawing.

    Without Graphviz, or if it takes too long, the page shows a text, with `marked` in red. Returns
    the path of the page.
    """
    drawing, note = _drawn(dot)
    if note:
        red = html.escape(marked)
        shown = html.escape(text).replace(red, f"<b>{red}</b>")
        drawing = f"<p>{html.escape(note)}</p><pre>{shown}</pre>"
    file, path = tempfile.mkstemp(".html", "tapegrad")
    with os.fdopen(file, "w", encoding="utf-8") as page:
        page.write(PAGE.format(head=html.escape(head), drawing=drawing))
    if not webbrowser.open(Path(path).as_uri()):
        print(f"There is no browser to show it: {path}")
    return path


def _drawn(dot: str) -> tuple[str, str]:
    """The drawing as SVG, or the reason why there is none."""
    program = shutil.which("dot")
    if program is None:
        return "", NONE
    try:
        done = subprocess.run(
            [program, "-Tsvg"], input=dot, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return "", LONG.format(SECONDS)
    start = done.stdout.find("<svg")
    if done.returncode or start < 0:
        return "", f"As text: Graphviz doesn't draw it: {done.stderr.strip()}"
    return done.stdout[start:], ""
