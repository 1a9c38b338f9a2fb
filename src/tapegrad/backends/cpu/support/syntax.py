"""The syntax of kernels: trees, operators, and statements that keep a loop from being a
function."""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from typing import Any

OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}


def nodes_of(tree: ast.stmt) -> list[ast.AST]:
    """The statements and expressions of a tree. `ast.walk` takes several times as long."""
    found: list[ast.AST] = [tree]
    for node in found:  # it grows meanwhile
        if isinstance(node, (ast.Name, ast.Constant)):
            continue
        for field in node._fields:
            x = getattr(node, field, None)
            if isinstance(x, (ast.expr, ast.stmt)):
                found.append(x)
            elif isinstance(x, list):
                found += x
    return found


def leaves_its_loop(x: ast.AST) -> bool:
    """Whether a statement can't be in a loop that is a function: a return, or a renaming of
    arrays."""
    if isinstance(x, ast.Assign) and isinstance(x.value, ast.Tuple):
        return True
    return isinstance(x, ast.Return)


def tree_of(function: Any) -> ast.FunctionDef:
    """The syntax tree of a kernel: its attribute `tree`, or parsed from its source."""
    tree = getattr(function, "tree", None)
    if tree is None:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    return tree
