"""Kernels with the numbers taken out that differ between lengths.

    for i in range(50):                    for i in range(#0):
        t[i + 1] = t[i] * 0.02     -->         t[i + 1] = t[i] * #1          # 50, 0.02
    for i in range(49, -1, -1):            for i in range(#2, -1, -1):       # 49

A loop with trip count 73 has the same template with other numbers. So a template is compiled once,
and its machine code gets the numbers when it is loaded. That is right for any choice of numbers:
the template with the numbers that were taken out is the kernel. The choice is one of cost. Taken
out are

- integers equal or near to one of the program's lengths: bounds of loops, bases of indices,
  expected values of guards. A loop inside a round keeps its bounds: it may be as short as a vector,
  and LLVM vectorises by it;
- floats that aren't plain, such as a step of 1 / 50. LLVM optimises 2.0 and 0.5, and no others;
- the extent of an array's first axis, which no address depends on. A product of matrices depends on
  it, so there it is a number like others; other calls with a whole array keep it;
- all numbers that differ in a program of the same form whose inputs are longer or shorter. These
  include later axes: strides are products then.
"""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.backends.cpu.kernel_cache import Types
from tapegrad.backends.source.program import Kernel, Program
from tapegrad.backends.target import Numbers

MAX_UNROLLED = 16  # most rounds of loops that LLVM may unroll, so they keep numbers; small arrays
MAX_SHIFT = 2  # the largest distance from a length: `range(n - 1)`, `x[n]`
PLAIN = 16.0  # multiples of its reciprocal up to this size are plain floats
VIEWS = ("reshaped", "part")
# The last arguments that are in a part's type: the number of rows; the axes and their extents.
TYPED = {"row_part": 1, "column_part": 1, "panel": 2}
# Functions of whole arrays of any length.
ANY = (
    *("matmul", "add_matmul", "front_matmul", "add_front_matmul", "correlate"),
    *("all_moderate", "clear"),
)


