"""`make size`: lines of code by folder, beside the budget in pyproject.toml. `make check` holds it.

A line of code holds something other than comments and docstrings. A folder that has become larger
than its budget makes room, or the change that lets it grow also says so in pyproject.toml.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def lines_of_code(text: str) -> int:
    """The lines of a program that hold code."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                held.difference_update(range(first.lineno, int(first.end_lineno or 0) + 1))
    return len(held)


def sizes() -> Counter[str]:
    """Lines of code by folder of the package, of the modules beside these, and of the tests."""
    found: Counter[str] = Counter()
    for home, depth in (("src/tapegrad", 3), ("tests", 1)):
        for path in sorted((ROOT / home).rglob("*.py")):
            folder = "/".join(path.relative_to(ROOT).parent.parts[:depth])
            found[folder] += lines_of_code(path.read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Print the sizes beside the budget; 1 if a folder is above its own, or has none."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    budget: dict[str, int] = settings["tool"]["tapegrad"]["budget"]
    found = sizes()
    above = [folder for folder, size in found.items() if size > budget.get(folder, 0)]
    for folder, size in [*found.items(), ("in all", found.total())]:
        mark = "  too large" if folder in above else ""
        allowed = budget.get(folder, sum(budget.values()) if folder == "in all" else 0)
        print(f"{folder:<26}{size:>8,} of {allowed:>8,}{mark}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
