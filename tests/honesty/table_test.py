"""The promises as a table: docs/honesty.md is made of the docstrings of this folder's tests.

A test's docstring is `what is done -> what happens`, and the first line of its module is the title
of a part of the table. `make golden` rewrites the table.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "honesty.md"
START, END = "<!-- the table: made of tests/honesty -->", "<!-- end of the table -->"
# In the order of the page.
PARTS = [
    "control_flow",
    "captured_state",
    "reached_state",
    "observed_state",
    "callbacks",
    "identity",
    "hostile_state",
    "whole_values",
    "carried_along",
    "tables",
    "randomness",
    "writes",
    "outside_arrays",
    "inputs",
    "numbers",
    "complex_numbers",
    "operators",
    "small_integers",
    "methods",
    "side_effects",
    "coroutines",
    "concurrency",
    "transformations",
    "gaps",
]


def promises(part: str) -> tuple[str, list[tuple[str, str]]]:
    """The title of a part, and its lines: what is done, and what happens."""
    module = ast.parse((HERE / f"{part}_test.py").read_text())
    lines = []
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            text = " ".join((ast.get_docstring(node) or "").split())
            what, arrow, then = text.partition(" -> ")
            assert arrow, f"{part}_test.py: {node.name} doesn't say `what is done -> what happens`"
            lines.append((what, then))
    title = ast.get_docstring(module)
    assert title and lines, part
    return title.splitlines()[0], lines


def table() -> str:
    out = []
    for part in PARTS:
        title, lines = promises(part)
        out += [f"### {title}", "", "| what is done | what happens |", "|---|---|"]
        out += [f"| {what} | {then} |" for what, then in lines]
        out.append("")
    return "\n".join(out)


def test_every_part_is_on_the_page():
    assert {p.name for p in HERE.glob("*_test.py")} == {
        *(f"{part}_test.py" for part in PARTS),
        Path(__file__).name,
        "freezing_test.py",
    }


def test_the_page_is_up_to_date(request):
    text = PAGE.read_text()
    before, rest = text.split(START)
    _, after = rest.split(END)
    wanted = f"{before}{START}\n\n{table()}\n{END}{after}"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted)
    elif text != wanted:
        pytest.fail("docs/honesty.md is behind the tests: run `make golden`")
