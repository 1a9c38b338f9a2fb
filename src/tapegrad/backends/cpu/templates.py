"""Kernels without the numbers in which those of other lengths differ.

    for i in range(50):                    for i in range(#0):
        t[i + 1] = t[i] * 0.02     -->         t[i + 1] = t[i] * #1          # 50, 0.02
    for i in range(49, -1, -1):            for i in range(#2, -1, -1):       # 49

A loop of 73 rounds gives the same template with other numbers, so the machine code of a template is
made once, and gets its numbers when it is taken into use. That is right whatever becomes a number:
a template with the numbers that were taken out of it is the kernel. So it is only a matter of what
is worth it. Taken are

- integers that are one of the program's lengths, or nearly one: bounds of loops, what indices
  count from, what guards compare with. A loop inside a round keeps its bounds: it may be the width
  of a vector, which LLVM wants to know;
- floats that aren't plain, such as a step of 1 / 50: LLVM makes something of 2.0 and 0.5, and of no
  other;
- how many entries an array has along its first axis, which no address depends on. A product of
  matrices depends on it, so there it is a number like others; what else is called with a whole
  array keeps it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.backends.cpu.kernel_cache import Types
from tapegrad.backends.source.program import Kernel

FEW = 16  # rounds of loops, which LLVM may write out, that keep their numbers; small arrays
NEAR = 2  # how far from a length a number may be: `range(n - 1)`, `x[n]`
PLAIN = 16.0  # floats up to this size are plain, if they are multiples of its reciprocal
VIEWS = ("reshaped", "part")
# What is in the type of a part: how many rows there are; which axes, and how much of them.
TYPED = {"row_part": 1, "column_part": 1, "panel": 2}
PRODUCTS = ("matmul", "add_matmul")


@dataclass(frozen=True)
class Template:
    """A kernel's syntax tree, in a module, and types without its numbers, which are named `#0`,
    `#1`, ...; and the numbers."""

    module: ast.Module
    types: Types
    numbers: tuple[np.generic, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The dtypes of the numbers."""
        return tuple([x.dtype.name for x in self.numbers])


def template(
    kernel: Kernel, lengths: Collection[int], constants: Mapping[str, Any]
) -> Template | None:
    """The template of a kernel of a program whose loops have these lengths; None if none of them is
    long. `constants` are the program's."""
    lengths = [n for n in lengths if n > FEW]
    if not lengths:
        return None
    module = ast.parse(kernel.text)
    (tree,) = module.body
    assert isinstance(tree, ast.FunctionDef)
    lifter = _Lifter(lengths, kernel.rounds, constants, _heads(tree))
    left: list[tuple[str, tuple[Any, ...], np.dtype]] = []
    for name, (passed, shape, dtype) in zip(kernel.names, kernel.types(), strict=True):
        left.append((passed, lifter.shape(name, shape) if passed == "array" else shape, dtype))
    tree.body = [lifter.visit(statement) for statement in tree.body]
    for node in ast.walk(tree):  # byte code depends on which nodes are in one line
        if isinstance(node, (ast.expr, ast.stmt, ast.arg)):
            node.lineno = node.end_lineno = 1
            node.col_offset = node.end_col_offset = 0
    return Template(module, left, tuple(lifter.numbers))


