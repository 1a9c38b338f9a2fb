"""Drawings of tapes, opened where the user sees them."""

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
<style>body {{ color-scheme: light dark; font-family: monospace }} b {{ color: red }}</style>
<pre>{head}</pre>
{drawing}
"""


def opened(dot: str, head: str, text: str, marked: str) -> str:
    """Open a page with a heading and a drawing; without Graphviz with a text, in which what is
    `marked` is red."""
    program = shutil.which("dot")
    if program is None:
        red = html.escape(marked)
        drawing = f"<pre>{html.escape(text).replace(red, f'<b>{red}</b>')}</pre>"
    else:
        done = subprocess.run(
            [program, "-Tsvg"], input=dot, capture_output=True, text=True, check=True
        )
        drawing = done.stdout[done.stdout.index("<svg") :]
    file, path = tempfile.mkstemp(".html", "tapegrad")
    with os.fdopen(file, "w", encoding="utf-8") as page:
        page.write(PAGE.format(head=html.escape(head), drawing=drawing))
    webbrowser.open(Path(path).as_uri())
    return path
