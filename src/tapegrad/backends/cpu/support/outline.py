"""What a loop of a kernel is, apart from the names in it and from where its arrays start.

LLVM takes more than twice as long for a function of twice the size, and programs repeat themselves:
fifty layers are a hundred loops, which are two. So large loops that are alike become one function.
A loop that is alone stays where it is: LLVM takes a quarter of a millisecond for each function.
Loops are alike where their tokens are equal: those of the
syntax tree, with variables and arrays numbered as they appear, types in place of their names, and
distances in place of where elements are.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from llvmlite import ir

# Rounds up to which a loop stays where it is: LLVM may unroll it into what surrounds it. With fifty
# loops of 64 rounds in one function it took ten seconds for that.
SMALL = 48
# Rounds up to which LLVM may write out a nest, or an inner loop. Longer ones it writes out after it
# has made vectors of them, which takes it up to half of its time, and saves none in a call.
FEW = 16
# What says how far elements are: `i + 2` beside `i`.
DISTANCE = ast.BinOp, ast.operator, ast.Constant


class Outline:
    """A loop as a function of what it takes from outside.

    `arrays` are those that it touches, each with how far from its start the first element is that
    a round of zeros touches; `views` are the names of their parts, each with the number of its
    array and how far it starts from there. `read` and `changed` are variables.
    """

    def __init__(
        self,
        nodes: Sequence[ast.AST],
        arrays: dict[str, tuple[Any, int, Any]],
        variables: dict[str, Any],
        total: Counter[str],
    ) -> None:
        """The outline of a loop, which is the first of these nodes, among arrays, which are each an
        array that overlaps no other, where it starts in that, and its type; among variables, by
        their types; in a kernel that has each name so often."""
        self.arrays: list[tuple[Any, int]] = []
        self.views: dict[str, tuple[int, int]] = {}
        self.read: list[str] = []
        self.changed: list[str] = []
        self._known, self._variables = arrays, variables
        self._tokens: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._distances: list[tuple[int, int, int]] = []  # the token's place, the array, how far
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
            self._tokens += [type(node), repr(node)]  # which tells 1 from 1.0, and 0.0 from -0.0

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
        """Have distances count from the first that each array is touched at, within the array."""
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
    """Where an element is: parts of its index that are computed, each with its stride, and how far
    the constants in the index go, but along axes with an open stride."""
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
    """The axes that an array has left at an index, of which a slice is all of an axis."""
    entries = entries_of(index)
    slices = [a for a, entry in enumerate(entries) if isinstance(entry, ast.Slice)]
    return [*slices, *range(len(entries), rank)]


def entries_of(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _split(entry: ast.expr) -> tuple[ast.expr | None, int]:
    """An entry of an index as something and a constant that is added."""
    match entry:
        case ast.Constant(value=int(value)):
            return None, value
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=int(k))):
            computed, constant = _split(left)
            return computed, constant + (k if isinstance(op, ast.Add) else -k)
    return entry, 0


def shape_of(nodes: Sequence[ast.AST]) -> Hashable:
    """What loops that are alike have in common, wherever they stand: distances are left out, but
    rounds are not."""
    kinds = Counter(type(x) for x in nodes if not isinstance(x, DISTANCE))
    return *[length(x) for x in nodes if isinstance(x, ast.For)], frozenset(kinds.items())


def rounds(statement: ast.stmt) -> float:
    """How often the bodies of a nest's innermost loops run; infinity, if that isn't constant."""
    if not isinstance(statement, ast.For):
        return 0
    return length(statement) * max(1, sum(map(rounds, statement.body)))


def length(loop: ast.For) -> float:
    """How many rounds a loop has; infinity, if that isn't constant."""
    assert isinstance(loop.iter, ast.Call)
    try:
        return len(range(*map(_extent, loop.iter.args)))
    except ValueError:
        return math.inf


def _extent(bound: ast.expr) -> int:
    """A bound of a loop; a ValueError if it isn't constant."""
    if is_rolled(bound):
        (bound,) = bound.args  # type: ignore[attr-defined]
    return ast.literal_eval(bound)


def is_rolled(bound: ast.expr) -> bool:
    """Whether LLVM isn't told this bound of a loop: see `scalars.rolled`."""
    return isinstance(bound, ast.Call) and _name_of(bound.func) == "rolled"


def keep_rolled(back: ir.Branch) -> None:
    """Have LLVM not write out the loop that this branch closes, nor take several vectors at once:
    of a short row there may be no more than one."""
    module = back.parent.module
    loop = ir.MDValue(module, [], str(len(module.metadata)))
    loop.operands = loop, module.add_metadata(["llvm.loop.unroll.disable"])  # no other is this one
    back.set_metadata("llvm.loop", loop)


def procedure(module: Any, name: str, taken: list[Any]) -> ir.Function:
    """A function that returns nothing, for its module alone."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), taken), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function