def _heads(tree: ast.FunctionDef) -> dict[str, bool]:
    """Of names that are read otherwise than as arrays of which elements, parts or views are taken:
    whether they are only factors or results of products of matrices."""
    plain: set[int] = set()
    multiplied: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            if not any(isinstance(x, ast.Slice) for x in ast.walk(node.slice)):
                plain.add(id(node.value))
        elif _calls(node, VIEWS):
            plain.add(id(node.args[0]))  # type: ignore[attr-defined]
        elif _calls(node, PRODUCTS):
            args = node.args  # type: ignore[attr-defined]
            multiplied |= {id(x.value if isinstance(x, ast.Attribute) else x) for x in args}
    found: dict[str, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in plain:
            found[node.id] = found.get(node.id, True) and id(node) in multiplied
    return found


def _calls(node: ast.AST, functions: Collection[str]) -> bool:
    """Whether this is a call of one of these."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return called and node.func.id in functions  # type: ignore[attr-defined]


class _Lifter(ast.NodeTransformer):
    """Takes the numbers out of a kernel, in the order of the text; each is taken once."""

    def __init__(
        self,
        lengths: Iterable[int],
        rounds: Sequence[bool],
        constants: Mapping[str, Any],
        heads: Mapping[str, bool],
    ) -> None:
        self.lengths = [*lengths]
        self.near: Container[int] = {n + k for n in lengths for k in range(-NEAR, NEAR + 1)}
        self.rounds = iter(rounds)
        self.constants = constants
        self.heads = heads
        self.numbers: list[np.generic] = []
        self._names: dict[tuple[str, bytes], ast.Name] = {}
        self._inside = 0  # loops over rounds
        self._integers = True  # whether they are taken here

    def _lifted(self, node: ast.expr, value: Any) -> ast.expr:
        """What stands in the place of a number."""
        x: Any = np.asarray(value)[()]
        if x.dtype.kind == "f":
            taken = np.isfinite(x) and not _is_plain(float(x))
        else:
            taken = x.dtype.kind in "iu" and self._integers and int(x) in self.near
        return self._named(x) if taken else node

    def _named(self, x: np.generic) -> ast.Name:
        """The name of a number that is taken."""
        key = x.dtype.str, x.tobytes()
        if key not in self._names:
            self._names[key] = ast.Name(f"#{len(self.numbers)}", ast.Load())
            self.numbers.append(x)
        return self._names[key]

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._lifted(node, node.value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self._lifted(node, ast.literal_eval(node))
        node.operand = self.visit(node.operand)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = isinstance(node.ctx, ast.Load) and node.id in self.constants
        return self._lifted(node, self.constants[node.id]) if known else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """What guards compare with may be a length that no loop has: two steps make a round."""
        known, self.near = self.near, _More()
        node.left = self.visit(node.left)
        node.comparators = [self.visit(x) for x in node.comparators]
        self.near = known
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if not _calls(node, VIEWS):  # where a view isn't assigned, it stays as it is
            assert isinstance(node.func, ast.Name)
            end = len(node.args) - TYPED.get(node.func.id, 0)
            node.args[:end] = [self.visit(x) for x in node.args[:end]]
        return node

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        (target,), value = node.targets, node.value
        if _calls(value, VIEWS):
            assert isinstance(value, ast.Call) and isinstance(target, ast.Name)
            self._view(target.id, value)
        else:
            node.targets, node.value = [self.visit(target)], self.visit(value)
        return node

    def _view(self, name: str, call: ast.Call) -> None:
        """`reshaped(array, shape)` and `part(array, start, shape)`: arrays lie behind each other,
        so one may start where so many rows end as there are rounds. Those of a few elements lie by
        themselves."""
        known = ast.literal_eval(call.args[-1])
        for k, start in enumerate(call.args[1:-1], start=1):
            value = ast.literal_eval(start)
            if math.prod(known) > FEW and any(value % n == 0 for n in self.lengths):
                call.args[k] = self._named(np.int64(value))
        shape = self.shape(name, known)
        call.args[-1] = ast.Tuple([ast.Constant(n) for n in shape], ast.Load())

    def shape(self, name: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """The shape of an array: None for what nothing depends on, and the names of numbers."""
        if not shape:
            return shape
        head: Any = shape[0]
        if name not in self.heads:
            head = None
        elif self.heads[name] and head in self.near:
            head = self._named(np.int64(head)).id
        return (head, *shape[1:])

    def visit_For(self, node: ast.For) -> ast.stmt:
        of_rounds = next(self.rounds)
        assert isinstance(node.iter, ast.Call)
        outside, self._integers = self._integers, not self._inside
        node.iter.args[:2] = [self.visit(bound) for bound in node.iter.args[:2]]
        self._integers = outside
        return self._with_body(node, of_rounds)

    def visit_While(self, node: ast.While) -> ast.stmt:
        node.test = self.visit(node.test)
        return self._with_body(node, True)

    def _with_body(self, node: Any, of_rounds: bool) -> ast.stmt:
        self._inside += of_rounds
        node.body = [self.visit(statement) for statement in node.body]
        self._inside -= of_rounds
        return node


class _More:
    """All integers beyond the first few."""

    def __contains__(self, x: object) -> bool:
        return isinstance(x, int) and abs(x) > FEW


def _is_plain(x: float) -> bool:
    return abs(x) <= PLAIN and (x * PLAIN).is_integer()