@dataclass(frozen=True)
class Template:
    """A kernel's syntax tree (in a module) and types without its numbers, which are named `#0`,
    `#1`, ...; and the numbers."""

    module: ast.Module
    types: Types
    numbers: tuple[np.generic, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The dtypes of the numbers."""
        return tuple([x.dtype.name for x in self.numbers])

    @property
    def skeleton(self) -> tuple[Any, ...]:
        """The template without its numbers."""
        return ast.dump(self.module), self.types, self.kinds


def template(
    kernel: Kernel,
    lengths: Collection[int],
    constants: Mapping[str, Any],
    others: Sequence[np.generic] | None = None,
) -> Template | None:
    """The template of a kernel; None if nothing is taken out. `lengths` are the trip counts of the
    program's loops, `constants` its constants, and `others` the kernel's numbers for other
    lengths."""
    lengths = [n for n in lengths if n > MAX_UNROLLED]
    if not lengths and others is None:
        return None
    return _lifted(kernel, constants, _Some(others), lengths, floats=True)


def numbers_of(one: Program, other: Program) -> Numbers | None:
    """The numbers of `other` at the places of the numbers of `one`, by kernel; None if the two
    programs differ in anything else."""
    if len(one.kernels) != len(other.kernels):
        return None
    found = []
    for k, kernel in enumerate(one.kernels):
        ours = _lifted(kernel, one.constants, _All())
        theirs = _lifted(other.kernels[k], other.constants, _All())
        if ours.skeleton != theirs.skeleton:
            return None
        found.append(theirs.numbers)
    return found


def _lifted(
    kernel: Kernel,
    constants: Mapping[str, Any],
    taken: _All,
    lengths: Sequence[int] = (),
    floats: bool = False,
) -> Template:
    """A kernel without the numbers that `taken` accepts. Integers near `lengths` are likely ones,
    and so are some floats with `floats`."""
    module = ast.parse(kernel.text)
    (tree,) = module.body
    assert isinstance(tree, ast.FunctionDef)
    lifter = _Lifter(taken, lengths, floats, kernel.rounds, constants, _uses(tree))
    left: list[tuple[str, tuple[Any, ...], np.dtype]] = []
    for name, (passed, shape, dtype) in zip(kernel.names, kernel.types(), strict=True):
        left.append((passed, lifter.shape(name, shape) if passed == "array" else shape, dtype))
    tree.body = [lifter.visit(statement) for statement in tree.body]
    for node in ast.walk(tree):  # bytecode depends on which nodes share a line
        if isinstance(node, (ast.expr, ast.stmt, ast.arg)):
            if isinstance(node, ast.stmt):  # for those who ask: see `support/lines.py`
                node.source_line = node.lineno  # type: ignore[attr-defined]
            node.lineno = node.end_lineno = 1
            node.col_offset = node.end_col_offset = 0
    return Template(module, left, tuple(taken.numbers))


class _All:
    """Takes all numbers out of a kernel, in the order of the source, each by itself."""

    def __init__(self) -> None:
        self.numbers: list[np.generic] = []

    def name(self, x: np.generic, is_likely: bool) -> str | None:
        """The name of a number that is taken out; None if it stays. `is_likely` tells whether it
        probably differs where loops have other lengths."""
        self.numbers.append(x)
        return f"#{len(self.numbers) - 1}"


class _Some(_All):
    """Takes out the likely numbers, and those that differ from `others`; equal numbers share a
    name."""

    def __init__(self, others: Sequence[np.generic] | None) -> None:
        super().__init__()
        self._others = None if others is None else iter(others)
        self._names: dict[Any, str] = {}

    def name(self, x: np.generic, is_likely: bool) -> str | None:
        key = _exact(x), _exact(x if self._others is None else next(self._others))
        if not is_likely and key[0] == key[1]:
            return None
        if key not in self._names:
            self._names[key] = f"#{len(self.numbers)}"
            self.numbers.append(x)
        return self._names[key]


def _exact(x: np.generic) -> tuple[str, bytes]:
    return x.dtype.str, x.tobytes()


class _Use:
    """How an array is read: its `parts`, each with the number of its indices, and as a `whole`;
    each with whether the reader takes any length."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, bool]] = []
        self.whole: bool | None = None

    def of(self, axis: int, rank: int) -> bool | None:
        """None if only indices go along an axis, else whether the axis may have any length."""
        kept = [any_ for count, any_ in self.parts if count <= axis < rank]
        if self.whole is not None:
            kept.append(self.whole)
        return all(kept) if kept else None


def _uses(tree: ast.FunctionDef) -> dict[str, _Use]:
    """How each array is read, by its name."""
    plain: set[int] = set()  # names that aren't read as a whole
    taken: set[int] = set()
    found: defaultdict[str, _Use] = defaultdict(_Use)
    for node in ast.walk(tree):
        if _calls(node, ANY):
            taken |= {id(_array_of(x)) for x in node.args}  # type: ignore[attr-defined]
        elif _calls(node, VIEWS):
            plain.add(id(node.args[0]))  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if any(isinstance(x, ast.Slice) for x in entries):
                taken |= {id(node.value)} if id(node) in taken else set()
            else:
                plain.add(id(node.value))
                found[node.value.id].parts.append((len(entries), id(node) in taken))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in plain:
            use = found[node.id]
            use.whole = use.whole is not False and id(node) in taken
    return found


def _array_of(x: ast.expr) -> ast.expr:
    """The array of an argument: the argument itself, or the array that it is a part or the
    transpose of."""
    while True:
        if isinstance(x, ast.Attribute):
            x = x.value
        elif _calls(x, TYPED):
            x = x.args[0]  # type: ignore[attr-defined]
        else:
            return x


def _calls(node: ast.AST, functions: Collection[str]) -> bool:
    """Whether `node` is a call of one of `functions`."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return called and node.func.id in functions  # type: ignore[attr-defined]


class _Lifter(ast.NodeTransformer):
    """Takes numbers out of a kernel, in the order of the source."""

    def __init__(
        self,
        taken: _All,
        lengths: Sequence[int],
        floats: bool,
        rounds: Sequence[bool],
        constants: Mapping[str, Any],
        uses: Mapping[str, _Use],
    ) -> None:
        self.taken = taken
        self.lengths, self.floats = lengths, floats
        self.near: Container[int] = {
            n + k for n in lengths for k in range(-MAX_SHIFT, MAX_SHIFT + 1)
        }
        self.rounds = iter(rounds)
        self.constants = constants
        self.uses = uses
        self._inside = 0  # the number of loops over rounds around
        self._integers = True  # whether integers are likely here

    def _lifted(self, node: ast.expr, value: Any) -> ast.expr:
        """The node in the place of a number: its name, or the number itself."""
        x: Any = np.asarray(value)[()]
        if x.dtype.kind == "f":
            is_likely = self.floats and bool(np.isfinite(x)) and not _is_plain(float(x))
        elif x.dtype.kind in "iu":
            is_likely = self._integers and int(x) in self.near
        else:
            return node
        name = self.taken.name(x, is_likely)
        return node if name is None else ast.Name(name, ast.Load())

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
        """Visit a comparison. A guard's expected value may be a length that no loop has, as when
        each round makes two steps."""
        known, self.near = self.near, _More() if self.lengths else self.near
        node.left = self.visit(node.left)
        node.comparators = [self.visit(x) for x in node.comparators]
        self.near = known
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        if _calls(node, VIEWS):  # a view that isn't assigned stays as it is
            return node
        if _calls(node, ["rolled"]):  # LLVM knows no length in a template
            found = self.visit(node.args[0])
            return found if isinstance(found, ast.Name) else node
        typed = TYPED.get(node.func.id, 0)
        end = len(node.args) - typed
        node.args[:end] = [self.visit(x) for x in node.args[:end]]
        if typed:
            last = ast.literal_eval(node.args[-1])
            sizes = [self._size(n, False) for n in (last if typed > 1 else [last])]
            node.args[-1] = _tuple(sizes) if typed > 1 else _number(sizes[0])
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
        """Visit `reshaped(array, shape)` and `part(array, start, shape)`. Arrays follow each other
        in memory, so one may start at a multiple of the trip count. Arrays of a few elements are
        kept apart."""
        known = ast.literal_eval(call.args[-1])
        for k, start in enumerate(call.args[1:-1], start=1):
            value = ast.literal_eval(start)
            is_end = any(value % n == 0 for n in self.lengths)
            call.args[k] = _number(self._size(value, is_end and math.prod(known) > MAX_UNROLLED))
        call.args[-1] = _tuple(self.shape(name, known))

    def shape(self, name: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """The shape of an array: None for an extent that nothing depends on, and names of
        numbers."""
        found: list[Any] = []
        for axis, n in enumerate(shape):
            use = self.uses[name].of(axis, len(shape)) if name in self.uses else None
            if use is None and axis == 0:
                found.append(None)
            elif use is False:
                found.append(n)
            else:
                found.append(self._size(n, axis == 0 and n in self.near))
        return tuple(found)

    def _size(self, n: int, is_likely: bool) -> int | str:
        return self.taken.name(np.int64(n), is_likely) or n

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


def _number(n: int | str) -> ast.expr:
    return ast.Name(n, ast.Load()) if isinstance(n, str) else ast.Constant(n)


def _tuple(sizes: Iterable[Any]) -> ast.expr:
    """A shape as a literal: numbers by their names, in quotes."""
    return ast.Tuple([ast.Constant(n) for n in sizes], ast.Load())


class _More:
    """All integers beyond the first few."""

    def __contains__(self, x: object) -> bool:
        return isinstance(x, int) and abs(x) > MAX_UNROLLED


def _is_plain(x: float) -> bool:
    return abs(x) <= PLAIN and (x * PLAIN).is_integer()
