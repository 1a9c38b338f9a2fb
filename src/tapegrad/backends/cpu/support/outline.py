"""The outline of a loop: its structure without its names and the offsets of its arrays.

LLVM takes more than twice as long for a function of twice the size, and programs repeat themselves:
fifty layers are a hundred loops, of two kinds. So equal large loops become one function. A loop
that occurs once stays in the kernel: LLVM takes a quarter of a millisecond for each function. Loops
are equal if their tokens are: those of the syntax tree, with variables and arrays numbered as they
appear, types in place of their names, and distances in place of offsets.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from llvmlite import ir

# Up to this many rounds a loop stays in the kernel: LLVM may unroll it into the code around it. For
# fifty loops of 64 rounds in one function, that took ten seconds.
SMALL_LOOP = 48
# Up to this many rounds LLVM may unroll a nest, or an inner loop. It would unroll longer ones after
# vectorising, which takes up to half of its time, and makes no call faster.
MAX_UNROLLED = 16
# Nodes of constant distances: `i + 2` beside `i`.
DISTANCE = ast.BinOp, ast.operator, ast.Constant


class Outline:
    """A loop as a function of its inputs.

    `arrays` are the arrays that it touches, each with the offset of the first element that a round
    of zeros touches. `views` are the names of their parts, each with the number of its array and
    its offset from there. `read` and `changed` are variables.
    """

    def __init__(
        self,
        nodes: Sequence[ast.AST],
        arrays: dict[str, tuple[Any, int, Any]],
        variables: dict[str, Any],
        total: Counter[str],
    ) -> None:
        """The outline of the loop `nodes[0]`, whose nodes are `nodes`.

        `arrays` are, by name: an array that overlaps no other, an offset in it, and the type.
        `variables` are types, and `total` is the number of uses of each name in the kernel.
        """
        self.arrays: list[tuple[Any, int]] = []
        self.views: dict[str, tuple[int, int]] = {}
        self.read: list[str] = []
        self.changed: list[str] = []
        self._known, self._variables = arrays, variables
        self._tokens: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._distances: list[tuple[int, int, int]] = []  # token's place, array, distance
        indices = {node.target.id for node in nodes if isinstance(node, ast.For)}  # type: ignore[attr-defined]
        names = [node for node in nodes if isinstance(node, ast.Name)]
        here = Counter(node.id for node in names)
        self._assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        self._outlive = {name for name in self._assigned - indices if here[name] < total[name]}
        self._node(nodes[0])
        self._relate()
        self.key = tuple(self._tokens)

    def _node(self, node: Any) -> None:
        if isinstance(node, ast.Name):
            self._name(node.id)
        elif isinstance(node, ast.Subscript) and _name_of(node.value) in self._known:
            name = _name_of(node.value)
            left = kept_axes(node.slice, len(self._known[name][2].shape))
            rest, distance = taken_apart(node.slice, self._known[name][2].strides)
            self._tokens.append(ast.Subscript)
            self._array(name, distance, left)
            self._node([x for entry in rest for x in entry])
        elif isinstance(node, ast.AST):
            self._tokens.append(type(node))
            for field in node._fields:
                if field not in ("ctx", "type_comment"):
                    self._node(getattr(node, field))
        elif isinstance(node, list):
            self._tokens.append(len(node))
            for item in node:
                self._node(item)
        else:
            self._tokens += [type(node), repr(node)]  # tells 1 from 1.0, and 0.0 from -0.0

    def _name(self, name: str) -> None:
        if name in self._known:
            self._array(name, 0)
        elif name not in self._variables and name not in self._assigned:
            self._tokens.append(name)  # a function, or a constant
        else:
            first = name not in self._numbers
            self._tokens.append(self._numbers.setdefault(name, len(self._numbers)))
            if first:
                self._variable(name)

    def _variable(self, name: str) -> None:
        self._tokens += [self._variables.get(name), name in self._outlive]
        if name not in self._assigned:
            self.read.append(name)
        elif name in self._outlive:
            self.changed.append(name)

    def _array(self, name: str, distance: int, left: Sequence[int] | None = None) -> None:
        base, start, kind = self._known[name]
        if base not in self._numbers:
            self._numbers[base] = len(self.arrays)
            self.arrays.append((base, 0))
        number = self._numbers[base]
        self.views[name] = number, start
        self._distances.append((len(self._tokens), number, start + distance))
        axes = range(len(kind.shape)) if left is None else left
        extents = tuple([(a, kind.shape[a]) for a in axes])
        self._tokens += [None, number, kind.dtype, kind.strides, extents]

    def _relate(self) -> None:
        """Make distances relative to the first element of each array that is touched."""
        starts = [
            max(0, min(distance for _, number, distance in self._distances if number == k))
            for k in range(len(self.arrays))
        ]
        for token, number, distance in self._distances:
            self._tokens[token] = distance - starts[number]
        self.arrays = [(base, start) for (base, _), start in zip(self.arrays, starts, strict=True)]
        self.views = {
            name: (number, start - starts[number]) for name, (number, start) in self.views.items()
        }


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def taken_apart(
    index: ast.expr, strides: tuple[Any, ...]
) -> tuple[list[tuple[ast.expr, Any]], int]:
    """The address of an element: the computed parts of its index, each with its stride, and the
    constant distance. Axes with an open stride are computed ones."""
    rest, distance = [], 0
    for entry, stride in zip(entries_of(index), strides, strict=False):
        if isinstance(entry, ast.Slice):
            continue
        if isinstance(stride, str):  # open
            rest.append((entry, stride))
            continue
        computed, constant = _split(entry)
        distance += constant * stride
        if computed is not None:
            rest.append((computed, stride))
    return rest, distance


def kept_axes(index: ast.expr, rank: int) -> list[int]:
    """The axes that remain of an array at an index. A slice is a whole axis."""
    entries = entries_of(index)
    slices = [a for a, entry in enumerate(entries) if isinstance(entry, ast.Slice)]
    return [*slices, *range(len(entries), rank)]


def entries_of(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _split(entry: ast.expr) -> tuple[ast.expr | None, int]:
    """An entry of an index as a computed part (or None), and a constant that is added."""
    match entry:
        case ast.Constant(value=int(value)):
            return None, value
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=int(k))):
            computed, constant = _split(left)
            return computed, constant + (k if isinstance(op, ast.Add) else -k)
    return entry, 0


def shape_of(nodes: Sequence[ast.AST]) -> Hashable:
    """A key that is the same for equal loops at any place: it leaves distances out, but not trip
    counts."""
    kinds = Counter(type(x) for x in nodes if not isinstance(x, DISTANCE))
    return *[length(x) for x in nodes if isinstance(x, ast.For)], frozenset(kinds.items())


def rounds(statement: ast.stmt) -> float:
    """How often the bodies of a nest's innermost loops run; infinity, if that isn't constant."""
    if not isinstance(statement, ast.For):
        return 0
    return length(statement) * max(1, sum(map(rounds, statement.body)))


def length(loop: ast.For) -> float:
    """A loop's trip count; infinity, if that isn't constant."""
    assert isinstance(loop.iter, ast.Call)
    try:
        return len(range(*map(_extent, loop.iter.args)))
    except ValueError:
        return math.inf


def _extent(bound: ast.expr) -> int:
    """A bound of a loop; a ValueError if it isn't constant."""
    if is_rolled(bound) or _is_call(bound, "shared"):
        (bound,) = bound.args  # type: ignore[attr-defined]
    return ast.literal_eval(bound)


def is_rolled(bound: ast.expr) -> bool:
    """Whether this bound of a loop is hidden from LLVM: see `scalars.rolled`."""
    return _is_call(bound, "rolled")


def is_shared(loop: ast.For) -> bool:
    """Whether cores share the rounds of a loop."""
    return isinstance(loop.iter, ast.Call) and _is_call(loop.iter.args[0], "shared")


def _is_call(x: ast.expr, name: str) -> bool:
    return isinstance(x, ast.Call) and _name_of(x.func) == name


def keep_rolled(back: ir.Branch) -> None:
    """Keep LLVM from unrolling the loop that this branch closes, and from interleaving vectors: a
    short row may have only one."""
    module = back.parent.module
    loop = ir.MDValue(module, [], str(len(module.metadata)))
    loop.operands = loop, module.add_metadata(["llvm.loop.unroll.disable"])  # makes it unique
    back.set_metadata("llvm.loop", loop)


def procedure(module: Any, name: str, taken: list[Any]) -> ir.Function:
    """A function without a result, private to its module."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), taken), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function
