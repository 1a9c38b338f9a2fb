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
  array keeps it;
- all numbers that are others in a program that is alike, but whose inputs are longer or shorter.
  Axes behind the first are among these: strides are products then.
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

FEW = 16  # rounds of loops, which LLVM may write out, that keep their numbers; small arrays
NEAR = 2  # how far from a length a number may be: `range(n - 1)`, `x[n]`
PLAIN = 16.0  # floats up to this size are plain, if they are multiples of its reciprocal
VIEWS = ("reshaped", "part")
# What is in the type of a part: how many rows there are; which axes, and how much of them.
TYPED = {"row_part": 1, "column_part": 1, "panel": 2}
# What takes whole arrays of any length.
ANY = (
    *("matmul", "add_matmul", "front_matmul", "add_front_matmul", "correlate"),
    *("all_moderate", "clear"),
)


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

    @property
    def skeleton(self) -> tuple[Any, ...]:
        """All of it but the numbers."""
        return ast.dump(self.module), self.types, self.kinds


def template(
    kernel: Kernel,
    lengths: Collection[int],
    constants: Mapping[str, Any],
    others: Sequence[np.generic] | None = None,
) -> Template | None:
    """The template of a kernel of a program whose loops have these lengths, with the program's
    `constants`; None if nothing is taken out of it. `others` are the numbers that the kernel has
    for other lengths."""
    lengths = [n for n in lengths if n > FEW]
    if not lengths and others is None:
        return None
    return _lifted(kernel, constants, _Some(others), lengths, floats=True)


def numbers_of(one: Program, other: Program) -> Numbers | None:
    """The numbers that another program has in the place of those of one; None if the two differ in
    more than that."""
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
    """A kernel without the numbers that are `taken` out of it: likely are some integers near these
    lengths, and some floats."""
    module = ast.parse(kernel.text)
    (tree,) = module.body
    assert isinstance(tree, ast.FunctionDef)
    lifter = _Lifter(taken, lengths, floats, kernel.rounds, constants, _uses(tree))
    left: list[tuple[str, tuple[Any, ...], np.dtype]] = []
    for name, (passed, shape, dtype) in zip(kernel.names, kernel.types(), strict=True):
        left.append((passed, lifter.shape(name, shape) if passed == "array" else shape, dtype))
    tree.body = [lifter.visit(statement) for statement in tree.body]
    for node in ast.walk(tree):  # byte code depends on which nodes are in one line
        if isinstance(node, (ast.expr, ast.stmt, ast.arg)):
            node.lineno = node.end_lineno = 1
            node.col_offset = node.end_col_offset = 0
    return Template(module, left, tuple(taken.numbers))


class _All:
    """Numbers that are taken out of a kernel, in the order of the text: each by itself."""

    def __init__(self) -> None:
        self.numbers: list[np.generic] = []

    def name(self, x: np.generic, is_likely: bool) -> str | None:
        """The name of a number that is taken; None of one that stays. It `is_likely` another one
        where loops have other lengths."""
        self.numbers.append(x)
        return f"#{len(self.numbers) - 1}"


class _Some(_All):
    """The likely ones, and those in whose place another kernel has `others`; each is taken once."""

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
    """How an array is read: in `parts`, of which each has so many indices, and as a `whole`; and
    whether by what takes any length."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, bool]] = []
        self.whole: bool | None = None

    def of(self, axis: int, rank: int) -> bool | None:
        """None if indices alone go along an axis, and else whether it may have any length."""
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
    """The array that an argument is, or is a part or the transpose of."""
    while True:
        if isinstance(x, ast.Attribute):
            x = x.value
        elif _calls(x, TYPED):
            x = x.args[0]  # type: ignore[attr-defined]
        else:
            return x


def _calls(node: ast.AST, functions: Collection[str]) -> bool:
    """Whether this is a call of one of these."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return called and node.func.id in functions  # type: ignore[attr-defined]


class _Lifter(ast.NodeTransformer):
    """Takes numbers out of a kernel, in the order of the text."""

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
        self.near: Container[int] = {n + k for n in lengths for k in range(-NEAR, NEAR + 1)}
        self.rounds = iter(rounds)
        self.constants = constants
        self.uses = uses
        self._inside = 0  # loops over rounds
        self._integers = True  # whether some are likely here

    def _lifted(self, node: ast.expr, value: Any) -> ast.expr:
        """What stands in the place of a number."""
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
        """What guards compare with may be a length that no loop has: two steps make a round."""
        known, self.near = self.near, _More() if self.lengths else self.near
        node.left = self.visit(node.left)
        node.comparators = [self.visit(x) for x in node.comparators]
        self.near = known
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        if _calls(node, VIEWS):  # where a view isn't assigned, it stays as it is
            return node
        if _calls(node, ["rolled"]):  # which hides from LLVM what it doesn't know of a template
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
        """`reshaped(array, shape)` and `part(array, start, shape)`: arrays lie behind each other,
        so one may start where so many rows end as there are rounds. Those of a few elements lie by
        themselves."""
        known = ast.literal_eval(call.args[-1])
        for k, start in enumerate(call.args[1:-1], start=1):
            value = ast.literal_eval(start)
            is_end = any(value % n == 0 for n in self.lengths)
            call.args[k] = _number(self._size(value, is_end and math.prod(known) > FEW))
        call.args[-1] = _tuple(self.shape(name, known))

    def shape(self, name: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """The shape of an array: None for what nothing depends on, and the names of numbers."""
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
    """A shape as it is written: numbers by their names, in quotes."""
    return ast.Tuple([ast.Constant(n) for n in sizes], ast.Load())


class _More:
    """All integers beyond the first few."""

    def __contains__(self, x: object) -> bool:
        return isinstance(x, int) and abs(x) > FEW


def _is_plain(x: float) -> bool:
    return abs(x) <= PLAIN and (x * PLAIN).is_integer()
